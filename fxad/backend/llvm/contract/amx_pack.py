"""Packing bf16 operands into the tiles that `tdpbf16ps` multiplies.

    text = TilePacker("matmul0.pack_b", source, right=True, pitch=24 * 1024).emit()

A tile is 16 lines of 16 pairs of bf16, 1 KiB: 32 steps of k for 16 rows of A or 16 columns of B. In
a tile of A a line is a row of A, its pairs side by side; in a tile of B a line is a pair of steps
of k for all columns. What lies beyond the operand's edges is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.pack import Source

PARAMS = (("ptr", "source"), ("ptr", "tiles"), ("i64", "outer"), ("i64", "depth"))

PAIRS = "<16 x i32>"
_ROUND = "llvm.x86.avx512bf16.cvtneps2bf16.512"
_ROUND_TWO = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
_INTERLEAVED = [i // 2 + 16 * (i % 2) for i in range(32)]
ROUNDING = {
    f"declare <32 x bfloat> @{_ROUND_TWO}(<16 x float>, <16 x float>)",
    f"declare <16 x bfloat> @{_ROUND}(<16 x float>)",
}


def interleaved(f: Function, low: str, high: str, wide: bool) -> list[str]:
    """Two rows of 32 bf16, or (wide) of float32 to be rounded, as two vectors of 16 pairs."""
    if wide:
        halves = [(f.offset(low, at), f.offset(high, at)) for at in (0, LINE_BYTES)]
        return [rounded(f, *half, _INTERLEAVED) for half in halves]
    rows = [f.op(f"load <32 x i16>, ptr {x}, align 2") for x in (low, high)]
    found = []
    for half in range(2):
        listed = ", ".join(f"i32 {half * 16 + i // 2 + 32 * (i % 2)}" for i in range(32))
        both = f"shufflevector <32 x i16> {rows[0]}, <32 x i16> {rows[1]}, <32 x i32> <{listed}>"
        found.append(f.op(f"bitcast <32 x i16> {f.op(both)} to {PAIRS}"))
    return found


def rounded(f: Function, low: str, high: str, picked: Sequence[int] = ()) -> str:
    """Two vectors of float32 in memory as bf16, in the order `picked` if any, as pairs. Needs
    ROUNDING."""
    values = [f.op(f"load <16 x float>, ptr {x}, align 4") for x in (high, low)]
    both = f"<16 x float> {values[0]}, <16 x float> {values[1]}"
    both = f.op(f"call <32 x bfloat> @{_ROUND_TWO}({both})")
    if picked:
        listed = "<32 x i32> <" + ", ".join(f"i32 {i}" for i in picked) + ">"
        both = f.op(f"shufflevector <32 x bfloat> {both}, <32 x bfloat> poison, {listed}")
    return f.op(f"bitcast <32 x bfloat> {both} to {PAIRS}")


class TilePacker:
    """Emits the function that packs `outer` rows or columns of `depth` steps of k.

    Tiles follow each other along k, and `pitch` bytes apart along the outer axis. right: whether
    the tiles are those of B.
    """

    def __init__(self, name: str, source: Source, right: bool, pitch: int) -> None:
        self.f = Function(name, "void", PARAMS, "internal", "#1")
        self.source, self.right, self.pitch = source, right, pitch
        self.size = source.dtype.itemsize
        self.wide = source.dtype == np.float32
        self.lanes = Lanes(np.dtype(np.int32), LINES)
        self.declarations = set(ROUNDING)

    def emit(self) -> str:
        f = self.f
        whole = f.op(f"and i64 %depth, {-DEPTH}")
        if self.source.outer == 1:
            self.strips(whole)
        f.loop(0, "%outer", LINES, lambda first, _: self.lines_from(first, whole))
        f.ret()
        return str(f)

    def strips(self, depth: str) -> None:
        """Whole tiles of an operand whose rows or columns lie side by side: all of 32 steps of k,
        then of the next 32, so that lines and pages are gone through once."""
        f = self.f
        outer = f.op(f"and i64 %outer, {-LINES}")

        twice = f.op(f"and i64 %outer, {-2 * LINES}") if self.right else "0"

        def strip(k: str, _: list[str]) -> None:
            f.loop(0, twice, 2 * LINES, lambda first, _: self.two_tiles(*self.tile(first, k)))
            f.loop(twice, outer, LINES, lambda first, _: self.whole_tile(*self.tile(first, k)))

        f.loop(0, depth, DEPTH, strip)

    def two_tiles(self, at: str, to: str) -> None:
        """Tiles of B beside each other: whole lines of memory, prefetched 32 steps of k before."""
        f, step = self.f, self.source.k * self.size
        for pair in range(LINES):
            low = f.offset(at, 2 * pair * step)
            for row in (low, f.offset(low, step)):
                for line in range(0, 2 * LINES * self.size, LINE_BYTES):
                    ahead = f.offset(row, DEPTH * step + line)
                    prefetch_line(f, self.declarations, ahead, write=False, level=3)
            for half, pairs in enumerate(interleaved(f, low, f.offset(low, step), self.wide)):
                place = f.offset(to, half * self.pitch + pair * LINE_BYTES)
                self.lanes.store(f, pairs, place, LINES, LINE_BYTES)

    def tile(self, first: str, k: str) -> tuple[str, str]:
        """Where a tile's first element lies, and where the tile goes."""
        f, source = self.f, self.source
        at = f.add(f.mul(first, source.outer * self.size), f.mul(k, source.k * self.size))
        to = f.mul(f.op(f"udiv i64 {first}, {LINES}"), self.pitch)
        to = f.add(to, f.mul(f.op(f"udiv i64 {k}, {DEPTH}"), TILE_BYTES))
        return f.offset("%source", at), f.offset("%tiles", to)

    def lines_from(self, first: str, depth: str) -> None:
        """All tiles of 16 rows or columns, or what `strips` has left of them; depth: in whole
        tiles."""
        f = self.f
        count = f.op(f"sub i64 %outer, {first}")
        some = f.op(f"icmp slt i64 {count}, {LINES}")
        count = f.op(f"select i1 {some}, i64 {count}, i64 {LINES}")
        whole = "0"
        if 1 in (self.source.outer, self.source.k):
            whole = f.op(f"select i1 {some}, i64 0, i64 {depth}")
        if self.source.outer != 1:
            f.loop(0, whole, DEPTH, lambda k, _: self.whole_tile(*self.tile(first, k)))

        def ragged(k: str, _: list[str]) -> None:
            self.ragged_tile(*self.tile(first, k), count, f.op(f"sub i64 %depth, {k}"))

        f.loop(whole, "%depth", DEPTH, ragged)

    def whole_tile(self, at: str, to: str) -> None:
        """16 lines, transposed where memory has the other order."""
        if self.source.k == 1:
            lines = [self.pairs_along_k(at, i) for i in range(LINES)]
            transposed = self.right
        else:
            lines = [self.pairs_across(at, i) for i in range(LINES)]
            transposed = not self.right
        for i, line in enumerate(self.lanes.transpose(self.f, lines) if transposed else lines):
            self.lanes.store(self.f, line, self.f.offset(to, i * LINE_BYTES), LINES, LINE_BYTES)

    def pairs_along_k(self, at: str, line: int) -> str:
        """32 steps of k that lie side by side."""
        f = self.f
        at = f.offset(at, line * self.source.outer * self.size)
        if not self.wide:
            return f.op(f"load {PAIRS}, ptr {at}, align 2")
        return rounded(f, at, f.offset(at, LINE_BYTES))

    def pairs_across(self, at: str, pair: int) -> str:
        """Two steps of k for 16 rows or columns that lie side by side."""
        f = self.f
        low = f.offset(at, 2 * pair * self.source.k * self.size)
        high = f.offset(low, self.source.k * self.size)
        if self.wide:
            return rounded(f, low, high, _INTERLEAVED)
        values = [f.op(f"load <16 x i16>, ptr {x}, align 2") for x in (low, high)]
        values = [f.op(f"zext <16 x i16> {x} to {PAIRS}") for x in values]
        above = f.op(f"shl {PAIRS} {values[1]}, splat (i32 16)")
        return f.op(f"or {PAIRS} {values[0]}, {above}")

    def ragged_tile(self, at: str, to: str, outer: str, depth: str) -> None:
        """A tile at an edge, element by element."""
        f = self.f
        for i in range(LINES):
            self.lanes.store(f, "zeroinitializer", f.offset(to, i * LINE_BYTES), LINES, LINE_BYTES)
        depth = f.least(depth, DEPTH)

        def line(i: str, _: list[str]) -> None:
            here = f.offset(at, f.mul(i, self.source.outer * self.size))

            def element(k: str, _: list[str]) -> None:
                value = self.element(f.offset(here, f.mul(k, self.source.k * self.size)))
                place = f.add(f.mul(i, LINE_BYTES), f.mul(k, 2))
                if self.right:
                    pair = f.op(f"lshr i64 {k}, 1")
                    place = f.add(f.mul(pair, LINE_BYTES), f.mul(i, 4))
                    place = f.add(place, f.mul(f.op(f"and i64 {k}, 1"), 2))
                f.line(f"store i16 {value}, ptr {f.offset(to, place)}, align 2")

            f.loop(0, depth, 1, element)

        f.loop(0, outer, 1, line)

    def element(self, at: str) -> str:
        f = self.f
        if not self.wide:
            return f.op(f"load i16, ptr {at}, align 2")
        value = f.op(f"load float, ptr {at}, align 4")
        value = f.op(f"insertelement <16 x float> zeroinitializer, float {value}, i64 0")
        value = f.op(f"call <16 x bfloat> @{_ROUND}(<16 x float> {value})")
        value = f.op(f"bitcast <16 x bfloat> {value} to <16 x i16>")
        return f.op(f"extractelement <16 x i16> {value}, i64 0")
