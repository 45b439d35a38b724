"""A sequence -> one native function: its loop, with every kernel of the body inlined.

    code = compile_sequence(sequence, target)
    code.address                      # void (ptr args, i64 begin, i64 end, ptr scratch)

`args` are the pointers of `choose.arguments`, then where tapes are used the run's region and the
addresses in `RUNTIME`. A Loop runs its trips begin..end; state that it exchanges is where it began
until all trips are done, and then where an interpreter would have left it. A While runs about 20
microseconds at most and leaves its predicate true where there is more to do: it is called again.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING

import numpy as np

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.native.engine import Module, compile_module, lock
from fxad.backend.llvm.sequence.body import Body
from fxad.backend.llvm.sequence.choose import Sequence
from fxad.backend.llvm.sequence.tapes import Taper
from fxad.core import dtypes
from fxad.core.lazy import later
from fxad.core.record import record
from fxad.ir.digest import kernel_key
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Branch, Copy, Loop, Run, Step, Taping, While, walk

if TYPE_CHECKING:
    from fxad.backend.llvm.sequence import straight
else:
    straight = later("fxad.backend.llvm.sequence.straight")

WHILE_NS = 20_000  # about what a call of a While takes at most: a chance to stop, on any processor
PASSES = 2
_KEPT = 256  # modules that are found again by their text


@record
class SequenceCode:
    """A compiled sequence. cost: rough nanoseconds of a trip."""

    sequence: Sequence
    module: Module
    cost: float

    @property
    def address(self) -> int:
        return self.module.address(_NAME)

    @property
    def llvm(self) -> str:
        """LLVM IR of its module."""
        target = self.module.target
        return compile_module(*Emission(self.sequence, target).emit(), target, PASSES).text

    @property
    def asm(self) -> str:
        return self.module.assembly(self.llvm)


def trips_at_once(cost: float) -> int:
    """Trips of a While between two chances to stop it."""
    return max(1, min(1000, int(WHILE_NS / cost)))


def compile_sequence(sequence: Sequence, target: Target) -> SequenceCode:
    """Raises CheckError if LLVM rejects the code."""
    emission = Emission(sequence, target)
    texts, declarations = emission.emit()
    key = hashlib.sha256("\n".join([repr(target), *texts]).encode()).hexdigest()
    with lock:
        module = _modules.get(key)
        if module is None:
            module = _modules[key] = compile_module(texts, declarations, target, PASSES)
        _modules.move_to_end(key)
        while len(_modules) > _KEPT:
            _modules.popitem(last=False)
    return SequenceCode(sequence, module, emission.cost(sequence.loop))


_modules: OrderedDict[str, Module] = OrderedDict()
_NAME = "fx_sequence"


class Emission:
    """A sequence's functions under construction: `body`, and those of its kernels."""

    def __init__(self, sequence: Sequence, target: Target) -> None:
        self.sequence = sequence
        self.target = target
        self.kernels: dict[str, Emitted] = {}
        self.of_kernel: dict[Kernel, Emitted] = {}
        self.scratch_bytes = 0
        params = [("ptr", f"p{n}") for n in range(len(sequence.blocks))]
        alone = ["ptr noalias" if only else "ptr" for only in sequence.direct.values()]
        params += [(kind, f"p{len(params) + n}") for n, kind in enumerate(alone)]
        extra = Taper.PARAMS if sequence.tapes else ()
        self.params = [*params, *extra, ("i64", "begin"), ("i64", "end")]
        self.body = Body(Function(f"{_NAME}.loop", "void", self.params, "internal"))
        self.taper = Taper(self.body)

    # ------------------------------------------------------------ the module

    def emit(self) -> tuple[list[str], set[str]]:
        """The texts of all functions, and the declarations they need."""
        for step in walk((self.sequence.loop,)):
            if isinstance(step, Run):
                self.kernel(step.kernel)
        self._copy_in()
        match self.sequence.loop:
            case Loop() as loop:
                self._outer_loop(loop)
            case While() as loop:
                self._while_loop(loop)
        self._copy_out()
        self.body.f.ret()
        self._stack()
        texts = [one.text for one in self.kernels.values()]
        for one in self.kernels.values():
            self.body.declarations |= one.declarations
        texts = [*self.taper.texts(), *texts, str(self.body.f), self._entry()]
        return texts, self.body.declarations

    def _entry(self) -> str:
        """The function that the interpreter calls."""
        f = Function(_NAME, "void", ABI)
        given = []
        for n, (kind, _) in enumerate(self.params[:-2]):
            kind, word = kind.split()[0], f.offset("%args", 8 * n)
            given.append(f"{kind} {f.op(f'load {kind}, ptr {word}, align 8')}")
        f.line(f"call void @{self.body.f.name}({', '.join([*given, 'i64 %begin', 'i64 %end'])})")
        f.ret()
        return str(f)

    def kernel(self, kernel: Kernel) -> Emitted:
        """The private function of a kernel; equal kernels share it."""
        found = self.of_kernel.get(kernel)
        if found is None:
            key = kernel_key(kernel)
            if key not in self.kernels:
                name = f"kernel{len(self.kernels)}"
                self.kernels[key] = straight.emit_inline(kernel, name, self.target)
            found = self.of_kernel[kernel] = self.kernels[key]
            self.scratch_bytes = max(self.scratch_bytes, found.scratch_bytes)
        return found

    def cost(self, loop: Loop | While) -> float:
        """Rough nanoseconds of a trip."""
        total = 2.0
        for step in loop.body if isinstance(loop, Loop) else (*loop.cond, *loop.body):
            match step:
                case Run():
                    total += self.kernel(step.kernel).cost
                case Loop():
                    total += step.trips * self.cost(step)
                case Branch():
                    total += math.fsum(self.cost(Loop(1, False, (), b, ())) for b in step.branches)
                case _:
                    total += 5
        return total

    # ------------------------------------------------------------ memory

    def _stack(self) -> None:
        self.taper.places()
        self.body.reserve("words", 8 * self.body.words)
        self.body.reserve("scratch", self.scratch_bytes)
        self.body.f.lines[2:2] = self.body.stack

    def _copy_in(self) -> None:
        """Copy the blocks in; lanes beyond a block's end may be read, so it is made longer."""
        blocks = self.sequence.blocks
        starts = [self.body.reserve(f"block{n}", b.nbytes + 64) for n, b in enumerate(blocks)]
        for n, block in enumerate(blocks):
            self.body.copy(starts[n], f"%p{n}", block.nbytes)
        for slot, (number, offset) in self.sequence.placed.items():
            self.body.pointers[slot] = self.body.f.offset(starts[number], offset)
        for n, slot in enumerate(self.sequence.direct):
            self.body.pointers[slot] = f"%p{len(blocks) + n}"

    def _copy_out(self) -> None:
        for n, block in enumerate(self.sequence.blocks):
            if block.written:
                self.body.copy(f"%p{n}", f"%block{n}", block.nbytes)

    # ------------------------------------------------------------ loops

    def _outer_loop(self, loop: Loop) -> None:
        f = self.body.f
        f.loop("%begin", "%end", 1, lambda index, _: self._trip(loop, index))
        if loop.swaps and loop.trips % 2:
            last, done = f.new_label("last"), f.new_label("done")
            f.branch(f.op(f"icmp eq i64 %end, {loop.trips}"), last, done)
            f.label(last)
            for one, two in loop.swaps:
                self.body.copy(self.body.pointers[two], self.body.pointers[one], one.type.nbytes)
            f.jump(done)
            f.label(done)

    def _inner_loop(self, loop: Loop) -> None:
        """A loop in the body. Where trips are odd its state ends in the other place."""
        if loop.body:
            self.body.f.loop(0, loop.trips, 1, lambda index, _: self._trip(loop, index))
        if loop.trips % 2:
            for one, two in loop.swaps:
                if loop.body:
                    self.body.copy(
                        self.body.pointers[two], self.body.pointers[one], one.type.nbytes
                    )
                at = self.body.pointers
                at[one], at[two] = at[two], at[one]

    def _trip(self, loop: Loop, index: str) -> None:
        f = self.body.f
        if loop.reverse:
            index = f.op(f"sub i64 {loop.trips - 1}, {index}")
        for view in loop.views:
            offset = f.mul(index, view.slot.type.nbytes)
            self.body.pointers[view.slot] = f.offset(self.body.pointers[view.base], offset)
        self._body(loop)

    def _body(self, loop: Loop | While) -> None:
        """One trip. The new state is copied to where the old one was: that costs nothing where
        both are registers."""
        if loop.frees:
            self.taper.mark()
        self.steps(loop.body)
        if loop.frees:
            self.taper.release()
        for one, two in loop.swaps:
            self.body.copy(self.body.pointers[one], self.body.pointers[two], one.type.nbytes)

    def _while_loop(self, loop: While) -> None:
        f = self.body.f
        before, head, inside, done = f.block, *map(f.new_label, ("head", "body", "done"))
        count, hole = f.fresh("n"), len(f.lines) + 2
        f.jump(head)
        f.label(head)
        f.line("")
        self.steps(loop.cond)
        more = f.op(f"load i8, ptr {self.body.pointers[loop.predicate]}")
        soon = f.op(f"icmp slt i64 {count}, {trips_at_once(self.cost(loop))}")
        go = f.op(f"and i1 {f.op(f'icmp ne i8 {more}, 0')}, {soon}")
        f.branch(go, inside, done)
        f.label(inside)
        self._body(loop)
        following = f.op(f"add i64 {count}, 1")
        f.lines[hole] = f"  {count} = phi i64 [ 0, %{before} ], [ {following}, %{f.block} ]"
        f.jump(head)
        f.label(done)

    # ------------------------------------------------------------ steps

    def steps(self, steps: Several[Step]) -> None:
        for step in steps:
            match step:
                case Run():
                    self._run(step)
                case Copy():
                    self.body.copy(
                        self.body.pointers[step.dst],
                        self.body.pointers[step.src],
                        step.dst.type.nbytes,
                    )
                case Taping():
                    self.taper.emit_step(step)
                case Loop():
                    self._inner_loop(step)
                case Branch():
                    self._branch(step)
                case _:
                    raise TypeError(f"not a step of a sequence: {step!r}")

    def _run(self, run: Run) -> None:
        kernel = self.kernel(run.kernel)
        if not kernel.units:
            return
        words = [f"ptr {self.body.pointers[slot]}" for slot in run.slots]
        scalars = zip(run.scalars, run.kernel.scalars, strict=True)
        words += [self._scalar(value, scalar.dtype) for value, scalar in scalars]
        self.body.call(f"@{kernel.name}", words, kernel.units)

    def _scalar(self, value: bool | int | float | complex, dtype: np.dtype) -> str:
        """A scalar argument's word: its bits, or the address of a complex one."""
        with np.errstate(all="ignore"):  # 1e10 is a fine infinity in float16
            data = np.asarray(value).astype(dtype).tobytes()
        if not dtypes.is_complex(dtype):
            word = int.from_bytes(data.ljust(8, bytes(1)), "little")
            return f"i64 {word}"
        place = self.body.reserve(f"scalar{len(self.body.stack)}", len(data))
        for at in range(0, len(data), 8):
            word = int.from_bytes(data[at : at + 8], "little")
            self.body.f.line(f"store i64 {word}, ptr {self.body.f.offset(place, at)}, align 8")
        return f"ptr {place}"

    def _branch(self, branch: Branch) -> None:
        f, count = self.body.f, len(branch.branches)
        labels, done = [f.new_label("case") for _ in branch.branches], f.new_label("chosen")
        place = self.body.pointers[branch.index]
        if dtypes.is_bool(branch.index.type.dtype):
            index = f.op(f"zext i8 {f.op(f'load i8, ptr {place}')} to i32")
        else:
            index = f.op(f"load i32, ptr {place}")
        self.body.declarations |= {f"declare i32 @llvm.{m}.i32(i32, i32)" for m in ("smax", "smin")}
        index = f.op(f"call i32 @llvm.smax.i32(i32 {index}, i32 0)")
        index = f.op(f"call i32 @llvm.smin.i32(i32 {index}, i32 {count - 1})")
        cases = " ".join(f"i32 {n}, label %{label}" for n, label in enumerate(labels[:-1]))
        f.line(f"switch i32 {index}, label %{labels[-1]} [ {cases} ]")
        for label, steps in zip(labels, branch.branches, strict=True):
            f.label(label)
            self.steps(steps)
            f.jump(done)
        f.label(done)
