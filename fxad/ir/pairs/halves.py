"""Two programs one behind the other as a straight line, and the line cut in two again.

    ahead    (c, x) -> (c', y, z)              trips of a loop
    behind   (d, y, z) -> (d')                 the same trips of the loop back over it
    line     (c, x, d) -> (c', d')             y and z are values in between

A pass that works on straight lines can so decide what the second half reads of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fxad.core.record import record
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.rewrite import inline_into


@record
class Line:
    """Both halves. kept: how many results are the first one's. own: what the second one's inputs
    are here where they do not come from the first one. state: inputs of the first one that are
    others in each trip, or that nothing else reads, and must be kept for the second one like what
    the first one makes."""

    program: Program
    ahead: Program
    kept: int
    own: dict[Var, Var]
    state: frozenset[Var]


@record
class Halves:
    """A line cut in two: equations, results of either, and what the second one reads of the first
    one's values and inputs."""

    early: list[Eqn]
    kept: list[Atom]
    late: list[Eqn]
    results: list[Atom]
    wanted: list[Var]


@record
class Changed:
    """A program that a pass has changed. early, silent: what it has made early on beside what was
    made there, and how many equations without results it has put there."""

    program: Program
    early: frozenset[Var] = frozenset()
    silent: int = 0


class Pair(Protocol):
    """An equation that holds programs and one that reads what it kept for it."""

    @property
    def lines(self) -> Sequence[Line]: ...
    @property
    def length(self) -> int:
        """How many of each value that crosses wait at a time, as far as is known."""

    def changed(self, number: int, line: Changed) -> Changed:
        """The program around both, with one of the lines changed."""


def joined(
    ahead: Program,
    behind: Program,
    kept: Sequence[Atom],
    crossing: Mapping[Var, Atom],
    state: Sequence[Var] = (),
) -> Line:
    """One behind the other. kept: the first one's results that stay. crossing: what inputs of the
    second one are in the first. state: the first one's."""
    own = {v: Var(v.type) for v in behind.inputs if v not in crossing}
    given = [own[v] if v in own else crossing[v] for v in behind.inputs]
    late, results = inline_into(behind, given)
    inputs, eqns = [*ahead.inputs, *own.values()], [*ahead.eqns, *late]
    program = Program(inputs, eqns, [*kept, *results], behind.name or ahead.name)
    return Line(program, ahead, len(kept), own, frozenset(state))


def halved(line: Line, changed: Changed) -> Halves:
    """The line cut where the first half, and what was added to it, ends."""
    program = changed.program
    ahead = line.ahead.eqns
    made = {v for e in ahead for v in e.outputs} | changed.early
    # Effects alone stay in their order, and are never dropped.
    end = _end(program.eqns, made, changed.silent + sum(not e.outputs for e in ahead))
    early, late = list(program.eqns[:end]), list(program.eqns[end:])
    kept, results = list(program.outputs[: line.kept]), list(program.outputs[line.kept :])
    local = {*line.own.values(), *(v for e in late for v in e.outputs)}
    read = dict.fromkeys([*(a for e in late for a in e.inputs), *results])
    wanted = [a for a in read if isinstance(a, Var) and a not in local]
    return Halves(early, kept, late, results, wanted)


def _end(eqns: Sequence[Eqn], made: set[Var], silent: int) -> int:
    """After the last equation that makes one of these values, or is one of the silent ones."""
    end = 0
    for number, eqn in enumerate(eqns):
        if not made.isdisjoint(eqn.outputs) or (not eqn.outputs and silent > 0):
            end = number + 1
            silent -= not eqn.outputs
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


def inputs_renamed(
    eqns: Sequence[Eqn], outputs: Sequence[Atom], swap: Mapping[Atom, Atom]
) -> tuple[list[Eqn], list[Atom]]:
    """Equations and results that read other values."""
    renamed = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in eqns]
    return renamed, [swap.get(a, a) for a in outputs]
