"""Expressions and indices of a Kernel: what one point of a loop nest computes and where.

    Load(x, at(i) * 8 + at(j))               # x[8 i + j]
    Prim("mul", (Load(x, at(i)), Param(s)), f32)

An expression is a pure DAG: the same object means the same value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from fxad.core.record import record, valued


@final
@record
class Axis:
    """A loop variable running over 0 .. extent-1."""

    name: str
    extent: int


@record
class Buffer:
    """A contiguous run of `size` elements. Roles: in, out, inout, scratch.

    A scratch buffer is private to one grid point (a backend keeps one per thread).
    """

    name: str
    dtype: np.dtype
    size: int
    role: str


@record
class Scalar:
    """A number handed to the kernel at each call, so that kernels differing in it share code."""

    name: str
    dtype: np.dtype


@record
class Cell:
    """A scalar that lives for one grid point: what a Reduce or a Contract produces."""

    name: str
    dtype: np.dtype


# ---------------------------------------------------------------- indices


@valued
class Quot:
    """floor(index / divisor), divisor > 0."""

    index: Index
    divisor: int


@valued
class Rem:
    """index mod divisor, in 0 .. divisor-1."""

    index: Index
    divisor: int


@valued
class Data:
    """An integer read from an array, clamped into 0 .. size-1 (so it is always safe)."""

    value: Expr
    size: int


@valued
class Index:
    """const + sum of coefficient * atom, in elements; atoms: Axis, Quot, Rem, Data.

    Terms are unique by atom, never have coefficient 0, and keep the order they were met in.
    """

    const: int = 0
    terms: tuple[tuple[Axis | Quot | Rem | Data, int], ...] = ()

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.const + other, self.terms)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return Index(self.const + other.const, tuple((a, c) for a, c in merged.items() if c))

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        return Index(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    def coefficient(self, axis: Axis) -> int | None:
        """Stride along `axis`; None where the index is not affine in it."""
        stride = 0
        for atom, coefficient in self.terms:
            if atom is axis:
                stride = coefficient
            elif not isinstance(atom, Axis) and axis in axes_of(atom):
                return None
        return stride

    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value over all points of its axes (which must not be empty)."""
        low = high = self.const
        for atom, coefficient in self.terms:
            first, last = _atom_bounds(atom)
            low += coefficient * (first if coefficient > 0 else last)
            high += coefficient * (last if coefficient > 0 else first)
        return low, high


def _atom_bounds(atom: Axis | Quot | Rem | Data) -> tuple[int, int]:
    match atom:
        case Axis():
            return 0, max(atom.extent - 1, 0)
        case Quot():
            low, high = atom.index.bounds()
            return low // atom.divisor, high // atom.divisor
        case Rem():
            low, high = atom.index.bounds()
            if low // atom.divisor == high // atom.divisor:
                return low % atom.divisor, high % atom.divisor
            return 0, atom.divisor - 1
        case Data():
            return 0, atom.size - 1
    raise TypeError(f"not an index atom: {atom!r}")


def at(axis: Axis) -> Index:
    """The index that is just `axis`."""
    return Index(0, ((axis, 1),)) if axis.extent != 1 else Index()


def quotient(index: Index, divisor: int) -> Index:
    """index // divisor, simplified where the terms allow it."""
    if divisor == 1:
        return index
    whole = Index(
        index.const // divisor,
        tuple((a, c // divisor) for a, c in index.terms if c % divisor == 0),
    )
    rest = Index(index.const % divisor, tuple((a, c) for a, c in index.terms if c % divisor))
    low, high = rest.bounds()
    if low // divisor == high // divisor:
        return whole + low // divisor
    return whole + Index(0, ((Quot(rest, divisor), 1),))


def remainder(index: Index, divisor: int) -> Index:
    """index mod divisor, simplified where the terms allow it."""
    if divisor == 1:
        return Index()
    rest = Index(index.const % divisor, tuple((a, c) for a, c in index.terms if c % divisor))
    low, high = rest.bounds()
    if low // divisor == high // divisor:
        return rest + -(low // divisor) * divisor
    return Index(0, ((Rem(rest, divisor), 1),))


# ---------------------------------------------------------------- expressions


@record
class Const:
    value: bool | int | float | complex
    dtype: np.dtype


@record
class Param:
    """The value of a kernel Scalar."""

    scalar: Scalar

    @property
    def dtype(self) -> np.dtype:
        return self.scalar.dtype


@record
class Get:
    """The value of a cell: a reduction's result, or a Contract's accumulated element."""

    cell: Cell

    @property
    def dtype(self) -> np.dtype:
        return self.cell.dtype


@record
class IndexValue:
    """An index as a number (iota, one-hot, mask conditions)."""

    index: Index
    dtype: np.dtype


@record
class Load:
    """buffer[index]; where `guard` is given and false, `fill` instead and no memory is touched."""

    buffer: Buffer
    index: Index
    guard: Expr | None = None
    fill: Expr | None = None

    @property
    def dtype(self) -> np.dtype:
        return self.buffer.dtype


@record
class Prim:
    """A scalar function; its dtype is the result's. See `fxad.ir.prims`."""

    name: str
    args: tuple[Expr, ...]
    dtype: np.dtype


@record
class Cast:
    """Convert with NUMERICS.md's rules (float to int saturates, NaN gives 0)."""

    arg: Expr
    dtype: np.dtype


Expr = Const | Param | Get | IndexValue | Load | Prim | Cast


# ---------------------------------------------------------------- walking


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, those inside indices included."""
    if isinstance(expr, Prim):  # not `match`: this is asked of every expression many times
        return expr.args
    if isinstance(expr, Cast):
        return (expr.arg,)
    if isinstance(expr, Load):
        inside = _index_exprs(expr.index)
        if expr.guard is None and expr.fill is None:
            return inside
        return (*inside, *(e for e in (expr.guard, expr.fill) if e is not None))
    if isinstance(expr, IndexValue):
        return _index_exprs(expr.index)
    return ()


def _index_exprs(index: Index) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for atom, _ in index.terms:
        if isinstance(atom, Axis):
            continue
        if isinstance(atom, Data):
            found.append(atom.value)
        else:
            found += _index_exprs(atom.index)
    return tuple(found)


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every expression below the roots once, children before parents."""
    done: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if id(expr) in done:
            continue
        if ready:
            done.add(id(expr))
            yield expr
            continue
        below = children(expr)
        if not below:
            done.add(id(expr))
            yield expr
            continue
        stack.append((expr, True))
        stack += [(c, False) for c in reversed(below)]


def axes_of(item: Index | Axis | Quot | Rem | Data | Expr) -> frozenset[Axis]:
    """Every axis an index or an expression depends on."""
    match item:
        case Axis():
            return frozenset((item,))
        case Index():
            return frozenset().union(*(axes_of(atom) for atom, _ in item.terms))
        case Quot() | Rem():
            return axes_of(item.index)
        case Data():
            return axes_of(item.value)
        case _:
            read = (e.index for e in walk(item) if isinstance(e, Load | IndexValue))
            return frozenset().union(*(_own_axes(index) for index in read))


def _own_axes(index: Index) -> frozenset[Axis]:
    """The axes of an index, without those of expressions inside it."""
    atoms = [a for a, _ in index.terms if not isinstance(a, Data)]
    each = ((a,) if isinstance(a, Axis) else _own_axes(a.index) for a in atoms)
    return frozenset().union(*each)
