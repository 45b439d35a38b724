"""Run a Plan step by step from Python: the oracle executor, on the CPU or on CUDA.

    results = execute_plan(plan, [x, y], target="cpu")
    run = Interpreter(plan, "cuda").run                     # to call again

Slower than the native runner by design: one call per kernel, every argument copied, memory that
nothing has written yet filled with ones (NaN), so that a plan that reads it shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from fxad.backend import hosts
from fxad.backend.numba.compile import Compiled, compile_kernel, restored, stored
from fxad.backend.numba.formats import storage
from fxad.backend.tapes import Tapes
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While

_JUNK = 0xFF


def execute_plan(plan: Plan, arrays: Sequence[Any], target: str = "cpu") -> list[np.ndarray]:
    """Results of the plan for its flat arguments; the arguments are not modified.

    Raises ValueError where an argument's size or dtype differs from its slot's.
    """
    return Interpreter(plan, target).run(arrays)


class Interpreter:
    """A Plan that Python walks, one call per kernel. What does not depend on arguments, constants
    on the device and compiled kernels, is made once. Threads may share one."""

    def __init__(self, plan: Plan, target: str) -> None:
        self.plan = plan
        self.memory = Memory(target)
        self.constants = [self.memory.put(c) for c in plan.constants]
        self._kernels: dict[int, Compiled] = {}  # by the identity of the plan's kernels

    def run(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The flat results for the flat arguments; arguments are never overwritten."""
        executor = _Executor(self, arrays)
        with (hosts.around(self.plan) or nullcontext)():
            executor.run(self.plan.steps)
        return [executor.host(slot) for slot in self.plan.results]

    def kernel(self, kernel: Kernel) -> Compiled:
        found = self._kernels.get(id(kernel))
        if found is None:
            found = self._kernels[id(kernel)] = compile_kernel(kernel, self.memory.target)
        return found


class Memory:
    """Flat arrays in storage dtypes, in NumPy or on the device."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._cuda: Any = None
        if target == "cuda":
            from numba import cuda
            from numba.cuda.cudadrv.driver import device_memset

            self._cuda, self._fill = cuda, device_memset

    def put(self, array: Any) -> Any:
        """A copy of an array."""
        if self._cuda is None:
            return stored(array)
        flat = np.ascontiguousarray(array).reshape(-1)
        return self._cuda.to_device(flat.view(storage(flat.dtype)))

    def get(self, array: Any) -> np.ndarray:
        """A copy in NumPy."""
        return array.copy() if self._cuda is None else array.copy_to_host()

    def junk(self, dtype: np.dtype, size: int) -> Any:
        """Fresh memory that looks like no result."""
        nbytes = size * dtype.itemsize
        if self._cuda is None:
            return np.full(nbytes, _JUNK, np.uint8).view(storage(dtype))
        if not size:  # such memory has no address
            return self._cuda.to_device(np.empty(0, storage(dtype)))
        found = self._cuda.device_array(size, storage(dtype))
        self._fill(found, _JUNK, nbytes)
        return found

    def copy(self, to: Any, source: Any) -> None:
        if self._cuda is None:
            to[:] = source
        elif source.size:
            to.copy_to_device(source)


class _Executor:
    """One run."""

    def __init__(self, owner: Interpreter, arrays: Sequence[Any]) -> None:
        self.owner, self.memory = owner, owner.memory
        self.tapes = Tapes()
        self.at: dict[Slot, Any] = {}  # what storage each slot points at
        self._results: dict[int, Any] = {}
        plan = owner.plan
        arguments = [self.memory.put(a) for a in arrays]
        arena = self.memory.junk(np.dtype(np.uint8), plan.arena_bytes)
        for slot in plan.slots:
            if slot.place == "argument":
                _check_argument(slot, arrays)
                self.at[slot] = arguments[slot.number]
            elif slot.place == "constant":
                self.at[slot] = owner.constants[slot.number]
            elif slot.place == "result" and slot.number in plan.donated:
                self.at[slot] = arguments[plan.donated[slot.number]]
            elif slot.place == "result":
                self.at[slot] = self._result(slot)
            elif slot.place == "arena":
                self.at[slot] = self._in_arena(arena, slot)
            elif slot.place != "view":  # a view is placed by its loop
                raise ValueError(f"slot {slot.id} is in unknown place {slot.place!r}")

    def _result(self, slot: Slot) -> Any:
        """A result's storage, one for all the shapes it is seen under."""
        found = self._results.get(slot.number)
        if found is None:
            found = self._results[slot.number] = self.memory.junk(slot.type.dtype, slot.type.size)
        return found

    def _in_arena(self, arena: Any, slot: Slot) -> Any:
        piece = arena[slot.offset : slot.offset + slot.type.nbytes]
        if piece.size != slot.type.nbytes:
            raise ValueError(
                f"slot {slot.id} ({slot.type}) at byte {slot.offset} ends beyond the arena's "
                f"{arena.size} bytes"
            )
        if not slot.type.size:
            return self.memory.junk(slot.type.dtype, 0)
        return piece.view(storage(slot.type.dtype))

    def host(self, slot: Slot) -> np.ndarray:
        """A copy of the slot's array in NumPy, in its own dtype and shape."""
        return restored(self.memory.get(self.at[slot]), slot.type.dtype, slot.type.shape)

    def run(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case Run():
                compiled = self.owner.kernel(step.kernel)
                compiled([self.at[s] for s in step.slots], step.scalars)
            case Copy():
                self.memory.copy(self.at[step.dst], self.at[step.src])
            case Loop():
                self._loop(step)
            case While():
                self.run(step.cond)
                while bool(self.host(step.predicate).reshape(())):
                    self.run(step.body)
                    self._swap(step.swaps)
                    self.run(step.cond)
            case Branch():
                chosen = int(self.host(step.index).reshape(()))
                self.run(step.branches[min(max(chosen, 0), len(step.branches) - 1)])
            case Host():
                self._host_call(step)
            case Taping():
                outputs = self.tapes.act(step, [self.host(s) for s in step.inputs])
                for slot, array in zip(step.outputs, outputs, strict=True):
                    self.memory.copy(self.at[slot], self.memory.put(array))
            case _:
                raise TypeError(f"not a step of a plan: {step!r}")

    def _loop(self, loop: Loop) -> None:
        for count in range(loop.trips):
            i = loop.trips - 1 - count if loop.reverse else count
            for view in loop.views:
                size = view.slot.type.size
                self.at[view.slot] = self.at[view.base][i * size : (i + 1) * size]
            self.run(loop.body)
            self._swap(loop.swaps)

    def _swap(self, pairs: Sequence[tuple[Slot, Slot]]) -> None:
        for a, b in pairs:
            self.at[a], self.at[b] = self.at[b], self.at[a]

    def _host_call(self, step: Host) -> None:
        for slot, array in zip(step.outputs, hosts.called(step, self.host), strict=True):
            self.memory.copy(self.at[slot], self.memory.put(array))


def _check_argument(slot: Slot, arrays: Sequence[Any]) -> None:
    """Slots of one argument may see it under several shapes."""
    if slot.number >= len(arrays):
        raise ValueError(f"the plan reads argument {slot.number}, got {len(arrays)} arguments")
    array = np.asarray(arrays[slot.number])
    if array.size != slot.type.size or array.dtype != slot.type.dtype:
        raise ValueError(
            f"argument {slot.number} is {array.dtype}{list(array.shape)}, the plan was made for "
            f"{slot.type}"
        )
