"""Attention, forward: an Attend kernel -> LLVM IR.

    emitted = emit_attend(kernel, "attend0", target)

A unit is a chunk of query blocks of one head. Its keys are packed once; then for every block of
rows: scores of the keys seen into scratch, the exponentials and their sum in two passes over each
row (so the maximum is exact, and nothing is rescaled), the product with the values straight into
the result, and a division of each row by its sum.
"""

from __future__ import annotations

from fxad.backend.llvm.attend_tiles import ABI, Place, Tiles
from fxad.backend.llvm.contract_plan import FLOPS_PER_NS
from fxad.backend.llvm.schedule import Emitted, Target
from fxad.backend.llvm.text import Function
from fxad.backend.llvm.vector import Vec
from fxad.ir.kernel import Attend, Kernel

_UNITS = 16  # pieces of work wanted, where one head has several blocks of rows


def emit_attend(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Attend stage."""
    (stage,) = kernel.body
    assert isinstance(stage, Attend)
    if not (kernel.points and stage.rows.extent):
        f = Function(name, "void", ABI)
        f.ret()
        return Emitted(name, str(f), frozenset(), 0, 0, 0.0)
    return _Forward(kernel, stage, name, target).emit()


class _Forward(Tiles):
    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        super().__init__(kernel, stage, name, target)
        wanted = max(1, min(self.blocks, -(-_UNITS // kernel.points)))
        self.chunk = -(-self.blocks // wanted)  # blocks of rows in a unit
        self.chunks = -(-self.blocks // self.chunk)

    def emit(self) -> Emitted:
        self.packed = self.scratch(self.pitch * self.depth)
        self.block_scores = self.scratch(self.rows * self.pitch)
        self.tops = self.scratch(self.rows + self.lanes.width)
        self.sums = self.scratch(self.rows + self.lanes.width)
        self.f.loop("%begin", "%end", 1, self.unit)
        self.f.ret()
        flops = 2.0 * self.queries * self.keys * (self.depth + self.width) * self.kernel.points
        units = self.kernel.points * self.chunks
        cost = max(flops / FLOPS_PER_NS, 100.0)
        return Emitted(self.name, self.text, self.declarations, units, self.scratch_bytes, cost)

    def unit(self, unit: str, _: list[str]) -> None:
        f, stage = self.f, self.stage
        self.memory.scopes.append({})
        chunk, point = "0", unit
        if self.chunks > 1:
            chunk = f.op(f"urem i64 {unit}, {self.chunks}")
            point = f.op(f"udiv i64 {unit}, {self.chunks}")
        self.go_to(point)
        self.q = self.place(stage.q, stage.rows, stage.depth)
        self.v = self.place(stage.v, stage.keys, stage.width)
        self.out = self.place(stage.out, stage.rows, stage.width)
        self.lse = self.place(stage.lse, stage.rows)
        first = f.mul(chunk, self.chunk * self.rows)
        end = self.f.least(f.add(first, self.chunk * self.rows), self.queries)
        low, high = self.span(first, f.op(f"sub i64 {end}, {first}"))
        keys = self.place(stage.k, stage.keys, stage.depth)
        self.pack(keys, self.depth, self.packed, low, high)
        f.loop(first, end, self.rows, self.block, at_least_once=True)
        self.memory.scopes.pop()

    def block(self, first: str, _: list[str]) -> None:
        """One block of query rows."""
        f = self.f
        self.memory.scopes.append({})
        count = self.f.least(f.op(f"sub i64 {self.queries}, {first}"), self.rows)
        span = self.span(first, count)
        q = Place(self.at(self.q, first), self.q.row)
        out = Place(self.at(self.out, first), self.out.row)
        self.scores(q, self.depth, self.packed, self.block_scores, count, *span)
        f.loop(0, count, 1, lambda i, _: self.highest(i, first, span), at_least_once=True)
        f.loop(0, count, 1, lambda i, _: self.exponentials(i, first, span), at_least_once=True)
        f.loop(0, count, self.lanes.width, lambda i, _: self.finish(i), at_least_once=True)
        f.loop(0, count, 1, lambda i, _: self.store_lse(i, first), at_least_once=True)
        rows = (count, self.queries % self.height)

        def keys(start: str, length: str, more: str) -> None:
            weights = f.offset(self.block_scores, f.mul(start, self.size))
            values = Place(self.at(self.v, start), self.v.row)
            self.product(rows, Place(weights, self.pitch), values, out, self.width, length, more)

        self.key_blocks(span[0], self.f.least(span[1], self.keys), keys)
        f.loop(0, count, 1, lambda i, _: self.divide(i, out), at_least_once=True)
        self.memory.scopes.pop()

    def highest(self, i: str, first: str, span: tuple[str, str]) -> None:
        """Logits in place of a row's scores, and their maximum (0 where nothing is seen)."""
        f = self.f

        def logits(n: int, mask: Vec, at: list[str]) -> Vec:
            x = mask.where(self.logit(n, self.load(at[0])), self.lowest())
            self.store(x, at[0])
            return x

        row = f.add(first, i)
        top = self.over_row(row, span, self.seen(row), [self.score_row(i)], logits, "max")
        assert top is not None
        top = top.equals(-float("inf")).where(top.like(0), top)
        self.store_scalar(top, f.offset(self.tops, f.mul(i, self.size)))

    def exponentials(self, i: str, first: str, span: tuple[str, str]) -> None:
        """exp(logit - maximum) in place of a row's logits, and their sum.

        A loop of its own, so that one row's maximum does not wait for the row before.
        """
        f, here = self.f, self.f.mul(i, self.size)
        top = self.load_scalar(f.offset(self.tops, here)).splat(self.lanes.width)

        def weights(n: int, mask: Vec, at: list[str]) -> Vec:
            weight = self.weight(mask, self.load(at[0]) - top)
            self.store(weight, at[0])
            return weight

        row = f.add(first, i)
        total = self.over_row(row, span, self.seen(row), [self.score_row(i)], weights, "add")
        assert total is not None
        self.store_scalar(total, f.offset(self.sums, here))

    def score_row(self, i: str) -> str:
        return self.f.offset(self.block_scores, self.f.mul(i, self.pitch * self.size))

    def finish(self, i: str) -> None:
        """Maxima to log-sum-exps and sums to what rows are scaled by, a vector of rows at once."""
        f = self.f
        tops, sums = (f.offset(p, f.mul(i, self.size)) for p in (self.tops, self.sums))
        total = self.load(sums)
        self.store(self.load(tops) + self.apply("log", total), tops)
        self.store(total.equals(0).where(total.like(0), total.like(1) / total), sums)

    def store_lse(self, i: str, first: str) -> None:
        f = self.f
        lse = self.load_scalar(f.offset(self.tops, f.mul(i, self.size)))
        self.store_scalar(lse, self.at(self.lse, f.add(first, i)))

    def divide(self, i: str, out: Place) -> None:
        """Scale a finished row by one over its sum; rows that see nothing become 0."""
        f, width = self.f, self.lanes.width
        inverse = self.load_scalar(f.offset(self.sums, f.mul(i, self.size)))
        wide, none = inverse.splat(width), inverse.equals(0).splat(width)
        for start in range(0, self.width, width):
            at, count = self.at(out, i, start), min(width, self.width - start)
            value = self.vec(self.lanes.load(f, at, self.dtype, count))
            scaled = none.where(value.like(0), value * wide)
            self.lanes.store(f, scaled.text, at, count)
