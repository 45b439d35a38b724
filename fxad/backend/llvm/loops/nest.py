"""Loops of a stage: sequential ones, and loops that do a vector of positions at a time.

    loops.lane_extent_loop(axis, 16, 2, roots, blocked, body)     # body sees loops.copies

Every loop first computes what does not change in it (`hoist`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.base.schedule import Schedule
from fxad.backend.llvm.base.traffic import vector_bytes
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.backend.llvm.elements.access import Memory
from fxad.backend.llvm.elements.values import Copy, Need
from fxad.core.aligned import LINE, to_line
from fxad.ir import kernel as ir

Texts = list[str]


class Loops(Memory):
    """Loops round points, and what every kind of stage does at a point."""

    def __init__(
        self, code: Code, pointers: dict[ir.Buffer, str], safe: str, schedule: Schedule
    ) -> None:
        super().__init__(code, pointers, safe)
        self.schedule = schedule
        self.scratch_bytes = 0  # given out so far
        self.ranges: dict[ir.Axis, tuple[str, str]] = {}  # axes done in part, never empty

    def scratch(self, nbytes: int) -> str:
        """The address of `nbytes` of this thread's scratch, at a place of their own."""
        pointer = self.f.offset("%scratch", self.scratch_bytes)
        self.scratch_bytes += to_line(nbytes)
        return pointer

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
        axes = [a for a in axes if not self.is_single(a)]
        if not axes:
            return body([start for _, start in carried])
        axis, rest = axes[0], axes[1:]
        extent = self.extent(axis)
        low, high = self.ranges.get(axis, (0, extent))
        self.hoist(roots, blocked | frozenset(axes), self.width)

        def inside(index: str, values: Texts) -> Texts:
            self.scopes.append({})
            position = self.f.op(f"sub i64 {extent - 1}, {index}") if reverse else index
            self.env[axis] = position
            types = [(t, v) for (t, _), v in zip(carried, values, strict=True)]
            following = self.loops(rest, roots, blocked, body, types, reverse)
            self.scopes.pop()
            return following

        return self.f.loop(low, high, 1, inside, carried, at_least_once=True)

    def is_single(self, axis: ir.Axis) -> bool:
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
        self.f.loop(low, stop, step, self.vectors(axis, width, unroll, None, body))
        if partial:
            self.f.loop(stop, high, width, self.vectors(axis, width, 1, high, body))
        self.lanes_along(None, 1)

    def vectors(
        self,
        axis: ir.Axis,
        width: int,
        unroll: int,
        high: str | int | None,
        body: Callable[[], None],
    ) -> Callable[[str, Texts], None]:
        """A turn of a loop: `unroll` vectors along an axis, those below `high` if one is given."""

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
        return self.code.first_lanes(width, self.f.op(f"sub i64 {high}, {index}"))

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
            inside = self.vectors(axis, width, unroll, None, body)
            self.f.loop(0, whole, step, inside, at_least_once=True)
        if whole < extent:
            high = extent if extent % width else None
            inside = self.vectors(axis, width, 1, high, body)
            self.f.loop(whole, extent, width, inside, at_least_once=True)
        self.lanes_along(None, 1)

    def before_line(self, stage: ir.Map, axis: ir.Axis, width: int) -> str | None:
        """Points of a row before the first whole line of the stage's result, if that goes past the
        caches and rows begin anywhere in a line."""
        if len(stage.stores) != 1:
            return None
        (store,) = stage.stores
        buffer, index, size = store.buffer, store.index, store.buffer.dtype.itemsize
        if buffer not in self.streamed or store.guard is not None or index.coefficient(axis) != 1:
            return None
        if width * size != LINE or vector_bytes(index, axis, size, width):
            return None
        self.scopes.append({})
        self.env[axis] = "0"
        address = self.f.op(f"ptrtoint ptr {self._address(buffer, index)[0]} to i64")
        self.scopes.pop()
        missing = self.f.op(f"and i64 {self.f.op(f'sub i64 0, {address}')}, {LINE - 1}")
        return self.f.least(self.f.op(f"udiv i64 {missing}, {size}"), self.extent(axis))

    def line_loop(
        self,
        axis: ir.Axis,
        start: str,
        width: int,
        unroll: int,
        roots: Sequence[ir.Expr],
        blocked: frozenset[Need],
        body: Callable[[], None],
    ) -> None:
        """The lane loop over all of an axis, whose whole lines begin at `start`."""
        self.hoist(roots, blocked | {axis}, width)
        self.f.loop(0, start, width, self.vectors(axis, width, 1, start, body))
        self.lanes_along(None, 1)
        self.on_lines = True
        self.lane_loop(axis, start, self.extent(axis), width, unroll, roots, blocked, body, True)
        self.on_lines = False

    # ------------------------------------------------------------ points

    def hoist_stores(self, stores: Iterable[ir.Store], blocked: frozenset[Need]) -> None:
        for s in stores:
            self.hoist_index(s.buffer, s.index, blocked)

    def map_point(self, stores: Sequence[ir.Store]) -> None:
        """At each vector (or point): all values, then all stores."""
        for _ in self.each_copy():
            ready = [(s, self.value(s.value), self.guard_of(s)) for s in stores]
            for s, value, guard in ready:
                self.put(s, value, guard)

    def put(self, store: ir.Store, value: Value, guard: Vec | None) -> None:
        """A store at the current vector or point."""
        self.store(store.buffer, store.index, value, guard)

    def guard_of(self, store: ir.Store) -> Vec | None:
        return None if store.guard is None else self.value(store.guard)

    def set_cell(self, cell: ir.Cell, value: Value) -> None:
        """Give a cell its value for the current vector of grid points."""
        if self.lane_axis is not None:
            self.varying_cells.add(cell)
        self.cells.setdefault(cell, {})[self.copy.number] = value

    def is_empty(self, axes: Sequence[ir.Axis]) -> bool:
        return any(self.extent(a) == 0 for a in axes)
