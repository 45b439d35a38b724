"""Run a Plan on the reference kernel interpreter: a Python walker over its steps.

Memory is real: one arena of bytes filled with junk, results of their own, donated arguments
overwritten. So a wrong lifetime, offset or overlap gives wrong numbers.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.reference import run_kernel
from fxad.backend.tapes import Tapes
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Taping, While


def run_plan(plan: Plan, args: list[np.ndarray]) -> list[np.ndarray]:
    """Results of a plan; `args` that are donated are overwritten."""
    return _Walker(plan, args).run()


class _Walker:
    def __init__(self, plan: Plan, args: list[np.ndarray]) -> None:
        self.plan = plan
        self.tapes = Tapes()
        self.arena = np.full(plan.arena_bytes, 0xA5, np.uint8)
        self.memory: dict[Slot, np.ndarray] = {}
        results: dict[int, np.ndarray] = {}
        for slot in plan.slots:
            match slot.place:
                case "argument":
                    array = args[slot.number]
                    assert array.flags.c_contiguous
                    assert array.nbytes == slot.type.nbytes
                    self.memory[slot] = _bytes(array)
                case "constant":
                    self.memory[slot] = _bytes(plan.constants[slot.number])
                case "arena":
                    assert slot.offset % 64 == 0
                    part = self.arena[slot.offset : slot.offset + slot.type.nbytes]
                    assert part.nbytes == slot.type.nbytes
                    self.memory[slot] = part
                case "result":
                    taken = plan.donated.get(slot.number)
                    if slot.number not in results:
                        results[slot.number] = (
                            np.full(slot.type.nbytes, 0x5A, np.uint8)
                            if taken is None
                            else _bytes(args[taken])
                        )
                    self.memory[slot] = results[slot.number]

    def run(self) -> list[np.ndarray]:
        self.steps(self.plan.steps)
        return [self.array(s).copy() for s in self.plan.results]

    def array(self, slot: Slot) -> np.ndarray:
        return self.memory[slot].view(slot.type.dtype).reshape(slot.type.shape)

    def steps(self, steps) -> None:
        for step in steps:
            match step:
                case Run():
                    arrays = [self.array(s).reshape(-1) for s in step.slots]
                    for array, buffer in zip(arrays, step.kernel.buffers, strict=True):
                        assert array.size == buffer.size
                        assert array.dtype == buffer.dtype
                    run_kernel(step.kernel, arrays, step.scalars)
                case Copy():
                    self.memory[step.dst][:] = self.memory[step.src]
                case Host():
                    outputs = step.function(*map(self.array, step.inputs))
                    for slot, value in zip(step.outputs, outputs, strict=True):
                        self.array(slot)[...] = value
                case Taping():
                    outputs = self.tapes.act(step, [self.array(s).copy() for s in step.inputs])
                    for slot, value in zip(step.outputs, outputs, strict=True):
                        self.array(slot)[...] = value.reshape(slot.type.shape)
                case Loop():
                    self.loop(step)
                case While():
                    self.steps(step.cond)
                    while self.array(step.predicate)[()]:
                        self.steps(step.body)
                        self.swap(step.swaps)
                        self.steps(step.cond)
                case Branch():
                    index = int(self.array(step.index)[()])
                    self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])

    def loop(self, step: Loop) -> None:
        for i in reversed(range(step.trips)) if step.reverse else range(step.trips):
            for view in step.views:
                size = view.slot.type.nbytes
                self.memory[view.slot] = self.memory[view.base][i * size : (i + 1) * size]
            self.steps(step.body)
            self.swap(step.swaps)

    def swap(self, swaps) -> None:
        for a, b in swaps:
            self.memory[a], self.memory[b] = self.memory[b], self.memory[a]


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).reshape(-1).view(np.uint8)
