"""Stable sorting of short rows: an element's place is the number of those that go before it.

    keys 7 2 7 5    before each: 2 0 3 1    so the positions in order are 1 3 0 2

Every element is held against a vector of others at a time, n² / lanes comparisons without a
branch. Of equals the earlier goes before the later, so no two elements have the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.loops.sort_radix import ordered

Ties = Callable[[str], Vec | bool]  # for an element at a place: whether equal ones count


def is_short(extent: int, target: Target) -> bool:
    """Are so many elements counted faster than they are sorted by digits?

    With vectors of 64 bytes 128 elements of any dtype are (a row of float32 takes 0.59 and 0.96
    us, of int8 0.24 both ways), with half the lanes half as many.
    """
    return extent <= 2 * target.vector_bytes


class Counts:
    """The code that finds the order of `extent` elements.

    Places are counted in integers as wide as the widest key, so there are at most 256 elements.

    columns: address and dtype of every key, the most important first; they may be read up to the
    end of a cache line. take: gives the address of so many bytes of scratch, whole cache lines.
    descending: the largest first; of equals the first stays the first.
    """

    def __init__(
        self,
        code: Code,
        columns: Sequence[tuple[str, np.dtype]],
        extent: int,
        take: Callable[[int], str],
        descending: bool = False,
    ) -> None:
        self.code, self.f, self.extent, self.descending = code, code.function, extent, descending
        self.columns = columns
        self.size = max(dtype.itemsize for _, dtype in columns)
        self.kind = f"i{8 * self.size}"
        self.lanes = code.target.vector_bytes // self.size
        self.keys = [take(extent * dtype.itemsize) for _, dtype in columns]
        self.places = take(extent * self.size)

    def sort(self, order: str) -> None:
        """Write the positions (i32) in order."""
        f = self.f
        f.loop(0, self.extent, self.lanes, self._prepare, (), True)
        f.loop(0, self.extent, self.lanes, self._count, (), True)

        def put(position: str, _: list[str]) -> None:
            place = self._at(self.places, self.size, position, 1).convert("zext", "i64")
            narrow = f.op(f"trunc i64 {position} to i32")
            f.line(f"store i32 {narrow}, ptr {f.offset(order, f.mul(place.text, 4))}, align 4")

        f.loop(0, self.extent, 1, put, (), True)

    def _prepare(self, start: str, _: list[str]) -> None:
        """Write a vector of each column as unsigned integers of the same order."""
        for keys, (column, dtype) in zip(self.keys, self.columns, strict=True):
            key = ordered(self._at(column, dtype.itemsize, start, self.lanes), dtype)
            self._store(~key if self.descending else key, keys, dtype.itemsize, start)

    def _count(self, start: str, _: list[str]) -> None:
        """Write the places of a vector of elements."""
        f = self.f
        mine = [
            self._at(keys, dtype.itemsize, start, self.lanes)
            for keys, (_, dtype) in zip(self.keys, self.columns, strict=True)
        ]
        lane = self.code.iota(self.kind, self.lanes)

        def within(place: str) -> Vec:
            """Which lanes are later than a place among them."""
            number = Vec(self.code, "i64", 1, f.op(f"sub i64 {place}, {start}"))
            return lane.compare("ugt", number.convert("trunc", self.kind))

        def counted(low: str, high: str | int, count: Vec, ties: Ties) -> Vec:
            """The count and how many of low..high go before each of my lanes."""

            def add(place: str, counts: list[str]) -> list[str]:
                goes = self._before(place, mine, ties(place)).convert("zext", self.kind)
                return [(Vec(self.code, self.kind, self.lanes, counts[0]) + goes).text]

            (text,) = f.loop(low, high, 1, add, [(count.type, count.text)])
            return Vec(self.code, self.kind, self.lanes, text)

        end = f.least(f.add(start, self.lanes), self.extent)
        count = self.code.const(self.kind, 0, self.lanes)
        if self.extent > self.lanes:
            count = counted("0", start, count, lambda _: True)
            count = counted(end, self.extent, count, lambda _: False)
        count = counted(start, end, count, within)
        self._store(count, self.places, self.size, start)

    def _before(self, place: str, mine: Sequence[Vec], ties: Vec | bool) -> Vec:
        """Which of my lanes the element at a place goes before; ties: whether equals count."""
        found: Vec | bool = ties
        for (_, dtype), keys, own in reversed(
            list(zip(self.columns, self.keys, mine, strict=True))
        ):
            other = self._at(keys, dtype.itemsize, place, 1)
            if isinstance(found, bool):
                found = own.compare("uge" if found else "ugt", other)
            else:
                found = own.compare("ugt", other) | (own.equals(other) & found)
        assert isinstance(found, Vec)  # there is at least one key
        return found

    def _at(self, array: str, size: int, place: str, lanes: int) -> Vec:
        """Integers of so many bytes, from a place on."""
        address = self.f.offset(array, self.f.mul(place, size))
        kind = f"i{8 * size}"
        type_ = kind if lanes == 1 else f"<{lanes} x {kind}>"
        return self.code.op(kind, lanes, f"load {type_}, ptr {address}, align {lanes * size}")

    def _store(self, value: Vec, array: str, size: int, start: str) -> None:
        address = self.f.offset(array, self.f.mul(start, size))
        align = value.width * size
        self.f.line(f"store {value.type} {value.text}, ptr {address}, align {align}")
