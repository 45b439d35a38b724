"""Sums of tapes as loops, in place where the sum is the only one to read what it adds to.

    before   t = tape_add(a, b)
    after    a while over the slots of b: t's slot = a's slot + b's slot

The gradient of a loop that reads a tape sums one-slot tapes, one per trip. Copying the sum so far
on each of them would cost the square of the trips. A tape is *owned* by the equation that reads it
if it began as an empty tape and nobody else reads it; a sum with an owned tape is made in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import map_subprograms
from fxad.ir.uses import Uses, uses_of
from fxad.ops.base import full, plus, zeros
from fxad.passes.inline import inline
from fxad.trace.tracer import stage, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value, Values


def tapes(program: Program) -> Program:
    """The program without `tape_add`."""
    return inline(_visit(program, frozenset())) if _adds(program) else program


@functools.lru_cache(maxsize=256)
def _adds(program: Program) -> bool:
    return any(
        eqn.op.name == "tape_add" or any(_adds(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _visit(program: Program, owned_inputs: frozenset[Var]) -> Program:
    """Replace the sums of a program whose inputs `owned_inputs` nobody else reads."""
    uses = uses_of(program)
    owned: set[Atom] = set(owned_inputs)

    def mine(atom: Atom) -> bool:
        return _empty(atom, uses) or (atom in owned and uses.count(atom) == 1)

    eqns = []
    for eqn in program.eqns:
        name = eqn.op.name
        if name == "tape_new" or (name == "tape_write" and mine(eqn.inputs[0])):
            owned.update(eqn.outputs)
        elif name == "tape_add":
            eqn = _sum(eqn, uses, mine)
            owned.update(eqn.outputs)
        elif name in ("scan", "while"):
            eqn = _loop(eqn, mine, owned)
        else:
            eqn = map_inner(eqn)
        eqns.append(eqn)
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


def map_inner(eqn: Eqn) -> Eqn:
    """The equation with the sums in what it holds replaced."""
    if not subprograms(eqn):
        return eqn
    only = Program(list(dict.fromkeys(a for a in eqn.inputs if isinstance(a, Var))), [eqn], [])
    return map_subprograms(only, lambda inner: _visit(inner, frozenset())).eqns[0]


def _empty(atom: Atom, uses: Uses) -> bool:
    """An empty tape has no storage that could be shared."""
    eqn = uses.maker.get(atom)
    return eqn is not None and eqn.op.name == "tape_new"


def _loop(eqn: Eqn, mine: Callable[[Atom], bool], owned: set[Atom]) -> Eqn:
    """A loop owns a carried tape if it gets it to itself and every trip hands on what it got."""
    params = dict(eqn.params)
    body: Program = params["body"]
    first = params["consts"] if eqn.op.name == "scan" else params["body_consts"]
    before = params.get("cond_consts", 0)
    carry = params["carry"] if eqn.op.name == "scan" else len(body.outputs)
    inner = body.inputs[first : first + carry]
    started = {
        v: out
        for v, out, init in zip(inner, body.outputs, eqn.inputs[before + first :], strict=False)
        if isinstance(v.type, TapeType) and mine(init)
    }
    kept = frozenset(v for v, out in started.items() if _handed_on(body, v, out))
    params["body"] = _visit(body, kept)
    owned.update(o for o, v in zip(eqn.outputs, inner, strict=False) if v in kept)
    return eqn.copy(params=params)


def _handed_on(body: Program, tape: Var, out: Atom) -> bool:
    """Whether a carried tape goes from the body's input to its output through single readers."""
    uses = uses_of(body)
    at: Atom = tape
    while at is not out:
        reader = uses.only_reader(at)
        if reader is None:
            return False
        at_place = reader.inputs.index(at)
        if reader.op.name in ("tape_add", "tape_write"):
            if at_place != 0:
                return False
            at = reader.outputs[0]
        elif reader.op.name in ("scan", "while"):
            counts = [reader.params.get(n, 0) for n in ("cond_consts", "body_consts", "consts")]
            number = at_place - sum(counts)
            if not 0 <= number < len(reader.outputs):
                return False
            at = reader.outputs[number]
        else:
            return False
    return uses.count(at) == 1


