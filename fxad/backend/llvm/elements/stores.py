"""Stores of scalars and lanes, and prefetches of the rows that come next.

    store(here, out, at(axis), y, None)

Memory is touched only where the guard and the loop's mask hold.
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.base.traffic import vector_bytes
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.memory import prefetch, scatter, store_run, store_scalar
from fxad.backend.llvm.elements.scope import Need, Scope
from fxad.backend.llvm.elements.values import (
    address,
    hoist_index,
    is_contiguous,
    lane_offsets,
    lanes_mask,
    splat,
)
from fxad.core.aligned import LINE
from fxad.ir import kernel as ir


def store(
    scope: Scope, buffer: ir.Buffer, index: ir.Index, value: Value, guard: Vec | None
) -> None:
    """buffer[index] = value where the guard and the mask of the copy hold."""
    code, dtype, lanes = scope.code, buffer.dtype, scope.lanes
    if lanes.width == 1:
        store_scalar(code, address(scope, buffer, index)[0], value, dtype, guard)
        return
    value = splat(scope, value, lanes.width)
    mask = lanes_mask(scope, guard)
    if not is_contiguous(scope, buffer, index):
        pointer, offsets = lane_offsets(scope, buffer, index)
        scatter(code, pointer, offsets, value, dtype, mask)
        return
    streamed = 0
    if buffer in scope.context.streamed:
        whole = vector_bytes(index, lanes.axis, dtype.itemsize, lanes.width)
        streamed = LINE if scope.whole_lines else whole
    store_run(code, address(scope, buffer, index)[0], value, dtype, mask, streamed)


def hoist_prefetches(scope: Scope, stage: ir.Stage, blocked: frozenset[Need]) -> None:
    """Compute here what is known already of the addresses that a stage prefetches."""
    for row in scope.context.prefetches.get(stage, ()):
        hoist_index(scope, row.buffer, row.row, blocked)


def prefetch_rows(scope: Scope, stage: ir.Stage) -> None:
    """Prefetch what later points need, at the current vector of the stage's axis."""
    if scope.copy.mask is not None:
        return
    f = scope.f
    for row in scope.context.prefetches.get(stage, ()):
        size = row.buffer.dtype.itemsize
        start, _ = address(scope, row.buffer, row.row)
        place = f.add(f.mul(scope.axes[row.axis], size), scope.copy.offset * size)
        prefetch(scope.code, f.offset(start, place), row.level)
