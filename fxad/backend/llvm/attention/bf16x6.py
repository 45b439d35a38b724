"""Attention's products of float32 on AMX: a number is three of bf16, a product six of theirs.

    x = x1 + x2 + x3        # the first, the next and the last 8 of a float32's 24 bits: exact
    x y ~ x1 y1 + x1 y2 + x2 y1 + x2 y2 + x1 y3 + x3 y1

What is left out is below 2**-21 of a product, 2**-24 as a rule: the size of float32's own rounding,
which sums of tiles do in float32 as every path does. A tile multiplies so fast that six of its
products take less than half the time of one multiply-add of vectors. Parts below 2**-126 count as
0, so numbers keep their last bits above 2**-110; an infinite operand gives NaN.

Only where it is asked for (FXAD_ISA=amx): a virtual machine whose neighbour shares the core's tiles
has half their rate, and vectors are faster.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.attention.bf16x6_pack import (
    HIGH,
    PARTS,
    ROWS,
    STEP,
    Packer,
    pair_halves,
    split_in_three,
)
from fxad.backend.llvm.attention.operands import Columns, Packed, Place, round_up
from fxad.backend.llvm.attention.softmax import Half, Softmax
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.amx_tiles import (
    DECLARATIONS,
    DEPTH,
    LINE_BYTES,
    LINES,
    TILE_BYTES,
    configure_tiles,
)
from fxad.core.record import valued
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import Prim
from fxad.ir.orders import SPLIT_KEYS, SPLIT_QUERIES

_A, _B = 4, 6  # numbers of the tiles of operands; sums are 0 to 3
# (part of A, part of B), small products first: four pairs of tiles are loaded, rather than six.
_ORDER = ((2, 0), (0, 0), (0, 2), (0, 1), (1, 1), (1, 0))
_PARAMS = (("i64", "steps"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "more"))


@valued
class LeftStrides:
    """Where tiles of a left operand lie: bytes between lines, parts, steps of K and 16 rows."""

    line: int
    part: int
    step: int
    tile: int


def uses_bf16x6(stage: Attend, target: Target) -> bool:
    """Whether products go in parts: float32, where tiles are asked for, enough work that operands
    are packed for, and no mask that decides which keys count (a NaN behind a weight of 0 would)."""
    return (
        "amx_float32" in target.features
        and stage.score.dtype == np.float32
        and stage.rows.extent >= SPLIT_QUERIES
        and stage.keys.extent * (stage.depth.extent + stage.width.extent) >= SPLIT_KEYS
        and not (isinstance(stage.logit, Prim) and stage.logit.name == "select")
    )


class Bf16x6Products(Softmax):
    """Products on tiles, of parts. Blocks have a multiple of 32 rows; steps that bounds name are
    rounded to 32, where operands must be 0."""

    masked_vectors = HIGH  # a pair of vectors is put aside at once

    def shape_of_tiles(self, target: Target) -> tuple[int, int, int]:
        return ROWS, HIGH, HIGH

    def columns(self, count: int, rows: int = 0) -> Columns:
        wide = HIGH * LINES
        found = [
            (start, round_up(min(wide, count - start), LINES), min(wide, count - start))
            for start in range(0, count, wide)
        ]
        return Columns(count, tuple(found), ROWS)

    def transposed_scratch(self, keys: int, depth: int) -> str:
        return self.scratch_of_bytes(round_up(keys, ROWS) * self.row_bytes(depth))

    def rows_scratch(self, rows: int, depth: int) -> str:
        return self.scratch_of_bytes(round_up(rows, ROWS) * self.row_bytes(depth))

    def packed_scratch(self, rows: int, columns: Columns) -> Packed:
        rows = round_up(rows, DEPTH)
        room = self.scratch_of_bytes(rows * round_up(columns.count, LINES) * 2 * PARTS)
        return Packed(room, rows, columns)

    def scratch_of_bytes(self, size: int) -> str:
        return self.scratch(size // self.size)

    def row_bytes(self, depth: int) -> int:
        return round_up(depth, DEPTH) * 2 * PARTS

    # ------------------------------------------------------------ copies

    def packing(self, label: str, pack: Callable[..., str], row: int, *sizes: int) -> str:
        """The name of a function that packs rows `row` elements apart. pack: of `Packer`."""
        name = "_".join(str(x) for x in (f"{self.name}.{label}", row, *sizes))
        if name not in self.helpers:
            packer = Packer(name, self.target, row)
            self.helpers[name] = pack(packer, *sizes)
            self.code.declarations |= packer.declarations
        return name

    def pack(self, source: Place, depth: int, packed: str, low: str, high: str) -> None:
        f, name = self.f, self.packing("turned", Packer.transposed, source.row, depth)

        def panel(key: str, _: list[str]) -> None:
            count = f.least(f.op(f"sub i64 {self.keys}, {key}"), self.panel)
            to = f.offset(packed, f.mul(key, self.row_bytes(depth)))
            f.line(f"call void @{name}(ptr {self.at(source, key)}, ptr {to}, i64 {count})")

        f.loop(low, f.least(high, self.keys), self.panel, panel)

    def copy_columns(self, source: Place, to: Packed, low: str, count: str) -> None:
        f = self.f
        for start, wide, here in to.columns.groups:
            name = self.packing("pairs", Packer.pairs, source.row, here)
            at, into = self.at(source, low, start), self.group_at(to, start, wide, low)
            f.line(f"call void @{name}(ptr {at}, ptr {into}, i64 {count})")

    def group_at(self, packed: Packed, start: int, wide: int, row: str) -> str:
        f = self.f
        group = f.offset(packed.pointer, start * packed.rows * 2 * PARTS)
        return f.offset(group, f.mul(row, wide * 2 * PARTS))

    def copy_rows(self, source: Place, depth: int, to: str, count: str) -> Place:
        name = self.packing("rows", Packer.rows, source.row, depth)
        self.f.line(f"call void @{name}(ptr {source.pointer}, ptr {to}, i64 {count})")
        return Place(to, depth)

    # ------------------------------------------------------------ products

    def scores(
        self, a: Place, depth: int, packed: str, to: str, rows: tuple[str, str], low: str, high: str
    ) -> None:
        f, steps = self.f, -(-depth // DEPTH)
        left = LeftStrides(LINE_BYTES, TILE_BYTES, STEP, steps * STEP)
        name = self.bf16x6_micro_kernel(left, HIGH, self.pitch)

        def panel(key: str, _: list[str]) -> None:
            b = f.offset(packed, f.mul(key, self.row_bytes(depth)))
            c = f.offset(to, f.mul(key, self.size))
            some = self.rows_that_see(key, self.panel, *rows)

            def block(row: str, _: list[str]) -> None:
                at = f.offset(a.pointer, f.mul(row, self.row_bytes(depth)))
                c_at = f.offset(c, f.mul(row, self.pitch * self.size))
                f.line(f"call void @{name}(i64 {steps}, ptr {at}, ptr {b}, ptr {c_at}, i64 0)")

            f.loop(f.op(f"and i64 {some[0]}, {-ROWS}"), some[1], ROWS, block)

        f.loop(low, high, self.panel, panel)

    def product(
        self,
        rows: tuple[str, int],
        a: Place,
        b: Packed,
        c: Place,
        bounds: Callable[[str, int], tuple[str, str]],
        more: str,
        padded: bool = False,
    ) -> None:
        """a: parts of weights, one matrix after the other (see `weights_part`)."""
        f = self.f
        left = LeftStrides(a.row * 2, self.weights_part, LINE_BYTES, LINES * a.row * 2)
        for start, wide, _ in b.columns.groups:
            name = self.bf16x6_micro_kernel(left, wide // LINES, c.row)

            def block(
                row: str, _: list[str], name: str = name, start: int = start, wide: int = wide
            ) -> None:
                low, count = bounds(row, ROWS)
                low, steps = self.whole_steps(low, f.add(low, count))
                a_at = f.offset(a.pointer, f.add(f.mul(row, a.row * 2), f.mul(low, 2)))
                b_at = self.group_at(b, start, wide, low)
                c_at = self.at(c, row, start)
                f.line(
                    f"call void @{name}(i64 {steps}, ptr {a_at}, ptr {b_at}, ptr {c_at}, "
                    f"i64 {more})"
                )

            f.loop(0, rows[0], ROWS, block)

    def whole_steps(self, low: str, high: str) -> tuple[str, str]:
        """A multiple of 32 and steps of 32 from there: all of low ... high - 1."""
        f = self.f
        low = f.op(f"and i64 {low}, {-DEPTH}")
        return low, f.op(f"ashr i64 {f.op(f'sub i64 {f.add(high, DEPTH - 1)}, {low}')}, 5")

    # ------------------------------------------------------------ weights

    def pitch_of(self, keys: int) -> int:
        """Rows that are not a multiple of a large power of 2 apart."""
        return keys + ROWS

    def weights_scratch(self, scores: str) -> str:
        return self.scratch_of_bytes(PARTS * self.weights_part)

    def weights_from(self, weights: str, key: str) -> str:
        return self.f.offset(weights, self.f.op(f"sub i64 0, {self.f.mul(key, 2)}"))

    def weights_of_row(self, weights: str, i: str) -> list[tuple[str, int]]:
        row = self.f.offset(weights, self.f.mul(i, self.pitch * 2))
        return [(self.f.offset(row, part * self.weights_part), 2) for part in range(PARTS)]

    def store_weight(self, weight: Vec, at: list[str], waiting: Half | None) -> Half | None:
        """A panel's first vector waits for its second."""
        parts = split_in_three(weight)
        if waiting is None:
            return parts, at[1:]
        for low, high, to in zip(waiting[0], parts, waiting[1], strict=True):
            both = pair_halves(low, high)
            self.f.line(f"store {both.type} {both.text}, ptr {to}, align {LINE_BYTES}")
        return None

    @property
    def weights_part(self) -> int:
        """Bytes from one part of weights to the next."""
        return self.rows * self.pitch * 2

    def bf16x6_micro_kernel(self, a: LeftStrides, wide: int, c_row: int) -> str:
        """The name of a micro-kernel: 32 rows and `wide` tiles of columns of c = a b or c + a b."""
        name = f"{self.name}.{wide}x{a.line}_{a.tile}_{c_row}"
        if name not in self.helpers:
            self.code.declarations |= DECLARATIONS
            self.helpers[name] = _product(name, a, wide, c_row * self.size)
        return name

    def with_tiles(self, body: Callable[[], object]) -> None:
        """body() with AMX's tiles in use."""
        f = self.f
        configure_tiles(f)
        body()
        f.line("call void @llvm.x86.tilerelease()")


