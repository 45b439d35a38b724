"""Equations that offload values and bring them back, and the memory of values on their way."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fxad.core.config import config
from fxad.core.types import ArrayType
from fxad.ir.program import OPS, Atom, Eqn, Program, Var, subprograms
from fxad.ir.rewrite import map_subprograms

SMALLEST = 1 << 12  # bytes; fewer are not worth a call


def put_of(value: Atom, key: int, mark: Eqn) -> Eqn:
    """Put a value where a mark says."""
    params = {"key": key, "place": mark.params["place"], "memory": mark.params["memory"]}
    return Eqn(OPS["put"], (value,), params, (), mark.where, mark.tag)


def take_of(value: Var, key: int, mark: Eqn) -> Eqn:
    """Take it back as `value`."""
    params = {"key": key, "type": value.type}
    return Eqn(OPS["take"], (), params, (value,), mark.where, mark.tag)


def nbytes_of(atom: Atom) -> int:
    """Bytes of an array; 0 for a tape."""
    return atom.type.nbytes if isinstance(atom.type, ArrayType) else 0


def large(value: Atom) -> bool:
    """Whether a value is worth a call."""
    return isinstance(value, Var) and nbytes_of(value) >= SMALLEST


def puts(program: Program, times: float = 1) -> Iterator[tuple[Eqn, float]]:
    """Every `put` of a program and of those inside, and how often it happens at most."""
    for eqn in program.eqns:
        if eqn.op.name == "put":
            yield eqn, times
        trips = math.inf if eqn.op.name == "while" else eqn.params.get("length", 1)
        for _, inner in subprograms(eqn):
            yield from puts(inner, times * trips)


def staging(program: Program) -> int:
    """Bytes for values on their way to the disk, and of values offloaded to the host. What a while
    loop puts there counts once: its trip count is unknown."""
    host, disk = 0, dict[int, float]()
    for put, times in puts(program):
        memory, nbytes = put.params["memory"], nbytes_of(put.inputs[0])
        if put.params["place"] == "host":
            host += nbytes * int(times if math.isfinite(times) else 1)
        else:
            disk[memory] = disk.get(memory, 0) + nbytes * times
    return host + sum(int(min(n, memory or config.offload_memory)) for memory, n in disk.items())


def limited(program: Program, memory: int) -> Program:
    """The program with this memory, or as much as the largest value needs, for values on their way
    to the disk whose marks did not say."""
    needed = [nbytes_of(put.inputs[0]) for put, _ in puts(program) if put.params["place"] == "disk"]
    return _limited(program, max([memory, *needed]))


def _limited(program: Program, memory: int) -> Program:
    inner = map_subprograms(program, lambda p: _limited(p, memory))
    if all(eqn.op.name != "put" or eqn.params["memory"] for eqn in inner.eqns):
        return inner
    eqns = [
        e.copy(params={**e.params, "memory": memory})
        if e.op.name == "put" and not e.params["memory"]
        else e
        for e in inner.eqns
    ]
    return Program(inner.inputs, eqns, inner.outputs, inner.name, inner.consts)


def keys_of(program: Program) -> Iterator[int]:
    """Keys that a program uses already."""
    for put, _ in puts(program):
        yield put.params["key"]
