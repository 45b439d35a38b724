"""Loops and branches: where their state lives, and their bodies planned in place.

Carried state is double-buffered, its two buffers exchanged after every iteration, unless the body
may overwrite it. Stacked results are written and slices read through views that the loop moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fxad.core.types import TapeType
from fxad.ir import block as blocks
from fxad.ir.block import Block, Launch
from fxad.ir.plan import Branch, Copy, Loop, Slot, Step, Taping, View, While
from fxad.ir.program import Var
from fxad.plan.allocation import Allocation, Frame, Storage
from fxad.plan.reuse import AccessesOf, first_writes, last_uses, may_reuse


class Nested(Protocol):
    """Plans a block inside another one: its inputs lie in `inputs`, its outputs are wanted in
    `targets`, those numbered in `kept` are there already; `inner`: where values inside must lie."""

    def __call__(
        self,
        block: Block,
        inputs: Sequence[Allocation],
        targets: Sequence[Allocation],
        kept: set[int],
        inner: Mapping[Var, Allocation] | None = None,
    ) -> list[Step]: ...


@dataclass(eq=False, slots=True)
class _State:
    """Carried state: where the body reads and writes it, and what is exchanged."""

    before: list[Allocation] = field(default_factory=list)
    after: list[Allocation] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)
    updated: dict[Var, Allocation] = field(default_factory=dict)  # on the way from old to new
    swaps: list[tuple[Slot, Slot]] = field(default_factory=list)
    temporary: list[Allocation] = field(default_factory=list)
    start: list[Step] = field(default_factory=list)
    end: list[Step] = field(default_factory=list)


def loop(
    storage: Storage, frame: Frame, step: blocks.Loop, nested: Nested, accesses: AccessesOf
) -> list[Step]:
    """A scan: the number of trips is known, so the last state ends up where the result is."""
    consts, carry = step.consts, step.carry
    inits = step.inputs[consts : consts + carry]
    state = _carried(storage, accesses, frame, step.body, consts, inits, step.results, step.trips)
    slices = step.body.inputs[consts + carry :]
    views, read = _views(storage, frame, step.inputs[consts + carry :], slices)
    stacked = step.body.outputs[carry:]
    more, written = _views(storage, frame, step.results[carry:], stacked)
    known = [storage.allocation(frame, v) for v in step.inputs[:consts]]
    storage.depth += 1
    body = nested(
        step.body,
        [*known, *state.before, *read],
        [*state.after, *written],
        state.kept,
        state.updated,
    )
    storage.depth -= 1
    swaps = tuple(state.swaps)
    frees = _frees(step.body, body)
    moving = (*views, *more)
    steps = [*state.start, Loop(step.trips, step.reverse, moving, tuple(body), swaps, frees)]
    if step.trips % 2 and swaps and storage.depth:
        # An enclosing loop comes here again: the slots must point where they did at first.
        steps.append(Loop(1, False, (), (), swaps))
    steps += state.end
    for allocation in state.temporary:
        storage.release(allocation)
    return steps


def while_loop(
    storage: Storage, frame: Frame, step: blocks.While, nested: Nested, accesses: AccessesOf
) -> list[Step]:
    """A while: the state is copied to the result from wherever it is in the end."""
    first = step.cond_consts + step.body_consts
    inits = step.inputs[first:]
    state = _carried(
        storage, accesses, frame, step.body, step.body_consts, inits, step.results, None
    )
    known = [storage.allocation(frame, v) for v in step.inputs[:first]]
    predicate = storage.allocate(1)
    storage.depth += 1
    cond = nested(step.cond, [*known[: step.cond_consts], *state.before], [predicate], set())
    body = nested(
        step.body,
        [*known[step.cond_consts :], *state.before],
        state.after,
        state.kept,
        state.updated,
    )
    storage.depth -= 1
    test = storage.slot(predicate, step.cond.outputs[0].type)
    frees = _frees(step.body, body)
    steps = [*state.start, While(tuple(cond), test, tuple(body), tuple(state.swaps), frees)]
    for var, allocation, number in zip(step.results, state.before, range(len(inits)), strict=True):
        if number not in state.kept and state.before[number] is not state.after[number]:
            steps.append(Copy(storage.slot_of(frame, var), storage.slot(allocation, var.type)))
    for allocation in [*state.temporary, predicate]:
        storage.release(allocation)
    return steps


def _frees(block: Block, steps: Sequence[Step]) -> bool:
    """Whether a body writes tapes of its own, none of which outlives a trip."""
    return not any(isinstance(v.type, TapeType) for v in block.outputs) and _writes_tape(steps)


def _writes_tape(steps: Sequence[Step]) -> bool:
    for step in steps:
        match step:
            case Taping():
                if step.kind == "write":
                    return True
            case Loop() | While():
                if not step.frees and _writes_tape(step.body):
                    return True
            case Branch():
                if any(map(_writes_tape, step.branches)):
                    return True
            case _:
                pass
    return False


def branch(storage: Storage, frame: Frame, step: blocks.Branch, nested: Nested) -> list[Step]:
    """Every branch writes its results where the equation's results are."""
    inputs = [storage.allocation(frame, v) for v in step.operands]
    targets = [storage.allocation(frame, v) for v in step.results]
    branches = [tuple(nested(b, inputs, targets, set())) for b in step.branches]
    return [Branch(storage.slot_of(frame, step.index), tuple(branches))]


