"""Plan -> code words and a frame layout for the native interpreter (`native.library.Op`).

    encoded = encode(plan, codes)  # codes: cache.Code of every distinct Kernel of the plan
    frame = encoded.new_frame()

The code is shared and never changes; a frame belongs to one run at a time. Frame words: the head
(`native.library.Word`), one pointer per slot, scalars, loop counters, and the argument words of the
kernel that is running.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.cache import Code
from fxad.backend.llvm.factors.calls import native_calls
from fxad.backend.llvm.native.engine import host_target
from fxad.backend.llvm.native.library import COPY_BLOCK, NEVER, Op, Word, runtime
from fxad.backend.llvm.native.tape_code import KERNELS
from fxad.backend.llvm.native.tapes import tape_layout
from fxad.backend.llvm.sequence.choose import written_slots
from fxad.backend.llvm.sequence.emit import SequenceCode, trips_at_once
from fxad.core import dtypes
from fxad.core.aligned import LINE, to_line
from fxad.core.errors import CheckError
from fxad.core.record import record
from fxad.core.types import Type
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While

# Estimated work between two chances to stop, on any processor: a pipeline of rows fills in each.
CHUNK_NS = 4_000_000


class Frame:
    """The words of one run, and memory for its arena and scratch, kept from run to run."""

    __slots__ = ("address", "arena_address", "arena_bytes", "held_arena", "words")

    def __init__(self, template: list[int], code: int, args: int, arena_bytes: int) -> None:
        """code: the address of the code words. args: the first word of the argument area."""
        self.words = (ctypes.c_int64 * len(template))(*template)
        self.address = ctypes.addressof(self.words)
        self.words[Word.CODE] = code
        self.words[Word.ARGS] = self.address + 8 * args
        self.held_arena = np.empty(arena_bytes + LINE, np.uint8)
        self.arena_address = to_line(self.held_arena.ctypes.data)
        self.arena_bytes = arena_bytes

    @property
    def overwrites(self) -> bool:
        """Whether a run has come to `COMMIT`: it may have overwritten arguments."""
        return self.words[Word.INTERVAL] == NEVER


@record
class Encoded:
    """A plan the native interpreter can run, and what must stay alive for that."""

    code: ctypes.Array
    template: list[int]
    args: int  # first word of the argument area
    words: Mapping[Slot, int]  # where each slot's pointer is
    arguments: int  # leading arguments the code binds
    results: tuple[int, ...]  # numbers of the result buffers it binds, in order
    hosts: tuple[Host, ...]
    scratch_bytes: int  # per thread
    parallel: bool  # whether any kernel is worth more than one thread
    tapes: bool  # whether it writes or reads tapes
    keep: tuple[object, ...]

    def new_frame(self, arena_bytes: int = 0) -> Frame:
        """arena_bytes: of the memory that the frame brings, for runs that take none elsewhere."""
        return Frame(self.template, ctypes.addressof(self.code), self.args, arena_bytes)


def encode(
    plan: Plan,
    codes: Mapping[Kernel, Code],
    sequences: Iterable[SequenceCode] = (),
    target: Target | None = None,
) -> Encoded:
    """codes: of all kernels outside the sequences. target: this machine's where not given. The plan
    must have passed `check_plan`."""
    by_loop = {code.sequence.loop: code for code in sequences}
    encoder = _Encoder(plan, codes, by_loop, target or host_target())
    encoder.prologue()
    encoder.body()
    return encoder.finish()


@dataclass(eq=False, slots=True)
class _Encoder:
    plan: Plan
    codes: Mapping[Kernel, Code]
    sequences: Mapping[Loop | While, SequenceCode]
    target: Target
    code: list[int] = field(default_factory=list)
    template: list[int] = field(default_factory=lambda: [0] * Word.FIRST)
    words: dict[Slot, int] = field(default_factory=dict)
    scalars: dict[tuple[np.dtype, bytes], int] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    keep: list[object] = field(default_factory=list)
    most_args: int = 3
    scratch_bytes: int = 0
    parallel: bool = False
    tapes: bool = False

    # ------------------------------------------------------------ frame

    def prologue(self) -> None:
        """Lay out the frame's head, objects and slots; emit BIND and PLACE."""
        slots = self.plan.slots
        arguments = [slot for slot in slots if slot.place == "argument"]
        results = [slot for slot in slots if slot.place == "result"]
        count, numbers = self._objects()
        objects = {("argument", n): (Word.ARGUMENTS, n) for n in range(count)}
        objects |= {("result", n): (Word.RESULTS, i) for i, n in enumerate(numbers)}
        for slot in slots:
            self.words[slot] = self._new_word(self._constant(slot))
        self._emit(Op.BIND, len(arguments) + len(results), id(np.ndarray))
        own: dict[tuple[str, int], Type] = {}  # the first slot of an object has its type
        for slot in (*arguments, *results):
            kind = own.setdefault((slot.place, slot.number), slot.type)
            table, number = objects[slot.place, slot.number]
            shape = kind.shape
            self._emit(table, number, self.words[slot], id(kind.dtype), len(shape), *shape)
        placed = [slot for slot in slots if slot.place == "arena"]
        self._emit(Op.PLACE, len(placed))
        for slot in placed:
            self._emit(self.words[slot], slot.offset)

    def _objects(self) -> tuple[int, list[int]]:
        """How many arguments are bound, and the numbers of the result buffers."""
        arguments = {slot.number for slot in self.plan.slots if slot.place == "argument"}
        results = {slot.number for slot in self.plan.slots if slot.place == "result"}
        return max(arguments, default=-1) + 1, sorted(results)

    def _new_word(self, value: int = 0) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def _constant(self, slot: Slot) -> int:
        """The first value of a slot's pointer: a constant's address, else to be set later."""
        if slot.place != "constant":
            return 0
        array = np.require(self.plan.constants[slot.number], requirements=("C", "A"))
        self.keep.append(array)
        return array.ctypes.data

    def _scalar(self, value: bool | int | float | complex, dtype: np.dtype) -> int:
        """The word that holds a scalar argument: its bytes, or the address of a complex one."""
        with np.errstate(all="ignore"):  # 1e10 is a fine infinity in float16
            data = np.asarray(value).astype(dtype).tobytes()
        key = (dtype, data)
        if key not in self.scalars:
            if dtypes.is_complex(dtype):
                held = ctypes.create_string_buffer(data, len(data) + 64)
                self.keep.append(held)
                word = ctypes.addressof(held)
            else:
                word = int.from_bytes(data.ljust(8, b"\0"), "little", signed=True)
            self.scalars[key] = self._new_word(word)
        return self.scalars[key]

    def _words(self, slots: Iterable[Slot]) -> list[int]:
        return [self.words[slot] for slot in slots]

    # ------------------------------------------------------------ code

    def _emit(self, *words: int) -> None:
        self.code += words

    def body(self) -> None:
        donated = self._donated_slots()
        committed = not donated
        for step in self.plan.steps:
            if not committed and not donated.isdisjoint(written_slots((step,))):
                self._emit(Op.COMMIT)
                committed = True
            self._step(step)
        self._emit(Op.END)

    def _donated_slots(self) -> set[Slot]:
        """Slots whose storage is a caller's array: from the first write on a run must finish."""
        given = set(self.plan.donated.values())
        return {
            slot
            for slot in self.plan.slots
            if (slot.place == "result" and slot.number in self.plan.donated)
            or (slot.place == "argument" and slot.number in given)
        }

    def _steps(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            self._step(step)

    def _step(self, step: Step) -> None:
        match step:
            case Run():
                self._run(step)
            case Copy():
                self._copy(step)
            case Loop() | While() if step in self.sequences:
                self._sequence(self.sequences[step])
            case Loop():
                self._loop(step)
            case While():
                self._while(step)
            case Branch():
                self._branch(step)
            case Taping():
                self._tape(step)
            case Host() if calls := native_calls(step, self.target):
                for call in calls:
                    numbers = [self._scalar(number, dtypes.int64) for number in call.numbers]
                    inputs = step.outputs if call.in_place else step.inputs
                    args = [*self._words((*inputs, *step.outputs)), *numbers]
                    self.scratch_bytes = max(self.scratch_bytes, call.scratch)
                    self.keep += call.keep
                    self._call(call.address, call.units, call.cost, args)
            case Host():
                self._emit(Op.HOST, len(self.hosts))
                self.hosts.append(step)
            case _:
                raise CheckError(f"not a plan step: {step!r}")

    def _run(self, run: Run) -> None:
        kernel, code = run.kernel, self.codes[run.kernel]
        values = [
            self._scalar(value, scalar.dtype)
            for value, scalar in zip(run.scalars, kernel.scalars, strict=True)
        ]
        self.scratch_bytes = max(self.scratch_bytes, code.scratch_bytes)
        self._call(code.address, code.units, code.cost, [*self._words(run.slots), *values])

    def _call(
        self, address: int, units: int, cost: float, args: list[int], serial: bool = False
    ) -> None:
        if units == 0:
            return
        parallel = units > 1 and cost > self.target.tuning.threads.parallel_ns and not serial
        self.parallel |= parallel
        each = max(cost / units, 1e-3)
        chunk = min(max(int(CHUNK_NS / each), 1), units)
        self.most_args = max(self.most_args, len(args))
        part = min(int(each * chunk) + 1, 10**12)
        self._emit(Op.RUN, address, int(parallel), units, chunk, part, len(args), *args)

    def _sequence(self, code: SequenceCode) -> None:
        """A loop that is one function; the trips of a Loop are its units."""
        sequence, cost = code.sequence, code.cost
        args = self._words(sequence.arguments)
        if sequence.tapes:
            self.tapes = True
            addresses = [runtime().tapes[kind] for kind in KERNELS]
            args += [Word.REGION, *[self._scalar(a, dtypes.int64) for a in addresses]]
        match sequence.loop:
            case Loop() as loop:
                self._call(code.address, loop.trips, cost * loop.trips, args, serial=True)
                if loop.trips % 2:
                    self._swap(loop.swaps)
            case While() as loop:
                top = len(self.code)
                self._call(code.address, 1, cost * trips_at_once(cost), args)
                self._emit(Op.UNLESS, self.words[loop.predicate], len(self.code) + 5)
                self._emit(Op.JUMP, top)

    def _copy(self, copy: Copy) -> None:
        nbytes = copy.dst.type.nbytes
        size = self._scalar(nbytes, dtypes.int64)
        units = -(-nbytes // COPY_BLOCK)
        args = [self.words[copy.dst], self.words[copy.src], size]
        cost = self.target.tuning.threads.copy_ns * nbytes / COPY_BLOCK
        self._call(runtime().copy, units, cost, args)

    def _tape(self, step: Taping) -> None:
        inputs, outputs = self._words(step.inputs), self._words(step.outputs)
        lanes = step.type.size
        self.tapes = True
        if step.kind == "span":
            args = [*inputs, self._scalar(lanes, dtypes.int64), *outputs]
            return self._call(runtime().tapes["span"], 1, lanes, args)
        layout = tape_layout(step.type)
        shape = (ctypes.c_int64 * len(layout))(*layout)
        self.keep.append(shape)
        about = self._scalar(ctypes.addressof(shape), dtypes.int64)
        cost = lanes * (20 + layout[1] / 16)
        handles, numbers, *blocks = inputs
        if step.kind == "read":
            return self._call(runtime().tapes["get"], 1, cost, [handles, numbers, about, *outputs])
        args = [Word.REGION, *outputs, handles, numbers, about, *blocks]
        return self._call(runtime().tapes["put"], 1, cost, args)

    def _freeing(self, kind: str, loop: Loop | While) -> None:
        """Mark the tapes there are before a trip, or free those made since."""
        if loop.frees:
            self._call(runtime().tapes[kind], 1, 20, [Word.REGION])

    def _loop(self, loop: Loop) -> None:
        counter = self._new_word()
        self._emit(Op.SET, counter, 0)
        top = len(self.code)
        self._emit(Op.LOOP, counter, loop.trips, int(loop.reverse), 0, len(loop.views))
        for view in loop.views:
            self._emit(self.words[view.slot], self.words[view.base], view.slot.type.nbytes)
        self._freeing("mark", loop)
        self._steps(loop.body)
        self._freeing("release", loop)
        self._swap(loop.swaps)
        self._emit(Op.NEXT, counter, top)
        self.code[top + 4] = len(self.code)

    def _while(self, loop: While) -> None:
        top = len(self.code)
        self._steps(loop.cond)
        self._emit(Op.UNLESS, self.words[loop.predicate], 0)
        exit = len(self.code) - 1
        self._freeing("mark", loop)
        self._steps(loop.body)
        self._freeing("release", loop)
        self._swap(loop.swaps)
        self._emit(Op.JUMP, top)
        self.code[exit] = len(self.code)

    def _swap(self, pairs: tuple[tuple[Slot, Slot], ...]) -> None:
        if pairs:
            self._emit(Op.SWAP, len(pairs), *(self.words[s] for pair in pairs for s in pair))

    def _branch(self, branch: Branch) -> None:
        wide, count = int(branch.index.type.dtype == dtypes.int32), len(branch.branches)
        self._emit(Op.SWITCH, self.words[branch.index], wide, count, *[0] * count)
        table, jumps = len(self.code) - count, []
        for number, steps in enumerate(branch.branches):
            self.code[table + number] = len(self.code)
            self._steps(steps)
            self._emit(Op.JUMP, 0)
            jumps.append(len(self.code) - 1)
        for jump in jumps:
            self.code[jump] = len(self.code)

    def finish(self) -> Encoded:
        args = len(self.template)
        count, numbers = self._objects()
        return Encoded(
            code=(ctypes.c_int64 * len(self.code))(*self.code),
            template=self.template + [0] * self.most_args,
            args=args,
            words=self.words,
            arguments=count,
            results=tuple(numbers),
            hosts=tuple(self.hosts),
            scratch_bytes=to_line(self.scratch_bytes),
            parallel=self.parallel,
            tapes=self.tapes,
            keep=(self.plan, *self.codes.values(), *self.sequences.values(), *self.keep),
        )
