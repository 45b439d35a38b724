"""while_linear: the deferred half of a differentiated while, played from its tape.

state = body(blocks of tape slot i, consts, state)   for i in 0 .. count-1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core.masks import merge, select
from fxad.core.types import Type
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.ops.base import define, differentiable, known, plus, spread, type_of, zeros
from fxad.ops.programs.captures import opened, staged, values_in
from fxad.ops.programs.control import check_operands, filled, instantiate, present
from fxad.ops.programs.scan import cut
from fxad.ops.programs.while_loop import choose, while_

if TYPE_CHECKING:
    from fxad.ir.rules import Calls, Transforms


def _linear_loop_type(
    count: Any, tape: Any, *types: Type, body: Program, consts: int, reverse: bool
) -> tuple[Type, ...]:
    own, state = cut(types, consts)
    check_operands("while_linear", body, [*tape.blocks, *own, *state])
    return tuple(state)


def _play(
    t: Calls,
    count: Any,
    tapes: list[Any],
    own: Sequence[Any],
    state: Sequence[Any],
    body: Program,
    reverse: bool,
) -> list[Any]:
    """A `while` that runs the body once for every iteration on the tapes."""

    def test(limit: Any, number: Any, *values: Any) -> list[Any]:
        return [OPS["ge"](number, 0) if reverse else OPS["lt"](number, limit)]

    def step(*values: Any) -> list[Any]:
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
    count: Any, tape: Any, *arrays: Any, body: Program, consts: int, reverse: bool
) -> tuple[Any, ...]:
    own, state = cut(arrays, consts)
    order = range(int(count))
    for number in reversed(order) if reverse else order:
        blocks = OPS["tape_read"].numpy(tape, np.asarray(number, np.int32))
        state = evaluate(body, [*blocks, *own, *state])
    return tuple(state)


class _Calls:
    """Stands for the transforms where programs are only staged and called."""

    stage = staticmethod(staged)

    @staticmethod
    def run(program: Program, args: Sequence[Any]) -> list[Any]:
        return list(OPS["call"](*args, program=program))


def _linear_loop_parts(
    count: Any, tape: Any, *arrays: Any, body: Program, consts: int, reverse: bool
) -> tuple[Any, ...]:
    own, state = cut(arrays, consts)
    return tuple(_play(_Calls, count, [tape], own, state, body, reverse))


def _linear_loop_transpose(
    t: Transforms,
    cotangents: Sequence[Any],
    args: Sequence[Any],
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> Sequence[Any]:
    count, tape = args[:2]
    own, state = cut(args[2:], consts)
    own_l, state_l = (tuple(not known(a) for a in group) for group in (own, state))
    state_types = [a.type if not known(a) else type_of(a) for a in state]
    n_lin, n_fix, n = sum(own_l), consts - sum(own_l), len(state)
    blocks = len(body.inputs) - consts - n
    linear = (*([False] * blocks), *own_l, *([True] * n))
    derived, flags = t.transpose(body, linear, (True,) * n)

    def back(*values: Any) -> list[Any]:
        read, fixed, sums, current = cut(values, blocks, n_fix, n_lin)
        results = filled(flags, t.run(derived, [*read, *fixed, *current]))
        d_own, d_state = cut(results, n_lin)
        d_own = [
            total if d is None else plus(total, d) for total, d in zip(sums, d_own, strict=True)
        ]
        return [
            *d_own,
            *(zeros(w) if d is None else d for d, w in zip(d_state, state_types, strict=True)),
        ]

    sums = [zeros(a.type) for a in select(own, own_l)]
    start = [zeros(w) if c is None else c for c, w in zip(cotangents, state_types, strict=True)]
    fixed = select(own, own_l, False)
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
    args: Sequence[Any],
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> Any:
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
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    body: Program,
    consts: int,
    reverse: bool,
) -> tuple[Sequence[Any], Sequence[Any]]:
    """A while over the tape and its tangent: it may be differentiated again."""
    count, tape = primals[:2]
    own, state = cut(primals[2:], consts)
    d_tape = tangents[1]
    d_own, d_state = cut(tangents[2:], consts)
    blocks = type_of(tape).blocks
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
    results = _play(t, count, tapes, [*own, *select(d_own, own_on)], start, both, reverse)
    return results[:n], results[n:]


def _lanes_body(
    t: Transforms, size: int, batched: Sequence[bool], body: Program, consts: int
) -> Program:
    n = len(body.inputs) - (len(batched) - 2)
    mask = (*([batched[1]] * n), *batched[2 : 2 + consts], *([True] * (len(batched) - 2 - consts)))
    return t.batch(body, size, tuple(mask), (True,) * len(body.outputs))[0]


def _play_lanes(
    t: Transforms,
    count: int,
    tape: Any,
    own: Sequence[Any],
    start: Any,
    state: Sequence[Any],
    lanes: Program,
    reverse: bool,
) -> list[Any]:
    """Every lane plays its own part of the tape; lanes that are done keep their state."""

    def alive(limit: Any, number: Any) -> Any:
        return OPS["ge"](number, 0) if reverse else OPS["lt"](number, limit)

    def test(limit: Any, number: Any, *values: Any) -> list[Any]:
        return [OPS["any"](alive(limit, number), axes=(0,))]

    def step(*values: Any) -> list[Any]:
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
    args: tuple[Any, ...], params: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
