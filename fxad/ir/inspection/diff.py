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
from fxad.ir.program import Eqn, Naming, Program, params_key, show


def diff(before: Program, after: Program, names: Naming | None = None) -> str:
    """Lines that only one of the programs has, marked - and +, with a line around them. Empty if
    there are none. `names` carries names from one diff to the next."""
    names = Naming() if names is None else names
    return _compared(show(before, names=names), show(after, names=names))


def difference(before: Program, after: Program) -> str:
    """`diff` of two programs that were not made from each other: inputs are called alike by their
    places, and results of equations with the same op, parameters and types, where those stand in
    the same order."""
    difflib = importlib.import_module("difflib")  # only who asks pays for it
    names, others = Naming(before), Naming()
    inputs = (*before.consts, *before.inputs), (*after.consts, *after.inputs)
    for one, other in zip(*inputs, strict=False):
        others.call(other, names[one])
    said = [[_said(eqn) for eqn in program.eqns] for program in (before, after)]
    for eqn in before.eqns:
        for var in eqn.outputs:
            others.reserve_name(names[var])
    for block in difflib.SequenceMatcher(None, *said, autojunk=False).get_matching_blocks():
        for at in range(block.size):
            one, other = before.eqns[block.a + at], after.eqns[block.b + at]
            for var, like in zip(other.outputs, one.outputs, strict=True):
                others.call(var, names[like])
    texts = [show(p, where=False, names=n) for p, n in ((before, names), (after, others))]
    return _compared(*texts)


def _said(eqn: Eqn) -> object:
    return eqn.op.name, params_key(eqn.params), tuple([v.type for v in eqn.outputs])


def _compared(before: str, after: str) -> str:
    difflib = importlib.import_module("difflib")  # only who asks pays for it
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), n=1, lineterm="")
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
