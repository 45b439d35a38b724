"""A Plan run step by step from Python, with a clock around every kernel.

    timed = Profiler(executable).run(arrays)
    timed.results        # the bits of executable.run(arrays)
    timed.events[0]      # (step, start, seconds)

Every step that computes runs as a Plan of its own, on the same machine code, storage and threads
as in a normal run; a call through Python adds a few microseconds to it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from fxad.backend import hosts
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.native import memory
from fxad.backend.tapes import Tapes
from fxad.core.errors import TypeMismatch
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While

Timed = Run | Copy | Host


@record
class Timings:
    """One run: results, and for every step that ran when it began and how long it took, in
    seconds from the run's beginning."""

    results: list[np.ndarray]
    events: list[tuple[Timed, float, float]]
    seconds: float


class Profiler:
    """Runs one Executable's plan; keeps the single-step programs and the arena between runs: the
    first use of a fresh page takes longer than many a kernel."""

    def __init__(self, executable: Executable) -> None:
        self.plan: Plan = executable.plan
        self.hosts = executable.hosts
        arena = ArrayType(np.dtype(np.uint8), (executable.plan.arena_bytes,))
        self.arena = memory.result_array(arena)()
        self._single: dict[Timed, tuple[Executable, tuple[Slot, ...]]] = {}

    def run(self, args: Sequence[np.ndarray]) -> Timings:
        """Run once. Donated arguments are copied first: the caller's arrays stay as they are.
        Raises TypeMismatch if there are too few arguments."""
        return _Run(self, args).run()

    def single(self, step: Timed) -> tuple[Executable, tuple[Slot, ...]]:
        """The step as a program of its own that works in place on its arguments: the slots."""
        found = self._single.get(step)
        if found is None:
            slots = _slots(step)
            own = tuple([Slot(i, s.type, "argument", i) for i, s in enumerate(slots)])
            alone = _on(step, own)
            found = Executable(Plan(own, (alone,), (), (), 0, {})), slots
            self._single[step] = found
        return found


def _slots(step: Timed) -> tuple[Slot, ...]:
    match step:
        case Run():
            return step.slots
        case Copy():
            return (step.dst, step.src)
    return (*step.inputs, *step.outputs)


def _on(step: Timed, slots: tuple[Slot, ...]) -> Timed:
    """The step on other slots."""
    match step:
        case Run():
            return Run(step.kernel, slots, step.scalars)
        case Copy():
            return Copy(*slots)
    count = len(step.inputs)
    return Host(step.function, slots[:count], slots[count:], step.name)


class _Run:
    """Memory of one run; `memory` holds the bytes every slot stands for now."""

    def __init__(self, profiler: Profiler, args: Sequence[np.ndarray]) -> None:
        self.profiler = profiler
        self.plan = plan = profiler.plan
        count = 1 + max((s.number for s in plan.slots if s.place == "argument"), default=-1)
        if len(args) < count:
            raise TypeMismatch(f"expected {count} arguments, got {len(args)}")
        donated = set(plan.donated.values())
        self.args = [
            _bytes(
                np.array(a, order="C") if i in donated else np.require(a, requirements=("C", "A"))
            )
            for i, a in enumerate(args)
        ]
        self.arena = profiler.arena
        self.buffers: dict[int, np.ndarray] = {}
        self.memory = {s: self._place(s) for s in plan.slots if s.place != "view"}
        self.tapes = Tapes()
        self.events: list[tuple[Timed, float, float]] = []
        self.start = 0.0

    def _place(self, slot: Slot) -> np.ndarray:
        match slot.place:
            case "argument":
                return self.args[slot.number]
            case "constant":
                return _bytes(np.require(self.plan.constants[slot.number], requirements=("C", "A")))
            case "arena":
                return self.arena[slot.offset : slot.offset + slot.type.nbytes]
        taken = self.plan.donated.get(slot.number)
        if taken is not None:
            return self.args[taken]
        if slot.number not in self.buffers:
            self.buffers[slot.number] = _bytes(memory.result_array(slot.type)())
        return self.buffers[slot.number]

    def run(self) -> Timings:
        self.start = time.perf_counter()
        with (hosts.around(self.plan) or nullcontext)():
            self.steps(self.plan.steps)
        seconds = time.perf_counter() - self.start
        results = [self.array(s).copy() for s in self.plan.results]
        return Timings(results, self.events, seconds)

    def array(self, slot: Slot) -> np.ndarray:
        return np.ndarray(slot.type.shape, slot.type.dtype, self.memory[slot])

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            match step:
                case Host() if step in self.profiler.hosts:
                    self._host(step)
                case Run() | Copy() | Host():
                    executable, slots = self.profiler.single(step)
                    arrays = [self.array(s) for s in slots]
                    begin = time.perf_counter()
                    executable.run(arrays)
                    self._note(step, begin)
                case Taping():
                    outputs = self.tapes.act(step, [self.array(s).copy() for s in step.inputs])
                    for slot, value in zip(step.outputs, outputs, strict=True):
                        self.array(slot)[...] = value.reshape(slot.type.shape)
                case Loop():
                    self._loop(step)
                case While():
                    self.steps(step.cond)
                    while self.array(step.predicate)[()]:
                        self.steps(step.body)
                        self._swap(step.swaps)
                        self.steps(step.cond)
                case Branch():
                    index = int(self.array(step.index)[()])
                    self.steps(step.branches[min(max(index, 0), len(step.branches) - 1)])

    def _note(self, step: Timed, begin: float) -> None:
        self.events.append((step, begin - self.start, time.perf_counter() - begin))

    def _host(self, step: Host) -> None:
        begin = time.perf_counter()
        values = hosts.called(step, self.array)
        self._note(step, begin)
        for slot, value in zip(step.outputs, values, strict=True):
            self.array(slot)[...] = value

    def _loop(self, step: Loop) -> None:
        for i in reversed(range(step.trips)) if step.reverse else range(step.trips):
            for view in step.views:
                size = view.slot.type.nbytes
                self.memory[view.slot] = self.memory[view.base][i * size : (i + 1) * size]
            self.steps(step.body)
            self._swap(step.swaps)

    def _swap(self, swaps: Sequence[tuple[Slot, Slot]]) -> None:
        for a, b in swaps:
            self.memory[a], self.memory[b] = self.memory[b], self.memory[a]


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ndarray((array.nbytes,), np.uint8, np.ascontiguousarray(array))
