"""Attention, forward: an Attend kernel -> LLVM IR.

    emitted = Forward(kernel, stage, "attend0", target).emit()

A unit is a chunk of query blocks of the heads that share their keys and values. These are copied
once to where they are read fast (a few values are read in place); then every block of rows goes
through its keys in blocks whose scores stay in cache: scores, each row's maximum so far,
exponentials and their sum, the product with the values. Where a row's maximum grows, what it has so
far is scaled down (Milakov and Gimelshein, 2018); as a rule that ends after a few blocks. Last each
row is divided by its sum.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.bf16x6 import Bf16x6Products
from fxad.backend.llvm.attention.operands import Packed, Place, round_up
from fxad.backend.llvm.attention.softmax import Half, Softmax
from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import Kernel
from fxad.ir.orders import ATTENTION_PANELS, ATTENTION_VALUES, SPLIT_PANELS, SPLIT_ROWS


def heads_sharing(kernel: Kernel, stage: Attend) -> int:
    """Query heads that read the same keys and values: neighbours among the grid's points."""
    for group in kernel.grid[-1:]:
        if all(o.index.coefficient(group) == 0 for o in (stage.k, stage.v)):
            return group.extent
    return 1


class Forward(Softmax):
    """The function under construction."""

    panels_of_block = ATTENTION_PANELS

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        super().__init__(kernel, stage, name, target)
        tuning = self.tuning
        self.rows = self.rows_of_block
        self.blocks = -(-self.queries // self.rows)
        self.sharing = heads_sharing(kernel, stage)  # query heads that one copy serves
        self.heads = kernel.points // self.sharing
        fewest, most = (max(1, -(-n // self.heads)) for n in (tuning.fewest_units, tuning.units))
        wanted = min(most, max(fewest, self.queries * self.sharing // tuning.unit_queries))
        self.chunk = -(-self.blocks // wanted)  # blocks of rows in a unit
        self.chunks = -(-self.blocks // self.chunk)
        self.block_keys = min(self.all_keys, self.panels_of_block * self.panel)
        self.pitch = self.pitch_of(self.block_keys)
        alone = self.sharing == 1 and self.width % self.lanes.width == 0
        self.copies_values = not (alone and self.keys <= self.few_keys)

    @property
    def rows_of_block(self) -> int:
        """Queries in a block."""
        return self.tuning.block_queries

    @property
    def few_keys(self) -> int:
        """So few rows of values are read where they lie."""
        return self.tuning.keys_in_place

    def emit(self) -> Emitted:
        rows = self.rows
        self.packed_k = self.transposed_scratch(self.all_keys, self.depth)
        if self.copies_values:
            self.packed_v = self.packed_scratch(self.keys, self.columns(self.width))
        self.block_scores = self.scratch(rows * self.pitch)
        self.block_weights = self.weights_scratch(self.block_scores)
        self.room_for_rows(rows)
        self.with_tiles(lambda: self.f.loop("%begin", "%end", 1, self.unit))
        self.f.ret()
        flops = 2.0 * self.queries * self.keys * (self.depth + self.width) * self.kernel.points
        return self.emitted(self.heads * self.chunks, flops / self.flops_per_ns)

    def room_for_rows(self, rows: int) -> None:
        """Scratch for what is known of so many rows: sums, maxima, totals."""
        width, line = self.lanes.width, round_up(self.width, self.lanes.width)
        self.sum = Place(self.scratch(rows * line), line)
        self.maxima, self.inverses = self.scratch(rows), self.scratch(rows)
        self.factors = self.scratch(width)
        self.lane_maxima = Place(self.scratch(rows * width), width)
        self.lane_sums = Place(self.scratch(rows * width), width)

    def emitted(self, units: int, cost: float) -> Emitted:
        scratch, cost = self.scratch_bytes, max(cost, 100.0)
        return Emitted(self.name, self.text, self.declarations, units, scratch, cost)

    def unit(self, unit: str, _: list[str]) -> None:
        """Last chunks first: where queries see what is before them, these take longest."""
        f, stage = self.f, self.stage
        self.memory.scopes.append({})
        number = f.op(f"sub i64 {self.chunks - 1}, {f.op(f'udiv i64 {unit}, {self.heads}')}")
        point = f.mul(f.op(f"urem i64 {unit}, {self.heads}"), self.sharing)
        self.go_to(point)
        first = f.mul(number, self.chunk * self.rows)
        end = self.f.least(f.add(first, self.chunk * self.rows), self.queries)
        low, high = self.span(first, f.op(f"sub i64 {end}, {first}"))
        self.pack(
            self.place(stage.k, stage.keys, stage.depth), self.depth, self.packed_k, low, high
        )
        values = self.place(stage.v, stage.keys, stage.width)
        if self.copies_values:
            count = f.most(f.op(f"sub i64 {f.least(high, self.keys)}, {low}"), 0)
            self.copy_columns(values, self.packed_v, low, count)
        else:
            columns = self.columns(self.width)
            self.packed_v = Packed(values.pointer, self.keys, columns, values.row)
        f.loop(0, self.sharing, 1, lambda g, _: self.head(f.add(point, g), first, end))
        self.memory.scopes.pop()

    def head(self, point: str, first: str, end: str) -> None:
        """A chunk of rows of one query head."""
        stage = self.stage
        self.memory.scopes.append({})
        self.go_to(point)
        self.q = self.place(stage.q, stage.rows, stage.depth)
        self.out = self.place(stage.out, stage.rows, stage.width)
        self.lse = self.place(stage.lse, stage.rows)

        def blocks() -> None:
            self.f.loop(first, end, self.rows, self.block, at_least_once=True)

        self.with_key_mask(first, end, blocks)
        self.memory.scopes.pop()

    def block(self, first: str, _: list[str]) -> None:
        """One block of query rows."""
        f = self.f
        self.memory.scopes.append({})
        count = f.least(f.op(f"sub i64 {self.queries}, {first}"), self.rows)
        span = self.span(first, count)
        q = self.left(Place(self.at(self.q, first), self.q.row), count)

        def keys(start: str, _: list[str]) -> None:
            here = start, f.least(f.add(start, self.block_keys), span[1])
            self.keys_of_block(first, count, q, here, f.op(f"icmp ne i64 {start}, {span[0]}"))

        f.loop(*span, self.block_keys, keys, at_least_once=True)
        self.results(first, count)
        self.memory.scopes.pop()

    def results(self, first: str, count: str) -> None:
        """Of a block of rows whose keys have all been met."""
        f = self.f
        f.loop(0, count, self.lanes.width, lambda i, _: self.finish(i), at_least_once=True)
        f.loop(0, count, 1, lambda i, _: self.result(i, f.add(first, i)), at_least_once=True)

    def left(self, q: Place, count: str) -> Place:
        """A block of queries as left operand of scores: a tile reads a few rows of it in place."""
        return q

    def keys_of_block(
        self, first: str, count: str, q: Place, here: tuple[str, str], later: str
    ) -> None:
        """What one block of keys adds to a block of rows; later: it is not the rows' first."""
        f = self.f
        # Where the row of scores would have key 0.
        scores = f.offset(self.block_scores, f.op(f"sub i64 0, {f.mul(here[0], self.size)}"))
        self.scores(q, self.depth, self.packed_k, scores, (first, count), *here)

        def each(body: Callable[[str], None]) -> None:
            f.loop(0, count, 1, lambda i, _: body(i), at_least_once=True)

        def row(i: str) -> str:
            return f.offset(scores, f.mul(i, self.pitch * self.size))

        each(lambda i: self.highest(i, f.add(first, i), row(i), here))
        f.loop(0, count, self.lanes.width, lambda i, _: self.raise_maxima(i, later))
        weights = self.weights_from(self.block_weights, here[0])
        each(lambda i: self.exponentials(i, f.add(first, i), row(i), weights, here, later))
        self.values(first, count, weights, here, later)

    def values(
        self, first: str, count: str, weights: str, here: tuple[str, str], later: str
    ) -> None:
        """Add the weights' product with the values, some rows of values at a time."""
        f = self.f
        end = f.least(here[1], self.keys)

        def some(start: str, _: list[str]) -> None:
            stop = f.least(f.add(start, ATTENTION_VALUES), end)

            def bounds(i: str, height: int) -> tuple[str, str]:
                low, high = self.visible_to(f.add(first, i), height)
                low = f.least(f.most(low, start), stop)
                return low, f.most(f.op(f"sub i64 {f.least(high, stop)}, {low}"), 0)

            more = f.op(f"or i1 {later}, {f.op(f'icmp ne i64 {start}, {here[0]}')}")
            more = f.op(f"zext i1 {more} to i64")
            a, rows = Place(weights, self.pitch), (count, self.queries)
            self.product(rows, a, self.packed_v, self.sum, bounds, more, padded=True)

        f.loop(here[0], end, ATTENTION_VALUES, some, at_least_once=True)

    def highest(self, i: str, row: str, at: str, here: tuple[str, str]) -> None:
        """A row's maximum, lane by lane. Logits in place of scores, unless a factor makes them
        that."""
        plain = self.scale is not None

        def logits(n: int, mask: Vec | None, at: list[str]) -> Vec:
            x = self.load(at[0]) if plain else self.logit(n, self.load(at[0]))
            x = mask.where(x, self.lowest()) if mask is not None else x
            if not plain:
                self.store(x, at[0])
            return x

        found = self.each_panel_of_row(
            row, here, self.visible(row), [(at, self.size)], logits, "max"
        )
        assert found is not None
        self.store(found, self.at(self.lane_maxima, i))

    def raise_maxima(self, i: str, later: str) -> None:
        """Maxima so far of a vector of rows from i on, and what rows have so far scaled to them."""
        f = self.f
        found = self.reduce_across_lanes("max", self.lane_maxima, i)
        place = f.offset(self.maxima, f.mul(i, self.size))
        known = Vec(self.code, "i1", 1, later).where(self.load(place), self.lowest())
        self.store(found.at_least(known), place)
        grown = found > known
        bits = f.op(f"bitcast {grown.type} {grown.text} to i{grown.width}")
        some = f.op(f"icmp ne i{grown.width} {bits}, 0")

        def rescale() -> None:
            factors = self.weight(grown, known - found, self.scale or 1.0)
            self.store(grown.where(factors, 1.0), self.factors)
            f.loop(0, self.lanes.width, 1, lambda n, _: self.rescale(f.add(i, n), n))

        f.when(f.op(f"and i1 {later}, {some}"), rescale)

    def rescale(self, i: str, n: str) -> None:
        """Scale what row i has so far by factor n."""
        f = self.f
        factor = self.load_scalar(f.offset(self.factors, f.mul(n, self.size)))
        places = [self.at(self.lane_sums, i)]
        places += [self.at(self.sum, i, c) for c in range(0, self.sum.row, self.lanes.width)]

        def scale() -> None:
            for place in places:
                self.store(self.load(place) * factor, place)

        f.when(factor.compare("une", 1.0).text, scale)

    def exponentials(
        self, i: str, row: str, at: str, to: str, here: tuple[str, str], later: str
    ) -> None:
        """exp(logit - maximum) of a row's scores, and their sum, lane by lane.

        A loop of its own, so that one row's maximum does not wait for the row before. Beside it,
        memory has time to bring rows that are needed next.
        """
        f = self.f
        self.prefetch_next_rows(row)
        top = self.top(self.load_scalar(f.offset(self.maxima, f.mul(i, self.size))))
        top = top.splat(self.lanes.width)
        waiting: Half | None = None

        def weights(n: int, mask: Vec | None, at: list[str]) -> Vec:
            nonlocal waiting
            weight = self.weight(mask, self.load(at[0]) - top, self.scale or 1.0)
            waiting = self.store_weight(weight, at, waiting)
            return weight

        places = [(at, self.size), *self.weights_of_row(to, i)]
        total = self.each_panel_of_row(row, here, self.visible(row), places, weights, "add")
        assert total is not None
        place = self.at(self.lane_sums, i)
        before = Vec(self.code, "i1", 1, later).where(self.load(place), self.zero())
        self.store(total + before, place)

    def prefetch_next_rows(self, row: str) -> None:
        """A row of the next block of queries, and one of this block's results."""
        self.prefetch_row(self.q, self.f.add(row, self.rows), self.depth)
        self.prefetch_row(self.out, row, self.width, write=True)

    @staticmethod
    def top(highest: Vec) -> Vec:
        """What is taken off logits: 0 where nothing is visible."""
        return highest.equals(-float("inf")).where(highest.like(0), highest)

    def finish(self, i: str) -> None:
        """Maxima to log-sum-exps and sums to what rows are scaled by, a vector of rows at once."""
        f = self.f
        maxima, sums = (f.offset(p, f.mul(i, self.size)) for p in (self.maxima, self.inverses))
        total, scale = self.reduce_across_lanes("add", self.lane_sums, i), self.scale or 1.0
        self.store(fma(self.top(self.load(maxima)), scale, self.apply("log", total)), maxima)
        self.store(total.equals(0).where(total.like(0), total.like(1) / total), sums)

    def result(self, i: str, row: str) -> None:
        """A finished row, the i-th of its block, over its sum; rows that see nothing become 0."""
        f, width = self.f, self.lanes.width
        here = f.mul(i, self.size)
        self.store_scalar(self.load_scalar(f.offset(self.maxima, here)), self.at(self.lse, row))
        inverse = self.load_scalar(f.offset(self.inverses, here))
        wide, none = inverse.splat(width), inverse.equals(0).splat(width)
        for start in range(0, self.width, width):
            value = self.load(self.at(self.sum, i, start))
            scaled = none.where(value.like(0), value * wide)
            count = min(width, self.width - start)
            self.lanes.store(f, scaled.text, self.at(self.out, row, start), count)


class ForwardBf16x6(Bf16x6Products, Forward):
    """On tiles, with numbers in parts: weights are put aside in parts."""

    panels_of_block = SPLIT_PANELS

    @property
    def rows_of_block(self) -> int:
        return SPLIT_ROWS

    @property
    def few_keys(self) -> int:
        return 0

    def emit(self) -> Emitted:
        self.queries_copy = self.rows_scratch(self.rows, self.depth)
        return super().emit()

    def left(self, q: Place, count: str) -> Place:
        return self.copy_rows(q, self.depth, self.queries_copy, count)
