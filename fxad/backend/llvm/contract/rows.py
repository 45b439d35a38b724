"""Products of few rows: B is read once, where it lies, as fast as memory gives it.

    takes_rows(problem, target)            # up to 8 rows and a large B
    emit_rows(problem, "matmul0", target)

With few uses for every element of B nothing is packed. Where columns are neighbours in memory,
rows of B go by a few at a time, and the sums of a unit's columns stay in the first-level cache;
where k has neighbours, squares of B are turned in registers (contract/turned.py). Either way B is
prefetched a step ahead, to where the kind of processor has it soonest (`Gemv.level`): every line is
used once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.tuning import Gemv
from fxad.backend.llvm.contract.few import FewRows
from fxad.backend.llvm.contract.plan import Problem
from fxad.backend.llvm.contract.turned import Turned
from fxad.core.aligned import LINE


def takes_rows(problem: Problem, target: Target) -> bool:
    """Whether a float product has few rows and a large B with neighbours in memory."""
    (rows, columns, k), b, tuning = problem.size, problem.b, target.tuning.gemv
    lanes = target.lanes(problem.dtype)
    far = _bytes(problem) >= tuning.far_bytes
    return (
        rows <= tuning.most_rows
        and problem.dtype.name in ("float32", "float64")
        and (far or (rows <= tuning.fewest_rows and _packs_in_vain(problem, tuning)))
        and ((b.outer == 1 and columns >= lanes) or (b.inner == 1 and k >= lanes))
    )


def _packs_in_vain(problem: Problem, tuning: Gemv) -> bool:
    """Whether very few rows do not repay a packed copy of a B that caches may keep."""
    points, b, size = problem.kernel.points, problem.b, _bytes(problem)
    if points > 1 and size >= tuning.element_bytes and points * size >= tuning.batch_bytes:
        return True
    return b.outer == 1 and b.buffer.dtype != problem.dtype and size >= tuning.widened_bytes


def _bytes(problem: Problem) -> int:
    """Of B, in one element of the batch."""
    _, columns, k = problem.size
    return columns * k * problem.b.buffer.dtype.itemsize


def emit_rows(problem: Problem, name: str, target: Target) -> Emitted:
    """LLVM IR of a product for which `takes_rows` holds."""
    way = Across if problem.b.outer == 1 else Turned
    return way(problem, name, target).emit()


class Across(FewRows):
    """Columns side by side in memory: rows of B, each times one element of A, added up."""

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        super().__init__(problem, name, target)
        self.step = 4 * self.lanes.width
        line = LINE // (self.lanes.width * self.source.itemsize)
        self.vectors = max(self.halves, min(4, line))  # of sums for a line of B
        row = self.columns * self.source.itemsize
        tuning = self.tuning
        pieces = min(tuning.shared, row // tuning.short_bytes)
        self.chunked(max(row // tuning.piece_bytes, pieces))
        self.group = max(2, min(tuning.group, 16 // self.rows))  # rows of B that go by together
        self.pitch = problem.b.inner * self.source.itemsize
        near = self.group * self.chunk * self.source.itemsize
        self.ahead = self.group * -(-tuning.ahead // near) * self.pitch
        self.distance = min(tuning.row_ahead, self.chunk * self.source.itemsize)

    def begin(self) -> None:
        self.sums = self.scratch(self.rows * self.chunk) if self.blocks > 1 else self.totals

    def compute(self) -> None:
        self.f.loop(0, self.blocks, 1, self.one_block, at_least_once=True)
        if self.halves == 2:
            whole = self.whole_lines()

            def join(at: str, _: list[str]) -> None:
                for i in range(self.rows):
                    row = self.f.offset(self.totals, i * self.chunk * self.size)
                    self.joined(row, at)

            self.f.loop(0, whole, 2 * self.lanes.width, join)
        self.each_step(self.finished)

    def whole_lines(self) -> str:
        """How many of the chunk's columns make whole lines of B."""
        line = self.vectors * self.lanes.width
        if not self.columns % line:
            return self.count
        return self.f.mul(self.f.op(f"udiv i64 {self.count}, {line}"), line)

    def joined(self, row: str, at: str) -> None:
        """Columns with even and with odd numbers were summed apart: bring them together."""
        f, width = self.f, self.lanes.width
        places = [f.offset(row, f.mul(at, self.size))]
        places.append(f.offset(places[0], width * self.size))
        even, odd = (self.get(place) for place in places)
        for half, place in enumerate(places):
            picked = [half * width // 2 + j // 2 + j % 2 * width for j in range(width)]
            self.put(self.lanes.shuffle(f, even, odd, picked), place)

    def one_block(self, block: str, _: list[str]) -> None:
        """The first block adds up in the totals, others apart and then to them."""
        f = self.f
        low, high = self.block_ends(block)
        into = self.totals
        if self.blocks > 1:
            is_first = f.op(f"icmp eq i64 {block}, 0")
            into = f.op(f"select i1 {is_first}, ptr {self.totals}, ptr {self.sums}")
        self.each_vector(lambda at: self.put("zeroinitializer", f.offset(into, at)))
        left = f.op(f"urem i64 {f.op(f'sub i64 {high}, {low}')}, {self.group}")
        whole = f.op(f"sub i64 {high}, {left}")
        f.loop(low, whole, self.group, lambda k, _: self.add_rows(into, k, self.group))
        f.loop(whole, high, 1, lambda k, _: self.add_rows(into, k, 1))
        if self.blocks > 1:
            later = f.op(f"icmp ne i64 {block}, 0")
            self.f.when(later, lambda: self.each_vector(self.add_sums))

    def each_vector(self, body: Callable[[str], None]) -> None:
        """body(offset in bytes) for every vector of the sums, unused columns too."""
        end, step = self.rows * self.chunk * self.size, self.lanes.width * self.size
        self.f.loop(0, end, step, lambda at, _: body(at), at_least_once=True)

    def add_sums(self, at: str) -> None:
        total, more = (self.f.offset(p, at) for p in (self.totals, self.sums))
        self.put(self.lanes.add(self.f, self.get(total), self.get(more)), total)

    def get(self, pointer: str) -> str:
        return self.lanes.load(self.f, pointer, self.problem.dtype, self.lanes.width)

    def put(self, value: str, pointer: str) -> None:
        self.lanes.store(self.f, value, pointer, self.lanes.width)

    def add_rows(self, into: str, k: str, group: int) -> None:
        """Rows k ... k + group - 1 of B, each times its element of every row of A."""
        f, width = self.f, self.lanes.width
        factors = [[self.factor(i, k, j) for j in range(group)] for i in range(self.rows)]
        start = f.add(f.mul(k, self.pitch), f.mul(self.first, self.source.itemsize))
        rows = [f.offset(self.b, f.add(start, j * self.pitch)) for j in range(group)]
        line = self.vectors * width
        whole, left = self.whole_lines(), self.columns % line

        def columns(at: str, counts: Sequence[int]) -> None:
            here = f.mul(at, self.source.itemsize)
            places = [f.offset(row, here) for row in rows]
            sums = f.offset(into, f.mul(at, self.size))
            if counts:
                self.add_last(places, sums, factors, counts)
            else:
                self.ask_ahead(rows, places, here)
                self.add_line(places, sums, factors)

        f.loop(0, whole, line, lambda at, _: columns(at, []))
        if left:
            counts = [min(width, left - at) for at in range(0, left, width)]
            more = f.op(f"icmp slt i64 {whole}, {self.count}")
            self.f.when(more, lambda: columns(whole, counts))

    def ask_ahead(self, rows: list[str], places: list[str], here: str) -> None:
        """Prefetch a line for each of the rows, which are read at `places`, `here` bytes from where
        they begin."""
        f, ahead = self.f, self.ahead
        if self.distance:
            end = f.mul(self.count, self.source.itemsize)
            asked = self.along(here, self.distance, end, len(rows) * self.pitch)
            places, ahead = [f.offset(row, asked) for row in rows], 0
        for place in places:
            self.ask(place, ahead)

    def add_line(self, places: list[str], sums: str, factors: list[list[str]]) -> None:
        """A line of every row of B; of two halves in a lane each becomes a vector."""
        f, step = self.f, self.lanes.width * self.source.itemsize
        for number in range(0, self.vectors, self.halves):
            at = [f.offset(place, number * step) for place in places]
            if self.halves == 1:
                parts = [[self.lanes.load(f, p, self.source, self.lanes.width) for p in at]]
            else:
                pairs = [self.pairs(p) for p in at]
                parts = [[self.half(pair, which) for pair in pairs] for which in (0, 1)]
            for which, values in enumerate(parts):
                self.add_products(values, sums, factors, number + which)

    def add_last(
        self, places: list[str], sums: str, factors: list[list[str]], counts: Sequence[int]
    ) -> None:
        """The last columns, fewer than a line."""
        f, step = self.f, self.lanes.width * self.source.itemsize
        for number, count in enumerate(counts):
            at = [f.offset(place, number * step) for place in places]
            values = [self.lanes.load(f, p, self.source, count) for p in at]
            self.add_products(values, sums, factors, number)

    def add_products(
        self, values: list[str], sums: str, factors: list[list[str]], number: int
    ) -> None:
        """Add a vector of every row of B, times its factors, to the sums of that number."""
        f = self.f
        for i, row in enumerate(factors):
            at = f.offset(sums, (i * self.chunk + number * self.lanes.width) * self.size)
            total = self.get(at)
            for factor, value in zip(row, values, strict=True):
                total = self.lanes.multiply_add(f, factor, value, total)
            self.put(total, at)
