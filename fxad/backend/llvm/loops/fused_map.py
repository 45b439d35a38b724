"""A Map fused into the loop of the reduction that reads its results at the same points.

    t[k] = exp(x[k] - m)  for all k;  c = sum of t[l]      ->      one sweep instead of two

The reduction takes the values from registers; they are stored as before.
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import Schedule
from fxad.core.record import record
from fxad.ir import kernel as ir


@record
class FusedMap:
    """stage: the Map, along `axis`; loads: what the reduction reads of each of its stores."""

    stage: ir.Map
    axis: ir.Axis
    loads: tuple[tuple[ir.Load, ...], ...]


def fused_into(first: ir.Stage, stage: ir.Stage, schedule: Schedule) -> FusedMap | None:
    """The Map `first`, if it can be part of the loop of `stage`, a reduction in lanes after it."""
    axis, along = schedule.own_axis(first), schedule.own_axis(stage)
    if not isinstance(first, ir.Map) or not isinstance(stage, ir.Reduce):
        return None
    if axis is None or along is None or schedule.extent(axis) != schedule.extent(along):
        return None
    width = schedule.reduce_width(stage, along)
    if schedule.lane_axis is not None or width == 1 or schedule.lanes_of(first, axis)[0] != width:
        return None
    written = {s.buffer: s.index for s in first.stores if s.guard is None}
    if len(written) < len(first.stores) or any(b.dtype.name not in _EXACT for b in written):
        return None
    if any(e.buffer in written for e in _loads(first)):
        return None
    read = [e for e in _loads(stage) if e.buffer in written]
    same = all(_along(written[e.buffer], axis) == _along(e.index, along) for e in read)
    if not read or not same or any(e.guard is not None for e in read):
        return None
    loads = [tuple([e for e in read if e.buffer is s.buffer]) for s in first.stores]
    return FusedMap(first, axis, tuple(loads))


_EXACT = frozenset(["float32", "float64"])  # in a register as in memory


def _loads(stage: ir.Stage) -> list[ir.Load]:
    return [e for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)]


def _along(index: ir.Index, axis: ir.Axis) -> tuple[int, dict]:
    """An index that is the same for another axis in the place of `axis`."""
    return index.const, {None if atom is axis else atom: step for atom, step in index.terms}
