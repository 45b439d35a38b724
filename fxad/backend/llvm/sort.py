"""Stable sorting of the values along one axis.

The operands are evaluated once into scratch; positions are sorted by the keys' digits
(`sort_radix`), or, where they are few, merged bottom up through two arrays (runs of 1, 2, 4 ...),
comparing keys where they lie; then every store reads its operand at the sorted position.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.formats import Value
from fxad.backend.llvm.loops import Texts
from fxad.backend.llvm.sort_radix import LEAST, Radix
from fxad.backend.llvm.stages import Stages
from fxad.backend.llvm.values import roots_with_guards
from fxad.backend.llvm.vector import Vec
from fxad.core import dtypes
from fxad.ir import kernel as ir

POSITION = np.dtype("int32")


class Sorting(Stages):
    """Stages with Sort."""

    def run(self, stage: ir.Stage) -> None:
        if not isinstance(stage, ir.Sort):
            super().run(stage)
            return
        self.scopes.append({})
        self._sort(stage)
        self.scopes.pop()

    def _temporary(self, name: str, dtype: np.dtype, size: int) -> ir.Buffer:
        """Scratch for one sort, at a new place."""
        buffer = ir.Buffer(name, dtype, size, "scratch")
        self.pointers[buffer] = self.scratch(size * dtype.itemsize)
        return buffer

    def _sort(self, stage: ir.Sort) -> None:
        extent = stage.axis.extent
        here = ir.Index(0, ((stage.axis, 1),))
        copies = [self._temporary("operand", v.dtype, extent) for v in stage.operands]
        order = self._temporary("order", POSITION, extent)
        other = self._temporary("other", POSITION, extent)
        fill = [ir.Store(b, here, v) for b, v in zip(copies, stage.operands, strict=True)]
        fill.append(ir.Store(order, here, ir.IndexValue(here, POSITION)))
        super().run(ir.Map((stage.axis,), tuple(fill)))
        first, second = self.pointers[order], self.pointers[other]
        passes = max(extent - 1, 0).bit_length()
        if extent >= LEAST:
            keys = [(self.pointers[b], b.dtype) for b in copies[: stage.keys]]
            first = Radix(self.f, extent, self.scratch).sort(keys, first, second)
        elif passes:
            start = [("ptr", first), ("ptr", second)]
            first = self.f.loop(0, passes, 1, self._pass(stage, copies), start, True)[0]
        self._write(stage, copies, first)

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
        """Lexicographic key[x] < key[y], NaN after everything."""
        result: Vec | None = None
        for buffer in reversed(copies[: stage.keys]):
            a, b = self._read(buffer, x), self._read(buffer, y)
            less, same = _compare(a, b, buffer.dtype)
            result = less if result is None else less | (same & result)
        assert result is not None  # there is at least one key
        return result

    def _write(self, stage: ir.Sort, copies: list[ir.Buffer], order: str) -> None:
        roots = roots_with_guards(stage.stores)

        def point(values: Texts) -> Texts:
            place = self._entry(order, self.env[stage.axis])
            for buffer, cell in zip(copies, stage.cells, strict=True):
                self.set_cell(cell, self._read(buffer, place))
            self.map_point(stage.stores)
            return values

        self.loops([stage.axis], roots, self.blocked_by(stage), point)


def _compare(a: Vec, b: Vec, dtype: np.dtype) -> tuple[Vec, Vec]:
    """(a before b, a level with b)."""
    if dtypes.is_float(dtype):
        before = (a < b) | (b.is_nan() & a.compare("ord", a))
        return before, a.equals(b) | (a.is_nan() & b.is_nan())
    return a.compare("ult" if dtype.kind in "ub" else "slt", b), a.equals(b)
