"""Loops of a stage: sequential ones, and loops that do a vector of positions at a time.

    lane_extent_loop(scope, axis, 16, 2, roots, blocked, body)     # body(the scope inside)

Every loop first computes what does not change in it (`hoist`). roots: the expressions of its body;
blocked: what changes while the loop runs, beside its axis (cells, buffers that are stored to).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fxad.backend.llvm.base.formats import Value, to_memory
from fxad.backend.llvm.base.traffic import vector_bytes
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import (
    Copy,
    Lanes,
    Need,
    Scope,
    inner,
    single,
    with_axes,
)
from fxad.backend.llvm.elements.stores import store
from fxad.backend.llvm.elements.values import address, hoist, hoist_index, splat, value
from fxad.core.aligned import LINE
from fxad.core.record import replace
from fxad.ir import kernel as ir

Texts = list[str]
Carried = Sequence[tuple[str, str]]  # (type, start) of every value that a loop carries
Cells = dict[ir.Cell, Mapping[int, Value]]  # what a stage sets: by the number of the copy
Body = Callable[[Scope, Texts], Texts]  # from carried values to the next ones
Vectors = Callable[[Scope], None]


def blocked_by(stage: ir.Stage) -> frozenset[Need]:
    """What changes while a stage runs: its own cells, and the buffers it stores to."""
    return frozenset((*(s.buffer for s in ir.stores_of(stage)), *ir.cells_of(stage)))


def is_empty(scope: Scope, axes: Sequence[ir.Axis]) -> bool:
    return any(scope.extent(a) == 0 for a in axes)


# ---------------------------------------------------------------- one position after another


def loops(
    scope: Scope,
    axes: Sequence[ir.Axis],
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    body: Body,
    carried: Carried = (),
    reverse: bool = False,
) -> Texts:
    """Sequential loops over axes, first outermost; body maps carried values to the next."""
    scope, axes = single(scope, axes)
    if not axes:
        return body(scope, [start for _, start in carried])
    axis, rest = axes[0], axes[1:]
    extent = scope.extent(axis)
    low, high = scope.ranges.get(axis, (0, extent))
    hoist(scope, roots, blocked | frozenset(axes), scope.lanes.width)

    def inside(index: str, texts: Texts) -> Texts:
        position = scope.f.op(f"sub i64 {extent - 1}, {index}") if reverse else index
        here = inner(scope, axes=with_axes(scope, {axis: position}))
        types = [(t, v) for (t, _), v in zip(carried, texts, strict=True)]
        return loops(here, rest, roots, blocked, body, types, reverse)

    return scope.f.loop(low, high, 1, inside, carried, at_least_once=True)


# ---------------------------------------------------------------- one vector after another


def vectors(
    scope: Scope,
    axis: ir.Axis,
    width: int,
    unroll: int,
    high: str | int | None,
    body: Vectors,
) -> Callable[[str, Texts], None]:
    """What one iteration does: `unroll` vectors along an axis, as far as they are below `high`."""

    def inside(index: str, _: Texts) -> None:
        mask = None if high is None else _below(scope, index, high, width)
        copies = tuple([Copy(u, index, u * width, mask) for u in range(unroll)])
        here = with_axes(scope, {axis: index})
        body(inner(scope, axes=here, lanes=Lanes(axis, width, copies), copy=copies[0]))

    return inside


def _below(scope: Scope, index: str, high: str | int, width: int) -> Vec:
    """Lanes whose position is below `high`."""
    return scope.code.first_lanes(width, scope.f.op(f"sub i64 {high}, {index}"))


def lane_loop(
    scope: Scope,
    axis: ir.Axis,
    low: str | int,
    high: str | int,
    width: int,
    unroll: int,
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    body: Vectors,
    partial: bool,
) -> None:
    """Loop over low..high with `width` lanes, `unroll` vectors at a time.

    partial: high - low need not be a multiple of what one iteration does; the rest is done one
    vector at a time under a mask.
    """
    f, step = scope.f, width * unroll
    hoist(scope, roots, blocked | {axis}, width)
    stop: str | int = high
    if partial:
        whole = f.op(f"sub i64 {high}, {low}")
        whole = f.op(f"urem i64 {whole}, {step}")
        stop = f.op(f"sub i64 {high}, {whole}")
    f.loop(low, stop, step, vectors(scope, axis, width, unroll, None, body))
    if partial:
        f.loop(stop, high, width, vectors(scope, axis, width, 1, high, body))


def lane_extent_loop(
    scope: Scope,
    axis: ir.Axis,
    width: int,
    unroll: int,
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    body: Vectors,
) -> None:
    """The lane loop over all of an axis, whose extent is known: no tests that cannot fail."""
    extent, step = scope.extent(axis), width * unroll
    hoist(scope, roots, blocked | {axis}, width)
    whole = extent // step * step
    if whole:
        inside = vectors(scope, axis, width, unroll, None, body)
        scope.f.loop(0, whole, step, inside, at_least_once=True)
    if whole < extent:
        high = extent if extent % width else None
        inside = vectors(scope, axis, width, 1, high, body)
        scope.f.loop(whole, extent, width, inside, at_least_once=True)


def line_loop(
    scope: Scope,
    axis: ir.Axis,
    start: str,
    width: int,
    unroll: int,
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    body: Vectors,
) -> None:
    """The lane loop over all of an axis, whose whole cache lines begin at `start`."""
    hoist(scope, roots, blocked | {axis}, width)
    scope.f.loop(0, start, width, vectors(scope, axis, width, 1, start, body))
    lines, high = replace(scope, whole_lines=True), scope.extent(axis)
    lane_loop(lines, axis, start, high, width, unroll, roots, blocked, body, partial=True)


def before_line(scope: Scope, stage: ir.Map, axis: ir.Axis, width: int) -> str | None:
    """Points of a row before the first whole cache line of the stage's result, if its stores are
    streaming and rows begin anywhere in a line."""
    if len(stage.stores) != 1:
        return None
    (store,) = stage.stores
    buffer, index, size = store.buffer, store.index, store.buffer.dtype.itemsize
    streamed = buffer in scope.context.streamed
    if not streamed or store.guard is not None or index.coefficient(axis) != 1:
        return None
    if width * size != LINE or vector_bytes(index, axis, size, width):
        return None
    f, begin = scope.f, inner(scope, axes=with_axes(scope, {axis: "0"}))
    place = f.op(f"ptrtoint ptr {address(begin, buffer, index)[0]} to i64")
    missing = f.op(f"and i64 {f.op(f'sub i64 0, {place}')}, {LINE - 1}")
    return f.least(f.op(f"udiv i64 {missing}, {size}"), scope.extent(axis))


# ---------------------------------------------------------------- points


def hoist_stores(scope: Scope, stores: Iterable[ir.Store], blocked: frozenset[Need]) -> None:
    for s in stores:
        hoist_index(scope, s.buffer, s.index, blocked)


def store_all(scope: Scope, stores: Sequence[ir.Store]) -> None:
    """At the current vector or point: all values, then all stores."""
    ready = [(s, value(scope, s.value), guard_of(scope, s)) for s in stores]
    for s, found, guard in ready:
        put(scope, s, found, guard)


def put(scope: Scope, to: ir.Store, found: Value, guard: Vec | None) -> None:
    """A store at the current vector or point; to its tile, where it is transposed."""
    place = scope.tiles.get((to, scope.copy.number))
    if place is None:
        store(scope, to.buffer, to.index, found, guard)
        return
    dtype = to.buffer.dtype
    row = to_memory(splat(scope, found, scope.lanes.width), dtype)
    scope.f.line(f"store {row.type} {row.text}, ptr {place}, align {dtype.itemsize}")


def guard_of(scope: Scope, store: ir.Store) -> Vec | None:
    return None if store.guard is None else value(scope, store.guard)
