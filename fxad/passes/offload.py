"""Where marked values leave memory and when they come back.

before   b = f(a); ...; c = offload(b; place="disk"); d = g(c)
after    b = f(a); put(b; key=0); ...; c = take(; key=0); d = g(c)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fxad.ir.program import Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import map_subprograms
from fxad.passes.aside import keys_of, large, limited, put_of, take_of
from fxad.passes.offload_loops import linked
from fxad.passes.offload_tapes import played

_COPIES = ("barrier", "name", "offload")  # results are the operands


def offload(program: Program, memory: int = 0) -> Program:
    """Replace the marks `offload`, in all programs inside too. `memory`: bytes that values on
    their way to the disk may take where marks do not say (0: the setting `offload_memory`).

    Arguments and results are in memory anyway and small values cost more to move than to keep:
    they stay. Memory too small for the largest value is taken as large as that. Runs last:
    equations with effects hold other passes up.
    """
    if not _marked(program):
        return limited(program, memory) if memory else program
    keys = itertools.count(1 + max(keys_of(program), default=-1))

    def visit(inner: Program) -> Program:
        loops = [eqn.op.name for eqn in inner.eqns if eqn.op.name in ("scan", "while")]
        if loops.count("scan") > 1:
            inner = linked(inner, keys.__next__)
        if loops.count("while") > 1:
            inner = played(inner, keys.__next__)
        inner = map_subprograms(inner, visit)
        if not any(eqn.op.name == "offload" for eqn in inner.eqns):
            return inner
        return _placed(inner, keys)

    placed = visit(program)
    return limited(placed, memory) if memory else placed


def _marked(program: Program) -> bool:
    return any(
        eqn.op.name == "offload" or any(_marked(inner) for _, inner in subprograms(eqn))
        for eqn in program.eqns
    )


def _placed(program: Program, keys: Iterator[int]) -> Program:
    source = _sources(program)
    resident: set[Atom] = {*program.inputs, *program.consts}
    resident |= {v for eqn in program.eqns if eqn.op.name == "tape_read" for v in eqn.outputs}
    resident |= {source.get(a, a) for a in program.outputs}
    away: dict[Var, tuple[Eqn, Eqn]] = {}  # value -> its put and take
    swap: dict[Atom, Atom] = {}  # copies of it that are read after it has come back
    for eqn in program.eqns:
        if eqn.op.name in _COPIES:
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
    eqns: list[Eqn] = []
    pending: dict[Atom, Eqn] = {take.outputs[0]: take for _, take in away.values()}
    for eqn in program.eqns:
        if eqn.op.name == "offload" or (eqn.op.name in _COPIES and set(eqn.outputs) <= swap.keys()):
            continue
        inputs = tuple([swap.get(a, a) for a in eqn.inputs])
        eqns += [
            pending.pop(a) for a in dict.fromkeys(inputs) if isinstance(a, Var) and a in pending
        ]
        eqns.append(eqn.with_inputs(inputs))
        eqns += [away[v][0] for v in eqn.outputs if v in away]
    unread = {take.params["key"] for take in pending.values()}
    eqns = [e for e in eqns if e.op.name != "put" or e.params["key"] not in unread]
    outputs = [swap.get(a, a) for a in program.outputs]
    return _narrowed(Program(program.inputs, eqns, outputs, program.name, program.consts))


def _narrowed(program: Program) -> Program:
    """Without what nobody reads: a barrier must not keep values in memory that went elsewhere."""
    live: set[Atom] = set(program.outputs)
    kept: list[Eqn] = []
    for eqn in reversed(program.eqns):
        if eqn.op.name == "barrier":
            pairs = [p for p in zip(eqn.inputs, eqn.outputs, strict=True) if p[1] in live]
            inputs, outputs = tuple(a for a, _ in pairs), tuple(v for _, v in pairs)
            eqn = Eqn(eqn.op, inputs, eqn.params, outputs, eqn.where, eqn.tag)
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
