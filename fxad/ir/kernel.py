"""Kernel: loop nests over buffers, the form every backend reads.

A kernel is run once per point of its `grid`; grid points are independent and are the only
parallelism. At one point its stages run in order. There are no lanes, threads or tiles here: a
backend's schedule chooses those. Example, `y = exp(x) * 2` over f32[8]:

    kernel(in0: f32[8], out0: f32[8]; s0: f32) grid(i: 8)
      map()
        out0[i] = mul(exp(in0[i]), s0)

Rules a backend may rely on
- A `Map` point computes all its values before it stores any of them.
- Every `Load` and `Store` is in bounds, or carries a guard that is false where it is not.
- An expression is a pure DAG: the same object means the same value.
- Every arithmetic `Prim` works in its own dtype and rounds once to it; half-width floats
  (f16, bf16) compute in f32 and round once per Prim.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import final

import numpy as np

from fxad.core.record import record, valued

Monoid = str  # add mul min max and or | argmin argmax (value cell, index cell)
INDEX = np.dtype("int64")


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
    """A scalar function; its dtype is the result's (comparisons give bool). See PRIMS."""

    name: str
    args: tuple[Expr, ...]
    dtype: np.dtype


@record
class Cast:
    """Convert with NUMERICS.md's rules (float to int saturates, NaN gives 0)."""

    arg: Expr
    dtype: np.dtype


Expr = Const | Param | Get | IndexValue | Load | Prim | Cast

# Scalar functions by arity. Integer division and shifts are total: x//0 = x%0 = 0, shifts by the
# width or more give 0. `rem` truncates like C. min/max propagate NaN, fmin/fmax ignore it.
PRIMS: dict[str, int] = {
    name: arity
    for arity, names in {
        1: """neg abs sign floor ceil trunc round sqrt rsqrt cbrt exp exp2 expm1 log log2 log1p
              sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma
              logistic is_finite is_nan not popcount clz square reciprocal real imag conj
              bitcast""",
        2: """add sub mul div rem pow atan2 min max fmin fmax and or xor shl shr_arith shr_logical
              eq ne lt le gt ge nextafter copysign complex mul_high""",
        3: "select fma",
    }.items()
    for name in names.split()
}


# ---------------------------------------------------------------- stages


@record
class Store:
    """buffer[index] = value, where `guard` holds."""

    buffer: Buffer
    index: Index
    value: Expr
    guard: Expr | None = None


@record
class Map:
    """For every point of `axes`: compute all values, then store them."""

    axes: tuple[Axis, ...]
    stores: tuple[Store, ...]


@record
class Reduce:
    """Combine `values` over all points of `over` into `cells`.

    The order is part of the meaning (results are bit-identical whatever the schedule):
    "lanes":  64 partial results; the point whose position along the last axis of `over` is j
              goes to partial j mod 64, points visited in row-major order of `over`; partials
              start at the identity and are combined by halving: p[l] = p[l] + p[l + h] for
              h = 32, 16, 8, 4, 2, 1.
    "serial": one partial, points visited in row-major order of `over`.
    argmin/argmax take one value and fill two cells (value, i64 position in row-major order of
    `over`); the first of equal values wins, the first NaN wins over everything.
    A product or sum over no points is the identity.
    """

    over: tuple[Axis, ...]
    monoid: Monoid
    values: tuple[Expr, ...]
    cells: tuple[Cell, ...]
    order: str = "serial"


@record
class Scan:
    """Running combination along `axis` (from the end if `reverse`), serial order.

    At each position the accumulator is combined with `value`, then `stores` run; they read the
    accumulator through Get(cell).
    """

    axis: Axis
    monoid: Monoid
    value: Expr
    cell: Cell
    stores: tuple[Store, ...]
    reverse: bool = False


@record
class Scatter:
    """For points of `over` in row-major order: buffer[index] = buffer[index] monoid value.

    monoid "set" overwrites. The store's buffer has role inout.
    """

    over: tuple[Axis, ...]
    monoid: Monoid
    store: Store


