"""Tapes inside sequences: a slot that is there is written and read in line.

The functions of native/tape_code.py do the rest: the first slot of a tape or of a slab, tapes of
more than one lane. What they are given is copied to a place of its own first, because the compiler
cannot keep in registers what other functions see.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

from fxad.backend.llvm.native.tape_code import HEADER, KERNELS
from fxad.backend.llvm.native.tapes import tape_layout
from fxad.backend.llvm.sequence.body import Body
from fxad.ir.plan import Slot, Taping

Blocks = list[tuple[Slot, int, int]]  # slot of the block, bytes of one lane, offset in the tape's


class Taper:
    """Writes the steps that act on tapes into a sequence's function."""

    PARAMS = (("ptr", "region"), *[("ptr", kind) for kind in KERNELS])

    def __init__(self, body: Body) -> None:
        self.body = body
        self.f = body.f
        self.constants: list[str] = []
        self.sizes: list[int] = []  # bytes of the places for what other functions see

    def mark(self) -> None:
        self.body.call("%mark", ["ptr %region"])

    def release(self) -> None:
        self.body.call("%release", ["ptr %region"])

    def places(self) -> None:
        """Reserve what the calls have come to need."""
        for n, size in enumerate(self.sizes):
            self.body.reserve(f"argument{n}", size)

    def emit_step(self, step: Taping) -> None:
        if step.kind == "span":
            return self._call("%span", step.inputs, step.outputs, f"i64 {step.type.size}", 1)
        writing = step.kind == "write"
        layout = tape_layout(step.type)
        held = step.inputs[2:] if writing else step.outputs
        blocks = list(zip(held, layout[3::2], layout[4::2], strict=True))
        slow, done = self.f.new_label("slow"), self.f.new_label("done")
        if step.type.size == 1:
            if writing:
                self._write(step, blocks, layout[1], slow)
            else:
                self._read(step, blocks, layout[1], slow)
            self.f.jump(done)
        else:
            self.f.jump(slow)
        self.f.label(slow)
        shape = f"ptr {self._constant(layout)}"
        if writing:
            self._call("%put", step.inputs, step.outputs, shape, 2, outputs_first=True)
        else:
            self._call("%get", step.inputs, step.outputs, shape, 2)
        self.f.jump(done)
        self.f.label(done)

    # ------------------------------------------------------------ in line

    def _write(self, step: Taping, blocks: Blocks, stride: int, slow: str) -> None:
        """The blocks into their slot, and what the header says; else to `slow`."""
        f, at = self.f, self.body.pointers
        tape, number = self._load_tape(step, slow)
        mine = f.op(f"icmp eq ptr {f.op(f'load ptr, ptr {tape}')}, %region")
        later = f.op(f"icmp sge i64 {number}, 0")
        self._guard(f.op(f"and i1 {mine}, {later}"), slow)
        slot = self._slot_address(tape, number, stride, slow)
        low, high = f.offset(tape, 16), f.offset(tape, 24)
        before, end = f.op(f"load i64, ptr {low}"), f.op(f"load i64, ptr {high}")
        first = f.op(f"icmp eq i64 {end}, 0")
        lower = f.op(f"call i64 @llvm.smin.i64(i64 {before}, i64 {number})")
        after = f.add(number, "1")
        f.line(f"store i64 {f.op(f'select i1 {first}, i64 {number}, i64 {lower}')}, ptr {low}")
        f.line(f"store i64 {f.op(f'call i64 @llvm.smax.i64(i64 {end}, i64 {after})')}, ptr {high}")
        for block, nbytes, offset in blocks:
            self.body.copy(f.offset(slot, offset), at[block], nbytes)
        self.body.copy(at[step.outputs[0]], at[step.inputs[0]], 8)

    def _read(self, step: Taping, blocks: Blocks, stride: int, slow: str) -> None:
        f = self.f
        tape, number = self._load_tape(step, slow)
        low = f.op(f"load i64, ptr {f.offset(tape, 16)}")
        high = f.op(f"load i64, ptr {f.offset(tape, 24)}")
        above, below = f.op(f"icmp sge i64 {number}, {low}"), f.op(f"icmp slt i64 {number}, {high}")
        self._guard(f.op(f"and i1 {above}, {below}"), slow)
        slot = self._slot_address(tape, number, stride, slow)
        for block, nbytes, offset in blocks:
            self.body.copy(self.body.pointers[block], f.offset(slot, offset), nbytes)

    def _load_tape(self, step: Taping, slow: str) -> tuple[str, str]:
        """The tape, which is there, and the number of the slot."""
        f, at = self.f, self.body.pointers
        tape = f.op(f"load ptr, ptr {at[step.inputs[0]]}")
        number = f.op(f"sext i32 {f.op(f'load i32, ptr {at[step.inputs[1]]}')} to i64")
        self._guard(f.op(f"icmp ne ptr {tape}, null"), slow)
        return tape, number

    def _slot_address(self, tape: str, number: str, stride: int, slow: str) -> str:
        """Where a slot lies whose slab is there: see native/tape_code.py."""
        f = self.f
        self.body.declarations |= {
            "declare i64 @llvm.ctlz.i64(i64, i1)",
            "declare i64 @llvm.smin.i64(i64, i64)",
            "declare i64 @llvm.smax.i64(i64, i64)",
        }
        place = f.add(number, "4")
        zeros = f.op(f"call i64 @llvm.ctlz.i64(i64 {place}, i1 true)")
        slab = f.op(f"sub i64 61, {zeros}")
        within = f.op(f"sub i64 {place}, {f.op(f'shl i64 4, {slab}')}")
        start = f.offset(f.offset(tape, 8 * HEADER), f.mul(slab, "8"))
        found = f.op(f"load ptr, ptr {start}")
        self._guard(f.op(f"icmp ne ptr {found}, null"), slow)
        return f.offset(found, f.mul(within, stride))

    def _guard(self, condition: str, otherwise: str) -> None:
        following = self.f.new_label("on")
        self.f.branch(condition, following, otherwise)
        self.f.label(following)

    # ------------------------------------------------------------ by a call

    def _call(
        self,
        function: str,
        inputs: Several[Slot],
        outputs: Several[Slot],
        about: str,
        position: int,
        outputs_first: bool = False,
    ) -> None:
        """Call a function of native/tape_code.py, with `about` as one argument after some others.

        outputs_first: %put, which takes the region and its output before all inputs.
        """
        body, slots = self.body, [*inputs, *outputs]
        self.sizes += [8] * (len(slots) - len(self.sizes))
        for n, slot in enumerate(slots):
            self.sizes[n] = max(self.sizes[n], slot.type.nbytes)
            if n < len(inputs):
                body.copy(f"%argument{n}", body.pointers[slot], slot.type.nbytes)
        words = [f"ptr %argument{n}" for n in range(len(slots))]
        if outputs_first:
            given, made = words[: len(inputs)], words[len(inputs) :]
            body.call(function, ["ptr %region", *made, *given[:2], about, *given[2:]])
        else:
            body.call(function, [*words[:position], about, *words[position:]])
        for n, slot in enumerate(outputs, len(inputs)):
            body.copy(body.pointers[slot], f"%argument{n}", slot.type.nbytes)

    def _constant(self, layout: list[int]) -> str:
        """The layout of a tape's slots as data of the module."""
        words = ", ".join(f"i64 {word}" for word in layout)
        text = f"private unnamed_addr constant [{len(layout)} x i64] [{words}]"
        if text not in self.constants:
            self.constants.append(text)
        return f"@shape{self.constants.index(text)}"

    def texts(self) -> list[str]:
        return [f"@shape{n} = {text}" for n, text in enumerate(self.constants)]
