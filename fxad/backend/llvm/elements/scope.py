"""Where code is generated: what is fixed for a function, and what holds at a place in it.

    def body(inside: Scope) -> None:              # called for the inside of a loop over lanes
        for here in each_copy(inside):            # once for every vector of the unrolled loop
            y = value(here, stage.value)          # appends instructions, answers a register

    lane_loop(scope, axis, 0, 128, 16, 2, roots, blocked, body)

Code generation is functions of a `Scope`, the expression or stage, and nothing else. A `Scope` is
never changed: whoever opens a loop makes the scope of its inside (`inner`) and hands it to `body`;
what follows the loop uses the scope it had. A stage that sets cells gives a scope in which they
have values. Modes (streaming stores, vectors that are whole cache lines, what is prefetched) are
fields; whoever wants another mode makes a scope with it.

Memo. An expression is computed once in a scope and the scopes inside it. `known` holds what each
scope has computed, the innermost first: a lookup goes through all, a new value is remembered in the
first. So what is computed before a loop is found inside it, and what is computed inside is not
found after it, where its register would mean nothing. To hoist a value out of a loop is to compute
it in the scope outside (`values.hoist`); the same goes for parts of addresses.

Lanes. Inside a loop over lanes, `lanes` says along which axis, how many, and in how many copies the
loop is unrolled. What does not depend on that axis, nor on a cell whose value differs between lanes
(`varying`), stays a scalar until it meets a vector. What does depend on them is different for each
copy: `each_copy` gives a scope for each, with one memo, in which such values are kept under the
copy's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.base.schedule import Schedule
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import RowPrefetch
from fxad.backend.llvm.base.vector import Code, Vec
from fxad.core.aligned import to_line
from fxad.core.record import record, replace, valued
from fxad.ir import kernel as ir

Atom = ir.Axis | ir.Quot | ir.Rem | ir.Data
Need = ir.Axis | ir.Cell | ir.Buffer
# By expression its value, by index a register, by buffer and index an address: what is held depends
# on the key, and who remembers something knows what.
Memo = dict[object, Any]
_NOTHING: Mapping[Any, Any] = MappingProxyType({})  # no entry of any type


# ---------------------------------------------------------------- what is fixed for a function


class Scratch:
    """This thread's scratch, given out piece by piece. most: bytes that were ever in use."""

    def __init__(self, f: Function) -> None:
        self._f = f
        self._used = self.most = 0

    def take(self, nbytes: int) -> str:
        """The address of so many bytes, at a place of their own."""
        pointer = self._f.offset("%scratch", self._used)
        self._used += to_line(nbytes)
        self.most = max(self.most, self._used)
        return pointer

    @contextmanager
    def reused(self) -> Iterator[None]:
        """What is taken inside is free again afterwards."""
        before = self._used
        yield
        self._used = before


class Needs:
    """What values depend on: axes, cells, and buffers that are written."""

    def __init__(self) -> None:
        self._exprs: dict[ir.Expr, frozenset[Need]] = {}
        self._indices: dict[ir.Index, frozenset[Need]] = {}

    def of(self, expr: ir.Expr) -> frozenset[Need]:
        """Of an expression."""
        known = self._exprs.get(expr)
        if known is None:
            for e in ir.walk(expr):
                if e not in self._exprs:
                    self._exprs[e] = self._of_one(e)
            known = self._exprs[expr]
        return known

    def _of_one(self, e: ir.Expr) -> frozenset[Need]:
        found: set[Need] = set()
        for child in ir.children(e):
            found |= self.of(child)
        if isinstance(e, ir.Load | ir.IndexValue):
            found |= self.of_index(e.index)
        if isinstance(e, ir.Load) and e.buffer.role != "in":
            found.add(e.buffer)
        if isinstance(e, ir.Get):
            found.add(e.cell)
        return frozenset(found)

    def of_index(self, index: ir.Index) -> frozenset[Need]:
        known = self._indices.get(index)
        if known is None:
            known = frozenset().union(*(self.of_atom(a) for a, _ in index.terms))
            self._indices[index] = known
        return known

    def of_atom(self, atom: Atom) -> frozenset[Need]:
        match atom:
            case ir.Axis():
                return frozenset((atom,))
            case ir.Data():
                return self.of(atom.value)
            case _:
                return self.of_index(atom.index)


