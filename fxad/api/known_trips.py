"""Loops of unknown length as scans of as many trips as they make for operands at hand.

before   x = while(...; cond=far, body=step)
after    x = scan(...; body=step, length=7)

In loops and branches, where it may make fewer trips at times, a loop becomes a scan of the most
trips, which steps on where `cond` holds. An error estimate is for given operands, so it can look
inside such loops, trip by trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fxad.api.compiled import run_program
from fxad.core import dtypes as dt
from fxad.core.types import INT32, ArrayType
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var, subprograms
from fxad.ir.rewrite import inline_into, map_subprograms, replaced
from fxad.trace.execute import concrete

LARGEST = 1 << 22  # numbers that a loop's equations make together; beyond it stays one equation


def known_trips(program: Program, operands: Sequence[Any]) -> Program:
    """The program with its loops as scans, where these are not too long, those inside loops and
    branches too. Equations of bodies stay the same objects."""
    if not _has_while(program):
        return program
    program = _opened(program)
    counting, loops = _counting(program)
    numbers = counting.outputs[len(program.outputs) :]
    found = run_program(Program(program.inputs, counting.eqns, numbers, program.name), operands)
    counts: dict[Eqn, int] = {}
    for eqn, number in zip(loops, found, strict=True):
        counts[eqn] = max(counts.get(eqn, 0), int(concrete(number)))
    return _followed(program, counts, 1, inside=False)


def _opened(program: Program) -> Program:
    """The program, and those inside, without calls and checkpoints; equations where there are none
    stay the same objects."""
    env: dict[Atom, Atom] = {}
    eqns: list[Eqn] = []
    for eqn in map_subprograms(program, _opened).eqns:
        inputs = replaced(eqn.inputs, env)
        if eqn.op.name in ("call", "checkpoint"):
            body, outs = inline_into(eqn.params["program"], inputs, eqn.where)
            eqns += body
            env.update(zip(eqn.outputs, outs, strict=True))
        else:
            eqns.append(eqn if inputs is eqn.inputs else eqn.with_inputs(inputs))
    if not env and all(a is b for a, b in zip(eqns, program.eqns, strict=True)):
        return program
    outputs = replaced(program.outputs, env)
    return Program(program.inputs, eqns, outputs, program.name, program.consts)


def _has_while(program: Program) -> bool:
    return any(
        eqn.op.name == "while" or any(_has_while(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _eligible(eqn: Eqn) -> bool:
    """A loop on arrays alone; those over tapes are halves of derivatives."""
    return eqn.op.name == "while" and all(isinstance(a.type, ArrayType) for a in eqn.inputs)


# ---------------------------------------------------------------- how many trips


def _counting(program: Program) -> tuple[Program, list[Eqn]]:
    """The program with a further result per loop: the most trips it made; and these loops."""
    eqns: list[Eqn] = []
    numbers: list[Atom] = []
    loops: list[Eqn] = []
    for eqn in program.eqns:
        if _eligible(eqn):
            found = _counting_while(eqn, eqns, numbers)
        elif eqn.op.name == "scan" and eqn.params["length"]:
            found = _counting_scan(eqn, eqns, numbers)
        elif eqn.op.name == "cond":
            found = _counting_cond(eqn, eqns, numbers)
        else:
            eqns.append(eqn)
            continue
        loops += found
    outputs = [*program.outputs, *numbers]
    return Program(program.inputs, eqns, outputs, program.name, program.consts), loops


def _counting_while(eqn: Eqn, eqns: list[Eqn], numbers: list[Atom]) -> list[Eqn]:
    """The loop counts its trips and carries the most that loops inside made."""
    cond, body = eqn.params["cond"], eqn.params["body"]
    inner, loops = _counting(body)
    seen = inner.outputs[len(body.outputs) :]
    before, after, results = ([Var(INT32) for _ in range(1 + len(seen))] for _ in range(3))
    steps = [Eqn(OPS["add"], (before[0], Lit(1, dt.int32)), {}, (after[0],))]
    for old, number, new in zip(before[1:], seen, after[1:], strict=True):
        steps.append(Eqn(OPS["max"], (old, number), {}, (new,)))
    test = Program([*cond.inputs, *(Var(INT32) for _ in before)], cond.eqns, cond.outputs)
    outputs = [*inner.outputs[: len(body.outputs)], *after]
    step = Program([*body.inputs, *before], [*inner.eqns, *steps], outputs, body.name)
    params = {**eqn.params, "cond": test, "body": step}
    inputs = (*eqn.inputs, *(Lit(0, dt.int32) for _ in before))
    eqns.append(eqn.copy(inputs=inputs, params=params, outputs=(*eqn.outputs, *results)))
    numbers += results
    return [eqn, *loops]


def _counting_scan(eqn: Eqn, eqns: list[Eqn], numbers: list[Atom]) -> list[Eqn]:
    """The scan stacks the trips of loops inside, of which the most are taken."""
    inner, loops = _counting(eqn.params["body"])
    stacks = [Var(ArrayType(dt.int32, (eqn.params["length"],))) for _ in loops]
    params = {**eqn.params, "body": inner}
    eqns.append(eqn.copy(params=params, outputs=(*eqn.outputs, *stacks)))
    for stack in stacks:
        most = Var(INT32)
        eqns.append(Eqn(OPS["max_reduce"], (stack,), {"axes": (0,)}, (most,)))
        numbers.append(most)
    return loops


def _counting_cond(eqn: Eqn, eqns: list[Eqn], numbers: list[Atom]) -> list[Eqn]:
    """Loops in branches not taken make no trips."""
    branches = eqn.params["branches"]
    counted = [_counting(b) for b in branches]
    loops = [loop for _, found in counted for loop in found]
    wide, first = [], 0
    for branch, (inner, found) in zip(branches, counted, strict=True):
        made = inner.outputs[len(branch.outputs) :]
        others = [Lit(0, dt.int32)] * len(loops)
        mixed = [*others[:first], *made, *others[first + len(found) :]]
        first += len(found)
        outputs = [*inner.outputs[: len(branch.outputs)], *mixed]
        wide.append(Program(inner.inputs, inner.eqns, outputs, inner.name))
    results = [Var(INT32) for _ in loops]
    params = {**eqn.params, "branches": tuple(wide)}
    eqns.append(eqn.copy(params=params, outputs=(*eqn.outputs, *results)))
    numbers += results
    return loops


# ---------------------------------------------------------------- the scans


def _followed(program: Program, counts: Mapping[Eqn, int], times: int, inside: bool) -> Program:
    """The program with its loops as scans. times: how often it runs; inside: in others."""
    eqns = []
    for eqn in program.eqns:
        trips = counts.get(eqn, 0)
        if trips and times * trips * _made(eqn.params["body"]) <= LARGEST:
            body = _followed(eqn.params["body"], counts, times * trips, True)
            eqn = _scan(eqn, body, trips) if not inside else _masked(eqn, body, trips)
        elif eqn.op.name == "scan":
            often = times * eqn.params["length"]
            body = _followed(eqn.params["body"], counts, often, True)
            eqn = _holding(eqn, {"body": body})
        elif eqn.op.name == "cond":
            branches = [_followed(b, counts, times, True) for b in eqn.params["branches"]]
            eqn = _holding(eqn, {"branches": tuple(branches)})
        eqns.append(eqn)
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def _made(body: Program) -> int:
    return sum(v.type.size for e in body.eqns for v in e.outputs)


def _holding(eqn: Eqn, programs: dict[str, Any]) -> Eqn:
    params = {**eqn.params, **programs}
    return eqn.copy(params=params)


def _scan(eqn: Eqn, body: Program, trips: int) -> Eqn:
    return _repeated(eqn, body, trips, eqn.params["cond_consts"], eqn.params["body_consts"])


def _masked(eqn: Eqn, body: Program, trips: int) -> Eqn:
    """A scan whose trips hand their state on where the loop would have ended."""
    cond, first = eqn.params["cond"], eqn.params["cond_consts"]
    fixed = eqn.params["body_consts"]
    tested = [Var(v.type) for v in cond.inputs[:first]]
    given = [Var(v.type) for v in body.inputs]
    test, (going,) = inline_into(cond, [*tested, *given[fixed:]], eqn.where)
    still = [Var(v.type) for v in body.inputs]
    ways = (Program(still, [], still[fixed:]), body)
    results = [Var(v.type) for v in eqn.outputs]
    step = Eqn(OPS["cond"], (going, *given), {"branches": ways}, tuple(results), eqn.where)
    masked = Program([*tested, *given], [*test, step], results, body.name)
    return _repeated(eqn, masked, trips, 0, first + fixed)


def _repeated(eqn: Eqn, body: Program, trips: int, skipped: int, consts: int) -> Eqn:
    carry = len(eqn.outputs)
    params = {"body": body, "consts": consts, "carry": carry, "length": trips, "reverse": False}
    return Eqn(OPS["scan"], eqn.inputs[skipped:], params, eqn.outputs, eqn.where, eqn.tag)
