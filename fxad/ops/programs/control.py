"""Ops that hold Programs: what they share, and call.

Branches are in `cond`, custom derivatives in `custom`, recomputation in `checkpoint`, loops in
`scan` and `while_loop`. Sub-programs are closed: what they capture is passed as operands.
Every rule takes the transforms `t` first (see `fxad.transform.context`); results are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from fxad.core.errors import TypeMismatch
from fxad.core.masks import Mask, merge, select
from fxad.core.types import Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.ops.base import (
    Batched,
    Primitive,
    define,
    known,
    known_values,
    nonzero,
    spread,
    tangent_type,
    type_of,
    zeros,
)
from fxad.ops.programs.captures import closing

if TYPE_CHECKING:
    from fxad.ir.rules import (
        AnyCotangents,
        AnyOperands,
        AnyTangents,
        AnyValue,
        AnyValues,
        Record,
        SplitRule,
        Transforms,
        WithTangents,
    )
    from fxad.ir.tape import NumpyValue
    from fxad.trace.array import Array

Result = TypeVar("Result")


def check_operands(name: str, program: Program, types: Sequence[Type]) -> None:
    """Operands must have exactly the sub-program's input types."""
    if tuple(types) != program.in_types:
        seen = ", ".join(map(str, types))
        wanted = ", ".join(map(str, program.in_types))
        raise TypeMismatch(f"{name}: its program takes ({wanted}) but was given ({seen})")


def present(values: Sequence[object]) -> Mask:
    return tuple(v is not None for v in values)


def filled(mask: Sequence[bool], values: Sequence[Result]) -> list[Result | None]:
    """`values` at the marked places, None elsewhere."""
    return merge(mask, values, [None] * (len(mask) - sum(mask)))


@overload
def instantiate(primals: AnyValues, tangents: AnyTangents) -> list[AnyValue]: ...
@overload
def instantiate(
    primals: AnyValues, tangents: AnyTangents, wanted: Sequence[bool]
) -> list[AnyValue | None]: ...
def instantiate(
    primals: AnyValues, tangents: AnyTangents, wanted: Sequence[bool] | None = None
) -> Any:
    """Tangents with zeros for the missing ones (for those of them that are wanted)."""
    wanted = (True,) * len(primals) if wanted is None else wanted
    return [
        zeros(tangent_type(type_of(p))) if t is None and on else t
        for p, t, on in zip(primals, tangents, wanted, strict=True)
    ]


def settled(
    state: Mask, trip: Callable[[Mask], tuple[Result, Sequence[bool]]]
) -> tuple[Result, Mask, Mask]:
    """The marks a loop's state has on every trip: (what `trip` made of them, what it gave, they).

    `trip(marks)` follows one trip: what it makes of the marks, and those that come out, of the
    state first. Marks that come out go in as well the next time, until there are no new ones.
    """
    while True:
        result, after = trip(state)
        grown = tuple(a or b for a, b in zip(state, after[: len(state)], strict=True))
        if grown == state:
            return result, tuple(after), state
        state = grown


def spread_new(values: AnyValues, size: int, before: Mask, now: Mask) -> list[AnyValue]:
    """Values with an axis of lanes where one is wanted now and there was none before."""
    return [
        spread(v, size) if b and not a else v for v, a, b in zip(values, before, now, strict=True)
    ]


def subprogram_effects(**params: Any) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Program):
                found |= item.effects
    return found


def along_lanes(flag: AnyValue, type: Type) -> AnyValue:
    """A flag per lane, repeated over the other axes of `type`."""
    return OPS["broadcast"](flag, shape=type.shape, axes=(0,)) if type.ndim > 1 else flag


# ---------------------------------------------------------------- call


def _call_type(*types: Type, program: Program, **params: Any) -> tuple[Type, ...]:
    check_operands("call", program, types)
    return program.out_types


def run_program(*arrays: NumpyValue, program: Program, **params: Any) -> tuple[NumpyValue, ...]:
    return tuple(evaluate(program, arrays))


def call_like(
    name: str, split: SplitRule | None = None, back: Literal["inside"] | None = None
) -> Primitive[tuple[Array, ...]]:
    """`call`, or `checkpoint`, which has its own way to be split and transposed."""

    def rebind(args: AnyValues, program: Program, params: dict[str, Any]) -> list[AnyValue]:
        return list(OPS[name](*args, program=program, **params))

    def jvp(
        t: Transforms, primals: AnyValues, tangents: AnyTangents, *, program: Program, **params: Any
    ) -> WithTangents:
        active = present(tangents)
        derived, out_active = t.jvp(program, active)
        results = rebind([*primals, *nonzero(tangents)], derived, params)
        count = len(program.outputs)
        return results[:count], filled(out_active, results[count:])

    def default_split(
        t: Transforms,
        record: Record,
        unknown: tuple[bool, ...],
        args: AnyValues,
        *,
        program: Program,
        **params: Any,
    ) -> AnyValues:
        s = t.split(program, unknown)
        given = select(args, unknown, False)
        outs = rebind(given, s.lean, params)
        count = len(s.known.outputs) - s.residuals
        made = iter(outs[count:])
        residuals = [next(made) if i is None else given[i] for i in s.inputs]
        operands = [*residuals, *select(args, unknown)]
        rest = record(OPS[name], *operands, program=s.rest, **params)
        return merge(s.unknown, rest, outs[:count])

    def transpose(
        t: Transforms,
        cotangents: AnyCotangents,
        args: AnyOperands,
        *,
        program: Program,
        **params: Any,
    ) -> AnyCotangents:
        linear = tuple(not known(a) for a in args)
        active = present(cotangents)
        derived, flags = t.transpose(program, linear, active)
        operands = [*known_values(args), *nonzero(cotangents)]
        results = rebind(operands, derived, params)
        return merge(linear, filled(flags, results), [None] * (len(args) - sum(linear)))

    def batch(
        t: Transforms,
        size: int,
        batched: Sequence[bool],
        args: AnyValues,
        *,
        program: Program,
        **params: Any,
    ) -> Batched:
        derived, flags = t.batch(program, size, tuple(batched))
        return Batched(tuple(rebind(args, derived, params)), flags)

    return define(
        name,
        higher=True,
        type=_call_type,
        numpy=run_program,
        jvp=jvp,
        split=split or default_split,
        transpose=back or transpose,
        batch=batch,
        close=closing(["program"], 0),
        effects=subprogram_effects,
        loops=lambda types, **params: Structured(name),
        runs="program",
        dtypes="",
    )


call = call_like("call")
