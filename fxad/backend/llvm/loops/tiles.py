"""Tiles transposed in registers, where lanes go across what is contiguous in memory.

    out[i, j] = a[j, i]         lanes along j: a[j, i] has neighbours along i

Instead of gathering lane by lane, `width` rows along i are read whole, the square tile is
transposed and kept in the thread's scratch; position i of the loop then reads one vector of it.
Stores across memory (a running sum along rows) go the same way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fxad.backend.llvm.base.axes import stride_along
from fxad.backend.llvm.base.formats import from_memory, memory_kind
from fxad.backend.llvm.base.schedule import crosses
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.memory import load_vector
from fxad.backend.llvm.elements.scope import Copy, Need, Scope, each_copy, inner, with_axes
from fxad.backend.llvm.elements.values import address, hoist, remember
from fxad.backend.llvm.loops.nest import Body, Carried, Texts
from fxad.core.record import record, replace
from fxad.ir import kernel as ir

Access = ir.Load | ir.Store
Step = Callable[[str, Texts], Texts]


def tiled_accesses(
    scope: Scope, roots: Iterable[ir.Expr], stores: Sequence[ir.Store], axis: ir.Axis
) -> list[Access]:
    """Accesses that are done in tiles while a loop goes along `axis`; none at edges."""
    lanes, widest = scope.lanes, scope.context.schedule.target.tuning.loops.tile_width
    if lanes.axis is None or not 4 <= lanes.width <= widest:
        return []
    if any(copy.mask is not None for copy in lanes.copies) or scope.extent(axis) < lanes.width:
        return []
    loads = [e for e in ir.walk(*roots) if isinstance(e, ir.Load)]
    written = {s.buffer: s.index for s in stores}
    found: list[Access] = [
        e for e in loads if written.get(e.buffer, e.index) == e.index and _fits(scope, e, axis)
    ]
    return found + [s for s in stores if _fits(scope, s, axis)]


def _fits(scope: Scope, access: Access, axis: ir.Axis) -> bool:
    lanes, needs = scope.lanes.axis, scope.context.needs
    if not crosses(access, lanes, axis):
        return False
    return all(
        atom is lanes or not scope.varies(needs.of_atom(atom)) for atom, _ in access.index.terms
    )


@record
class _Tile:
    """Where the tile of an access is in scratch, for a copy of the unrolled loop."""

    access: Access
    copy: Copy
    place: str


def tile_loop(
    scope: Scope,
    axis: ir.Axis,
    accesses: Sequence[Access],
    roots: Sequence[ir.Expr],
    blocked: frozenset[Need],
    body: Body,
    carried: Carried = (),
    reverse: bool = False,
) -> Texts:
    """Like `loops` along one axis, with `accesses` done in tiles as far as they fit."""
    f, width, extent = scope.f, scope.lanes.width, scope.extent(axis)
    low, high = scope.ranges.get(axis, (0, extent))
    hoist(scope, roots, blocked | {axis}, width)
    types = [t for t, _ in carried]
    rest = extent % width
    stop: str | int = high
    if rest:
        span = f.op(f"sub i64 {high}, {low}")
        stop = f.op(f"sub i64 {high}, {f.op(f'urem i64 {span}, {width}')}")
    take = scope.context.scratch.take
    tiles = [
        _Tile(access, copy, take(width * width * access.buffer.dtype.itemsize))
        for access in accesses
        for copy in scope.lanes.copies
    ]

    def one(position: str, texts: Texts) -> Texts:
        return body(inner(scope, axes=with_axes(scope, {axis: position})), texts)

    def tile(first: str, texts: Texts) -> Texts:
        values = list(zip(types, texts, strict=True))
        return _through_tiles(scope, axis, first, tiles, body, values, reverse)

    def steps(low: str | int, high: str | int, step: int, emit: Step, texts: Texts) -> Texts:
        def inside(index: str, values: Texts) -> Texts:
            if reverse:
                index = f.op(f"sub i64 {f.add(f.add(low, high), -step)}, {index}")
            return emit(index, values)

        return f.loop(low, high, step, inside, list(zip(types, texts, strict=True)))

    texts = [start for _, start in carried]
    if rest and reverse:
        texts = steps(stop, high, 1, one, texts)
    texts = steps(low, stop, width, tile, texts)
    if rest and not reverse:
        texts = steps(stop, high, 1, one, texts)
    return texts


def _through_tiles(
    scope: Scope,
    axis: ir.Axis,
    first: str,
    tiles: Sequence[_Tile],
    body: Body,
    carried: Carried,
    reverse: bool,
) -> Texts:
    """`width` positions along the axis from `first`."""
    f, width = scope.f, scope.lanes.width
    begin = with_axes(scope, {axis: first})
    _transpose_all(inner(scope, axes=begin), [s for s in tiles if _is_load(s)])

    def one(number: str, texts: Texts) -> Texts:
        j = f.op(f"sub i64 {width - 1}, {number}") if reverse else number
        here, stored = inner(scope), {}
        for tile in tiles:
            access, dtype = tile.access, tile.access.buffer.dtype
            row = f.offset(tile.place, f.mul(j, width * dtype.itemsize))
            if isinstance(access, ir.Store):
                stored[access, tile.copy.number] = row
            else:
                raw = load_vector(scope.code, row, memory_kind(dtype), width)
                remember(replace(here, copy=tile.copy), access, from_memory(raw, dtype))
        at = with_axes(here, {axis: f.add(first, j)})
        return body(replace(here, axes=at, tiles=stored), texts)

    texts = f.loop(0, width, 1, one, carried, at_least_once=True)
    _transpose_all(inner(scope, axes=begin), [s for s in tiles if not _is_load(s)])
    return texts


def _is_load(tile: _Tile) -> bool:
    return isinstance(tile.access, ir.Load)


def _transpose_all(scope: Scope, tiles: Sequence[_Tile]) -> None:
    """Loads: from memory into their tiles. Stores: from their tiles to memory."""
    for here in each_copy(scope):
        for tile in tiles:
            if tile.copy is here.copy:
                _transpose_one(here, tile)


def _transpose_one(scope: Scope, tile: _Tile) -> None:
    f, width, access = scope.f, scope.lanes.width, tile.access
    size, kind = access.buffer.dtype.itemsize, memory_kind(access.buffer.dtype)
    start, _ = address(scope, access.buffer, access.index)
    stride = stride_along(access.index, scope.lanes.axis) * size
    memory = [f.offset(start, lane * stride) for lane in range(width)]
    scratch = [f.offset(tile.place, j * width * size) for j in range(width)]
    source, target = (memory, scratch) if _is_load(tile) else (scratch, memory)
    rows = [load_vector(scope.code, pointer, kind, width) for pointer in source]
    for row, pointer in zip(transpose(rows), target, strict=True):
        f.line(f"store {row.type} {row.text}, ptr {pointer}, align {size}")


def transpose(rows: Sequence[Vec]) -> list[Vec]:
    """As many vectors as they have lanes, transposed: halves are exchanged, then quarters, ..."""
    rows, width = list(rows), len(rows)
    for bit in (1 << n for n in range(width.bit_length() - 1)):
        low = [i if not i & bit else (i ^ bit) + width for i in range(width)]
        high = [i | bit if not i & bit else i + width for i in range(width)]
        for i in range(width):
            if not i & bit:
                a, b = rows[i], rows[i | bit]
                rows[i], rows[i | bit] = a.shuffle(low, b), a.shuffle(high, b)
    return rows
