"""Code of one stage of a Kernel: loops over its axes, with lanes where the schedule says.

    stages = Stages(code, pointers, safe, target)
    stages.run(stage)          # at the current grid point, or at a vector of grid points

Inside a vector of grid points every stage loop is sequential; at a single grid point Map and
"lanes" reductions make lanes of their own last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from fxad.backend.llvm import monoids
from fxad.backend.llvm.access import Memory
from fxad.backend.llvm.formats import Value, cast, rounded
from fxad.backend.llvm.schedule import Schedule
from fxad.backend.llvm.values import Copy, Need, roots_with_guards
from fxad.backend.llvm.vector import Code, Vec
from fxad.ir import kernel as ir

PARTIALS = 64
Texts = list[str]


class Stages(Memory):
    """Emits stages into the function under construction."""

    def __init__(
        self, code: Code, pointers: dict[ir.Buffer, str], safe: str, schedule: Schedule
    ) -> None:
        super().__init__(code, pointers, safe)
        self.schedule = schedule

    def extent(self, axis: ir.Axis) -> int:
        """Trips of an axis, after axes have been merged into it."""
        return self.schedule.extents.get(axis, axis.extent)

    def blocked_by(self, stage: ir.Stage) -> frozenset[Need]:
        """What changes while a stage runs: its own cells, and the buffers it stores to."""
        found: set[Need] = {s.buffer for s in ir.stores_of(stage)}
        match stage:
            case ir.Reduce() | ir.Sort():
                found |= set(stage.cells)
            case ir.Scan():
                found.add(stage.cell)
        return frozenset(found)

    def run(self, stage: ir.Stage) -> None:
        """Emit one stage at the current point."""
        self.scopes.append({})
        match stage:
            case ir.Map():
                self._map(stage)
            case ir.Reduce():
                if stage.order == "lanes" and self.lane_axis is None:
                    self._reduce_lanes(stage)
                else:
                    self._reduce_serial(stage)
            case ir.Scan():
                self._scan(stage)
            case ir.Scatter():
                self._scatter_stage(stage)
            case _:
                raise NotImplementedError(f"no code for a {type(stage).__name__} stage here")
        self.scopes.pop()

    # ------------------------------------------------------------ loops

    def loops(
        self,
        axes: Sequence[ir.Axis],
        roots: Sequence[ir.Expr],
        blocked: frozenset[Need],
        body: Callable[[Texts], Texts],
        carried: Sequence[tuple[str, str]] = (),
        reverse: bool = False,
    ) -> Texts:
        """Sequential loops over axes, first outermost; body maps carried values to the next."""
        axes = [a for a in axes if not self._is_single(a)]
        if not axes:
            return body([start for _, start in carried])
        axis, rest = axes[0], axes[1:]
        extent = self.extent(axis)
        self.hoist(roots, blocked | frozenset(axes), self.width)

        def inside(index: str, values: Texts) -> Texts:
            self.scopes.append({})
            position = self.f.op(f"sub i64 {extent - 1}, {index}") if reverse else index
            self.env[axis] = position
            types = [(t, v) for (t, _), v in zip(carried, values, strict=True)]
            following = self.loops(rest, roots, blocked, body, types, reverse)
            self.scopes.pop()
            return following

        return self.f.loop(0, extent, 1, inside, carried, at_least_once=True)

    def _is_single(self, axis: ir.Axis) -> bool:
        if self.extent(axis) == 1:
            self.env[axis] = "0"
            return True
        return False

    def lane_loop(
        self,
        axis: ir.Axis,
        low: str | int,
        high: str | int,
        width: int,
        unroll: int,
        roots: Sequence[ir.Expr],
        blocked: frozenset[Need],
        body: Callable[[], None],
        partial: bool,
    ) -> None:
        """Loop over low..high with `width` lanes, `unroll` vectors at a time.

        partial: high - low need not be a multiple of what one turn does; the rest is done one
        vector at a time under a mask.
        """
        step = width * unroll
        self.hoist(roots, blocked | {axis}, width)
        stop: str | int = high
        if partial:
            whole = self.f.op(f"sub i64 {high}, {low}")
            whole = self.f.op(f"urem i64 {whole}, {step}")
            stop = self.f.op(f"sub i64 {high}, {whole}")
        self.f.loop(low, stop, step, self._vectors(axis, width, unroll, None, body))
        if partial:
            self.f.loop(stop, high, width, self._vectors(axis, width, 1, high, body))
        self.lanes_along(None, 1)

    def _vectors(
        self,
        axis: ir.Axis,
        width: int,
        unroll: int,
        high: str | int | None,
        body: Callable[[], None],
    ) -> Callable[[str, Texts], None]:
        def inside(index: str, _: Texts) -> None:
            self.scopes.append({})
            self.lanes_along(axis, width)
            self.env[axis] = index
            mask = None if high is None else self._below(index, high, width)
            self.copies = [Copy(u, index, u * width, mask) for u in range(unroll)]
            self.copy = self.copies[0]
            body()
            self.scopes.pop()

        return inside

    def _below(self, index: str, high: str | int, width: int) -> Vec:
        """Lanes whose position is below `high`."""
        left = Vec(self.code, "i64", 1, self.f.op(f"sub i64 {high}, {index}"))
        kind = "i32"
        return self.code.iota(kind, width).compare("ult", left.convert("trunc", kind).splat(width))

    def lane_extent_loop(
        self,
        axis: ir.Axis,
        width: int,
        unroll: int,
        roots: Sequence[ir.Expr],
        blocked: frozenset[Need],
        body: Callable[[], None],
    ) -> None:
        """The lane loop over all of an axis, whose extent is known: no tests that cannot fail."""
        extent = self.extent(axis)
        step = width * unroll
        self.hoist(roots, blocked | {axis}, width)
        whole = extent // step * step
        if whole:
            inside = self._vectors(axis, width, unroll, None, body)
            self.f.loop(0, whole, step, inside, at_least_once=True)
        if whole < extent:
            high = extent if extent % width else None
            inside = self._vectors(axis, width, 1, high, body)
            self.f.loop(whole, extent, width, inside, at_least_once=True)
        self.lanes_along(None, 1)

    # ------------------------------------------------------------ Map

    def _map(self, stage: ir.Map) -> None:
        roots = roots_with_guards(stage.stores)
        blocked = self.blocked_by(stage)
        axes = [a for a in stage.axes if not self._is_single(a)]

        def point(values: Texts) -> Texts:
            self.map_point(stage.stores)
            return values

        if self.lane_axis is not None or not axes:
            self._hoist_stores(stage.stores, blocked | frozenset(axes))
            self.loops(axes, roots, blocked, point)
            return
        inner = axes[-1]
        width, unroll = self.schedule.lanes_of(stage, self.extent(inner))

        def row(values: Texts) -> Texts:
            self._hoist_stores(stage.stores, blocked | {inner})
            if width == 1:
                return self.loops([inner], roots, blocked, point, [])
            self.lane_extent_loop(
                inner, width, unroll, roots, blocked, lambda: self.map_point(stage.stores)
            )
            return values

        outer = axes[:-1]
        self._hoist_stores(stage.stores, blocked | frozenset(axes))
        self.loops(outer, roots, blocked | {inner}, row)

    def _hoist_stores(self, stores: Iterable[ir.Store], blocked: frozenset[Need]) -> None:
        for s in stores:
            self.hoist_index(s.buffer, s.index, blocked)

    def map_point(self, stores: Sequence[ir.Store]) -> None:
        """At each vector (or point): all values, then all stores."""
        for _ in self.each_copy():
            ready = [(s, self.value(s.value), self.guard_of(s)) for s in stores]
            for s, value, guard in ready:
                self.store(s.buffer, s.index, value, guard)

    def guard_of(self, store: ir.Store) -> Vec | None:
        return None if store.guard is None else self.value(store.guard)

    # ------------------------------------------------------------ Reduce

    def set_cell(self, cell: ir.Cell, value: Value) -> None:
        """Give a cell its value for the current vector of grid points."""
        if self.lane_axis is not None:
            self.varying_cells.add(cell)
        self.cells.setdefault(cell, {})[self.copy.number] = value

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
            self.set_cell(cell, _rounded(value, cell.dtype))

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

        if self._is_empty(stage.over):
            texts = [v.text for v in flat]
        else:
            carried = [(v.type, v.text) for v in flat]
            texts = self.loops(stage.over, stage.values, self.blocked_by(stage), body, carried)
        each = len(texts) // len(self.copies)
        for n, _ in enumerate(self.each_copy()):
            self.finish(
                stage, monoids.unflatten(self.code, starts[n], texts[n * each : (n + 1) * each])
            )

    def _is_empty(self, axes: Sequence[ir.Axis]) -> bool:
        return any(self.extent(a) == 0 for a in axes)

    def _reduce_lanes(self, stage: ir.Reduce) -> None:
        """64 partial results in as many vectors as it takes, then combined by halving."""
        if self._is_empty(stage.over):
            self.finish(stage, self._start(stage, 1))
            return
        inner, outer = stage.over[-1], stage.over[:-1]
        extent = self.extent(inner)
        width = self.schedule.reduce_width(stage, extent)
        used = min(PARTIALS, extent + width - 1) // width
        starts = [self._lane_start(stage, width, n) for n in range(used)]
        flat = [v for start in starts for v in monoids.flatten(start)]
        blocked = self.blocked_by(stage)

        def row(texts: Texts) -> Texts:
            return self._lane_row(stage, inner, width, starts, texts)

        carried = [(v.type, v.text) for v in flat]
        texts = self.loops(outer, stage.values, blocked | {inner}, row, carried)
        each = len(texts) // used
        partials = [
            monoids.unflatten(self.code, starts[n], texts[n * each : (n + 1) * each])
            for n in range(used)
        ]
        self.lanes_along(None, 1)
        self.finish(stage, self._halve(stage, partials, width))

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
        self.hoist(stage.values, self.blocked_by(stage) | {inner}, width)

        def turn(high: int | None) -> Callable[[str, Texts], Texts]:
            return lambda index, old: self._lane_turn(stage, inner, width, starts, index, old, high)

        if whole:
            carried = list(zip(types, texts, strict=True))
            texts = self.f.loop(0, whole, PARTIALS, turn(None), carried, at_least_once=True)
        if whole < extent:
            texts = turn(extent)(str(whole), texts)
        return texts

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
        each = len(texts) // len(starts)
        following = list(texts)
        for n, start in enumerate(starts):
            first = n * width
            left = width if high is None else high - int(index) - first
            if left <= 0:
                break
            mask = None
            if left < width:
                mask = self.code.consts("i1", [lane < left for lane in range(width)])
            self.copy = Copy(n, index, first, mask)
            self.copies = [self.copy]
            old = monoids.unflatten(self.code, start, texts[n * each : (n + 1) * each])
            new = monoids.keep(mask, self.step(stage, old), old)
            following[n * each : (n + 1) * each] = [v.text for v in monoids.flatten(new)]
        self.lanes_along(None, 1)
        self.scopes.pop()
        return following

    def _join(self, stage: ir.Reduce, a: list[Value], b: list[Value]) -> list[Value]:
        if stage.monoid in monoids.ARGS:
            return list(monoids.pick(stage.monoid, a, b, stage.cells[0].dtype))
        return [
            monoids.combine(stage.monoid, x, y, c.dtype)
            for x, y, c in zip(a, b, stage.cells, strict=True)
        ]

    def _halve(self, stage: ir.Reduce, partials: list[list[Value]], width: int) -> list[Value]:
        """p[l] = p[l] + p[l + h] for h = 32, 16 ... 1; partials never touched are identities."""
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

    # ------------------------------------------------------------ Scan and Scatter

    def _scan(self, stage: ir.Scan) -> None:
        dtype = stage.cell.dtype
        starts = [monoids.identity(self.code, stage.monoid, dtype, self.width) for _ in self.copies]
        roots = [stage.value, *roots_with_guards(stage.stores)]

        def body(texts: Texts) -> Texts:
            following: list[Vec] = []
            each = len(texts) // len(self.copies)
            for n, _ in enumerate(self.each_copy()):
                mine = texts[n * each : (n + 1) * each]
                old = monoids.unflatten(self.code, [starts[n]], mine)[0]
                value = cast(self.value(stage.value), stage.value.dtype, dtype)
                total = monoids.combine(stage.monoid, old, self.splat(value, self.width), dtype)
                following += monoids.flatten([total])
                self.set_cell(stage.cell, _rounded(total, dtype))
                ready = [(s, self.value(s.value), self.guard_of(s)) for s in stage.stores]
                for s, v, guard in ready:
                    self.store(s.buffer, s.index, v, guard)
            return [v.text for v in following]

        if self._is_empty([stage.axis]):
            return
        carried = [(v.type, v.text) for v in monoids.flatten(starts)]
        self.varying_cells |= {stage.cell} if self.lane_axis is not None else set()
        self.loops([stage.axis], roots, self.blocked_by(stage), body, carried, stage.reverse)

    def _scatter_stage(self, stage: ir.Scatter) -> None:
        if self._is_empty(stage.over):
            return
        roots = roots_with_guards([stage.store])
        blocked = self.blocked_by(stage)
        axes = [a for a in stage.over if not self._is_single(a)]
        if self.lane_axis is None and axes and self._is_scatter_of_rows(stage, axes[-1]):
            width, unroll = self.schedule.lanes_of(stage, self.extent(axes[-1]))

            def row(values: Texts) -> Texts:
                self.lane_extent_loop(
                    axes[-1], width, unroll, roots, blocked, lambda: self._scatter_point(stage)
                )
                return values

            if width > 1:
                self.loops(axes[:-1], roots, blocked | {axes[-1]}, row)
                return

        def point(values: Texts) -> Texts:
            self._scatter_point(stage)
            return values

        self.loops(axes, roots, blocked, point)

    def _is_scatter_of_rows(self, stage: ir.Scatter, axis: ir.Axis) -> bool:
        """Along `axis` different points write different, neighbouring elements."""
        store = stage.store
        if store.index.coefficient(axis) != 1:
            return False
        reads = self.needs(store.value) | self.index_needs(store.index)
        return store.buffer not in reads

    def _scatter_point(self, stage: ir.Scatter) -> None:
        store, monoid = stage.store, stage.monoid
        dtype = store.buffer.dtype
        for _ in self.each_copy():
            value, guard = self.value(store.value), self.guard_of(store)
            value = self.splat(cast(value, store.value.dtype, dtype), self.width)
            if monoid != "set":
                old = self.load(store.buffer, store.index, guard, None, self.width > 1)
                value = monoids.combine(monoid, old, value, dtype)
                value = _rounded(value, dtype)
            self.store(store.buffer, store.index, value, guard)


def _rounded(value: Value, dtype: np.dtype) -> Value:
    """An accumulator as a value of its dtype."""
    return rounded(value, dtype) if isinstance(value, Vec) else value
