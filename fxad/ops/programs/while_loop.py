"""while: run a body on a state while a condition on it holds.

    while(cond consts..., body consts..., carry...; cond, body, cond_consts, body_consts)
        cond(cond consts..., carry...) -> (bool,)     body(body consts..., carry...) -> carry

Its reverse mode is `fxad.ops.programs.while_linear`: residuals go to a tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.masks import Mask, merge, select
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import dce, evaluate, is_literal, used_inputs
from fxad.ir.uses import uses_of
from fxad.ops.base import Batched, define, full, nonzero, spread, type_of, zeros
from fxad.ops.programs.captures import closing
from fxad.ops.programs.control import (
    along_lanes,
    check_operands,
    filled,
    instantiate,
    present,
    settled,
    spread_new,
    subprogram_effects,
)
from fxad.ops.programs.scan import cut, hoist, names

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyTangents,
        AnyValue,
        AnyValues,
        Params,
        Record,
        Split,
        Transforms,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue


def _while_type(
    *types: Type, cond: Program, body: Program, cond_consts: int, body_consts: int
) -> tuple[Type, ...]:
    cc, bc, k = cut(types, cond_consts, body_consts)
    check_operands("while_loop condition", cond, [*cc, *k])
    check_operands("while_loop body", body, [*bc, *k])
    if list(body.out_types) != k:
        raise TypeMismatch(
            f"while_loop: the state goes in as {names(k)} and comes out as "
            f"{names(body.out_types)}; make the body return what it was given"
        )
    if cond.out_types != (ArrayType(dt.bool_, ()),):
        raise TypeMismatch(
            f"while_loop: the condition must give one bool, not {names(cond.out_types)}"
        )
    return tuple(k)


def _while_numpy(
    *arrays: NumpyValue, cond: Program, body: Program, cond_consts: int, body_consts: int
) -> tuple[NumpyValue, ...]:
    cc, bc, state = cut(arrays, cond_consts, body_consts)
    while bool(evaluate(cond, [*cc, *state])[0]):
        state = evaluate(body, [*bc, *state])
    return tuple(state)


def _while_jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
) -> WithTangents:
    cc, bc, k = cut(primals, cond_consts, body_consts)
    _, dbc, dk = cut(tangents, cond_consts, body_consts)
    const_on = present(dbc)
    derived, _, carry_on = settled(present(dk), lambda on: t.jvp(body, (*const_on, *on), on))
    n = len(body.inputs)
    pb, pk = cut(derived.inputs[:n], body_consts)
    tb, tk = cut(derived.inputs[n:], sum(const_on))
    program = Program([*pb, *tb, *pk, *tk], derived.eqns, derived.outputs, body.name)
    ignored = [Var(v.type) for v in tk]
    test = Program([*cond.inputs, *ignored], cond.eqns, cond.outputs, cond.name)
    dk = instantiate(k, dk, carry_on)
    results = while_(
        *cc,
        *bc,
        *nonzero(dbc),
        *k,
        *nonzero(dk),
        cond=test,
        body=program,
        cond_consts=cond_consts,
        body_consts=body_consts + sum(const_on),
    )
    return results[: len(k)], filled(carry_on, results[len(k) :])


def _while_split(
    t: Transforms,
    record: Record,
    unknown: tuple[bool, ...],
    args: AnyValues,
    *,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
) -> AnyValues:
    """The known half counts its iterations and writes what the rest needs to a tape; the rest is
    a `while_linear` that plays the tape."""
    if any(unknown[:cond_consts]):
        raise TypeMismatch("while_loop: the condition cannot depend on a tangent")
    _, const_un, carry_un = map(tuple, cut(unknown, cond_consts, body_consts))

    def trip(un: Mask) -> tuple[Split, Mask]:
        s = t.split(body, (*const_un, *un), un)
        return s, s.unknown

    s, _, carry_un = settled(carry_un, trip)
    cc, bc, k = cut(args, cond_consts, body_consts)
    body_known, fixed = hoist(t, s, select(bc, const_un, False))
    state = select(k, carry_un, False)
    kept = len(body_known.outputs) - s.residuals
    # What does not change from one iteration to the next is passed on, the rest goes to the tape.
    places: dict[Atom, int] = {var: i for i, var in enumerate(body_known.inputs[: len(fixed)])}
    shared = [places.get(atom) for atom in body_known.outputs[kept:]]
    moving = tuple(place is None for place in shared)
    taped = select(body_known.outputs[kept:], moving)
    body_known = Program(
        body_known.inputs, body_known.eqns, [*body_known.outputs[:kept], *taped], body.name
    )
    tape_type = TapeType(tuple([a.type for a in taped]))

    def test(*values: AnyValue) -> list[AnyValue]:
        given, _, known_state = cut(values, cond_consts, 2)
        everything = merge(carry_un, [zeros(type_of(v)) for v in select(k, carry_un)], known_state)
        return t.run(cond, [*given, *everything])

    def step(*values: AnyValue) -> list[AnyValue]:
        own, (count, tape), known_state = cut(values, len(fixed), 2)
        outs = t.run(body_known, [*own, *known_state])
        tape = OPS["tape_write"](tape, count, *outs[kept:])
        return [OPS["add"](count, 1), tape, *outs[:kept]]

    first = [full(0, ArrayType(dt.int32, ())), OPS["tape_new"](*_ties(cc, state), type=tape_type)]
    types = [type_of(v) for v in (*first, *state)]
    test_program = t.stage(test, [*map(type_of, cc), *types], cond.name)
    step_program = t.stage(step, [*map(type_of, fixed), *types], body.name)
    count, tape, *outs = while_(
        *cc,
        *fixed,
        *first,
        *state,
        cond=test_program,
        body=step_program,
        cond_consts=cond_consts,
        body_consts=len(fixed),
    )
    linear_consts = [fixed[i] for i in shared if i is not None] + select(bc, const_un)
    saved, given = cut(s.rest.inputs, s.residuals)
    inputs = [*select(saved, moving), *select(saved, moving, False), *given]
    rest = record(
        OPS["while_linear"],
        count,
        tape,
        *linear_consts,
        *select(k, carry_un),
        body=Program(inputs, s.rest.eqns, s.rest.outputs, body.name),
        consts=len(linear_consts),
        reverse=False,
    )
    return merge(carry_un, rest, outs)


def _ties(cond_operands: AnyValues, state: AnyValues) -> list[AnyValue]:
    """Values whose batching decides whether lanes need tapes of their own."""
    return [v for v in (*cond_operands, *state) if isinstance(type_of(v), ArrayType)]


def _while_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    cond: Program,
    body: Program,
    cond_consts: int,
    body_consts: int,
) -> Batched:
    cc_b, bc_b, k_b = map(tuple, cut(batched, cond_consts, body_consts))
    cc, bc, k = cut(args, cond_consts, body_consts)

    def trip(state_b: Mask) -> tuple[tuple[Program, bool, Program], Mask]:
        test, (test_b,) = t.batch(cond, size, (*cc_b, *state_b))
        force = (True,) * len(k) if test_b else state_b
        lanes, out_b = t.batch(body, size, (*bc_b, *state_b), force)
        return (test, test_b, lanes), out_b

    (test, test_b, lanes), _, carry_b = settled(k_b, trip)
    k = spread_new(k, size, k_b, carry_b)
    number = _counts_down(cond, body, cond_consts, body_consts) if test_b else None
    if number is not None:
        flags = (*bc_b, *(n != number for n in range(len(k))))
        lanes, _ = t.batch(body, size, flags, flags[body_consts:])
        return Batched(tuple(_together(t, size, number, lanes, bc, k)), carry_b)
    if test_b:
        test, lanes, bc = _masked(t, test, lanes, cc, bc, k)
    results = while_(
        *cc, *bc, *k, cond=test, body=lanes, cond_consts=cond_consts, body_consts=len(bc)
    )
    return Batched(tuple(results), carry_b)


def _masked(
    t: Transforms,
    test: Program,
    lanes: Program,
    cc: list[AnyValue],
    bc: list[AnyValue],
    k: list[AnyValue],
) -> tuple[Program, Program, list[AnyValue]]:
    """Lanes whose condition is false keep their state; the loop runs while any lane's is true."""

    def any_lane(*args: AnyValue) -> list[AnyValue]:
        return [OPS["any"](t.run(test, args)[0], axes=(0,))]

    def step(*args: AnyValue) -> list[AnyValue]:
        consts, own, state = cut(args, len(cc), len(bc))
        alive = t.run(test, [*consts, *state])[0]
        following = t.run(lanes, [*own, *state])
        return [choose(alive, new, old) for new, old in zip(following, state, strict=True)]

    types = [type_of(v) for v in (*cc, *k)]
    test_any = t.stage(any_lane, types, test.name)
    body = t.stage(step, [type_of(v) for v in (*cc, *bc, *k)], lanes.name)
    return test_any, body, [*cc, *bc]


