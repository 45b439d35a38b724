"""Does a Plan keep the rules of `ir/plan.py`? Native code trusts that it does.

check_plan(plan)     # CheckError: copy from f32[8] to f32[7]: sizes differ
"""

from __future__ import annotations

import numpy as np

from fxad.core import dtypes
from fxad.core.errors import CheckError
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While, walk


def check_plan(plan: Plan, stage: str = "") -> None:
    """Raises CheckError, which names the stage, where a slot or a step breaks a rule."""
    try:
        _check(plan)
    except CheckError as error:
        if not stage:
            raise
        raise CheckError(f"after {stage}: {error}") from None


def _check(plan: Plan) -> None:
    for slot in plan.slots:
        _check_slot(slot, plan)
    listed = set(plan.slots)
    placed = {view.slot for s in walk(plan.steps) if isinstance(s, Loop) for view in s.views}
    for slot in plan.slots:
        if slot.place == "view" and slot not in placed:
            raise CheckError(f"slot {slot.id} ({slot.type}) is a view that no loop moves")
    for step in walk(plan.steps):
        _check_step(step)
        for slot in slots_of(step):
            if slot not in listed:
                raise CheckError(f"a step uses slot {slot.id}, which Plan.slots does not list")


def slots_of(step: Step) -> list[Slot]:
    """The slots that a step names itself, those of steps inside left aside."""
    match step:
        case Run():
            return list(step.slots)
        case Copy():
            return [step.src, step.dst]
        case Host() | Taping():
            return [*step.inputs, *step.outputs]
        case Loop():
            views = [slot for view in step.views for slot in (view.base, view.slot)]
            return [*views, *[slot for pair in step.swaps for slot in pair]]
        case While():
            return [step.predicate, *[slot for pair in step.swaps for slot in pair]]
        case Branch():
            return [step.index]
    raise CheckError(f"not a plan step: {step!r}")


def _check_slot(slot: Slot, plan: Plan) -> None:
    if slot.place == "arena" and not 0 <= slot.offset <= plan.arena_bytes - slot.type.nbytes:
        raise CheckError(f"slot {slot.id} ({slot.type}) lies outside the plan's arena")
    if slot.place == "constant":
        given = np.asarray(plan.constants[slot.number])
        if given.shape != slot.type.shape or given.dtype != slot.type.dtype:
            raise CheckError(
                f"slot {slot.id} is {slot.type} but constant {slot.number} is "
                f"{given.dtype}{list(given.shape)}"
            )


def _check_step(step: Step) -> None:
    match step:
        case Run():
            _check_run(step)
        case Copy() if step.dst.type.nbytes != step.src.type.nbytes:
            raise CheckError(f"copy from {step.src.type} to {step.dst.type}: sizes differ")
        case Loop():
            for view in step.views:
                if view.slot.type.nbytes * step.trips > view.base.type.nbytes:
                    raise CheckError(
                        f"{step.trips} blocks of {view.slot.type} do not fit in {view.base.type}"
                    )
            _check_swaps(step)
        case While():
            if not dtypes.is_bool(step.predicate.type.dtype):
                raise CheckError(f"a while needs a bool predicate, got {step.predicate.type}")
            _check_swaps(step)
        case Branch() if step.index.type.dtype not in (dtypes.bool_, dtypes.int32):
            raise CheckError(f"a branch needs an i32 or bool index, got {step.index.type}")


def _check_swaps(loop: Loop | While) -> None:
    for first, second in loop.swaps:
        if first.type != second.type:
            raise CheckError(f"cannot swap {first.type} with {second.type}")


def _check_run(run: Run) -> None:
    kernel = run.kernel
    if len(run.slots) != len(kernel.buffers) or len(run.scalars) != len(kernel.scalars):
        raise CheckError(
            f"kernel {kernel.name} takes {len(kernel.buffers)} buffers and "
            f"{len(kernel.scalars)} scalars; the plan gives {len(run.slots)} and "
            f"{len(run.scalars)}"
        )
    for slot, buffer in zip(run.slots, kernel.buffers, strict=True):
        if slot.type.dtype != buffer.dtype or slot.type.size < buffer.size:
            raise CheckError(
                f"kernel {kernel.name}: buffer {buffer.name} has {buffer.size} elements of "
                f"{buffer.dtype}, slot {slot.id} is {slot.type}"
            )
