"""Reductions: one accumulator, or 64 partial results in vectors.

    stage = Reduce((j,), "add", (Load(x, at(j)),), (cell,), "lanes")
    reductions.reduce(stage)          # sets the cell

The order of combination is what fxad/ir/kernel.py says, whatever the width of a vector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fxad.backend.llvm.base.formats import Value, cast, rounded
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements import monoids, prims
from fxad.backend.llvm.elements.values import Copy
from fxad.backend.llvm.loops.fed import Fed
from fxad.backend.llvm.loops.nest import Loops, Texts
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS


class Reductions(Loops):
    """Stages of kind Reduce."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fed: Fed | None = None  # done in the loop of the reduction that it feeds
        self.seen: list[Vec] | None = None  # values combined without regard to NaN

    def reduce(self, stage: ir.Reduce) -> None:
        """In lanes of its own axis, or in sequence at the current point or vector of points."""
        if stage.order != "lanes":
            self._reduce_serial(stage)
        elif self.lane_axis is None:
            self._reduce_lanes(stage)
        else:
            self._reduce_tiny(stage)

    def _start(self, stage: ir.Reduce, width: int) -> list[Value]:
        """Identity of every accumulator of one point or partial."""
        if stage.monoid in monoids.ARGS:
            value = stage.values[0].dtype
            first = monoids.identity(self.code, stage.monoid, value, width)
            return [first, self.code.const(self._position_kind(stage), 0, width)]
        return [monoids.identity(self.code, stage.monoid, c.dtype, width) for c in stage.cells]

    def _position_kind(self, stage: ir.Reduce) -> str:
        points = 1
        for axis in stage.over:
            points *= self.extent(axis)
        return "i32" if points < 2**31 else "i64"

    def _position(self, stage: ir.Reduce) -> ir.Index:
        """Row-major position of a point of `over`."""
        index = ir.Index()
        for axis in stage.over:
            index = index * self.extent(axis) + ir.Index(0, ((axis, 1),))
        return index

    def step(self, stage: ir.Reduce, old: list[Value]) -> list[Value]:
        """Take the current point into the accumulators."""
        new = [
            cast(self.value(v), v.dtype, c.dtype)
            for v, c in zip(stage.values, stage.cells, strict=False)
        ]
        new = [self.splat(v, o.width) for v, o in zip(new, old, strict=False)]
        if self.seen is not None:
            self.seen += new
            return [prims.extreme(stage.monoid, o, v) for o, v in zip(old, new, strict=True)]
        if stage.monoid not in monoids.ARGS:
            return [
                monoids.combine(stage.monoid, o, v, c.dtype)
                for o, v, c in zip(old, new, stage.cells, strict=True)
            ]
        wins = monoids.better(stage.monoid, new[0], old[0], stage.cells[0].dtype)
        index, kind = self._position(stage), old[1].kind
        if self.lane_axis in stage.over:
            position = self.lane_index(index, kind)
        else:
            text = self.scalar_index(index)
            position = Vec(self.code, "i64", 1, text)
            position = self.splat(
                position.convert("trunc", kind) if text.startswith("%")
                else self.code.const(kind, int(text)),
                old[1].width,
            )  # fmt: skip
        return [wins.where(new[0], old[0]), wins.where(position, old[1])]

    def finish(self, stage: ir.Reduce, result: list[Value]) -> None:
        if stage.monoid in monoids.ARGS:
            result = [result[0], result[1].convert("sext", "i64")]
        for cell, value in zip(stage.cells, result, strict=True):
            self.set_cell(cell, rounded_value(value, cell.dtype))

    def _reduce_serial(self, stage: ir.Reduce) -> None:
        starts = [self._start(stage, self.width) for _ in self.copies]
        flat = [v for start in starts for v in monoids.flatten(start)]

        def body(texts: Texts) -> Texts:
            following: list[Vec] = []
            each = len(texts) // len(self.copies)
            for n, _ in enumerate(self.each_copy()):
                old = monoids.unflatten(self.code, starts[n], texts[n * each : (n + 1) * each])
                following += monoids.flatten(self.step(stage, old))
            return [v.text for v in following]

        if self.is_empty(stage.over):
            texts = [v.text for v in flat]
        else:
            carried = [(v.type, v.text) for v in flat]
            texts = self.loops(stage.over, stage.values, self.blocked_by(stage), body, carried)
        each = len(texts) // len(self.copies)
        for n, _ in enumerate(self.each_copy()):
            self.finish(
                stage, monoids.unflatten(self.code, starts[n], texts[n * each : (n + 1) * each])
            )

    def _reduce_lanes(self, stage: ir.Reduce) -> None:
        """64 partial results in as many vectors as it takes, then combined by halving."""
        if self.is_empty(stage.over):
            self.finish(stage, self._start(stage, 1))
            return
        inner, outer = stage.over[-1], stage.over[:-1]
        width = self.schedule.reduce_width(stage, inner)
        starts = self._lane_starts(stage, width)
        flat = [v for start in starts for v in monoids.flatten(start)]
        blocked = self.blocked_by(stage)

        def row(texts: Texts) -> Texts:
            return self._lane_row(stage, inner, width, starts, texts)

        carried = [(v.type, v.text) for v in flat]
        texts = self.loops(outer, stage.values, blocked | {inner}, row, carried)
        self._finish_lanes(stage, width, starts, texts)

    def _finish_lanes(self, stage: ir.Reduce, width: int, starts: list, texts: Texts) -> None:
        pieces = _pieces(texts, len(texts) // len(starts))
        partials = [
            monoids.unflatten(self.code, start, t) for start, t in zip(starts, pieces, strict=True)
        ]
        self.lanes_along(None, 1)
        self.finish(stage, self._halve(stage, partials, width))

    def _reduce_tiny(self, stage: ir.Reduce) -> None:
        """The partial results of a few positions at a vector of points: a register for each."""
        inner, outer, extent = stage.over[-1], stage.over[:-1], self.extent(stage.over[-1])
        start = self._start(stage, self.width)
        flat = monoids.flatten(start)
        blocked = self.blocked_by(stage)

        def row(texts: Texts) -> Texts:
            following: list[Vec] = []
            olds = _pieces(texts, len(flat))
            self.hoist(stage.values, blocked | {inner}, self.width)
            for position in range(extent):
                self.scopes.append({})
                self.env[inner] = str(position)
                for _ in self.each_copy():
                    old = monoids.unflatten(self.code, start, next(olds))
                    following += monoids.flatten(self.step(stage, old))
                self.scopes.pop()
            return [v.text for v in following]

        carried = [(v.type, v.text) for v in flat * (extent * len(self.copies))]
        texts = self.loops(outer, stage.values, blocked | {inner}, row, carried)
        made = [monoids.unflatten(self.code, start, t) for t in _pieces(texts, len(flat))]
        for n, _ in enumerate(self.each_copy()):
            self.finish(stage, self._halve(stage, made[n :: len(self.copies)], 1))

    def _lane_starts(self, stage: ir.Reduce, width: int) -> list[list[Value]]:
        """What the partials start at, a vector of them at a time."""
        used = min(PARTIALS, self.extent(stage.over[-1]) + width - 1) // width
        return [self._lane_start(stage, width, n) for n in range(used)]

    def _lane_start(self, stage: ir.Reduce, width: int, number: int) -> list[Value]:
        start = self._start(stage, width)
        if stage.monoid in monoids.ARGS:
            # A partial whose elements all equal the identity answers its own first position.
            start[1] = self.code.iota(start[1].kind, width, number * width)
        return start

    def _lane_row(
        self, stage: ir.Reduce, inner: ir.Axis, width: int, starts: list, texts: Texts
    ) -> Texts:
        extent = self.extent(inner)
        whole = extent // PARTIALS * PARTIALS
        types = [v.type for start in starts for v in monoids.flatten(start)]
        self._hoist_lanes(stage, inner, width)

        def turn(high: int | None) -> Callable[[str, Texts], Texts]:
            return lambda index, old: self._lane_turn(stage, inner, width, starts, index, old, high)

        if whole:
            carried = list(zip(types, texts, strict=True))
            if self._notes(stage, starts):
                texts = self._extreme_loop(whole, turn(None), carried, starts[0][0])
            else:
                texts = self.f.loop(0, whole, PARTIALS, turn(None), carried, at_least_once=True)
        if whole < extent:
            texts = turn(extent)(str(whole), texts)
        return texts

    # What a reduction does in a loop that it shares with other passes: see pipeline.py.

    def lanes_begin(self, stage: ir.Reduce, width: int) -> list[tuple[str, str]]:
        """Compute what the loop needs; the partials that it carries, (type, start)."""
        inner, starts = stage.over[-1], self._lane_starts(stage, width)
        for axis in stage.over:
            self.is_single(axis)
        self._hoist_lanes(stage, inner, width)
        carried = [(v.type, v.text) for start in starts for v in monoids.flatten(start)]
        return self._noted_from(carried, starts[0][0]) if self._notes(stage, starts) else carried

    def lanes_turn(self, stage: ir.Reduce, width: int, index: str, texts: Texts) -> Texts:
        """64 positions from `index`."""
        inner, starts = stage.over[-1], self._lane_starts(stage, width)

        def turn(index: str, old: Texts) -> Texts:
            return self._lane_turn(stage, inner, width, starts, index, old, None)

        noted = self._notes(stage, starts)
        return (self._noting(turn, starts[0][0]) if noted else turn)(index, texts)

    def lanes_end(self, stage: ir.Reduce, width: int, done: int, texts: Texts) -> None:
        """The positions from `done` on, and the cells."""
        inner, starts = stage.over[-1], self._lane_starts(stage, width)
        if self._notes(stage, starts):
            texts = self._noted(texts, starts[0][0])
        extent = self.extent(inner)
        for low in range(done, extent, PARTIALS):
            high = extent if low + PARTIALS > extent else None
            texts = self._lane_turn(stage, inner, width, starts, str(low), texts, high)
        self._finish_lanes(stage, width, starts, texts)

    def _notes(self, stage: ir.Reduce, starts: list) -> bool:
        return _is_extreme(stage) and prims.has_extreme(starts[0][0])

    def _extreme_loop(
        self, whole: int, turn: Callable[[str, Texts], Texts], carried: list, like: Vec
    ) -> Texts:
        """A loop of a maximum or minimum by one instruction instead of three, which takes no notice
        of NaN: whether there was one is noted aside, for two vectors at a time."""
        carried, noting = self._noted_from(carried, like), self._noting(turn, like)
        return self._noted(
            self.f.loop(0, whole, PARTIALS, noting, carried, at_least_once=True), like
        )

    def _noted_from(self, carried: list, like: Vec) -> list:
        nan = _any_nan([Vec(self.code, like.kind, like.width, text) for _, text in carried])
        return [*carried, (nan.type, nan.text)]

    def _noting(
        self, turn: Callable[[str, Texts], Texts], like: Vec
    ) -> Callable[[str, Texts], Texts]:
        def noting(index: str, texts: Texts) -> Texts:
            self.seen = []
            following = turn(index, texts[:-1])
            nan = Vec(self.code, "i1", like.width, texts[-1]) | _any_nan(self.seen)
            self.seen = None
            return [*following, nan.text]

        return noting

    def _noted(self, texts: Texts, like: Vec) -> Texts:
        *texts, last = texts
        first = Vec(self.code, like.kind, like.width, texts[0])
        found = Vec(self.code, "i1", like.width, last).where(first.like(float("nan")), first)
        return [found.text, *texts[1:]]

    def _lane_turn(
        self,
        stage: ir.Reduce,
        inner: ir.Axis,
        width: int,
        starts: list,
        index: str,
        texts: Texts,
        high: int | None,
    ) -> Texts:
        """64 positions from `index`, or those below `high`, into the partials."""
        self.scopes.append({})
        self.lanes_along(inner if width > 1 else None, width)
        self.env[inner] = index
        if self.fed is not None:
            self.env[self.fed.axis] = index
        each = len(texts) // len(starts)
        following = list(texts)
        self.copies = []
        for n in range(len(starts)):
            left = width if high is None else high - int(index) - n * width
            if left <= 0:
                break
            mask = None
            if left < width:
                mask = self.code.consts("i1", [lane < left for lane in range(width)])
            self.copies.append(Copy(n, index, n * width, mask))
        for copy in self.each_copy():
            if self.fed is not None:
                self._feed(self.fed, inner)
            self.ask(stage)
            mine = slice(copy.number * each, (copy.number + 1) * each)
            old = monoids.unflatten(self.code, starts[copy.number], texts[mine])
            new = monoids.keep(copy.mask, self.step(stage, old), old)
            following[mine] = [v.text for v in monoids.flatten(new)]
        self.lanes_along(None, 1)
        self.scopes.pop()
        return following

    def _hoist_lanes(self, stage: ir.Reduce, inner: ir.Axis, width: int) -> None:
        self.hoist(stage.values, self.blocked_by(stage) | {inner}, width)
        self.hoist_asked(stage, self.blocked_by(stage) | {inner})
        if self.fed is not None:
            self._hoist_fed(self.fed, width)

    def _hoist_fed(self, fed: Fed, width: int) -> None:
        stores, blocked = fed.stage.stores, self.blocked_by(fed.stage) | {fed.axis}
        for axis in fed.stage.axes:
            self.is_single(axis)
        self.hoist([s.value for s in stores], blocked, width)
        self.hoist_stores(stores, blocked)
        self.hoist_asked(fed.stage, blocked)

    def _feed(self, fed: Fed, inner: ir.Axis) -> None:
        """The current vector of the Map: store its results, and remember them for the reduction."""
        self.lane_axis = fed.axis
        self.ask(fed.stage)
        values = [self.splat(self.value(s.value), self.width) for s in fed.stage.stores]
        for store, value in zip(fed.stage.stores, values, strict=True):
            self.put(store, value, None)
        self.lane_axis = inner
        for value, loads in zip(values, fed.loads, strict=True):
            self.scopes[-1].update({self._key(load): value for load in loads})

    def _join(self, stage: ir.Reduce, a: list[Value], b: list[Value]) -> list[Value]:
        if stage.monoid in monoids.ARGS:
            first, second = (a[0], a[1]), (b[0], b[1])
            return list(monoids.pick(stage.monoid, first, second, stage.cells[0].dtype))
        return [
            monoids.combine(stage.monoid, x, y, c.dtype)
            for x, y, c in zip(a, b, stage.cells, strict=True)
        ]

    def _extreme_of(self, monoid: str, vectors: list[Vec]) -> Vec:
        """The extreme of all lanes by one instruction a step; that none is NaN is seen aside. An
        extreme is exact, so that any order is the right one."""
        wrong = _any_nan(vectors)
        wrong = self.code.call(f"llvm.vector.reduce.or.{wrong.suffix}", "i1", 1, (wrong,))
        best = functools.reduce(functools.partial(prims.extreme, monoid), vectors)
        half = best.width // 2
        while half:
            best = prims.extreme(monoid, best, best.shuffle([n ^ half for n in range(best.width)]))
            half //= 2
        return wrong.where(self.code.const(best.kind, float("nan")), best.lane(0))

    def _halve(self, stage: ir.Reduce, partials: list[list[Value]], width: int) -> list[Value]:
        """p[l] = p[l] + p[l + h] for h = 32, 16 ... 1; partials never touched are identities."""
        if width > 1 and _is_extreme(stage) and prims.has_extreme(partials[0][0]):
            return [self._extreme_of(stage.monoid, [p for (p,) in partials])]
        half = PARTIALS // 2
        while half >= width:
            count = half // width
            joined = [
                self._join(stage, p, q)
                for p, q in zip(partials[:count], partials[count:], strict=False)
            ]
            partials = joined + partials[len(joined) : count]
            half //= 2
        result = partials[0]
        while half:
            low = [monoids.shuffle(v, list(range(half))) for v in result]
            high = [monoids.shuffle(v, list(range(half, 2 * half))) for v in result]
            result = self._join(stage, low, high)
            half //= 2
        return result


def _is_extreme(stage: ir.Reduce) -> bool:
    return stage.monoid in ("min", "max") and len(stage.values) == 1


def _pieces(texts: Texts, size: int) -> Iterator[Texts]:
    return (texts[at : at + size] for at in range(0, len(texts), size))


def _any_nan(vectors: Sequence[Vec]) -> Vec:
    """Lanes in which any of the vectors has a NaN."""
    found = [a.compare("uno", b) for a, b in zip(vectors[::2], vectors[1::2], strict=False)]
    found += [v.is_nan() for v in vectors[len(vectors) // 2 * 2 :]]
    return functools.reduce(lambda a, b: a | b, found)


def rounded_value(value: Value, dtype: np.dtype) -> Value:
    """An accumulator as a value of its dtype."""
    return rounded(value, dtype) if isinstance(value, Vec) else value
