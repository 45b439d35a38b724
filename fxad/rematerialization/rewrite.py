"""A program with chosen values recomputed (or brought back, or widened) where they are read.

n = f(x);  q = n w;  ...;  dw = nᵀ dq

becomes   n = f(x);  q = n w;  ...;  n' = f(x);  dw = n'ᵀ dq
"""

from __future__ import annotations

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType, Type
from fxad.ir.offload_ops import nbytes_of
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import dce
from fxad.ir.uses import makers, values_read
from fxad.rematerialization.boundary import Boundary
from fxad.rematerialization.choose import SPEEDS, Ways


class Rewriter:
    """Restores chosen values before the first backward equation that reads them."""

    def __init__(self, program: Program, boundary: Boundary, anchors: set[Var], ways: Ways) -> None:
        self.program = program
        self.number = boundary.number
        self.kept = {*boundary.residuals, *anchors}
        self.ways = ways
        self.forward = makers(program.eqns[: self.number])
        self.stored = boundary.stored
        self.exact = boundary.exact
        self.small = {v: Var(_rounded(v.type)) for v, way in ways.items() if way == "bf16"}
        self.restored: dict[Atom, Atom] = {}  # forward value -> what is read backward instead
        self.eqns: list[Eqn] = []
        self._changed: dict[Atom, bool] = {}

    def rewritten(self) -> Program:
        program = self.program
        given = [v for v in self.small if v not in self.forward]  # the state of a loop
        self.eqns += [_converted(v, self.small[v]) for v in given]
        for eqn in program.eqns[: self.number]:
            self.eqns.append(eqn)
            self.eqns += [_converted(v, self.small[v]) for v in eqn.outputs if v in self.small]
        start = len(self.eqns)
        for eqn in program.eqns[self.number :]:
            backward = tuple([self._restored(a) for a in eqn.inputs])
            self.eqns.append(eqn.with_inputs(backward))
        self._backward_eqns = self.eqns[start:]
        return dce(
            Program(program.inputs, self.eqns, program.outputs, program.name, program.consts)
        )

    def residuals(self) -> dict[Var, int]:
        """Values made forward that backward equations read from memory, and their bytes."""
        backward = dce(Program((), self._backward_eqns, self.program.outputs)).eqns
        read = values_read(eqn for eqn in backward if eqn.op.name != "offload")
        stored = [*self.kept, *self.small.values()]
        return {v: nbytes_of(v) for v in stored if v in read}

    def _restored(self, atom: Atom) -> Atom:
        """What a backward equation reads for an atom."""
        if not isinstance(atom, Var) or not self._touched(atom):
            return atom
        if atom not in self.restored:
            self._restore(atom)
        return self.restored[atom]

    def _touched(self, var: Var) -> bool:
        """Whether a value is chosen, or only part of others and made from a chosen one."""
        if var not in self._changed:
            eqn = self.forward.get(var)
            self._changed[var] = var in self.ways
            if eqn is not None and var not in self.stored and not eqn.effects:
                self._changed[var] |= any(
                    isinstance(a, Var) and self._touched(a) for a in eqn.inputs
                )
        return self._changed[var]

    def _restore(self, var: Var) -> None:
        """Add the equations that restore a value, behind a barrier of their own: nothing repeated
        is fused with what was before it and lives longer than it must."""
        order: list[Eqn] = []
        fixed: dict[Atom, Atom] = {}
        self._collect(var, order, fixed, set())
        tag = None if var in self.exact else "recomputed"
        if fixed:
            barrier = Eqn(OPS["barrier"], tuple(fixed), {}, tuple(map(_like, fixed)), tag=tag)
            self.eqns.append(barrier)
            fixed = dict(zip(fixed, barrier.outputs, strict=True))
        for eqn in order:
            inputs = tuple([self.restored.get(a, fixed.get(a, a)) for a in eqn.inputs])
            outputs = tuple(map(_like, eqn.outputs))
            self.eqns.append(Eqn(eqn.op, inputs, eqn.params, outputs, eqn.where, eqn.tag or tag))
            for old, new in zip(eqn.outputs, outputs, strict=True):
                self.restored.setdefault(old, new)

    def _collect(self, var: Var, order: list[Eqn], fixed: dict[Atom, Atom], seen: set[Var]) -> None:
        """Equations to repeat for a value, operands first, and the kept values they read."""
        if var in self.restored or var in seen or var in fixed:
            return
        seen.add(var)
        way = self.ways.get(var)
        if way in SPEEDS:
            maker, params = self.forward.get(var), {"place": way, "memory": 0}
            where = maker.where if maker is not None else ""
            mark = Eqn(OPS["offload"], (var,), params, (_like(var),), where)
            self.eqns.append(mark)
            self.restored[var] = mark.outputs[0]
            return
        if way == "bf16":
            fixed[self.small[var]] = self.small[var]
            order.append(_converted(self.small[var], var))
            return
        eqn = self.forward.get(var)
        if eqn is None or (var in self.kept and way is None):
            fixed[var] = var
            return
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                self._collect(atom, order, fixed, seen)
        if eqn not in order:
            order.append(eqn)


def _like(atom: Atom) -> Var:
    return Var(atom.type)


def _rounded(type_: Type) -> ArrayType:
    return ArrayType(dt.bfloat16, type_.shape)


def _converted(given: Var, made: Var) -> Eqn:
    return Eqn(OPS["convert"], (given,), {"dtype": made.type.dtype}, (made,))
