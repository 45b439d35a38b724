"""`custom_vmap`: a call whose lanes are computed by a rule of the user's.

The rule is a Symbol: rule(size, batched, *args) -> (results, which of them have lanes). Arguments
and results that have lanes have them along their first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fxad.core.masks import select
from fxad.ir.loops import Structured
from fxad.ir.program import Program, Symbol
from fxad.ops.base import Batched, define, nonzero, spread, type_of
from fxad.ops.programs.captures import opened, values_in
from fxad.ops.programs.control import call, filled, present, run_program, subprogram_effects
from fxad.ops.programs.custom import inline_transpose

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyTangents,
        AnyValue,
        AnyValues,
        Params,
        Record,
        Transforms,
        WithTangents,
    )


def _batch(
    t: Transforms,
    size: int,
    batched: Sequence[bool],
    args: AnyValues,
    *,
    program: Program,
    rule: Symbol,
) -> Batched:
    results, flags = rule.value(size, list(batched), *args)
    return Batched(tuple(results), tuple(flags))


def _jvp(
    t: Transforms, primals: AnyValues, tangents: AnyTangents, *, program: Program, rule: Symbol
) -> WithTangents:
    """The derivative, whose lanes are the derivative of the rule."""
    active = present(tangents)
    derived, out_active = t.jvp(program, active)
    symbol = Symbol(f"{rule.name}_jvp", _pushed(t, rule, len(primals), active, out_active))
    results = custom_vmap(*primals, *nonzero(tangents), program=derived, rule=symbol)
    count = len(program.outputs)
    return results[:count], filled(out_active, results[count:])


def _pushed(
    t: Transforms, rule: Symbol, count: int, active: Sequence[bool], out_active: tuple[bool, ...]
) -> Callable[..., tuple[list[AnyValue], list[bool]]]:
    """The rule of a derivative: values, then tangents of the active ones.

    The user's rule sees lanes where a value and its tangent both have them; lanes of only one of
    them are mapped over from outside, so that results do not get lanes they do not need.
    """

    def pushed(
        size: int, flags: Sequence[bool], *args: AnyValue
    ) -> tuple[list[AnyValue], list[bool]]:
        own, moved = flags[:count], iter(flags[count:])
        along = [next(moved) if a else f for a, f in zip(active, own, strict=True)]
        both = [a and b for a, b in zip(own, along, strict=True)]
        if any(both):  # then all lanes are the rule's
            both = [a or b for a, b in zip(own, along, strict=True)]
        wanted = [*both, *select(both, active)]
        values = [
            spread(v, size) if w and not f else v
            for v, w, f in zip(args, wanted, flags, strict=True)
        ]
        outer = tuple(f and not w for f, w in zip(flags, wanted, strict=True))
        types = [
            type_of(v).with_shape(type_of(v).shape[1:]) if o else type_of(v)
            for v, o in zip(values, outer, strict=True)
        ]
        inner: list[bool] = []

        def lanes(*xs: AnyValue) -> list[AnyValue]:
            results, found = rule.value(size, both, *xs)
            inner[:] = found
            return results

        program = t.stage(lanes, types[:count], rule.name)
        derived, _ = t.jvp(program, tuple(active), out_active)
        inner += select(inner, out_active)
        if not any(outer):
            return t.run(derived, values), inner
        mapped, extra = t.batch(derived, size, outer)
        return t.run(mapped, values), [a or b for a, b in zip(inner, extra, strict=True)]

    return pushed


def _split(
    t: Transforms,
    record: Record,
    unknown: tuple[bool, ...],
    args: AnyValues,
    *,
    program: Program,
    rule: Symbol,
) -> AnyValues:
    """In reverse mode the halves are plain calls: the rule says nothing about them."""
    assert call.split is not None
    return call.split(t, record, unknown, args, program=program)


def _close(args: tuple[AnyValue, ...], params: Params) -> tuple[tuple[AnyValue, ...], Params]:
    """Captured values become operands that the rule never sees."""
    values = values_in(params["program"])
    if not values:
        return args, params
    skip, rule = len(values), params["rule"]

    def shifted(size: int, batched: Sequence[bool], *operands: AnyValue) -> AnyValue:
        return rule.value(size, batched[skip:], *operands[skip:])

    program = opened(params["program"], values)
    return (*values, *args), {"program": program, "rule": Symbol(rule.name, shifted)}


custom_vmap = define(
    "custom_vmap",
    higher=True,
    doc="program(args), whose batching is rule(size, batched, *args) -> (results, batched).",
    type=lambda *types, program, rule: program.out_types,
    numpy=run_program,
    jvp=_jvp,
    split=_split,
    transpose=inline_transpose,
    batch=_batch,
    close=_close,
    effects=subprogram_effects,
    loops=lambda types, **params: Structured("call"),
    runs="program",
    dtypes="",
)
