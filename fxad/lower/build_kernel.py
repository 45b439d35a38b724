"""Building blocks of a kernel: positional names, buffers with roles, axes laid over a space.

targets({12, 4}, 1, 48) -> axes of 4, 3, 4 with strides 12, 4, 1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from fxad.core.record import replace
from fxad.ir.block import Launch, LoweredStep
from fxad.ir.index import Substitution, substituted
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cast,
    Cell,
    Expr,
    Get,
    Index,
    Kernel,
    Load,
    Param,
    Prim,
    Scalar,
    Stage,
    at,
    operands_of,
)
from fxad.ir.program import Eqn, Var
from fxad.lower.expand import Storage, zero
from fxad.lower.nodes import Node, cells

Target = tuple[Axis, int]  # an axis of the kernel and its stride in the space


def is_chain(boundaries: Iterable[int]) -> bool:
    """Whether every boundary divides the next larger one, so that axes can end at all of them."""
    last = 1
    for boundary in sorted(boundaries):
        if boundary % last:
            return False
        last = boundary
    return True


def env_over(
    axes: Sequence[Axis], strides: Sequence[int], targets: Sequence[Target]
) -> dict[Axis, Index]:
    """Axes of a node in terms of the kernel's axes, both laid over one row-major space.

    Neighbouring axes with no target ending between them act as one: the innermost stands for
    all (see `nodes.boundaries`).
    """
    ends = {stride for _, stride in targets}
    env: dict[Axis, Index] = {a: Index() for a in axes}
    real = [(a, s) for a, s in zip(axes, strides, strict=True) if a.extent != 1]
    high = real[0][1] * real[0][0].extent if real else 1
    for n, (axis, stride) in enumerate(real):
        if stride not in ends and n + 1 < len(real):
            continue
        index = Index()
        for target, place in targets:
            if stride <= place < high:
                index = index + at(target) * (place // stride)
        env[axis] = index
        high = stride
    return env


class KernelBuilder:
    """Collects what one kernel is made of.

    written: values the kernel stores; those among them that it also reads are inout.
    """

    def __init__(
        self, storage: Storage, written: Sequence[Var], read_back: Iterable[Var] = ()
    ) -> None:
        self._storage = storage
        self._count = 0
        self._ins: dict[Var, Buffer] = {}
        self._scratch: dict[Var, tuple[Buffer, int]] = {}
        back = set(read_back)
        self._outs: dict[Var, Buffer] = {
            v: _buffer(f"out{n}", v, "inout" if v in back else "out") for n, v in enumerate(written)
        }
        self._scalars: dict[Scalar, Param] = {}
        self.cells: dict[Var, Expr] = {}  # values that a cell holds

    def axis(self, extent: int, name: str = "") -> Axis:
        """An axis of the kernel, numbered if it has no name of its own."""
        if not name:
            name = f"i{self._count}"
            self._count += 1
        return Axis(name, extent)

    def targets(self, boundaries: Iterable[int], low: int, high: int) -> list[Target]:
        """New axes over the part of a space between strides `low` and `high`, one ending at every
        boundary between them, outermost first."""
        inside = sorted({b for b in boundaries if low < b < high} | {low}, reverse=True)
        found: list[Target] = []
        for boundary in inside:
            if high > boundary:
                found.append((self.axis(high // boundary), boundary))
            high = boundary
        return found

    def cell(self, var: Var, dtypes: Sequence[np.dtype]) -> tuple[Cell, ...]:
        """Cells of a reduction; the last one, converted, is the value of `var`."""
        found = cells(len(self.cells), dtypes)
        value: Expr = Get(found[-1])
        wanted = var.type.dtype
        self.cells[var] = value if value.dtype == wanted else Cast(value, wanted)
        return found

    def scratch(self, var: Var, row: int) -> None:
        """Keep `var` in a private row of `row` elements instead of memory."""
        name = f"tmp{len(self._scratch)}"
        self._scratch[var] = (Buffer(name, var.type.dtype, row, "scratch"), row)

    def place(self, var: Var, index: Index, grid: Iterable[Axis]) -> tuple[Buffer, Index]:
        """Buffer and index of element `index` of a value."""
        kept = self._scratch.get(var)
        if kept is not None:
            outer = set(grid)
            return kept[0], Index(index.const, tuple(t for t in index.terms if t[0] not in outer))
        return self.buffer(var), index

    def buffer(self, var: Var) -> Buffer:
        """The buffer of a value; those that are read only are numbered as they are met."""
        found = self._outs.get(var) or self._ins.get(var)
        if found is None:
            found = self._ins[var] = _buffer(f"in{len(self._ins)}", var, "in")
        return found

    def leaf(self, expr: Expr) -> Expr:
        """Scalars get positional names; constants stay."""
        if type(expr) is not Param:
            return expr
        found = self._scalars.get(expr.scalar)
        if found is None:
            name = f"s{len(self._scalars)}"
            found = self._scalars[expr.scalar] = Param(Scalar(name, expr.scalar.dtype))
        return found

    def launch(
        self,
        grid: Sequence[Axis],
        body: Sequence[Stage],
        eqns: Iterable[Eqn | None],
        replaces: tuple[tuple[Var, Var], ...] = (),
    ) -> Launch:
        known = [e for e in eqns if e is not None]  # a constant result comes from no equation
        where = dict.fromkeys(f"{e.op.name} @ {e.where}" if e.where else e.op.name for e in known)
        kernel = Kernel(
            _name(list(dict.fromkeys(e.op.name for e in known))) or "constant",
            (*self._ins.values(), *self._outs.values()),
            tuple([p.scalar for p in self._scalars.values()]),
            tuple([a for a in grid if a.extent != 1]),
            tuple(body),
            tuple(where),
        )
        numbers = tuple([self._storage.numbers[s] for s in self._scalars])
        args = (*self._ins, *self._outs)
        return Launch(kernel, args, tuple(self._outs), numbers, replaces)


class Scope:
    """Expressions of one stage: every node's value with the kernel's axes put in.

    local: values computed in this very stage (or cheap enough to be computed again in it): their
    nodes, and the nodes' axes in terms of the kernel's.
    """

    def __init__(self, builder: KernelBuilder, grid: Sequence[Axis]) -> None:
        self.builder = builder
        self.grid = tuple(grid)
        self.local: dict[Var, tuple[Node, Mapping[Axis, Index]]] = {}
        self._known: dict[Var, Expr] = {}
        self._pool: dict[tuple[object, ...], Expr] = {}

    def substitution(self, node: Node, env: Mapping[Axis, Index]) -> Substitution:
        """Puts the kernel's axes, buffers and numbers into a node's expressions."""
        load = partial(self._load, node.values)
        return Substitution(env, load, self.builder.leaf, self._pool)

    def stage(self, node: Node, axes: Mapping[Axis, Axis], without_stores: bool = False) -> Stage:
        """The stage of a node whose axes are these of the kernel."""
        stage = node.stage
        assert not isinstance(stage, LoweredStep)
        if without_stores:
            stage = replace(stage, stores=())

        def buffer(stand_in: Buffer) -> Buffer:
            return self.builder.buffer(node.values[stand_in])

        for operand in operands_of(stage):  # numbered before what expressions read
            buffer(operand.buffer)
        move = self.substitution(node, {old: at(new) for old, new in axes.items()})
        return substituted(stage, axes, move, buffer)

    def value(self, var: Var) -> Expr:
        """The value of a local, built once."""
        found = self._known.get(var)
        if found is None:
            node, env = self.local[var]
            found = self._known[var] = self.substitution(node, env)(node.store.value)
        return found

    def _load(
        self,
        values: Mapping[Buffer, Var],
        old: Load,
        index: Index,
        guard: Expr | None,
        fill: Expr | None,
    ) -> Expr:
        var = values[old.buffer]
        value = self.builder.cells.get(var)
        if value is None and var in self.local:
            value = self.value(var)
        if value is not None:
            if guard is None:
                return value
            fill = zero(value.dtype) if fill is None else fill
            return Prim("select", (guard, value, fill), value.dtype)
        buffer, index = self.builder.place(var, index, self.grid)
        key = (buffer, index, id(guard), id(fill))
        found = self._pool.get(key)
        if found is None:
            found = self._pool[key] = Load(buffer, index, guard, fill)
        return found


def _buffer(name: str, var: Var, role: str) -> Buffer:
    return Buffer(name, var.type.dtype, var.type.size, role)


def _name(ops: list[str]) -> str:
    """A short name from the ops inside."""
    chosen = ops if len(ops) <= 4 else [*ops[:2], "etc", ops[-1]]
    return "_".join(chosen)