def _sum(eqn: Eqn, uses: Uses, mine: Callable[[Atom], bool]) -> Eqn:
    """The equation as a call of a program that adds in place if it may."""
    first, second = eqn.inputs
    last = uses.maker.get(second)
    if not mine(first):
        program = _copied_sum(first.type)
        inputs: tuple[Atom, ...] = (first, second)
    elif last is not None and last.op.name == "tape_write" and _empty(last.inputs[0], uses):
        program = _slot_sum(first.type)
        inputs = (first, *last.inputs[1:])
    else:
        program = _gathered(first.type)
        inputs = (first, second)
    return Eqn(OPS["call"], inputs, {"program": program}, eqn.outputs, eqn.where, eqn.tag)


def _with_lanes(type: TapeType) -> list[Type]:
    return [b.with_shape((*type.lanes, *b.shape)) for b in type.blocks]


def _number(type: TapeType) -> ArrayType:
    return ArrayType(dt.int32, type.lanes)


def _staged(function: Callable[..., Sequence[Value]], types: Sequence[Type], name: str) -> Program:
    program, captured = stage(lambda *args: list(function(*args)), types, name)
    assert not captured
    return program.closed()


def _plus_slot(tape: Value, number: Value, blocks: Sequence[Value]) -> Value:
    before = OPS["tape_read"](tape, number)
    sums = [plus(b, d) for b, d in zip(_listed(before), blocks, strict=True)]
    written: Value = OPS["tape_write"](tape, number, *sums)
    return written


def _listed(values: Values) -> Sequence[Value]:
    return values if isinstance(values, tuple | list) else (values,)


@functools.cache
def _slot_sum(type: TapeType) -> Program:
    """(tape, number, *blocks) -> the tape with the blocks added to one slot, in place."""

    def add(tape: Value, number: Value, *blocks: Value) -> list[Value]:
        return [_plus_slot(tape, number, blocks)]

    program = _staged(add, [type, _number(type), *_with_lanes(type)], "tape_add")
    return _visit(program, frozenset())


@functools.cache
def _gathered(type: TapeType) -> Program:
    """(total, tape) -> total with every slot of the tape added, in place."""

    def test(end: Value, number: Value, total: Value) -> list[Value]:
        left = OPS["lt"](number, end)
        return [OPS["any"](left, axes=tuple(range(type_of(left).ndim)))]

    def step(tape: Value, end: Value, number: Value, total: Value) -> list[Value]:
        nowhere = full(-1, _number(type))
        place = OPS["select"](OPS["lt"](number, end), number, nowhere)
        blocks = _listed(OPS["tape_read"](tape, place))
        return [OPS["add"](number, 1), _plus_slot(total, place, blocks)]

    number = _number(type)
    test_program = _staged(test, [number, number, type], "tape_left")
    body = _staged(step, [type, number, number, type], "tape_add")

    def add(total: Value, tape: Value) -> list[Value]:
        first, end = OPS["tape_span"](tape)
        params = {"cond": test_program, "body": body, "cond_consts": 1, "body_consts": 2}
        return [OPS["while"](end, tape, end, first, total, **params)[1]]

    return _visit(_staged(add, [type, type], "tape_add"), frozenset())


@functools.cache
def _copied_sum(type: TapeType) -> Program:
    """(first, second) -> their sum, a new tape."""

    def add(first: Value, second: Value) -> list[Value]:
        gathered = {"program": _gathered(type)}
        (copy,) = OPS["call"](zeros(type), first, **gathered)
        return list(OPS["call"](copy, second, **gathered))

    return _staged(add, [type, type], "tape_add")
