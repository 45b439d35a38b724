"""Operands in three parts: float32 matrices copied into tiles of bf16, for bf16x6.py.

    first, second, third = split_in_three(x)                 # x is their sum
    text = Packer("pack", target, row=64).rows(depth=64)    # LLVM IR of a function

A left operand lies in tiles of 16 rows of 32 steps, a right one in tiles of 16 pairs of steps for
16 columns (see contract/amx_pack.py). Steps n and n + 16 of 32 make a pair: two vectors are paired
without a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.contract.amx_pack import PAIRS
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.contract.lanes import Lanes

PARTS = 3
HIGH = 2  # tiles of rows of one call of a micro-kernel, and most tiles of columns
ROWS = HIGH * LINES
STEP = PARTS * TILE_BYTES  # a tile's parts
_HALF = -65536  # the upper 16 bits


def split_in_three(x: Vec) -> list[Vec]:
    """The bits of three numbers, in the upper half of each lane, whose sum is x. The lower halves
    mean nothing."""
    first = x.bits() & _HALF
    rest = x - first.floats()
    second = rest.bits() & _HALF
    return [first, second, (rest - second.floats()).bits()]


def pair_halves(low: Vec, high: Vec) -> Vec:
    """The upper halves of two vectors' lanes as pairs."""
    return low.binary("lshr", 16) | (high & _HALF)


