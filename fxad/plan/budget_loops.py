"""Byte budgets of checkpoints inside scans: what a trip keeps for its trip of the loop back.

    forth   body: y = f(c); z = g(y)                    stacks y and z
    back    body: within(c, y, z; budget); h(y, z)      reads their slices

Both bodies one behind the other are a straight line, in which `within` is obeyed as anywhere: what
the second half still reads of the first is stacked afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fxad.ir.program import Atom, Eqn, Program, Var

Obey = Callable[[Program], tuple[Program, set[Var]]]  # also what it made to wait in fewer bits


class Pair(NamedTuple):
    """A loop and the loop back over it. crossing: for slices that the second one reads, and
    constants both have, what they are in the first one's body. stacked: which of the first one's
    results only the second one reads."""

    forth: Eqn
    back: Eqn
    crossing: dict[Atom, Atom]
    stacked: set[Var]


def in_scans(program: Program, obey: Obey) -> Program:
    """Have `obey` replace every `within` in the bodies of scans back over others."""
    for back in program.eqns:
        if back.op.name == "scan" and asks(back):
            pair = _pair(program, back)
            if pair is not None:
                program = _replaced(program, pair, obey)
    return program


def asks(eqn: Eqn) -> bool:
    """Whether the body of a loop has a checkpoint with a budget."""
    return any(e.op.name == "within" for e in eqn.params["body"].eqns)


def _pair(program: Program, back: Eqn) -> Pair | None:
    """The loops, if those whose stacked values are read here are one, in the opposite direction."""
    made = {v: e for e in program.eqns for v in e.outputs}
    uses = Counter(a for e in program.eqns for a in e.inputs) + Counter(program.outputs)
    first = back.params["consts"] + back.params["carry"]
    sources = [made[a] for a in back.inputs[first:] if isinstance(a, Var) and a in made]
    loops = [e for e in dict.fromkeys(sources) if e.op.name == "scan"]
    if len(loops) != 1:
        return None
    (forth,) = loops
    same = forth.params["length"] == back.params["length"]
    if not same or forth.params["reverse"] == back.params["reverse"]:
        return None
    results = forth.outputs[forth.params["carry"] :]
    stacked = {v for v in results if uses[v] == back.inputs[first:].count(v)}
    known: dict[tuple[str, Atom], Atom] = {}
    inside = forth.params["body"]
    for group in ("consts", "xs"):
        for operand, var in zip(*_part(forth, group), strict=True):
            known.setdefault((group, operand), var)
    for operand, atom in zip(results, inside.outputs[forth.params["carry"] :], strict=True):
        known["xs", operand] = atom
    crossing: dict[Atom, Atom] = {
        var: known[group, operand]
        for group in ("consts", "xs")
        for operand, var in zip(*_part(back, group), strict=True)
        if (group, operand) in known
    }
    return Pair(forth, back, crossing, stacked)


def _part(loop: Eqn, group: str) -> tuple[Sequence[Atom], Sequence[Var]]:
    """A loop's constants, state or xs: operands, and what they are in the body."""
    consts = loop.params["consts"]
    first = consts + loop.params["carry"]
    ends = {"consts": (0, consts), "carry": (consts, first), "xs": (first, len(loop.inputs))}
    low, high = ends[group]
    return loop.inputs[low:high], loop.params["body"].inputs[low:high]


def _replaced(program: Program, pair: Pair, obey: Obey) -> Program:
    """The program with the values of both loops as `obey` wants them."""
    ahead, behind = pair.forth.params["body"], pair.back.params["body"]
    # What is stacked for the second loop alone is no result here: it may go.
    pairs = zip(pair.forth.outputs, ahead.outputs, strict=True)
    kept = [atom for var, atom in pairs if var not in pair.stacked]
    line = in_line(ahead, behind, kept, pair.crossing, obey)
    forth, stacks = _forth(pair, line.early, line.wanted)
    back = _back(pair, line.late, line.results, line.wanted, stacks)
    eqns = [forth if e is pair.forth else back if e is pair.back else e for e in program.eqns]
    return Program(program.inputs, eqns, program.outputs, program.name, program.consts)


class Line(NamedTuple):
    """Both bodies after `obey`: their equations, the second one's results, and what it reads of
    the first one's values and inputs."""

    early: list[Eqn]
    late: list[Eqn]
    results: list[Atom]
    wanted: list[Var]