def _product(name: str, a: LeftStrides, wide: int, c_row: int) -> str:
    f = Function(name, "void", _PARAMS, "internal", "#1")

    def sums(call: str) -> None:
        for i in range(HIGH):
            for j in range(wide):
                at = f.offset("%c", i * LINES * c_row + j * LINE_BYTES)
                f.line(f"call void @llvm.x86.{call}(i8 {i * wide + j}, ptr {at}, i64 {c_row})")

    def load(tile: int, at: str, stride: int) -> None:
        f.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {at}, i64 {stride})")

    def step(_: str, pointers: list[str]) -> list[str]:
        at, to = pointers
        held: tuple[int | None, int | None] = None, None
        for pair in _ORDER:
            for i in range(HIGH if pair[0] != held[0] else 0):
                load(_A + i, f.offset(at, i * a.tile + pair[0] * a.part), a.line)
            for j in range(wide if pair[1] != held[1] else 0):
                load(_B + j, f.offset(to, (pair[1] * wide + j) * TILE_BYTES), LINE_BYTES)
            held = pair
            for i in range(HIGH):
                for j in range(wide):
                    tiles = f"i8 {i * wide + j}, i8 {_A + i}, i8 {_B + j}"
                    f.line(f"call void @llvm.x86.tdpbf16ps({tiles})")
        return [f.offset(at, a.step), f.offset(to, wide * STEP)]

    fresh, resume, start = (f.new_label(x) for x in ("fresh", "resume", "start"))
    f.branch(f.op("icmp eq i64 %more, 0"), fresh, resume)
    f.label(fresh)
    for number in range(HIGH * wide):
        f.line(f"call void @llvm.x86.tilezero(i8 {number})")
    f.jump(start)
    f.label(resume)
    sums("tileloadd64")
    f.jump(start)
    f.label(start)
    f.loop(0, "%steps", 1, step, [("ptr", "%a"), ("ptr", "%b")])
    sums("tilestored64")
    f.ret()
    return str(f)
