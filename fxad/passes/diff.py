"""What a pass changed: the texts of a program before and after it, compared line by line.

    - c: f32[3] = mul(b, 1.0:f32)
    - d: f32[3] = exp(c)
    + d: f32[3] = exp(b)

Values that both programs have keep their names.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from fxad.ir.program import Program, Var
from fxad.ir.text import show
from fxad.passes.pipeline import DEFAULT, PASSES, everywhere


def diff(before: Program, after: Program, names: dict[Var, str] | None = None) -> str:
    """Lines that only one of the programs has, marked - and +, with a line around them. Empty if
    there are none. `names` carries names from one diff to the next."""
    names = {} if names is None else names
    texts = [show(p, names=names).split("\n") for p in (before, after)]
    difflib = importlib.import_module("difflib")  # only who asks pays for it
    lines = difflib.unified_diff(*texts, n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def pass_diffs(program: Program, passes: Sequence[str] = DEFAULT) -> list[tuple[str, str]]:
    """(pass, what it changed) for every pass that changed something, in order."""
    names: dict[Var, str] = {}
    found = []
    for name in passes:
        after = everywhere(PASSES[name], program)
        changed = diff(program, after, names) if after.key() != program.key() else ""
        if changed:
            found.append((name, changed))
        program = after
    return found
