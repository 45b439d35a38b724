"""The linear regions of a program: straight-line code that a pass may look at and change as one.

They are the program itself, the programs in its equations, and the joined bodies of a loop and its
backward loop, or of a branch and its backward branch.

    for region in linear_regions(program):
        program = region.around(Changed(better(region.program))).program
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fxad.core.record import record
from fxad.ir.pairs.cond import cond_pairs
from fxad.ir.pairs.joined import Changed, Pair, exchanged
from fxad.ir.pairs.scan import scan_pairs
from fxad.ir.pairs.while_loop import while_pairs
from fxad.ir.program import Eqn, Program, Var, subprograms


@record
class Region:
    """One linear region. around: the whole program with this region changed. Of joined bodies also
    cut: how many equations are the forward body's; state: inputs of that body that must be saved
    for the backward one (see `JoinedBodies`); copies: how many of each residual are live at a
    time."""

    program: Program
    around: Callable[[Changed], Changed]
    cut: int | None = None
    state: frozenset[Var] = frozenset()
    copies: int = 1


def linear_regions(program: Program) -> Iterator[Region]:
    """All linear regions of a program, each before those inside it."""
    yield Region(program, lambda change: change)
    yield from _of_pairs(program, 1)
    for eqn in program.eqns:
        for number, (_, inner) in enumerate(subprograms(eqn)):
            for region in linear_regions(inner):
                yield _inside(region, _Put(program, eqn, number))


def pairs(program: Program) -> Iterator[Pair]:
    """Loops and branches of a program with their backward loops and branches."""
    yield from scan_pairs(program)
    yield from while_pairs(program)
    yield from cond_pairs(program)


def _of_pairs(program: Program, copies: int) -> Iterator[Region]:
    for pair in pairs(program):
        for number, bodies in enumerate(pair.bodies):
            count, cut = copies * pair.length, len(bodies.forward_body.eqns)
            region = Region(bodies.program, lambda change: change, cut, bodies.state, count)
            for inner in (region, *_of_pairs(bodies.program, count)):
                yield _inside(inner, _Joined(pair, number))


def _inside(region: Region, outer: Callable[[Changed], Changed]) -> Region:
    def around(change: Changed) -> Changed:
        return outer(region.around(change))

    return Region(region.program, around, region.cut, region.state, region.copies)


@record
class _Joined:
    """Puts changed joined bodies back into their pair."""

    pair: Pair
    number: int

    def __call__(self, change: Changed) -> Changed:
        return self.pair.changed(self.number, change)


@record
class _Put:
    """Puts a changed program back among an equation's parameters."""

    program: Program
    eqn: Eqn
    number: int

    def __call__(self, change: Changed) -> Changed:
        count = iter(range(self.number + 1))
        params = {
            name: self._param(value, count, change) for name, value in self.eqn.params.items()
        }
        eqn = self.eqn
        new = eqn.copy(params=params)
        return exchanged(self.program, {eqn: [new]}.get, ())

    def _param(self, value: Any, count: Iterator[int], change: Changed) -> Any:
        if isinstance(value, Program):
            return change.program if next(count, None) == self.number else value
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            return tuple([self._param(v, count, change) for v in value])
        return value