def _counts_down(cond: Program, body: Program, first: int, second: int) -> int | None:
    """Which of the state a loop runs on while it is >= 0, each trip taking 1 off it, if any."""
    for eqn in cond.eqns:
        test = eqn.outputs[0] is cond.outputs[0] and eqn.op.name == "ge"
        if test and eqn.inputs[0] in cond.inputs[first:] and is_literal(eqn.inputs[1], 0):
            number = cond.inputs.index(eqn.inputs[0]) - first
            step = uses_of(body).maker.get(body.outputs[number])
            if step is None or step.op.name != "sub" or not is_literal(step.inputs[1], 1):
                continue
            if step.inputs[0] is body.inputs[second + number]:
                return number
    return None


def _together(
    t: Transforms, size: int, number: int, lanes: Program, bc: list[AnyValue], k: list[AnyValue]
) -> list[AnyValue]:
    """Lanes of a loop that counts down, all at the same number: each joins where its own starts.

    So every trip reads the same slot of all tapes, and what trips keep may lie in rows."""
    starts = k[number]
    others = [v for n, v in enumerate(k) if n != number]

    def test(now: AnyValue, *state: AnyValue) -> list[AnyValue]:
        return [OPS["ge"](now, 0)]

    def step(*args: AnyValue) -> list[AnyValue]:
        (first,), own, (now,), state = cut(args, 1, len(bc), 1)
        alive = OPS["le"](spread(now, size), first)
        outs = t.run(lanes, [*own, *state[:number], now, *state[number:]])
        following = zip([*outs[:number], *outs[number + 1 :]], state, strict=True)
        return [outs[number], *(choose(alive, new, old) for new, old in following)]

    top = OPS["max_reduce"](starts, axes=(0,))
    types = [type_of(v) for v in (top, *others)]
    test_program = t.stage(test, types, "any_lane_left")
    step_types = [type_of(v) for v in (starts, *bc)] + types
    _, *results = while_(
        starts,
        *bc,
        top,
        *others,
        cond=test_program,
        body=t.stage(step, step_types, lanes.name),
        cond_consts=0,
        body_consts=1 + len(bc),
    )
    ended = OPS["min"](starts, -1)
    return [*results[:number], ended, *results[number:]]


