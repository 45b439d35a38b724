"""Kernel -> LLVM IR with explicit vectors.

    emitted = emit(kernel, "k0", Target("avx512"))
    emitted.text        # define void @k0(ptr %args, i64 %begin, i64 %end, ptr %scratch) ...

Any kind of kernel; matrix products are emitted by contract/kernel.py. See ir/kernel.py for the
meaning and base/schedule.py for the layout.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.attend.emit import emit_attend, emit_attend_grad
from fxad.backend.llvm.base.axes import axes_of_stage, data_values
from fxad.backend.llvm.base.formats import Pair, Value, from_memory, memory_kind
from fxad.backend.llvm.base.schedule import (
    ABI,
    Emitted,
    Schedule,
    Target,
    choose,
)
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import asked_by, may_stream, read_on, streamed
from fxad.backend.llvm.base.vector import Code
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.loops.fed import fed_by
from fxad.backend.llvm.loops.passes import Pass, passes_of
from fxad.backend.llvm.loops.pipeline import Pipeline
from fxad.backend.llvm.loops.sort_largest import Largest
from fxad.core.aligned import to_line
from fxad.core.record import replace
from fxad.ir import kernel as ir


def emit(kernel: ir.Kernel, name: str, target: Target) -> Emitted:
    """The native function of a kernel, called `name`."""
    match kernel.body[0] if kernel.body else None:
        case ir.Contract():
            return emit_contract(kernel, name, target)
        case ir.Attend():
            return emit_attend(kernel, name, target)
        case ir.AttendGrad():
            return emit_attend_grad(kernel, name, target)
    return emit_scheduled(kernel, target, choose(kernel, target), Function(name, "void", ABI))


def emit_scheduled(
    kernel: ir.Kernel, target: Target, schedule: Schedule, function: Function
) -> Emitted:
    """A kernel of loops and stages, laid out as the schedule says, as the body of `function`."""
    return _Emitter(kernel, target, schedule, function).emit()


class _Emitter:
    """One function: arguments, the loop over units, the loops over grid points."""

    def __init__(
        self, kernel: ir.Kernel, target: Target, schedule: Schedule, function: Function
    ) -> None:
        self.kernel = kernel
        self.function = function
        self.code = Code(function, target)
        self.schedule = schedule
        self.scratch_bytes = 0
        body = [s for s in kernel.body if not self._is_idle(s)]
        inner = self.schedule.inner
        self.body = (
            body
            if inner is None
            else [replace(s, axes=(inner,)) for s in body if isinstance(s, ir.Map)]
        )

    def _is_idle(self, stage: ir.Stage) -> bool:
        """Over no points (an empty reduction still gives its identity)."""
        return not isinstance(stage, ir.Reduce) and any(a.extent == 0 for a in axes_of_stage(stage))

    def emit(self) -> Emitted:
        f, schedule = self.function, self.schedule
        if self.kernel.points == 0 or not self.body:
            schedule.units, schedule.cost = 0, 0.0
        else:
            self._emit_units()
        f.ret()
        return Emitted(
            f.name,
            str(f),
            frozenset(self.code.declarations),
            schedule.units,
            self.scratch_bytes,
            schedule.cost,
        )

    def _emit_units(self) -> None:
        self.stages = Largest(self.code, self._pointers(), self._safe(), self.schedule)
        self.stages.scratch_bytes = self.scratch_bytes
        self.stages.read_on = read_on(self.body, self.schedule)
        self.stages.asked = asked_by(self.body, self.schedule)
        self.roots = [
            root
            for s in self.body
            if not any(a.extent == 0 for a in axes_of_stage(s))
            for root in _roots(s)
        ]
        for axis in self.kernel.grid:
            self.stages.env[axis] = "0"
        for n, scalar in enumerate(self.kernel.scalars):
            self.stages.params[scalar] = self._param(n, scalar.dtype)
        inner = self._inner_needs()
        self.stages.hoist(self.roots, inner | frozenset(self.kernel.grid))
        self._hoist_stores(inner | frozenset(self.kernel.grid))
        self._units()
        self.scratch_bytes = max(self.scratch_bytes, self.stages.scratch_bytes)

    def _units(self) -> None:
        """The loop over units; where results may go past the caches, one that does so too."""
        f, stages = self.function, self.stages
        large = streamed(self.kernel, self.schedule.target)
        passes = passes_of(self.body, self.schedule)
        if large:
            past, through = f.new_label("past"), f.new_label("through")
            f.branch(may_stream(f, stages.pointers, large), past, through)
            f.label(past)
            stages.streamed, before = large, stages.scratch_bytes
            self._rows(passes)
            self.code.call_void("llvm.x86.sse.sfence", (), ())  # before others are told of it
            f.ret()
            f.label(through)
            self.scratch_bytes = stages.scratch_bytes
            stages.streamed, stages.scratch_bytes, passes = frozenset(), before, []
        self._rows(passes)

    def _rows(self, passes: list[Pass]) -> None:
        """All units: their rows in a pipeline of passes, if there are any, or one by one."""
        f, s = self.function, self.schedule
        if not passes:
            f.loop("%begin", "%end", 1, self._unit)
            return
        before = self.stages.asked
        self.stages.asked = {id(p.stage): p.asked for p in passes}
        end = f.least(f.mul("%end", s.rows), s.outer_points)
        Pipeline(self.stages, passes, self._place).run(f.mul("%begin", s.rows), end)
        self.stages.asked = before

    def _pointers(self) -> dict[ir.Buffer, str]:
        pointers: dict[ir.Buffer, str] = {}
        f = self.function
        for n, buffer in enumerate(self.kernel.buffers):
            pointers[buffer] = f.op(f"load ptr, ptr {f.offset('%args', 8 * n)}, align 8")
        for buffer in self.kernel.scratch:
            pointers[buffer] = f.offset("%scratch", self.scratch_bytes)
            self.scratch_bytes += to_line(buffer.size * buffer.dtype.itemsize)
        return pointers

    def _safe(self) -> str:
        return self.function.op("alloca [64 x i8], align 64")

    def _param(self, number: int, dtype: np.dtype) -> Value:
        f, code = self.function, self.code
        word = f.offset("%args", 8 * (len(self.kernel.buffers) + number))
        kind = memory_kind(dtype)
        if dtype.kind == "c":
            start = f.op(f"load ptr, ptr {word}, align 8")
            other = f.offset(start, dtype.itemsize // 2)
            return Pair(*(code.op(kind, 1, f"load {kind}, ptr {p}") for p in (start, other)))
        return from_memory(code.op(kind, 1, f"load {kind}, ptr {word}, align 8"), dtype)

    def _inner_needs(self) -> frozenset:
        """What changes inside one grid point."""
        needs: set = set()
        for stage in self.body:
            needs |= set(axes_of_stage(stage)) | self.stages.blocked_by(stage)
        return frozenset(needs)

    def _hoist_stores(self, blocked: frozenset) -> None:
        for stage in self.body:
            for store in ir.stores_of(stage):
                self.stages.hoist_index(store.buffer, store.index, blocked)

    def _unit(self, unit: str, _: list[str]) -> None:
        f, s = self.function, self.schedule
        self.stages.scopes.append({})
        if s.blocks > 1:
            block = f.op(f"urem i64 {unit}, {s.blocks}")
            self._place(f.op(f"udiv i64 {unit}, {s.blocks}"))
            low = f.mul(block, s.block)
            extent = s.extent(s.lanes)
            end = f.add(low, s.block)
            inside = f.op(f"icmp slt i64 {end}, {extent}")
            high = f.op(f"select i1 {inside}, i64 {end}, i64 {extent}")
            self._lanes(low, high)
        else:
            outer = s.outer_points
            first = f.mul(unit, s.rows)
            end = f.add(first, s.rows)
            if outer % s.rows:
                inside = f.op(f"icmp slt i64 {end}, {outer}")
                end = f.op(f"select i1 {inside}, i64 {end}, i64 {outer}")
            f.loop(first, end, 1, self._row, at_least_once=True)
        self.stages.scopes.pop()

    def _row(self, row: str, _: list[str]) -> None:
        self.stages.scopes.append({})
        self._place(row)
        if self.schedule.lane_axis is not None and self.schedule.width > 1:
            self._all_lanes()
        else:
            if self.schedule.lane_axis is not None:
                self.stages.env[self.schedule.lane_axis] = "0"
            inner = self._inner_needs()
            self.stages.hoist(self.roots, inner)
            self._hoist_stores(inner)
            self._point()
        self.stages.scopes.pop()

    def _place(self, position: str) -> None:
        """Set the outer grid axes from their row-major position."""
        f, s, axes = self.function, self.schedule, self.schedule.outer
        if s.inner is not None:
            block = s.target.tuning.loops.inner_block
            low = f.mul(f.op(f"urem i64 {position}, {s.inner_blocks}"), block)
            high, extent = f.add(low, block), s.extent(s.inner)
            inside = f.op(f"icmp slt i64 {high}, {extent}")
            self.stages.ranges[s.inner] = (
                low,
                f.op(f"select i1 {inside}, i64 {high}, i64 {extent}"),
            )
            position = f.op(f"udiv i64 {position}, {s.inner_blocks}")
        for n in range(len(axes) - 1, -1, -1):
            extent = self.schedule.extent(axes[n])
            if n == 0:
                self.stages.env[axes[n]] = position
            else:
                self.stages.env[axes[n]] = f.op(f"urem i64 {position}, {extent}")
                position = f.op(f"udiv i64 {position}, {extent}")

    def _lanes(self, low: str, high: str) -> None:
        s = self.schedule
        step = s.width * s.unroll
        partial = s.extent(s.lanes) % step != 0
        inner = self._inner_needs()
        self._hoist_stores(inner | {s.lane_axis})
        self.stages.lane_loop(
            s.lanes, low, high, s.width, s.unroll, self.roots, inner, self._point, partial
        )

    def _all_lanes(self) -> None:
        s = self.schedule
        inner = self._inner_needs()
        self._hoist_stores(inner | {s.lane_axis})
        self.stages.lane_extent_loop(s.lanes, s.width, s.unroll, self.roots, inner, self._point)

    def _point(self) -> None:
        for stage, following in zip(self.body, [*self.body[1:], None], strict=True):
            feeds = fed_by(stage, following, self.schedule) if following else None
            if feeds is None:
                self.stages.run(stage)
            self.stages.fed = feeds  # done in the loop of the stage that comes next


def _roots(stage: ir.Stage) -> list[ir.Expr]:
    """Expressions of a stage, those that its stores' indices read included."""
    roots = list(ir.exprs_of(stage))
    for store in ir.stores_of(stage):
        roots += data_values(store.index)
    return roots
