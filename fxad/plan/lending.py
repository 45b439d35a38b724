"""Values that are put aside lie where they wait also while they are used: no copies of them.

before   x = f(a); put(x); y = g(x);          ...  x' = take();  z = h(x')
after    lend x; x = f(a); y = g(x); put(x);  ...  lend x';  z = h(x');  give back x'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fxad.core.record import record
from fxad.ir.block import (
    Block,
    Branching,
    HostStep,
    Launch,
    Looping,
    LoweredStep,
    Transfer,
    Whiling,
    reads_of,
)
from fxad.ir.program import Var

LEAST = 1 << 16  # bytes; to copy fewer takes less time than two calls more


@record
class Lending:
    """What lends the memory of one value, before the step that makes it or instead of it, and what
    ends that after the value's last use: called with the value if it is then put aside."""

    begin: Callable[..., Any]
    end: Callable[..., Any]
    instead: HostStep
    puts: bool


def lendings(block: Block, first: dict[Var, int], last: dict[Var, int]) -> dict[Var, Lending]:
    """Values of a block that can lie where they wait: made by kernels and put aside here, read to
    the end before they are taken back, or taken back here; no outputs.

    first, last: numbers of the steps that first write and last touch each value.
    """
    found: dict[Var, Lending] = {}
    for number, step in enumerate(block.steps):
        lend = getattr(step.function, "lend", None) if isinstance(step, HostStep) else None
        if not isinstance(step, HostStep) or lend is None:
            continue
        (value,) = step.operands or step.results
        if value in found or last[value] >= len(block.steps) or value.type.nbytes < LEAST:
            continue
        puts = bool(step.operands)
        if puts:
            maker = block.steps[first[value]] if value in first else None
            after = block.steps[number + 1 : last[value] + 1]
            beside = (*block.steps[first.get(value, 0) + 1 : number], *after)
            key = step.function.key  # type: ignore[attr-defined]
            if not isinstance(maker, Launch | Transfer) or key in _taken(beside):
                continue
            if any(_puts(s) and value in reads_of(s) for s in after):
                continue
        begin, end = lend
        found[value] = Lending(begin, step.function if puts else end, step, puts)
    return found


def _puts(step: LoweredStep) -> bool:
    return isinstance(step, HostStep) and hasattr(step.function, "lend")


def _taken(steps: tuple[LoweredStep, ...]) -> set[int]:
    """Keys of what the steps, and those inside, take back."""
    return {s.function.key for s in _hosts(steps) if _puts(s)}  # type: ignore[attr-defined]


def _hosts(steps: tuple[LoweredStep, ...]) -> Iterator[HostStep]:
    for step in steps:
        match step:
            case HostStep():
                yield step
            case Looping():
                yield from _hosts(step.body.steps)
            case Whiling():
                yield from _hosts((*step.cond.steps, *step.body.steps))
            case Branching():
                for branch in step.branches:
                    yield from _hosts(branch.steps)
            case _:
                pass
