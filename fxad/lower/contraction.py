"""Matrix products: which bytes the operands read, and which axes become grid, m, n and k.

Operands seen through transposes, slices, broadcasts and splitting reshapes are read where they
lie, as long as the index stays affine and one axis is contiguous; otherwise a copy is made.

    out[b, i, j] = sum over k of a[b, i, k] * w[k, j]   ->   m = (b, i), n = j: no batch in w
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from fxad.core import dtypes as dt
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir import loops
from fxad.ir.index import axes_for, flat, is_affine
from fxad.ir.kernel import Axis, Cast, Contract, Expr, Get, Index, Operand, Store, at
from fxad.ir.orders import FEW
from fxad.ir.program import Atom, Var
from fxad.lower.expand import Storage
from fxad.lower.graph import Def, Graph
from fxad.lower.nodes import cells
from fxad.lower.reduction import accumulator

FUSIBLE = (loops.Pointwise, loops.View, loops.Generate, loops.Indexed)


@record
class Address:
    """A matrix operand: a materialized value and the flat index over the operand's own axes."""

    base: Var
    index: Index
    axes: tuple[Axis, ...]

    def stride(self, axis: int) -> int:
        return self.index.coefficient(self.axes[axis]) or 0


@record
class Dim:
    """One axis of the product: its length, its strides in a, b and the result."""

    extent: int
    a: int
    b: int
    out: int


def addresses(
    graph: Graph, definition: Def, record: loops.Contract, through_views: bool
) -> tuple[Address, Address]:
    """Where both operands of a product are read. Values that must be materialized are the bases."""
    found = []
    for side, atom in enumerate(definition.operands):
        contract, batch = record.contract[side], record.batch[side]
        chosen = None
        for candidate in candidates(graph, atom, through_views):
            if _usable(candidate, contract):
                chosen = candidate
        found.append(chosen or copied(graph, definition, atom, contract, batch))
    return found[0], found[1]


def candidates(graph: Graph, atom: Atom, through_views: bool) -> list[Address]:
    """The operand itself, then what its views look at."""
    found: list[Address] = []
    axes = axes_for(atom.type.shape)
    point = tuple([at(a) for a in axes])
    size = atom.type.size
    while isinstance(atom, Var):
        definition = graph.def_of.get(atom)
        fixed = definition is None or not isinstance(definition.record, FUSIBLE)
        # A larger value is worth storing whole if its parts are all wanted (q, k, v).
        if fixed or atom.type.size <= size * graph.uses[atom]:
            found.append(Address(atom, flat(point, atom.type.shape), axes))
        if not through_views or definition is None or not isinstance(definition.record, loops.View):
            break
        view = definition.record
        if view.guard is not None and view.guard(point) is not None:
            break
        point = view.source(point)
        atom = definition.operands[0]
    return found


def _usable(address: Address, contract: tuple[int, ...]) -> bool:
    """Affine, the contracted axes act as one, and one axis is contiguous."""
    if not is_affine(address.index):
        return False
    shape = [a.extent for a in address.axes]
    dims = [(shape[a], address.stride(a)) for a in contract if shape[a] != 1]
    for (_, outer), (extent, inner) in pairwise(dims):
        if outer != inner * extent:
            return False
    strides = [address.stride(a) for a, n in enumerate(shape) if n > 1]
    return not strides or 1 in strides or math.prod(shape) <= 64


def copied(
    graph: Graph, definition: Def, atom: Atom, contract: tuple[int, ...], batch: tuple[int, ...]
) -> Address:
    """A materialized copy with axes (batch, free, contracted)."""
    shape = atom.type.shape
    free = tuple(a for a in range(len(shape)) if a not in contract and a not in batch)
    order = (*batch, *free, *contract)
    copy = Var(ArrayType(atom.type.dtype, tuple(shape[a] for a in order)))
    places = {axis: i for i, axis in enumerate(order)}
    view = loops.View(lambda point: tuple([point[order.index(a)] for a in range(len(shape))]))
    added = Def((copy,), view, (atom,), definition.eqn)
    graph.insert(added, definition)
    axes = axes_for(shape)
    point = tuple([at(axes[a]) for a in sorted(places, key=places.__getitem__)])
    return Address(copy, flat(point, copy.type.shape), axes)


