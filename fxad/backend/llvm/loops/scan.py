"""A Scan: a running combination along an axis, and what is stored at each position.

scan(j)  c = c + in0[i, j]; out0[i, j] = c
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import cast
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.elements.scope import Scope, each_copy, with_cells
from fxad.backend.llvm.elements.values import roots_with_guards, splat, value
from fxad.backend.llvm.loops.nest import Texts, blocked_by, hoist_stores, is_empty, loops, store_all
from fxad.backend.llvm.loops.tiles import tile_loop, tiled_accesses
from fxad.ir import kernel as ir


def emit_scan(scope: Scope, stage: ir.Scan) -> None:
    """In sequence along the axis, at the current point or vector of points."""
    if is_empty(scope, [stage.axis]):
        return
    dtype, code, lanes = stage.cell.dtype, scope.code, scope.lanes
    starts = [monoids.identity(code, stage.monoid, dtype, lanes.width) for _ in lanes.copies]
    roots = [stage.value, *roots_with_guards(stage.stores)]

    def body(inside: Scope, texts: Texts) -> Texts:
        following: list[Vec] = []
        each = len(texts) // len(lanes.copies)
        for n, here in enumerate(each_copy(inside)):
            mine = texts[n * each : (n + 1) * each]
            old = monoids.unflatten(code, [starts[n]], mine)[0]
            new = splat(here, cast(value(here, stage.value), stage.value.dtype, dtype), lanes.width)
            total = monoids.combine(stage.monoid, old, new, dtype)
            following += monoids.flatten([total])
            cells = {stage.cell: {here.copy.number: monoids.rounded_value(total, dtype)}}
            store_all(with_cells(here, cells), stage.stores)
        return [v.text for v in following]

    carried = [(v.type, v.text) for v in monoids.flatten(starts)]
    scope = with_cells(scope, {stage.cell: {}})
    blocked = blocked_by(stage)
    transposed = tiled_accesses(scope, roots, stage.stores, stage.axis)
    if transposed:
        axis = stage.axis
        hoist_stores(scope, stage.stores, blocked | {axis})
        tile_loop(scope, axis, transposed, roots, blocked, body, carried, stage.reverse)
    else:
        loops(scope, [stage.axis], roots, blocked, body, carried, stage.reverse)
