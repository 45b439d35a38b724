"""while_linear: the deferred half of a differentiated while, played from its tape.

state = body(blocks of tape slot i, consts, state)   for i in 0 .. count-1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.masks import merge, select
from fxad.core.types import ArrayType, TapeType, Type, tape_type
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.ops.base import (
    define,
    differentiable,
    known,
    known_values,
    nonzero,
    operand_type,
    plus,
    spread,
    type_of,
    values_of,
    zeros,
)
from fxad.ops.programs.captures import opened, staged, values_in
from fxad.ops.programs.control import check_operands, filled, instantiate, present
from fxad.ops.programs.scan import cut
from fxad.ops.programs.while_loop import choose, while_

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        Calls,
        Params,
        Transforms,
        Value,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue, TapeValue


def _linear_loop_type(
    count: ArrayType, tape: TapeType, *types: Type, body: Program, consts: int, reverse: bool
) -> tuple[Type, ...]:
    own, state = cut(types, consts)
    check_operands("while_linear", body, [*tape.blocks, *own, *state])
    return tuple(state)


def _play(
    t: Calls,
    count: AnyValue,
    tapes: Sequence[AnyValue],
    own: AnyValues,
    state: AnyValues,
    body: Program,
    reverse: bool,
) -> list[AnyValue]:
    """A `while` that runs the body once for every iteration on the tapes."""

    def test(limit: AnyValue, number: AnyValue, *values: AnyValue) -> list[AnyValue]:
        return [OPS["ge"](number, 0) if reverse else OPS["lt"](number, limit)]

    def step(*values: AnyValue) -> list[AnyValue]:
        played, fixed, (number,), current = cut(values, len(tapes), len(own), 1)
        blocks = [block for tape in played for block in OPS["tape_read"](tape, number)]
        outs = t.run(body, [*blocks, *fixed, *current])
        return [OPS["sub"](number, 1) if reverse else OPS["add"](number, 1), *outs]

    start = OPS["sub"](count, 1) if reverse else OPS["mul"](count, 0)
    types = [type_of(v) for v in (start, *state)]
    test_program = t.stage(test, [type_of(count), *types], "tape_left")
    step_program = t.stage(step, [*map(type_of, (*tapes, *own)), *types], body.name)
    results = while_(
        count,
        *tapes,
        *own,
        start,
        *state,
        cond=test_program,
        body=step_program,
        cond_consts=1,
        body_consts=len(tapes) + len(own),
    )
    return list(results[1:])


def _linear_loop_numpy(
    count: np.ndarray,
    tape: TapeValue,
    *arrays: NumpyValue,
    body: Program,
    consts: int,
    reverse: bool,
) -> tuple[NumpyValue, ...]:
    own, state = cut(arrays, consts)
    order = range(int(count))
    for number in reversed(order) if reverse else order:
        blocks: Any = OPS["tape_read"].numpy(tape, np.asarray(number, np.int32))
        state = evaluate(body, [*blocks, *own, *state])
    return tuple(state)


class _Calls:
    """Stands for the transforms where programs are only staged and called."""

    stage = staticmethod(staged)

    @staticmethod
    def run(program: Program, args: AnyValues) -> list[AnyValue]:
        return list(OPS["call"](*args, program=program))


def _linear_loop_parts(
    count: AnyValue, tape: AnyValue, *arrays: AnyValue, body: Program, consts: int, reverse: bool
) -> tuple[AnyValue, ...]:
    own, state = cut(arrays, consts)
    return tuple(_play(_Calls, count, [tape], own, state, body, reverse))


def _linear_loop_transpose(
    t: Transforms,
    cotangents: AnyCotangents,
    args: AnyOperands,
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> AnyCotangents:
    count, tape = values_of(args[:2])
    own, state = cut(args[2:], consts)
    own_l, state_l = (tuple(not known(a) for a in group) for group in (own, state))
    state_types = list(map(operand_type, state))
    n_lin, n_fix, n = sum(own_l), consts - sum(own_l), len(state)
    blocks = len(body.inputs) - consts - n
    linear = (*([False] * blocks), *own_l, *([True] * n))
    derived, flags = t.transpose(body, linear, (True,) * n)

    def back(*values: AnyValue) -> list[AnyValue]:
        read, fixed, sums, current = cut(values, blocks, n_fix, n_lin)
        results = filled(flags, t.run(derived, [*read, *fixed, *current]))
        parts, d_state = cut(results, n_lin)
        d_own = [
            total if d is None else plus(total, d) for total, d in zip(sums, parts, strict=True)
        ]
        return [
            *d_own,
            *(zeros(w) if d is None else d for d, w in zip(d_state, state_types, strict=True)),
        ]

    sums = [zeros(a.type) for a in own if not known(a)]
    start = [zeros(w) if c is None else c for c, w in zip(cotangents, state_types, strict=True)]
    fixed = known_values(own)
    types = [*body.in_types[:blocks], *map(type_of, (*fixed, *sums, *start))]
    program = t.stage(back, types, body.name)
    found = _play(t, count, [tape], fixed, [*sums, *start], program, not reverse)
    d_own, d_state = cut(found, n_lin)
    found = [*d_own, *select(d_state, state_l)]
    mask = (*own_l, *state_l)
    return [None, None, *merge(mask, found, [None] * (len(mask) - sum(mask)))]


def _linear_loop_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> AnyValues:
    count, tape = args[:2]
    if batched[1] and not batched[0]:
        count = spread(count, size)
    own, state = cut(args[2:], consts)
    lanes = _lanes_body(t, size, batched, body, consts)
    if not batched[1]:
        state = [
            s if b else spread(s, size) for s, b in zip(state, batched[2 + consts :], strict=True)
        ]
        own = list(own)
        return while_linear(count, tape, *own, *state, body=lanes, consts=consts, reverse=reverse)
    start = OPS["sub"](count, 1) if reverse else OPS["mul"](count, 0)
    state = [s if b else spread(s, size) for s, b in zip(state, batched[2 + consts :], strict=True)]
    return _play_lanes(t, count, tape, own, start, state, lanes, reverse)


def _linear_loop_jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> WithTangents:
    """A while over the tape and its tangent: it may be differentiated again."""
    count, tape = primals[:2]
    own, state = cut(primals[2:], consts)
    d_tape = tangents[1]
    d_own, d_state = cut(tangents[2:], consts)
    blocks = tape_type(type_of(tape)).blocks
    block_on = tuple(d_tape is not None and differentiable(b) for b in blocks)
    own_on, state_on = present(d_own), (True,) * len(state)
    derived, _ = t.jvp(body, (*block_on, *own_on, *state_on), state_on)
    n = len(state)
    read, fixed, now, d_read, d_fixed, d_now = cut(
        derived.inputs, len(blocks), consts, n, sum(block_on), sum(own_on)
    )
    inputs = [*read, *d_read, *fixed, *d_fixed, *now, *d_now]
    both = Program(inputs, derived.eqns, derived.outputs, body.name)
    tapes = [tape] if d_tape is None else [tape, d_tape]
    start = [*state, *instantiate(state, d_state)]
    results = _play(t, count, tapes, [*own, *nonzero(d_own)], start, both, reverse)
    return results[:n], results[n:]


def _lanes_body(
    t: Transforms, size: int, batched: Sequence[bool], body: Program, consts: int
) -> Program:
    n = len(body.inputs) - (len(batched) - 2)
    mask = (*([batched[1]] * n), *batched[2 : 2 + consts], *([True] * (len(batched) - 2 - consts)))
    return t.batch(body, size, tuple(mask), (True,) * len(body.outputs))[0]


def _play_lanes(
    t: Transforms,
    count: AnyValue,
    tape: AnyValue,
    own: AnyValues,
    start: AnyValue,
    state: AnyValues,
    lanes: Program,
    reverse: bool,
) -> list[AnyValue]:
    """Every lane plays its own part of the tape; lanes that are done keep their state."""

    def alive(limit: AnyValue, number: AnyValue) -> Value:
        return OPS["ge"](number, 0) if reverse else OPS["lt"](number, limit)

    def test(limit: AnyValue, number: AnyValue, *values: AnyValue) -> list[AnyValue]:
        return [OPS["any"](alive(limit, number), axes=(0,))]

    def step(*values: AnyValue) -> list[AnyValue]:
        (limit, played), fixed, (number,), current = cut(values, 2, len(own), 1)
        running = alive(limit, number)
        blocks = OPS["tape_read"](played, number)
        outs = t.run(lanes, [*blocks, *fixed, *current])
        moved = OPS["sub"](number, 1) if reverse else OPS["add"](number, 1)
        return [
            choose(running, n, o) for n, o in zip([moved, *outs], [number, *current], strict=True)
        ]

    types = [type_of(v) for v in (start, *state)]
    test_program = t.stage(test, [type_of(count), *types], "tape_left")
    step_types = [type_of(count), type_of(tape), *map(type_of, own), *types]
    step_program = t.stage(step, step_types, lanes.name)
    results = while_(
        count,
        count,
        tape,
        *own,
        start,
        *state,
        cond=test_program,
        body=step_program,
        cond_consts=1,
        body_consts=2 + len(own),
    )
    return list(results[1:])


def _linear_loop_close(
    args: tuple[AnyValue, ...], params: Params
) -> tuple[tuple[AnyValue, ...], Params]:
    body = params["body"]
    values = values_in(body)
    if not values:
        return args, params
    blocks = len(body.inputs) - (len(args) - 2)
    changed = {"body": opened(body, values, blocks), "consts": params["consts"] + len(values)}
    return (*args[:2], *values, *args[2:]), {**params, **changed}


while_linear = define(
    "while_linear",
    higher=True,
    doc="state = body(blocks of tape slot i, consts, state) for i in 0 .. count-1, linear in "
    "consts and state: the deferred half of a differentiated while.",
    type=_linear_loop_type,
    numpy=_linear_loop_numpy,
    jvp=_linear_loop_jvp,
    transpose=_linear_loop_transpose,
    batch=_linear_loop_batch,
    close=_linear_loop_close,
    decompose=_linear_loop_parts,
    dtypes="",
)