def in_line(
    ahead: Program, behind: Program, kept: list[Atom], swap: Mapping[Atom, Atom], obey: Obey
) -> Line:
    """Both bodies one behind the other, obeyed. kept: the first one's results that stay. swap: what
    values of the second one are in the first."""
    own = [v for v in behind.inputs if v not in swap]
    late = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in behind.eqns]
    results = [swap.get(a, a) for a in behind.outputs]
    eqns = [*ahead.eqns, *late]
    whole = Program([*ahead.inputs, *own], eqns, [*kept, *results], behind.name)
    obeyed, small = obey(whole)
    cut = _end(obeyed.eqns, ahead.eqns, small)
    early, late = list(obeyed.eqns[:cut]), list(obeyed.eqns[cut:])
    results = list(obeyed.outputs[len(kept) :])
    local = {*own, *(v for e in late for v in e.outputs)}
    read = dict.fromkeys([*(a for e in late for a in e.inputs), *results])
    return Line(early, late, results, [a for a in read if isinstance(a, Var) and a not in local])


def _end(eqns: Sequence[Eqn], ahead: Sequence[Eqn], small: set[Var]) -> int:
    """Where the equations of the first body, and those that round its values, end."""
    made = {v for e in ahead for v in e.outputs} | small
    silent = sum(not e.outputs for e in ahead)  # effects alone: in their order, and never dropped
    end = 0
    for number, eqn in enumerate(eqns):
        if not made.isdisjoint(eqn.outputs) or (not eqn.outputs and silent > 0):
            end = number + 1
            silent -= not eqn.outputs
    return end


def _forth(pair: Pair, early: list[Eqn], wanted: list[Var]) -> tuple[Eqn, dict[Var, Atom]]:
    """The first loop, and the stacked values of what is wanted of it: results or xs."""
    loop, body, carry = pair.forth, pair.forth.params["body"], pair.forth.params["carry"]
    stacks: dict[Var, Atom] = {v: operand for operand, v in zip(*_part(loop, "xs"), strict=True)}
    fixed = set(_part(loop, "consts")[1])
    outputs, results = list(body.outputs[:carry]), list(loop.outputs[:carry])
    for atom, var in zip(body.outputs[carry:], loop.outputs[carry:], strict=True):
        if var not in pair.stacked:
            outputs.append(atom)
            results.append(var)
    for var in wanted:
        if var not in fixed and var not in stacks:
            outputs.append(var)
            results.append(Var(var.type.with_shape((loop.params["length"], *var.type.shape))))
            stacks[var] = results[-1]
    params = {**loop.params, "body": Program(body.inputs, early, outputs, body.name)}
    return Eqn(loop.op, loop.inputs, params, tuple(results), loop.where, loop.tag), stacks


def _back(
    pair: Pair, late: list[Eqn], results: list[Atom], wanted: list[Var], stacks: dict[Var, Atom]
) -> Eqn:
    """The second loop, which reads what is wanted of the first."""
    loop, body = pair.back, pair.back.params["body"]
    fixed = {v: operand for operand, v in zip(*_part(pair.forth, "consts"), strict=True)}
    inside = {v: Var(v.type) for v in wanted}
    swap: dict[Atom, Atom] = dict(inside.items())
    parts: dict[str, list[tuple[Atom, Var]]] = {}
    for group in ("consts", "carry", "xs"):
        pairs = zip(*_part(loop, group), strict=True)
        parts[group] = [(a, v) for a, v in pairs if v not in pair.crossing]
    parts["consts"] += [(fixed[v], new) for v, new in inside.items() if v in fixed]
    parts["xs"] += [(stacks[v], new) for v, new in inside.items() if v not in fixed]
    everything = [*parts["consts"], *parts["carry"], *parts["xs"]]
    eqns = [e.with_inputs(tuple([swap.get(a, a) for a in e.inputs])) for e in late]
    outputs = [swap.get(a, a) for a in results]
    params = {
        **loop.params,
        "consts": len(parts["consts"]),
        "body": Program([v for _, v in everything], eqns, outputs, body.name),
    }
    given = tuple([a for a, _ in everything])
    return Eqn(loop.op, given, params, loop.outputs, loop.where, loop.tag)
