"""Dependences through ops that hold programs: scans, branches, loops of unknown length.

Scans are followed trip by trip, and so is a `while` as long as its condition is known. From there
on any number of trips may follow: what each of them adds to the dependences is added until nothing
is new.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.analysis.sparsity_pattern import Known, Pattern, size_of, union, width_of
from fxad.ir.program import Eqn, Program

Follow = Callable[[Program, Sequence[Known]], list[Known]]

_TRIPS = 1000  # of a loop are followed one by one
_ROUNDS = 60  # in which dependences may grow; then everything depends on everything


def everything(eqn: Eqn, args: Sequence[Known]) -> list[Known]:
    """Not understood: every element depends on all that the operands do."""
    found = []
    for var in eqn.outputs:
        size = size_of(var.type)
        patterns = [a.pattern.everywhere(size) if a.pattern else None for a in args]
        found.append(Known(union(patterns, size)))
    return found


def _scan(follow: Follow, eqn: Eqn, args: list[Known]) -> list[Known]:
    """Trip by trip."""
    params = eqn.params
    count, carry, length = params["consts"], params["carry"], params["length"]
    consts, state, xs = args[:count], args[count : count + carry], args[count + carry :]
    types = [a.type for a in eqn.inputs[count + carry :]]
    ys: list[list[Known]] = []
    order = range(length)
    for trip in reversed(order) if params["reverse"] else order:
        slices = [_slice(x, t, trip) for x, t in zip(xs, types, strict=True)]
        outs = follow(params["body"], [*consts, *state, *slices])
        state = outs[:carry]
        ys.append(outs[carry:])
    if params["reverse"]:
        ys.reverse()
    stacked = [
        Known(_stack([y[i].pattern for y in ys], var.type))
        for i, var in enumerate(eqn.outputs[carry:])
    ]
    return [*state, *stacked]


def _slice(known: Known, type: Any, trip: int) -> Known:
    size = math.prod(type.shape[1:]) * width_of(type)
    value = None if known.value is None else known.value[trip]
    if known.pattern is None:
        return Known(value=value)
    outs = np.arange(size)
    return Known(known.pattern.through(outs, outs + trip * size, size), value)


def _stack(patterns: list[Pattern | None], type: Any) -> Pattern | None:
    size = math.prod(type.shape[1:]) * width_of(type)
    outs = np.arange(size)
    moved = [
        p.through(outs + trip * size, outs, size_of(type)) if p else None
        for trip, p in enumerate(patterns)
    ]
    return union(moved, size_of(type))


def _cond(follow: Follow, eqn: Eqn, args: list[Known]) -> list[Known]:
    branches = eqn.params["branches"]
    index = args[0].value
    if index is not None:
        return follow(branches[min(max(int(index), 0), len(branches) - 1)], args[1:])
    every = [follow(b, args[1:]) for b in branches]
    return [
        Known(union([outs[i].pattern for outs in every], size_of(var.type)))
        for i, var in enumerate(eqn.outputs)
    ]


def _while(follow: Follow, eqn: Eqn, args: list[Known]) -> list[Known]:
    first, second = eqn.params["cond_consts"], eqn.params["body_consts"]
    tested, fixed, state = args[:first], args[first : first + second], args[first + second :]
    for _ in range(_TRIPS):
        (more,) = follow(eqn.params["cond"], [*tested, *state])
        if more.value is None:
            break
        if not more.value:
            return state
        state = follow(eqn.params["body"], [*fixed, *state])
    return _any_number(follow, eqn, fixed, state)


def _any_number(
    follow: Follow, eqn: Eqn, fixed: Sequence[Known], state: Sequence[Known]
) -> list[Known]:
    """The state after no trip, or one, or two, ...: a fixed point of the body."""
    state = [Known(s.pattern, s.value) for s in state]
    for _ in range(_ROUNDS):
        after = follow(eqn.params["body"], [*fixed, *state])
        both = [
            _either(old, new, size_of(v.type))
            for old, new, v in zip(state, after, eqn.outputs, strict=True)
        ]
        if all(_count(a) == _count(b) for a, b in zip(state, both, strict=True)):
            return both
        state = both
    found = everything(eqn, [*fixed, *state])
    return [Known(f.pattern, s.value) for f, s in zip(found, state, strict=True)]


def _either(old: Known, new: Known, size: int) -> Known:
    known = old.value is not None and new.value is not None
    same = known and np.asarray(old.value).tobytes() == np.asarray(new.value).tobytes()
    return Known(union([old.pattern, new.pattern], size), old.value if same else None)


def _count(known: Known) -> tuple[int, bool]:
    return 0 if known.pattern is None else len(known.pattern.rows), known.value is None


FOLLOWED: dict[str, Callable[[Follow, Eqn, list[Known]], list[Known]]] = {
    "scan": _scan,
    "cond": _cond,
    "while": _while,
    "while_linear": lambda follow, eqn, args: everything(eqn, args),
}
