"""Attention, backward: an AttendGrad kernel -> LLVM IR.

    emitted = emit_attend_grad(kernel, "attend_grad0", target)

A unit is one key head of one batch element: no two units write the same cotangent. Its keys and
values are packed once; then for every query head of its group and every block of rows: scores
again, the weights p from the saved log-sum-exp, d_out v^T, ds; then dq from ds, and additions to
dk and dv, all while p and ds are in cache.
"""

from __future__ import annotations

from fxad.backend.llvm.attend_tiles import ABI, Place, Tiles
from fxad.backend.llvm.contract_plan import FLOPS_PER_NS
from fxad.backend.llvm.schedule import Emitted, Target
from fxad.backend.llvm.text import Function
from fxad.backend.llvm.vector import Vec
from fxad.ir.kernel import AttendGrad, Kernel


def emit_attend_grad(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one AttendGrad stage."""
    (stage,) = kernel.body
    assert isinstance(stage, AttendGrad)
    if not kernel.points:
        f = Function(name, "void", ABI)
        f.ret()
        return Emitted(name, str(f), frozenset(), 0, 0, 0.0)
    return _Backward(kernel, stage, name, target).emit()


class _Backward(Tiles):
    def __init__(self, kernel: Kernel, stage: AttendGrad, name: str, target: Target) -> None:
        super().__init__(kernel, stage.attend, name, target)
        self.grad = stage

    def emit(self) -> Emitted:
        self.packed_k = self.scratch(self.pitch * self.depth)
        self.packed_v = self.scratch(self.pitch * self.width)
        self.p = self.scratch(self.rows * self.pitch)
        self.ds = self.scratch(self.rows * self.pitch)
        self.f.loop("%begin", "%end", 1, self.unit)
        self.f.ret()
        pairs = 1.0 * self.queries * self.keys * self.grad.group.extent * self.kernel.points
        cost = max(2 * pairs * (3 * self.depth + 2 * self.width) / FLOPS_PER_NS, 100.0)
        units, scratch = self.kernel.points, self.scratch_bytes
        return Emitted(self.name, self.text, self.declarations, units, scratch, cost)

    def unit(self, unit: str, _: list[str]) -> None:
        f, stage, grad = self.f, self.stage, self.grad
        self.memory.scopes.append({})
        self.memory.env[grad.group] = "0"
        self.go_to(unit)
        self.k = self.place(stage.k, stage.keys, stage.depth)
        self.v = self.place(stage.v, stage.keys, stage.width)
        self.dk = self.place(grad.dk, stage.keys, stage.depth)
        self.dv = self.place(grad.dv, stage.keys, stage.width)
        self.pack(self.k, self.depth, self.packed_k, "0", str(self.pitch))
        self.pack(self.v, self.width, self.packed_v, "0", str(self.pitch))
        self.clear(self.dk, self.depth)
        self.clear(self.dv, self.width)
        f.loop(0, grad.group.extent, 1, self.head)
        self.memory.scopes.pop()

    def clear(self, place: Place, columns: int) -> None:
        """Zeros in all rows of a cotangent."""
        width = self.lanes.width

        def row(j: str, _: list[str]) -> None:
            for start in range(0, columns, width):
                count = min(width, columns - start)
                self.lanes.store(self.f, self.zero().text, self.at(place, j, start), count)

        self.f.loop(0, self.keys, 1, row)

    def head(self, head: str, _: list[str]) -> None:
        """All rows of one query head."""
        stage, grad = self.stage, self.grad
        self.memory.scopes.append({})
        self.memory.env[grad.group] = head
        self.q = self.place(stage.q, stage.rows, stage.depth)
        self.d_out = self.place(stage.out, stage.rows, stage.width)
        self.dq = self.place(grad.dq, stage.rows, stage.depth)
        self.lse = self.place(stage.lse, stage.rows)
        self.delta = self.place(grad.delta, stage.rows)
        self.f.loop(0, self.queries, self.rows, self.block)
        self.memory.scopes.pop()

    def block(self, first: str, _: list[str]) -> None:
        """One block of query rows."""
        f = self.f
        self.memory.scopes.append({})
        count = self.least(f.op(f"sub i64 {self.queries}, {first}"), self.rows)
        low, high = span = self.span(first, count)
        q, d_out, dq = (
            Place(self.at(place, first), place.row) for place in (self.q, self.d_out, self.dq)
        )
        self.scores(q, self.depth, self.packed_k, self.p, count, *span)
        self.scores(d_out, self.width, self.packed_v, self.ds, count, *span)
        f.loop(0, count, 1, lambda i, _: self.row(i, first, span), at_least_once=True)
        end = self.least(high, self.keys)
        self.queries_cotangent(count, low, end, dq)
        # Whole panels are whole tiles of keys, so only the last keys of all can be left over.
        keys = (self.most(f.op(f"sub i64 {end}, {low}"), 0), self.keys % self.height)
        skip = f.mul(low, self.size)
        for weights, rows, columns, into in (
            (self.p, d_out, self.width, self.dv),
            (self.ds, q, self.depth, self.dk),
        ):
            turned = Place(f.offset(weights, skip), 1, self.pitch)
            into = Place(self.at(into, low), into.row)
            self.product(keys, turned, rows, into, columns, count, "1")
        self.memory.scopes.pop()

    def queries_cotangent(self, count: str, low: str, end: str, dq: Place) -> None:
        """dq = ds k for one block of rows."""
        f = self.f
        rows = (count, self.queries % self.height)

        def keys(start: str, length: str, more: str) -> None:
            weights = Place(f.offset(self.ds, f.mul(start, self.size)), self.pitch)
            values = Place(self.at(self.k, start), self.k.row)
            self.product(rows, weights, values, dq, self.depth, length, more)

        self.key_blocks(low, end, keys)

    def row(self, i: str, first: str, span: tuple[str, str]) -> None:
        """p in place of a row of scores, ds in place of a row of d_out v^T."""
        f, width = self.f, self.lanes.width
        row = f.add(first, i)
        seen = self.seen(row)
        skip = f.mul(i, self.pitch * self.size)
        pointers = [f.offset(self.p, skip), f.offset(self.ds, skip)]
        lse = self.load_scalar(self.at(self.lse, row)).splat(width)
        delta = self.load_scalar(self.at(self.delta, row)).splat(width)

        def weights(n: int, mask: Vec, at: list[str]) -> None:
            p = self.apply("exp", self.logit(n, self.load(at[0])) - lse)
            p = mask.where(p, self.zero())
            slope = self.memory.value(self.grad.slope)
            assert isinstance(slope, Vec)
            ds = p * (self.load(at[1]) - delta) * slope.splat(width)
            self.store(p, at[0])
            self.store(mask.where(ds, self.zero()), at[1])

        self.over_row(row, span, seen, pointers, weights)
