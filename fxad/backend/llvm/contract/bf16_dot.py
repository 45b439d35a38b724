"""bf16 products through `vdpbf16ps`: two steps of k in one instruction.

    uses_bf16_dot(problem, target)      # bf16 x bf16 -> f32, a machine where it pays

Operands are packed as pairs: 32 bits that hold k in the high half and k + 1 in the low one (VNNI's
layout has them the other way round), which is 0 for the last k of an odd K: a product of zeros
changes no sum. An A whose rows are whole pairs
is read where it lies by narrow tiles.
The instruction adds the product of the high halves, then that of the low ones, each by an FMA of
float32, so the order over k, and with it the result, is that of any other path; only sums and
products that are denormal become 0. To the micro-kernel pairs are float32s of half as large a K.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.blocking import register_tile
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.pack import PARAMS_A, PARAMS_B, Source, is_column_major
from fxad.backend.llvm.contract.problem import Problem

_HALF = 2  # bytes of a bf16
_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"


def uses_bf16_dot(problem: Problem, target: Target) -> bool:
    """Whether operands are bf16 with neighbours along k or along the other axis."""
    matrices = (problem.a, problem.b)
    return (
        "bf16_pairs" in target.features
        and problem.dtype == np.float32
        and all(m.buffer.dtype.name == "bfloat16" for m in matrices)
        and all(1 in (m.outer, m.inner) for m in matrices)
    )


def reads_a_in_place(problem: Problem, target: Target) -> bool:
    """Whether the micro-kernels read A where it lies: its rows are whole pairs, one by another, and
    a tile's sums leave registers to the factors that LLVM loads before others are used."""
    a, (rows, columns, k) = problem.a, problem.size
    vectors, blocks = register_tile(rows, columns, target.lanes(problem.dtype), target.registers)
    room = -(-rows // blocks) * vectors <= target.tuning.gemm.bf16_dot_sums
    return room and a.inner == 1 and a.outer % 2 == k % 2 == 0


class Bf16DotLanes(Lanes):
    """Lanes of float32 sums whose factors are pairs. in_place: those of A lie in memory as k, k + 1
    and are swapped whenever a tile reads them."""

    def __init__(self, dtype: np.dtype, width: int, in_place: bool = False) -> None:
        super().__init__(dtype, width)
        self.in_place = in_place

    def factor(self, f: Function, pointer: str) -> str:
        if not self.in_place:
            return super().factor(f, pointer)
        # An integer is rotated beside the products, a vector by what multiplies and adds.
        return self.broadcast(f, self.pair(f, pointer, self.dtype, alone=False))

    def multiply_add(self, f: Function, a: str, b: str, c: str) -> str:
        pairs = f"<{2 * self.width} x bfloat>"
        self.declarations.add(f"declare {self.vector} @{_DOT}({self.vector}, {pairs}, {pairs})")
        a, b = (f.op(f"bitcast {self.vector} {x} to {pairs}") for x in (a, b))
        return f.op(f"call {self.vector} @{_DOT}({self.vector} {c}, {pairs} {a}, {pairs} {b})")

    def joined(self, f: Function, high: str, low: str) -> str:
        """Pairs of two bf16 values in every lane, both already converted to float32."""
        wide = f"<{self.width} x i32>"
        high, low = (f.op(f"bitcast {self.vector} {x} to {wide}") for x in (high, low))
        low = f.op(f"lshr {wide} {low}, splat (i32 16)")
        return f.op(f"bitcast {wide} {f.op(f'or {wide} {high}, {low}')} to {self.vector}")

    def swapped(self, f: Function, pointer: str) -> str:
        """Pairs that lie in memory as k, k + 1."""
        return self._swapped(f, pointer, f"<{self.width} x i32>", f"v{self.width}i32", self.vector)

    def pair(self, f: Function, pointer: str, source: np.dtype, alone: bool) -> str:
        """One pair that lies in memory as k, k + 1; alone: only k does."""
        if alone:
            return self.element(f, pointer, source)
        return self._swapped(f, pointer, "i32", "i32", self.scalar)

    def _swapped(self, f: Function, pointer: str, type: str, suffix: str, to: str) -> str:
        name, amount = f"llvm.fshl.{suffix}", "16" if type == "i32" else "splat (i32 16)"
        self.declarations.add(f"declare {type} @{name}({type}, {type}, {type})")
        value = f.op(f"load {type}, ptr {pointer}, align {_HALF}")
        value = f.op(f"call {type} @{name}({type} {value}, {type} {value}, {type} {amount})")
        return f.op(f"bitcast {type} {value} to {to}")


def emit_pack_b_pairs(
    name: str, source: Source, columns: int, lanes: Bf16DotLanes, odd: bool
) -> str:
    """Internal function packing `depth` steps of k of a panel of `columns` columns.

    odd: whether depth may be odd.
    """
    f = Function(name, "void", PARAMS_B, "internal", "#1")
    starts = range(0, columns, lanes.width)
    counts = [min(lanes.width, columns - start) for start in starts]
    pack = _pack_rows if source.outer == 1 else _pack_columns
    pack(f, source, counts, lanes, odd)
    f.ret()
    return str(f)


def _if_odd(f: Function, odd: bool, body: Callable[[], None]) -> None:
    """Emit body for the last of an odd number of steps of k."""
    if odd:
        f.when(f.op("trunc i64 %depth to i1"), body)


def _joined_rows(
    f: Function, at: str, source: Source, count: int, lanes: Bf16DotLanes, alone: bool
) -> str:
    """`count` pairs of k, which lie side by side, and of k + 1 below; alone: only k is there."""
    high = lanes.load(f, at, source.dtype, count)
    if alone:
        return high
    low = lanes.load(f, f.offset(at, source.k * _HALF), source.dtype, count)
    return lanes.joined(f, high, low)


def _pack_rows(
    f: Function, source: Source, counts: list[int], lanes: Bf16DotLanes, odd: bool
) -> None:
    """Two rows of k side by side in memory become one row of pairs."""
    vector = lanes.width * lanes.bytes

    def row(at: str, to: str, alone: bool) -> None:
        for j, count in enumerate(counts):
            here = f.offset(at, j * lanes.width * _HALF)
            value = _joined_rows(f, here, source, count, lanes, alone)
            lanes.store(f, value, f.offset(to, j * vector), lanes.width, vector)

    def body(_: str, pointers: list[str]) -> list[str]:
        at, to = pointers
        row(at, to, alone=False)
        return [f.offset(at, 2 * source.k * _HALF), f.offset(to, len(counts) * vector)]

    whole = f.op("lshr i64 %depth, 1")
    at, to = f.loop(0, whole, 1, body, [("ptr", "%source"), ("ptr", "%panel")])
    _if_odd(f, odd, lambda: row(at, to, alone=True))


def _pack_columns(
    f: Function, source: Source, counts: list[int], lanes: Bf16DotLanes, odd: bool
) -> None:
    """Columns with their pairs side by side, a vector of them after the other."""
    width, panel = lanes.width, len(counts) * lanes.width * lanes.bytes
    for j, count in enumerate(counts):
        start = f.offset("%source", j * width * source.outer * _HALF)
        to = f.offset("%panel", j * width * lanes.bytes)
        _pack_some_columns(f, source, (start, to), count, panel, lanes, odd)


def _pack_some_columns(
    f: Function,
    source: Source,
    places: tuple[str, str],
    count: int,
    panel: int,
    lanes: Bf16DotLanes,
    odd: bool,
) -> None:
    """`count` columns, at most a vector: squares through registers, then pairs one by one."""
    width = lanes.width
    pairs = f.op("lshr i64 %depth, 1")
    whole = f.op(f"and i64 {pairs}, {-width}")

    def at(k: str) -> tuple[str, str]:
        start, to = places
        return f.offset(start, f.mul(k, 2 * _HALF)), f.offset(to, f.mul(k, panel))

    def square(k: str, _: list[str]) -> None:
        start, to = at(k)
        rows = [lanes.swapped(f, f.offset(start, i * source.outer * _HALF)) for i in range(count)]
        rows += ["zeroinitializer"] * (width - count)
        for i, value in enumerate(lanes.transpose(f, rows)):
            lanes.store(f, value, f.offset(to, i * panel), width, width * lanes.bytes)

    def pair(k: str, alone: bool) -> None:
        start, to = at(k)
        lanes.store(f, "zeroinitializer", to, width)
        for i in range(count):
            here = f.offset(start, i * source.outer * _HALF)
            value = lanes.pair(f, here, source.dtype, alone)
            f.line(f"store {lanes.scalar} {value}, ptr {f.offset(to, i * lanes.bytes)}")

    f.loop(0, whole, width, square)
    f.loop(whole, pairs, 1, lambda k, _: pair(k, alone=False))
    _if_odd(f, odd, lambda: pair(pairs, alone=True))


def emit_pack_a_pairs(
    name: str, source: Source, stride: int, lanes: Bf16DotLanes, odd: bool
) -> str:
    """Internal function copying `rows` rows of `depth` steps of k as pairs; see `emit_pack_a`.

    odd: whether depth may be odd.
    """
    f = Function(name, "void", PARAMS_A, "internal", "#1")
    pack = _pack_a_column_major if is_column_major(source) else _pack_a_rows
    pack(f, source, stride * lanes.bytes, lanes, odd)
    f.ret()
    return str(f)


def _pack_a_column_major(
    f: Function, source: Source, pitch: int, lanes: Bf16DotLanes, odd: bool
) -> None:
    """Rows side by side in memory: for every pair of k a line of them."""
    pairs = f.op("lshr i64 %depth, 1")
    whole = f.op(f"and i64 %rows, {-lanes.width}")

    def line(number: str, alone: bool) -> None:
        at = f.offset("%source", f.mul(number, 2 * source.k * _HALF))
        to = f.offset("%copy", f.mul(number, pitch))

        def some(i: str, count: int) -> None:
            value = _joined_rows(f, f.offset(at, f.mul(i, _HALF)), source, count, lanes, alone)
            lanes.store(f, value, f.offset(to, f.mul(i, lanes.bytes)), count)

        f.loop(0, whole, lanes.width, lambda i, _: some(i, lanes.width))
        f.loop(whole, "%rows", 1, lambda i, _: some(i, 1))

    f.loop(0, pairs, 1, lambda number, _: line(number, alone=False))
    _if_odd(f, odd, lambda: line(pairs, alone=True))


def _pack_a_rows(f: Function, source: Source, pitch: int, lanes: Bf16DotLanes, odd: bool) -> None:
    """Pairs side by side in memory: row by row."""
    pairs = f.op("lshr i64 %depth, 1")
    whole = f.op(f"and i64 {pairs}, {-lanes.width}")

    def row(number: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(number, source.outer * _HALF))
        to = f.offset("%copy", f.mul(number, pitch))

        def vector(i: str, _: list[str]) -> None:
            value = lanes.swapped(f, f.offset(at, f.mul(i, 2 * _HALF)))
            lanes.store(f, value, f.offset(to, f.mul(i, lanes.bytes)), lanes.width)

        def pair(i: str, alone: bool) -> None:
            value = lanes.pair(f, f.offset(at, f.mul(i, 2 * _HALF)), source.dtype, alone)
            f.line(f"store {lanes.scalar} {value}, ptr {f.offset(to, f.mul(i, lanes.bytes))}")

        f.loop(0, whole, lanes.width, vector)
        f.loop(whole, pairs, 1, lambda i, _: pair(i, alone=False))
        _if_odd(f, odd, lambda: pair(pairs, alone=True))

    f.loop(0, "%rows", 1, row)
