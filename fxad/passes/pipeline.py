"""The passes in the order `jit` runs them, with checking, printing and fuel between them.

FXAD_CHECK=1 re-derives every type after each pass, FXAD_SHOW=<pass>[,<pass>] prints the program
after it, FXAD_FUEL=n stops rewriting after n rewrites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.ir.program import Program
from fxad.ir.rewrite import dce, map_subprograms
from fxad.passes.algebra import algebra
from fxad.passes.cse import cse
from fxad.passes.fold import fold
from fxad.passes.inline import inline
from fxad.passes.observe import observe
from fxad.passes.offload import offload
from fxad.passes.rows_apart import rows_apart
from fxad.passes.widen_late import widen_late

Pass = Callable[[Program], Program]

PASSES: dict[str, Pass] = {
    "inline": inline,
    "dce": dce,
    "fold": fold,
    "algebra": algebra,
    "cse": cse,
}
DEFAULT = ("inline", "fold", "algebra", "cse", "algebra", "dce")
LATE: tuple[Pass, ...] = (rows_apart, widen_late, offload)  # once, when all else is done


def optimise(program: Program, passes: Sequence[str] = DEFAULT) -> Program:
    """Rewrite a closed Program into an equivalent, cheaper one."""
    observe("traced", program)
    for name in passes:
        program = everywhere(PASSES[name], program)
        observe(name, program)
    for late in LATE:
        rewritten = late(program)
        if rewritten is not program:
            observe(late.__name__, rewritten)
        program = rewritten
    return program


def everywhere(rewrite: Pass, program: Program) -> Program:
    """Apply a pass to a program and to all programs inside it, the innermost first."""
    return _visited(program, rewrite, {})


def _visited(program: Program, rewrite: Pass, done: dict[Program, Program]) -> Program:
    found = done.get(program)
    if found is None:
        inside = map_subprograms(program, lambda inner: _visited(inner, rewrite, done))
        found = done[program] = rewrite(inside)
    return found
