"""Attention, backward: an AttendGrad kernel -> LLVM IR.

    emitted = Backward(kernel, stage, "attend_grad0", target).emit()

A unit is one key head of one batch element, or a part of its queries with cotangents of its own: no
two units write the same. It goes through
its keys in chunks that the L2 cache holds, packed once; then for every query head of its group and
every block of rows that sees the chunk: scores again, the weights p from the saved log-sum-exp,
d_out v^T, ds; then additions to dq, dk and dv, all while p and ds are in cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fxad.backend.llvm.attention.operands import ROWS, Packed, Place, round_up
from fxad.backend.llvm.attention.softmax import Half, Softmax
from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.core.record import record
from fxad.ir.kernel import AttentionGrad as AttendGrad
from fxad.ir.kernel import Kernel
from fxad.ir.orders import GRADIENT_BYTES, GRADIENT_PANELS, GRADIENT_ROWS


@record
class Head:
    """The operands of one query head, from its first row on."""

    q: Place
    d_out: Place
    dq: Place
    lse: Place
    delta: Place


@record
class Weights:
    """Where a block of keys has key 0: p, ds, and ds as the product for dq reads it."""

    p: str
    ds: str
    ds_copy: str


class Backward(Softmax):
    """The function under construction."""

    rows_of_block = GRADIENT_ROWS

    def __init__(self, kernel: Kernel, stage: AttendGrad, name: str, target: Target) -> None:
        super().__init__(kernel, stage.attend, name, target)
        self.grad = stage
        most = int(GRADIENT_BYTES / self.bytes_of_key)
        self.chunk = min(self.all_keys, round_up(max(most, 1), math.lcm(ROWS, self.panel)))
        self.block_keys = min(self.chunk, GRADIENT_PANELS * self.panel)
        self.pitch = self.pitch_of(self.block_keys)
        self.rows = self.rows_of_block

    @property
    def writes_directly(self) -> bool:
        """Whether dk and dv are what one block of rows gives them: then they are not summed."""
        alone = 1 <= self.queries <= self.rows and self.grad.group.extent == 1
        return alone and self.key_mask is None

    @property
    def bytes_of_key(self) -> int:
        """Of a key in a chunk: what is copied and summed."""
        return (3 * self.depth + 2 * self.width) * self.size

    def emit(self) -> Emitted:
        sizes = self.depth, self.width
        self.packed = tuple(self.transposed_scratch(self.chunk, n) for n in sizes)
        self.key_rows = self.packed_scratch(self.chunk, self.columns(self.depth))
        self.copies = tuple(self.rows_scratch(self.rows, n) for n in sizes)  # of q and d_out
        self.work = self.scratch(self.rows * self.pitch), self.scratch(self.rows * self.pitch)
        self.block_weights = self.weights_scratch(self.work[1])
        self.room_for_sums()
        self.with_tiles(lambda: self.f.loop("%begin", "%end", 1, self.unit))
        self.f.ret()
        pairs = 1.0 * self.queries * self.keys * self.grad.group.extent * self.kernel.points
        cost = max(2 * pairs * (3 * self.depth + 2 * self.width) / self.flops_per_ns, 100.0)
        units, scratch = self.kernel.points, self.scratch_bytes
        return Emitted(self.name, self.text, self.declarations, units, scratch, cost)

    def room_for_sums(self) -> None:
        """Scratch for dk and dv, and for what is multiplied to have them."""
        unit = math.gcd(ROWS, self.panel)
        lines = tuple(round_up(n, self.lanes.width) for n in (self.depth, self.width))
        self.q_rows, self.d_out_rows = (
            Packed(copy, self.rows, self.columns(n, unit), self.row_pitch(n))
            for copy, n in zip(self.copies, (self.depth, self.width), strict=True)
        )
        kept = 0 if self.writes_directly else self.chunk
        self.sums = tuple(Place(self.scratch(kept * n), n) for n in lines)

    def unit(self, unit: str, _: list[str]) -> None:
        f, stage, grad = self.f, self.stage, self.grad
        self.memory.scopes.append({})
        self.go_to(unit)
        self.k = self.place(stage.k, stage.keys, stage.depth)
        self.v = self.place(stage.v, stage.keys, stage.width)
        self.dk = self.place(grad.dk, stage.keys, stage.depth)
        self.dv = self.place(grad.dv, stage.keys, stage.width)
        f.loop(
            0, max(self.keys, 1), max(self.chunk, 1), self.key_chunk
        )  # dq is set without keys, too
        self.memory.scopes.pop()

    def each_vector(
        self, to: Place, rows: str | int, columns: int, value: Callable[[str, int], Vec]
    ) -> None:
        """to[row, c ...] = value(row, c) for all rows and every vector of columns."""
        width = self.lanes.width

        def row(j: str, _: list[str]) -> None:
            for start in range(0, columns, width):
                count = min(width, columns - start)
                self.lanes.store(self.f, value(j, start).text, self.at(to, j, start), count)

        self.f.loop(0, rows, 1, row)

    def key_chunk(self, start: str, _: list[str]) -> None:
        """One chunk of keys; addresses are moved so that key 0 would lie where it does in place."""
        f = self.f
        skip = f.op(f"sub i64 0, {start}")
        sizes = (self.row_bytes(n) for n in (self.depth, self.width))
        self.packed_k, self.packed_v = (
            f.offset(p, f.mul(skip, size)) for p, size in zip(self.packed, sizes, strict=True)
        )
        self.start = start
        self.keys_here = start, f.least(f.add(start, self.chunk), self.all_keys)
        count = f.op(f"sub i64 {f.least(self.keys_here[1], self.keys)}, {start}")
        low, high = self.span("0", str(self.queries))
        into = tuple(Place(self.at(p, start), p.row) for p in (self.dk, self.dv))
        if self.writes_directly:
            self.sums = into
            past = f.op(f"icmp slt i64 {high}, {f.add(start, count)}")
            some = f.op(f"or i1 {f.op(f'icmp sgt i64 {low}, {start}')}, {past}")
            f.when(some, lambda: self.clear_sums(count))
        else:
            self.clear_sums(count)
        before = f.op(f"icmp slt i64 {start}, {high}")
        visible = f.op(f"and i1 {before}, {f.op(f'icmp slt i64 {low}, {self.keys_here[1]}')}")
        first = f.op(f"icmp eq i64 {start}, 0")  # then dq is set, too
        f.when(f.op(f"or i1 {first}, {visible}"), lambda: self.heads(start, count))
        if not self.writes_directly:
            self.finish(self.sums[0], into[0], count, self.depth)
            self.finish(self.sums[1], into[1], count, self.width)

    def clear_sums(self, count: str) -> None:
        for sums, columns in zip(self.sums, (self.depth, self.width), strict=True):
            self.each_vector(
                sums, count, columns if self.writes_directly else sums.row, lambda *_: self.zero()
            )

    def heads(self, start: str, count: str) -> None:
        """All queries of the unit and one chunk of keys."""
        f = self.f

        def panel(start: str, _: list[str]) -> None:
            end = f.add(start, self.panel)
            self.prefetch_rows(self.k, end, self.panel, self.depth)
            self.prefetch_rows(self.v, end, self.panel, self.width)
            self.pack(self.k, self.depth, self.packed_k, start, end)
            self.pack(self.v, self.width, self.packed_v, start, end)

        f.loop(*self.keys_here, self.panel, panel)
        k = Place(self.at(self.k, start), self.k.row)
        self.copy_columns(k, self.key_rows, "0", count)
        self.f.loop(0, self.grad.group.extent, 1, self.head)

    def finish(self, sums: Place, to: Place, count: str, columns: int) -> None:
        def value(row: str, column: int) -> Vec:
            if not column:
                self.prefetch_row(
                    to, self.f.add(row, self.tuning.gradient_prefetch_rows), columns, write=True
                )
            return self.load(self.at(sums, row, column))

        self.each_vector(to, count, columns, value)

    def head(self, head: str, _: list[str]) -> None:
        """All rows of one query head."""
        stage, grad = self.stage, self.grad
        self.memory.scopes.append({})
        self.memory.env[grad.group] = head
        operands = Head(
            q=self.place(stage.q, stage.rows, stage.depth),
            d_out=self.place(stage.out, stage.rows, stage.width),
            dq=self.place(grad.dq, stage.rows, stage.depth),
            lse=self.place(stage.lse, stage.rows),
            delta=self.place(grad.delta, stage.rows),
        )

        def blocks() -> None:
            self.f.loop(0, self.queries, self.rows, lambda i, _: self.block(operands, i))

        self.with_key_mask("0", str(self.queries), blocks)
        self.memory.scopes.pop()

    def block(self, head: Head, first: str) -> None:
        """One block of query rows, if it sees any key of the chunk.

        The first chunk sets dq to 0 where it sees none.
        """
        f = self.f
        self.memory.scopes.append({})
        count = self.f.least(f.op(f"sub i64 {self.queries}, {first}"), self.rows)
        low, high = self.span(first, count)
        span = self.f.most(low, self.keys_here[0]), self.f.least(high, self.keys_here[1])
        dq = Place(self.at(head.dq, first), head.dq.row)

        def clear() -> None:
            self.each_vector(dq, count, self.depth, lambda *_: self.zero())

        some = f.op(f"icmp slt i64 {span[0]}, {span[1]}")
        fresh = f.op(f"icmp eq i64 {self.start}, 0")
        f.when(f.op(f"and i1 {fresh}, {f.op(f'xor i1 {some}, true')}"), clear)
        f.when(some, lambda: self.all_products(head, first, count, span))
        self.memory.scopes.pop()

    def all_products(self, head: Head, first: str, count: str, span: tuple[str, str]) -> None:
        f = self.f
        q, d_out = (Place(self.at(p, first), p.row) for p in (head.q, head.d_out))
        q, d_out = self.operands(q, d_out, count)

        def keys(start: str, _: list[str]) -> None:
            here = start, f.least(f.add(start, self.block_keys), span[1])
            later = f.op(f"icmp ne i64 {start}, {span[0]}")
            later = f.op(f"or i1 {later}, {f.op(f'icmp ne i64 {self.start}, 0')}")
            self.products(head, (first, count), here, q, d_out, later)

        f.loop(*span, self.block_keys, keys, at_least_once=True)

    def operands(self, q: Place, d_out: Place, count: str) -> tuple[Place, Place]:
        """Copies of `count` rows for both kinds of products; q and d_out as left operands."""
        q = self.copy_rows(q, self.depth, self.copies[0], count)
        return q, self.copy_rows(d_out, self.width, self.copies[1], count)

    def products(
        self,
        head: Head,
        rows: tuple[str, str],
        span: tuple[str, str],
        q: Place,
        d_out: Place,
        later: str,
    ) -> None:
        """A block of rows and one of keys; rows: (the first, their number). later: these keys are
        not the first for dq."""
        f = self.f
        skip = f.op(f"sub i64 0, {f.mul(span[0], self.size)}")
        p, ds = f.offset(self.work[0], skip), f.offset(self.work[1], skip)
        weights = Weights(p, ds, self.weights_from(self.block_weights, span[0]))
        self.scores(q, self.depth, self.packed_k, p, rows, *span)
        self.scores(d_out, self.width, self.packed_v, ds, rows, *span)

        def row(i: str, _: list[str]) -> None:
            self.row(head, weights, i, rows[0], span)

        f.loop(0, rows[1], 1, row, at_least_once=True)
        self.add_to_dq(head, *rows, span, later)
        self.add_to_dk_and_dv(weights, rows, span)

    def add_to_dk_and_dv(
        self, weights: Weights, rows: tuple[str, str], span: tuple[str, str]
    ) -> None:
        f = self.f
        low = f.op(f"sub i64 {span[0]}, {self.start}")
        keys = f.op(f"sub i64 {f.least(span[1], self.keys)}, {span[0]}")

        def bounds(key: str, height: int) -> tuple[str, str]:
            low, high = self.rows_that_see(f.add(span[0], key), height, *rows)
            return low, f.op(f"sub i64 {high}, {low}")

        for block, others, into in (
            (self.work[1], self.q_rows, self.sums[0]),
            (self.work[0], self.d_out_rows, self.sums[1]),
        ):
            transposed, into = Place(block, 1, self.pitch), Place(self.at(into, low), into.row)
            # The last of whole panels are whole tiles: only the last keys of all can be left over.
            more, padded = str(int(not self.writes_directly)), not self.writes_directly
            self.product((keys, self.keys), transposed, others, into, bounds, more, padded)

    def add_to_dq(
        self, head: Head, first: str, count: str, span: tuple[str, str], later: str
    ) -> None:
        dq = Place(self.at(head.dq, first), head.dq.row)
        more = self.f.op(f"zext i1 {later} to i64")
        self.product_for_dq(first, count, span, dq, more)

    def product_for_dq(
        self, first: str, count: str, span: tuple[str, str], to: Place, more: str
    ) -> None:
        f = self.f
        end = f.least(span[1], self.keys)

        def bounds(i: str, height: int) -> tuple[str, str]:
            low, high = self.visible_to(f.add(first, i), height)
            low, high = f.least(f.most(low, span[0]), end), f.least(high, end)
            return f.op(f"sub i64 {low}, {self.start}"), f.most(f.op(f"sub i64 {high}, {low}"), 0)

        # Where the row would have the chunk's first key.
        back = f.op(f"sub i64 {span[0]}, {self.start}")
        weights = Place(self.weights_from(self.block_weights, back), self.pitch)
        self.product((count, self.queries), weights, self.key_rows, to, bounds, more)

    def row(self, head: Head, block: Weights, i: str, first: str, span: tuple[str, str]) -> None:
        """p in place of a row of scores, ds in place of a row of d_out v^T."""
        f, width = self.f, self.lanes.width
        row = f.add(first, i)
        for place, columns in ((head.q, self.depth), (head.d_out, self.width)):
            self.prefetch_row(place, f.add(row, self.rows), columns)
        self.prefetch_row(head.dq, f.add(row, self.rows), self.depth, write=True)
        if self.writes_directly:
            for sums, columns in zip(self.sums, (self.depth, self.width), strict=True):
                self.prefetch_row(sums, i, columns, write=True)
        skip = f.mul(i, self.pitch * self.size)
        pointers = [(f.offset(p, skip), self.size) for p in (block.p, block.ds)]
        pointers += self.weights_of_row(block.ds_copy, i)
        lse = self.load_scalar(self.at(head.lse, row)).splat(width)
        delta = self.load_scalar(self.at(head.delta, row)).splat(width)
        waiting: Half | None = None

        def weights(n: int, mask: Vec | None, at: list[str]) -> None:
            nonlocal waiting
            score = self.load(at[0])
            if self.scale is None:
                p = self.weight(mask, self.logit(n, score) - lse)
            else:
                p = self.weight(mask, fma(score, self.scale, -lse))
            slope = self.scale or self.memory.value(self.grad.slope)
            ds = p * (self.load(at[1]) - delta)
            ds = ds * (slope.splat(width) if isinstance(slope, Vec) else slope)
            self.store(p, at[0])
            ds = mask.where(ds, self.zero()) if mask is not None else ds
            self.store(ds, at[1])
            if at[2:]:
                waiting = self.store_weight(ds, at[1:], waiting)

        self.each_panel_of_row(row, span, self.visible(row), pointers, weights)