def contract_stage(
    definition: Def, record: loops.Contract, a: Address, b: Address, storage: Storage
) -> tuple[Contract, tuple[Axis, ...]]:
    """The product with axes merged and given roles; the axes of its grid, then m, n and k."""
    out = definition.outputs[0]
    batch, rows, columns = _dims(record, a, b, out.type.shape[record.parts > 1 :])
    sides = (math.prod(d.extent for d in side) for side in (rows, columns))
    skinny = a.base.type.dtype == dt.bfloat16 and min(sides) <= FEW
    k_dim, parts = _summed(record, a, b, out.type.size)
    batch, rows, columns = _roles(parts + batch, rows, columns)
    grid, m_dim = _main(_merged(rows))
    more, n_dim = _main(_merged(columns))
    grid = sorted([*_merged(batch), *grid, *more], key=lambda d: -d.out)
    sides_of = ("a", "b")
    if n_dim.extent == 1 and m_dim.extent > 1:
        a, b, m_dim, n_dim, sides_of = b, a, n_dim, m_dim, ("b", "a")
    m, n, k = (Axis(x, d.extent) for x, d in zip("mnk", (m_dim, n_dim, k_dim), strict=True))
    axes = (*axes_for([d.extent for d in grid]), m, n, k)
    pairs = list(zip((*grid, m_dim, n_dim, k_dim), axes, strict=True))
    left, right = (
        Operand(storage.buffer(x.base), _index(x.index.const, side, pairs))
        for x, side in zip((a, b), sides_of, strict=True)
    )
    (cell,) = cells(0, [accumulator(out.type.dtype, "add")])
    value: Expr = Get(cell)
    value = value if value.dtype == out.type.dtype else Cast(value, out.type.dtype)
    by_stride = sorted(pairs[:-1], key=lambda pair: -pair[0].out)
    store = Store(storage.buffer(out), _index(0, "out", by_stride), value)
    return Contract(m, n, k, left, right, cell, (store,), skinny), axes


def _roles(
    batch: list[Dim], rows: list[Dim], columns: list[Dim]
) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """Batch, row and column axes: a batch axis one operand does not have is a row (or column) axis
    of the other."""
    rows = [d for d in batch if not d.b and d.extent > 1] + rows
    columns = [d for d in batch if d.b and not d.a and d.extent > 1] + columns
    return [d for d in batch if d not in rows and d not in columns], rows, columns


def _index(start: int, strides: str, pairs: Sequence[tuple[Dim, Axis]]) -> Index:
    """Where an element lies, by the axes of the product; strides: "a", "b" or "out"."""
    total = Index(start)
    for dim, axis in pairs:
        total = total + at(axis) * getattr(dim, strides)
    return total


def _summed(record: loops.Contract, a: Address, b: Address, size: int) -> tuple[Dim, list[Dim]]:
    """The contracted axes, which act as one, and the axis of parts if they are divided into parts;
    size: of the result, whose first axis that is."""
    pairs = zip(*record.contract, strict=True)
    merged = _merged([Dim(a.axes[i].extent, a.stride(i), b.stride(j), 0) for i, j in pairs])
    whole = merged[0] if merged else Dim(1, 0, 0, 0)
    if record.parts == 1:
        return whole, []
    step = whole.extent // record.parts
    parts = Dim(record.parts, step * whole.a, step * whole.b, size // record.parts)
    return Dim(step, whole.a, whole.b, 0), [parts]


def _dims(
    record: loops.Contract, a: Address, b: Address, shape: Sequence[int]
) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """Batch axes, free axes of a, free axes of b, in the order of the result."""
    out = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    batch = [
        Dim(a.axes[i].extent, a.stride(i), b.stride(j), out[n])
        for n, (i, j) in enumerate(zip(*record.batch, strict=True))
    ]
    used = (set(record.contract[0] + record.batch[0]), set(record.contract[1] + record.batch[1]))
    free_a = [i for i in range(len(a.axes)) if i not in used[0]]
    free_b = [i for i in range(len(b.axes)) if i not in used[1]]
    first, second = len(batch), len(batch) + len(free_a)
    rows = [Dim(a.axes[i].extent, a.stride(i), 0, out[first + n]) for n, i in enumerate(free_a)]
    columns = [Dim(b.axes[i].extent, 0, b.stride(i), out[second + n]) for n, i in enumerate(free_b)]
    return batch, rows, columns


def _merged(dims: list[Dim]) -> list[Dim]:
    """Neighbours that every operand walks as one axis become one; lengths of 1 go."""
    found: list[Dim] = []
    for dim in dims:
        if dim.extent == 1:
            continue
        if found:
            last, n = found[-1], dim.extent
            if (last.a, last.b, last.out) == (dim.a * n, dim.b * n, dim.out * n):
                found[-1] = Dim(last.extent * n, dim.a, dim.b, dim.out)
                continue
        found.append(dim)
    return found


def _main(dims: list[Dim]) -> tuple[list[Dim], Dim]:
    """The axis that becomes m or n, and the others, which go to the grid."""
    if not dims:
        return [], Dim(1, 0, 0, 0)
    best = max(dims, key=lambda d: (min(d.extent, 32), d.out == 1, d.extent))
    return [d for d in dims if d is not best], best
