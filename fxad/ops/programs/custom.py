"""Ops with derivatives of their own: custom_jvp, custom_vjp, linear_call, stop_gradient.

Rules are Symbols: Python functions from flat values to flat values, called when (and only if) a
derivative is taken. A rule may call the very function it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.masks import Mask, merge, select
from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Alias, Structured
from fxad.ir.program import OPS, Program, Symbol, Var
from fxad.ir.rewrite import dce, evaluate
from fxad.ops.base import (
    Batched,
    define,
    differentiable,
    known,
    known_values,
    nonzero,
    spread,
    type_of,
    values_of,
    zeros,
)
from fxad.ops.programs.captures import closing, opened, values_in
from fxad.ops.programs.control import (
    filled,
    instantiate,
    present,
    run_program,
    subprogram_effects,
)

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        CloseRule,
        Params,
        Transforms,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue


def _lanes(t: Transforms, symbol: Symbol, size: int, batched: Sequence[bool]) -> Symbol:
    """The rule over lanes; all its results are batched. None (a zero tangent) stays None."""

    def rule(*args: AnyValue | None, **flags: Any) -> list[AnyValue | None]:
        here = present(args)
        lanes = tuple(select(batched, here))
        types = [
            type_of(a).with_shape(type_of(a).shape[1:]) if b else type_of(a)
            for a, b in zip(nonzero(args), lanes, strict=True)
        ]
        found: list[bool] = []

        def dense(*values: AnyValue) -> list[AnyValue]:
            results = symbol.value(*filled(here, values), **flags)
            found.extend(present(results))
            return select(results, found)

        program = t.stage(dense, types, symbol.name)
        derived, _ = t.batch(program, size, lanes, (True,) * len(program.outputs))
        return filled(found, t.run(derived, nonzero(args)))

    return Symbol(symbol.name, rule)


def _custom_close(*rules: str) -> CloseRule:
    """Captured values become operands that the rules never see."""

    def close(args: tuple[AnyValue, ...], params: Params) -> tuple[tuple[AnyValue, ...], Params]:
        values = values_in(params["program"])
        if not values:
            return args, params
        skip, types = len(values), [type_of(v) for v in values]

        def shifted(name: str) -> Symbol:
            rule = params[name]
            if name == "fwd":
                return Symbol(
                    rule.name,
                    lambda *a, **flags: rule.value(
                        *a[skip:], **{k: f[skip:] for k, f in flags.items()}
                    ),
                )
            if name == "bwd":
                return Symbol(rule.name, lambda *a: [*map(zeros, types), *rule.value(*a)])
            half = len(args) + skip
            return Symbol(rule.name, lambda *a: rule.value(*a[skip:half], *a[half + skip :]))

        program = opened(params["program"], values)
        symbols = {name: shifted(name) for name in rules if params.get(name) is not None}
        return (*values, *args), {**params, "program": program, **symbols}

    return close


def _custom_jvp_rule(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    program: Program,
    rule: Symbol,
    symbolic: bool = False,
) -> WithTangents:
    given = tangents if symbolic else instantiate(primals, tangents)
    results = rule.value(*primals, *given)
    count = len(program.outputs)
    return results[:count], results[count:]


def _custom_jvp_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    program: Program,
    rule: Symbol,
    **params: Any,
) -> Batched:
    everything = (True,) * len(program.outputs)
    derived, flags = t.batch(program, size, tuple(batched), everything)
    lanes_rule = _lanes(t, rule, size, [True] * 2 * len(args))

    def spread_rule(*values: AnyValue | None) -> list[AnyValue | None]:
        flags_twice = [*batched, *batched]
        return lanes_rule.value(
            *(
                v if b or v is None else spread(v, size)
                for v, b in zip(values, flags_twice, strict=True)
            )
        )

    outs = custom_jvp(*args, program=derived, rule=Symbol(rule.name, spread_rule), **params)
    return Batched(tuple(outs), flags)


def inline_transpose(
    t: Transforms, cotangents: AnyCotangents, args: AnyOperands, *, program: Program, **rules: Any
) -> AnyCotangents:
    """The transpose of the program itself. A rule may call its own function on a tangent, in which
    that function must then be linear; the rule says nothing about how to turn it around."""
    linear = tuple(not known(a) for a in args)
    active = present(cotangents)
    derived, flags = t.transpose(program, linear, active)
    found = t.run(derived, [*known_values(args), *nonzero(cotangents)])
    return merge(linear, filled(flags, found), [None] * (len(args) - sum(linear)))


custom_jvp = define(
    "custom_jvp",
    higher=True,
    doc="program(args), whose jvp is rule(args, tangents) -> (results, tangents of results). "
    "With `symbolic` the rule sees and may answer None for tangents that are zero.",
    type=lambda *types, program, rule, symbolic=False: program.out_types,
    numpy=run_program,
    jvp=_custom_jvp_rule,
    transpose=inline_transpose,
    batch=_custom_jvp_batch,
    close=_custom_close("rule"),
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    runs="program",
    dtypes="",
)


def _custom_vjp_jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    program: Program,
    fwd: Symbol,
    bwd: Symbol,
    rule: Symbol | None = None,
    symbolic: bool = False,
) -> WithTangents:
    count = len(program.outputs)
    results = fwd.value(*primals, **({"perturbed": present(tangents)} if symbolic else {}))
    outs, residuals = results[:count], results[count:]
    mask = tuple(dt.is_differentiable(type_of(p).dtype) for p in primals)
    dense = select(instantiate(primals, tangents), mask)
    fixed = list(residuals)
    unused = [type_of(f) for f in fixed]
    if rule is None:
        apply = _linearised(t, program, mask, unused)
    else:
        apply = _pushed(t, rule, count, [type_of(p) for p in primals], mask, unused)
    start, end = len(fixed), len(fixed) + len(primals)

    def back(*values: AnyValue) -> list[AnyValue]:
        return select(bwd.value(*values[:start], *values[end:]), mask)

    transpose: Program | Symbol = Symbol(bwd.name, back)
    if not symbolic:
        types = [*unused, *map(type_of, primals), *program.out_types]
        transpose = t.stage(back, types, bwd.name)
    more = {"symbolic": True} if symbolic else {}
    tangents_out = linear_call(
        *fixed, *primals, *dense, count=end, apply=apply, transpose=transpose, **more
    )
    return outs, list(tangents_out)


def _linearised(t: Transforms, program: Program, mask: Mask, unused: Sequence[Type]) -> Program:
    """(unused, primals, tangents) -> tangents of all results, from the primal program."""
    derived, _ = t.jvp(program, mask, (True,) * len(program.outputs))
    outs = derived.outputs[len(program.outputs) :]
    inputs = [*(Var(u) for u in unused), *derived.inputs]
    return dce(Program(inputs, derived.eqns, outs, program.name))


def _pushed(
    t: Transforms,
    rule: Symbol,
    count: int,
    types: Sequence[Type],
    mask: Mask,
    unused: Sequence[Type],
) -> Program:
    """(unused, primals, tangents) -> tangents of all results, by the function's own jvp rule."""
    n = len(types)

    def tangents(*values: AnyValue) -> list[AnyValue]:
        given = filled(mask, values[n:])
        return rule.value(*values[:n], *instantiate(values[:n], given))[count:]

    staged = t.stage(tangents, [*types, *select(types, mask)], rule.name)
    inputs = [*(Var(u) for u in unused), *staged.inputs]
    return Program(inputs, staged.eqns, staged.outputs, rule.name)


