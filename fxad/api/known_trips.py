"""Loops of unknown length as scans of as many trips as they make for operands at hand.

before   x = while(...; cond=far, body=step)
after    x = scan(...; body=step, length=7)

An error estimate is for given operands, so it can look inside such loops, trip by trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.api.compiled import run_program
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Eqn, Lit, Program, Var, subprograms
from fxad.ir.rewrite import flattened
from fxad.trace.tracer import concrete

LARGEST = 1 << 22  # numbers that a loop's equations make together; beyond it stays one equation


def known_trips(program: Program, operands: Sequence[Any]) -> Program:
    """The program with the loops of its outermost level as scans, where these are not too long;
    loops inside loops, branches and checkpoints stay. Equations of bodies stay the same objects."""
    if not _has_while(program):
        return program
    program = flattened(program)
    loops = [e for e in program.eqns if _eligible(e)]
    counts = dict(zip(loops, _counted(program, loops, operands), strict=True))
    eqns = [_scan(e, counts[e]) if _short(e, counts.get(e, 0)) else e for e in program.eqns]
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _has_while(program: Program) -> bool:
    return any(
        eqn.op.name == "while" or any(_has_while(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _eligible(eqn: Eqn) -> bool:
    """A loop on arrays alone; those over tapes are halves of derivatives."""
    return eqn.op.name == "while" and all(isinstance(a.type, ArrayType) for a in eqn.inputs)


def _short(eqn: Eqn, trips: int) -> bool:
    if not trips:
        return False
    made = sum(v.type.size for e in eqn.params["body"].eqns for v in e.outputs)
    return trips * made <= LARGEST


def _counted(program: Program, loops: Sequence[Eqn], operands: Sequence[Any]) -> list[int]:
    """How many trips each of the loops makes."""
    number = ArrayType(dt.int32, ())
    eqns, counts = [], []
    for eqn in program.eqns:
        if eqn in loops:
            counts.append(Var(number))
            eqn = _counting(eqn, counts[-1])
        eqns.append(eqn)
    found = run_program(Program(program.inputs, eqns, counts, program.name), operands)
    return [int(concrete(n)) for n in found]


def _counting(eqn: Eqn, count: Var) -> Eqn:
    """The loop with a further result: how many trips it made."""
    cond, body = eqn.params["cond"], eqn.params["body"]
    test = Program([*cond.inputs, Var(count.type)], cond.eqns, cond.outputs, cond.name)
    before, after = Var(count.type), Var(count.type)
    add = Eqn(OPS["add"], (before, Lit(1, count.type.dtype)), {}, (after,))
    outputs = [*body.outputs, after]
    step = Program([*body.inputs, before], [*body.eqns, add], outputs, body.name)
    params = {**eqn.params, "cond": test, "body": step}
    inputs = (*eqn.inputs, Lit(0, count.type.dtype))
    return Eqn(eqn.op, inputs, params, (*eqn.outputs, count), eqn.where, eqn.tag)


def _scan(eqn: Eqn, trips: int) -> Eqn:
    params = {
        "body": eqn.params["body"],
        "consts": eqn.params["body_consts"],
        "carry": len(eqn.outputs),
        "length": trips,
        "reverse": False,
    }
    inputs = eqn.inputs[eqn.params["cond_consts"] :]
    return Eqn(OPS["scan"], inputs, params, eqn.outputs, eqn.where, eqn.tag)
