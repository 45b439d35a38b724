"""Nodes: stored values with the loop that computes them, before fusion groups them into kernels.

A node's expressions read stand-in buffers (see `expand.Storage`) at indices over the node's own
axes. Axes come in the row-major order of the space the node runs over.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np

from fxad.ir.index import strides_of
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Data,
    Expr,
    Index,
    Quot,
    Rem,
)
from fxad.ir.loops import HostCall, Structured
from fxad.ir.program import Var
from fxad.lower.refine import Body


@dataclass(eq=False, slots=True)
class Node:
    """What every node has: the equation, its results, its axes, and the roots of its expressions.

    eqn: the Eqn; None for a constant result. reads: for every stored value it reads the indices
    it is read at; sources: what its expressions' stand-in buffers stand for. passed, awaited: see
    `graph.Graph`. depth: of its expressions (`refine.Body`). form, values: the number of its
    form, and the values the form is about, if it has one (see `forms`).
    """

    eqn: Any
    outputs: tuple[Var, ...]
    axes: tuple[Axis, ...]
    reads: dict[Var, list[Index]] = field(default_factory=dict, init=False)
    indices: list[Index] = field(default_factory=list, init=False)
    passed: int = field(default=0, init=False)
    awaited: int = field(default=0, init=False)
    depth: int = field(default=0, init=False)
    sources: Mapping[Buffer, Var] = field(default_factory=dict, init=False)
    form: int | None = field(default=None, init=False)
    values: tuple[Var, ...] = field(default=(), init=False)

    @property
    def strides(self) -> tuple[int, ...]:
        """Row-major strides of the axes in the node's own space."""
        return strides_of(self.extents)

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple([a.extent for a in self.axes])

    def collect(self, sources: Mapping[Buffer, Var], body: Body) -> None:
        """Fill `sources`, `reads` and `indices` from the loads of a body."""
        self.sources = {load.buffer: sources[load.buffer] for load in body.loads}
        for load in body.loads:
            self.reads.setdefault(sources[load.buffer], []).append(load.index)
        self.indices += body.indices
        self.depth = max(self.depth, body.depth)

    def again(self, eqn: Any, outputs: tuple[Var, ...], values: tuple[Var, ...]) -> Self:
        """The same computation for another equation, on other values."""
        made = copy.copy(self)
        now = dict(zip(self.values, values, strict=True))
        made.eqn, made.outputs, made.values = eqn, outputs, values
        made.reads = {now[v]: indices for v, indices in self.reads.items()}
        made.sources = {buffer: now[v] for buffer, v in self.sources.items()}
        made.operate_on(now)
        return made

    def operate_on(self, now: Mapping[Var, Var]) -> None:
        """Replace the values that fields of this kind of node name."""


@dataclass(eq=False, slots=True)
class MapNode(Node):
    """outputs[0][target] = value at every point of the axes; target None: at the point itself.

    A value stored in parts (a concatenation) has several nodes with targets.
    """

    value: Expr
    target: Index | None = None


@dataclass(eq=False, slots=True)
class ReduceNode(Node):
    """Combine `value` over the last `len(over)` axes; `cell_dtypes` are the accumulators'.

    natural: the axes are those of the reduced space in row-major order, so that the node fits
    into row kernels. The result is the last cell, cast to the result's dtype.
    """

    over: tuple[Axis, ...]
    monoid: str
    value: Expr
    order: str
    cell_dtypes: tuple[np.dtype, ...]
    natural: bool
    space: tuple

    @property
    def grid(self) -> tuple[Axis, ...]:
        return self.axes[: len(self.axes) - len(self.over)]


@dataclass(eq=False, slots=True)
class ContractNode(Node):
    """A matrix product. axes: those of the result in row-major order.

    place: the result's axes in terms of the kernel's grid, m and n. few: see ir.kernel.Contract.
    """

    a: Var
    b: Var
    a_index: Index
    b_index: Index
    grid: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: Axis
    place: dict[Axis, Index]
    cell: Cell
    few: bool

    def operate_on(self, now: Mapping[Var, Var]) -> None:
        self.a, self.b = now[self.a], now[self.b]


@dataclass(eq=False, slots=True)
class AttendNode(Node):
    """Attention; slope: None forward, of the logit by the score backward.

    axes: part of the queries (the last first), part of the query heads that share a key head,
    batch, key head, query head and query within their parts, key, depth, width.
    operands: q, k, v (then d_out, lse, delta) with the indices they are read at.
    """

    left: int
    right: int
    score: Cell
    logit: Expr
    slope: Expr | None
    operands: list[tuple[Var, Index]]

    def operate_on(self, now: Mapping[Var, Var]) -> None:
        self.operands = [(now[v], index) for v, index in self.operands]


@dataclass(eq=False, slots=True)
class ScanNode(Node):
    """Running combination along `axis`, which is one of the axes."""

    axis: Axis
    monoid: str
    value: Expr
    reverse: bool
    cell_dtype: np.dtype


@dataclass(eq=False, slots=True)
class SortNode(Node):
    """Sort operands along `axis`; result r is operand r. largest: see ir.loops.Sorting."""

    axis: Axis
    keys: int
    operands: tuple[Expr, ...]
    largest: int | None


@dataclass(eq=False, slots=True)
class ScatterNode(Node):
    """result starts as `base`; result[target] = result[target] monoid value over the axes.

    axes = parallel axes, then the serial ones (`over`).
    """

    base: Var
    over: tuple[Axis, ...]
    monoid: str
    target: Index
    value: Expr
    guard: Expr | None


@dataclass(eq=False, slots=True)
class OpaqueNode(Node):
    """Control flow or a host call over stored operands."""

    operands: tuple[Var, ...]
    record: Structured | HostCall


def boundaries(node: Node) -> frozenset[int]:
    """Strides at which two neighbouring axes cannot be merged into one, in the node's space.

    Axes i and i+1 merge where every index treats them as one: its stride along i is its stride
    along i+1 times that one's extent, and neither hides in a quotient, remainder or data.
    """
    axes = [(a, s) for a, s in zip(node.axes, node.strides, strict=True) if a.extent != 1]
    needed: set[int] = set()
    for index in node.indices:
        terms: dict = {}
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
