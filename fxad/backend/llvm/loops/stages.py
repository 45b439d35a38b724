"""Code of one stage of a Kernel: loops over its axes, with lanes where the schedule says.

    stages = Stages(code, pointers, safe, target)
    stages.run(stage)          # at the current grid point, or at a vector of grid points

Inside a vector of grid points every stage loop is sequential; at a single grid point Map and
"lanes" reductions make lanes of their own last axis.
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import cast
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.reduce import Reductions, rounded_value
from fxad.backend.llvm.loops.tiles import Tiles
from fxad.ir import kernel as ir


class Stages(Reductions, Tiles):
    """Emits stages into the function under construction."""

    def run(self, stage: ir.Stage) -> None:
        """Emit one stage at the current point."""
        self.scopes.append({})
        match stage:
            case ir.Map():
                self._map(stage)
            case ir.Reduce():
                self.reduce(stage)
            case ir.Scan():
                self._scan(stage)
            case ir.Scatter():
                self._scatter_stage(stage)
            case _:
                raise NotImplementedError(f"no code for a {type(stage).__name__} stage here")
        self.scopes.pop()

    def _map(self, stage: ir.Map) -> None:
        roots = roots_with_guards(stage.stores)
        blocked = self.blocked_by(stage)
        axes = [a for a in stage.axes if not self.is_single(a)]

        def point(values: Texts) -> Texts:
            self.map_point(stage.stores)
            return values

        if self.lane_axis is not None or not axes:
            self.hoist_stores(stage.stores, blocked | frozenset(axes))
            tiled = self.tiled(roots, stage.stores, axes[-1]) if axes else []
            if not tiled:
                self.loops(axes, roots, blocked, point)
                return
            self.loops(
                axes[:-1], roots, blocked | {axes[-1]},
                lambda values: self.tile_loop(axes[-1], tiled, roots, blocked, point),
            )  # fmt: skip
            return
        inner = axes[-1]
        width, unroll = self.schedule.lanes_of(stage, inner)

        def row(values: Texts) -> Texts:
            self.hoist_stores(stage.stores, blocked | {inner})
            if width == 1:
                return self.loops([inner], roots, blocked, point, [])
            self.hoist_asked(stage, blocked | {inner})
            start = self.before_line(stage, inner, width)
            if start is None:
                self.lane_extent_loop(inner, width, unroll, roots, blocked, vectors)
            else:
                self.line_loop(inner, start, width, unroll, roots, blocked, vectors)
            return values

        def vectors() -> None:
            for _ in self.each_copy():
                self.ask(stage)
            self.map_point(stage.stores)

        outer = axes[:-1]
        self.hoist_stores(stage.stores, blocked | frozenset(axes))
        self.loops(outer, roots, blocked | {inner}, row)

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
                self.set_cell(stage.cell, rounded_value(total, dtype))
                ready = [(s, self.value(s.value), self.guard_of(s)) for s in stage.stores]
                for s, v, guard in ready:
                    self.put(s, v, guard)
            return [v.text for v in following]

        if self.is_empty([stage.axis]):
            return
        carried = [(v.type, v.text) for v in monoids.flatten(starts)]
        self.varying_cells |= {stage.cell} if self.lane_axis is not None else set()
        blocked = self.blocked_by(stage)
        tiled = self.tiled(roots, stage.stores, stage.axis)
        if tiled:
            self.hoist_stores(stage.stores, blocked | {stage.axis})
            self.tile_loop(stage.axis, tiled, roots, blocked, body, carried, stage.reverse)
            return
        self.loops([stage.axis], roots, blocked, body, carried, stage.reverse)

    def _scatter_stage(self, stage: ir.Scatter) -> None:
        if self.is_empty(stage.over):
            return
        roots = roots_with_guards([stage.store])
        blocked = self.blocked_by(stage)
        axes = [a for a in stage.over if not self.is_single(a)]
        if self.lane_axis is None and axes and self._is_scatter_of_rows(stage, axes[-1]):
            width, unroll = self.schedule.lanes_of(stage, axes[-1])

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
                value = rounded_value(value, dtype)
            self.store(store.buffer, store.index, value, guard)
