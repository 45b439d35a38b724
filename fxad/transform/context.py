"""What the transforms share: walking a Program by binding its equations, caching by identity.

`transforms()` is the object `t` that rules of ops with sub-programs receive; it lets `fxad.ops`
use the transforms without importing them. The transforms call those rules, so they have it from
here: `fxad.transform.rules`, which imports them all, makes it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fxad.core.masks import Mask
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import last_uses
from fxad.ops import base
from fxad.trace import location
from fxad.trace.tracer import StagedTracer, Staging, bind, recorder, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, AnyValues, Transforms

R = TypeVar("R")
V = TypeVar("V")
_transforms: Transforms | None = None


def hand_to_rules(transforms: Transforms) -> None:
    """Let rules of ops with sub-programs receive these (done once, by `fxad.transform.rules`)."""
    global _transforms
    _transforms = transforms


def transforms() -> Transforms:
    """What rules of ops with sub-programs receive."""
    assert _transforms is not None, "fxad.transform.rules is to be imported first"
    return _transforms


@valued
class Split:
    """known(known inputs) -> known outputs + residuals; rest(residuals + unknown inputs) ->
    unknown outputs. `unknown` says which of the original outputs `rest` computes.

    Some residuals are inputs of `known` (the weights of a product). A caller that holds the inputs
    can run `lean`, which leaves them out; `inputs` says for each residual which input it is, or
    None."""

    known: Program
    rest: Program
    unknown: Mask
    residuals: int
    lean: Program
    inputs: tuple[int | None, ...]


def cached(transform: Callable[..., R]) -> Callable[..., R]:
    """Remember a transform's answers for as long as the Program it was given lives."""
    memo: weakref.WeakKeyDictionary[Program, dict[tuple[object, ...], R]] = (
        weakref.WeakKeyDictionary()
    )

    @functools.wraps(transform)
    def wrapper(program: Program, *rest: Any) -> R:
        answers = memo.setdefault(program, {})
        if rest not in answers:
            answers[rest] = transform(program, *rest)
        return answers[rest]

    return wrapper


def keep_labels(made: Sequence[Var], given: Sequence[Atom]) -> None:
    """Have inputs of a derived Program, or the first of them, go by the names of those they stand
    for."""
    for var, atom in zip(made, given, strict=False):
        if isinstance(atom, Var) and atom.label:
            var.label = atom.label


class Environment(Generic[V]):
    """Values (or tangents) of a Program's atoms while it is walked."""

    def __init__(self, program: Program, args: Sequence[V]) -> None:
        variables = (*program.consts, *program.inputs)
        self.values: dict[Atom, V] = dict(zip(variables, args, strict=True))

    def read(self, atom: Atom) -> V | Lit:
        return self.values[atom] if isinstance(atom, Var) else atom

    def write(self, variables: Sequence[Var], results: Any) -> None:
        """The results of an equation: several, or the only one by itself."""
        if type(results) is tuple or type(results) is list:
            self.values.update(zip(variables, results, strict=True))
        else:
            (variable,) = variables
            self.values[variable] = results


def run(program: Program, args: AnyValues) -> list[AnyValue]:
    """Bind every equation of a Program (consts first in `args`) in the current context."""
    level = recorder()
    if level is not None and _fit(program, args):
        return _Copy(level, program, args).outputs()
    env: Environment[AnyValue] = Environment(program, args)
    values, last = env.values, last_uses(program)
    before, phase, pair = location.follow(""), location.phase(), location.pair()
    try:
        for eqn in program.eqns:
            location.follow(eqn.where)
            location.enter(eqn.tag or phase)
            location.enter_pair(eqn.pair)
            operands = [a if type(a) is Lit else values[a] for a in eqn.inputs]
            env.write(eqn.outputs, bind(eqn.op, *operands, **eqn.params))
            for var in last.get(eqn, ()):
                del values[var]
    finally:
        location.restore(before)
        location.enter(phase)
        location.enter_pair(pair)
    return [env.read(a) for a in program.outputs]


def _fit(program: Program, args: AnyValues) -> bool:
    """Whether the arguments have the types that the program was made for."""
    variables = (*program.consts, *program.inputs)
    return all(type_of(a) == v.type for a, v in zip(args, variables, strict=True))


class _Copy:
    """What binding a Program's equations records where there is one level to record them: the
    same equations between other variables. Nothing is typed again.

    env: values of arguments and of what was bound after all. atoms: of what the level has met, in
    the order in which binding would have met it.
    """

    def __init__(self, level: Staging, program: Program, args: AnyValues) -> None:
        self.level = level
        self.program = program
        self.env: Environment[AnyValue] = Environment(program, args)
        self.atoms: dict[Atom, Atom] = {}
        self.where = location.current()  # of values handed out: who asked for the whole Program

    def outputs(self) -> list[AnyValue]:
        before, phase, pair = location.follow(""), location.phase(), location.pair()
        where, atoms = self.where, self.atoms
        try:
            for eqn in self.program.eqns:
                where, tag = eqn.where or where, eqn.tag or phase
                if not eqn.inputs or eqn.op.close is not None:  # it may hold values from outside
                    location.follow(where)
                    location.enter(tag)
                    location.enter_pair(eqn.pair)
                    self._bind(eqn)
                    continue
                inputs = tuple([atoms[a] if a in atoms else self._atom(a) for a in eqn.inputs])
                made = tuple([Var(v.type) for v in eqn.outputs])
                copy = Eqn(eqn.op, inputs, eqn.params, made, where, tag, eqn.pair)
                self.level.eqns.append(copy)
                atoms.update(zip(eqn.outputs, made, strict=True))
        finally:
            location.restore(before)
            location.enter(phase)
            location.enter_pair(pair)
        return [self._value(a) for a in self.program.outputs]

    def _atom(self, atom: Atom) -> Atom:
        found = self.atoms[atom] = self.level.atom(self.env.read(atom))
        return found

    def _value(self, atom: Atom) -> AnyValue:
        if isinstance(atom, Lit) or atom in self.env.values:
            return self.env.read(atom)
        made = self.atoms[atom]
        assert isinstance(made, Var)  # what copies define
        return StagedTracer(self.level, made, self.where)

    def _bind(self, eqn: Eqn) -> None:
        self.env.write(eqn.outputs, bind(eqn.op, *map(self._value, eqn.inputs), **eqn.params))


def differentiable(value: AnyValue | Type) -> bool:
    """Whether a value (or type) can carry a tangent."""
    return base.differentiable(value if isinstance(value, ArrayType | TapeType) else type_of(value))
