"""Updates of a whole table whose gradient is a product plus a few rows: the rows are done apart.

before   g = dot(a, b); h = scatter(g, rows, places); p' = f(h, p)
after    few = f(dot(a[places], b) + rows, p[places]); g = dot(a, b); p' = f(g, p)
         p'[places] = few

A tied table's gradient is of this kind: its head's product, to which the lookup adds a row for
every token. The product's elements are then read by elementwise equations alone, so that lowering
makes the update its epilogue and the gradient is never stored. The bits are the same: a row that is
done apart is the same product, summed in the same order, and rows of one place are added to it in
their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core.config import spend_fuel
from fxad.core.types import ArrayType
from fxad.ir import heuristics
from fxad.ir.loops import Pointwise, loops_of
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import replaced
from fxad.ir.uses import uses_of, values_read
from fxad.ops.base import all_params, op, zeros
from fxad.passes.inserted import inserted
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value


def rows_apart(program: Program) -> Program:
    """The program with such updates taken apart; the same one if there are none."""
    for eqn in program.eqns:
        if eqn.op.name == "scatter" and _is_few_rows(eqn):
            update = _Update.of(program, eqn)
            if update is not None and spend_fuel():
                program = update.apart()
    return program


def _is_few_rows(eqn: Eqn) -> bool:
    """Whether it adds rows to a large float32 matrix, by one index for each."""
    table, rows, *places = eqn.inputs
    wanted = {"axes": (0,), "batch": 0, "mode": "clamp", "monoid": "add"}
    params = all_params(eqn)
    return (
        len(places) == 1
        and all(params[key] == value for key, value in wanted.items())
        and table.type.dtype == np.float32
        and len(table.type.shape) == 2
        and table.type.nbytes >= heuristics.ROWS_APART_BYTES
        and table.type.shape[1] >= heuristics.ROW_EPILOGUE_EXTENT
        and 0 < rows.type.size * heuristics.ROWS_APART_RATIO <= table.type.size
    )


class _Update:
    """The equations between a scatter and the program's results, all elementwise."""

    def __init__(self, program: Program, product: Eqn, scatter: Eqn, eqns: Sequence[Eqn]) -> None:
        self.program, self.product, self.scatter, self.eqns = program, product, scatter, eqns
        made = {scatter.outputs[0], *(e.outputs[0] for e in eqns)}
        self.results = [v for v in dict.fromkeys(program.outputs) if v in made]
        shape = scatter.outputs[0].type.shape
        self.beside = [v for v in values_read(eqns) if v not in made and v.type.shape == shape]

    @staticmethod
    def of(program: Program, scatter: Eqn) -> _Update | None:
        """None unless the scatter's base is a product that nobody else reads, and what depends on
        the sum is elementwise and not read by anything else."""
        (total,), base = scatter.outputs, scatter.inputs[0]
        uses = uses_of(program)
        product = uses.maker.get(base)
        if product is None or not _is_matrix_product(product):
            return None
        if uses.only_reader(base) is not scatter or total in program.outputs:
            return None
        if sum(a.type.nbytes for a in product.inputs) > base.type.nbytes:
            return None  # they are kept until the rows are known
        made: set[Atom] = {total}
        eqns: list[Eqn] = []
        for eqn in program.eqns:
            if made.isdisjoint(eqn.inputs):
                continue
            if len(eqn.outputs) != 1 or eqn.outputs[0].type.shape != total.type.shape:
                return None
            if eqn.effects or not _is_elementwise(eqn):
                return None
            made.add(eqn.outputs[0])
            eqns.append(eqn)
        return _Update(program, product, scatter, eqns)

    def apart(self) -> Program:
        program, where = self.program, self.scatter.where
        (base, rows, places), (total,) = self.scatter.inputs, self.scatter.outputs
        atoms = (*self.product.inputs, rows, places, *self.beside)
        first, (sums, *beside) = inserted(self._few, atoms, where)
        few: dict[Atom, Atom] = dict(zip((total, *self.beside), (sums, *beside), strict=True))
        each = []
        for eqn in self.eqns:
            (result,) = eqn.outputs
            small = Var(ArrayType(result.type.dtype, sums.type.shape))
            each.append(eqn.copy(inputs=replaced(eqn.inputs, few), outputs=(small,)))
            few[result] = small
        # Stored before the whole table is updated, which then may happen in place.
        kept_few, done = inserted(OPS["barrier"], [few[v] for v in self.results], where)
        whole = [e.with_inputs(replaced(e.inputs, {total: base})) for e in self.eqns]
        last, new = inserted(_put, (places, *self.results, *done), where)
        moved = {self.product, self.scatter, *self.eqns}
        kept = [e for e in program.eqns if e not in moved]
        outputs = replaced(program.outputs, dict(zip(self.results, new, strict=True)))
        eqns = [*kept, *first, *each, *kept_few, self.product, *whole, *last]
        return Program(program.inputs, eqns, outputs, program.name, program.consts)

    def _few(self, a: Value, b: Value, rows: Value, places: Value, *beside: Value) -> list[Value]:
        """The sums at the places, [places, columns], and the rows there of what is beside them."""
        (left,), right = self.product.params["contract"]
        params = {**self.product.params, "contract": ((1,), right)}
        sums = op("dot", _taken(a, places, 1 - left), b, **params)
        rows = op("reshape", rows, shape=type_of(sums).shape)
        places = op("reshape", places, shape=type_of(sums).shape[:1])
        # All rows of one place are added to the sum at one of them, which all then read.
        count = op("iota", shape=type_of(places).shape, dtype=np.dtype("int32"), axis=0)
        slots = zeros(ArrayType(np.dtype("int32"), self.scatter.inputs[0].type.shape[:1]))
        first = _taken(_scattered(slots, count, places, "set"), places, 0)
        total = _taken(_scattered(sums, rows, first, "add"), first, 0)
        return [total, *(_taken(x, places, 0) for x in beside)]


def _put(places: Value, *values: Value) -> list[Value]:
    """Tables, then as many few rows of theirs -> tables with their rows put in."""
    half = len(values) // 2
    places = op("reshape", places, shape=type_of(values[-1]).shape[:1])
    pairs = zip(values[:half], values[half:], strict=True)
    return [_scattered(whole, few, places, "set") for whole, few in pairs]


def _taken(x: Value, places: Value, axis: int) -> Value:
    """Parts of a matrix or vector across `axis`, [places, other axis]."""
    places = op("reshape", places, shape=(type_of(places).size,))
    return op("gather", x, places, axes=(axis,), mode="clamp")


def _scattered(x: Value, rows: Value, places: Value, monoid: str) -> Value:
    return op("scatter", x, rows, places, axes=(0,), mode="clamp", monoid=monoid)


def _is_elementwise(eqn: Eqn) -> bool:
    return isinstance(loops_of(eqn), Pointwise)


def _is_matrix_product(eqn: Eqn) -> bool:
    """Whether it is a product of two float32 matrices."""
    return (
        eqn.op.name == "dot"
        and all(a.type.dtype == np.float32 and len(a.type.shape) == 2 for a in eqn.inputs)
        and all(len(axes) == 1 for axes in eqn.params["contract"])
    )
