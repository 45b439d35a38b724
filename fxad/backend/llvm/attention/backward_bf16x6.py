"""Attention, backward, on AMX in bf16x6 products: what is other than with vectors.

dk and dv are summed transposed, dk^T = q^T ds and dv^T = d_out^T p: then p and ds are right
operands, whose rows are paired without a shuffle, and what is transposed is q and d_out, once for
all keys. dq is summed in scratch for a block of keys, since tiles have whole rows of 16.

    emitted = BackwardBf16x6(kernel, stage, "attend_grad0", target).emit()
"""

from __future__ import annotations

from fxad.backend.llvm.attention.backward import Backward, Head, Weights
from fxad.backend.llvm.attention.bf16x6 import Bf16x6Products, LeftStrides
from fxad.backend.llvm.attention.bf16x6_pack import HIGH, PARTS, ROWS, STEP, Packer
from fxad.backend.llvm.attention.operands import Place, round_up
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINE_BYTES, LINES, TILE_BYTES
from fxad.ir.orders import SPLIT_GRADIENT_ROWS


class BackwardBf16x6(Bf16x6Products, Backward):
    """On tiles, with numbers in parts."""

    rows_of_block = SPLIT_GRADIENT_ROWS

    @property
    def writes_directly(self) -> bool:
        """Never: sums are transposed, whatever the number of queries."""
        return False

    @property
    def bytes_of_key(self) -> int:
        both = self.depth + self.width
        return (both + self.depth) * 2 * PARTS + both * self.size

    def room_for_sums(self) -> None:
        sizes = self.depth, self.width
        self.transposed = tuple(self.rows_scratch(round_up(n, ROWS), self.rows) for n in sizes)
        self.pairs = tuple(self.rows_scratch(ROWS, self.rows) for _ in sizes)
        pitch = self.pitch_of(self.chunk)
        self.sums = tuple(Place(self.scratch(round_up(n, ROWS) * pitch), pitch) for n in sizes)
        self.dq_sums = Place(
            self.scratch(self.rows * round_up(self.depth, LINES)), round_up(self.depth, LINES)
        )
        self.rows_transposed = Place(self.scratch(LINES * round_up(max(sizes), LINES)), LINES)

    def clear_sums(self, count: str) -> None:
        for sums, size in zip(self.sums, (self.depth, self.width), strict=True):
            self.each_vector(sums, round_up(size, ROWS), sums.row, lambda *_: self.zero())

    def finish(self, sums: Place, to: Place, count: str, columns: int) -> None:
        """16 keys at a time, transposed in scratch."""
        f, line = self.f, round_up(columns, LINES)
        rows = Place(self.rows_transposed.pointer, line)

        def keys(first: str, _: list[str]) -> None:
            for c in range(0, columns, LINES):
                start = f.offset(self.at(sums, c), f.mul(first, self.size))
                square = [
                    self.load(f.offset(start, i * sums.row * self.size)) for i in range(LINES)
                ]
                transposed = self.lanes.transpose(f, [x.text for x in square])
                for i, text in enumerate(transposed):
                    self.store(self.vec(text), self.at(rows, i, c))
            here = Place(self.at(to, first), to.row)
            some = f.least(f.op(f"sub i64 {count}, {first}"), LINES)
            self.each_vector(here, some, columns, lambda i, c: self.load(self.at(rows, i, c)))

        f.loop(0, count, LINES, keys)

    def operands(self, q: Place, d_out: Place, count: str) -> tuple[Place, Place]:
        f, found = self.f, []
        for n, (place, size) in enumerate(((q, self.depth), (d_out, self.width))):
            name = self.packing("turned_left", Packer.transposed_left, place.row, size, self.rows)
            f.line(f"call void @{name}(ptr {place.pointer}, ptr {self.transposed[n]}, i64 {count})")
            found.append(self.copy_rows(place, size, self.copies[n], count))
        return found[0], found[1]

    def add_to_dk_and_dv(
        self, weights: Weights, rows: tuple[str, str], span: tuple[str, str]
    ) -> None:
        f = self.f
        steps = -(-self.rows // DEPTH)
        left = LeftStrides(LINE_BYTES, TILE_BYTES, STEP, steps * STEP)
        kernel = self.bf16x6_micro_kernel(left, HIGH, self.sums[0].row)
        packing = self.packing("pairs", Packer.pairs, self.pitch, ROWS)
        sizes = self.depth, self.width

        def panel(key: str, _: list[str]) -> None:
            low, count = self.whole_steps(self.rows_that_see(key, self.panel, *rows)[0], rows[1])
            there = f.op(f"sub i64 {rows[1]}, {low}")
            column = f.op(f"sub i64 {key}, {self.start}")
            at = f.add(f.mul(low, self.pitch * self.size), f.mul(key, self.size))
            skip = f.mul(f.op(f"ashr i64 {low}, 5"), STEP)
            for n, block in enumerate((weights.ds, weights.p)):
                b = self.pairs[n]
                f.line(f"call void @{packing}(ptr {f.offset(block, at)}, ptr {b}, i64 {there})")
                for row in range(0, sizes[n], ROWS):
                    a = f.offset(self.transposed[n], f.add(skip, row // LINES * left.tile))
                    c = f.offset(self.at(self.sums[n], row), f.mul(column, self.size))
                    f.line(f"call void @{kernel}(i64 {count}, ptr {a}, ptr {b}, ptr {c}, i64 1)")

        f.loop(*span, self.panel, panel)

    def add_to_dq(
        self, head: Head, first: str, count: str, span: tuple[str, str], later: str
    ) -> None:
        """Sums of this block of keys, then added to what chunks before have left."""
        self.product_for_dq(first, count, span, self.dq_sums, "0")
        dq = Place(self.at(head.dq, first), head.dq.row)

        def value(i: str, c: int) -> Vec:
            wanted = min(self.lanes.width, self.depth - c)
            before = self.lanes.load(self.f, self.at(dq, i, c), self.dtype, wanted)
            known = Vec(self.code, "i1", 1, later).where(self.vec(before), self.zero())
            return known + self.load(self.at(self.dq_sums, i, c))

        self.each_vector(dq, count, self.depth, value)
