"""Attention, backward: an AttendGrad kernel -> LLVM IR.

    emitted = emit_attend_grad(kernel, "attend_grad0", target)

A unit is one key head of one batch element: no two units write the same cotangent. It goes through
its keys in chunks that the L2 cache holds, packed once; then for every query head of its group and
every block of rows that sees the chunk: scores again, the weights p from the saved log-sum-exp,
d_out v^T, ds; then additions to dq, dk and dv, all while p and ds are in cache.
"""

from __future__ import annotations

from fxad.backend.llvm.attend_tiles import ABI, Place, Tiles
from fxad.backend.llvm.contract_plan import FLOPS_PER_NS
from fxad.backend.llvm.schedule import Emitted, Target
from fxad.backend.llvm.text import Function
from fxad.backend.llvm.vector import Vec
from fxad.ir.kernel import AttendGrad, Kernel

_CHUNK_PANELS = 10  # panels of keys worked on at a time


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
        self.chunk = min(self.pitch, _CHUNK_PANELS * self.panel)
        self.rows = 48 if self.chunk == self.pitch else 96
        self.pitch = self.chunk

    def emit(self) -> Emitted:
        self.packed = self.scratch(self.chunk * self.depth), self.scratch(self.chunk * self.width)
        self.work = self.scratch(self.rows * self.pitch), self.scratch(self.rows * self.pitch)
        self.f.loop("%begin", "%end", 1, self.unit)
        self.f.ret()
        pairs = 1.0 * self.queries * self.keys * self.grad.group.extent * self.kernel.points
        cost = max(2 * pairs * (3 * self.depth + 2 * self.width) / FLOPS_PER_NS, 100.0)
        units, scratch = self.kernel.points, self.scratch_bytes
        return Emitted(self.name, self.text, self.declarations, units, scratch, cost)

    def unit(self, unit: str, _: list[str]) -> None:
        f, stage, grad = self.f, self.stage, self.grad
        self.memory.scopes.append({})
        self.go_to(unit)
        self.k = self.place(stage.k, stage.keys, stage.depth)
        self.v = self.place(stage.v, stage.keys, stage.width)
        self.dk = self.place(grad.dk, stage.keys, stage.depth)
        self.dv = self.place(grad.dv, stage.keys, stage.width)
        self.clear(self.dk, self.keys, self.depth)
        self.clear(self.dv, self.keys, self.width)
        f.loop(0, grad.group.extent, 1, self.clear_head)
        f.loop(0, self.keys, self.chunk, self.key_chunk)
        self.memory.scopes.pop()

    def clear_head(self, head: str, _: list[str]) -> None:
        stage, grad = self.stage, self.grad
        self.memory.scopes.append({})
        self.memory.env[grad.group] = head
        self.clear(self.place(grad.dq, stage.rows, stage.depth), self.queries, self.depth)
        self.memory.scopes.pop()

    def key_chunk(self, start: str, _: list[str]) -> None:
        """What a chunk of keys gives and gets; addresses are those that key 0 would have."""
        f = self.f
        skip = f.op(f"sub i64 0, {f.mul(start, self.size)}")
        self.packed_k = f.offset(self.packed[0], f.mul(skip, self.depth))
        self.packed_v = f.offset(self.packed[1], f.mul(skip, self.width))
        self.p, self.ds = f.offset(self.work[0], skip), f.offset(self.work[1], skip)
        padded = -(-self.keys // self.panel) * self.panel
        self.keys_here = start, self.f.least(f.add(start, self.chunk), padded)
        self.pack(self.k, self.depth, self.packed_k, *self.keys_here)
        self.pack(self.v, self.width, self.packed_v, *self.keys_here)
        f.loop(0, self.grad.group.extent, 1, self.head)

    def clear(self, place: Place, rows: int, columns: int) -> None:
        """Zeros in all rows of a cotangent."""
        width = self.lanes.width

        def row(j: str, _: list[str]) -> None:
            for start in range(0, columns, width):
                count = min(width, columns - start)
                self.lanes.store(self.f, self.zero().text, self.at(place, j, start), count)

        self.f.loop(0, rows, 1, row)

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
        """One block of query rows, if it sees any key of the chunk."""
        f = self.f
        self.memory.scopes.append({})
        count = self.f.least(f.op(f"sub i64 {self.queries}, {first}"), self.rows)
        low, high = self.span(first, count)
        span = self.f.most(low, self.keys_here[0]), self.f.least(high, self.keys_here[1])
        some = f.op(f"icmp slt i64 {span[0]}, {span[1]}")
        self.f.when(some, lambda: self.products(first, count, span))
        self.memory.scopes.pop()

    def products(self, first: str, count: str, span: tuple[str, str]) -> None:
        f = self.f
        low, high = span
        q, d_out, dq = (
            Place(self.at(place, first), place.row) for place in (self.q, self.d_out, self.dq)
        )
        self.scores(q, self.depth, self.packed_k, self.p, count, *span)
        self.scores(d_out, self.width, self.packed_v, self.ds, count, *span)
        f.loop(0, count, 1, lambda i, _: self.row(i, first, span), at_least_once=True)
        keys = f.op(f"sub i64 {self.f.least(high, self.keys)}, {low}")
        skip = f.mul(low, self.size)
        weights = Place(f.offset(self.ds, skip), self.pitch)
        key_rows = Place(self.at(self.k, low), self.k.row)
        rows = (count, self.queries % self.height)
        self.product(rows, weights, key_rows, dq, self.depth, keys, "1")
        # Whole panels are whole tiles of keys, so only the last keys of all can be left over.
        for block, others, columns, into in (
            (self.p, d_out, self.width, self.dv),
            (self.ds, q, self.depth, self.dk),
        ):
            turned = Place(f.offset(block, skip), 1, self.pitch)
            into = Place(self.at(into, low), into.row)
            self.product((keys, self.keys % self.height), turned, others, into, columns, count, "1")

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
            p = self.weight(mask, self.logit(n, self.load(at[0])) - lse)
            slope = self.memory.value(self.grad.slope)
            assert isinstance(slope, Vec)
            ds = p * (self.load(at[1]) - delta) * slope.splat(width)
            self.store(p, at[0])
            self.store(mask.where(ds, self.zero()), at[1])

        self.over_row(row, span, seen, pointers, weights)
