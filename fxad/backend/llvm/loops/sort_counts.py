"""Stable sorting of short rows: an element's place is the number of those that go before it.

    keys 7 2 7 5    before each: 2 0 3 1    so the positions in order are 1 3 0 2

Every element is held against a vector of others at a time, n² / lanes comparisons without a
branch. Of equals the earlier goes before the later, so no two elements have the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Scope
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_keys import Keys, load_integers, ordered, store_integers
from fxad.backend.llvm.loops.sort_positions import put_position
from fxad.core.record import record

Ties = Callable[[str], Vec | bool]  # for an element at a place: whether equal ones count


def is_short(extent: int, target: Target) -> bool:
    """Are so many elements counted faster than they are sorted by digits?

    With vectors of 64 bytes 128 elements of any dtype are (a row of float32 takes 0.59 and 0.96
    us, of int8 0.24 both ways), with half the lanes half as many.
    """
    return extent <= 2 * target.vector_bytes


@record
class _Counting:
    """How elements are counted, a vector of `lanes` at a time.

    integers: arrays of the keys as unsigned integers, one for each column. places: the array of the
    elements' places, in integers of `size` bytes, as wide as the widest key: so there are at most
    256 elements.
    """

    keys: Keys
    lanes: int
    integers: tuple[str, ...]
    places: str
    size: int

    @property
    def kind(self) -> str:
        """The type of a place."""
        return f"i{8 * self.size}"


def sort_by_counts(scope: Scope, keys: Keys, order: str) -> None:
    """Write the positions (i32) in order."""
    f, extent = scope.f, keys.extent
    take, size = scope.context.scratch.take, max(column.size for column in keys.columns)
    integers = tuple(take(extent * column.size) for column in keys.columns)
    lanes = scope.code.target.vector_bytes // size
    counting = _Counting(keys, lanes, integers, take(extent * size), size)

    def put(position: str, _: Texts) -> None:
        place = load_integers(scope, counting.places, size, position).convert("zext", "i64")
        put_position(scope, order, place.text, position)

    f.loop(0, extent, lanes, lambda at, _: _write_integers(scope, counting, at), (), True)
    f.loop(0, extent, lanes, lambda at, _: _write_places(scope, counting, at), (), True)
    f.loop(0, extent, 1, put, (), True)


def _write_integers(scope: Scope, c: _Counting, start: str) -> None:
    """A vector of each column as unsigned integers of the same order."""
    for array, column in zip(c.integers, c.keys.columns, strict=True):
        bits = load_integers(scope, column.address, column.size, start, c.lanes)
        key = ordered(bits, column.dtype, c.keys.descending)
        store_integers(scope, key, array, column.size, start)


def _write_places(scope: Scope, c: _Counting, start: str) -> None:
    """The places of a vector of elements."""
    f, code = scope.f, scope.code
    mine = [
        load_integers(scope, array, column.size, start, c.lanes)
        for array, column in zip(c.integers, c.keys.columns, strict=True)
    ]
    lane = code.iota(c.kind, c.lanes)

    def within(place: str) -> Vec:
        """Which lanes are later than a place among them."""
        number = Vec(code, "i64", 1, f.op(f"sub i64 {place}, {start}"))
        return lane.compare("ugt", number.convert("trunc", c.kind))

    def counted(low: str, high: str | int, count: Vec, ties: Ties) -> Vec:
        """The count and how many of low..high go before each of my lanes."""

        def add(place: str, counts: Texts) -> Texts:
            goes = _before(scope, c, place, mine, ties(place)).convert("zext", c.kind)
            return [(Vec(code, c.kind, c.lanes, counts[0]) + goes).text]

        (text,) = f.loop(low, high, 1, add, [(count.type, count.text)])
        return Vec(code, c.kind, c.lanes, text)

    extent = c.keys.extent
    end = f.least(f.add(start, c.lanes), extent)
    count = code.const(c.kind, 0, c.lanes)
    if extent > c.lanes:
        count = counted("0", start, count, lambda _: True)
        count = counted(end, extent, count, lambda _: False)
    count = counted(start, end, count, within)
    store_integers(scope, count, c.places, c.size, start)


def _before(scope: Scope, c: _Counting, place: str, mine: Sequence[Vec], ties: Vec | bool) -> Vec:
    """Which of my lanes the element at a place goes before; ties: whether equals count."""
    found: Vec | bool = ties
    for column, array, own in reversed(list(zip(c.keys.columns, c.integers, mine, strict=True))):
        other = load_integers(scope, array, column.size, place)
        if isinstance(found, bool):
            found = own.compare("uge" if found else "ugt", other)
        else:
            found = own.compare("ugt", other) | (own.equals(other) & found)
    assert isinstance(found, Vec)  # there is at least one key
    return found