class Packer:
    """A function that makes tiles: of (source, tiles, count), `count` rows of a matrix."""

    def __init__(self, name: str, target: Target, row: int) -> None:
        self.f = f = Function(
            name, "void", (("ptr", "source"), ("ptr", "tiles"), ("i64", "count")), "internal", "#1"
        )
        # Pairs of rows loaded before any is stored: a load waits for stores to like places.
        self.at_once = target.tuning.attention.pair_loads_at_once
        self.row = row * 4  # bytes between rows of the source
        self.code = Code(f, target)
        self.lanes = Lanes(np.dtype(np.float32), LINES)
        self.declarations: set[str] = set()

    def finished(self) -> str:
        self.f.ret()
        self.declarations = self.code.declarations | self.lanes.declarations
        return str(self.f)

    def load(self, at: str, columns: int) -> Vec:
        """A vector of a row's columns, 0 beyond so many."""
        if columns <= 0:
            return self.code.const("float", 0, LINES)
        text = self.lanes.load(self.f, at, self.lanes.dtype, min(LINES, columns))
        return Vec(self.code, "float", LINES, text)

    def put(self, low: Vec, high: Vec, to: str, part: int) -> None:
        """Parts of numbers that are multiplied together; part: bytes from one to the next."""
        for n, (a, b) in enumerate(zip(split_in_three(low), split_in_three(high), strict=True)):
            line = pair_halves(a, b)
            self.f.line(
                f"store {PAIRS} {line.text}, ptr {self.f.offset(to, n * part)}, align {LINE_BYTES}"
            )

    def place(self, line: str, block: int) -> str:
        """Where a line of the tiles lies; block: bytes from 16 lines to the next."""
        f = self.f
        tile = f.mul(f.op(f"lshr i64 {line}, 4"), block)
        return f.offset("%tiles", f.add(tile, f.mul(f.op(f"and i64 {line}, 15"), LINE_BYTES)))

    def rows(self, depth: int) -> str:
        """Tiles of a left operand: its rows."""
        f, steps = self.f, -(-depth // DEPTH)

        def line(row: str, _: list[str]) -> None:
            at, to = f.offset("%source", f.mul(row, self.row)), self.place(row, steps * STEP)
            starts = range(0, steps * DEPTH, LINES)
            found = [self.load(f.offset(at, n * 4), depth - n) for n in starts]
            for step in range(steps):
                low, high = found[2 * step : 2 * step + 2]
                self.put(low, high, f.offset(to, step * STEP), TILE_BYTES)

        f.loop(0, "%count", 1, line)
        return self.finished()

    def square(self, rows: list[Vec]) -> list[Vec]:
        """16 vectors transposed."""
        found = self.lanes.transpose(self.f, [row.text for row in rows])
        return [Vec(self.code, "float", LINES, text) for text in found]

    def transposed(self, depth: int) -> str:
        """Tiles of a right operand with its 32 columns in rows; missing ones repeat the last."""
        f, steps = self.f, -(-depth // DEPTH)
        last = f.op("sub i64 %count, 1")

        def tile(first: str, _: list[str]) -> None:
            rows = [f.least(f.add(first, i), last) for i in range(LINES)]
            rows = [f.offset("%source", f.mul(row, self.row)) for row in rows]
            to = f.offset("%tiles", f.mul(first, LINE_BYTES))

            def step(number: str, left: int) -> None:
                skip = f.mul(number, DEPTH * 4)
                here = [f.offset(row, skip) for row in rows]
                low = self.square([self.load(row, left) for row in here])
                beside = [f.offset(row, LINE_BYTES) for row in here]
                high = self.square([self.load(row, left - LINES) for row in beside])
                at = f.offset(to, f.mul(number, HIGH * STEP))
                for i, (a, b) in enumerate(zip(low, high, strict=True)):
                    self.put(a, b, f.offset(at, i * LINE_BYTES), HIGH * TILE_BYTES)

            f.loop(0, depth // DEPTH, 1, lambda n, _: step(n, DEPTH))
            if depth % DEPTH:
                step(str(steps - 1), depth % DEPTH)

        f.loop(0, ROWS, LINES, tile)
        return self.finished()

    def blocks(self, block: Callable[[str, str | None], None]) -> None:
        """block(first row, how many there are if not all) for 32 rows at a time."""
        f = self.f
        whole = f.op(f"and i64 %count, {-DEPTH}")
        f.loop(0, whole, DEPTH, lambda first, _: block(first, None))
        left = f.op(f"sub i64 %count, {whole}")
        f.when(f.op(f"icmp sgt i64 {left}, 0"), lambda: block(whole, left))

    def transposed_left(self, columns: int, most: int) -> str:
        """Tiles of a left operand whose rows are the source's columns; most: rows there are."""
        f, steps = self.f, -(-most // DEPTH)

        def block(first: str, present: str | None) -> None:
            at = f.offset("%source", f.mul(first, self.row))
            to = f.offset("%tiles", f.mul(f.op(f"lshr i64 {first}, 5"), STEP))

            def tile(number: str, columns: int) -> None:
                start = f.offset(at, f.mul(number, LINE_BYTES))
                low, high = (
                    self.square([self.row_or_zero(start, str(i + n), 0, columns, present)
                                 for i in range(LINES)])
                    for n in (0, LINES)
                )  # fmt: skip
                here = f.offset(to, f.mul(number, steps * STEP))
                for i, (a, b) in enumerate(zip(low, high, strict=True)):
                    self.put(a, b, f.offset(here, i * LINE_BYTES), TILE_BYTES)

            whole, left = divmod(columns, LINES)
            f.loop(0, whole, 1, lambda n, _: tile(n, LINES))
            if left:
                tile(str(whole), left)

        self.blocks(block)
        return self.finished()

    def pairs(self, columns: int) -> str:
        """Tiles of a right operand: pairs of its rows, up to a multiple of 32 of them."""
        f, tiles = self.f, -(-columns // LINES)

        def block(first: str, present: str | None) -> None:
            at = f.offset("%source", f.mul(first, self.row))
            to = f.offset("%tiles", f.mul(f.op(f"lshr i64 {first}, 5"), tiles * STEP))

            def some(first: str, _: list[str]) -> None:
                rows = [
                    (f.add(first, i), tile) for i in range(self.at_once) for tile in range(tiles)
                ]
                found = [
                    [self.row_or_zero(at, f.add(i, n), tile, columns, present) for n in (0, LINES)]
                    for i, tile in rows
                ]
                for (i, tile), (low, high) in zip(rows, found, strict=True):
                    here = f.offset(f.offset(to, f.mul(i, LINE_BYTES)), tile * TILE_BYTES)
                    self.put(low, high, here, tiles * TILE_BYTES)

            f.loop(0, LINES, self.at_once, some, at_least_once=True)

        self.blocks(block)
        return self.finished()

    def row_or_zero(self, at: str, row: str, tile: int, columns: int, present: str | None) -> Vec:
        """A tile's columns of a row; 0 of a row that is not among the first `present`."""
        f, there = self.f, ""
        if present:
            there = f.op(f"icmp slt i64 {row}, {present}")
            row = f.op(f"select i1 {there}, i64 {row}, i64 0")
        start = f.offset(f.offset(at, f.mul(row, self.row)), tile * LINE_BYTES)
        found = self.load(start, columns - tile * LINES)
        return Vec(self.code, "i1", 1, there).where(found, 0.0) if present else found
