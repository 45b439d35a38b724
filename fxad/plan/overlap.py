"""When a kernel's result may lie in the storage of an operand that is not needed any more.

out[i] = f(a[i], b[i])        out may be a: every point reads a[i] before it stores there
out[i] = f(a[i], a[n-1-i])    not: another point's element would be gone

A product may keep sums in its result before it reads the other operands of its epilogue, so there
the shared storage must be one inout buffer of the kernel: see `merged`.
"""

from __future__ import annotations

from itertools import pairwise

from fxad.core.record import replace
from fxad.ir.index import Substitution, substituted
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Contract,
    Expr,
    Index,
    Kernel,
    Load,
    Scatter,
    Sort,
    Stage,
    Store,
    Unpack,
    at,
    bound_axes,
    exprs_of,
    operands_of,
    stores_of,
    walk,
)


class Accesses:
    """Loads and stores of every buffer of a kernel, with their stage's number."""

    def __init__(self, kernel: Kernel) -> None:
        self.grid = kernel.grid
        self.loads: dict[Buffer, list[tuple[int, Load]]] = {}
        self.stores: dict[Buffer, list[tuple[int, Store]]] = {}
        self.fixed: set[Buffer] = set()
        for number, stage in enumerate(kernel.body):
            for expr in walk(*exprs_of(stage)):
                if type(expr) is Load:
                    self.loads.setdefault(expr.buffer, []).append((number, expr))
            for store in stores_of(stage):
                self.stores.setdefault(store.buffer, []).append((number, store))
                if isinstance(stage, Sort | Scatter):
                    self.fixed.add(store.buffer)
            if isinstance(stage, Contract | Unpack):
                self.fixed |= {operand.buffer for operand in operands_of(stage)}

    def may_share(self, result: Buffer, operand: Buffer) -> bool:
        """Whether `result` may be given the storage of `operand`."""
        stores = self.stores.get(result, [])
        if len(stores) != 1 or result in self.fixed or operand in self.fixed:
            return False
        stage, store = stores[0]
        if store.guard is not None or result.dtype != operand.dtype or result.size != operand.size:
            return False
        return all(
            _same(load.index, store.index)
            if number == stage
            else number < stage and self._own_row(load.index, store.index)
            for number, load in self.loads.get(operand, [])
        )

    def _own_row(self, load: Index, store: Index) -> bool:
        """Whether a grid point reads only where it will store itself: rows that do not overlap."""
        grid = set(self.grid)
        outer = {a: c for a, c in store.terms if a in grid}
        if {a: c for a, c in load.terms if a in grid} != outer or set(outer) != grid:
            return False
        spans = sorted((c, a.extent) for a, c in outer.items() if isinstance(a, Axis))
        row = spans[0][0] if spans else None
        for (low, extent), (high, _) in pairwise(spans):
            if high < low * extent:
                return False
        return all(_within(i, grid, row) for i in (load, store))


def merged(kernel: Kernel, pairs: dict[Buffer, Buffer]) -> Kernel:
    """The kernel of one product with operands (keys) and results that share storage made one."""
    stage: Stage
    (stage,) = kernel.body
    shared = {r: Buffer(r.name, r.dtype, r.size, "inout") for r in pairs.values()}
    renamed = shared | {operand: shared[result] for operand, result in pairs.items()}

    def load(old: Load, index: Index, guard: Expr | None, fill: Expr | None) -> Expr:
        return Load(renamed.get(old.buffer, old.buffer), index, guard, fill)

    axes = {a: a for a in (*kernel.grid, *bound_axes(stage))}
    move = Substitution({a: at(a) for a in axes}, load)
    stage = substituted(stage, axes, move, lambda old: renamed.get(old, old))
    buffers = tuple([renamed.get(b, b) for b in kernel.buffers if b not in pairs])
    return replace(kernel, buffers=buffers, body=(stage,))


def _within(index: Index, grid: set[Axis], row: int | None) -> bool:
    inner = Index(index.const, tuple(t for t in index.terms if t[0] not in grid))
    low, high = inner.bounds()
    return row is None or (low >= 0 and high < row)


def _same(one: Index, other: Index) -> bool:
    return one.const == other.const and dict(one.terms) == dict(other.terms)
