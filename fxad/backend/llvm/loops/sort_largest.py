"""The few largest of many, without sorting the many.

    the 2 largest of 5 1 7 2 9 3:  5 1, then 7 goes past 1: 7 5, then 9 past 5: 9 7

The last of the best so far is the bar. A vector of elements at a time is held against it; nearly
always none is beyond. Very few are kept in order by insertion; more are collected as candidates,
sorted when there are many, and cut to as many as are wanted, which raises the bar. All of it is
stable: later equals do not pass the bar.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.tuning import Sorts
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.sort import POSITION, Sorting, compare
from fxad.backend.llvm.loops.sort_network import sorts
from fxad.core import dtypes
from fxad.ir import kernel as ir


class Largest(Sorting):
    """Stages with sorts that want a few elements only."""

    def _order(self, stage: ir.Sort, copies: list[ir.Buffer]) -> str:
        extent, wanted = stage.axis.extent, stage.stored.extent
        target, tuning = self.code.target, self.code.target.tuning.sorts
        network = sorts(extent, copies, target) and extent <= tuning.worth * wanted
        if stage.largest is None or network:
            return super()._order(stage, copies)
        if wanted <= tuning.insertion and extent > target.vector_bytes:  # fewer are all counted
            return _Few(self, stage, copies[0]).run()
        if extent >= 2 * (_many(wanted, tuning) + tuning.chunk):
            return _Candidates(self, stage, copies[0]).run()
        return super()._order(stage, copies)


class _Search:
    """What both ways share: positions, the best first, and the bar."""

    def __init__(self, stages: Largest, stage: ir.Sort, keys: ir.Buffer, most: int) -> None:
        self.stages, self.f, self.keys = stages, stages.f, keys
        self.axis, self.extent = stage.axis, stage.axis.extent
        self.wanted = stage.stored.extent
        self.width = 2 * stages.schedule.target.vector_bytes // max(keys.dtype.itemsize, 2)
        self.buffer = stages._temporary("order", POSITION, most)
        self.order = stages.pointers[self.buffer]

    def bar(self) -> Vec:
        """The last of the best so far."""
        return self.stages._read(self.keys, self.stages._entry(self.order, str(self.wanted - 1)))

    def beyond(self, bar: Vec, place: str) -> Vec:
        """Does the element at a place go before the bar?"""
        return compare(bar, self.stages._read(self.keys, place), self.keys.dtype)[0]

    def vector(self, start: str, bar: Vec, found: Callable[[], object]) -> None:
        """Where any of the elements from `start` may be beyond the bar, what `found` emits."""
        f, stages = self.f, self.stages
        stages.scopes.append({})
        stages.lanes_along(self.axis, self.width)
        stages.env[self.axis] = start
        values = stages.load(self.keys, ir.Index(0, ((self.axis, 1),)), None, None, True)
        stages.lanes_along(None, 1)
        stages.scopes.pop()
        dtype = self.keys.dtype
        unsigned = dtypes.is_float(dtype) or dtype.kind in "ub"  # of floats: beyond, or NaN
        some = values.compare("ugt" if unsigned else "sgt", bar)
        mask = f.op(f"bitcast {some.type} {some.text} to i{self.width}")
        f.when(f.op(f"icmp ne i{self.width} {mask}, 0"), found)

    def put(self, position: str, place: str) -> None:
        """order[place] = position."""
        narrow = self.f.op(f"trunc i64 {position} to i32")
        to = self.f.offset(self.order, self.f.mul(place, 4))
        self.f.line(f"store i32 {narrow}, ptr {to}, align 4")


class _Few(_Search):
    """Insertion: what an element displaces goes on to the next place."""

    def __init__(self, stages: Largest, stage: ir.Sort, keys: ir.Buffer) -> None:
        super().__init__(stages, stage, keys, stage.stored.extent + 1)  # one for what drops out

    def run(self) -> str:
        f, extent, wanted = self.f, self.extent, self.wanted
        start = wanted + (extent - wanted) % self.width  # the rest are whole vectors
        f.loop(0, wanted, 1, lambda at, _: self._insert(at, at), at_least_once=True)
        f.loop(wanted, start, 1, self._check)

        def vector(at: str, _: Texts) -> None:
            high = f.add(at, self.width)
            self.vector(at, self.bar(), lambda: f.loop(at, high, 1, self._check, (), True))

        f.loop(start, extent, self.width, vector)
        return self.order

    def _check(self, place: str, _: Texts) -> None:
        test = self.beyond(self.bar(), place)
        self.f.when(test.text, lambda: self._insert(place, str(self.wanted)))

    def _insert(self, position: str, count: str) -> None:
        """Put a position among the first `count`; what is left over goes behind them."""
        f, stages = self.f, self.stages

        def step(place: str, carried: Texts) -> Texts:
            moving, displaced = carried
            held = stages._entry(self.order, place)
            other = stages._read(self.keys, held)
            before = f.op(f"or i1 {displaced}, {self.beyond(other, moving).text}")
            self.put(f.op(f"select i1 {before}, i64 {moving}, i64 {held}"), place)
            return [f.op(f"select i1 {before}, i64 {held}, i64 {moving}"), before]

        left, _ = f.loop(0, count, 1, step, [("i64", position), ("i1", "false")])
        self.put(left, count)


class _Candidates(_Search):
    """Positions go to the end of a list; it is sorted and cut from time to time."""

    def __init__(self, stages: Largest, stage: ir.Sort, keys: ir.Buffer) -> None:
        tuning = stages.code.target.tuning.sorts
        self.many, self.chunk = _many(stage.stored.extent, tuning), tuning.chunk
        most = self.many + self.chunk
        super().__init__(stages, stage, keys, most + 1)  # one for a candidate that is none
        self.other = stages.pointers[stages._temporary("other", POSITION, most)]
        self.start = most - (most - self.extent) % self.width  # the rest are whole vectors
        self.count = stages.scratch(8)
        self.radix = stages._by_digits(stage, [keys], most)

    def run(self) -> str:
        self.stages._numbered(self.buffer, self.start)
        self.f.line(f"store i64 {self.start}, ptr {self.count}, align 8")
        end = self.extent + self.chunk
        self.f.loop(self.start, end, self.chunk, self._chunk, at_least_once=True)
        return self.order

    def _chunk(self, start: str, _: Texts) -> None:
        """Sort and cut if there are many or nothing is left; then the next elements."""
        f = self.f
        count = f.op(f"load i64, ptr {self.count}, align 8")
        full = f.op(f"icmp sgt i64 {count}, {self.many}")
        ended = f.op(f"icmp sge i64 {start}, {self.extent}")
        f.when(f.op(f"or i1 {full}, {ended}"), lambda: self._cut(count))
        bar = self.bar()
        high = f.least(f.add(start, self.chunk), self.extent)
        f.loop(
            start, high, self.width,
            lambda at, _: self.vector(at, bar, lambda: self._collect(at, bar)),
        )  # fmt: skip

    def _cut(self, count: str) -> None:
        f = self.f
        found = self.radix.sort(self.order, self.other, count)

        def move(at: str, _: Texts) -> None:
            self.put(self.stages._entry(found, at), at)

        f.loop(0, self.wanted, 1, move, at_least_once=True)
        f.line(f"store i64 {self.wanted}, ptr {self.count}, align 8")

    def _collect(self, start: str, bar: Vec) -> None:
        """Write every position down; those count whose elements are beyond the bar."""
        f = self.f

        def one(place: str, counts: Texts) -> Texts:
            self.put(place, counts[0])
            return [f.add(counts[0], f.op(f"zext i1 {self.beyond(bar, place).text} to i64"))]

        count = [("i64", f.op(f"load i64, ptr {self.count}, align 8"))]
        (after,) = f.loop(start, f.add(start, self.width), 1, one, count, at_least_once=True)
        f.line(f"store i64 {after}, ptr {self.count}, align 8")


def _many(wanted: int, tuning: Sorts) -> int:
    """More candidates than this are sorted and cut."""
    return wanted + max(wanted, tuning.spare)
