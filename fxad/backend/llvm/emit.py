"""Kernel -> LLVM IR with explicit vectors.

    emitted = emit(kernel, "k0", Target("avx512"))
    emitted.text        # define void @k0(ptr %args, i64 %begin, i64 %end, ptr %scratch) ...

Matrix products are emitted by contract/kernel.py, attention by attention/emit.py. Here are kernels
of loops: their arguments, the loop over units, the loops over grid points. The stages of a point
are emitted by loops/stages.py. See ir/kernel.py for the meaning, base/schedule.py for the layout
and elements/scope.py for how code is generated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.attention.emit import emit_attention, emit_attention_grad
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
from fxad.backend.llvm.base.traffic import may_stream, row_prefetches, sequential_reads, streamed
from fxad.backend.llvm.base.vector import Code
from fxad.backend.llvm.contract.kernel import emit_contract
from fxad.backend.llvm.contract.unpack import emit_unpack_stage
from fxad.backend.llvm.elements.scope import (
    Context,
    Need,
    Needs,
    Scope,
    Scratch,
    inner,
    with_axes,
)
from fxad.backend.llvm.elements.values import hoist
from fxad.backend.llvm.loops.fused_map import fused_into
from fxad.backend.llvm.loops.interior import Interior, interior, interior_loop
from fxad.backend.llvm.loops.nest import blocked_by, hoist_stores, lane_extent_loop, lane_loop
from fxad.backend.llvm.loops.pipeline import emit_pipeline
from fxad.backend.llvm.loops.stages import emit_stage
from fxad.backend.llvm.loops.sweeps import Sweep, row_sweeps
from fxad.core.record import record, replace
from fxad.ir import kernel as ir


def emit(kernel: ir.Kernel, name: str, target: Target) -> Emitted:
    """The native function of a kernel, called `name`."""
    match kernel.body[0] if kernel.body else None:
        case ir.Contract():
            return emit_contract(kernel, name, target)
        case ir.Unpack():
            return emit_unpack_stage(kernel, name, target)
        case ir.Attention():
            return emit_attention(kernel, name, target)
        case ir.AttentionGrad():
            return emit_attention_grad(kernel, name, target)
    return emit_scheduled(kernel, target, choose(kernel, target), Function(name, "void", ABI))


def emit_scheduled(
    kernel: ir.Kernel, target: Target, schedule: Schedule, function: Function
) -> Emitted:
    """A kernel of loops and stages, laid out as the schedule says, as the body of `function`."""
    code, scratch = Code(function, target), Scratch(function)
    body = _body(kernel, schedule)
    units, cost = schedule.units, schedule.cost
    if kernel.points == 0 or not body:
        units, cost = 0, 0.0
    else:
        point = _point(body, kernel.grid, schedule)
        scope = _outermost(kernel, point, code, scratch, schedule)
        _emit_units(scope, point, streamed(kernel, target))
    function.ret()
    declarations = frozenset(code.declarations)
    return Emitted(function.name, str(function), declarations, units, scratch.most, cost)


# ---------------------------------------------------------------- what is emitted at a grid point


@record
class _Point:
    """roots: the expressions of all stages, those that indices of stores read included; changing:
    what changes inside one grid point; interior: where conditions on positions are settled, with
    the body there."""

    body: Sequence[ir.Stage]
    roots: list[ir.Expr]
    changing: frozenset[Need]
    interior: tuple[Interior, _Point] | None = None


def _body(kernel: ir.Kernel, schedule: Schedule) -> list[ir.Stage]:
    """The stages with anything to do; Maps go along the schedule's inner axis if it has one."""
    # An empty reduction still gives its identity.
    body = [s for s in kernel.body if isinstance(s, ir.Reduce) or not _is_empty(s)]
    axis = schedule.inner
    if axis is None:
        return body
    return [replace(s, axes=(axis,)) for s in body if isinstance(s, ir.Map)]


def _is_empty(stage: ir.Stage) -> bool:
    return any(a.extent == 0 for a in axes_of_stage(stage))


def _point(body: Sequence[ir.Stage], grid: Sequence[ir.Axis], schedule: Schedule) -> _Point:
    point = _point_of(body)
    if schedule.lane_axis is None or schedule.width == 1 or schedule.inner is not None:
        return point
    extents = {axis: schedule.extent(axis) for axis in grid}
    found = interior(body, extents, schedule.lane_axis, schedule.width)
    if found is None:
        return point
    return replace(point, interior=(found, _point_of(found.body)))


