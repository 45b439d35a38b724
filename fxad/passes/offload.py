"""Where marked values leave memory and when they come back.

before   b = f(a); ...; c = offload(b; place="disk"); d = g(c)
after    b = f(a); put(b; key=0); ...; c = take(; key=0); d = g(c)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set

from fxad.ir.offload_ops import keys_of, large, limited, put_of, take_of
from fxad.ir.pairs.joined import Changed
from fxad.ir.pairs.regions import linear_regions
from fxad.ir.program import Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import has_op, map_subprograms
from fxad.ir.uses import makers
from fxad.passes.derived import copied, derived
from fxad.passes.offload_tapes import offload_tapes

_COPIES = ("barrier", "name", "offload")  # results are the operands

Away = dict[Var, tuple[Eqn, Eqn]]  # value -> its put and take
Swap = dict[Atom, Atom]  # copies of it that are read after it has come back


def offload(program: Program, memory: int = 0) -> Program:
    """Replace the marks `offload`, in all programs inside too. `memory`: bytes that values on
    their way to the disk may take where marks do not say (0: the setting `offload_memory`).

    Arguments and results are in memory anyway and small values cost more to move than to keep:
    they stay. Memory too small for the largest value is taken as large as that. Runs last:
    equations with effects hold other passes up.
    """
    if not has_op(program, "offload"):
        return limited(program, memory) if memory else program
    keys = itertools.count(1 + max(keys_of(program), default=-1))

    while (changed := next(_across(program, keys), None)) is not None:
        program = changed

    def visit(inner: Program) -> Program:
        inner = map_subprograms(inner, visit)
        return _placed(inner, keys) if _marks(inner.eqns) else inner

    placed = visit(program)
    return limited(placed, memory) if memory else placed


def _across(program: Program, keys: Iterator[int]) -> Iterator[Program]:
    """The program with values offloaded in loops (or branches) and brought back in their backward
    loops, one loop after the other.

    What one key holds is a stack, so a backward loop finds what it needs on top, and the stacked
    values never exist as arrays.
    """
    for region in linear_regions(program):
        forward = set(makers(region.program.eqns[: region.cut or 0]))
        if any(
            has_op(inner, "offload") for eqn in region.program.eqns for _, inner in subprograms(eqn)
        ):
            straight = offload_tapes(region.program, keys.__next__, forward)
            if straight is not region.program:
                yield region.around(Changed(straight)).program
        if region.cut is not None and _marks(region.program.eqns[region.cut :]):
            placed = _placed(region.program, keys, region.cut, region.state)
            forward |= region.state
            puts = [e for e in placed.eqns if e.op.name == "put" and e.inputs[0] in forward]
            yield region.around(Changed(placed, effects=len(puts))).program


def _marks(eqns: Sequence[Eqn]) -> bool:
    return any(eqn.op.name == "offload" for eqn in eqns)


def _placed(
    program: Program,
    keys: Iterator[int],
    cut: int | None = None,
    state: frozenset[Var] = frozenset(),
) -> Program:
    """The program without marks. cut: equations after that many are of another program, where
    what one reads without a mark is in memory anyway. state: inputs that are not."""
    source = _sources(program)
    away, swap = _going(program, source, keys, _resident(program, source, cut, state))
    there = {*program.inputs, *program.consts} if cut is None else set()
    recomputed = _recomputed(program, away, swap, there)
    pending: dict[Atom, list[Eqn]] = {
        take.outputs[0]: recomputed.get(v, [take]) for v, (_, take) in away.items()
    }
    eqns: list[Eqn] = [away[v][0] for v in program.inputs if v in away]

    def bring(value: Atom) -> None:
        for eqn in pending.pop(value, ()):
            for atom in eqn.inputs:
                bring(atom)
            eqns.append(eqn)

    for eqn in program.eqns:
        if eqn.op.name == "offload" or (eqn.op.name in _COPIES and set(eqn.outputs) <= swap.keys()):
            continue
        inputs = tuple([swap.get(a, a) for a in eqn.inputs])
        for atom in inputs:
            bring(atom)
        eqns.append(eqn.with_inputs(inputs))
        eqns += [away[v][0] for v in eqn.outputs if v in away and v not in recomputed]
    unread = {take.params["key"] for _, take in away.values() if take.outputs[0] in pending}
    eqns = [e for e in eqns if e.op.name != "put" or e.params["key"] not in unread]
    outputs = [swap.get(a, a) for a in program.outputs]
    return _narrowed(Program(program.inputs, eqns, outputs, program.name, program.consts))


def _resident(
    program: Program, source: Mapping[Atom, Atom], cut: int | None, state: frozenset[Var]
) -> set[Atom]:
    """Values that are in memory anyway; for cut and state see `_placed`."""
    resident: set[Atom] = {v for v in (*program.inputs, *program.consts) if v not in state}
    if cut is not None:
        marked = _behind_marks(program)
        readers = [e for e in program.eqns[cut:] if e.op.name not in _COPIES]
        resident |= {source.get(a, a) for e in readers for a in e.inputs if a not in marked}
    resident |= {v for eqn in program.eqns if eqn.op.name == "tape_read" for v in eqn.outputs}
    return resident | {source.get(a, a) for a in program.outputs}


def _going(
    program: Program, source: Mapping[Atom, Atom], keys: Iterator[int], resident: Set[Atom]
) -> tuple[Away, Swap]:
    """The marked values that leave memory, and what is read instead of copies of them."""
    away: Away = {}
    swap: Swap = {}
    for eqn in program.eqns:
        if eqn.op.name not in _COPIES:
            continue
        for given, made in zip(eqn.inputs, eqn.outputs, strict=True):
            value = source[made]
            if given in swap:
                swap[made] = swap[given]
            elif eqn.op.name == "offload" and value not in resident and large(value):
                assert isinstance(value, Var)
                if value not in away:
                    key = next(keys)
                    back = take_of(Var(value.type), key, eqn)
                    away[value] = put_of(value, key, eqn), back
                swap[made] = away[value][1].outputs[0]
            elif eqn.op.name == "offload":
                swap[made] = given
    return away, swap


def _recomputed(program: Program, away: Away, swap: Swap, there: Set[Atom]) -> dict[Var, list[Eqn]]:
    """For values that would go to disk, but need not, the equations that make what is read."""
    named: dict[Atom, set[Atom]] = {}
    for atom, taken in swap.items():
        named.setdefault(taken, set()).add(atom)
    back = {v: take.outputs[0] for v, (_, take) in away.items()}
    disk = {v for v, (put, _) in away.items() if put.params["place"] == "disk"}
    found = derived(program, disk, there - away.keys(), lambda v: named.get(back[v], set()))
    return {v: copied(steps, back, back[v]) for v, steps in found.items()}


def _behind_marks(program: Program) -> set[Atom]:
    """Copies that a mark, or a copy of one, made."""
    marked: set[Atom] = set()
    for eqn in program.eqns:
        if eqn.op.name in _COPIES:
            for given, made in zip(eqn.inputs, eqn.outputs, strict=True):
                if eqn.op.name == "offload" or given in marked:
                    marked.add(made)
    return marked


def _narrowed(program: Program) -> Program:
    """Without what nobody reads: a barrier must not keep values in memory that went elsewhere."""
    live: set[Atom] = set(program.outputs)
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        if eqn.op.name == "barrier":
            pairs = [p for p in zip(eqn.inputs, eqn.outputs, strict=True) if p[1] in live]
            inputs, outputs = tuple(a for a, _ in pairs), tuple(v for _, v in pairs)
            eqn = eqn.copy(inputs=inputs, outputs=outputs)
        if eqn.effects or not live.isdisjoint(eqn.outputs):
            kept.append(eqn)
            live.update(eqn.inputs)
    return Program(program.inputs, kept[::-1], program.outputs, program.name, program.consts)


def _sources(program: Program) -> dict[Atom, Atom]:
    """What each result of an equation that copies is a copy of."""
    source: dict[Atom, Atom] = {}
    for eqn in program.eqns:
        if eqn.op.name in _COPIES:
            for given, made in zip(eqn.inputs, eqn.outputs, strict=True):
                source[made] = source.get(given, given)
    return source