@record
class Sort:
    """Stable ascending sort along `axis` by the first `keys` of `operands`; NaN last.

    Operands are read at axis = j; store r writes the r-th operand of sorted position j through
    Get(cells[r]).
    """

    axis: Axis
    keys: int
    operands: tuple[Expr, ...]
    cells: tuple[Cell, ...]
    stores: tuple[Store, ...]


@record
class Operand:
    """A matrix operand: buffer elements at an index affine in the contraction's axes."""

    buffer: Buffer
    index: Index


@record
class Contract:
    """cell[m, n] = sum over k of a[m, k] * b[k, n], then the epilogue's stores at (m, n).

    Batch axes are the kernel's grid; m, n, k belong to the stage. `a` is affine in grid, m, k and
    `b` in grid, k, n, with any strides. Products of f16 and bf16 accumulate in f32: cell.dtype is
    the accumulator's dtype. Order over k: K is cut into equal blocks of at most 768 (rounded up
    to a multiple of 16, the last one shorter); each block is summed in order of k by FMA from 0,
    and the blocks are added in order. The epilogue reads Get(cell) and may Load anything affine
    in grid, m and n.
    """

    m: Axis
    n: Axis
    k: Axis
    a: Operand
    b: Operand
    cell: Cell
    stores: tuple[Store, ...]


Stage = Map | Reduce | Scan | Scatter | Sort | Contract


@record
class Kernel:
    """Buffers and scalars in call order; one run of `body` per point of `grid`.

    `where`: the equations it came from, as "op @ file:line" lines (not part of its identity).
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    grid: tuple[Axis, ...]
    body: tuple[Stage, ...]
    where: tuple[str, ...] = ()

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Scratch buffers met in the body; they are not call arguments."""
        found: dict[Buffer, None] = {}
        for stage in self.body:
            for store in stores_of(stage):
                if store.buffer.role == "scratch":
                    found[store.buffer] = None
        return tuple(found)

    @property
    def points(self) -> int:
        return math.prod(a.extent for a in self.grid)

    @property
    def kind(self) -> str:
        """map, row (Reduce and Map over a common axis), contract, scan, scatter or sort."""
        kinds = {type(stage) for stage in self.body}
        for stage, name in (
            (Contract, "contract"),
            (Sort, "sort"),
            (Scatter, "scatter"),
            (Scan, "scan"),
            (Reduce, "row"),
        ):
            if stage in kinds:
                return name
        return "map"


# ---------------------------------------------------------------- walking


def stores_of(stage: Stage) -> tuple[Store, ...]:
    match stage:
        case Scatter():
            return (stage.store,)
        case Reduce():
            return ()
        case _:
            return stage.stores


def exprs_of(stage: Stage) -> tuple[Expr, ...]:
    """The root expressions of a stage, guards of stores included."""
    roots: list[Expr] = []
    match stage:
        case Reduce():
            roots += stage.values
        case Scan():
            roots.append(stage.value)
        case Sort():
            roots += stage.operands
        case _:
            pass
    for store in stores_of(stage):
        roots.append(store.value)
        if store.guard is not None:
            roots.append(store.guard)
    return tuple(roots)


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct sub-expressions, those inside indices included."""
    match expr:
        case Prim():
            return expr.args
        case Cast():
            return (expr.arg,)
        case Load():
            extra = tuple(e for e in (expr.guard, expr.fill) if e is not None)
            return (*_index_exprs(expr.index), *extra)
        case IndexValue():
            return _index_exprs(expr.index)
        case _:
            return ()


def _index_exprs(index: Index) -> tuple[Expr, ...]:
    found: list[Expr] = []
    for atom, _ in index.terms:
        if isinstance(atom, Data):
            found.append(atom.value)
        elif isinstance(atom, Quot | Rem):
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
        stack.append((expr, True))
        stack += [(c, False) for c in reversed(children(expr))]


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
        case Load() | IndexValue():
            below = (axes_of(e) for e in children(item))
            return axes_of(item.index).union(*below)
        case _:
            return frozenset().union(*(axes_of(e) for e in children(item)))
