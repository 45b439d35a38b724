"""What a pass changed: the texts of a program before and after it, compared line by line.

    - c: f32[3] = mul(b, 1.0:f32)
    - d: f32[3] = exp(c)
    + d: f32[3] = exp(b)

Values that both programs have keep their names.
"""

from __future__ import annotations

import importlib

from fxad.ir.block import Block
from fxad.ir.plan import Plan
from fxad.ir.program import Naming, Program, show


def diff(before: Program, after: Program, names: Naming | None = None) -> str:
    """Lines that only one of the programs has, marked - and +, with a line around them. Empty if
    there are none. `names` carries names from one diff to the next."""
    names = Naming() if names is None else names
    texts = [show(p, names=names).split("\n") for p in (before, after)]
    difflib = importlib.import_module("difflib")  # only who asks pays for it
    lines = difflib.unified_diff(*texts, n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def changed(given: object, made: object) -> str:
    """What a stage of the compiler changed: the difference of Programs, another record's text."""
    if made is given:
        return ""
    after = getattr(made, "program", made)
    if isinstance(given, Program) and isinstance(after, Program):
        return diff(given, after)
    return str(made)


def size(made: object) -> str:
    """A record in a few words; of what holds a Program, that."""
    match getattr(made, "program", made):
        case Program(eqns=eqns):
            return _counted(len(eqns), "equation")
        case Block(steps=steps):
            return _counted(len(steps), "step")
        case Plan(arena_bytes=nbytes):
            return f"arena of {nbytes} bytes"
    return type(made).__name__.lower()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
