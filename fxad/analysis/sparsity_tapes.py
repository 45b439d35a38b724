"""Dependences through tapes: a slot's where slot numbers are known, else those of all slots."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fxad.analysis.sparsity_pattern import Known, Pattern, size_of, union, width_of
from fxad.core.types import TapeType, tape_type
from fxad.ir.program import Eqn


def _places(type: TapeType) -> list[np.ndarray]:
    """Where the elements of each block, written as [*lanes, *shape], are among the tape's."""
    starts = np.arange(math.prod(type.lanes))[:, None] * width_of(type)
    places, first = [], 0
    for block in type.blocks:
        size = size_of(block)
        places.append((starts + np.arange(first, first + size)).ravel())
        first += size
    return places


def _number(known: Known) -> int | None:
    """A slot number, if it is known and there is one tape."""
    return int(known.value) if known.value is not None and np.ndim(known.value) == 0 else None


def _new(eqn: Eqn, args: list[Known]) -> list[Known]:
    return [Known(slots={})]


def _write(eqn: Eqn, args: list[Known]) -> list[Known]:
    tape, number, *blocks = args
    size = size_of(eqn.outputs[0].type)
    patterns: list[Pattern | None] = [tape.pattern]
    for block, places in zip(blocks, _places(tape_type(eqn.outputs[0].type)), strict=True):
        if block.pattern is not None:
            patterns.append(block.pattern.through(places, np.arange(len(places)), size))
    slot, slots = _number(number), None
    if slot is not None and tape.slots is not None:
        slots = {**tape.slots, slot: tuple(blocks)} if slot >= 0 else tape.slots
    return [Known(union(patterns, size), slots=slots)]


def _read(eqn: Eqn, args: list[Known]) -> list[Known]:
    tape, number = args
    slot = _number(number)
    if slot is not None and tape.slots is not None and slot in tape.slots:
        return list(tape.slots[slot])
    found = []
    assert isinstance(eqn.inputs[0].type, TapeType)
    for places in _places(eqn.inputs[0].type):
        pattern = tape.pattern
        if pattern is not None:
            pattern = pattern.through(np.arange(len(places)), places, len(places))
        found.append(Known(pattern))
    return found


def _add(eqn: Eqn, args: list[Known]) -> list[Known]:
    return [Known(union([a.pattern for a in args], size_of(eqn.outputs[0].type)))]


def _rearranged(eqn: Eqn, args: list[Known]) -> list[Known]:
    """An array of tapes with more lanes, or in another order."""
    type_ = eqn.inputs[0].type
    assert isinstance(type_, TapeType)
    places = np.arange(size_of(type_)).reshape(*type_.lanes, width_of(type_))
    if eqn.op.name == "tape_transpose":
        moved = places.transpose(*eqn.params["permutation"], len(type_.lanes))
    else:
        size, at = eqn.params["size"], eqn.params["at"]
        moved = np.expand_dims(places, at).repeat(size, at)
    pattern = args[0].pattern
    if pattern is None:
        return [Known()]
    return [Known(pattern.through(np.arange(moved.size), moved.ravel(), moved.size))]


TAPES: dict[str, Callable[[Eqn, list[Known]], list[Known]]] = {
    "tape_new": _new,
    "tape_write": _write,
    "tape_read": _read,
    "tape_add": _add,
    "tape_lanes": _rearranged,
    "tape_transpose": _rearranged,
    "tape_span": lambda eqn, args: [Known(), Known()],
}
