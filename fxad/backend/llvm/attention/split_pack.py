"""Packing float32 operands, split in three terms of bf16, into AMX's tiles.

    text, declarations = emit_packer("pack", target, 64, lambda p: pack_rows(p, 64))

A left operand lies in tiles of 16 rows of 32 steps, a right one in tiles of 16 pairs of steps for
16 columns (see contract/amx_pack.py); the tiles of a number's three terms follow each other. Steps
n and n + 16 of 32 make a pair: two vectors are paired without a shuffle.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.attention.split import (
    KERNEL_ROWS,
    STEP_BYTES,
    TILES,
    paired,
    split,
)
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.contract.amx_pack import PAIRS
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINE_BYTES, LINES, TILE_BYTES
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.core.record import record

_PARAMS = (("ptr", "source"), ("ptr", "tiles"), ("i64", "count"))


@record
class Packer:
    """A function of (source, tiles, count) as it is written: it packs `count` rows of a matrix that
    are row_bytes apart. pairs: loaded before any is stored, since a load waits for stores to like
    places."""

    f: Function
    code: Code
    lanes: Lanes
    row_bytes: int
    pairs: int


def emit_packer(
    name: str, target: Target, row_stride: int, body: Callable[[Packer], None]
) -> tuple[str, set[str]]:
    """The text of the function whose code the body writes, and its declarations. row_stride:
    elements between rows of the source."""
    f = Function(name, "void", _PARAMS, "internal", "#1")
    code, lanes = Code(f, target), Lanes(np.dtype(np.float32), LINES)
    body(Packer(f, code, lanes, row_stride * 4, target.tuning.attention.pair_loads_at_once))
    f.ret()
    return str(f), code.declarations | lanes.declarations


def pack_rows(packer: Packer, depth: int) -> None:
    """Tiles of a left operand: its rows."""
    f, steps = packer.f, -(-depth // DEPTH)

    def line(row: str, _: list[str]) -> None:
        at = f.offset("%source", f.mul(row, packer.row_bytes))
        to = _line_of_tiles(f, row, steps * STEP_BYTES)
        starts = range(0, steps * DEPTH, LINES)
        found = [_load(packer, f.offset(at, n * 4), depth - n) for n in starts]
        for step in range(steps):
            low, high = found[2 * step : 2 * step + 2]
            _store_pairs(f, low, high, f.offset(to, step * STEP_BYTES), TILE_BYTES)

    f.loop(0, "%count", 1, line)


def pack_transposed(packer: Packer, depth: int) -> None:
    """Tiles of a right operand with its 32 columns in rows; missing ones repeat the last."""
    f, steps = packer.f, -(-depth // DEPTH)
    last = f.op("sub i64 %count, 1")

    def tile(first: str, _: list[str]) -> None:
        rows = [f.least(f.add(first, i), last) for i in range(LINES)]
        rows = [f.offset("%source", f.mul(row, packer.row_bytes)) for row in rows]
        to = f.offset("%tiles", f.mul(first, LINE_BYTES))

        def step(number: str, left: int) -> None:
            skip = f.mul(number, DEPTH * 4)
            here = [f.offset(row, skip) for row in rows]
            low = _transposed(packer, [_load(packer, row, left) for row in here])
            beside = [f.offset(row, LINE_BYTES) for row in here]
            high = _transposed(packer, [_load(packer, row, left - LINES) for row in beside])
            at = f.offset(to, f.mul(number, TILES * STEP_BYTES))
            for i, (a, b) in enumerate(zip(low, high, strict=True)):
                _store_pairs(f, a, b, f.offset(at, i * LINE_BYTES), TILES * TILE_BYTES)

        f.loop(0, depth // DEPTH, 1, lambda n, _: step(n, DEPTH))
        if depth % DEPTH:
            step(str(steps - 1), depth % DEPTH)

    f.loop(0, KERNEL_ROWS, LINES, tile)


def pack_transposed_left(packer: Packer, columns: int, most_rows: int) -> None:
    """Tiles of a left operand whose rows are the source's columns."""
    f, steps = packer.f, -(-most_rows // DEPTH)

    def block(first: str, present: str | None) -> None:
        at = f.offset("%source", f.mul(first, packer.row_bytes))
        to = f.offset("%tiles", f.mul(f.op(f"lshr i64 {first}, 5"), STEP_BYTES))

        def tile(number: str, columns: int) -> None:
            start = f.offset(at, f.mul(number, LINE_BYTES))
            low, high = (
                _transposed(
                    packer,
                    [
                        _row_or_zero(packer, start, str(i + n), 0, columns, present)
                        for i in range(LINES)
                    ],
                )
                for n in (0, LINES)
            )
            here = f.offset(to, f.mul(number, steps * STEP_BYTES))
            for i, (a, b) in enumerate(zip(low, high, strict=True)):
                _store_pairs(f, a, b, f.offset(here, i * LINE_BYTES), TILE_BYTES)

        whole, left = divmod(columns, LINES)
        f.loop(0, whole, 1, lambda n, _: tile(n, LINES))
        if left:
            tile(str(whole), left)

    _each_block(f, block)


def pack_pairs(packer: Packer, columns: int) -> None:
    """Tiles of a right operand: pairs of its rows, up to a multiple of 32 of them."""
    f, tiles = packer.f, -(-columns // LINES)

    def block(first: str, present: str | None) -> None:
        at = f.offset("%source", f.mul(first, packer.row_bytes))
        to = f.offset("%tiles", f.mul(f.op(f"lshr i64 {first}, 5"), tiles * STEP_BYTES))

        def some(first: str, _: list[str]) -> None:
            rows = [(f.add(first, i), tile) for i in range(packer.pairs) for tile in range(tiles)]
            found = [
                [_row_or_zero(packer, at, f.add(i, n), tile, columns, present) for n in (0, LINES)]
                for i, tile in rows
            ]
            for (i, tile), (low, high) in zip(rows, found, strict=True):
                here = f.offset(f.offset(to, f.mul(i, LINE_BYTES)), tile * TILE_BYTES)
                _store_pairs(f, low, high, here, tiles * TILE_BYTES)

        f.loop(0, LINES, packer.pairs, some, at_least_once=True)

    _each_block(f, block)


# ---------------------------------------------------------------- vectors


def _load(packer: Packer, at: str, columns: int) -> Vec:
    """A vector of a row's columns, 0 beyond so many."""
    if columns <= 0:
        return packer.code.const("float", 0, LINES)
    text = packer.lanes.load(packer.f, at, packer.lanes.dtype, min(LINES, columns))
    return Vec(packer.code, "float", LINES, text)


def _row_or_zero(
    packer: Packer, at: str, row: str, tile: int, columns: int, present: str | None
) -> Vec:
    """A tile's columns of a row; 0 of a row that is not among the first `present`."""
    f, is_present = packer.f, ""
    if present:
        is_present = f.op(f"icmp slt i64 {row}, {present}")
        row = f.op(f"select i1 {is_present}, i64 {row}, i64 0")
    start = f.offset(f.offset(at, f.mul(row, packer.row_bytes)), tile * LINE_BYTES)
    found = _load(packer, start, columns - tile * LINES)
    return Vec(packer.code, "i1", 1, is_present).where(found, 0.0) if present else found


def _store_pairs(f: Function, low: Vec, high: Vec, to: str, term: int) -> None:
    """Store the terms of numbers that are multiplied together; term: bytes from one's tile to the
    next's."""
    for n, (a, b) in enumerate(zip(split(low), split(high), strict=True)):
        line = paired(a, b)
        f.line(f"store {PAIRS} {line.text}, ptr {f.offset(to, n * term)}, align {LINE_BYTES}")


def _transposed(packer: Packer, rows: list[Vec]) -> list[Vec]:
    """16 vectors transposed."""
    found = packer.lanes.transpose(packer.f, [row.text for row in rows])
    return [Vec(packer.code, "float", LINES, text) for text in found]


def _line_of_tiles(f: Function, line: str, block: int) -> str:
    """Where a line of the tiles lies; block: bytes from 16 lines to the next."""
    tile = f.mul(f.op(f"lshr i64 {line}, 4"), block)
    return f.offset("%tiles", f.add(tile, f.mul(f.op(f"and i64 {line}, 15"), LINE_BYTES)))


def _each_block(f: Function, block: Callable[[str, str | None], None]) -> None:
    """block(first row, how many there are if not all) for 32 rows at a time."""
    whole = f.op(f"and i64 %count, {-DEPTH}")
    f.loop(0, whole, DEPTH, lambda first, _: block(first, None))
    left = f.op(f"sub i64 %count, {whole}")
    f.when(f.op(f"icmp sgt i64 {left}, 0"), lambda: block(whole, left))