def _total(lanes: AnyValue) -> AnyValue:
    """The sum of all lanes' cotangents; zeros where the operand has none."""
    type_ = type_of(lanes)
    if differentiable(type_):
        return OPS["sum"](lanes, axes=(0,))
    assert isinstance(type_, ArrayType)
    return zeros(type_.with_shape(type_.shape[1:]))


def _custom_vjp_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    program: Program,
    fwd: Symbol,
    bwd: Symbol,
    rule: Symbol | None = None,
    symbolic: bool = False,
) -> Batched:
    count = len(program.outputs)
    derived, flags = t.batch(program, size, tuple(batched), (True,) * count)
    lanes_fwd = _lanes(t, fwd, size, batched)

    def lanes_bwd(*values: AnyValue) -> list[AnyValue]:
        outs = _lanes(t, bwd, size, [True] * len(values)).value(*values)
        return [o if b else _total(o) for o, b in zip(outs, batched, strict=True)]

    more: dict[str, Any] = {"symbolic": True} if symbolic else {}
    if rule is not None:
        more["rule"] = _lanes(t, rule, size, [*batched, *batched])
    outs = custom_vjp(
        *args, program=derived, fwd=lanes_fwd, bwd=Symbol(bwd.name, lanes_bwd), **more
    )
    return Batched(tuple(outs), flags)


custom_vjp = define(
    "custom_vjp",
    higher=True,
    doc="program(args); reverse mode uses fwd(args) -> (results, residuals) and "
    "bwd(residuals, cotangents) -> cotangents of args, forward mode rule(args, tangents) if given. "
    "With `symbolic` fwd is told which args are `perturbed`.",
    type=lambda *types, program, fwd, bwd, rule=None, symbolic=False: program.out_types,
    numpy=run_program,
    jvp=_custom_vjp_jvp,
    transpose=inline_transpose,
    batch=_custom_vjp_batch,
    close=_custom_close("fwd", "bwd", "rule"),
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    runs="program",
    dtypes="",
)


def _linear_type(
    *types: Type,
    count: int,
    apply: Program | Symbol,
    transpose: Program | Symbol,
    outs: tuple[Type, ...] | None = None,
    **params: Any,
) -> tuple[Type, ...]:
    if outs is not None:
        return outs
    assert isinstance(apply, Program)  # of a function they are given
    return apply.out_types


