"""Vectorisation: `batch(p, size, batched)` works on a leading axis of the marked inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxad.core.errors import TypeMismatch, at
from fxad.core.masks import Mask
from fxad.core.types import ArrayType, Type
from fxad.ir.program import Atom, Eqn, Program
from fxad.ops.base import Batched, spread
from fxad.ops.programs.captures import staged
from fxad.trace import location
from fxad.trace.tracer import bind
from fxad.transform.checkify import checks_after
from fxad.transform.context import Environment, cached, transforms

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues


@cached
def batch(
    program: Program, size: int, batched: Mask, force: Mask | None = None
) -> tuple[Program, Mask]:
    """The Program over `size` lanes and which outputs are batched (at axis 0).

    `force` marks outputs that must be batched.
    """
    types = [
        _with_lanes(t, size) if b else t for t, b in zip(program.in_types, batched, strict=True)
    ]
    flags: list[bool] = []

    def lanes(*args: AnyValue) -> AnyValues:
        outs, out_batched = batch_eval(program, size, batched, args)
        for i, out in enumerate(outs):
            if force is not None and force[i] and not out_batched[i]:
                outs[i], out_batched[i] = spread(out, size), True
        flags.extend(out_batched)
        return outs

    result = staged(lanes, types, program.name)
    return result, tuple(flags)


def _with_lanes(type: Type, size: int) -> Type:
    if isinstance(type, ArrayType):
        return ArrayType(type.dtype, (size, *type.shape))
    return type.with_lanes(size)


def batch_eval(
    program: Program, size: int, batched: Sequence[bool], args: AnyValues
) -> tuple[list[AnyValue], list[bool]]:
    """Bind a Program's equations over lanes in the current context."""
    env: Environment[AnyValue] = Environment(program, args)
    variables = (*program.consts, *program.inputs)
    flags: dict[Atom, bool] = dict(zip(variables, batched, strict=True))
    before, phase, pair = location.follow(""), location.phase(), location.pair()
    try:
        for eqn in program.eqns:
            location.follow(eqn.where)
            location.enter(eqn.tag or phase)
            location.enter_pair(eqn.pair)
            mask = tuple(flags.get(a, False) for a in eqn.inputs)
            results, out = _step(eqn, size, mask, [env.read(a) for a in eqn.inputs])
            env.write(eqn.outputs, results)
            flags.update(zip(eqn.outputs, out, strict=True))
    finally:
        location.restore(before)
        location.enter(phase)
        location.enter_pair(pair)
    outs = [env.read(a) for a in program.outputs]
    return outs, [flags.get(a, False) for a in program.outputs]


def _step(eqn: Eqn, size: int, mask: Mask, args: AnyValues) -> tuple[Any, Sequence[bool]]:
    op = eqn.op
    count = len(eqn.outputs)
    if not any(mask):
        return bind(op, *args, **eqn.params), [False] * count
    if op.name == "while" and "check" in eqn.effects:
        # Lanes whose loop has ended run on with the others: checks of theirs do not count, as the
        # state does not that they would be part of.
        outs, flags = batch_eval(checks_after(eqn), size, mask, args)
        return tuple(outs), flags
    if op.batch is None:
        raise TypeMismatch(f"{op.name} has no batching rule{at(eqn.where)}")
    if op.higher:
        results = op.batch(transforms(), size, mask, args, **eqn.params)
    else:
        results = op.batch(size, mask, args, **eqn.params)
    if isinstance(results, Batched):
        return results.values, results.flags
    return results, [True] * count
