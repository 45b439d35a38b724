"""The vector instructions of a matrix product: load, convert, broadcast, multiply-add, transpose.

    lanes = Lanes(np.dtype("float32"), 16)
    b = lanes.load(f, "%p", np.dtype("float16"), 3)     # 3 of 16 lanes, converted; the rest 0
    c = lanes.multiply_add(f, lanes.broadcast(f, a), b, c)

Values are strings of the accumulator's type. Integers multiply and add with wrapping.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base.formats import cast, from_memory
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.core import dtypes as dt

_FLOATS = {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}
_ANY = Target("generic")  # widening is written alike for all


def memory_type(dtype: np.dtype) -> str:
    """How LLVM sees one element in memory; bf16 is handled as its 16 bits."""
    return _FLOATS.get(dtype.name) or f"i{8 * dtype.itemsize}"


def supports(accumulator: np.dtype, operand: np.dtype) -> bool:
    """Can `operand` elements be read exactly into lanes of `accumulator`?"""
    if accumulator.name in ("float32", "float64"):
        floats = dt.is_float(operand)
        return floats and (operand == accumulator or operand.itemsize < accumulator.itemsize)
    if not dt.is_integer(accumulator) or not dt.is_integer(operand):
        return False
    return operand == accumulator or operand.itemsize < accumulator.itemsize


class Lanes:
    """A vector of `width` accumulators."""

    def __init__(self, dtype: np.dtype, width: int) -> None:
        self.dtype = dtype
        self.width = width
        self.bytes = dtype.itemsize
        self.scalar = memory_type(dtype)
        self.vector = f"<{width} x {self.scalar}>"
        self.is_float = dtype.kind == "f"
        self.declarations: set[str] = set()
        prefix = "f" if self.is_float else "i"
        self._suffix = f"v{width}{prefix}{8 * dtype.itemsize}"

    def _mask(self, count: int) -> str:
        return "<" + ", ".join(f"i1 {int(i < count)}" for i in range(self.width)) + ">"

    def load(self, f: Function, pointer: str, source: np.dtype, count: int, align: int = 0) -> str:
        """The first `count` elements at `pointer` in accumulator lanes; the others are 0."""
        type = memory_type(source)
        align = align or source.itemsize
        if count == self.width == 1 and source != self.dtype:  # what converts takes it for a scalar
            one = f"{self.scalar} {self.element(f, pointer, source)}"
            return f.op(f"insertelement {self.vector} poison, {one}, i64 0")
        if count == self.width:
            value = f.op(f"load <{count} x {type}>, ptr {pointer}, align {align}")
            return self._converted(f, value, source)
        if source != self.dtype:
            # Half-width masked loads would be split into scalars anyway.
            value = f"<{self.width} x {type}> zeroinitializer".split("> ")[1]
            for i in range(count):
                one = f.op(f"load {type}, ptr {f.offset(pointer, i * source.itemsize)}")
                whole = f"<{self.width} x {type}> {value}"
                value = f.op(f"insertelement {whole}, {type} {one}, i64 {i}")
            return self._converted(f, value, source)
        name = f"llvm.masked.load.{self._suffix}.p0"
        self.declarations.add(
            f"declare {self.vector} @{name}(ptr, i32, <{self.width} x i1>, {self.vector})"
        )
        return f.op(
            f"call {self.vector} @{name}(ptr {pointer}, i32 {align}, "
            f"<{self.width} x i1> {self._mask(count)}, {self.vector} zeroinitializer)"
        )

    def _converted(self, f: Function, value: str, source: np.dtype, width: int = 0) -> str:
        if source == self.dtype:
            return value
        raw = Vec(Code(f, _ANY), memory_type(source), width or self.width, value)
        converted: Vec = cast(from_memory(raw, source), source, self.dtype)
        return converted.text

    def store(
        self,
        f: Function,
        value: str,
        pointer: str,
        count: int,
        align: int = 0,
        streams: bool = False,
    ) -> None:
        """Store the first `count` lanes; streams: by a non-temporal store if they are all, and then
        `pointer` is a multiple of the bytes of all lanes."""
        align = align or self.bytes
        if count == self.width and streams:
            align, how = self.width * self.bytes, ", !nontemporal !{i32 1}"
            f.line(f"store {self.vector} {value}, ptr {pointer}, align {align}{how}")
            return
        if count == self.width:
            f.line(f"store {self.vector} {value}, ptr {pointer}, align {align}")
            return
        name = f"llvm.masked.store.{self._suffix}.p0"
        self.declarations.add(f"declare void @{name}({self.vector}, ptr, i32, <{self.width} x i1>)")
        f.line(
            f"call void @{name}({self.vector} {value}, ptr {pointer}, i32 {align}, "
            f"<{self.width} x i1> {self._mask(count)})"
        )

    def store_first(self, f: Function, value: str, pointer: str, count: int) -> None:
        """Store the first `count` lanes as a vector of their own: some instructions, no mask."""
        if count < self.width:
            listed = ", ".join(f"i32 {i}" for i in range(count))
            value = f.op(
                f"shufflevector {self.vector} {value}, {self.vector} poison, "
                f"<{count} x i32> <{listed}>"
            )
        type = f"<{count} x {self.scalar}>"
        f.line(f"store {type} {value}, ptr {pointer}, align {self.bytes}")

    def element(self, f: Function, pointer: str, source: np.dtype) -> str:
        """One element, converted to the accumulator's type."""
        value = f.op(f"load {memory_type(source)}, ptr {pointer}, align {source.itemsize}")
        return self._converted(f, value, source, 1)

    def broadcast(self, f: Function, scalar: str) -> str:
        one = f.op(f"insertelement {self.vector} poison, {self.scalar} {scalar}, i64 0")
        return f.op(
            f"shufflevector {self.vector} {one}, {self.vector} poison, "
            f"<{self.width} x i32> zeroinitializer"
        )

    def factor(self, f: Function, pointer: str) -> str:
        """The element of A at `pointer` in all lanes."""
        return self.broadcast(f, self.element(f, pointer, self.dtype))

    def multiply_add(self, f: Function, a: str, b: str, c: str) -> str:
        """a * b + c: one rounding for floats, wrapping for integers."""
        if not self.is_float:
            product = f.op(f"mul {self.vector} {a}, {b}")
            return f.op(f"add {self.vector} {product}, {c}")
        name = f"llvm.fma.{self._suffix}"
        self.declarations.add(
            f"declare {self.vector} @{name}({self.vector}, {self.vector}, {self.vector})"
        )
        return f.op(
            f"call {self.vector} @{name}({self.vector} {a}, {self.vector} {b}, {self.vector} {c})"
        )

    def add(self, f: Function, a: str, b: str) -> str:
        return f.op(f"{'fadd' if self.is_float else 'add'} {self.vector} {a}, {b}")

    def shuffle(self, f: Function, a: str, b: str, picked: Sequence[int]) -> str:
        listed = ", ".join(f"i32 {i}" for i in picked)
        return f.op(
            f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.width} x i32> <{listed}>"
        )

    def side_by_side(self, f: Function, low: str, high: str) -> str:
        """Two vectors of half as many lanes as one."""
        half = f"<{self.width // 2} x {self.scalar}>"
        listed = ", ".join(f"i32 {i}" for i in range(self.width))
        return f.op(f"shufflevector {half} {low}, {half} {high}, <{self.width} x i32> <{listed}>")

    def transpose(self, f: Function, rows: Sequence[str]) -> list[str]:
        """Squares of lanes transposed, by exchanging neighbours, pairs, ...: a square of as many
        rows as lanes, or of fewer, which hold several side by side."""
        rows = list(rows)
        for bit in (1 << i for i in range(len(rows).bit_length() - 1)):
            low = [i if not i & bit else (i ^ bit) + self.width for i in range(self.width)]
            high = [i | bit if not i & bit else i + self.width for i in range(self.width)]
            for i in range(len(rows)):
                if not i & bit:
                    a, b = rows[i], rows[i | bit]
                    rows[i] = self.shuffle(f, a, b, low)
                    rows[i | bit] = self.shuffle(f, a, b, high)
        return rows


def prefetch_line(
    f: Function, declarations: set[str], pointer: str, write: bool, level: int
) -> None:
    """Prefetch the cache line at `pointer` (never faults); level 3 is L1, 2 is L2."""
    declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    f.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {level}, i32 1)")