def _point_of(body: Sequence[ir.Stage]) -> _Point:
    roots: list[ir.Expr] = []
    changing: set[Need] = set()
    for stage in body:
        changing |= set(axes_of_stage(stage)) | blocked_by(stage)
        if not _is_empty(stage):
            roots += ir.exprs_of(stage)
            for store in ir.stores_of(stage):
                roots += data_values(store.index)
    return _Point(body, roots, frozenset(changing))


def _hoist_addresses(scope: Scope, point: _Point, blocked: frozenset[Need]) -> None:
    for stage in point.body:
        hoist_stores(scope, ir.stores_of(stage), blocked)


def _emit_point(scope: Scope, point: _Point) -> None:
    """All stages, at the current point or vector of points."""
    fused = None
    for stage, following in zip(point.body, [*point.body[1:], None], strict=True):
        into_next = fused_into(stage, following, scope.context.schedule) if following else None
        if into_next is None:
            scope = emit_stage(scope, stage, fused)
        fused = into_next


# ---------------------------------------------------------------- arguments


def _outermost(
    kernel: ir.Kernel, point: _Point, code: Code, scratch: Scratch, schedule: Schedule
) -> Scope:
    """The scope of the whole function, in which whatever depends on no axis is computed."""
    f = code.function
    pointers = _pointers(kernel, f, scratch)
    readable = f.op("alloca [64 x i8], align 64")
    context = Context(
        code,
        schedule,
        scratch,
        Needs(),
        pointers,
        _params(kernel, code),
        readable,
        sequential=sequential_reads(point.body, schedule),
        prefetches=row_prefetches(point.body, schedule),
    )
    scope = Scope(context, ({},), axes=dict.fromkeys(kernel.grid, "0"))
    changing = point.changing.union(kernel.grid)
    hoist(scope, point.roots, changing)
    _hoist_addresses(scope, point, changing)
    return scope


def _pointers(kernel: ir.Kernel, f: Function, scratch: Scratch) -> dict[ir.Buffer, str]:
    pointers: dict[ir.Buffer, str] = {}
    for n, buffer in enumerate(kernel.buffers):
        pointers[buffer] = f.op(f"load ptr, ptr {f.offset('%args', 8 * n)}, align 8")
    for buffer in kernel.scratch:
        pointers[buffer] = scratch.take(buffer.size * buffer.dtype.itemsize)
    return pointers


def _params(kernel: ir.Kernel, code: Code) -> dict[ir.Scalar, Value]:
    return {
        scalar: _param(code, len(kernel.buffers) + n, scalar.dtype)
        for n, scalar in enumerate(kernel.scalars)
    }


