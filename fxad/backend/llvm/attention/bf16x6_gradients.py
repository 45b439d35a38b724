"""Cotangents of attention's operands on AMX, as six products of bf16.

gradients = bf16x6_gradients(plan, code, copies)

dk and dv are summed transposed, dk^T = q^T ds and dv^T = d_out^T p: then p and ds are right
operands, whose rows are paired without a shuffle, and what is transposed is q and d_out, once for
all keys. dq is summed in scratch for a block of keys, since tiles have whole rows of 16.
"""

from __future__ import annotations

from fxad.backend.llvm.attention.backward_plan import BackwardPlan
from fxad.backend.llvm.attention.bf16x6_products import (
    Bf16x6Products,
    micro_kernel,
    packed_strides,
    packer_name,
    pairs_packer,
    whole_steps,
)
from fxad.backend.llvm.attention.code import Code, View, fill_rows
from fxad.backend.llvm.attention.gradients import KeyChunk, Weights
from fxad.backend.llvm.attention.problem import round_up
from fxad.backend.llvm.attention.split import KERNEL_ROWS, STEP_BYTES, TILES
from fxad.backend.llvm.attention.split_pack import Packer, pack_transposed_left
from fxad.backend.llvm.attention.window import Block, Range, Window, rows_of_keys
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINES
from fxad.core.record import record


@record
class Bf16x6Gradients:
    """`Gradients` of a function. copies: of a block's rows of q and d_out; transposed: the same,
    as left operands of sums. pairs: p and ds of a panel of keys, as right operands. scratch:
    transposed sums of dk and dv of a chunk. dq: a product. keys: 16 of the sums, transposed."""

    plan: BackwardPlan
    code: Code
    products: Bf16x6Products
    copies: tuple[str, str]
    transposed: tuple[str, str]
    pairs: tuple[str, str]
    scratch: tuple[View, View]
    dq: View
    keys: str

    @property
    def sizes(self) -> tuple[int, int]:
        """Columns of q and of d_out."""
        return self.plan.problem.depth, self.plan.problem.width

    def pack_queries(self, q: View, d_out: View, count: str) -> tuple[View, View]:
        return self._pack(0, q, count), self._pack(1, d_out, count)

    def _pack(self, n: int, view: View, count: str) -> View:
        code, size, rows = self.code, self.sizes[n], self.plan.block.rows

        def body(packer: Packer) -> None:
            pack_transposed_left(packer, size, rows)

        name = packer_name(code, "transposed_left", view.row_stride, (size, rows), body)
        to = self.transposed[n]
        code.f.line(f"call void @{name}(ptr {view.pointer}, ptr {to}, i64 {count})")
        return self.products.copy_rows(view, size, self.copies[n], count)

    def sums(self, dk: View, dv: View) -> tuple[View, View]:
        return self.scratch

    def clear(self, sums: tuple[View, View], count: str) -> None:
        for view, size in zip(sums, self.sizes, strict=True):
            rows, zero = round_up(size, KERNEL_ROWS), self.code.splat(0)
            fill_rows(self.code, view, rows, view.row_stride, lambda *_, zero=zero: zero)

    def add(
        self, chunk: KeyChunk, window: Window, weights: Weights, rows: Block, keys: Range
    ) -> None:
        code, f, problem = self.code, self.code.f, self.plan.problem
        stride, size = code.block.stride, problem.size
        left = packed_strides(-(-self.plan.block.rows // DEPTH))
        kernel = micro_kernel(code, left, TILES, chunk.sums[0].row_stride)
        pack = pairs_packer(code, stride, KERNEL_ROWS)

        def panel(key: str, _: list[str]) -> None:
            low = rows_of_keys(code, window, key, problem.panel, rows)[0]
            low, steps = whole_steps(f, low, rows.count)
            count = f.op(f"sub i64 {rows.count}, {low}")
            column = f.op(f"sub i64 {key}, {chunk.start}")
            at = f.add(f.mul(low, stride * size), f.mul(key, size))
            skip = f.mul(f.op(f"ashr i64 {low}, 5"), STEP_BYTES)
            for n, block in enumerate((weights.ds, weights.p)):
                b = self.pairs[n]
                f.line(f"call void @{pack}(ptr {f.offset(block, at)}, ptr {b}, i64 {count})")
                for row in range(0, self.sizes[n], KERNEL_ROWS):
                    a = f.offset(self.transposed[n], f.add(skip, row // LINES * left.tile))
                    c = f.offset(code.element(chunk.sums[n], row), f.mul(column, size))
                    f.line(f"call void @{kernel}(i64 {steps}, ptr {a}, ptr {b}, ptr {c}, i64 1)")

        f.loop(*keys, problem.panel, panel)

    def finish(self, sums: tuple[View, View], to: tuple[View, View], count: str) -> None:
        for view, into, columns in zip(sums, to, self.sizes, strict=True):
            self._write(view, into, count, columns)

    def _write(self, sums: View, to: View, count: str, columns: int) -> None:
        """16 keys at a time, transposed in scratch."""
        code, f, size = self.code, self.code.f, self.plan.problem.size
        rows = View(self.keys, round_up(columns, LINES))

        def keys(first: str, _: list[str]) -> None:
            for c in range(0, columns, LINES):
                start = f.offset(code.element(sums, c), f.mul(first, size))
                square = [
                    code.load(f.offset(start, i * sums.row_stride * size)) for i in range(LINES)
                ]
                transposed = code.lanes.transpose(f, [x.text for x in square])
                for i, text in enumerate(transposed):
                    code.store(code.vector(text), code.element(rows, i, c))
            here = code.from_row(to, first)
            some = f.least(f.op(f"sub i64 {count}, {first}"), LINES)
            fill_rows(code, here, some, columns, lambda i, c: code.load(code.element(rows, i, c)))

        f.loop(0, count, LINES, keys)

    def dq_product(self, dq: View, first: str, is_later: str) -> tuple[View, str]:
        return self.dq, "0"

    def finish_dq(self, dq: View, first: str, count: str, is_later: str) -> None:
        code, depth = self.code, self.plan.problem.depth
        to = code.from_row(dq, first)

        def value(i: str, c: int) -> Vec:
            before = code.load(code.element(to, i, c), min(code.lanes.width, depth - c))
            known = Vec(code.scope.code, "i1", 1, is_later).where(before, code.splat(0))
            return known + code.load(code.element(self.dq, i, c))

        fill_rows(code, to, count, depth, value)


def bf16x6_gradients(plan: BackwardPlan, code: Code, copies: tuple[str, str]) -> Bf16x6Gradients:
    """With room for sums. copies: room for those of q and d_out."""
    products, problem = Bf16x6Products(code), plan.problem
    rows, size = plan.block.rows, problem.size
    depth, width = problem.depth, problem.width
    stride = problem.score_block(rows, plan.chunk).stride

    def room(columns: int) -> View:
        return View(code.take(round_up(columns, KERNEL_ROWS) * stride * size), stride)

    transposed = tuple(products.take_rows(round_up(n, KERNEL_ROWS), rows) for n in (depth, width))
    pairs = products.take_rows(KERNEL_ROWS, rows), products.take_rows(KERNEL_ROWS, rows)
    sums, line = (room(depth), room(width)), round_up(depth, LINES)
    dq = View(code.take(rows * line * size), line)
    keys = code.take(LINES * round_up(max(depth, width), LINES) * size)
    return Bf16x6Gradients(
        plan, code, products, copies, (transposed[0], transposed[1]), pairs, sums, dq, keys
    )
