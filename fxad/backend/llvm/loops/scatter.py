"""A Scatter: elements that are changed at indices read from arrays, point after point.

scatter(i)  out0[in1[i]] += in0[i]
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import cast
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.elements.scope import Scope, each_copy, single
from fxad.backend.llvm.elements.stores import store
from fxad.backend.llvm.elements.values import load, roots_with_guards, splat, value
from fxad.backend.llvm.loops.nest import (
    Texts,
    blocked_by,
    guard_of,
    is_empty,
    lane_extent_loop,
    loops,
)
from fxad.ir import kernel as ir


def emit_scatter(scope: Scope, stage: ir.Scatter) -> None:
    """In lanes along the last axis where they cannot meet, else in sequence."""
    if is_empty(scope, stage.over):
        return
    roots, blocked = roots_with_guards([stage.store]), blocked_by(stage)
    scope, axes = single(scope, stage.over)

    def point(here: Scope, values: Texts) -> Texts:
        _points(here, stage)
        return values

    if scope.lanes.axis is None and axes and _is_of_rows(scope, stage, axes[-1]):
        axis = axes[-1]
        width, unroll = scope.context.schedule.lanes_of(stage, axis)

        def row(here: Scope, values: Texts) -> Texts:
            lane_extent_loop(
                here, axis, width, unroll, roots, blocked, lambda inside: _points(inside, stage)
            )
            return values

        if width > 1:
            loops(scope, axes[:-1], roots, blocked | {axis}, row)
            return
    loops(scope, axes, roots, blocked, point)


def _is_of_rows(scope: Scope, stage: ir.Scatter, axis: ir.Axis) -> bool:
    """Along `axis` different points write different, neighbouring elements."""
    to, needs = stage.store, scope.context.needs
    if to.index.coefficient(axis) != 1:
        return False
    return to.buffer not in needs.of(to.value) | needs.of_index(to.index)


def _points(scope: Scope, stage: ir.Scatter) -> None:
    to, width = stage.store, scope.lanes.width
    dtype = to.buffer.dtype
    for here in each_copy(scope):
        new, guard = value(here, to.value), guard_of(here, to)
        new = splat(here, cast(new, to.value.dtype, dtype), width)
        if stage.monoid != "set":
            old = load(here, to.buffer, to.index, guard, None, width > 1)
            new = monoids.combine(stage.monoid, old, new, dtype)
            new = monoids.rounded_value(new, dtype)
        store(here, to.buffer, to.index, new, guard)