def _linear_numpy(
    *arrays: NumpyValue,
    count: int,
    apply: Program | Symbol,
    transpose: Program | Symbol,
    **params: Any,
) -> tuple[NumpyValue, ...]:
    if isinstance(apply, Symbol):
        return tuple(np.asarray(r) for r in apply.value(*arrays))
    return tuple(evaluate(apply, arrays))


def _as_program(t: Transforms, rule: Program | Symbol, types: Sequence[Type]) -> Program:
    """A rule given outside jit is a Python function; transforming it takes its Program."""
    return t.stage(rule.value, types, rule.name) if isinstance(rule, Symbol) else rule


def _linear_jvp(
    t: Transforms,
    primals: AnyValues,
    tangents: AnyTangents,
    *,
    apply: Program | Symbol,
    count: int,
    **params: Any,
) -> WithTangents:
    if not any(present(tangents[:count])):  # the given transpose stays in force
        given = instantiate(primals[count:], tangents[count:])
        both = [
            linear_call(*primals[:count], *x, apply=apply, count=count, **params)
            for x in (primals[count:], given)
        ]
        return list(both[0]), list(both[1])
    apply = _as_program(t, apply, list(map(type_of, primals)))
    derived, out_active = t.jvp(apply, present(tangents))
    results = t.run(derived, [*primals, *nonzero(tangents)])
    n = len(apply.outputs)
    return results[:n], filled(out_active, results[n:])


def _linear_transpose(
    t: Transforms,
    cotangents: AnyCotangents,
    args: AnyOperands,
    *,
    count: int,
    apply: Program | Symbol,
    transpose: Program | Symbol,
    outs: tuple[Type, ...] | None = None,
    symbolic: bool = False,
) -> AnyCotangents:
    types = outs
    if types is None:
        assert isinstance(apply, Program)  # of a function they are given
        types = apply.out_types
    if not symbolic:
        cotangents = [
            zeros(type_) if c is None else c for c, type_ in zip(cotangents, types, strict=True)
        ]
    operands = [*values_of(args[:count]), *cotangents]
    if isinstance(transpose, Symbol):
        results = list(transpose.value(*operands))
    else:
        results = t.run(transpose, nonzero(operands))  # all: it is not symbolic
    return [None] * count + results


def _linear_batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    count: int,
    apply: Program | Symbol,
    transpose: Program | Symbol,
    **params: Any,
) -> Batched:
    types = [
        type_of(a).with_shape(type_of(a).shape[1:]) if b else type_of(a)
        for a, b in zip(args, batched, strict=True)
    ]
    staged = isinstance(apply, Program)
    apply = _as_program(t, apply, types)
    tangents = [
        a if b else spread(a, size) for a, b in zip(args[count:], batched[count:], strict=True)
    ]
    fixed = tuple(batched[:count])
    all_outs = (True,) * len(apply.outputs)
    lanes, flags = t.batch(apply, size, fixed + (True,) * len(tangents), all_outs)
    back: Program | Symbol
    if staged and isinstance(transpose, Symbol):  # it may hold a linear_call transposed by this
        back = _lanes(t, transpose, size, fixed + all_outs)
    else:
        transpose = _as_program(t, transpose, [*types[:count], *apply.out_types])
        back, _ = t.batch(transpose, size, fixed + all_outs, (True,) * len(tangents))
    results = linear_call(*args[:count], *tangents, count=count, apply=lanes, transpose=back)
    return Batched(tuple(results), flags)


def _linear_close(
    args: tuple[AnyValue, ...], params: Params
) -> tuple[tuple[AnyValue, ...], Params]:
    rule = params["transpose"]
    if isinstance(params["apply"], Symbol):
        return args, params
    if not isinstance(rule, Symbol):
        return closing(["apply", "transpose"], 0, "count")(args, params)
    closed, changed = closing(["apply"], 0, "count")(args, params)
    extra = len(closed) - len(args)
    if extra:
        changed["transpose"] = Symbol(rule.name, lambda *a: rule.value(*a[extra:]))
    return closed, changed


linear_call = define(
    "linear_call",
    higher=True,
    doc="apply(fixed, x), linear in x, with a given transpose(fixed, cotangents). The first "
    "`count` operands are fixed. apply and transpose are Programs, or Symbols outside jit, which "
    "then give the result types as `outs`. With `symbolic` transpose is a Symbol, given None for "
    "cotangents that are zero.",
    type=_linear_type,
    numpy=_linear_numpy,
    jvp=_linear_jvp,
    transpose=_linear_transpose,
    batch=_linear_batch,
    close=_linear_close,
    loops=lambda types, **params: Structured("linear_call"),
    runs="apply",
    dtypes="",
)


stop_gradient = define(
    "stop_gradient",
    doc="The value itself; its derivative is zero.",
    type=lambda x: x,
    numpy=lambda x: x,
    batch=lambda size, batched, args: stop_gradient(args[0]),
    loops=lambda types: Alias(),
    exact=True,
    dtypes="",
)
