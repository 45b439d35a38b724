"""Scans back over scans: both bodies as one line (`fxad.ir.pairs.halves`).

forth   body: y = f(c); z = g(y)      stacks y and z
back    body: h(y, z)                 reads their slices
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.ir.pairs.halves import (
    Changed,
    Halves,
    Line,
    exchanged,
    halved,
    inputs_renamed,
    joined,
)
from fxad.ir.program import Atom, Eqn, Program, Var


@record
class ScanPair:
    """stacked: which of the first loop's results only the second one reads."""

    program: Program
    forth: Eqn
    back: Eqn
    stacked: set[Var]
    lines: tuple[Line]

    @property
    def length(self) -> int:
        return self.forth.params["length"]

    def changed(self, number: int, line: Changed) -> Changed:
        halves = halved(self.lines[number], line)
        forth, stacks = _forth(self, halves)
        back = _back(self, halves, stacks)
        new = {self.forth: [forth], self.back: [back]}
        return exchanged(self.program, new.get, set(forth.outputs))


def scan_pairs(program: Program) -> Iterator[ScanPair]:
    """Every scan that reads stacks of one other, which runs in the opposite direction."""
    made = {v: e for e in program.eqns if e.op.name == "scan" for v in e.outputs}
    if len({*made.values()}) < 2:
        return
    uses = Counter(a for e in program.eqns for a in e.inputs) + Counter(program.outputs)
    for back in program.eqns:
        forth = _source(back, made) if back.op.name == "scan" else None
        if forth is not None:
            yield _pair(program, forth, back, uses)


def _source(back: Eqn, made: dict[Var, Eqn]) -> Eqn | None:
    """The loop whose stacks fill most of what a loop reads slices of."""
    sizes = Counter[Eqn]()
    for stack, _ in zip(*_part(back, "xs"), strict=True):
        loop = made.get(stack) if isinstance(stack, Var) else None
        if loop is not None and stack in loop.outputs[loop.params["carry"] :]:
            sizes[loop] += stack.type.nbytes
    for loop, _ in sizes.most_common():
        same = loop.params["length"] == back.params["length"]
        if same and loop.params["reverse"] != back.params["reverse"]:
            return loop
    return None


def _pair(program: Program, forth: Eqn, back: Eqn, uses: Counter[Atom]) -> ScanPair:
    carry, ahead = forth.params["carry"], forth.params["body"]
    read = _part(back, "xs")[0]
    results = forth.outputs[carry:]
    stacked = {v for v in results if uses[v] == read.count(v)}
    known: dict[tuple[str, Atom], Atom] = {}
    for group in ("consts", "xs"):
        for operand, var in zip(*_part(forth, group), strict=True):
            known.setdefault((group, operand), var)
    for operand, atom in zip(results, ahead.outputs[carry:], strict=True):
        known["xs", operand] = atom
    crossing = {
        var: known[group, operand]
        for group in ("consts", "xs")
        for operand, var in zip(*_part(back, group), strict=True)
        if (group, operand) in known
    }
    # What is stacked for the second loop alone is no result here: it may go.
    pairs = zip(forth.outputs, ahead.outputs, strict=True)
    kept = [atom for var, atom in pairs if var not in stacked]
    line = joined(ahead, back.params["body"], kept, crossing, _part(forth, "carry")[1])
    return ScanPair(program, forth, back, stacked, (line,))


def _part(loop: Eqn, group: str) -> tuple[Sequence[Atom], Sequence[Var]]:
    """A loop's constants, state or xs: operands, and what they are in the body."""
    consts = loop.params["consts"]
    first = consts + loop.params["carry"]
    ends = {"consts": (0, consts), "carry": (consts, first), "xs": (first, len(loop.inputs))}
    low, high = ends[group]
    return loop.inputs[low:high], loop.params["body"].inputs[low:high]


def _forth(pair: ScanPair, halves: Halves) -> tuple[Eqn, dict[Var, Atom]]:
    """The first loop, and the stacked values of what is wanted of it: results or xs."""
    loop, body = pair.forth, pair.forth.params["body"]
    stacks: dict[Var, Atom] = {v: operand for operand, v in zip(*_part(loop, "xs"), strict=True)}
    fixed = set(_part(loop, "consts")[1])
    results = [v for v in loop.outputs if v not in pair.stacked]
    outputs = list(halves.kept)
    for var in halves.wanted:
        if var not in fixed and var not in stacks:
            outputs.append(var)
            results.append(Var(var.type.with_shape((loop.params["length"], *var.type.shape))))
            stacks[var] = results[-1]
    params = {**loop.params, "body": Program(body.inputs, halves.early, outputs, body.name)}
    return Eqn(loop.op, loop.inputs, params, tuple(results), loop.where, loop.tag), stacks


def _back(pair: ScanPair, halves: Halves, stacks: dict[Var, Atom]) -> Eqn:
    """The second loop, which reads what is wanted of the first."""
    loop, own = pair.back, pair.lines[0].own
    fixed = {v: operand for operand, v in zip(*_part(pair.forth, "consts"), strict=True)}
    inside = {v: Var(v.type) for v in halves.wanted}
    parts: dict[str, list[tuple[Atom, Var]]] = {}
    for group in ("consts", "carry", "xs"):
        pairs = zip(*_part(loop, group), strict=True)
        parts[group] = [(a, own[v]) for a, v in pairs if v in own]
    parts["consts"] += [(fixed[v], new) for v, new in inside.items() if v in fixed]
    parts["xs"] += [(stacks[v], new) for v, new in inside.items() if v not in fixed]
    everything = [*parts["consts"], *parts["carry"], *parts["xs"]]
    eqns, outputs = inputs_renamed(halves.late, halves.results, dict(inside.items()))
    body = Program([v for _, v in everything], eqns, outputs, loop.params["body"].name)
    params = {**loop.params, "consts": len(parts["consts"]), "body": body}
    given = tuple([a for a, _ in everything])
    return Eqn(loop.op, given, params, loop.outputs, loop.where, loop.tag)
