"""Stable sorting of the values along one axis.

The operands are evaluated once into scratch; positions are sorted by the keys' digits
(`sort_radix`), or, where they are few, merged bottom up through two arrays (runs of 1, 2, 4 ...),
comparing keys where they lie; then every store reads its operand at the sorted position.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_radix import LEAST, Radix
from fxad.backend.llvm.loops.stages import Stages
from fxad.core import dtypes
from fxad.ir import kernel as ir

POSITION = np.dtype("int32")


class Sorting(Stages):
    """Stages with Sort."""

    def run(self, stage: ir.Stage) -> None:
        if not isinstance(stage, ir.Sort):
            super().run(stage)
            return
        if self.is_empty([stage.stored]):
            return
        self.scopes.append({})
        here = ir.Index(0, ((stage.axis, 1),))
        copies = [self._temporary("operand", v.dtype, stage.axis.extent) for v in stage.operands]
        fill = [ir.Store(b, here, v) for b, v in zip(copies, stage.operands, strict=True)]
        super().run(ir.Map((stage.axis,), tuple(fill)))
        self._write(stage, copies, self._order(stage, copies))
        self.scopes.pop()

    def _temporary(self, name: str, dtype: np.dtype, size: int) -> ir.Buffer:
        """Scratch for one sort, at a new place."""
        buffer = ir.Buffer(name, dtype, size, "scratch")
        self.pointers[buffer] = self.scratch(size * dtype.itemsize)
        return buffer

    def _numbered(self, buffer: ir.Buffer, count: int) -> str:
        """Fill the beginning of a buffer with 0, 1, ...; gives its address."""
        axis = ir.Axis("number", count)
        here = ir.Index(0, ((axis, 1),))
        super().run(ir.Map((axis,), (ir.Store(buffer, here, ir.IndexValue(here, POSITION)),)))
        return self.pointers[buffer]

    def _order(self, stage: ir.Sort, copies: list[ir.Buffer]) -> str:
        """The array of the positions in order; only what is stored of it counts."""
        extent = stage.axis.extent
        first = self._numbered(self._temporary("order", POSITION, extent), extent)
        second = self.pointers[self._temporary("other", POSITION, extent)]
        if extent >= LEAST:
            return self._by_digits(stage, copies, extent).sort(first, second)
        passes = (extent - 1).bit_length()
        if not passes:
            return first
        start = [("ptr", first), ("ptr", second)]
        return self.f.loop(0, passes, 1, self._pass(stage, copies), start, True)[0]

    def _by_digits(self, stage: ir.Sort, copies: list[ir.Buffer], most: int) -> Radix:
        """Sorts up to so many positions."""
        keys = [(self.pointers[b], b.dtype) for b in copies[: stage.keys]]
        return Radix(self.f, keys, most, self.scratch, stage.largest is not None)

    def _pass(self, stage: ir.Sort, copies: list[ir.Buffer]):
        """Merge neighbouring runs of 2**number positions from one array into the other."""
        f, extent = self.f, stage.axis.extent

        def body(number: str, arrays: Texts) -> Texts:
            source, target = arrays
            run = f.op(f"shl i64 1, {number}")
            both = f.op(f"shl i64 2, {number}")
            pairs = f.op(f"add i64 {both}, {extent - 1}")
            pairs = f.op(f"udiv i64 {pairs}, {both}")

            def merge(pair: str, _: Texts) -> None:
                low = f.mul(pair, both)
                middle = self._smaller(f.add(low, run), extent)
                high = self._smaller(f.add(low, both), extent)
                step = self._merge_step(stage, copies, source, target, middle, high)
                f.loop(low, high, 1, step, [("i64", low), ("i64", middle)])

            f.loop(0, pairs, 1, merge)
            return [target, source]

        return body

    def _merge_step(self, stage, copies, source: str, target: str, middle: str, high: str):
        """Move the smaller head of the runs a..middle and b..high; ties go to the left run."""
        f = self.f

        def body(place: str, heads: Texts) -> Texts:
            self.scopes.append({})
            a, b = heads
            left_at = self._smaller(a, f.add(middle, -1))
            right_at = self._smaller(b, f.add(high, -1))
            left, right = self._entry(source, left_at), self._entry(source, right_at)
            less = self._less(stage, copies, right, left)
            left_done = f.op(f"icmp sge i64 {a}, {middle}")
            right_left = f.op(f"icmp slt i64 {b}, {high}")
            take = f.op(f"or i1 {left_done}, {less.text}")
            take = f.op(f"and i1 {take}, {right_left}")
            chosen = f.op(f"select i1 {take}, i64 {right}, i64 {left}")
            narrow = f.op(f"trunc i64 {chosen} to i32")
            f.line(f"store i32 {narrow}, ptr {f.offset(target, f.mul(place, 4))}, align 4")
            moved = f.op(f"zext i1 {take} to i64")
            a = f.add(a, f.op(f"sub i64 1, {moved}"))
            self.scopes.pop()
            return [a, f.add(b, moved)]

        return body

    def _smaller(self, a: str, b: str | int) -> str:
        test = self.f.op(f"icmp slt i64 {a}, {b}")
        return self.f.op(f"select i1 {test}, i64 {a}, i64 {b}")

    def _entry(self, array: str, place: str) -> str:
        loaded = self.f.op(f"load i32, ptr {self.f.offset(array, self.f.mul(place, 4))}, align 4")
        return self.f.op(f"zext i32 {loaded} to i64")

    def _read(self, buffer: ir.Buffer, position: str) -> Value:
        """buffer[position], for a position that is not an axis."""
        axis = ir.Axis("position", buffer.size)
        self.env[axis] = position
        return self.load(buffer, ir.Index(0, ((axis, 1),)), None, None, False)

    def _less(self, stage: ir.Sort, copies: list[ir.Buffer], x: str, y: str) -> Vec:
        """Lexicographic key[x] < key[y] (for the largest, >); NaN is after everything."""
        x, y = (x, y) if stage.largest is None else (y, x)
        result: Vec | None = None
        for buffer in reversed(copies[: stage.keys]):
            a, b = self._read(buffer, x), self._read(buffer, y)
            less, same = compare(a, b, buffer.dtype)
            result = less if result is None else less | (same & result)
        assert result is not None  # there is at least one key
        return result

    def _write(self, stage: ir.Sort, copies: list[ir.Buffer], order: str) -> None:
        roots = roots_with_guards(stage.stores)

        def point(values: Texts) -> Texts:
            place = self._entry(order, self.env[stage.stored])
            for buffer, cell in zip(copies, stage.cells, strict=False):
                self.set_cell(cell, self._read(buffer, place))
            if stage.largest is not None:
                narrow = Vec(self.code, "i64", 1, place).convert("trunc", "i32")
                self.set_cell(stage.cells[-1], narrow)
            self.map_point(stage.stores)
            return values

        self.loops([stage.stored], roots, self.blocked_by(stage), point)


def compare(a: Vec, b: Vec, dtype: np.dtype) -> tuple[Vec, Vec]:
    """(a before b, a level with b)."""
    if dtypes.is_float(dtype):
        before = (a < b) | (b.is_nan() & a.compare("ord", a))
        return before, a.equals(b) | (a.is_nan() & b.is_nan())
    return a.compare("ult" if dtype.kind in "ub" else "slt", b), a.equals(b)
