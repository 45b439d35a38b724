"""What the transforms share: walking a Program by binding its equations, caching by identity.

`Transforms` is the object `t` that rules of ops with sub-programs receive; it lets `fxad.ops`
use the transforms without importing them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType
from fxad.ir.program import Atom, Lit, Program, Var
from fxad.ir.rewrite import last_uses
from fxad.ops import base
from fxad.trace import location
from fxad.trace.tracer import bind, type_of

Mask = tuple[bool, ...]
R = TypeVar("R")
T = TypeVar("T")


@valued
class Split:
    """known(known inputs) -> known outputs + residuals; rest(residuals + unknown inputs) ->
    unknown outputs. `unknown` says which of the original outputs `rest` computes."""

    known: Program
    rest: Program
    unknown: Mask
    residuals: int


def cached(transform: Callable[..., R]) -> Callable[..., R]:
    """Remember a transform's answers for as long as the Program it was given lives."""
    memo: weakref.WeakKeyDictionary[Program, dict[tuple, R]] = weakref.WeakKeyDictionary()

    @functools.wraps(transform)
    def wrapper(program: Program, *rest: Any) -> R:
        answers = memo.setdefault(program, {})
        if rest not in answers:
            answers[rest] = transform(program, *rest)
        return answers[rest]

    return wrapper


class Environment:
    """Values of a Program's atoms while it is walked."""

    def __init__(self, program: Program, args: Sequence[Any]) -> None:
        variables = (*program.consts, *program.inputs)
        self.values: dict[Atom, Any] = dict(zip(variables, args, strict=True))

    def read(self, atom: Atom) -> Any:
        return self.values[atom] if isinstance(atom, Var) else atom

    def write(self, variables: Sequence[Var], results: Any) -> None:
        if not isinstance(results, tuple | list):
            results = (results,)
        self.values.update(zip(variables, results, strict=True))


def run(program: Program, args: Sequence[Any]) -> list[Any]:
    """Bind every equation of a Program (consts first in `args`) in the current context."""
    env = Environment(program, args)
    values, last = env.values, last_uses(program)
    before, phase = location.follow(""), location.phase()
    try:
        for eqn in program.eqns:
            location.follow(eqn.where)
            location.enter(eqn.tag or phase)
            operands = [a if type(a) is Lit else values[a] for a in eqn.inputs]
            env.write(eqn.outputs, bind(eqn.op, *operands, **eqn.params))
            for var in last.get(eqn, ()):
                del values[var]
    finally:
        location.restore(before)
        location.enter(phase)
    return [env.read(a) for a in program.outputs]


def differentiable(value: Any) -> bool:
    """Whether a value (or type) can carry a tangent."""
    is_type = isinstance(value, ArrayType | TapeType)
    return base.differentiable(value if is_type else type_of(value))


def select(items: Sequence[T], mask: Sequence[bool], wanted: bool = True) -> list[T]:
    """The items whose mask entry equals `wanted`."""
    return [item for item, m in zip(items, mask, strict=True) if m is wanted]


def merge(mask: Sequence[bool], if_true: Sequence[Any], if_false: Sequence[Any]) -> list[Any]:
    """The inverse of selecting by a mask and by its opposite."""
    yes, no = iter(if_true), iter(if_false)
    return [next(yes) if m else next(no) for m in mask]
