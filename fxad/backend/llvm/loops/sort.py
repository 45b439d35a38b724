"""Stable sorting of the values along one axis.

The operands are evaluated once into scratch; positions are sorted by the keys' digits
(`sort_radix`), or, where they are few, by a network (`sort_network`) or by comparing all pairs of
them (`sort_counts`); then every store reads its operand at the sorted position.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort_counts import Counts, is_short
from fxad.backend.llvm.loops.sort_network import Network, sorts
from fxad.backend.llvm.loops.sort_radix import Radix
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
        order = self._temporary("order", POSITION, extent)
        if sorts(extent, copies[: stage.keys], self.code.target):
            (column,), down = self._columns(stage, copies), stage.largest is not None
            Network(self.code, column, extent, self.scratch, down).sort(self.pointers[order])
            return self.pointers[order]
        if is_short(extent, self.code.target):
            self._by_counts(stage, copies).sort(self.pointers[order])
            return self.pointers[order]
        second = self.pointers[self._temporary("other", POSITION, extent)]
        radix = self._by_digits(stage, copies, extent)
        return radix.sort(self._numbered(order, extent), second)

    def _columns(self, stage: ir.Sort, copies: list[ir.Buffer]) -> list[tuple[str, np.dtype]]:
        """Address and dtype of every key."""
        return [(self.pointers[b], b.dtype) for b in copies[: stage.keys]]

    def _by_counts(self, stage: ir.Sort, copies: list[ir.Buffer]) -> Counts:
        columns, down = self._columns(stage, copies), stage.largest is not None
        return Counts(self.code, columns, stage.axis.extent, self.scratch, down)

    def _by_digits(self, stage: ir.Sort, copies: list[ir.Buffer], most: int) -> Radix:
        """Sorts up to so many positions."""
        columns = self._columns(stage, copies)
        return Radix(self.code, columns, most, self.scratch, stage.largest is not None)

    def _entry(self, array: str, place: str) -> str:
        loaded = self.f.op(f"load i32, ptr {self.f.offset(array, self.f.mul(place, 4))}, align 4")
        return self.f.op(f"zext i32 {loaded} to i64")

    def _read(self, buffer: ir.Buffer, position: str) -> Value:
        """buffer[position], for a position that is not an axis."""
        axis = ir.Axis("position", buffer.size)
        self.env[axis] = position
        return self.load(buffer, ir.Index(0, ((axis, 1),)), None, None, False)

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
