"""A Scatter: elements that are changed at indices read from arrays, point after point.

scatter(i)  out0[in1[i]] += in0[i]

A guard is a branch around all that a point, or a row of lanes, does: it nearly always holds, so the
branch is predicted, and inside it memory is read and written without conditions.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.formats import cast
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.elements.scope import Scope, each_copy, inner, single
from fxad.backend.llvm.elements.stores import store
from fxad.backend.llvm.elements.values import (
    load,
    remember_in_bounds,
    roots_with_guards,
    splat,
    value,
)
from fxad.backend.llvm.loops.nest import (
    Texts,
    blocked_by,
    guard_of,
    hoist_stores,
    is_empty,
    lane_extent_loop,
    loops,
)
from fxad.core.record import replace
from fxad.ir import kernel as ir


def emit_scatter(scope: Scope, stage: ir.Scatter) -> None:
    """In lanes along the last axis where they cannot meet, else in sequence."""
    if is_empty(scope, stage.over):
        return
    roots, blocked = roots_with_guards([stage.store]), blocked_by(stage)
    scope, axes = single(scope, stage.over)

    def point(here: Scope, values: Texts) -> Texts:
        _guarded(here, stage, _points)
        return values

    if scope.lanes.axis is None and axes and _is_of_rows(scope, stage, axes[-1]):
        axis = axes[-1]
        width, unroll = scope.context.schedule.lanes_of(stage, axis)

        def lanes(here: Scope, stage: ir.Scatter) -> None:
            hoist_stores(here, [stage.store], blocked | {axis})
            lane_extent_loop(
                here, axis, width, unroll, roots, blocked, lambda inside: _points(inside, stage)
            )

        def row(here: Scope, values: Texts) -> Texts:
            _guarded(here, stage, lanes)
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
    read = needs.of_index(to.index).union(*map(needs.of, roots_with_guards([to])))
    return to.buffer not in read


def _guarded(scope: Scope, stage: ir.Scatter, body: Callable[[Scope, ir.Scatter], None]) -> None:
    """Run the body where the guard holds, if it can be known here, and without it then."""
    to, guard = stage.store, stage.store.guard
    needs = frozenset() if guard is None else scope.context.needs.of(guard)
    known = not scope.per_copy(needs) and all(
        need in scope.axes for need in needs if isinstance(need, ir.Axis)
    )
    if guard is None or not known:
        body(scope, stage)
        return

    def inside() -> None:
        here = inner(scope)
        remember_in_bounds(here, to.index, guard)
        body(here, replace(stage, store=replace(to, guard=None)))

    scope.f.when(value(scope, guard).text, inside)


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
