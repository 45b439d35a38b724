"""Write LLVM IR as text: forty times cheaper than building llvmlite.ir objects.

f = Function("twice", "float", [("float", "x")])
f.ret("float", f.op("fadd float %x, %x"))
str(f)
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.interleave import Choice, ColdPath, Step, interleaved, text_of

Values = Sequence[str]


def float_literal(value: float, dtype: np.dtype) -> str:
    """An exact LLVM constant for a float of type f16, f32 or f64 (bf16 has its own spelling)."""
    if dtype.itemsize == 2:
        mark = "R" if dtype.name == "bfloat16" else "H"
        return f"0x{mark}{int(np.asarray(value, dtype).view(np.uint16)):04X}"
    if dtype.itemsize == 4:
        value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Function:
    """One LLVM function under construction; values and labels are strings."""

    def __init__(
        self,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        linkage: str = "",
        attributes: str = "#0",
    ) -> None:
        signature = ", ".join(f"{t} %{n}" for t, n in params)
        self.name = name
        self.lines: list[Step] = [
            f"define {linkage} {result} @{name}({signature}) {attributes} {{",
            "entry:",
        ]
        self.block = "entry"
        self._count = 0

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"%{prefix}{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        """Append `%new = text`, return `%new`."""
        value = self.fresh()
        self.lines.append(f"  {value} = {text}")
        return value

    def new_label(self, prefix: str = "b") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def label(self, name: str) -> None:
        """Start the block `name` (the previous block must have been ended)."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def ret(self, type: str = "void", value: str = "") -> None:
        self.line(f"ret {type} {value}".rstrip())

    def offset(self, pointer: str, bytes: str | int) -> str:
        """Address `bytes` past `pointer`."""
        if bytes in (0, "0"):
            return pointer
        return self.op(f"getelementptr i8, ptr {pointer}, i64 {bytes}")

    def add(self, a: str | int, b: str | int) -> str:
        """64-bit a + b, folded where both are numbers."""
        if _is_number(a) and _is_number(b):
            return str(int(a) + int(b))
        if str(a) == "0":
            return str(b)
        if str(b) == "0":
            return str(a)
        return self.op(f"add i64 {a}, {b}")

    def mul(self, a: str | int, b: str | int) -> str:
        """64-bit a * b, folded where both are numbers."""
        if _is_number(a) and _is_number(b):
            return str(int(a) * int(b))
        if "0" in (str(a), str(b)):
            return "0"
        if str(a) == "1":
            return str(b)
        if str(b) == "1":
            return str(a)
        return self.op(f"mul i64 {a}, {b}")

    def least(self, a: str | int, b: str | int) -> str:
        """The smaller of two signed 64-bit numbers."""
        return self._pick("slt", a, b)

    def most(self, a: str | int, b: str | int) -> str:
        """The larger of two signed 64-bit numbers."""
        return self._pick("sgt", a, b)

    def _pick(self, order: str, a: str | int, b: str | int) -> str:
        test = self.op(f"icmp {order} i64 {a}, {b}")
        return self.op(f"select i1 {test}, i64 {a}, i64 {b}")

    def when(self, condition: str, body: Callable[[], object]) -> None:
        """Run the body's code where the condition holds; no values leave it."""
        yes, done = self.new_label("yes"), self.new_label("done")
        self.branch(condition, yes, done)
        self.label(yes)
        body()
        self.jump(done)
        self.label(done)

    def loop(
        self,
        low: str | int,
        high: str | int,
        step: int,
        body: Callable[[str, list[str]], Values | None],
        carried: Sequence[tuple[str, str]] = (),
        at_least_once: bool = False,
        reduce: bool = False,
    ) -> list[str]:
        """`for i in range(low, high, step)` with loop-carried values.

        carried: (type, initial value); body(i, values) returns the next values. Returns the
        values after the loop. With `at_least_once` the entry test is left out.

        The body sees the counter through a `freeze`, which keeps LLVM's loop strength reduction
        from the addresses made of it: in code as unrolled as ours it takes a fifth of the time of
        compilation, gains nothing and needs registers. (A `freeze` of the counter itself, without
        the addition of nothing, LLVM would move out of the loop.) With `reduce` the body sees the
        counter itself: the inner loops of matrix products have five instructions in a hundred
        less so.
        """
        before = self.block
        head, inside, done = (self.new_label(p) for p in ("head", "body", "done"))
        index = self.fresh("i")
        values = [self.fresh("c") for _ in carried]
        self.jump(head)
        self.label(head)
        hole = len(self.lines)
        self.lines.append("")
        if not at_least_once:
            self.branch(self.op(f"icmp slt i64 {index}, {high}"), inside, done)
            self.label(inside)
        seen = index if reduce else self.op(f"freeze i64 {self.op(f'add i64 {index}, 0')}")
        following = list(body(seen, values) or ())
        after = self.op(f"add i64 {index}, {step}")
        latch = self.block
        phis = [f"  {index} = phi i64 [ {low}, %{before} ], [ {after}, %{latch} ]"]
        for (type, start), value, next_value in zip(carried, values, following, strict=True):
            phis.append(
                f"  {value} = phi {type} [ {start}, %{before} ], [ {next_value}, %{latch} ]"
            )
        self.lines[hole] = "\n".join(phis)
        if at_least_once:
            self.branch(self.op(f"icmp slt i64 {after}, {high}"), head, done)
            self.label(done)
            return following
        self.jump(head)
        self.label(done)
        return values

    def cold_path(
        self, mask: tuple[str, str], usual: tuple[str, str], body: Callable[[], str]
    ) -> str:
        """`usual`, but what `body` answers where any lane is true of a mask; its code runs only
        then. Both as (type, name)."""
        start = len(self.lines)
        inside, after = self.new_label("rare"), self.new_label("usual")
        self.block = inside
        repaired = body()
        lines = tuple(self.lines[start:])
        result = self.fresh()
        self.lines[start:] = [
            ColdPath(*mask, self.fresh(), inside, after, lines, (Choice(result, *usual, repaired),))
        ]
        self.block = after
        return result

    def interleave(self, starts: Sequence[int]) -> None:
        """Let the pieces of code that begin at these lines, the last of which ends here, do an
        instruction each in turn (interleave.py).

        Pieces may read what earlier ones compute, but not what they store. Those with branches
        other than cold paths stay as they are.
        """
        if len(starts) < 2 or any(
            isinstance(line, str) and line.endswith(":") for line in self.lines[starts[0] :]
        ):
            return
        bounds = itertools.pairwise([*starts, len(self.lines)])
        steps = interleaved([self.lines[low:high] for low, high in bounds], self.fresh)
        self.lines[starts[0] :] = steps
        for step in steps:
            self.block = step.after if isinstance(step, ColdPath) else self.block

    def __str__(self) -> str:
        return "\n".join([*text_of(self.lines, "")[0], "}"])


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.lstrip("-").isdigit()
