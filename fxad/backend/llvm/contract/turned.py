"""Products of few rows by a B whose columns are apart: k is side by side in memory.

Squares of B, `lanes` columns by as many elements of k, are turned in registers, so that a lane is a
column and every sum goes over k in order.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.contract.few import FewRows
from fxad.backend.llvm.contract.plan import Problem
from fxad.core.aligned import LINE

Adder = Callable[[str, list[str]], list[str]]


class Turned(FewRows):
    """Columns apart, k side by side in memory: squares of B, turned in registers."""

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        super().__init__(problem, name, target)
        # Sixteen rows at once; of more the processor's own prefetchers lose track.
        self.step = self.lanes.width
        self.parts = parts_of(problem, self.tuning.far_bytes)
        self.chunked(self.tuning.most_units)
        self.pitch = problem.b.outer * self.source.itemsize
        self.row_bytes = self.parts * self.k * self.source.itemsize
        self.length = self.piece()
        self.distance = min(self.tuning.k_ahead, self.row_bytes)

    def piece(self) -> int:
        """Bytes of each column in a tile: all, or an even part where all are too many."""
        whole, tuning = self.row_bytes, self.tuning
        if self.step * whole <= tuning.tile_bytes or whole % LINE:
            return whole
        lines = whole // LINE
        counts = range(tuning.part_lines, tuning.part_bytes // (self.step * LINE) + 1)
        return LINE * max((n for n in counts if lines % n == 0), default=lines)

    def compute(self) -> None:
        self.each_step(self.some_columns if self.parts == 1 else self.all_parts)

    def all_parts(self, at: str, count: int) -> None:
        """Whole rows of B, which have all parts of K side by side, though those are elements."""

        def one(part: str, _: list[str]) -> None:
            self.go_to_part(part)
            if self.packs_a:
                self.take_packed(part)
            self.some_columns(at, count)

        self.f.loop(0, self.parts, 1, one, at_least_once=True)

    def some_columns(self, at: str, count: int) -> None:
        f, width, vector = self.f, self.lanes.width, self.lanes.vector
        column = f.add(self.first, at)
        self.here = f.offset(self.b, f.mul(column, self.pitch))
        zeros = [(vector, "zeroinitializer")] * self.rows

        def pieces(
            low: str, high: str, step: int, body: Adder, sums: list[str]
        ) -> tuple[str, list]:
            """Whole steps of k; returns the k where they end, and the sums."""
            left = f.op(f"urem i64 {f.op(f'sub i64 {high}, {low}')}, {step}")
            whole, now = f.op(f"sub i64 {high}, {left}"), [(vector, value) for value in sums]
            return whole, f.loop(low, whole, step, body, now)

        def block(number: str, totals: list[str]) -> list[str]:
            low, high = self.block_ends(number)
            sums, step = ["zeroinitializer"] * len(zeros), width * self.halves
            at, sums = pieces(low, high, step, lambda k, s: self.square(k, s, count), sums)
            if self.halves == 2:
                at, sums = pieces(at, high, width, lambda k, s: self.rest(k, s, count, width), sums)
            if left := self.k % width:
                now = [(vector, value) for value in sums]
                sums = f.loop(at, high, width, lambda k, s: self.rest(k, s, count, left), now)
            if self.blocks == 1:
                return sums
            is_first = f.op(f"icmp eq i64 {number}, 0")
            both = [self.lanes.add(f, old, new) for old, new in zip(totals, sums, strict=True)]
            return [
                f.op(f"select i1 {is_first}, {vector} {new}, {vector} {added}")
                for new, added in zip(sums, both, strict=True)
            ]

        totals = f.loop(0, self.blocks, 1, block, zeros, at_least_once=True)
        for i, total in enumerate(totals):
            place = f.offset(self.totals, f.mul(at, self.size))
            self.lanes.store(f, total, f.offset(place, i * self.chunk * self.size), width)
        self.finished(at, count)

    def square(self, k: str, sums: list[str], count: int) -> list[str]:
        """As many (pairs of) elements of k as there are lanes, of `count` columns."""
        self.ask_ahead(k)
        rows = [self.whole_row(self.place(k, i)) for i in range(count)]
        return self.add_turned(k, sums, rows, self.lanes.width * self.halves, self.halves)

    def ask_ahead(self, k: str) -> None:
        """Prefetch as much as a square has: of the same rows, or of the next tile in the order of
        memory. Some prefetchers follow one stream better than sixteen. After the columns' last
        pieces come the next ones' first."""
        f, length = self.f, self.length
        at, row = f.mul(k, self.source.itemsize), self.here
        if self.parts > 1:
            before = f.mul(self.part, self.k * self.source.itemsize)
            row = f.offset(row, f.op(f"sub i64 0, {before}"))
            at = f.add(at, before)
        if self.distance:
            following = self.step * self.pitch
            place = f.offset(row, self.along(at, self.distance, self.row_bytes, following))
            for i in range(self.step):
                self.ask(place, i * self.pitch)
            return
        past = f.op(f"urem i64 {at}, {length}")
        next = f.op(f"add i64 {f.op(f'sub i64 {at}, {past}')}, {length}")
        is_last = f.op(f"icmp eq i64 {next}, {self.row_bytes}")
        next = f.op(f"select i1 {is_last}, i64 {self.step * self.pitch}, i64 {next}")
        start, done = f.offset(row, next), f.mul(past, self.step)
        square = self.lanes.width * self.halves * self.source.itemsize * self.step
        for more in range(0, square, LINE):
            place = f.add(done, more)
            row = f.op(f"udiv i64 {place}, {length}")
            self.ask(f.offset(start, f.add(place, f.mul(row, self.pitch - length))), 0)

    def rest(self, k: str, sums: list[str], count: int, length: int) -> list[str]:
        """The elements of k that do not fill a square, one in a lane."""
        places = [self.place(k, i) for i in range(count)]
        rows = [self.lanes.load(self.f, p, self.source, length) for p in places]
        return self.add_turned(k, sums, rows, length, 1)

    def place(self, k: str, i: int) -> str:
        """Where the i-th column lies, at k."""
        at = self.f.offset(self.here, self.f.mul(k, self.source.itemsize))
        return self.f.offset(at, i * self.pitch)

    def whole_row(self, at: str) -> str:
        """A vector along k, two halves in a lane where elements are halves of one."""
        if self.halves == 2:
            return self.pairs(at)
        return self.lanes.load(self.f, at, self.source, self.lanes.width)

    def add_turned(
        self, k: str, sums: list[str], rows: list[str], length: int, halves: int
    ) -> list[str]:
        """Add the products of `length` elements of k, `halves` in a lane of the columns' rows."""
        f, sums = self.f, list(sums)
        rows = rows + ["zeroinitializer"] * (self.lanes.width - len(rows))
        turned = self.lanes.transpose(f, rows)
        for u in range(length):
            value = turned[u // halves]
            if halves == 2:
                value = self.half(value, u % 2)
            for i in range(self.rows):
                sums[i] = self.lanes.multiply_add(f, self.factor(i, k, u), value, sums[i])
        return sums


def parts_of(problem: Problem, far: int) -> int:
    """How many batch elements that follow each other are parts of the same rows of a B that is far:
    those of a long K that is summed in parts."""
    axis, b = problem.kernel.grid[-1] if problem.kernel.grid else None, problem.b
    _, columns, k = problem.size
    if axis is None or b.inner != 1 or b.base.coefficient(axis) != k:
        return 1
    is_far = axis.extent * columns * k * b.buffer.dtype.itemsize >= far
    return axis.extent if is_far and b.outer == axis.extent * k else 1
