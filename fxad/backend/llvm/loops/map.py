"""A Map: values stored at every point of its axes, in lanes along the last one.

map(j)  out0[j] = exp(in0[j])
"""

from __future__ import annotations

from fxad.backend.llvm.elements.scope import Scope, each_copy, single
from fxad.backend.llvm.elements.stores import hoist_prefetches, prefetch_rows
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.nest import (
    Texts,
    before_line,
    blocked_by,
    hoist_stores,
    lane_extent_loop,
    line_loop,
    loops,
    store_all,
)
from fxad.backend.llvm.loops.tiles import tile_loop, tiled_accesses
from fxad.ir import kernel as ir


def emit_map(scope: Scope, stage: ir.Map) -> None:
    scope, axes = single(scope, stage.axes)
    if scope.lanes.axis is None and axes:
        _in_lanes(scope, stage, axes)
    else:
        _in_sequence(scope, stage, axes)


def _in_sequence(scope: Scope, stage: ir.Map, axes: list[ir.Axis]) -> None:
    """At a vector of grid points, or at a single point of no axes."""
    roots, blocked = roots_with_guards(stage.stores), blocked_by(stage)
    hoist_stores(scope, stage.stores, blocked | frozenset(axes))

    def point(here: Scope, values: Texts) -> Texts:
        map_points(here, stage)
        return values

    transposed = tiled_accesses(scope, roots, stage.stores, axes[-1]) if axes else []
    if not transposed:
        loops(scope, axes, roots, blocked, point)
        return

    def row(here: Scope, _: Texts) -> Texts:
        return tile_loop(here, axes[-1], transposed, roots, blocked, point)

    loops(scope, axes[:-1], roots, blocked | {axes[-1]}, row)


def _in_lanes(scope: Scope, stage: ir.Map, axes: list[ir.Axis]) -> None:
    """At a single grid point, in lanes along the last axis."""
    roots, blocked, axis = roots_with_guards(stage.stores), blocked_by(stage), axes[-1]
    width, unroll = scope.context.schedule.lanes_of(stage, axis)

    def point(here: Scope, values: Texts) -> Texts:
        map_points(here, stage)
        return values

    def row(here: Scope, values: Texts) -> Texts:
        hoist_stores(here, stage.stores, blocked | {axis})
        if width == 1:
            return loops(here, [axis], roots, blocked, point, [])
        hoist_prefetches(here, stage, blocked | {axis})
        start = before_line(here, stage, axis, width)
        if start is None:
            lane_extent_loop(here, axis, width, unroll, roots, blocked, vectors)
        else:
            line_loop(here, axis, start, width, unroll, roots, blocked, vectors)
        return values

    def vectors(here: Scope) -> None:
        map_vectors(here, stage)

    hoist_stores(scope, stage.stores, blocked | frozenset(axes))
    loops(scope, axes[:-1], roots, blocked | {axis}, row)


def map_vectors(scope: Scope, stage: ir.Map) -> None:
    """At the vectors of a loop over the stage's own axis."""
    for here in each_copy(scope):
        prefetch_rows(here, stage)
    map_points(scope, stage)


def map_points(scope: Scope, stage: ir.Map) -> None:
    """At each vector, or at the point."""
    for here in each_copy(scope):
        store_all(here, stage.stores)
