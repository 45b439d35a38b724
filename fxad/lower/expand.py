"""The value of a variable at a point, as an expression over values that are in memory.

    y = transpose(exp(x));  at(y, (i, j))  ->  exp(load x[n j + i])

Elementwise ops, views and gathers are composed by rewriting the index; the recursion ends at
materialized values (see `storage`), which become Loads of stand-in buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fxad.core import dtypes as dt
from fxad.ir.index import Point, flat
from fxad.ir.kernel import Axis, Buffer, Const, Expr, Index, Load, Param, Prim, Scalar
from fxad.ir.loops import Generate, Indexed, Pointwise, View
from fxad.ir.program import Atom, Lit, Var
from fxad.lower.graph import Def, Graph


class Storage:
    """Stand-ins for what a kernel will be given: a buffer per materialized value, a scalar per
    number.

    alias: materialized values that are another one's bytes under a different shape.
    """

    def __init__(self) -> None:
        self.buffers: dict[Var, Buffer] = {}
        self.values: dict[Buffer, Var] = {}
        self.alias: dict[Var, Var] = {}
        self.numbers: dict[Scalar, bool | int | float | complex] = {}
        self._scalars: dict[tuple[object, ...], Expr] = {}

    def buffer(self, var: Var) -> Buffer:
        var = self.alias.get(var, var)
        found = self.buffers.get(var)
        if found is None:
            found = Buffer("", var.type.dtype, var.type.size, "in")
            self.buffers[var] = found
            self.values[found] = var
        return found

    def literal(self, lit: Lit) -> Expr:
        """0, 1, -1 and bools are constants; other numbers are arguments of the kernel."""
        key = lit.key()
        found = self._scalars.get(key)
        if found is None:
            dtype = lit.type.dtype
            if dt.is_bool(dtype) or (lit.value in (0, 1, -1) and key[0] != "-0.0"):
                found = Const(lit.value, dtype)
            else:
                scalar = Scalar("", dtype)
                self.numbers[scalar] = lit.value
                found = Param(scalar)
            self._scalars[key] = found
        return found


class Expander:
    """`at` within one kernel stage: equal (value, point) pairs give the same expression."""

    def __init__(self, graph: Graph, materialized: Mapping[Var, object], storage: Storage) -> None:
        self._def_of = graph.def_of
        self._resolve = graph.resolve
        self._materialized = materialized
        self._storage = storage
        self._memo: dict[tuple[object, ...], Expr] = {}

    def at(self, atom: Atom, point: Point, guard: Expr | None = None) -> Expr:
        """`atom` at `point`; where `guard` is false the result is arbitrary, but safe."""
        if isinstance(atom, Lit):
            return self._storage.literal(atom)
        key = (atom, point, id(guard))
        found = self._memo.get(key)
        if found is None:
            if atom in self._materialized:
                fill = None if guard is None else zero(atom.type.dtype)
                index = flat(point, atom.type.shape)
                found = Load(self._storage.buffer(atom), index, guard, fill)
            else:
                found = self.define(self._def_of[atom], point, guard)
            self._memo[key] = found
        return found

    def define(self, definition: Def, point: Point, guard: Expr | None = None) -> Expr:
        """The value of an inlinable definition, computed from its operands."""
        record = definition.record
        operands = definition.operands
        match record:
            case Pointwise():
                at = self.at
                return record.value(
                    *[
                        Const(x.value, x.type.dtype)
                        if record.known and isinstance(x, Lit)
                        else at(x, point if x.type.shape else (), guard)
                        for x in operands
                    ]
                )
            case View():
                if record.guard is None or (inside := record.guard(point)) is None:
                    return self.at(operands[0], record.source(point), guard)
                fill = self.at(operands[1], ())
                return self._guarded(operands[0], record.source(point), inside, fill, guard)
            case Generate():
                return record.value(point)
            case Indexed():
                return record.value(point, self.reader(operands, guard))
        raise TypeError(f"{definition.eqn.op.name}: {record!r} cannot be computed at one point")

    def reader(self, operands: Sequence[Atom], guard: Expr | None = None) -> Callable[..., Expr]:
        """read(operand number, point, inside, fill), as gathers and scatters use it."""

        outer = guard

        def read(
            number: int, point: Point, guard: Expr | None = None, fill: Expr | None = None
        ) -> Expr:
            atom = operands[number]
            if guard is None:
                return self.at(atom, point, outer)
            fill = zero(atom.type.dtype) if fill is None else fill
            return self._guarded(atom, point, guard, fill, outer)

        return read

    def _guarded(
        self, atom: Atom, point: Point, inside: Expr, fill: Expr, guard: Expr | None
    ) -> Expr:
        """atom[point] where `inside`, else fill; nothing outside is read."""
        if isinstance(atom, Lit):
            return Prim("select", (inside, self.at(atom, ()), fill), atom.type.dtype)
        both = inside if guard is None else Prim("and", (inside, guard), dt.bool_)
        if atom in self._materialized:
            index = flat(point, atom.type.shape)
            return Load(self._storage.buffer(atom), index, both, fill)
        value = self.at(atom, point, both)
        return Prim("select", (inside, value, fill), atom.type.dtype)


def zero(dtype: np.dtype) -> Const:
    """Zero or False."""
    if dt.is_bool(dtype):
        return Const(False, dtype)
    if dt.is_complex(dtype):
        return Const(0j, dtype)
    return Const(0 if dt.is_integer(dtype) else 0.0, dtype)


def flat_identity(index: Index, axes: Sequence[Axis], strides: tuple[int, ...]) -> bool:
    """Whether an index is the row-major position of the axes themselves."""
    if index.const:
        return False
    wanted = [(a, s) for a, s in zip(axes, strides, strict=True) if a.extent != 1]
    if len(wanted) != len(index.terms):
        return False
    terms = dict(index.terms)
    return all(terms.get(a) == s for a, s in wanted)
