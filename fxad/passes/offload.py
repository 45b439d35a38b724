"""Where marked values leave memory and when they come back.

before   b = f(a); ...; c = offload(b; place="disk"); d = g(c)
after    b = f(a); put(b; key=0); ...; c = take(; key=0); d = g(c)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from fxad.core.config import config
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import map_subprograms
from fxad.passes.offload_loops import linked

SMALLEST = 1 << 12  # bytes; fewer are not worth a call
_COPIES = ("barrier", "name", "offload")  # results are the operands


def offload(program: Program, memory: int = 0) -> Program:
    """Replace the marks `offload`, in all programs inside too. `memory`: bytes that values on
    their way to the disk may take (0: the setting `offload_memory`).

    Arguments and results are in memory anyway and small values cost more to move than to keep:
    they stay. Memory too small for the largest value is taken as large as that. Runs last:
    equations with effects hold other passes up.
    """
    keys = itertools.count(1 + max(_keys(program), default=-1))

    def visit(inner: Program) -> Program:
        if sum(eqn.op.name == "scan" for eqn in inner.eqns) > 1:
            inner = linked(inner, keys.__next__, memory, _large)
        inner = map_subprograms(inner, visit)
        if not any(eqn.op.name == "offload" for eqn in inner.eqns):
            return inner
        return _placed(inner, keys, memory)

    placed = visit(program)
    if not memory:
        return placed
    return _limited(placed, max([memory, *(size for size, _ in aside(placed, "disk"))]))


def aside(program: Program, place: str, trips: int = 1) -> Iterator[tuple[int, int]]:
    """Bytes of each value that a program, placed already, puts in a place, and how often; a value
    of a while loop counts once."""
    for eqn in program.eqns:
        if eqn.op.name == "put" and eqn.params["place"] == place:
            yield nbytes_of(eqn.inputs[0]), trips
        for _, inner in subprograms(eqn):
            yield from aside(inner, place, trips * eqn.params.get("length", 1))


def staging(program: Program) -> int:
    """Memory in which values wait on their way to the disk, or on the host."""
    host = sum(size * times for size, times in aside(program, "host"))
    disk = sum(size * times for size, times in aside(program, "disk"))
    return host + min(disk, _memory(program) or config.offload_memory)


def _memory(program: Program) -> int:
    """What the puts of a program say: all of them say the same."""
    for eqn in program.eqns:
        if eqn.op.name == "put":
            return eqn.params["memory"]
        for _, inner in subprograms(eqn):
            if found := _memory(inner):
                return found
    return 0


def _limited(program: Program, memory: int) -> Program:
    """All puts with this memory for values on their way to the disk."""
    inner = map_subprograms(program, lambda p: _limited(p, memory))
    if all(eqn.op.name != "put" for eqn in inner.eqns):
        return inner
    eqns = [
        Eqn(e.op, e.inputs, {**e.params, "memory": memory}, e.outputs, e.where, e.tag)
        if e.op.name == "put"
        else e
        for e in inner.eqns
    ]
    return Program(inner.inputs, eqns, inner.outputs, inner.name, inner.consts)


def nbytes_of(atom: Atom) -> int:
    """Bytes of an array; 0 for a tape."""
    return atom.type.nbytes if isinstance(atom.type, ArrayType) else 0


def _placed(program: Program, keys: Iterator[int], memory: int) -> Program:
    source = _sources(program)
    resident: set[Atom] = {*program.inputs, *program.consts}
    resident |= {source.get(a, a) for a in program.outputs}
    away: dict[Var, Eqn] = {}  # value -> its take
    swap: dict[Atom, Atom] = {}  # copies of it that are read after it has come back
    for eqn in program.eqns:
        if eqn.op.name in _COPIES:
            for given, made in zip(eqn.inputs, eqn.outputs, strict=True):
                value = source[made]
                if given in swap:
                    swap[made] = swap[given]
                elif eqn.op.name == "offload" and value not in resident and _large(value):
                    assert isinstance(value, Var)
                    if value not in away:
                        away[value] = _take(value, eqn, next(keys))
                    swap[made] = away[value].outputs[0]
                elif eqn.op.name == "offload":
                    swap[made] = given
    eqns: list[Eqn] = []
    pending: dict[Atom, Eqn] = {take.outputs[0]: take for take in away.values()}
    for eqn in program.eqns:
        if eqn.op.name == "offload" or (eqn.op.name in _COPIES and set(eqn.outputs) <= swap.keys()):
            continue
        inputs = tuple([swap.get(a, a) for a in eqn.inputs])
        eqns += [
            pending.pop(a) for a in dict.fromkeys(inputs) if isinstance(a, Var) and a in pending
        ]
        eqns.append(eqn.with_inputs(inputs))
        eqns += [_put(v, away[v], memory) for v in eqn.outputs if v in away]
    unread = {take.params["key"] for take in pending.values()}
    eqns = [e for e in eqns if e.op.name != "put" or e.params["key"] not in unread]
    outputs = [swap.get(a, a) for a in program.outputs]
    return _narrowed(Program(program.inputs, eqns, outputs, program.name, program.consts))


def _keys(program: Program) -> Iterator[int]:
    """Keys that a program uses already."""
    for eqn in program.eqns:
        if eqn.op.name == "put":
            yield eqn.params["key"]
        for _, inner in subprograms(eqn):
            yield from _keys(inner)


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


def _large(value: Atom) -> bool:
    type_ = value.type
    return isinstance(value, Var) and isinstance(type_, ArrayType) and type_.nbytes >= SMALLEST


def _take(value: Var, mark: Eqn, key: int) -> Eqn:
    params = {"key": key, "place": mark.params["place"], "type": value.type}
    return Eqn(OPS["take"], (), params, (Var(value.type),), mark.where, mark.tag)


def _put(value: Var, take: Eqn, memory: int) -> Eqn:
    params = {"key": take.params["key"], "place": take.params["place"], "memory": memory}
    return Eqn(OPS["put"], (value,), params, (), take.where, take.tag)
