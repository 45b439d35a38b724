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
from fxad.ir.index import axes_for, flat, is_affine, unflat
from fxad.ir.kernel import Axis, Cell, Index, at
from fxad.ir.loops import Contraction, Generate, Indexed, Pointwise, View
from fxad.ir.orders import FEW
from fxad.ir.program import Atom, Var
from fxad.lower.graph import Def, Graph
from fxad.lower.nodes import ContractNode
from fxad.lower.reduction import accumulator

SOFT = (Pointwise, View, Generate, Indexed)


@record
class Address:
    """A matrix operand: a stored value and the flat index over the operand's own axes."""

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
    graph: Graph, definition: Def, record: Contraction, through_views: bool
) -> tuple[Address, Address]:
    """Where both operands of a product are read. Values that must be stored are the bases."""
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
        hard = definition is None or not isinstance(definition.record, SOFT)
        # A larger value is worth storing whole if its parts are all wanted (q, k, v).
        if hard or atom.type.size <= size * graph.uses[atom]:
            found.append(Address(atom, flat(point, atom.type.shape), axes))
        if not through_views or definition is None or not isinstance(definition.record, View):
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
    """A stored copy with axes (batch, free, contracted)."""
    shape = atom.type.shape
    free = tuple(a for a in range(len(shape)) if a not in contract and a not in batch)
    order = (*batch, *free, *contract)
    copy = Var(ArrayType(atom.type.dtype, tuple(shape[a] for a in order)))
    places = {axis: i for i, axis in enumerate(order)}
    view = View(lambda point: tuple([point[order.index(a)] for a in range(len(shape))]))
    added = Def((copy,), view, (atom,), definition.eqn, definition.passed)
    graph.insert(added, definition)
    axes = axes_for(shape)
    point = tuple([at(axes[a]) for a in sorted(places, key=places.__getitem__)])
    return Address(copy, flat(point, copy.type.shape), axes)


def contract_node(definition: Def, record: Contraction, a: Address, b: Address) -> ContractNode:
    """Axes merged and given roles."""
    out = definition.outputs[0]
    result = axes_for(out.type.shape, "o")
    batch, rows, columns = _dims(record, a, b, out.type.shape[record.parts > 1 :])
    sides = (math.prod(d.extent for d in side) for side in (rows, columns))
    few = a.base.type.dtype == dt.bfloat16 and min(sides) <= FEW
    k_dim, parts = _summed(record, a, b, out.type.size)
    batch, rows, columns = _roles(parts + batch, rows, columns)
    grid_dims, m_dim = _main(_merged(rows))
    more, n_dim = _main(_merged(columns))
    grid_dims = sorted([*_merged(batch), *grid_dims, *more], key=lambda d: -d.out)
    swap = n_dim.extent == 1 and m_dim.extent > 1
    if swap:
        a, b, m_dim, n_dim = b, a, n_dim, m_dim
    dims = [*grid_dims, m_dim, n_dim]
    axes = [Axis("", d.extent) for d in dims]
    k = Axis("k", k_dim.extent)
    cell = Cell("", accumulator(out.type.dtype, "add"))
    pairs = [*zip(dims, axes, strict=True), (k_dim, k)]
    names = ("b", "a") if swap else ("a", "b")
    node = ContractNode(
        definition.eqn,
        (out,),
        result,
        a.base,
        b.base,
        _index(a, names[0], pairs),
        _index(b, names[1], pairs),
        tuple(axes[:-2]),
        axes[-2],
        axes[-1],
        k,
        _place(result, dims, axes),
        cell,
        few,
    )
    for var, where in ((a.base, node.a_index), (b.base, node.b_index)):
        node.reads.setdefault(var, []).append(where)
    return node


def _roles(
    batch: list[Dim], rows: list[Dim], columns: list[Dim]
) -> tuple[list[Dim], list[Dim], list[Dim]]:
    """Batch, row and column axes: a batch axis one operand does not have is a row (or column) axis
    of the other."""
    rows = [d for d in batch if not d.b and d.extent > 1] + rows
    columns = [d for d in batch if d.b and not d.a and d.extent > 1] + columns
    return [d for d in batch if d not in rows and d not in columns], rows, columns


def _index(of: Address, side: str, pairs: Sequence[tuple[Dim, Axis]]) -> Index:
    """Where an operand is read, by the axes of the product; side: "a" or "b"."""
    total = Index(of.index.const)
    for dim, axis in pairs:
        total = total + at(axis) * getattr(dim, side)
    return total


def _summed(record: Contraction, a: Address, b: Address, size: int) -> tuple[Dim, list[Dim]]:
    """The contracted axes, which act as one, and the axis of parts if they are cut into parts;
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
    record: Contraction, a: Address, b: Address, shape: Sequence[int]
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


def _place(result: Sequence[Axis], dims: Sequence[Dim], axes: Sequence[Axis]) -> dict[Axis, Index]:
    """Every axis of the result in terms of the kernel's axes."""
    strides = [math.prod(a.extent for a in result[i + 1 :]) for i in range(len(result))]
    place: dict[Axis, Index] = {}
    for dim, axis in zip(dims, axes, strict=True):
        if dim.extent == 1:
            continue
        span = [
            r
            for r, s in zip(result, strides, strict=True)
            if r.extent != 1 and dim.out <= s < dim.out * dim.extent
        ]
        place.update(zip(span, unflat(at(axis), [r.extent for r in span]), strict=True))
    for r in result:
        place.setdefault(r, Index())
    return place