@record
class Context:
    """What is fixed for a function under construction.

    pointers: where buffers begin; params: scalar arguments. readable: an address that may always be
    read, for guarded loads. sequential: buffers that are prefetched where they are read, line after
    line; prefetches: rows that a stage prefetches; streamed: buffers whose stores are streaming.
    """

    code: Code
    schedule: Schedule
    scratch: Scratch
    needs: Needs
    pointers: Mapping[ir.Buffer, str]
    params: Mapping[ir.Scalar, Value]
    readable: str
    sequential: frozenset[ir.Buffer] = frozenset()
    prefetches: Mapping[ir.Stage, Sequence[RowPrefetch]] = _NOTHING
    streamed: frozenset[ir.Buffer] = frozenset()


# ---------------------------------------------------------------- what holds at a place


@valued
class Copy:
    """One vector of an unrolled loop: lane 0 is position base + offset of the lane axis."""

    number: int
    base: str
    offset: int = 0
    mask: Vec | None = None


ONLY = Copy(0, "0")


@record
class Lanes:
    """Vectors of `width` lanes along an axis, or single points; copies: of the unrolled loop."""

    axis: ir.Axis | None = None
    width: int = 1
    copies: tuple[Copy, ...] = (ONLY,)


SINGLE = Lanes()


@record
class Scope:
    """A place in the code.

    axes: positions along the loops around; ranges: of axes that are done in part, never empty.
    cells: the values of each, by the number of the copy; varying: those that differ between lanes.
    copy: which of `lanes.copies`. whole_lines: every vector is a cache line of the loop's one
    result. tiles: where stores go that are transposed (loops/tiles.py). known: see above.
    """

    context: Context
    known: tuple[Memo, ...]
    axes: Mapping[ir.Axis, str] = _NOTHING
    ranges: Mapping[ir.Axis, tuple[str, str]] = _NOTHING
    cells: Mapping[ir.Cell, Mapping[int, Value]] = _NOTHING
    varying: frozenset[ir.Cell] = frozenset()
    lanes: Lanes = SINGLE
    copy: Copy = ONLY
    whole_lines: bool = False
    tiles: Mapping[tuple[ir.Store, int], str] = _NOTHING

    @property
    def code(self) -> Code:
        return self.context.code

    @property
    def f(self) -> Function:
        return self.context.code.function

    def find(self, key: object) -> Any:
        """What is remembered under a key here or in a scope around, or None."""
        for known in self.known:
            if key in known:
                return known[key]
        return None

    def remember(self, key: object, found: Any) -> None:
        """Until the end of this scope."""
        self.known[0][key] = found

    def extent(self, axis: ir.Axis) -> int:
        """Trips of an axis, after axes have been merged into it."""
        return self.context.schedule.extent(axis)

    def varies(self, needs: frozenset[Need]) -> bool:
        """Does what depends on these differ between lanes?"""
        return self.lanes.width > 1 and self.per_copy(needs)

    def per_copy(self, needs: frozenset[Need]) -> bool:
        """Does what depends on these differ between copies?"""
        return self.lanes.axis in needs or not self.varying.isdisjoint(needs)


def inner(scope: Scope, **changes: Any) -> Scope:
    """A scope inside, with some fields changed; what is computed in it is not known outside."""
    return replace(scope, known=({}, *scope.known), **changes)


def with_axes(scope: Scope, positions: Mapping[ir.Axis, str]) -> Mapping[ir.Axis, str]:
    """The positions of a scope and others: a value of the field `axes`."""
    return {**scope.axes, **positions}


def with_cells(scope: Scope, cells: Mapping[ir.Cell, Mapping[int, Value]]) -> Scope:
    """The scope, with values for some cells: one for each vector, in a loop over lanes."""
    varying = scope.varying
    if scope.lanes.axis is not None:
        varying = varying.union(cells)
    return replace(scope, cells={**scope.cells, **cells}, varying=varying)


def each_copy(scope: Scope) -> Iterator[Scope]:
    """The scope of each vector of an unrolled loop; what is emitted for them is interleaved."""
    f, starts = scope.f, []
    for copy in scope.lanes.copies:
        starts.append(len(f.lines))
        yield replace(scope, copy=copy)
    f.interleave(starts)


def single(scope: Scope, axes: Sequence[ir.Axis]) -> tuple[Scope, list[ir.Axis]]:
    """The scope at position 0 of those axes that have but one, and the others."""
    ones = {axis: "0" for axis in axes if scope.extent(axis) == 1}
    others = [axis for axis in axes if axis not in ones]
    return (replace(scope, axes=with_axes(scope, ones)) if ones else scope), others
