"""Stable sorting of the values along one axis.

The operands are evaluated once into scratch; positions are sorted by the keys' digits
(`sort_radix`), or, where they are few, by a network (`sort_network`) or by comparing all pairs of
them (`sort_counts`); where only the largest are wanted, these are searched for (`sort_largest`).
Then every store reads its operand at the sorted position.
"""

from __future__ import annotations

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Scope, inner, with_cells
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.map import emit_map
from fxad.backend.llvm.loops.nest import Texts, blocked_by, is_empty, loops, store_all
from fxad.backend.llvm.loops.sort_counts import is_short, sort_by_counts
from fxad.backend.llvm.loops.sort_keys import keys_of
from fxad.backend.llvm.loops.sort_largest import (
    candidates_are_worth,
    insertion_is_worth,
    largest_by_candidates,
    largest_by_insertion,
)
from fxad.backend.llvm.loops.sort_network import sort_by_network, sorts
from fxad.backend.llvm.loops.sort_positions import (
    POSITION,
    element,
    number_positions,
    position_at,
    with_array,
)
from fxad.backend.llvm.loops.sort_radix import radix_of, sort_by_digits
from fxad.ir import kernel as ir


def emit_sort(scope: Scope, stage: ir.Sort) -> None:
    """At the current point."""
    if is_empty(scope, [stage.stored]):
        return
    here = ir.Index(0, ((stage.axis, 1),))
    operands: list[ir.Buffer] = []
    for operand in stage.operands:
        scope, buffer = with_array(scope, "operand", operand.dtype, stage.axis.extent)
        operands.append(buffer)
    fill = [ir.Store(b, here, v) for b, v in zip(operands, stage.operands, strict=True)]
    emit_map(inner(scope), ir.Map((stage.axis,), tuple(fill)))
    _write(scope, stage, operands, _order(scope, stage, operands))


def _order(scope: Scope, stage: ir.Sort, operands: list[ir.Buffer]) -> str:
    """The array of the positions in order; only what is stored of it counts."""
    extent, wanted, buffers = stage.axis.extent, stage.stored.extent, operands[: stage.keys]
    target, descending = scope.code.target, stage.largest is not None
    network = sorts(extent, buffers, target)
    if descending and not (network and extent <= target.tuning.sorts.worth * wanted):
        if insertion_is_worth(extent, wanted, target):
            return largest_by_insertion(scope, stage, operands[0])
        if candidates_are_worth(extent, wanted, target):
            return largest_by_candidates(scope, stage, operands[0])
    scope, buffer = with_array(scope, "order", POSITION, extent)
    order, keys = scope.context.pointers[buffer], keys_of(scope, buffers, extent, descending)
    if network:
        sort_by_network(scope, keys, order)
        return order
    if is_short(extent, target):
        sort_by_counts(scope, keys, order)
        return order
    scope, other = with_array(scope, "other", POSITION, extent)
    radix = radix_of(scope, keys)
    number_positions(scope, buffer, extent)
    return sort_by_digits(scope, radix, order, scope.context.pointers[other])


def _write(scope: Scope, stage: ir.Sort, operands: list[ir.Buffer], order: str) -> None:
    def point(here: Scope, texts: Texts) -> Texts:
        place = position_at(here, order, here.axes[stage.stored])
        cells = {
            cell: {0: element(here, buffer, place)}
            for buffer, cell in zip(operands, stage.cells, strict=False)
        }
        if stage.largest is not None:
            narrow = Vec(here.code, "i64", 1, place).convert("trunc", "i32")
            cells[stage.cells[-1]] = {0: narrow}
        store_all(with_cells(here, cells), stage.stores)
        return texts

    loops(scope, [stage.stored], roots_with_guards(stage.stores), blocked_by(stage), point)
