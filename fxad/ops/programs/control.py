"""Ops that hold Programs: what they share, and call.

Branches are in `cond`, custom derivatives in `custom`, recomputation in `checkpoint`, loops in
`scan` and `while_loop`. Sub-programs are closed: what they capture is passed as operands.
Every rule takes the transforms `t` first (see `fxad.transform.context`); results are tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fxad.core.errors import TypeMismatch
from fxad.core.masks import Mask, merge, select
from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Structured
from fxad.ir.program import OPS, Program
from fxad.ir.rewrite import evaluate
from fxad.ops.base import Batched, Primitive, define, known, spread, tangent_type, type_of, zeros
from fxad.ops.programs.captures import closing

if TYPE_CHECKING:
    from fxad.ir.rules import Transforms

Result = TypeVar("Result")


def check_operands(name: str, program: Program, types: Sequence[ArrayType]) -> None:
    """Operands must have exactly the sub-program's input types."""
    if tuple(types) != program.in_types:
        seen = ", ".join(map(str, types))
        wanted = ", ".join(map(str, program.in_types))
        raise TypeMismatch(f"{name}: its program takes ({wanted}) but was given ({seen})")


def present(values: Sequence[Any]) -> Mask:
    return tuple(v is not None for v in values)


def filled(mask: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    """`values` at the marked places, None elsewhere."""
    return merge(mask, values, [None] * (len(mask) - sum(mask)))


def instantiate(
    primals: Sequence[Any], tangents: Sequence[Any], wanted: Sequence[bool] | None = None
) -> list[Any]:
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


def spread_new(values: Sequence[Any], size: int, before: Mask, now: Mask) -> list[Any]:
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


def along_lanes(flag: Any, type: ArrayType) -> Any:
    """A flag per lane, repeated over the other axes of `type`."""
    return OPS["broadcast"](flag, shape=type.shape, axes=(0,)) if type.ndim > 1 else flag


# ---------------------------------------------------------------- call


def _call_type(*types: ArrayType, program: Program, **params: Any) -> tuple[Type, ...]:
    check_operands("call", program, types)
    return program.out_types


def run_program(*arrays: np.ndarray, program: Program, **params: Any) -> tuple[Any, ...]:
    return tuple(evaluate(program, arrays))


def call_like(name: str, split: Any = None, back: Any = None) -> Primitive:
    """`call`, or `checkpoint`, which has its own way to be split and transposed."""

    def rebind(args: Sequence[Any], program: Program, params: dict[str, Any]) -> list[Any]:
        return list(OPS[name](*args, program=program, **params))

    def jvp(
        t: Transforms,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        **params: Any,
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        active = present(tangents)
        derived, out_active = t.jvp(program, active)
        results = rebind([*primals, *select(tangents, active)], derived, params)
        count = len(program.outputs)
        return results[:count], filled(out_active, results[count:])

    def default_split(
        t: Transforms,
        record: Callable[..., Any],
        unknown: tuple[bool, ...],
        args: Sequence[Any],
        *,
        program: Program,
        **params: Any,
    ) -> Sequence[Any]:
        s = t.split(program, unknown)
        outs = rebind(select(args, unknown, False), s.known, params)
        count = len(outs) - s.residuals
        operands = [*outs[count:], *select(args, unknown)]
        rest = record(OPS[name], *operands, program=s.rest, **params)
        return merge(s.unknown, rest, outs[:count])

    def transpose(
        t: Transforms,
        cotangents: Sequence[Any],
        args: Sequence[Any],
        *,
        program: Program,
        **params: Any,
    ) -> Sequence[Any]:
        linear = tuple(not known(a) for a in args)
        active = present(cotangents)
        derived, flags = t.transpose(program, linear, active)
        operands = [*select(args, linear, False), *select(cotangents, active)]
        results = rebind(operands, derived, params)
        return merge(linear, filled(flags, results), [None] * (len(args) - sum(linear)))

    def batch(
        t: Transforms,
        size: int,
        batched: Sequence[bool],
        args: Sequence[Any],
        *,
        program: Program,
        **params: Any,
    ) -> Any:
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
        dtypes="",
    )


call = call_like("call")
