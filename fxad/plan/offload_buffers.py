"""Offloaded values live in their offload buffer also while they are used: no copies of them.

before   x = f(a); put(x); y = g(x);          ...  x' = take();  z = h(x')
after    acquire x; x = f(a); y = g(x); put(x);  ...  acquire x';  z = h(x');  release x'
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fxad.core.record import record
from fxad.ir import heuristics
from fxad.ir.block import (
    Block,
    Branch,
    Copy,
    Host,
    Launch,
    Loop,
    LoweredStep,
    While,
    reads_of,
)
from fxad.ir.program import Var


@record
class OffloadBuffer:
    """A function that acquires the buffer of one value, before the step that makes it or instead of
    it, and one that releases it after its last use: called with the value if it is offloaded then
    (`puts`). instead: the step that these stand for."""

    acquire: Callable[..., object]
    release: Callable[..., object]
    instead: Host
    puts: bool


def offload_buffers(
    block: Block, first: dict[Var, int], last: dict[Var, int]
) -> dict[Var, OffloadBuffer]:
    """Values of a block that can live in their offload buffers: made by kernels and offloaded here,
    read to the end before they are fetched, or fetched here; no outputs.

    first, last: numbers of the steps that first write and last touch each value.
    """
    found: dict[Var, OffloadBuffer] = {}
    for number, step in enumerate(block.steps):
        functions = getattr(step.function, "buffer", None) if isinstance(step, Host) else None
        if not isinstance(step, Host) or functions is None:
            continue
        (value,) = step.operands or step.results
        if value in found or last[value] >= len(block.steps):
            continue
        if value.type.nbytes < heuristics.OFFLOAD_BUFFER_BYTES:
            continue
        puts = bool(step.operands)
        if puts:
            maker = block.steps[first[value]] if value in first else None
            after = block.steps[number + 1 : last[value] + 1]
            beside = (*block.steps[first.get(value, 0) + 1 : number], *after)
            key = step.function.key  # type: ignore[attr-defined]
            if not isinstance(maker, Launch | Copy) or key in _fetched(beside):
                continue
            if any(_puts(s) and value in reads_of(s) for s in after):
                continue
        acquire, release = functions
        found[value] = OffloadBuffer(acquire, step.function if puts else release, step, puts)
    return found


def _puts(step: LoweredStep) -> bool:
    return isinstance(step, Host) and hasattr(step.function, "buffer")


def _fetched(steps: tuple[LoweredStep, ...]) -> set[int]:
    """Keys of what the steps, and those inside, fetch."""
    return {s.function.key for s in _hosts(steps) if _puts(s)}  # type: ignore[attr-defined]


def _hosts(steps: tuple[LoweredStep, ...]) -> Iterator[Host]:
    for step in steps:
        match step:
            case Host():
                yield step
            case Loop():
                yield from _hosts(step.body.steps)
            case While():
                yield from _hosts((*step.cond.steps, *step.body.steps))
            case Branch():
                for branch in step.branches:
                    yield from _hosts(branch.steps)
            case _:
                pass
