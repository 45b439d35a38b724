"""`plan`: what runs when, and where every byte lives.

    plan(block, in_types, out_types, frozenset({0}))   # argument 0's storage may become a result's

Storage is given out in execution order: a value gets its bytes where it is first written and
gives it back after its last use. A result is written straight into its own buffer. A kernel whose
operand dies may write into the operand's storage where `overlap` allows it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from fxad.core.arena import Arena
from fxad.core.record import replace
from fxad.core.types import Type
from fxad.ir import block as blocks
from fxad.ir import heuristics
from fxad.ir.block import Block, Launch, LoweredStep, reads_of, writes_of
from fxad.ir.kernel import Buffer, Kernel
from fxad.ir.plan import Copy, Host, Plan, Run, Slot, Step, Taping
from fxad.ir.program import Var
from fxad.plan import control
from fxad.plan.allocation import Allocation, Frame, Storage
from fxad.plan.layout import FixedOffsets, RecordingArena, packed
from fxad.plan.offload_buffers import offload_buffers
from fxad.plan.order import ordered
from fxad.plan.overlap import Accesses, merged
from fxad.plan.reuse import AccessesOf, donations, first_writes, last_uses, may_reuse, update_chain
from fxad.plan.streaming import streamed


def plan(
    block: Block,
    in_types: Sequence[Type],
    out_types: Sequence[Type],
    donate: frozenset[int] = frozenset(),
) -> Plan:
    """Plan a lowered program with the given argument and result types. donate: numbers of
    arguments whose storage may be reused."""
    accesses = functools.cache(Accesses)
    arena, block = RecordingArena(), ordered(block, donate, accesses)
    made = Planner(arena, accesses).plan(block, in_types, out_types, donate)
    if arena.peak - arena.live_peak > heuristics.HOLE_BYTES:
        other = packed(arena.live_ranges)
        if other.peak < arena.peak:
            return Planner(other, accesses).plan(block, in_types, out_types, donate)
    return made


class Planner:
    """Gives every value its allocation while walking the blocks in execution order."""

    def __init__(self, arena: Arena | FixedOffsets, accesses: AccessesOf) -> None:
        self.storage = Storage(arena)
        self._kernels: dict[tuple[object, ...], Kernel] = {}
        self.accesses = accesses

    def plan(
        self,
        block: Block,
        in_types: Sequence[Type],
        out_types: Sequence[Type],
        donate: frozenset[int],
    ) -> Plan:
        inputs = {
            v: Allocation("argument", t.nbytes, n)
            for n, (v, t) in enumerate(zip(block.inputs, in_types, strict=True))
        }
        outputs: dict[Var, Allocation] = {}
        for number, var in enumerate(block.outputs):
            if var not in inputs and var not in outputs:
                outputs[var] = Allocation("result", var.type.nbytes, number)
        # An argument or result seen under several shapes has the slot of its own type first.
        for var, type_ in zip(block.inputs, in_types, strict=True):
            self.storage.slot(inputs[var], type_)
        for number, (var, type_) in enumerate(zip(block.outputs, out_types, strict=True)):
            if var in outputs and outputs[var].number == number:
                self.storage.slot(outputs[var], type_)
        donated = donations(block, outputs, donate, self.accesses)
        self.storage.donated.update((outputs[var].number, n) for var, n in donated.items())
        first, last = first_writes(block), last_uses(block)
        for result, allocation in list(outputs.items()):
            outputs.update(dict.fromkeys(update_chain(block, result, first, last), allocation))
        steps = self.block(block, inputs, outputs)
        for argument in donated.values():  # executors find the storage through its slot
            var = block.inputs[argument]
            self.storage.slot(inputs[var], var.type)
        results, copies = self._results(block, out_types, inputs | outputs)
        steps += copies
        return Plan(
            tuple(self.storage.slots),
            tuple(steps),
            (),
            tuple(results),
            self.storage.arena.peak,
            self.storage.donated,
        )

    def _results(
        self, block: Block, out_types: Sequence[Type], allocations: dict[Var, Allocation]
    ) -> tuple[list[Slot], list[Step]]:
        """Slots of the results, and copies of those that lie elsewhere under another type."""
        results: list[Slot] = []
        copies: list[Step] = []
        for number, (var, type_) in enumerate(zip(block.outputs, out_types, strict=True)):
            allocation = allocations[var]
            own = allocation.kind == "result" and allocation.number == number
            if own or var.type == type_:
                results.append(self.storage.slot(allocation, type_))
            else:
                results.append(self.storage.slot(Allocation("result", type_.nbytes, number), type_))
                copies.append(Copy(results[-1], self.storage.slot(allocation, var.type)))
        return results, copies

    # ------------------------------------------------------------ blocks

    def block(
        self, block: Block, inputs: dict[Var, Allocation], outputs: dict[Var, Allocation]
    ) -> list[Step]:
        """Steps of a block whose inputs lie in `inputs`; it writes `outputs` where they say."""
        first, last = first_writes(block), last_uses(block)
        buffers = offload_buffers(block, first, last)
        buffers = {var: buffer for var, buffer in buffers.items() if var not in outputs}
        frame = Frame(
            dict(inputs), frozenset(inputs), outputs, first, last, buffers, streamed(block)
        )
        instead = {buffer.instead for buffer in buffers.values()}
        steps: list[Step] = []
        for number, step in enumerate(block.steps):
            touched = dict.fromkeys((*reads_of(step), *writes_of(step)))
            steps += self._allocate_results(frame, step, number)
            steps += [] if step in instead else self._step(frame, step)
            for var in touched:
                if frame.last[var] == number and var not in frame.borrowed:
                    steps += self._released(frame, var)
                    self.storage.release(frame.allocations[var])
        return steps

    def _allocate_results(self, frame: Frame, step: LoweredStep, number: int) -> list[Step]:
        """Allocate the values that a step is the first to write; steps that acquire offload
        buffers."""
        steps: list[Step] = []
        for var in writes_of(step):
            if var in frame.allocations:
                continue
            allocation = frame.required.get(var)
            if allocation is not None:
                allocation.users += 1
            elif var in frame.in_offload_buffers:
                allocation = self.storage.allocate(var.type.nbytes)
                allocation.moving = True  # to the offload buffer
                buffer = frame.in_offload_buffers[var]
                slot = self.storage.slot(allocation, var.type)
                steps.append(Host(buffer.acquire, (), (slot,), "acquire", acquires=True))
            else:
                allocation = self._reused(frame, step, var, number) or self.storage.allocate(
                    var.type.nbytes
                )
            frame.allocations[var] = allocation
        return steps

    def _released(self, frame: Frame, var: Var) -> list[Step]:
        """The step after the last use of a value in an offload buffer."""
        if var not in frame.in_offload_buffers:
            return []
        buffer = frame.in_offload_buffers[var]
        inputs = (self.storage.slot_of(frame, var),) if buffer.puts else ()
        return [Host(buffer.release, inputs, (), "put" if buffer.puts else "release")]

    def _reused(
        self, frame: Frame, step: LoweredStep, result: Var, number: int
    ) -> Allocation | None:
        """The allocation of an operand that dies here and may be overwritten."""
        for operand in dict.fromkeys(reads_of(step)):
            allocation = frame.allocations.get(operand)
            if (
                allocation is None
                or allocation.kind != "arena"
                or allocation.users != 1
                or allocation.moving
            ):
                continue
            if operand in frame.borrowed or frame.last[operand] != number:
                continue
            if may_reuse(step, result, operand, self.accesses):
                allocation.users += 1
                return allocation
        return None

    def nested(
        self,
        block: Block,
        inputs: Sequence[Allocation],
        targets: Sequence[Allocation],
        kept: set[int],
        inner: Mapping[Var, Allocation] | None = None,
    ) -> list[Step]:
        """Steps of a block inside another one, with its outputs copied where they could not be
        written at once. Outputs numbered in `kept` are there already; `inner` says
        where some values inside must lie."""
        allocations = dict(zip(block.inputs, inputs, strict=True))
        outputs: dict[Var, Allocation] = dict(inner or {})
        copies: list[Step] = []
        for number, (var, target) in enumerate(zip(block.outputs, targets, strict=True)):
            if number in kept:
                continue
            source = allocations.get(var) or outputs.get(var)
            if source is None:
                outputs[var] = target
            else:
                copies.append(
                    Copy(self.storage.slot(target, var.type), self.storage.slot(source, var.type))
                )
        return [*self.block(block, allocations, outputs), *copies]

    def _step(self, frame: Frame, step: LoweredStep) -> list[Step]:
        match step:
            case Launch():
                return self._launch(frame, step)
            case blocks.Copy():
                return [
                    Copy(
                        self.storage.slot_of(frame, step.dst), self.storage.slot_of(frame, step.src)
                    )
                ]
            case blocks.Host():
                return self._host(frame, step)
            case blocks.Taping():
                inputs = tuple([self.storage.slot_of(frame, v) for v in step.operands])
                outputs = tuple([self.storage.slot_of(frame, v) for v in step.results])
                return [Taping(step.kind, step.type, inputs, outputs)]
            case blocks.Branch():
                return control.branch(self.storage, frame, step, self.nested)
            case blocks.Loop():
                return control.loop(self.storage, frame, step, self.nested, self.accesses)
            case blocks.While():
                return control.while_loop(self.storage, frame, step, self.nested, self.accesses)
        raise TypeError(f"not a lowered step: {step!r}")

    def _host(self, frame: Frame, step: blocks.Host) -> list[Step]:
        """A call whose results get their own shapes, also where a loop moves another's slot."""
        inputs = tuple([self.storage.slot_of(frame, v) for v in step.operands])
        targets = [self.storage.slot_of(frame, v) for v in step.results]
        spare = {
            target: self.storage.allocate(var.type.nbytes)
            for var, target in zip(step.results, targets, strict=True)
            if target.type != var.type
        }
        outputs = [
            self.storage.slot(spare[target], var.type) if target in spare else target
            for var, target in zip(step.results, targets, strict=True)
        ]
        for allocation in spare.values():
            self.storage.release(allocation)
        copies = [Copy(t, o) for t, o in zip(targets, outputs, strict=True) if t is not o]
        return [Host(step.function, inputs, tuple(outputs), step.name), *copies]

    def _launch(self, frame: Frame, step: Launch) -> list[Step]:
        steps: list[Step] = []
        for result, operand in step.replaces:
            if not self.storage.shared(
                self.storage.allocation(frame, result), self.storage.allocation(frame, operand)
            ):
                steps.append(
                    Copy(self.storage.slot_of(frame, result), self.storage.slot_of(frame, operand))
                )
        kernel, args = step.kernel, step.args
        pairs = self._shared_pairs(frame, step) if kernel.kind == "contract" else {}
        if pairs:
            args = tuple([v for v in args if v not in pairs])
            of = dict(zip(step.args, kernel.buffers, strict=True))
            kernel = self._changed(kernel, {of[x]: of[y] for x, y in pairs.items()})
        elif kernel.kind == "contract" and frame.streamed.issuperset(step.writes):
            kernel = self._changed(kernel, {})
        slots = tuple([self.storage.slot_of(frame, v) for v in args])
        return [*steps, Run(kernel, slots, step.scalars)]

    def _changed(self, kernel: Kernel, pairs: dict[Buffer, Buffer]) -> Kernel:
        """A product's kernel working in place (see `merged`), or without pairs one with streaming
        stores. The same object for launches of one kernel."""
        key = (kernel, *pairs.items())
        if key not in self._kernels:
            self._kernels[key] = merged(kernel, pairs) if pairs else _streaming(kernel)
        return self._kernels[key]

    def _shared_pairs(self, frame: Frame, step: Launch) -> dict[Var, Var]:
        """Operand -> result where both have one allocation."""
        return {
            operand: result
            for result in step.writes
            for operand in step.args
            if operand is not result
            and self.storage.shared(
                self.storage.allocation(frame, result), self.storage.allocation(frame, operand)
            )
        }


def _streaming(kernel: Kernel) -> Kernel:
    """A product's kernel with streaming stores."""
    (stage,) = kernel.body
    return replace(kernel, body=(replace(stage, streaming=True),))
