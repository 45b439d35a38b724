"""A forward and a backward body joined into one program, and that program split in two again.

    forward     (c, x) -> (c', y, z)           a trip of a loop
    backward    (d, y, z) -> (d')              the same trip of its backward loop
    joined      (c, x, d) -> (c', d')          y and z are values in between

So a pass that works on straight-line code can decide which residuals the backward body reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fxad.core.record import record
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import inline_into, replaced
from fxad.ir.uses import makers, values_read


@record
class JoinedBodies:
    """The forward body, then the backward one. results: how many results are the forward body's.
    own: what inputs of the backward body are here, where they do not come from the forward one.
    state: inputs of the forward body that are others in each trip, or that nothing else reads:
    for the backward body they must be saved like values of the forward one."""

    program: Program
    forward_body: Program
    results: int
    own: dict[Var, Var]
    state: frozenset[Var]


@record
class Split:
    """Joined bodies split in two: equations and outputs of either, and the residuals, which are
    values and inputs of the forward body that the backward one reads."""

    forward_eqns: list[Eqn]
    forward_outputs: list[Atom]
    backward_eqns: list[Eqn]
    backward_outputs: list[Atom]
    residuals: list[Var]

    def backward_reading(self, swap: Mapping[Var, Var]) -> tuple[list[Eqn], list[Atom]]:
        """The backward equations and outputs, which read other variables for some."""
        env: dict[Atom, Atom] = dict(swap.items())
        eqns = [e.with_inputs(replaced(e.inputs, env)) for e in self.backward_eqns]
        return eqns, list(replaced(tuple(self.backward_outputs), env))


@record
class Changed:
    """A program that a pass has changed. added: values that the pass has added to the forward body.
    effects: how many equations without results it has added there."""

    program: Program
    added: frozenset[Var] = frozenset()
    effects: int = 0


class Pair(Protocol):
    """An equation that holds programs, and the one that reads its residuals."""

    @property
    def bodies(self) -> Sequence[JoinedBodies]: ...
    @property
    def length(self) -> int:
        """How many copies of each residual are live at a time, as far as is known."""

    def changed(self, number: int, change: Changed) -> Changed:
        """The program around both, with one of the joined bodies changed."""


def joined(
    forward_body: Program,
    backward_body: Program,
    outputs: Sequence[Atom],
    crossing: Mapping[Var, Atom],
    state: Sequence[Var] = (),
) -> JoinedBodies:
    """One after the other. outputs: those of the forward body that stay. crossing: what inputs of
    the backward body are in the forward one. state: the forward body's."""
    own = {v: Var(v.type) for v in backward_body.inputs if v not in crossing}
    given = [own[v] if v in own else crossing[v] for v in backward_body.inputs]
    backward, results = inline_into(backward_body, given)
    inputs, eqns = [*forward_body.inputs, *own.values()], [*forward_body.eqns, *backward]
    name = backward_body.name or forward_body.name
    program = Program(inputs, eqns, [*outputs, *results], name)
    return JoinedBodies(program, forward_body, len(outputs), own, frozenset(state))


def split(bodies: JoinedBodies, change: Changed) -> Split:
    """The changed program split where the forward body, and what was added to it, ends."""
    program, unchanged = change.program, bodies.forward_body.eqns
    made = makers(unchanged).keys() | change.added
    # Equations with effects alone stay in their order, and are never dropped.
    end = _end(program.eqns, made, change.effects + sum(not e.outputs for e in unchanged))
    forward, backward = list(program.eqns[:end]), list(program.eqns[end:])
    kept, results = list(program.outputs[: bodies.results]), list(program.outputs[bodies.results :])
    local = {*bodies.own.values(), *makers(backward)}
    residuals = [v for v in values_read(backward, results) if v not in local]
    return Split(forward, kept, backward, results, residuals)


def _end(eqns: Sequence[Eqn], made: set[Var], effects: int) -> int:
    """After the last equation that makes one of these values, or is one of so many without
    results."""
    end = 0
    for number, eqn in enumerate(eqns):
        if not made.isdisjoint(eqn.outputs) or (not eqn.outputs and effects > 0):
            end = number + 1
            effects -= not eqn.outputs
    return end


def exchanged(
    program: Program, answer: Callable[[Eqn], Sequence[Eqn] | None], added: Iterable[Var]
) -> Changed:
    """The program with equations replaced where `answer` is not None."""
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        found = answer(eqn)
        eqns += [eqn] if found is None else found
    whole = Program(program.inputs, eqns, program.outputs, program.name, program.consts)
    return Changed(whole, frozenset(added))
