"""Nodes: stages of kernels to be, before fusion puts them together.

    y = exp(x)     ->     Node((y,), Map((i,), (Store(%y, i, exp(load %x[i])),)), axes=(i,))

A node's stage reads and writes stand-in buffers (see `expand.Storage`), one for every value that is
in memory, over axes of its own. Emitting a kernel puts the kernel's buffers and axes in their
place.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from fxad.core.record import record, replace
from fxad.ir.block import LoweredStep
from fxad.ir.index import strides_of
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Data,
    Index,
    Map,
    Quot,
    Rem,
    Stage,
    Store,
    bound_axes,
    stores_of,
)
from fxad.ir.program import Eqn, Var
from fxad.lower.graph import NO_BARRIERS, Barriers


@record
class Node:
    """A stage, or a step that is no kernel (control flow, a host call), and what fusion asks of it.

    eqn: None for a constant result. axes: all that the stage uses, the space it runs over in
    row-major order first. values: what the stage's buffers stand for. reads: for every value that
    it reads the indices it is read at; indices: all in its expressions. depth: operations on the
    longest way from a load to its result (`split_axes.Body`).

    space: of a reduction, the order of its points if it is not the row-major order of its operand;
    only reductions of one space share a kernel. replaces: (result, operand) where the result is the
    operand with some elements updated.

    structure, leaves: the number of its structure, and the values at its ends, if it may be shared
    (see `deduplicate`).
    """

    eqn: Eqn | None
    outputs: tuple[Var, ...]
    stage: Stage | LoweredStep
    axes: tuple[Axis, ...]
    values: Mapping[Buffer, Var]
    reads: Mapping[Var, Sequence[Index]]
    indices: Sequence[Index] = ()
    depth: int = 0
    space: Hashable = None
    replaces: tuple[tuple[Var, Var], ...] = ()
    barriers: Barriers = NO_BARRIERS
    structure: int | None = None
    leaves: tuple[Var, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple([a.extent for a in self.axes])

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides of the axes in the node's own space."""
        return strides_of(self.extents)

    @property
    def points(self) -> int:
        """The size of the node's own space."""
        return math.prod(self.extents)

    @property
    def store(self) -> Store:
        """The one store of a stage that has one."""
        assert not isinstance(self.stage, LoweredStep)
        (store,) = stores_of(self.stage)
        return store

    @property
    def is_part(self) -> bool:
        """Whether a Map computes one of several parts of its result (see `parts`)."""
        return isinstance(self.stage, Map) and self.points < self.outputs[0].type.size

    def applied_to(
        self, eqn: Eqn, outputs: tuple[Var, ...], leaves: tuple[Var, ...], barriers: Barriers
    ) -> Node:
        """The same computation for another equation, on other values."""
        now = dict(zip((*self.leaves, *self.outputs), (*leaves, *outputs), strict=True))
        return replace(
            self,
            eqn=eqn,
            outputs=outputs,
            values={buffer: now[var] for buffer, var in self.values.items()},
            reads={now[var]: indices for var, indices in self.reads.items()},
            barriers=barriers,
            leaves=leaves,
        )


def cells(number: int, dtypes: Sequence[np.dtype]) -> tuple[Cell, ...]:
    """The cells of a kernel's result of this number."""
    return tuple([Cell(f"c{number}{'xy'[n]}", dtype) for n, dtype in enumerate(dtypes)])


def grid_of(node: Node) -> tuple[Axis, ...]:
    """The axes that a node's stage does not loop over itself."""
    assert not isinstance(node.stage, LoweredStep)
    bound = bound_axes(node.stage)
    return tuple([a for a in node.axes if a not in bound])


def boundaries(node: Node) -> frozenset[int]:
    """Strides at which two neighbouring axes cannot be merged into one, in the node's space.

    Axes i and i+1 merge where every index treats them as one: its stride along i is its stride
    along i+1 times that one's extent, and neither hides in a quotient, remainder or data.
    """
    axes = [(a, s) for a, s in zip(node.axes, node.strides, strict=True) if a.extent != 1]
    needed: set[int] = set()
    for index in node.indices:
        terms: dict[Axis, int] = {}
        hidden: set[Axis] = set()
        for atom, coefficient in index.terms:
            if type(atom) is Axis:
                terms[atom] = coefficient
            else:
                hidden |= hidden_axes(atom)
        for (outer, _), (inner, stride) in pairwise(axes):
            strides_agree = terms.get(outer, 0) == terms.get(inner, 0) * inner.extent
            if not strides_agree or outer in hidden or inner in hidden:
                needed.add(stride * inner.extent)
    return frozenset(needed)


def hidden_axes(atom: Quot | Rem | Data) -> set[Axis]:
    """Axes inside a quotient, a remainder or a data-dependent index.

    Indices of loads inside a data-dependent index are collected on their own.
    """
    if isinstance(atom, Data):
        return set()
    found: set[Axis] = set()
    for inner, _ in atom.index.terms:
        found |= {inner} if isinstance(inner, Axis) else hidden_axes(inner)
    return found