def _views(
    storage: Storage, frame: Frame, whole: Sequence[Var], blocks: Sequence[Var]
) -> tuple[list[View], list[Allocation]]:
    """A moving view of every whole array's blocks along its first axis."""
    views, allocations = [], []
    for array, block in zip(whole, blocks, strict=True):
        allocation = Allocation("view", block.type.nbytes, moving=True)
        views.append(View(storage.slot(allocation, block.type), storage.slot_of(frame, array)))
        allocations.append(allocation)
    return views, allocations


def _carried(
    storage: Storage,
    accesses: AccessesOf,
    frame: Frame,
    body: Block,
    consts: int,
    inits: Sequence[Var],
    results: Sequence[Var],
    trips: int | None,
) -> _State:
    """Where the carried state lives. The initial values are copied in unless they are there.

    trips: None if unknown; then the exchanged slots may point anywhere when the loop is over.
    """
    state = _State()
    first, last = first_writes(body), last_uses(body)
    for number, init in enumerate(inits):
        before, after = body.inputs[consts + number], body.outputs[number]
        home = storage.allocation(frame, results[number])
        type_ = before.type
        if before is after:
            state.kept.add(number)
        chain = _updates(body, before, after, first, last)
        if before is after or chain or _overwritable(accesses, body, before, after, first, last):
            one = two = start = home
            state.updated.update(dict.fromkeys(chain, home))
        else:
            fixed, spare = home, storage.allocate(type_.nbytes)
            state.temporary.append(spare)
            if home.moving:
                fixed = storage.allocate(type_.nbytes)
                state.temporary.append(fixed)
                state.end.append(Copy(storage.slot(home, type_), storage.slot(fixed, type_)))
            one, two = (spare, fixed) if (trips or 0) % 2 else (fixed, spare)
            start = one
            one, two = one.exchanged(), two.exchanged()
            state.swaps.append((storage.slot(one, type_), storage.slot(two, type_)))
        source = storage.allocation(frame, init)
        astray = trips is None and storage.depth > 0 and one is not start
        if astray or not storage.shared(start, source):
            state.start.append(Copy(storage.slot(one, type_), storage.slot(source, init.type)))
        state.before.append(one)
        state.after.append(two)
    return state


def _updates(
    body: Block, before: Var, after: Var, first: dict[Var, int], last: dict[Var, int]
) -> list[Var]:
    """The values between an old state and the new one where a chain of updates, each the last
    reader of the one before, makes the new from the old; they can all have one allocation."""
    if after in body.inputs or body.outputs.count(after) != 1:
        return []
    chain, current = [], after
    while current is not before:
        if current not in first:
            return []
        number = first[current]
        step = body.steps[number]
        if not isinstance(step, Launch):
            return []
        operand = dict(step.replaces).get(current)
        if operand is None or operand in step.args or last.get(operand) != number:
            return []
        if operand in body.outputs:
            return []
        chain.append(operand)
        current = operand
    return chain[:-1]


def _overwritable(
    accesses: AccessesOf,
    body: Block,
    before: Var,
    after: Var,
    first: dict[Var, int],
    last: dict[Var, int],
) -> bool:
    """Whether the body may write the new state over the old one."""
    if after in body.inputs or after not in first or body.outputs.count(after) != 1:
        return False
    write, end = first[after], last.get(before, -1)
    if end == write:
        return may_reuse(body.steps[write], after, before, accesses)
    return end < write
