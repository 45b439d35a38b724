"""Calls of Python functions in the middle of a plan, for all executors.

for slot, array in zip(step.outputs, called(step, read), strict=True): ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core.errors import TypeMismatch
from fxad.ir.plan import Host, Plan, Slot, walk


def around(plan: Plan) -> Callable[[], Any] | None:
    """What makes the context manager that every run of the plan happens in: the attribute `around`
    of its host functions. None where none has one."""
    functions = [step.function for step in walk(plan.steps) if isinstance(step, Host)]
    return next((f.around for f in functions if hasattr(f, "around")), None)


def called(step: Host, read: Callable[[Slot], np.ndarray]) -> list[np.ndarray]:
    """The outputs of a host step; `read` gives what a slot holds. For executors whose slots stay
    where they are: an offload buffer that the function gives instead is to be copied like any
    output."""
    if step.acquires:
        own = read(step.outputs[0])
        buffer: Any = step.function(own)
        return [own if buffer is None else buffer]
    inputs = [read(slot).copy() for slot in step.inputs]
    for array in inputs:
        array.flags.writeable = False
    return checked(step, step.function(*inputs))


def checked(step: Host, returned: Any) -> list[np.ndarray]:
    """What a host step's function returned, as contiguous arrays. Raises TypeMismatch unless they
    are as many, and of the types, as the step promises."""
    outputs = () if returned is None and not step.outputs else tuple(returned)
    if len(outputs) != len(step.outputs):
        raise TypeMismatch(
            f"{step.name} returned {len(outputs)} arrays, {len(step.outputs)} expected"
        )
    arrays = [_contiguous(np.asarray(value)) for value in outputs]
    for number, (array, slot) in enumerate(zip(arrays, step.outputs, strict=True)):
        if array.shape != slot.type.shape or array.dtype != slot.type.dtype:
            raise TypeMismatch(
                f"{step.name}: output {number} must be {slot.type}, got "
                f"{array.dtype}{list(array.shape)}"
            )
    return arrays


def _contiguous(array: np.ndarray) -> np.ndarray:
    """The array, or a copy. `np.require` alone takes a microsecond where there is nothing to do."""
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, requirements=("C", "A"))
