"""Loops and branches: where their state lives, and their bodies planned in place.

Carried state is double-buffered, its two buffers exchanged after every iteration, unless the body
may overwrite it. Stacked results are written and slices read through views that the loop moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxad.core.types import TapeType
from fxad.ir.block import Block, Branching, Launch, Looping, Whiling
from fxad.ir.plan import Branch, Copy, Loop, Slot, Step, Taping, View, While
from fxad.ir.program import Var
from fxad.plan.allocation import Allocation
from fxad.plan.reuse import first_writes, last_uses, may_reuse

if TYPE_CHECKING:
    from fxad.plan.planner import Frame, Planner


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


def loop(planner: Planner, frame: Frame, step: Looping) -> list[Step]:
    """A scan: the number of trips is known, so the last state ends up where the result is."""
    consts, carry = step.consts, step.carry
    inits = step.inputs[consts : consts + carry]
    state = _carried(planner, frame, step.body, consts, inits, step.results, step.trips)
    slices = step.body.inputs[consts + carry :]
    views, read = _views(planner, frame, step.inputs[consts + carry :], slices)
    stacked = step.body.outputs[carry:]
    more, written = _views(planner, frame, step.results[carry:], stacked)
    known = [planner.allocation(frame, v) for v in step.inputs[:consts]]
    planner.depth += 1
    body = planner.nested(
        step.body,
        [*known, *state.before, *read],
        [*state.after, *written],
        state.kept,
        state.updated,
    )
    planner.depth -= 1
    swaps = tuple(state.swaps)
    frees = _frees(step.body, body)
    moving = (*views, *more)
    steps = [*state.start, Loop(step.trips, step.reverse, moving, tuple(body), swaps, frees)]
    if step.trips % 2 and swaps and planner.depth:
        # An enclosing loop comes here again: the slots must point where they did at first.
        steps.append(Loop(1, False, (), (), swaps))
    steps += state.end
    for allocation in state.temporary:
        planner.release(allocation)
    return steps


def while_loop(planner: Planner, frame: Frame, step: Whiling) -> list[Step]:
    """A while: the state is copied to the result from wherever it is in the end."""
    first = step.cond_consts + step.body_consts
    inits = step.inputs[first:]
    state = _carried(planner, frame, step.body, step.body_consts, inits, step.results, None)
    known = [planner.allocation(frame, v) for v in step.inputs[:first]]
    predicate = planner.allocate(1)
    planner.depth += 1
    cond = planner.nested(
        step.cond, [*known[: step.cond_consts], *state.before], [predicate], set()
    )
    body = planner.nested(
        step.body,
        [*known[step.cond_consts :], *state.before],
        state.after,
        state.kept,
        state.updated,
    )
    planner.depth -= 1
    test = planner.slot(predicate, step.cond.outputs[0].type)
    frees = _frees(step.body, body)
    steps = [*state.start, While(tuple(cond), test, tuple(body), tuple(state.swaps), frees)]
    for var, allocation, number in zip(step.results, state.before, range(len(inits)), strict=True):
        if number not in state.kept and state.before[number] is not state.after[number]:
            steps.append(Copy(planner.slot_of(frame, var), planner.slot(allocation, var.type)))
    for allocation in [*state.temporary, predicate]:
        planner.release(allocation)
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


def branch(planner: Planner, frame: Frame, step: Branching) -> list[Step]:
    """Every branch writes its results where the equation's results are."""
    inputs = [planner.allocation(frame, v) for v in step.operands]
    targets = [planner.allocation(frame, v) for v in step.results]
    branches = [tuple(planner.nested(b, inputs, targets, set())) for b in step.branches]
    return [Branch(planner.slot_of(frame, step.index), tuple(branches))]


def _views(
    planner: Planner, frame: Frame, whole: Sequence[Var], blocks: Sequence[Var]
) -> tuple[list[View], list[Allocation]]:
    """A moving view of every whole array's blocks along its first axis."""
    views, allocations = [], []
    for array, block in zip(whole, blocks, strict=True):
        allocation = Allocation("view", block.type.nbytes, moving=True)
        views.append(View(planner.slot(allocation, block.type), planner.slot_of(frame, array)))
        allocations.append(allocation)
    return views, allocations


def _carried(
    planner: Planner,
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
        home = planner.allocation(frame, results[number])
        type_ = before.type
        if before is after:
            state.kept.add(number)
        chain = _updates(body, before, after, first, last)
        if before is after or chain or _overwritable(planner, body, before, after, first, last):
            one = two = start = home
            state.updated.update(dict.fromkeys(chain, home))
        else:
            fixed, spare = home, planner.allocate(type_.nbytes)
            state.temporary.append(spare)
            if home.moving:
                fixed = planner.allocate(type_.nbytes)
                state.temporary.append(fixed)
                state.end.append(Copy(planner.slot(home, type_), planner.slot(fixed, type_)))
            one, two = (spare, fixed) if (trips or 0) % 2 else (fixed, spare)
            start = one
            one, two = one.exchanged(), two.exchanged()
            state.swaps.append((planner.slot(one, type_), planner.slot(two, type_)))
        source = planner.allocation(frame, init)
        astray = trips is None and planner.depth > 0 and one is not start
        if astray or not planner.shared(start, source):
            state.start.append(Copy(planner.slot(one, type_), planner.slot(source, init.type)))
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
    planner: Planner,
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
        return may_reuse(body.steps[write], after, before, planner.accesses)
    return end < write
