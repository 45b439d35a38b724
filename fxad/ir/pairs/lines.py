"""The straight lines of a program: itself, the programs in its equations, and, one behind the
other, those of a loop and the loop back over it, or of a branch and the one back over that.

    for line in lines(program):
        program = line.around(Changed(better(line.program))).program
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fxad.core.record import record
from fxad.ir.pairs.cond import cond_pairs
from fxad.ir.pairs.halves import Changed, Pair, exchanged
from fxad.ir.pairs.scan import scan_pairs
from fxad.ir.pairs.while_loop import while_pairs
from fxad.ir.program import Eqn, Program, Var, subprograms


@record
class Straight:
    """One line. around: the whole program with this line changed. cut: for two programs one behind
    the other, how many equations are the first one's. state: that one's inputs which must be kept
    for the second (see `Line`). times: how many of each value that crosses the cut wait at a
    time."""

    program: Program
    around: Callable[[Changed], Changed]
    cut: int | None = None
    state: frozenset[Var] = frozenset()
    times: int = 1


def lines(program: Program) -> Iterator[Straight]:
    """All lines of a program, those around others first."""
    yield Straight(program, lambda changed: changed)
    yield from _of_pairs(program, 1)
    for eqn in program.eqns:
        for number, (_, inner) in enumerate(subprograms(eqn)):
            for line in lines(inner):
                yield _inside(line, _Put(program, eqn, number))


def pairs(program: Program) -> Iterator[Pair]:
    """Loops and loops back over them, branches and those that read what they kept."""
    yield from scan_pairs(program)
    yield from while_pairs(program)
    yield from cond_pairs(program)


def _of_pairs(program: Program, times: int) -> Iterator[Straight]:
    for pair in pairs(program):
        for number, own in enumerate(pair.lines):
            count, cut = times * pair.length, len(own.ahead.eqns)
            line = Straight(own.program, lambda changed: changed, cut, own.state, count)
            for inner in (line, *_of_pairs(own.program, count)):
                yield _inside(inner, _Joined(pair, number))


def _inside(line: Straight, outer: Callable[[Changed], Changed]) -> Straight:
    def around(changed: Changed) -> Changed:
        return outer(line.around(changed))

    return Straight(line.program, around, line.cut, line.state, line.times)


@record
class _Joined:
    """Puts a changed line of a pair back."""

    pair: Pair
    number: int

    def __call__(self, changed: Changed) -> Changed:
        return self.pair.changed(self.number, changed)


@record
class _Put:
    """Puts a changed program back among an equation's parameters."""

    program: Program
    eqn: Eqn
    number: int

    def __call__(self, changed: Changed) -> Changed:
        count = iter(range(self.number + 1))
        params = {
            name: self._param(value, count, changed) for name, value in self.eqn.params.items()
        }
        eqn = self.eqn
        new = Eqn(eqn.op, eqn.inputs, params, eqn.outputs, eqn.where, eqn.tag)
        return exchanged(self.program, {eqn: [new]}.get, ())

    def _param(self, value: Any, count: Iterator[int], changed: Changed) -> Any:
        if isinstance(value, Program):
            return changed.program if next(count, None) == self.number else value
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            return tuple([self._param(v, count, changed) for v in value])
        return value
