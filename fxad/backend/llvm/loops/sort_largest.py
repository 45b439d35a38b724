"""The few largest of many, without sorting the many.

    the 2 largest of 5 1 7 2 9 3:  5 1, then 7 goes past 1: 7 5, then 9 past 5: 9 7

The last of the best so far is the threshold. A vector of elements at a time is compared with it;
nearly always none is beyond. Very few are kept in order by insertion; more are collected as
candidates, sorted when there are many, and cut to as many as are wanted, which raises the
threshold. All of it is stable: later equals do not pass the threshold.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Sorts
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Lanes, Scope, inner, with_axes
from fxad.backend.llvm.elements.values import load
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_keys import keys_of
from fxad.backend.llvm.loops.sort_positions import (
    POSITION,
    element,
    number_positions,
    position_at,
    put_position,
    with_array,
)
from fxad.backend.llvm.loops.sort_radix import radix_of, sort_by_digits
from fxad.core import dtypes
from fxad.core.record import record
from fxad.ir import kernel as ir


def insertion_is_worth(extent: int, wanted: int, target: Target) -> bool:
    """Fewer elements than a vector has bytes are all counted."""
    return wanted <= target.tuning.sorts.insertion and extent > target.vector_bytes


def candidates_are_worth(extent: int, wanted: int, target: Target) -> bool:
    tuning = target.tuning.sorts
    return extent >= 2 * (_most_candidates(wanted, tuning) + tuning.chunk)


def _most_candidates(wanted: int, tuning: Sorts) -> int:
    """More than this are sorted and cut."""
    return wanted + max(wanted, tuning.spare)


# ---------------------------------------------------------------- the threshold


@record
class _Search:
    """The best so far of `keys` along `axis`: their positions in the array at `order`, the best
    first, `wanted` in the end. Elements are compared in vectors of `width`."""

    scope: Scope
    keys: ir.Buffer
    axis: ir.Axis
    wanted: int
    width: int
    order: str


def _search(scope: Scope, stage: ir.Sort, keys: ir.Buffer, order: ir.Buffer) -> _Search:
    size = max(keys.dtype.itemsize, 2)
    width = 2 * scope.context.schedule.target.vector_bytes // size
    place = scope.context.pointers[order]
    return _Search(scope, keys, stage.axis, stage.stored.extent, width, place)


def _threshold(s: _Search) -> Vec:
    """The last of the best so far."""
    return element(s.scope, s.keys, position_at(s.scope, s.order, str(s.wanted - 1)))


def _is_beyond(s: _Search, threshold: Vec, place: str) -> Vec:
    """Does the element at a place go before the threshold?"""
    return compare(threshold, element(s.scope, s.keys, place), s.keys.dtype)[0]


def _when_beyond(s: _Search, start: str, threshold: Vec, found: Callable[[], object]) -> None:
    """Where any of the vector from `start` may be beyond the threshold, what `found` emits."""
    f, dtype = s.scope.f, s.keys.dtype
    at = with_axes(s.scope, {s.axis: start})
    here = inner(s.scope, axes=at, lanes=Lanes(s.axis, s.width))
    values = load(here, s.keys, ir.Index(0, ((s.axis, 1),)), None, None, wide=True)
    unsigned = dtypes.is_float(dtype) or dtype.kind in "ub"  # of floats: beyond, or NaN
    some = values.compare("ugt" if unsigned else "sgt", threshold)
    mask = f.op(f"bitcast {some.type} {some.text} to i{s.width}")
    f.when(f.op(f"icmp ne i{s.width} {mask}, 0"), found)


def compare(a: Vec, b: Vec, dtype: np.dtype) -> tuple[Vec, Vec]:
    """(a before b, a level with b)."""
    if dtypes.is_float(dtype):
        before = (a < b) | (b.is_nan() & a.compare("ord", a))
        return before, a.equals(b) | (a.is_nan() & b.is_nan())
    return a.compare("ult" if dtype.kind in "ub" else "slt", b), a.equals(b)


# ---------------------------------------------------------------- insertion


def largest_by_insertion(scope: Scope, stage: ir.Sort, keys: ir.Buffer) -> str:
    """The array of the largest elements' positions: what an element displaces goes on to the next
    place."""
    f, extent, wanted = scope.f, stage.axis.extent, stage.stored.extent
    scope, order = with_array(scope, "order", POSITION, wanted + 1)  # one for what drops out
    s = _search(scope, stage, keys, order)

    def check(place: str, _: Texts) -> None:
        f.when(_is_beyond(s, _threshold(s), place).text, lambda: _insert(s, place, str(wanted)))

    def vector(at: str, _: Texts) -> None:
        high = f.add(at, s.width)
        _when_beyond(s, at, _threshold(s), lambda: f.loop(at, high, 1, check, (), True))

    start = wanted + (extent - wanted) % s.width  # the rest are whole vectors
    f.loop(0, wanted, 1, lambda at, _: _insert(s, at, at), at_least_once=True)
    f.loop(wanted, start, 1, check)
    f.loop(start, extent, s.width, vector)
    return s.order


def _insert(s: _Search, position: str, count: str) -> None:
    """Put a position among the first `count`; what is left over goes behind them."""
    f = s.scope.f

    def step(place: str, carried: Texts) -> Texts:
        moving, displaced = carried
        held = position_at(s.scope, s.order, place)
        other = element(s.scope, s.keys, held)
        before = f.op(f"or i1 {displaced}, {_is_beyond(s, other, moving).text}")
        stays = f.op(f"select i1 {before}, i64 {moving}, i64 {held}")
        put_position(s.scope, s.order, place, stays)
        return [f.op(f"select i1 {before}, i64 {held}, i64 {moving}"), before]

    left, _ = f.loop(0, count, 1, step, [("i64", position), ("i1", "false")])
    put_position(s.scope, s.order, count, left)


# ---------------------------------------------------------------- candidates


def largest_by_candidates(scope: Scope, stage: ir.Sort, keys: ir.Buffer) -> str:
    """The same array: positions go to the end of a list; it is sorted and cut from time to time."""
    f, extent, wanted = scope.f, stage.axis.extent, stage.stored.extent
    tuning = scope.code.target.tuning.sorts
    many, chunk = _most_candidates(wanted, tuning), tuning.chunk
    most = many + chunk
    scope, order = with_array(
        scope, "order", POSITION, most + 1
    )  # one for a candidate that is none
    s = _search(scope, stage, keys, order)
    scope, other = with_array(scope, "other", POSITION, most)
    start = most - (most - extent) % s.width  # the rest are whole vectors
    count = scope.context.scratch.take(8)  # where the number of candidates is
    radix = radix_of(scope, keys_of(scope, [keys], most, descending=True))

    def cut(number: str) -> None:
        sorted_to = sort_by_digits(scope, radix, s.order, scope.context.pointers[other], number)

        def move(at: str, _: Texts) -> None:
            put_position(s.scope, s.order, at, position_at(s.scope, sorted_to, at))

        f.loop(0, wanted, 1, move, at_least_once=True)
        f.line(f"store i64 {wanted}, ptr {count}, align 8")

    def elements(start: str, _: Texts) -> None:
        """Sort and cut if there are many or nothing is left; then the next elements."""
        number = f.op(f"load i64, ptr {count}, align 8")
        full = f.op(f"icmp sgt i64 {number}, {many}")
        ended = f.op(f"icmp sge i64 {start}, {extent}")
        f.when(f.op(f"or i1 {full}, {ended}"), lambda: cut(number))
        threshold = _threshold(s)

        def vector(at: str, _: Texts) -> None:
            _when_beyond(s, at, threshold, lambda: _collect(s, at, threshold, count))

        f.loop(start, f.least(f.add(start, chunk), extent), s.width, vector)

    number_positions(scope, order, start)
    f.line(f"store i64 {start}, ptr {count}, align 8")
    f.loop(start, extent + chunk, chunk, elements, at_least_once=True)
    return s.order


def _collect(s: _Search, start: str, threshold: Vec, count: str) -> None:
    """Append every position of a vector; those count whose elements are beyond the threshold."""
    f = s.scope.f

    def one(place: str, counts: Texts) -> Texts:
        put_position(s.scope, s.order, counts[0], place)
        return [f.add(counts[0], f.op(f"zext i1 {_is_beyond(s, threshold, place).text} to i64"))]

    before = [("i64", f.op(f"load i64, ptr {count}, align 8"))]
    (after,) = f.loop(start, f.add(start, s.width), 1, one, before, at_least_once=True)
    f.line(f"store i64 {after}, ptr {count}, align 8")
