"""Transposition: a Program linear in some inputs becomes the map of cotangents back to them.

p           (c, dx) -> (dx * c)      linear in dx
transpose   (c, ct) -> (ct * c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fxad.core.errors import TypeMismatch, at
from fxad.core.masks import Mask, merge, select
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ops.base import Unknown, nonzero, plus
from fxad.ops.programs.captures import staged
from fxad.trace import location
from fxad.trace.tracer import bind
from fxad.transform.context import Environment, cached, keep_labels, transforms

if TYPE_CHECKING:
    from fxad.ir.rules import AnyCotangents, AnyValue, AnyValues

# Values of what does not depend on linear inputs; of those it holds anything.
Known = Environment[Any]


@cached
def transpose(program: Program, linear: Mask, active: Mask) -> tuple[Program, Mask]:
    """(non-linear inputs, cotangents of active outputs) -> cotangents of linear inputs.

    Returns the Program, whose outputs are the cotangents that are not zero, and the mask over
    the linear inputs saying which those are.
    """
    types = [*select(program.in_types, linear, False), *select(program.out_types, active)]
    fixed = len(types) - sum(active)
    flags: list[bool] = []

    def back(*args: AnyValue) -> AnyValues:
        given = iter(args[fixed:])
        cotangents = [next(given) if a else None for a in active]
        values = merge(linear, [None] * sum(linear), args[:fixed])
        results = transpose_eval(program, linear, values, cotangents)
        flags.extend(r is not None for r in results)
        return nonzero(results)

    result = staged(back, types, program.name)
    keep_labels(result.inputs, select(program.inputs, linear, False))
    return result, tuple(flags)


def transpose_eval(
    program: Program,
    linear: Sequence[bool],
    args: Sequence[AnyValue | None],
    cotangents: AnyCotangents,
) -> list[AnyValue | None]:
    """Bind the backward sweep in the current context.

    `args` holds values of non-linear inputs (anything for linear ones); returns a cotangent or
    None (zero) for every linear input. Consts count as leading non-linear inputs.
    """
    linear = (*([False] * len(program.consts)), *linear)
    variables = (*program.consts, *program.inputs)
    unknown: set[Atom] = set(select(variables, linear))
    env: Known = Environment(program, args)
    before, phase, pair = location.follow(""), location.phase(), location.pair()
    try:
        sums = _Cotangents(unknown)
        _sweep(program, unknown, env, sums, cotangents)
    finally:
        location.restore(before)
        location.enter(phase)
        location.enter_pair(pair)
    return [sums.values.get(v) for v in select(variables, linear)]


def _forward(program: Program, unknown: set[Atom], env: Known) -> list[Eqn]:
    """Compute what does not depend on linear inputs; return the equations that do."""
    pending = []
    for eqn in program.eqns:
        if unknown.isdisjoint(eqn.inputs):
            location.follow(eqn.where)
            location.enter_pair(eqn.pair)
            env.write(eqn.outputs, bind(eqn.op, *map(env.read, eqn.inputs), **eqn.params))
        else:
            unknown.update(eqn.outputs)
            pending.append(eqn)
    return pending


class _Cotangents:
    """Sums of the cotangents that reached each linear variable.

    `outside` says which variables are those of a program around this one, whose sums are there.
    """

    def __init__(
        self, unknown: set[Atom], outside: Mapping[Atom, tuple[_Cotangents, Atom]] | None = None
    ) -> None:
        self.unknown = unknown
        self.outside = outside or {}
        self.values: dict[Atom, AnyValue] = {}

    def add(self, atom: Atom, cotangent: AnyValue | None) -> None:
        if cotangent is None or atom not in self.unknown:
            return
        if atom in self.outside:
            sums, atom = self.outside[atom]
            sums.add(atom, cotangent)
            return
        before = self.values.get(atom)
        self.values[atom] = cotangent if before is None else plus(before, cotangent)

    def add_onto(self, atom: Atom, rule: Callable[[AnyValue], AnyValue]) -> bool:
        """Replace a sum by what `rule` makes of it; False if there is none yet."""
        if atom in self.outside:
            sums, atom = self.outside[atom]
            return sums.add_onto(atom, rule)
        if atom in self.values:
            self.values[atom] = rule(self.values[atom])
            return True
        return False


def _sweep(
    program: Program,
    unknown: set[Atom],
    env: Known,
    sums: _Cotangents,
    cotangents: AnyCotangents,
) -> None:
    """Compute what is known, then go back over what is linear, adding to `sums`."""
    location.enter("recomputed")
    pending = _forward(program, unknown, env)
    location.enter("backward")
    for atom, cotangent in zip(program.outputs, cotangents, strict=True):
        sums.add(atom, cotangent)
    for eqn in reversed(pending):
        location.follow(eqn.where)
        location.enter_pair(eqn.pair)
        _back(eqn, unknown, env, sums)


def _inside(
    eqn: Eqn, given: AnyCotangents, unknown: set[Atom], env: Known, sums: _Cotangents
) -> None:
    """Go back through the program an equation holds as if its equations stood here: cotangents
    are added in the same order, so gradients are the same bits."""
    program = eqn.params["program"]
    pairs = list(zip(program.inputs, eqn.inputs, strict=True))
    linear: dict[Atom, Atom] = {inner: outer for inner, outer in pairs if outer in unknown}
    values = [None if outer in unknown else env.read(outer) for _, outer in pairs]
    inner_unknown = set(linear)
    outside = {inner: (sums, outer) for inner, outer in linear.items()}
    _sweep(
        program,
        inner_unknown,
        Environment(program, values),
        _Cotangents(inner_unknown, outside),
        given,
    )


def _back(eqn: Eqn, unknown: set[Atom], env: Known, sums: _Cotangents) -> None:
    given = [sums.values.pop(v, None) for v in eqn.outputs]
    if all(g is None for g in given):
        return
    op = eqn.op
    if op.transpose is None:
        raise TypeMismatch(
            f"{op.name} is not linear in an operand that a gradient has to pass "
            f"through{at(eqn.where)}; it has no transpose rule"
        )
    if op.transpose == "inside":
        _inside(eqn, given, unknown, env, sums)
        return
    args = [Unknown(a.type) if a in unknown else env.read(a) for a in eqn.inputs]
    onto = op.onto
    if onto is not None and eqn.inputs[0] in unknown:
        params = eqn.params
        if sums.add_onto(eqn.inputs[0], lambda total: onto(total, given[0], args, **params)):
            return
    if op.higher:
        results = op.transpose(transforms(), given, args, **eqn.params)
    else:
        single = len(given) == 1
        results = op.transpose(given[0] if single else tuple(given), args, **eqn.params)
    for atom, cotangent in zip(eqn.inputs, results, strict=True):
        if isinstance(atom, Var):
            sums.add(atom, cotangent)
