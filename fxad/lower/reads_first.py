"""Readers of an array before what updates it, so that the update may happen in place.

y = x with x[i] = v;  u = x[j]        becomes        u = x[j];  y = x with x[i] = v
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.ir.block import Block, Launch, LoweredStep, reads_of, writes_of
from fxad.ir.program import Var


def reads_first(block: Block) -> Block:
    """Move kernels that read an updated operand, and kernels they need, before the update.

    Only kernels that update nothing themselves are moved, and only if none of them needs the
    update's result.
    """
    order = list(block.steps)
    at = 0
    while at < len(order):
        step = order[at]
        olds = [old for _, old in step.replaces] if isinstance(step, Launch) else []
        moved = _earlier(order, at, set(olds)) if olds else []
        if moved:
            group = [order[n] for n in moved]
            rest = [s for n, s in enumerate(order[at:], at) if n not in set(moved)]
            order[at:] = [*group, *rest]
            at += len(group)
        at += 1
    return Block(block.inputs, tuple(order), block.outputs)


def _earlier(order: Sequence[LoweredStep], at: int, olds: set[Var]) -> list[int]:
    """Numbers of the later steps that should run before step `at`."""
    writers: dict[Var, list[int]] = {}
    for number in range(at, len(order)):
        for var in writes_of(order[number]):
            writers.setdefault(var, []).append(number)
    wanted: set[int] = set()
    for number in range(at + 1, len(order)):
        if not olds.isdisjoint(reads_of(order[number])):
            needed = _needed(order, number, writers)
            if at not in needed and all(_movable(order[n]) for n in needed):
                wanted |= needed
    return sorted(wanted)


def _needed(order: Sequence[LoweredStep], number: int, writers: dict[Var, list[int]]) -> set[int]:
    """A step and the ones from `at` on that it reads results of, directly or not."""
    found, pending = {number}, [number]
    while pending:
        for var in reads_of(order[pending.pop()]):
            for writer in writers.get(var, ()):
                if writer not in found:
                    found.add(writer)
                    pending.append(writer)
    return found


def _movable(step: LoweredStep) -> bool:
    return isinstance(step, Launch) and not step.replaces
