"""Constant folding: equations of literals alone become literals, where that is exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.config import spend_fuel
from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Lit, Program
from fxad.ir.rewrite import literal, rebuild

# Rounding-free on any operands: folding them cannot change a bit of the result.
_EXACT = frozenset("broadcast reshape convert neg abs select eq ne lt le gt ge not copy".split())
_EXACT_INTEGER = frozenset("add sub mul and or xor min max".split())


def fold(program: Program) -> Program:
    """Evaluate rank-0 equations whose operands are all literals.

    before   a = broadcast(1.0; shape=()); b = mul(a, x)
    after    b = mul(1.0, x)

    Only ops that are exact on any backend are evaluated here, so that a folded program gives the
    same bits as the one it came from.
    """
    return rebuild(program, _fold)


def _fold(eqn: Eqn, inputs: tuple[Atom, ...]) -> Sequence[Atom] | None:
    if len(eqn.outputs) != 1 or not inputs or not all(isinstance(a, Lit) for a in inputs):
        return None
    type_ = eqn.outputs[0].type
    if not isinstance(type_, ArrayType) or type_.shape or not _is_exact(eqn, inputs):
        return None
    if not spend_fuel():
        return None
    values = [np.asarray(a.value, a.type.dtype) for a in inputs if isinstance(a, Lit)]
    with np.errstate(all="ignore"):
        result = np.asarray(eqn.op.numpy(*values, **eqn.params))
    return (literal(result.item(), type_.dtype),)


def _is_exact(eqn: Eqn, inputs: tuple[Atom, ...]) -> bool:
    name = eqn.op.name
    if name in _EXACT:
        return True
    return name in _EXACT_INTEGER and all(not dt.is_inexact(a.type.dtype) for a in inputs)
