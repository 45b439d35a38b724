"""Cotangents of attention's operands on vectors: products that add to rows of keys and of queries.

gradients = vector_gradients(plan, code, copies)
"""

from __future__ import annotations

import math

from fxad.backend.llvm.attention.backward_plan import BackwardPlan
from fxad.backend.llvm.attention.code import Code, View, fill_rows, prefetch_row
from fxad.backend.llvm.attention.gradients import KeyChunk, Weights
from fxad.backend.llvm.attention.problem import BLOCK_ROWS, round_up
from fxad.backend.llvm.attention.products import RightOperand
from fxad.backend.llvm.attention.vector_products import (
    VectorProducts,
    copied_row_stride,
    whole_rows,
)
from fxad.backend.llvm.attention.window import Block, Range, Window, rows_of_keys
from fxad.backend.llvm.base.vector import Vec
from fxad.core.record import record


@record
class VectorGradients:
    """`Gradients` of a function. copies: of a block's rows of q and d_out; rows: the same as right
    operands. scratch: sums of dk and dv of a chunk, unless they are written directly."""

    plan: BackwardPlan
    code: Code
    products: VectorProducts
    copies: tuple[str, str]
    rows: tuple[RightOperand, RightOperand]
    scratch: tuple[View, View]

    def pack_queries(self, q: View, d_out: View, count: str) -> tuple[View, View]:
        problem, products = self.plan.problem, self.products
        q = products.copy_rows(q, problem.depth, self.copies[0], count)
        return q, products.copy_rows(d_out, problem.width, self.copies[1], count)

    def sums(self, dk: View, dv: View) -> tuple[View, View]:
        return (dk, dv) if self.plan.writes_directly else self.scratch

    def clear(self, sums: tuple[View, View], count: str) -> None:
        problem = self.plan.problem
        for view, columns in zip(sums, (problem.depth, problem.width), strict=True):
            whole = columns if self.plan.writes_directly else view.row_stride
            fill_rows(self.code, view, count, whole, lambda *_: self.code.splat(0))

    def add(
        self, chunk: KeyChunk, window: Window, weights: Weights, rows: Block, keys: Range
    ) -> None:
        code, f, problem = self.code, self.code.f, self.plan.problem
        low = f.op(f"sub i64 {keys[0]}, {chunk.start}")
        count = f.op(f"sub i64 {f.least(keys[1], problem.keys)}, {keys[0]}")

        def steps(key: str, height: int) -> tuple[str, str]:
            low, high = rows_of_keys(code, window, f.add(keys[0], key), height, rows)
            return low, f.op(f"sub i64 {high}, {low}")

        blocks = weights.ds_block, weights.p_block
        # The last of whole panels are whole tiles: only the last keys of all can be left over.
        adds, padded = str(int(not self.plan.writes_directly)), not self.plan.writes_directly
        for block, others, sums in zip(blocks, self.rows, chunk.sums, strict=True):
            transposed, to = View(block, 1, code.block.stride), code.from_row(sums, low)
            self.products.product(
                transposed, others, to, (count, problem.keys), steps, adds, padded
            )

    def finish(self, sums: tuple[View, View], to: tuple[View, View], count: str) -> None:
        if self.plan.writes_directly:
            return
        problem = self.plan.problem
        for view, into, columns in zip(sums, to, (problem.depth, problem.width), strict=True):
            self._write(view, into, count, columns)

    def _write(self, sums: View, to: View, count: str, columns: int) -> None:
        code = self.code

        def value(row: str, column: int) -> Vec:
            if not column:
                later = code.f.add(row, self.plan.problem.tuning.gradient_prefetch_rows)
                prefetch_row(code, to, later, columns, write=True)
            return code.load(code.element(sums, row, column))

        fill_rows(code, to, count, columns, value)

    def dq_product(self, dq: View, first: str, is_later: str) -> tuple[View, str]:
        return self.code.from_row(dq, first), self.code.f.op(f"zext i1 {is_later} to i64")

    def finish_dq(self, dq: View, first: str, count: str, is_later: str) -> None:
        """The product was added to dq itself."""


def vector_gradients(plan: BackwardPlan, code: Code, copies: tuple[str, str]) -> VectorGradients:
    """With room for sums. copies: room for those of q and d_out."""
    products, problem, rows = VectorProducts(code), plan.problem, plan.block.rows
    unit = math.gcd(BLOCK_ROWS, problem.panel)

    def right(copy: str, columns: int) -> RightOperand:
        view = View(copy, copied_row_stride(problem, columns))
        return whole_rows(problem, view, rows, columns, unit)

    def room(columns: int) -> View:
        line = round_up(columns, problem.lane_width)
        keys = 0 if plan.writes_directly else plan.chunk
        return View(code.take(keys * line * problem.size), line)

    right_operands = right(copies[0], problem.depth), right(copies[1], problem.width)
    scratch = room(problem.depth), room(problem.width)
    return VectorGradients(plan, code, products, copies, right_operands, scratch)
