"""The checker: re-derive every type of a Program and its scoping.

Runs after every transform and pass when FXAD_CHECK=1 (always on in the tests).
"""

from __future__ import annotations

import weakref

from fxad.core.errors import CheckError, at
from fxad.core.types import ArrayType
from fxad.ir.loops import CONTROL, Structured
from fxad.ir.program import Atom, Eqn, Lit, Program, Var, subprograms

# Programs do not change: what a stage hands on as it is, and bodies that it leaves alone, are not
# gone through again.
_well_formed: weakref.WeakSet[Program] = weakref.WeakSet()


def check(program: Program, stage: str = "") -> Program:
    """Return the program if it is well formed; else raise CheckError showing the equation."""
    if program in _well_formed:
        return program
    defined: set[Atom] = set()
    for var in (*program.consts, *program.inputs):
        _define(var, defined, "input", program, stage)
    for eqn in program.eqns:
        for atom in eqn.inputs:
            if isinstance(atom, Var) and atom not in defined:
                _fail(f"{eqn.op.name} reads a value before it is defined", eqn, program, stage)
        _check_types(eqn, program, stage)
        for var in eqn.outputs:
            _define(var, defined, eqn.op.name, program, stage)
        for name, inner in subprograms(eqn):
            if inner.consts:
                _fail(f"sub-program {name} of {eqn.op.name} has consts", eqn, program, stage)
            check(inner, stage)
    _check_pairs(program, stage)
    for atom in program.outputs:
        if isinstance(atom, Var) and atom not in defined:
            raise CheckError(f"{_after(stage)}an output of {program.name} is never defined")
        if not isinstance(atom, Var | Lit):
            raise CheckError(f"{_after(stage)}an output of {program.name} is {atom!r}")
    _well_formed.add(program)
    return program


def _define(var: Var, defined: set[Atom], what: str, program: Program, stage: str) -> None:
    if var in defined:
        raise CheckError(f"{_after(stage)}{what} of {program.name} defines a value twice")
    defined.add(var)


def _check_types(eqn: Eqn, program: Program, stage: str) -> None:
    derived = eqn.op.type(*[a.type for a in eqn.inputs], **eqn.params)
    if isinstance(derived, ArrayType) or not isinstance(derived, tuple):
        derived = (derived,)
    seen = tuple(v.type for v in eqn.outputs)
    if derived != seen:
        said = ", ".join(map(str, derived))
        found = ", ".join(map(str, seen))
        _fail(f"{eqn.op.name} gives ({said}) but is written as ({found})", eqn, program, stage)


def _check_pairs(program: Program, stage: str) -> None:
    """Only scans are paired, and those of one pair have one length."""
    first: dict[int, Eqn] = {}
    for eqn in program.eqns:
        if eqn.pair is None:
            continue
        if eqn.op.name != "scan":
            _fail(f"{eqn.op.name} is no loop, but paired with one", eqn, program, stage)
        other = first.setdefault(eqn.pair, eqn)
        if other.params["length"] != eqn.params["length"]:
            lengths = f"{other.params['length']} and {eqn.params['length']}"
            _fail(f"scans of one pair have {lengths} trips", eqn, program, stage)


def _fail(problem: str, eqn: Eqn, program: Program, stage: str) -> None:
    lines = []
    number = program.eqns.index(eqn)
    for i in range(max(0, number - 3), min(len(program.eqns), number + 2)):
        e = program.eqns[i]
        operands = ", ".join(str(a.type) for a in e.inputs)
        results = ", ".join(str(v.type) for v in e.outputs)
        lines.append(f"  {'->' if i == number else '  '} {results} = {e.op.name}({operands})")
    text = "\n".join(lines)
    raise CheckError(f"{_after(stage)}{problem}{at(eqn.where)}\n{text}")


def _after(stage: str) -> str:
    return f"after {stage}: " if stage else ""


def check_lowerable(program: Program, stage: str = "") -> None:
    """`check`, and every op, of programs inside too, has loops of its own: none is a call, must be
    decomposed, or is a sum of tapes."""
    check(program, stage)
    _check_lowerable(program, stage)


def _check_lowerable(program: Program, stage: str) -> None:
    for eqn in program.eqns:
        found = eqn.op.loops and eqn.op.loops([a.type for a in eqn.inputs], **eqn.params)
        if found is None or (isinstance(found, Structured) and found.kind not in CONTROL):
            _fail(f"{eqn.op.name} has no loops: it stands for other ops", eqn, program, stage)
        for _, inner in subprograms(eqn):
            _check_lowerable(inner, stage)