def choose(alive: AnyValue, new: AnyValue, old: AnyValue) -> AnyValue:
    if isinstance(type_of(new), TapeType):
        return new  # slots of finished lanes are never read again
    return OPS["select"](along_lanes(alive, type_of(new)), new, old)


def _while_dce(eqn: Eqn, live: tuple[bool, ...]) -> Eqn:
    """Drop the parts of the state that neither the condition nor a wanted part reads."""
    n, m = eqn.params["cond_consts"], eqn.params["body_consts"]
    cond = eqn.params["cond"]
    state_on = tuple(a or b for a, b in zip(live, used_inputs(cond)[n:], strict=True))

    def trip(on: Mask) -> tuple[tuple[Program, Mask], Mask]:
        body = dce(eqn.params["body"], on)
        used = used_inputs(body)
        return (body, used), used[m:]

    (body, used), _, state_on = settled(state_on, trip)
    if all(state_on):
        return eqn
    test = Program([*cond.inputs[:n], *select(cond.inputs[n:], state_on)], cond.eqns, cond.outputs)
    keep = (*used[:m], *state_on)
    step = Program(select(body.inputs, keep), body.eqns, body.outputs, body.name)
    params = {"cond": test, "body": step, "cond_consts": n, "body_consts": sum(used[:m])}
    inputs = (*eqn.inputs[:n], *select(eqn.inputs[n:], keep))
    return eqn.copy(inputs=inputs, params=params, outputs=tuple(select(eqn.outputs, state_on)))


def _while_close(args: tuple[AnyValue, ...], params: Params) -> tuple[tuple[AnyValue, ...], Params]:
    args, params = closing(["cond"], 0, "cond_consts")(args, params)
    return closing(["body"], params["cond_consts"], "body_consts")(args, params)


while_ = define(
    "while",
    higher=True,
    doc="Run a body on a state while a condition on it holds.",
    type=_while_type,
    numpy=_while_numpy,
    jvp=_while_jvp,
    split=_while_split,
    batch=_while_batch,
    close=_while_close,
    dce=_while_dce,
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("while"),
    dtypes="",
)
