"""The passes in the order `jit` runs them."""

from __future__ import annotations

from fxad.ir.program import Program
from fxad.ir.rewrite import dce
from fxad.passes.inline import inline


def optimise(program: Program) -> Program:
    """Rewrite a closed Program into an equivalent, cheaper one."""
    return dce(inline(program))
