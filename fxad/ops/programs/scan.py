"""scan: a loop over slices, holding its body as a Program.

scan(consts..., carry..., xs...; body, consts, carry, length, reverse)
    body(consts..., carry..., slices of xs...) -> (carry..., slices of ys...)
    results: (final carry..., ys...) with `length` as the leading axis of xs and ys
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.masks import Mask, merge, select
from fxad.core.types import TapeType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import dce, evaluate, used_inputs
from fxad.ir.uses import values_read
from fxad.ops.base import (
    Batched,
    define,
    known,
    known_values,
    nonzero,
    operand_type,
    plus,
    type_of,
    zeros,
)
from fxad.ops.programs.captures import closing
from fxad.ops.programs.control import (
    check_operands,
    filled,
    instantiate,
    present,
    settled,
    spread_new,
    subprogram_effects,
)
from fxad.ops.programs.tape import blank
from fxad.trace import location

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        Record,
        Split,
        Transforms,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue

T = TypeVar("T")


def _slice_type(type: Type) -> Type:
    return type.with_shape(type.shape[1:])


def cut(items: Sequence[T], *counts: int) -> list[list[T]]:
    """Consecutive groups of the given sizes and the rest."""
    groups, start = [], 0
    for count in counts:
        groups.append(list(items[start : start + count]))
        start += count
    groups.append(list(items[start:]))
    return groups


# ---------------------------------------------------------------- scan


def _scan_type(
    *types: Type, body: Program, consts: int, carry: int, length: int, reverse: bool
) -> tuple[Type, ...]:
    c, k, xs = cut(types, consts, carry)
    for x in xs:
        if not x.shape or x.shape[0] != length:
            raise ShapeError(f"scan: every xs needs a leading axis of length {length}, not {x}")
    check_operands("scan", body, [*c, *k, *map(_slice_type, xs)])
    outs = body.out_types
    if list(outs[:carry]) != k:
        raise TypeMismatch(
            f"scan: the carry goes in as {names(k)} and comes out as {names(outs[:carry])}; "
            "make the body return what it was given"
        )
    return (*outs[:carry], *(t.with_shape((length, *t.shape)) for t in outs[carry:]))


def names(types: Sequence[Type]) -> str:
    return "(" + ", ".join(map(str, types)) + ")"


def _scan_numpy(
    *arrays: NumpyValue, body: Program, consts: int, carry: int, length: int, reverse: bool
) -> tuple[NumpyValue, ...]:
    c, state, xs = cut(arrays, consts, carry)
    types = body.out_types[carry:]
    ys: list[Any] = [blank(t.with_shape((length, *t.shape))) for t in types]
    order = range(length)
    for i in reversed(order) if reverse else order:
        outs = evaluate(body, [*c, *state, *(x[i] for x in xs)])
        state = outs[:carry]
        for y, value in zip(ys, outs[carry:], strict=True):
            y[i] = value
    return (*state, *ys)


def _scan_jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> WithTangents:
    active = present(tangents)
    const_on, carry_on, xs_on = map(tuple, cut(active, consts, carry))
    derived, out_on, carry_on = settled(
        carry_on, lambda on: t.jvp(body, (*const_on, *on, *xs_on), (*on, *_off(body, carry)))
    )
    n, m = len(body.inputs), len(body.outputs)
    p_in, t_in = derived.inputs[:n], derived.inputs[n:]
    pc, pk, px = cut(p_in, consts, carry)
    tc, tk, tx = cut(t_in, sum(const_on), sum(carry_on))
    po, to = derived.outputs[:m], derived.outputs[m:]
    outs = [*po[:carry], *to[: sum(carry_on)], *po[carry:], *to[sum(carry_on) :]]
    program = Program([*pc, *tc, *pk, *tk, *px, *tx], derived.eqns, outs, body.name)
    c, k, x = cut(primals, consts, carry)
    dc, dk, dx = cut(tangents, consts, carry)
    dk = instantiate(k, dk, carry_on)
    results = scan(
        *c,
        *nonzero(dc),
        *k,
        *nonzero(dk),
        *x,
        *nonzero(dx),
        body=program,
        consts=consts + sum(const_on),
        carry=carry + sum(carry_on),
        length=length,
        reverse=reverse,
    )
    ko, tko, ys, tys = cut(results, carry, sum(carry_on), m - carry)
    tangents_out = [*filled(carry_on, tko), *filled(out_on[carry:], tys)]
    return [*ko, *ys], tangents_out


def _off(body: Program, carry: int) -> Mask:
    return (False,) * (len(body.outputs) - carry)


def _scan_split(
    t: Transforms,
    record: Record,
    unknown: tuple[bool, ...],
    args: AnyValues,
    *,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> AnyValues:
    const_un, carry_un, xs_un = map(tuple, cut(unknown, consts, carry))

    def trip(un: Mask) -> tuple[Split, Mask]:
        s = t.split(body, (*const_un, *un, *xs_un), (*un, *_off(body, carry)))
        return s, s.unknown

    s, _, carry_un = settled(carry_un, trip)
    c, k, x = cut(args, consts, carry)
    known_consts = select(c, const_un, False)
    body_known, known_consts = hoist(t, s, known_consts)
    n_const, n_carry = len(known_consts), carry - sum(carry_un)
    n_out = len(s.unknown) - sum(s.unknown)
    residuals = body_known.outputs[n_out:]
    inputs = body_known.inputs
    plan = [_residual_kind(r, inputs, n_const, n_carry) for r in residuals]
    stacked = [r for r, (kind, _) in zip(residuals, plan, strict=True) if kind == "stack"]
    program = dce(
        Program(inputs, body_known.eqns, [*body_known.outputs[:n_out], *stacked], body.name)
    )
    xs_known = select(x, xs_un, False)
    with location.paired():
        results = scan(
            *known_consts,
            *select(k, carry_un, False),
            *xs_known,
            body=program,
            consts=n_const,
            carry=n_carry,
            length=length,
            reverse=reverse,
        )
        outs, saved = list(results[:n_out]), iter(results[n_out:])
        fixed = [known_consts[number] for kind, number in plan if kind == "const"]
        slices = [
            next(saved) if kind == "stack" else xs_known[number]
            for kind, number in plan
            if kind != "const"
        ]
        of_all = [kind == "const" for kind, _ in plan]
        rest = record(
            scan,
            *fixed,
            *select(c, const_un),
            *select(k, carry_un),
            *slices,
            *select(x, xs_un),
            body=_deferred(s, of_all, sum(const_un), sum(carry_un), body.name),
            consts=len(fixed) + sum(const_un),
            carry=sum(carry_un),
            length=length,
            reverse=reverse,
        )
    return merge(s.unknown, rest, outs)


def _deferred(s: Split, of_all: Sequence[bool], consts: int, carry: int, name: str) -> Program:
    """The unknown half as a body: residuals of all trips are its constants, the others slices."""
    saved, given = cut(s.rest.inputs, s.residuals)
    c, k, x = cut(given, consts, carry)
    inputs = [*select(saved, of_all), *c, *k, *select(saved, of_all, False), *x]
    return Program(inputs, s.rest.eqns, s.rest.outputs, name)


def hoist(t: Transforms, s: Split, known_consts: list[AnyValue]) -> tuple[Program, list[AnyValue]]:
    """Compute before the loop what the known half derives from constants alone, if any of it is
    a residual, and hand it in as further constants."""
    program = s.known
    count = len(known_consts)
    varying = tuple(i >= count for i in range(len(program.inputs)))
    moving = set(select(program.inputs, varying))
    for eqn in program.eqns:
        if not moving.isdisjoint(eqn.inputs) or eqn.effects:
            moving.update(eqn.outputs)
    start = len(program.outputs) - s.residuals
    hoistable = {
        r for r in program.outputs[start:] if isinstance(r, Var) and r not in moving
    } - set(program.inputs)
    if not hoistable:
        return program, known_consts
    before = [e for e in program.eqns if moving.isdisjoint(e.outputs)]
    read = values_read(program.eqns, program.outputs)
    for eqn in before:  # leaves the loop with all of its results
        if not hoistable.isdisjoint(eqn.outputs):
            hoistable.update(v for v in eqn.outputs if v in read)
    extra = [v for e in before for v in e.outputs if v in hoistable]
    early = dce(Program(program.inputs[:count], before, extra, program.name))
    values = t.run(early, known_consts)
    inputs = [*program.inputs[:count], *extra, *program.inputs[count:]]
    kept = [e for e in program.eqns if not hoistable & set(e.outputs)]
    return Program(inputs, kept, program.outputs, program.name), [*known_consts, *values]


def _residual_kind(atom: Atom, inputs: Sequence[Var], consts: int, carry: int) -> tuple[str, int]:
    """A residual that is a constant is passed on, one that is a slice of xs is read again."""
    for i, var in enumerate(inputs):
        if var is atom:
            if i < consts:
                return "const", i
            if i >= consts + carry:
                return "slice", i - consts - carry
    return "stack", 0


def _scan_transpose(
    t: Transforms,
    cotangents: AnyCotangents,
    args: AnyOperands,
    *,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> AnyCotangents:
    linear = tuple(not known(a) for a in args)
    const_l, carry_l, xs_l = map(tuple, cut(linear, consts, carry))
    c, k, x = cut(args, consts, carry)
    # A carry that starts from a known value (a zero tangent) still carries linear values on.
    k_types = list(map(operand_type, k))
    n_lin, n_fix = sum(const_l), consts - sum(const_l)
    ct_carry = [
        zeros(type_) if ct is None else ct
        for ct, type_ in zip(cotangents[:carry], k_types, strict=True)
    ]
    ys_on = present(cotangents[carry:])
    body_linear = (*const_l, *([True] * carry), *xs_l)
    derived, flags = t.transpose(body, body_linear, (*([True] * carry), *ys_on))
    want = [*k_types, *(_slice_type(a.type) for a in x if not known(a))]

    def back(*values: AnyValue) -> list[AnyValue]:
        fixed, sums, state, ys, xs = cut(values, n_fix, n_lin, carry, sum(ys_on))
        results = filled(flags, t.run(derived, [*fixed, *xs, *state, *ys]))
        parts, rest = cut(results, n_lin)
        d_const = [s if d is None else plus(s, d) for s, d in zip(sums, parts, strict=True)]
        return [*d_const, *(zeros(w) if d is None else d for d, w in zip(rest, want, strict=True))]

    sums = [zeros(a.type) for a in c if not known(a)]
    loop = [*known_values(c), *sums, *ct_carry]
    slices = [*nonzero(cotangents[carry:]), *known_values(x)]
    types = [*map(type_of, loop), *(_slice_type(type_of(s)) for s in slices)]
    program = t.stage(back, types, body.name)
    results = scan(
        *loop,
        *slices,
        body=program,
        consts=n_fix,
        carry=n_lin + carry,
        length=length,
        reverse=not reverse,
    )
    d_const, d_carry, d_xs = cut(results, n_lin, carry)
    found = [*d_const, *select(d_carry, carry_l), *d_xs]
    return merge(linear, found, [None] * (len(args) - sum(linear)))


def _scan_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    body: Program,
    consts: int,
    carry: int,
    length: int,
    reverse: bool,
) -> Batched:
    const_b, carry_b, xs_b = map(tuple, cut(batched, consts, carry))
    was = carry_b
    lanes, out_b, carry_b = settled(
        was, lambda b: t.batch(body, size, (*const_b, *b, *xs_b), (*b, *_off(body, carry)))
    )
    c, k, x = cut(args, consts, carry)
    k = spread_new(k, size, was, carry_b)
    x = [_swap_leading(v) if b else v for v, b in zip(x, xs_b, strict=True)]
    results = scan(
        *c, *k, *x, body=lanes, consts=consts, carry=carry, length=length, reverse=reverse
    )
    ys = [_swap_leading(y) if b else y for y, b in zip(results[carry:], out_b[carry:], strict=True)]
    return Batched((*results[:carry], *ys), (*carry_b, *out_b[carry:]))


def _swap_leading(value: AnyValue) -> AnyValue:
    type_ = type_of(value)
    name = "tape_transpose" if isinstance(type_, TapeType) else "transpose"
    return OPS[name](value, permutation=(1, 0, *range(2, type_.ndim)))


def _scan_dce(eqn: Eqn, live: Mask) -> Eqn:
    """Drop ys nobody reads, carries that only feed themselves, and inputs read by neither."""
    consts, carry = eqn.params["consts"], eqn.params["carry"]
    ys_on = live[carry:]

    def trip(on: Mask) -> tuple[tuple[Program, Mask], Mask]:
        body = dce(eqn.params["body"], (*on, *ys_on))
        used = used_inputs(body)
        return (body, used), used[consts:]

    (body, used), _, carry_on = settled(live[:carry], trip)
    wanted = (*carry_on, *ys_on)
    if all(wanted):
        return eqn
    keep = (*used[:consts], *carry_on, *used[consts + carry :])
    program = Program(select(body.inputs, keep), body.eqns, body.outputs, body.name)
    params = {**eqn.params, "body": program, "consts": sum(used[:consts]), "carry": sum(carry_on)}
    outputs = tuple(select(eqn.outputs, wanted))
    return eqn.copy(inputs=tuple(select(eqn.inputs, keep)), params=params, outputs=outputs)


scan = define(
    "scan",
    higher=True,
    doc="Run a body `length` times over slices of xs, carrying state and stacking ys.",
    type=_scan_type,
    numpy=_scan_numpy,
    jvp=_scan_jvp,
    split=_scan_split,
    transpose=_scan_transpose,
    batch=_scan_batch,
    close=closing(["body"], 0, "consts"),
    dce=_scan_dce,
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("scan"),
    dtypes="",
)
