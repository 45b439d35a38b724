"""Branches and their backward branches, with the bodies of each branch joined
(`fxad.ir.pairs.joined`).

forward     cond(i, x):    [y = exp(x)], [y = sin(x); z = cos(x)]     results y, z
backward    cond(i, y, z): [mul(y, ...)], [mul(z, ...)]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.core.types import TapeType
from fxad.ir.pairs.joined import (
    Changed,
    JoinedBodies,
    Split,
    exchanged,
    joined,
    split,
)
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import literal
from fxad.ir.uses import Uses, uses_of


@record
class CondPair:
    """stays: which results of the forward equation others read too."""

    program: Program
    forward: Eqn
    backward: Eqn
    stays: tuple[int, ...]
    bodies: tuple[JoinedBodies, ...]
    length: int = 1

    def changed(self, number: int, change: Changed) -> Changed:
        splits = [
            split(own, change if n == number else Changed(own.program))
            for n, own in enumerate(self.bodies)
        ]
        shared = _shared(self, splits)
        slots, places = _slots([_crossing(w, h) for w, h in zip(self.bodies, splits, strict=True)])
        forward = _forward(self, splits, slots, places)
        backward = _backward(self, splits, shared, slots, places)
        new = {self.forward: [forward], self.backward: [backward]}
        return exchanged(self.program, new.get, set(forward.outputs))


def cond_pairs(program: Program) -> Iterator[CondPair]:
    """Every cond that reads results of an earlier one on the same index."""
    conds = [e for e in program.eqns if e.op.name == "cond"]
    if len(conds) < 2:
        return
    uses = uses_of(program)
    for number, backward in enumerate(conds):
        for forward in conds[:number]:
            same = _same(forward.inputs[0], backward.inputs[0])
            sized = len(forward.params["branches"]) == len(backward.params["branches"])
            if same and sized and not set(forward.outputs).isdisjoint(backward.inputs[1:]):
                yield _pair(program, forward, backward, uses)


def _same(index: Atom, other: Atom) -> bool:
    if isinstance(index, Lit) and isinstance(other, Lit):
        return index.key() == other.key()
    return index is other


def _pair(program: Program, forward: Eqn, backward: Eqn, uses: Uses) -> CondPair:
    operands = backward.inputs[1:]
    read = [v for v in forward.outputs if uses.count(v) > operands.count(v)]
    stays = tuple([n for n, v in enumerate(forward.outputs) if v in read])
    # Operands that would die in the forward branch: one that the backward reads is a residual.
    others = {*program.inputs, *program.consts}
    given, branches = forward.inputs[1:], (forward.params["branches"], backward.params["branches"])
    dying = [a not in others and uses.count(a) == forward.inputs.count(a) for a in given]
    bodies = []
    for first, second in zip(*branches, strict=True):
        known: dict[Atom, Atom] = dict(zip(given, first.inputs, strict=True))
        known.update(zip(forward.outputs, first.outputs, strict=True))
        reads = zip(operands, second.inputs, strict=True)
        crossing = {v: known[a] for a, v in reads if a in known}
        state = [v for v, dies in zip(first.inputs, dying, strict=True) if dies]
        bodies.append(joined(first, second, [first.outputs[n] for n in stays], crossing, state))
    return CondPair(program, forward, backward, stays, tuple(bodies))


def _crossing(bodies: JoinedBodies, part: Split) -> list[Var]:
    return [v for v in part.residuals if v not in bodies.forward_body.inputs]


def _shared(pair: CondPair, splits: Sequence[Split]) -> list[int]:
    """Which operands of the forward equation some backward branch reads too."""
    found = {
        bodies.forward_body.inputs.index(v)
        for bodies, part in zip(pair.bodies, splits, strict=True)
        for v in part.residuals
        if v in bodies.forward_body.inputs
    }
    return sorted(found)


def _slots(crossing: Sequence[Sequence[Var]]) -> tuple[list[Var], list[dict[Var, int]]]:
    """Results in which branches hand over what crosses; each may have one of a type for its own."""
    slots: list[Var] = []
    places: list[dict[Var, int]] = []
    for values in crossing:
        mine: dict[Var, int] = {}
        for value in values:
            free = (n for n, s in enumerate(slots) if s.type == value.type)
            place = next((n for n in free if n not in mine.values()), len(slots))
            if place == len(slots):
                slots.append(Var(value.type))
            mine[value] = place
        places.append(mine)
    return slots, places


def _forward(
    pair: CondPair, splits: Sequence[Split], slots: list[Var], places: Sequence[dict[Var, int]]
) -> Eqn:
    """The forward equation, which hands over what crosses."""
    branches = []
    for bodies, part, mine in zip(pair.bodies, splits, places, strict=True):
        eqns, filled = list(part.forward_eqns), {place: v for v, place in mine.items()}
        outputs = [*part.forward_outputs]
        for place, slot in enumerate(slots):
            if place not in filled:
                filled[place] = Var(slot.type)
                eqns.append(_blank(filled[place]))
            outputs.append(filled[place])
        branches.append(
            Program(bodies.forward_body.inputs, eqns, outputs, bodies.forward_body.name)
        )
    loop, params = pair.forward, {**pair.forward.params, "branches": tuple(branches)}
    results = (*[loop.outputs[n] for n in pair.stays], *slots)
    return loop.copy(params=params, outputs=results)


def _blank(var: Var) -> Eqn:
    if isinstance(var.type, TapeType):
        return Eqn(OPS["tape_new"], (), {"type": var.type}, (var,))
    params = {"shape": var.type.shape, "axes": ()}
    return Eqn(OPS["broadcast"], (literal(0, var.type.dtype),), params, (var,))


def _backward(
    pair: CondPair,
    splits: Sequence[Split],
    shared: Sequence[int],
    slots: Sequence[Var],
    places: Sequence[dict[Var, int]],
) -> Eqn:
    """The backward equation: it reads its own operands, those shared, and what crosses."""
    second = pair.backward
    operands = second.inputs[1:]
    first = second.params["branches"][0].inputs
    mine = [n for n in range(len(operands)) if first[n] in pair.bodies[0].own]
    branches = []
    for number, (bodies, part) in enumerate(zip(pair.bodies, splits, strict=True)):
        backward_body = second.params["branches"][number]
        common = [Var(bodies.forward_body.inputs[n].type) for n in shared]
        inside = [Var(s.type) for s in slots]
        swap = {bodies.forward_body.inputs[n]: v for n, v in zip(shared, common, strict=True)}
        swap.update({v: inside[place] for v, place in places[number].items()})
        eqns, outputs = part.backward_reading(swap)
        inputs = [*(bodies.own[backward_body.inputs[n]] for n in mine), *common, *inside]
        branches.append(Program(inputs, eqns, outputs, backward_body.name))
    given = [operands[n] for n in mine] + [pair.forward.inputs[1 + n] for n in shared]
    params = {**second.params, "branches": tuple(branches)}
    reads = (second.inputs[0], *given, *slots)
    return second.copy(inputs=reads, params=params)
