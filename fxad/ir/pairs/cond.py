"""Branches on one index, of which the second reads what the first kept: lines, one per branch.

forth   cond(i, x):    [y = exp(x)], [y = sin(x); z = cos(x)]     results y, z
back    cond(i, y, z): [mul(y, ...)], [mul(z, ...)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.core.types import TapeType
from fxad.ir.pairs.halves import (
    Changed,
    Halves,
    Line,
    exchanged,
    halved,
    inputs_renamed,
    joined,
)
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import literal


@record
class CondPair:
    """stays: which of the first one's results others read too."""

    program: Program
    forth: Eqn
    back: Eqn
    stays: tuple[int, ...]
    lines: tuple[Line, ...]
    length: int = 1

    def changed(self, number: int, line: Changed) -> Changed:
        halves = [
            halved(own, line if n == number else Changed(own.program))
            for n, own in enumerate(self.lines)
        ]
        shared = _shared(self, halves)
        slots, places = _slots([_crossing(w, h) for w, h in zip(self.lines, halves, strict=True)])
        forth = _forth(self, halves, slots, places)
        back = _back(self, halves, shared, slots, places)
        new = {self.forth: [forth], self.back: [back]}
        return exchanged(self.program, new.get, set(forth.outputs))


def cond_pairs(program: Program) -> Iterator[CondPair]:
    """Every cond that reads results of an earlier one on the same index."""
    conds = [e for e in program.eqns if e.op.name == "cond"]
    if len(conds) < 2:
        return
    uses = Counter(a for e in program.eqns for a in e.inputs) + Counter(program.outputs)
    for number, back in enumerate(conds):
        for forth in conds[:number]:
            same = _same(forth.inputs[0], back.inputs[0])
            sized = len(forth.params["branches"]) == len(back.params["branches"])
            if same and sized and not set(forth.outputs).isdisjoint(back.inputs[1:]):
                yield _pair(program, forth, back, uses)


def _same(index: Atom, other: Atom) -> bool:
    if isinstance(index, Lit) and isinstance(other, Lit):
        return index.key() == other.key()
    return index is other


def _pair(program: Program, forth: Eqn, back: Eqn, uses: Counter[Atom]) -> CondPair:
    operands = back.inputs[1:]
    read = [v for v in forth.outputs if uses[v] > operands.count(v)]
    stays = tuple([n for n, v in enumerate(forth.outputs) if v in read])
    # Operands that would die in the first one: whoever reads them in the second one keeps them.
    others = {*program.inputs, *program.consts}
    dying = [a not in others and uses[a] == forth.inputs.count(a) for a in forth.inputs[1:]]
    lines = []
    for ahead, behind in zip(forth.params["branches"], back.params["branches"], strict=True):
        known: dict[Atom, Atom] = dict(zip(forth.inputs[1:], ahead.inputs, strict=True))
        known.update(zip(forth.outputs, ahead.outputs, strict=True))
        crossing = {v: known[a] for a, v in zip(operands, behind.inputs, strict=True) if a in known}
        state = [v for v, dies in zip(ahead.inputs, dying, strict=True) if dies]
        lines.append(joined(ahead, behind, [ahead.outputs[n] for n in stays], crossing, state))
    return CondPair(program, forth, back, stays, tuple(lines))


def _crossing(line: Line, halves: Halves) -> list[Var]:
    return [v for v in halves.wanted if v not in line.ahead.inputs]


def _shared(pair: CondPair, halves: Sequence[Halves]) -> list[int]:
    """Which of the first one's operands some branch of the second one reads too."""
    found = {
        line.ahead.inputs.index(v)
        for line, half in zip(pair.lines, halves, strict=True)
        for v in half.wanted
        if v in line.ahead.inputs
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


def _forth(
    pair: CondPair, halves: Sequence[Halves], slots: list[Var], places: Sequence[dict[Var, int]]
) -> Eqn:
    """The first one, which hands over what crosses."""
    branches = []
    for line, half, mine in zip(pair.lines, halves, places, strict=True):
        eqns, filled = list(half.early), {place: v for v, place in mine.items()}
        outputs = [*half.kept]
        for place, slot in enumerate(slots):
            if place not in filled:
                filled[place] = Var(slot.type)
                eqns.append(_blank(filled[place]))
            outputs.append(filled[place])
        branches.append(Program(line.ahead.inputs, eqns, outputs, line.ahead.name))
    loop, params = pair.forth, {**pair.forth.params, "branches": tuple(branches)}
    results = (*[loop.outputs[n] for n in pair.stays], *slots)
    return Eqn(loop.op, loop.inputs, params, results, loop.where, loop.tag)


def _blank(var: Var) -> Eqn:
    if isinstance(var.type, TapeType):
        return Eqn(OPS["tape_new"], (), {"type": var.type}, (var,))
    params = {"shape": var.type.shape, "axes": ()}
    return Eqn(OPS["broadcast"], (literal(0, var.type.dtype),), params, (var,))


def _back(
    pair: CondPair,
    halves: Sequence[Halves],
    shared: Sequence[int],
    slots: Sequence[Var],
    places: Sequence[dict[Var, int]],
) -> Eqn:
    """The second one, which reads its own operands, those shared, and what crosses."""
    second = pair.back
    operands = second.inputs[1:]
    first = second.params["branches"][0].inputs
    mine = [n for n in range(len(operands)) if first[n] in pair.lines[0].own]
    branches = []
    for number, (line, half) in enumerate(zip(pair.lines, halves, strict=True)):
        behind = second.params["branches"][number]
        common = [Var(line.ahead.inputs[n].type) for n in shared]
        inside = [Var(s.type) for s in slots]
        swap: dict[Atom, Atom] = {
            line.ahead.inputs[n]: v for n, v in zip(shared, common, strict=True)
        }
        swap.update({v: inside[place] for v, place in places[number].items()})
        eqns, outputs = inputs_renamed(half.late, half.results, swap)
        inputs = [*(line.own[behind.inputs[n]] for n in mine), *common, *inside]
        branches.append(Program(inputs, eqns, outputs, behind.name))
    given = [operands[n] for n in mine] + [pair.forth.inputs[1 + n] for n in shared]
    params = {**second.params, "branches": tuple(branches)}
    reads = (second.inputs[0], *given, *slots)
    return Eqn(second.op, reads, params, second.outputs, second.where, second.tag)
