"""Plan -> something to call: compiled kernels, encoded steps, and memory leased for each run.

    executable = Executable(plan)
    results = executable.run([x, w])  # NumPy arrays in, NumPy arrays out

An Executable's code never changes, so any number of Python threads may run it at once.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.backend import hosts
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.cache import Code, compile_kernels
from fxad.backend.llvm.direct import MOST_BYTES, Direct
from fxad.backend.llvm.measured import target_of
from fxad.backend.llvm.native import memory, pool
from fxad.backend.llvm.native.direct import fixed_words
from fxad.backend.llvm.native.library import Status, Word, runtime
from fxad.backend.llvm.native.tapes import NativeTape, Region, handles_of
from fxad.backend.llvm.runner import Encoded, Frame, encode
from fxad.backend.llvm.sequence.choose import sequences as sequences_of
from fxad.backend.llvm.sequence.choose import walk_outside
from fxad.backend.llvm.sequence.emit import SequenceCode, compile_sequence
from fxad.core import cores, interrupts
from fxad.core.aligned import to_line
from fxad.core.config import config
from fxad.core.errors import CheckError, ShapeError, TypeMismatch
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.check_plan import check_plan
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Host, Plan, Run, Slot, walk
from fxad.ir.tape import TapeValue

if TYPE_CHECKING:
    from fxad.backend.protocol import Donation

TICK_NS = 200_000_000  # native code lets Python handle signals at least this often
_KEPT = 1 << 17  # a frame keeps an arena up to this size instead of leasing one for each run
_DATA = object.__basicsize__  # a NumPy array's data pointer, see native/library.py
_ITEMS = tuple.__basicsize__  # a tuple's items: the tables of objects that native code binds
_PC = 8 * int(Word.PC)  # plain numbers: enum members are slow
_PACK = struct.Struct(f"={Word.FIRST - Word.PC}q").pack_into


Tables = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]  # arguments, result buffers


class Executable:
    """A compiled Plan. Building one raises CheckError if the plan or generated code is broken."""

    def __init__(
        self,
        plan: Plan,
        target: Target | None = None,
        codes: dict[Kernel, Code] | None = None,
        sequences: Sequence[SequenceCode] = (),
    ) -> None:
        """codes, sequences: of all kernels and loops, where they are compiled already."""
        start = time.perf_counter()
        self.plan = plan
        check_plan(plan)
        target = target or target_of(config.isa)
        if codes is None:
            sequences = [
                compile_sequence(s, target) for s in sequences_of(plan, target.tuning.sequences)
            ]
            loops = {code.sequence.loop for code in sequences}
            runs = [s for s in walk_outside(plan.steps, loops) if isinstance(s, Run)]
            distinct = list(dict.fromkeys(run.kernel for run in runs))
            codes = dict(zip(distinct, compile_kernels(distinct, target), strict=True))
        self.codes: dict[Kernel, Code] = codes
        self.sequences = tuple(sequences)
        self._encoded: Encoded = encode(plan, self.codes, self.sequences, target)
        self.seconds = time.perf_counter() - start
        self._execute = runtime().execute
        self._frames: list[Frame] = []
        self._scratch_start = to_line(plan.arena_bytes)
        numbers = self._encoded.results
        slots = _first_slots(plan, "result")
        self._types = {n: slot.type for n, slot in _first_slots(plan, "argument").items()}
        self._buffer_types = [slots[number].type for number in numbers]
        self._donated = {  # buffer -> the argument whose storage it takes over
            numbers.index(result): argument
            for result, argument in plan.donated.items()
            if result in slots
        }
        self._makers = [  # of the other buffers
            memory.result_array(kind)
            for index, kind in enumerate(self._buffer_types)
            if index not in self._donated
        ]
        kinds: list[Type] = [slot.type for slot in plan.results]
        self._tape_results = {n: k for n, k in enumerate(kinds) if isinstance(k, TapeType)}
        self._has_run = False  # with an arena that is taken for a run
        self.tape_bytes = 0  # most bytes that the tapes of one run have taken so far
        self._tapes = self._encoded.tapes or any(isinstance(s.type, TapeType) for s in plan.slots)
        self._outputs = _outputs(plan, numbers)
        around = hosts.around(plan)
        if around is not None:
            self.run = around()(self.run)  # type: ignore[method-assign]

    # ------------------------------------------------------------ running

    def run(
        self, arrays: Sequence[np.ndarray], donation: Donation | None = None
    ) -> list[np.ndarray]:
        """Run on the flat arguments; returns the flat results.

        Arguments that are not contiguous, aligned and in native byte order are copied first. A
        donated argument is overwritten and becomes a result; its memory must be writable and the
        caller's alone; `donation` gives it back if the run ends by an exception before it is
        overwritten, and Ctrl-C is held back from then on. Results never share memory with other
        arguments.
        Raises ShapeError or TypeMismatch for arguments of other types than compiled for, and
        whatever a Host function raises.
        """
        encoded = self._encoded
        if len(arrays) < encoded.arguments:
            raise TypeMismatch(f"expected {encoded.arguments} arguments, got {len(arrays)}")
        workers = pool.current_pool() if encoded.parallel else None
        start, stride = self._scratch_start, encoded.scratch_bytes
        size = start + (workers.threads if workers else 1) * stride
        frame = self._take_frame(size if size <= _KEPT else 0)
        block = region = None
        try:
            buffers = [make() for make in self._makers]
            if self._donated:
                frame.words[Word.INTERVAL] = TICK_NS  # nothing is overwritten yet
                arrays = list(arrays)
                self._take_over(arrays, buffers)
            region = Region() if self._tapes else None
            arena = frame.arena_address
            if size > _KEPT:
                block = memory.take(size, first=not self._has_run)
                arena, self._has_run = block.address, True
            bound, made = held = tuple(arrays), tuple(buffers)
            at = workers.address if workers else 0
            rest = region.address if region else 0, id(bound) + _ITEMS, id(made) + _ITEMS
            _PACK(frame.words, _PC, 0, 0, TICK_NS, at, arena, arena + start, stride, *rest)
            part = self._overwriting_part if self._donated else self._part
            while status := part(frame):  # between two parts Python handles signals
                held = self._serve(status, frame, held, region)
            results = buffers if self._outputs is None else self._collect(frame, buffers)
            if region is not None:
                results = self._with_tapes(results, arrays, region)
            if donation is not None:
                donation.results = results
            return results
        except BaseException:
            if donation is not None and not frame.overwrites:
                donation.give_back()
            raise
        finally:
            if region is not None and not region.kept:
                region.clear()
            self._frames.append(frame)
            if block is not None:
                memory.give(block)

    def _part(self, frame: Frame) -> int:
        """Go on with a run, up to where native code stops; 0 at its end."""
        return self._execute(frame.address)

    def _overwriting_part(self, frame: Frame) -> int:
        """The same for a plan that overwrites arguments. An interrupt that comes while it does is
        held back: the caller would have neither them nor the results."""
        status = int(Status.TICK)
        try:
            for status in map(self._execute, (frame.address,)):  # noqa: B007
                pass  # going on, Python handles signals, and the status is known already
        except KeyboardInterrupt:
            if not (frame.overwrites and interrupts.hold()):
                raise
        return status

    def _take_frame(self, arena_bytes: int) -> Frame:
        """A frame with memory of at least so many bytes: a kept one, or a new one."""
        try:
            frame = self._frames.pop()
        except IndexError:
            return self._encoded.new_frame(arena_bytes)
        if frame.arena_bytes < arena_bytes:  # there are more threads now
            return self._encoded.new_frame(arena_bytes)
        return frame

    def direct(self, types: Sequence[ArrayType], weak: Sequence[bool]) -> Direct | None:
        """This program as a native function of Arrays of these types, if it calls no Python, keeps
        no memory, takes little, overwrites no argument, and its results are memory of their own.
        None too where Python is built otherwise (`fixed_words`)."""
        encoded = self._encoded
        if self._outputs is not None or self._donated or self._tapes or encoded.hosts:
            return None
        if self._scratch_start + encoded.scratch_bytes > MOST_BYTES or not fixed_words():
            return None
        return Direct(encoded, self._makers, self._scratch_start, TICK_NS, (types, weak))

    def _with_tapes(
        self, results: list[Any], arguments: Sequence[Any], region: Region
    ) -> list[Any]:
        """The results with handles as tapes that keep their memory; without any it is freed."""
        region.check()
        self.tape_bytes = max(self.tape_bytes, region.most)
        if not self._tape_results:
            return results
        region.kept = True
        keep = (region, *[a for a in arguments if isinstance(a, TapeValue)])
        for number, kind in self._tape_results.items():
            results[number] = NativeTape(kind, results[number], keep)
        return results

    def _take_over(self, bound: list[np.ndarray], buffers: list[np.ndarray]) -> None:
        """Insert the buffers that are donated arguments' storage."""
        twice = len({id(array) for array in bound}) < len(bound)
        for index, argument in sorted(self._donated.items()):
            array, kind = bound[argument], self._buffer_types[index]
            bound[argument] = array = self._in_place(argument, array)
            if twice and sum(other is array for other in bound) > 1:
                bound[argument] = array = _copied(array, self._types[argument])
            if not _has_type(array, kind):
                array = np.ndarray(kind.shape, kind.dtype, array)
            buffers.insert(index, array)

    def _serve(self, status: int, frame: Frame, held: Tables, region: Region | None) -> Tables:
        """Do what native code has stopped for; the objects it goes on with."""
        words, (bound, buffers) = frame.words, held
        match status:
            case Status.TICK:
                if region is not None:
                    region.check()
                return held
            case Status.HOST:
                self._call_host(frame, self._encoded.hosts[words[Word.REPORT]])
                return held
            case Status.REBIND:
                number, words[Word.UNIT] = words[Word.UNIT], 0
                if words[Word.REPORT] != Word.ARGUMENTS:
                    raise CheckError(f"result {number} has an unexpected layout")
                given: object = bound[number]
                if region is not None and isinstance(given, TapeValue):
                    given = handles_of(given, region)
                bound = (*bound[:number], self._in_place(number, given), *bound[number + 1 :])
                words[Word.ARGUMENTS] = id(bound) + _ITEMS
                return bound, buffers
        raise CheckError(f"the native runtime answered {status}")

    def _in_place(self, number: int, given: object) -> np.ndarray:
        """The argument as an array that native code reads in place, copied only if it must be."""
        kind = self._types.get(number)
        array = np.asarray(given)
        if kind is None:
            return array
        if array.shape != kind.shape:
            raise ShapeError(
                f"argument {number} has shape {list(array.shape)}, but the program was compiled "
                f"for {kind}"
            )
        if array.dtype != kind.dtype and array.dtype.newbyteorder("=") != kind.dtype:
            raise TypeMismatch(
                f"argument {number} has dtype {array.dtype}, but the program was compiled "
                f"for {kind}"
            )
        flags = array.flags
        if flags.c_contiguous and flags.aligned and array.dtype is kind.dtype:
            return array
        return _copied(array, kind)

    def _call_host(self, frame: Frame, step: Host) -> None:
        words = self._encoded.words
        if step.acquires:
            return self._acquire(frame, step)
        inputs = []
        for slot in step.inputs:
            address = frame.words[words[slot]]
            if getattr(step.function, "borrows", False):  # it promises not to keep it
                array = _at(address, slot.type)
            else:  # a copy, since the arena is used again
                array = np.empty(slot.type.shape, slot.type.dtype)
                ctypes.memmove(_address(array), address, array.nbytes)
            array.flags.writeable = False
            inputs.append(array)
        arrays = hosts.checked(step, step.function(*inputs))
        for array, slot in zip(arrays, step.outputs, strict=True):
            ctypes.memmove(frame.words[words[slot]], _address(array), array.nbytes)

    def _acquire(self, frame: Frame, step: Host) -> None:
        """Let a slot point at its offload buffer, or at memory of its own."""
        (slot,) = step.outputs
        address = frame.words[Word.ARENA] + slot.offset
        buffer: Any = step.function(_at(address, slot.type))
        if buffer is not None:
            address = _address(buffer)
        frame.words[self._encoded.words[slot]] = address

    def _collect(self, frame: Frame, buffers: list[np.ndarray]) -> list[np.ndarray]:
        """The results where they are not just the buffers."""
        at = {_address(array): number for number, array in enumerate(buffers)}
        results: list[np.ndarray] = []
        used: set[int] = set()
        for number, moved, slot in self._outputs or ():
            source = frame.words[self._encoded.words[slot]]
            if moved and number >= 0:
                number = at.get(source, -1)
            if number < 0 or number in used or not _has_type(buffers[number], slot.type):
                array = memory.result_array(slot.type)()
                ctypes.memmove(_address(array), source, slot.type.nbytes)
            else:
                array = buffers[number]
                used.add(number)
            results.append(array)
        return results

    # ------------------------------------------------------------ looking inside

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The steps that call Python; other Host steps have code of their own."""
        return self._encoded.hosts

    @property
    def peak_bytes(self) -> int:
        """Bytes a run needs beyond its arguments: results, arena and scratch of every thread."""
        results = sum(
            kind.nbytes for i, kind in enumerate(self._buffer_types) if i not in self._donated
        )
        return results + self._scratch_start + self.scratch_bytes

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch of all threads together."""
        threads = cores.get_num_threads() if self._encoded.parallel else 1
        return threads * self._encoded.scratch_bytes

    def stats(self) -> dict[str, int | float]:
        """Counts and sizes for people and for tests."""
        steps = list(walk(self.plan.steps))
        return {
            "steps": len(steps),
            "runs": sum(isinstance(step, Run) for step in steps),
            "kernels": len({kernel_key(s.kernel) for s in steps if isinstance(s, Run)}),
            "sequences": len(self.sequences),
            "code_words": len(self._encoded.code),
            "arena_bytes": self.plan.arena_bytes,
            "scratch_bytes": self._encoded.scratch_bytes,
            "peak_bytes": self.peak_bytes,
            "tape_bytes": self.tape_bytes,
            "compile_seconds": self.seconds,
        }

    @property
    def llvm(self) -> str:
        """LLVM IR of every distinct kernel and of the loops that are compiled as a whole."""
        kernels = {code.name: code.llvm for code in self.codes.values()}
        return "\n".join([*kernels.values(), *[code.llvm for code in self.sequences]])

    @property
    def asm(self) -> str:
        """Assembler text of every distinct kernel and of the loops that are compiled as a whole."""
        kernels = {code.name: code.asm for code in self.codes.values()}
        return "\n".join([*kernels.values(), *[code.asm for code in self.sequences]])


