"""Common subexpression elimination: equal equations are computed once."""

from __future__ import annotations

from collections.abc import Sequence

from fxad.core.config import spend_fuel
from fxad.ir.program import Atom, Eqn, Lit, Program, Var, params_key
from fxad.ir.rewrite import rebuild


def cse(program: Program) -> Program:
    """Let later equal equations use the earlier result. Effects and barriers are left alone.

    before   b = exp(a); c = exp(a); d = add(b, c)
    after    b = exp(a); d = add(b, b)
    """
    seen: dict[tuple[object, ...], tuple[Var, ...]] = {}

    def rewrite(eqn: Eqn, inputs: tuple[Atom, ...]) -> Sequence[Atom] | None:
        if eqn.effects or eqn.op.name == "barrier":
            return None
        key = (
            eqn.op.name,
            tuple([a.key() if type(a) is Lit else a for a in inputs]),
            params_key(eqn.params),
        )
        known = seen.setdefault(key, eqn.outputs)
        if known is eqn.outputs or not spend_fuel():
            return None
        return known

    return rebuild(program, rewrite)
