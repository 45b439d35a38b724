"""Scans and their backward scans, with both bodies joined (`fxad.ir.pairs.joined`).

forward     body: y = f(c); z = g(y)      stacks y and z
backward    body: h(y, z)                 reads their slices
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fxad.core.record import record
from fxad.ir.pairs.joined import (
    Changed,
    JoinedBodies,
    Split,
    exchanged,
    joined,
    split,
)
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.uses import Uses, uses_of


@record
class ScanPair:
    """stacked: which results of the forward loop only the backward one reads."""

    program: Program
    forward: Eqn
    backward: Eqn
    stacked: set[Var]
    bodies: tuple[JoinedBodies]

    @property
    def length(self) -> int:
        length: int = self.forward.params["length"]
        return length

    def changed(self, number: int, change: Changed) -> Changed:
        parts = split(self.bodies[number], change)
        forward, stacks = _forward(self, parts)
        backward = _backward(self, parts, stacks)
        new = {self.forward: [forward], self.backward: [backward]}
        return exchanged(self.program, new.get, set(forward.outputs))


def scan_pairs(program: Program) -> Iterator[ScanPair]:
    """Every scan that reads what another one has stacked, in the opposite direction."""
    scans = [e for e in program.eqns if e.op.name == "scan"]
    if len(scans) < 2:
        return
    uses = uses_of(program)
    for backward in scans:
        forward = _source(backward, uses)
        if forward is not None:
            yield _pair(program, forward, backward, uses)


def _source(backward: Eqn, uses: Uses) -> Eqn | None:
    """The forward loop of a backward one: it has its pair, else its stacks fill most of what the
    backward loop reads slices of."""
    sizes = Counter[Eqn]()
    for stack, _ in zip(*_part(backward, "xs"), strict=True):
        loop = uses.maker.get(stack)
        if loop is None or loop.op.name != "scan":
            continue
        if stack in loop.outputs[loop.params["carry"] :]:
            sizes[loop] += stack.type.nbytes
    fitting = [
        loop
        for loop, _ in sizes.most_common()
        if loop.params["length"] == backward.params["length"]
        and loop.params["reverse"] != backward.params["reverse"]
    ]
    paired = [loop for loop in fitting if loop.pair is not None and loop.pair == backward.pair]
    return next(iter(paired or fitting), None)


def _pair(program: Program, forward: Eqn, backward: Eqn, uses: Uses) -> ScanPair:
    carry, forward_body = forward.params["carry"], forward.params["body"]
    read = _part(backward, "xs")[0]
    results = forward.outputs[carry:]
    stacked = {v for v in results if uses.count(v) == read.count(v)}
    known: dict[tuple[str, Atom], Atom] = {}
    for group in ("consts", "xs"):
        for operand, var in zip(*_part(forward, group), strict=True):
            known.setdefault((group, operand), var)
    for operand, atom in zip(results, forward_body.outputs[carry:], strict=True):
        known["xs", operand] = atom
    crossing = {
        var: known[group, operand]
        for group in ("consts", "xs")
        for operand, var in zip(*_part(backward, group), strict=True)
        if (group, operand) in known
    }
    # What is stacked for the backward loop alone is no result here: it may go.
    pairs = zip(forward.outputs, forward_body.outputs, strict=True)
    kept = [atom for var, atom in pairs if var not in stacked]
    bodies = joined(
        forward_body, backward.params["body"], kept, crossing, _part(forward, "carry")[1]
    )
    return ScanPair(program, forward, backward, stacked, (bodies,))


def _part(loop: Eqn, group: str) -> tuple[Sequence[Atom], Sequence[Var]]:
    """A loop's constants, state or xs: operands, and what they are in the body."""
    consts = loop.params["consts"]
    first = consts + loop.params["carry"]
    ends = {"consts": (0, consts), "carry": (consts, first), "xs": (first, len(loop.inputs))}
    low, high = ends[group]
    return loop.inputs[low:high], loop.params["body"].inputs[low:high]


def _forward(pair: ScanPair, parts: Split) -> tuple[Eqn, dict[Var, Atom]]:
    """The forward loop, and the stacked values of the residuals: results or xs."""
    loop, body = pair.forward, pair.forward.params["body"]
    stacks: dict[Var, Atom] = {v: operand for operand, v in zip(*_part(loop, "xs"), strict=True)}
    fixed = set(_part(loop, "consts")[1])
    results = [v for v in loop.outputs if v not in pair.stacked]
    outputs = list(parts.forward_outputs)
    for var in parts.residuals:
        if var not in fixed and var not in stacks:
            outputs.append(var)
            results.append(Var(var.type.with_shape((loop.params["length"], *var.type.shape))))
            stacks[var] = results[-1]
    params = {**loop.params, "body": Program(body.inputs, parts.forward_eqns, outputs, body.name)}
    return loop.copy(params=params, outputs=tuple(results)), stacks


def _backward(pair: ScanPair, parts: Split, stacks: dict[Var, Atom]) -> Eqn:
    """The backward loop, which reads the residuals."""
    loop, own = pair.backward, pair.bodies[0].own
    fixed = {v: operand for operand, v in zip(*_part(pair.forward, "consts"), strict=True)}
    inside = {v: Var(v.type) for v in parts.residuals}
    groups: dict[str, list[tuple[Atom, Var]]] = {}
    for group in ("consts", "carry", "xs"):
        pairs = zip(*_part(loop, group), strict=True)
        groups[group] = [(a, own[v]) for a, v in pairs if v in own]
    groups["consts"] += [(fixed[v], new) for v, new in inside.items() if v in fixed]
    groups["xs"] += [(stacks[v], new) for v, new in inside.items() if v not in fixed]
    everything = [*groups["consts"], *groups["carry"], *groups["xs"]]
    eqns, outputs = parts.backward_reading(inside)
    body = Program([v for _, v in everything], eqns, outputs, loop.params["body"].name)
    params = {**loop.params, "consts": len(groups["consts"]), "body": body}
    given = tuple([a for a, _ in everything])
    return loop.copy(inputs=given, params=params)
