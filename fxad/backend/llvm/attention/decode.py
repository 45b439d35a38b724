"""Attention of a few queries, forward: a token that is generated sees all that were before it.

    emitted = Decode(kernel, stage, "attend0", target).emit()

Keys and values are read once, where they lie, so memory decides. A unit is a key head of one batch
element: the rows of a block are the queries of all heads that share it. A score is a product of two
rows, lane by lane; for as many keys as there are lanes the sums across lanes are taken together.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.forward import Forward, heads_sharing
from fxad.backend.llvm.attention.operands import Packed, Place, round_up
from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.contract.lanes import prefetch_line
from fxad.core.aligned import LINE
from fxad.core.record import replace
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import Expr, Kernel
from fxad.ir.orders import ATTENTION_BYTES, KEYS_DEPTH, KEYS_QUERIES, KEYS_ROWS


def uses_decode(kernel: Kernel, stage: Attend) -> bool:
    """Whether keys meet so few queries that they are read in place.

    A head's are rows of one tile, as far as weights beyond the keys they see are known to be 0.
    """
    queries = stage.rows.extent
    few = queries <= KEYS_QUERIES and queries * heads_sharing(kernel, stage) <= KEYS_ROWS
    return few and stage.depth.extent <= KEYS_DEPTH


class Decode(Forward):
    """The function under construction. Row i is query i % queries of head i / queries."""

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        super().__init__(kernel, stage, name, target)
        self.ahead = self.tuning.prefetch_rows
        self.count = self.queries * self.sharing
        self.rows = round_up(self.count, self.lanes.width)
        panels = max(1, ATTENTION_BYTES // (self.panel * max(1, self.depth) * self.size))
        self.block_keys = self.pitch = min(self.all_keys, panels * self.panel)

    @property
    def key_mask(self) -> tuple[Expr, Expr] | None:
        """A mask of all rows; one that knows heads lets other keys through for each."""
        found = super().key_mask
        if found and self.sharing > 1 and self.kernel.grid[-1] in self.memory.needs(found[0]):
            return None
        return found

    def emit(self) -> Emitted:
        self.q_rows = Place(self.rows_scratch(self.count, self.depth), self.row_pitch(self.depth))
        self.key_rows = self.rows_scratch(self.lanes.width, self.depth)
        self.block_scores = self.block_weights = self.scratch(self.rows * self.pitch)
        self.room_for_rows(self.rows)
        self.f.loop("%begin", "%end", 1, self.unit)
        self.f.ret()
        size = self.heads * self.keys * (self.depth + self.width) * self.size
        return self.emitted(self.heads, size / self.tuning.bytes_per_ns)

    def unit(self, unit: str, _: list[str]) -> None:
        f, stage = self.f, self.stage
        self.memory.scopes.append({})
        self.point = f.mul(unit, self.sharing)
        f.loop(0, self.sharing, 1, self.copy_queries)
        self.go_to(self.point)
        self.k = self.place(stage.k, stage.keys, stage.depth)
        self.v = v = self.place(stage.v, stage.keys, stage.width)
        self.packed_k = self.k.pointer
        self.packed_v = Packed(v.pointer, self.keys, self.columns(self.width), v.row)
        self.with_key_mask("0", str(self.queries), self.all_rows)
        self.memory.scopes.pop()

    def copy_queries(self, head: str, _: list[str]) -> None:
        stage = self.stage
        self.memory.scopes.append({})
        self.go_to(self.f.add(self.point, head))
        q = self.place(stage.q, stage.rows, stage.depth)
        to = self.at(self.q_rows, self.f.mul(head, self.queries))
        self.copy_rows(q, self.depth, to, str(self.queries))
        self.memory.scopes.pop()

    def all_rows(self) -> None:
        f, count = self.f, str(self.count)
        low, high = self.span("0", str(self.queries))

        def keys(start: str, _: list[str]) -> None:
            here = start, f.least(f.add(start, self.block_keys), high)
            later = f.op(f"icmp ne i64 {start}, {low}")
            self.keys_of_block("0", count, self.q_rows, here, later)

        f.loop(low, high, self.block_keys, keys, at_least_once=True)
        self.results("0", count)

    # ------------------------------------------------------------ rows

    def with_head(self, i: str, body: Callable[[str], None]) -> None:
        """body(query), where row i is that query of the head it is of."""
        f = self.f
        self.memory.scopes.append({})
        self.go_to(f.add(self.point, f.op(f"udiv i64 {i}, {self.queries}")))
        body(f.op(f"urem i64 {i}, {self.queries}"))
        self.memory.scopes.pop()

    def highest(self, i: str, row: str, at: str, here: tuple[str, str]) -> None:
        self.with_head(i, lambda query: super(Decode, self).highest(i, query, at, here))

    def exponentials(
        self, i: str, row: str, at: str, to: str, here: tuple[str, str], later: str
    ) -> None:
        def body(query: str) -> None:
            super(Decode, self).exponentials(i, query, at, to, here, later)

        self.with_head(i, body)

    def result(self, i: str, row: str) -> None:
        """Row i's result; it lies with those of its head."""
        stage = self.stage

        def body(query: str) -> None:
            self.out = self.place(stage.out, stage.rows, stage.width)
            self.lse = self.place(stage.lse, stage.rows)
            super(Decode, self).result(i, query)

        self.with_head(i, body)

    def prefetch_next_rows(self, row: str) -> None:
        """Of so few queries nothing comes next."""

    # ------------------------------------------------------------ products

    def scores(
        self, a: Place, depth: int, packed: str, to: str, rows: tuple[str, str], low: str, high: str
    ) -> None:
        f, width = self.f, self.lanes.width

        def group(key: str, there: int = width) -> None:
            keys = self.some_keys(key, there)

            def query(i: str, _: list[str]) -> None:
                q = [self.load(self.at(a, i, c)) for c in range(0, depth, width)]
                found = self.transpose_reduce("add", lambda n: self.dot(q, keys, n, there))
                self.store(found, f.offset(to, f.mul(f.add(f.mul(i, self.pitch), key), self.size)))

            f.loop(0, rows[1], 1, query, at_least_once=True)

        rest = self.keys % width
        f.loop(low, f.least(high, self.keys - rest), width, lambda j, _: group(j))
        if rest:
            last = str(self.keys - rest)
            f.when(f.op(f"icmp sgt i64 {high}, {last}"), lambda: group(last, rest))

    def some_keys(self, key: str, count: int) -> Place:
        """So many keys; copied where several queries read them, since rows of one head may all
        share a few sets of a cache."""
        keys = Place(self.at(self.k, key), self.k.row)
        for n in range(count):
            for start in range(0, self.depth * self.size, LINE):
                at = self.f.offset(self.at(keys, n + self.ahead), start)
                prefetch_line(self.f, self.lanes.declarations, at, write=False, level=3)
        if self.count == 1:
            return keys
        return self.copy_rows(keys, self.depth, self.key_rows, str(count))

    def dot(self, q: list[Vec], keys: Place, n: int, there: int) -> Vec:
        """A query times key n, lane by lane; 0 for a key that is not there."""
        total = self.zero()
        for i, x in enumerate(q if n < there else []):
            start = i * self.lanes.width
            count = min(self.lanes.width, self.depth - start)
            k = self.lanes.load(self.f, self.at(keys, n, start), self.dtype, count)
            total = fma(x, self.vec(k), total)
        return total

    def values(
        self, first: str, count: str, weights: str, here: tuple[str, str], later: str
    ) -> None:
        f = self.f
        low, high = self.visible_to("0", self.queries)
        low, high = (f.least(f.most(x, here[0]), here[1]) for x in (low, high))
        bounds = low, f.most(f.op(f"sub i64 {high}, {low}"), 0)
        values = replace(self.packed_v, following=self.at(self.v, high))
        rows, a = (count, self.count), Place(weights, self.pitch)
        more, whole = f.op(f"zext i1 {later} to i64"), self.width % self.lanes.width == 0
        self.product(rows, a, values, self.sum, lambda *_: bounds, more, padded=whole)
