"""The axes of a kernel's stages: which there are, how indices use them, which can be merged.

axes_of_stage(Reduce((j, k), "add", ...))     # (j, k)
merged_extents(kernel)                        # {inner: 24, outer: 1}: both are one loop
"""

from __future__ import annotations

from fxad.ir import kernel as ir


def axes_of_stage(stage: ir.Stage) -> tuple[ir.Axis, ...]:
    """The axes a stage loops over, outermost first; products and attention loop in blocks."""
    blocked = isinstance(stage, ir.Contract | ir.Unpack | ir.Attention | ir.AttentionGrad)
    return () if blocked else ir.bound_axes(stage)


def indices_of(stage: ir.Stage) -> list[ir.Index]:
    """Every index of a stage, those inside quotients and remainders included."""
    found = [s.index for s in ir.stores_of(stage)]
    exprs = list(ir.exprs_of(stage))
    for store in ir.stores_of(stage):
        exprs += data_values(store.index)
    found += [e.index for e in ir.walk(*exprs) if isinstance(e, ir.Load | ir.IndexValue)]
    for index in found:  # grows while it is walked
        found += [a.index for a, _ in index.terms if isinstance(a, ir.Quot | ir.Rem)]
    return found


def data_values(index: ir.Index) -> list[ir.Expr]:
    """Expressions that an index reads from arrays."""
    found: list[ir.Expr] = []
    for atom, _ in index.terms:
        if isinstance(atom, ir.Data):
            found.append(atom.value)
        elif isinstance(atom, ir.Quot | ir.Rem):
            found += data_values(atom.index)
    return found


def stride_along(index: ir.Index, axis: ir.Axis | None) -> int:
    """The coefficient of the axis itself (what it does inside other atoms left aside)."""
    return sum(c for atom, c in index.terms if atom is axis)


class _Merger:
    """Merges neighbouring axes that every index treats as one."""

    def __init__(self, kernel: ir.Kernel) -> None:
        self.nests = [kernel.grid, *(axes_of_stage(s) for s in kernel.body)]
        self.indices = [i for s in kernel.body for i in indices_of(s)]
        reductions = [s for s in kernel.body if isinstance(s, ir.Reduce) and in_lanes(s)]
        self.aligned = {s.over[-1] for s in reductions if s.over and not in_any_order(s)}
        self.extents: dict[ir.Axis, int] = {}

    def run(self) -> dict[ir.Axis, int]:
        for nest in self.nests:
            kept: list[ir.Axis] = []
            for axis in nest:
                if self._extent(axis) == 1:
                    continue
                while kept and self._can_merge(kept[-1], axis):
                    outer = kept.pop()
                    self.extents[axis] = self._extent(outer) * self._extent(axis)
                    self.extents[outer] = 1
                kept.append(axis)
        return self.extents

    def _extent(self, axis: ir.Axis) -> int:
        return self.extents.get(axis, axis.extent)

    def _can_merge(self, outer: ir.Axis, inner: ir.Axis) -> bool:
        extent = self._extent(inner)
        if inner in self.aligned and extent % 64:
            return False
        return self._always_adjacent(outer, inner) and all(
            stride_along(i, outer) == stride_along(i, inner) * extent for i in self.indices
        )

    def _always_adjacent(self, outer: ir.Axis, inner: ir.Axis) -> bool:
        for nest in self.nests:
            live = [a for a in nest if self._extent(a) != 1]
            here = [a in (outer, inner) for a in live]
            if any(here):
                at = here.index(True)
                if live[at : at + 2] != [outer, inner]:
                    return False
        return True


def in_lanes(stage: ir.Stage) -> bool:
    """Is it a reduction with 64 partial results?"""
    return isinstance(stage, ir.Reduce) and stage.order == "lanes"


def in_any_order(stage: ir.Reduce) -> bool:
    """Whether the order of combination changes nothing: all but sums and products of floats."""
    return stage.monoid not in ("add", "mul") or all(c.dtype.kind in "iub" for c in stage.cells)


def merged_extents(kernel: ir.Kernel) -> dict[ir.Axis, int]:
    """Trips of the axes that can be merged with a neighbour: the outer one then has 1."""
    return _Merger(kernel).run()