# ---------------------------------------------------------------- preparation


def _first_slots(plan: Plan, place: str) -> dict[int, Slot]:
    """The first slot of each number in a place; further ones see it under another shape."""
    slots: dict[int, Slot] = {}
    for slot in plan.slots:
        if slot.place == place:
            slots.setdefault(slot.number, slot)
    return slots


def _outputs(plan: Plan, numbers: Sequence[int]) -> list[tuple[int, bool, Slot]] | None:
    """Per result: buffer number or -1, whether swaps may have moved it, and its slot. `numbers`: of
    the result buffers, in order.

    -1: an argument, a constant, arena storage or a buffer that is already a result, to be copied.
    None if the results are simply the buffers, in order.
    """
    swapped = {
        slot for step in walk(plan.steps) for pair in getattr(step, "swaps", ()) for slot in pair
    }
    seen: set[Slot] = set()
    outputs = []
    for slot in plan.results:
        own = slot.place == "result" and slot not in seen
        outputs.append((numbers.index(slot.number) if own else -1, slot in swapped, slot))
        seen.add(slot)
    plain = [number for number, moved, _ in outputs if not moved]
    return None if plain == list(range(len(numbers))) == list(range(len(outputs))) else outputs


# ---------------------------------------------------------------- arrays


def _address(array: np.ndarray) -> int:
    return ctypes.c_size_t.from_address(id(array) + _DATA).value


def _at(address: int, kind: Type) -> np.ndarray:
    """The memory at an address as an array."""
    raw: Any = (ctypes.c_char * kind.nbytes).from_address(address)
    return np.ndarray(kind.shape, kind.dtype, raw)


def _has_type(array: np.ndarray, kind: Type) -> bool:
    return array.shape == kind.shape and array.dtype == kind.dtype


def _copied(array: np.ndarray, kind: Type) -> np.ndarray:
    copy = memory.result_array(kind)()
    copy[...] = array
    return copy
