"""bf16 products through `vdpbf16ps`: two steps of k in one instruction.

    takes_pairs(problem, target)      # bf16 x bf16 -> f32, an even K, a machine where it pays

Both operands are packed as pairs: 32 bits that hold k in the high half and k + 1 in the low one.
The instruction adds the product of the high halves, then that of the low ones, each by an FMA of
float32, so the order over k, and with it the result, is that of any other path; only sums and
products that are denormal become 0. To the micro-kernel pairs are float32s of half as large a K.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.pack import PARAMS_A, PARAMS_B, Source, a_is_turned
from fxad.backend.llvm.contract.plan import Problem

_HALF = 2  # bytes of a bf16
_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"


def takes_pairs(problem: Problem, target: Target) -> bool:
    """Whether operands are bf16 with neighbours along k or along the other axis."""
    matrices = (problem.a, problem.b)
    return (
        "bf16_pairs" in target.features
        and problem.dtype == np.float32
        and problem.size[2] % 2 == 0
        and all(m.buffer.dtype.name == "bfloat16" for m in matrices)
        and all(1 in (m.outer, m.inner) for m in matrices)
    )


class PairLanes(Lanes):
    """Lanes of float32 sums whose factors are pairs."""

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

    def turned(self, f: Function, pointer: str) -> str:
        """Pairs that lie in memory as k, k + 1."""
        return self._turned(f, pointer, f"<{self.width} x i32>", f"v{self.width}i32", self.vector)

    def turned_one(self, f: Function, pointer: str) -> str:
        return self._turned(f, pointer, "i32", "i32", self.scalar)

    def _turned(self, f: Function, pointer: str, type: str, suffix: str, to: str) -> str:
        name, amount = f"llvm.fshl.{suffix}", "16" if type == "i32" else "splat (i32 16)"
        self.declarations.add(f"declare {type} @{name}({type}, {type}, {type})")
        value = f.op(f"load {type}, ptr {pointer}, align {_HALF}")
        value = f.op(f"call {type} @{name}({type} {value}, {type} {value}, {type} {amount})")
        return f.op(f"bitcast {type} {value} to {to}")


def emit_pack_b_pairs(name: str, source: Source, columns: int, lanes: PairLanes) -> str:
    """Internal function packing `depth` pairs of k of a panel of `columns` columns."""
    f = Function(name, "void", PARAMS_B, "internal", "#1")
    starts = range(0, columns, lanes.width)
    counts = [min(lanes.width, columns - start) for start in starts]
    if source.outer == 1:
        _pack_rows(f, source, counts, lanes)
    else:
        _pack_columns(f, source, counts, lanes)
    f.ret()
    return str(f)


def _pack_rows(f: Function, source: Source, counts: list[int], lanes: PairLanes) -> None:
    """Two rows of k side by side in memory become one row of pairs."""
    vector = lanes.width * lanes.bytes

    def body(_: str, pointers: list[str]) -> list[str]:
        at, to = pointers
        for j, count in enumerate(counts):
            rows = [f.offset(at, i * source.k * _HALF + j * lanes.width * _HALF) for i in range(2)]
            high, low = (lanes.load(f, row, source.dtype, count) for row in rows)
            value = lanes.joined(f, high, low)
            lanes.store(f, value, f.offset(to, j * vector), lanes.width, vector)
        return [f.offset(at, 2 * source.k * _HALF), f.offset(to, len(counts) * vector)]

    f.loop(0, "%depth", 1, body, [("ptr", "%source"), ("ptr", "%panel")])


def _pack_columns(f: Function, source: Source, counts: list[int], lanes: PairLanes) -> None:
    """Columns with their pairs side by side: squares through registers, then one by one."""
    width, panel = lanes.width, len(counts) * lanes.width * lanes.bytes
    whole = f.op(f"and i64 %depth, {-width}")
    for j, count in enumerate(counts):
        start = f.offset("%source", j * width * source.outer * _HALF)
        to = f.offset("%panel", j * width * lanes.bytes)

        def square(k: str, _: list[str], start: str = start, to: str = to, n: int = count) -> None:
            at = f.offset(start, f.mul(k, 2 * _HALF))
            rows = [lanes.turned(f, f.offset(at, i * source.outer * _HALF)) for i in range(n)]
            rows += ["zeroinitializer"] * (width - n)
            out = f.offset(to, f.mul(k, panel))
            for i, value in enumerate(lanes.transpose(f, rows)):
                lanes.store(f, value, f.offset(out, i * panel), width, width * lanes.bytes)

        def one(k: str, _: list[str], start: str = start, to: str = to, n: int = count) -> None:
            at, out = f.offset(start, f.mul(k, 2 * _HALF)), f.offset(to, f.mul(k, panel))
            lanes.store(f, "zeroinitializer", out, width)
            for i in range(n):
                value = lanes.turned_one(f, f.offset(at, i * source.outer * _HALF))
                f.line(f"store {lanes.scalar} {value}, ptr {f.offset(out, i * lanes.bytes)}")

        f.loop(0, whole, width, square)
        f.loop(whole, "%depth", 1, one)


def emit_pack_a_pairs(name: str, source: Source, depth: int, stride: int, lanes: PairLanes) -> str:
    """Internal function copying `rows` rows of `depth` pairs of k; see `emit_pack_a`."""
    f = Function(name, "void", PARAMS_A, "internal", "#1")
    turned = a_is_turned(source)
    lines, length = (str(depth), "%rows") if turned else ("%rows", str(depth))
    line_step, step = (2 * source.k, 1) if turned else (source.outer, 2)
    whole = f.op(f"and i64 {length}, {-lanes.width}")

    def line(number: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(number, line_step * _HALF))
        to = f.offset("%copy", f.mul(number, stride * lanes.bytes))

        def value_at(i: str, width: int) -> str:
            here = f.offset(at, f.mul(i, step * _HALF))
            if not turned:
                return lanes.turned(f, here) if width > 1 else lanes.turned_one(f, here)
            both = (here, f.offset(here, source.k * _HALF))
            return lanes.joined(f, *(lanes.load(f, x, source.dtype, width) for x in both))

        def vector(i: str, _: list[str]) -> None:
            value = value_at(i, lanes.width)
            lanes.store(f, value, f.offset(to, f.mul(i, lanes.bytes)), lanes.width)

        def one(i: str, _: list[str]) -> None:
            out = f.offset(to, f.mul(i, lanes.bytes))
            if turned:
                lanes.store(f, value_at(i, 1), out, 1)
            else:
                f.line(f"store {lanes.scalar} {value_at(i, 1)}, ptr {out}")

        f.loop(0, whole, lanes.width, vector)
        f.loop(whole, length, 1, one)

    f.loop(0, lines, 1, line)
    f.ret()
    return str(f)