def _param(code: Code, number: int, dtype: np.dtype) -> Value:
    f, kind = code.function, memory_kind(dtype)
    word = f.offset("%args", 8 * number)
    if dtype.kind == "c":
        start = f.op(f"load ptr, ptr {word}, align 8")
        other = f.offset(start, dtype.itemsize // 2)
        return Pair(*(code.op(kind, 1, f"load {kind}, ptr {p}") for p in (start, other)))
    return from_memory(code.op(kind, 1, f"load {kind}, ptr {word}, align 8"), dtype)


# ---------------------------------------------------------------- units, rows, vectors


def _emit_units(scope: Scope, point: _Point, large: frozenset[ir.Buffer]) -> None:
    """The loop over units; for `large` results, which may be streamed, also a version of it with
    streaming stores."""
    f, context = scope.f, scope.context
    sweeps = row_sweeps(point.body, context.schedule)
    if not large:
        _emit_rows(scope, point, sweeps)
        return
    streaming, through = f.new_label("streaming"), f.new_label("through")
    f.branch(may_stream(f, context.pointers, large), streaming, through)
    f.label(streaming)
    with context.scratch.reused():
        there = replace(scope, context=replace(context, streamed=large))
        _emit_rows(there, point, sweeps)
    scope.code.call_void("llvm.x86.sse.sfence", (), ())  # before others are told of it
    f.ret()
    f.label(through)
    _emit_rows(scope, point, [])


def _emit_rows(scope: Scope, point: _Point, sweeps: list[Sweep]) -> None:
    """All units: their rows in a pipeline of sweeps, if there are any, or one by one."""
    if sweeps:
        prefetches = {p.stage: p.prefetches for p in sweeps}
        context = replace(scope.context, prefetches=prefetches)
        emit_pipeline(replace(scope, context=context), sweeps, _at_row)
        return

    def unit(number: str, _: list[str]) -> None:
        if scope.context.schedule.blocks > 1:
            _emit_block(scope, point, number)
        else:
            _emit_unit(scope, point, number)

    scope.f.loop("%begin", "%end", 1, unit)


def _emit_block(scope: Scope, point: _Point, unit: str) -> None:
    """A unit that is a block of the lane axis, of one row."""
    f, s = scope.f, scope.context.schedule
    step, extent = s.width * s.unroll, s.extent(s.lanes)
    block = f.op(f"urem i64 {unit}, {s.blocks}")
    here = _at_row(inner(scope), f.op(f"udiv i64 {unit}, {s.blocks}"))
    low = f.mul(block, s.block)
    end = f.add(low, s.block)
    inside = f.op(f"icmp slt i64 {end}, {extent}")
    high = f.op(f"select i1 {inside}, i64 {end}, i64 {extent}")
    _hoist_addresses(here, point, point.changing | {s.lanes})
    if point.interior is not None:
        _emit_interior(here, point, low, high)
        return
    lane_loop(
        here, s.lanes, low, high, s.width, s.unroll, point.roots, point.changing,
        lambda vectors: _emit_point(vectors, point), partial=extent % step != 0,
    )  # fmt: skip


def _emit_interior(scope: Scope, point: _Point, low: str | int, high: str | int) -> None:
    """The lane loop in two: where conditions on positions are settled, and the rest."""
    assert point.interior is not None
    s, (found, inside) = scope.context.schedule, point.interior
    interior_loop(
        scope, found, s.lanes, low, high, s.width, s.unroll, point.roots, point.changing,
        lambda vectors: _emit_point(vectors, point), inside.roots,
        lambda vectors: _emit_point(vectors, inside),
    )  # fmt: skip


def _emit_unit(scope: Scope, point: _Point, unit: str) -> None:
    """A unit of whole rows."""
    f, s = scope.f, scope.context.schedule
    outer = s.outer_points
    first = f.mul(unit, s.rows)
    end = f.add(first, s.rows)
    if outer % s.rows:
        inside = f.op(f"icmp slt i64 {end}, {outer}")
        end = f.op(f"select i1 {inside}, i64 {end}, i64 {outer}")
    f.loop(first, end, 1, lambda row, _: _emit_row(scope, point, row), at_least_once=True)


def _emit_row(scope: Scope, point: _Point, row: str) -> None:
    s = scope.context.schedule
    here = _at_row(inner(scope), row)
    if s.lane_axis is not None and s.width > 1:
        _hoist_addresses(here, point, point.changing | {s.lane_axis})
        if point.interior is not None:
            _emit_interior(here, point, 0, s.extent(s.lane_axis))
            return
        lane_extent_loop(
            here, s.lane_axis, s.width, s.unroll, point.roots, point.changing,
            lambda vectors: _emit_point(vectors, point),
        )  # fmt: skip
        return
    if s.lane_axis is not None:
        here = replace(here, axes=with_axes(here, {s.lane_axis: "0"}))
    hoist(here, point.roots, point.changing)
    _hoist_addresses(here, point, point.changing)
    _emit_point(here, point)


def _at_row(scope: Scope, row: str) -> Scope:
    """The scope with the outer grid axes at their row-major position."""
    f, s = scope.f, scope.context.schedule
    ranges, axes = dict(scope.ranges), dict(scope.axes)
    if s.inner is not None:
        block = s.target.tuning.loops.inner_block
        low = f.mul(f.op(f"urem i64 {row}, {s.inner_blocks}"), block)
        high, extent = f.add(low, block), s.extent(s.inner)
        inside = f.op(f"icmp slt i64 {high}, {extent}")
        ranges[s.inner] = low, f.op(f"select i1 {inside}, i64 {high}, i64 {extent}")
        row = f.op(f"udiv i64 {row}, {s.inner_blocks}")
    for axis in reversed(s.outer[1:]):
        axes[axis] = f.op(f"urem i64 {row}, {s.extent(axis)}")
        row = f.op(f"udiv i64 {row}, {s.extent(axis)}")
    if s.outer:
        axes[s.outer[0]] = row
    return replace(scope, axes=axes, ranges=ranges)
