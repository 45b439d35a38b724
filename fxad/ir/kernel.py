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
from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np

from fxad.core.dtypes import is_bool, short_name
from fxad.core.errors import CheckError
from fxad.core.record import record
from fxad.ir.expr import (
    Axis,
    Buffer,
    Cast,
    Cell,
    Const,
    Data,
    Expr,
    Get,
    Index,
    IndexValue,
    Load,
    Param,
    Prim,
    Quot,
    Rem,
    Scalar,
    at,
    axes_of,
    children,
    quotient,
    remainder,
    walk,
)
from fxad.ir.prims import PRIMS, truth

__all__ = [
    "INDEX",
    "Attention",
    "AttentionGrad",
    "Axis",
    "Buffer",
    "Cast",
    "Cell",
    "Const",
    "Contract",
    "Data",
    "Expr",
    "Get",
    "Index",
    "IndexValue",
    "Kernel",
    "Load",
    "Map",
    "Monoid",
    "Operand",
    "Packed",
    "Param",
    "Prim",
    "Quot",
    "Reduce",
    "Rem",
    "Scalar",
    "Scan",
    "Scatter",
    "Sort",
    "Stage",
    "Store",
    "Unpack",
    "at",
    "axes_of",
    "bound_axes",
    "cells_of",
    "children",
    "exprs_of",
    "operands_of",
    "quotient",
    "remainder",
    "stores_of",
    "walk",
]

Monoid = str  # add mul min max and or | argmin argmax (value cell, index cell)
INDEX = np.dtype("int64")


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

    largest: the one operand is sorted from its largest element down, still stable, and stored for
    the positions of this (shorter) axis; a second cell holds where along `axis` an element was.
    """

    axis: Axis
    keys: int
    operands: tuple[Expr, ...]
    cells: tuple[Cell, ...]
    stores: tuple[Store, ...]
    largest: Axis | None = None

    @property
    def stored(self) -> Axis:
        """The axis that the stores run over."""
        return self.axis if self.largest is None else self.largest


@record
class Packed:
    """How a matrix of `dtype` is kept in a few bits: `ir.packed` has the formats. The buffer of an
    operand holds its codes; the index is that of an element of a matrix with so many columns."""

    format: str
    columns: int
    dtype: np.dtype
    scales: Buffer


@record
class Operand:
    """A matrix operand: buffer elements at an index affine in the contraction's axes.

    rounded: the dtype that a product rounds them to before it multiplies; None: they stay.
    packed: how they are to be unpacked; None: they are elements.
    """

    buffer: Buffer
    index: Index
    rounded: np.dtype | None = None
    packed: Packed | None = None

    @property
    def dtype(self) -> np.dtype:
        """Of the factors."""
        if self.packed is not None:
            return self.packed.dtype
        return self.rounded or self.buffer.dtype


@record
class Contract:
    """cell[m, n] = sum over k of a[m, k] * b[k, n], then the epilogue's stores at (m, n).

    Batch axes are the kernel's grid; m, n, k belong to the stage. `a` is affine in grid, m, k and
    `b` in grid, k, n, with any strides. Products of f16 and bf16 accumulate in f32: cell.dtype is
    the accumulator's dtype. Order over k: K is cut into equal blocks of at most 768 (rounded up
    to a multiple of 16, the last one shorter); each block is summed in order of k by FMA from 0,
    and the blocks are added in order. A target with tiles sums bf16 products in steps of 32
    instead (backend/llvm/contract/amx.py says how), unless it is `skinny`: a bf16 product of at
    most 8 rows or columns, counted before any went to the grid. The epilogue reads Get(cell) and
    may Load anything affine in grid, m and n. streaming: nothing reads the results soon, so
    non-temporal stores may write them.
    """

    m: Axis
    n: Axis
    k: Axis
    a: Operand
    b: Operand
    cell: Cell
    stores: tuple[Store, ...]
    skinny: bool = False
    streaming: bool = False


@record
class Unpack:
    """out = the elements of `source`, which is packed, for every column of a row (a grid point)."""

    columns: Axis
    source: Operand
    out: Operand


@record
class Attention:
    """Softmax attention of one grid point (a batch element and a query head).

    For every row i the keys j with lower <= j < upper (clamped to the keys there are) are seen:

        score[i, j] = sum over c in depth of q[i, c] * k[j, c]
        x[i, j]     = logit                      (an Expr over Get(score), rows and keys)
        lse[i]      = log(sum over seen j of exp(x[i, j]))
        out[i, e]   = sum over seen j of exp(x[i, j] - lse[i]) * v[j, e]

    A row that sees no key has out 0 and lse -inf. `lower` and `upper` grow with `rows` by 0 or 1
    per row, or are read from arrays (Data), whose numbers must not fall from row to row. Sums over
    c and over j are in order, in blocks that depend on the sizes and, where bounds are read, on
    these; the sums over j are relative to the largest x so far. Unseen keys beside seen ones may
    add exact zeros. Operands are affine; q, k, v, out are contiguous along depth or width. All
    buffers have the score's dtype, f32 or f64.
    """

    rows: Axis
    keys: Axis
    depth: Axis
    width: Axis
    q: Operand
    k: Operand
    v: Operand
    score: Cell
    logit: Expr
    lower: Index
    upper: Index
    out: Operand
    lse: Operand


@record
class AttentionGrad:
    """The cotangents of `Attention` for one grid point (a batch element and a key head, or a part
    of its queries: then dk and dv are that part's).

    For every query head of `group`, with d_out the cotangent of out and delta[i] the sum over e
    of d_out[i, e] * out[i, e]:

        p[i, j]  = exp(logit - lse[i]) for seen keys, else 0
        ds[i, j] = p[i, j] * (sum over e of d_out[i, e] * v[j, e] - delta[i]) * slope
        dq[i, c] = sum over j of ds[i, j] * k[j, c]
        dk[j, c] = sum over group, i of ds[i, j] * q[i, c]
        dv[j, e] = sum over group, i of p[i, j] * d_out[i, e]

    slope: the derivative of logit by score. Sums over group and i go in order, in blocks of rows
    that depend on the sizes only.
    """

    forward: Attention  # its out stands for d_out
    group: Axis
    delta: Operand
    slope: Expr
    dq: Operand
    dk: Operand
    dv: Operand


Stage = Map | Reduce | Scan | Scatter | Sort | Contract | Unpack | Attention | AttentionGrad


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

    def __str__(self) -> str:
        return kernel_text(self)

    @property
    def kind(self) -> str:
        """map, row (Reduce and Map over one axis), contract, attention, scan, scatter or sort."""
        kinds = {type(stage) for stage in self.body}
        for stage, name in (
            (Contract, "contract"),
            (Unpack, "unpack"),
            (Attention, "attention"),
            (AttentionGrad, "attention"),
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
        case Reduce() | Unpack() | Attention() | AttentionGrad():
            return ()
        case _:
            return stage.stores


def operands_of(stage: Stage) -> tuple[Operand, ...]:
    """Matrices that a stage reads or writes, those it reads first; scales follow what is packed."""
    match stage:
        case Contract():
            return *_with_scales(stage.a), *_with_scales(stage.b)
        case Unpack():
            return *_with_scales(stage.source), stage.out
        case Attention():
            return stage.q, stage.k, stage.v, stage.out, stage.lse
        case AttentionGrad():
            return *operands_of(stage.forward), stage.delta, stage.dq, stage.dk, stage.dv
    return ()


def _with_scales(operand: Operand) -> tuple[Operand, ...]:
    if operand.packed is None:
        return (operand,)
    return operand, Operand(operand.packed.scales, Index())


def bound_axes(stage: Stage) -> tuple[Axis, ...]:
    """The axes that a stage loops over itself; others are its kernel's grid."""
    match stage:
        case Map():
            return stage.axes
        case Reduce() | Scatter():
            return stage.over
        case Scan():
            return (stage.axis,)
        case Sort():
            return (stage.axis,) if stage.largest is None else (stage.axis, stage.largest)
        case Contract():
            return stage.m, stage.n, stage.k
        case Unpack():
            return (stage.columns,)
        case Attention():
            return stage.rows, stage.keys, stage.depth, stage.width
        case AttentionGrad():
            return stage.group, *bound_axes(stage.forward)


def cells_of(stage: Stage) -> tuple[Cell, ...]:
    """The cells that a stage gives values to."""
    match stage:
        case Reduce() | Sort():
            return stage.cells
        case Scan() | Contract():
            return (stage.cell,)
    return ()


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
        case Attention():
            roots += (stage.logit, *_read_bounds(stage))
        case AttentionGrad():
            roots += (stage.forward.logit, stage.slope, *_read_bounds(stage.forward))
        case _:
            pass
    for store in stores_of(stage):
        roots.append(store.value)
        if store.guard is not None:
            roots.append(store.guard)
    return tuple(roots)


def _read_bounds(stage: Attention) -> tuple[Expr, ...]:
    """What bounds of visible keys are read from arrays."""
    terms = (*stage.lower.terms, *stage.upper.terms)
    return tuple([atom.value for atom, _ in terms if isinstance(atom, Data)])


# ---------------------------------------------------------------- text
# Names come from positions alone, so two kernels that differ only in names (or in the equations
# they came from) print alike. A value used twice is printed once, as `v0 =`.

N = TypeVar("N", Axis, Buffer, Scalar, Cell)
_DEPTH = 12  # nesting of one printed line
_AXIS_NAMES = "ijklmnopqrstuvwxyzabcdefgh"


_NAMEABLE = (Prim, Cast, Load, IndexValue)  # expressions that may get a line of their own


def kernel_text(kernel: Kernel) -> str:
    """The kernel as readable text. Raises CheckError for an axis, buffer or cell never declared."""
    return _Printer(kernel).text()


class _Printer:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.axes: dict[Axis, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.roles: dict[str, int] = {}  # number of the last buffer of each
        self.scalars = {scalar: f"s{i}" for i, scalar in enumerate(kernel.scalars)}
        self.cells: dict[Cell, str] = {}
        self.values: dict[int, str] = {}  # expressions already printed on a line of their own
        self.count = 0
        self.lines: list[str] = []

    def text(self) -> str:
        kernel = self.kernel
        params = ", ".join(self._declare(buffer) for buffer in kernel.buffers)
        scalars = ", ".join(f"{n}: {short_name(s.dtype)}" for s, n in self.scalars.items())
        head = f"kernel({params}{'; ' if scalars else ''}{scalars}) grid({self._bind(kernel.grid)})"
        scratch = [f"  scratch {self._declare(buffer)}" for buffer in kernel.scratch]
        self.lines = [head, *scratch]
        for stage in kernel.body:
            self._stage(stage)
        return "\n".join(self.lines) + "\n"

    def _declare(self, buffer: Buffer) -> str:
        prefix = "t" if buffer.role == "scratch" else buffer.role
        number = self.roles[buffer.role] = self.roles.get(buffer.role, -1) + 1
        self.buffers[buffer] = f"{prefix}{number}"
        return f"{prefix}{number}: {short_name(buffer.dtype)}[{buffer.size}]"

    def _bind(self, axes: Iterable[Axis]) -> str:
        for axis in axes:
            turn, letter = divmod(len(self.axes), len(_AXIS_NAMES))
            self.axes.setdefault(axis, _AXIS_NAMES[letter] + (str(turn) if turn else ""))
        return ", ".join(f"{self.axes[axis]}: {axis.extent}" for axis in axes)

    def _cell(self, cell: Cell) -> str:
        self.cells.setdefault(cell, f"c{len(self.cells)}")
        return f"{self.cells[cell]}: {short_name(cell.dtype)}"

    # ------------------------------------------------------------ stages

    def _stage(self, stage: Stage) -> None:
        self.values = {}
        head = self._head(stage)  # binds the axes and cells that the lines below name
        at = len(self.lines)
        self._share(exprs_of(stage))
        body = self._operands(stage)
        self.lines.insert(at, f"  {head}")
        self.lines += [f"    {line}" for line in body]
        self.lines += [f"    {self._store(store)}" for store in stores_of(stage)]

    def _head(self, stage: Stage) -> str:
        match stage:
            case Map():
                return f"map({self._bind(stage.axes)})"
            case Reduce():
                cells = ", ".join(map(self._cell, stage.cells))
                over = self._bind(stage.over)
                return f"{cells} = reduce {stage.monoid} {stage.order} over({over})"
            case Scan():
                back = " reverse" if stage.reverse else ""
                axis = self._bind((stage.axis,))
                return f"{self._cell(stage.cell)} = scan {stage.monoid} along({axis}){back}"
            case Scatter():
                return f"scatter {stage.monoid} over({self._bind(stage.over)})"
            case Sort():
                cells = ", ".join(map(self._cell, stage.cells))
                text = f"{cells} = sort along({self._bind((stage.axis,))}) keys {stage.keys}"
                if stage.largest is None:
                    return text
                return f"{text} largest({self._bind((stage.largest,))})"
            case Contract():
                axes = f"m {self._bind((stage.m,))}, n {self._bind((stage.n,))}"
                axes += f", k {self._bind((stage.k,))}"
                marks = " skinny" * stage.skinny + " streaming" * stage.streaming
                return f"{self._cell(stage.cell)} = contract({axes}){marks}"
            case Unpack():
                return f"unpack({self._bind((stage.columns,))})"
            case Attention():
                return self._attention(stage)
            case AttentionGrad():
                return f"{self._attention(stage.forward)} grad group({self._bind((stage.group,))})"
        raise CheckError(f"kernel {self.kernel.name}: not a stage: {stage!r}")

    def _attention(self, stage: Attention) -> str:
        axes = f"rows {self._bind((stage.rows,))}, keys {self._bind((stage.keys,))}"
        axes += f", depth {self._bind((stage.depth,))}, width {self._bind((stage.width,))}"
        return f"{self._cell(stage.score)} = attention({axes})"

    def _attention_lines(self, stage: Attention) -> list[str]:
        sides = {"q": stage.q, "k": stage.k, "v": stage.v, "out": stage.out, "lse": stage.lse}
        return [
            *(f"{n} {self._place(x.buffer, x.index)}" for n, x in sides.items()),
            f"logit {self._expr(stage.logit)}",
            f"from {self._index(stage.lower)} to {self._index(stage.upper)}",
        ]

    def _operands(self, stage: Stage) -> list[str]:
        match stage:
            case Reduce():
                return [f"of {self._expr(value)}" for value in stage.values]
            case Scan():
                return [f"of {self._expr(stage.value)}"]
            case Sort():
                return [f"of {self._expr(value)}" for value in stage.operands]
            case Contract():
                return [f"of {self._factor(side)}" for side in (stage.a, stage.b)]
            case Unpack():
                out = self._place(stage.out.buffer, stage.out.index)
                return [f"{out} = {self._factor(stage.source)}"]
            case Attention():
                return self._attention_lines(stage)
            case AttentionGrad():
                more = {"delta": stage.delta, "dq": stage.dq, "dk": stage.dk, "dv": stage.dv}
                return [
                    *self._attention_lines(stage.forward),
                    *(f"{n} {self._place(x.buffer, x.index)}" for n, x in more.items()),
                    f"slope {self._expr(stage.slope)}",
                ]
            case _:
                return []

    def _factor(self, operand: Operand) -> str:
        place = self._place(operand.buffer, operand.index)
        if (packed := operand.packed) is not None:
            scales = self._named(self.buffers, packed.scales)
            kept = f"{packed.format}({place} of {packed.columns} columns, {scales})"
            return f"{short_name(packed.dtype)}({kept})"
        return place if operand.rounded is None else f"{short_name(operand.rounded)}({place})"

    def _store(self, store: Store) -> str:
        guard = f"if {self._expr(store.guard)}: " if store.guard is not None else ""
        return f"{guard}{self._place(store.buffer, store.index)} = {self._expr(store.value)}"

    # ------------------------------------------------------------ expressions

    def _share(self, roots: tuple[Expr, ...]) -> None:
        """Print every value that is used more than once, before the first use.

        Deeply nested values get lines of their own too: lines stay short and recursion shallow.
        """
        order = [(expr, [id(child) for child in children(expr)]) for expr in walk(*roots)]
        uses: dict[int, int] = {}  # a Counter takes several times as long
        for inner in ([id(root) for root in roots], *[inner for _, inner in order]):
            for child in inner:
                uses[child] = uses.get(child, 0) + 1
        depth: dict[int, int] = {}
        for expr, inner in order:
            depth[id(expr)] = 1 + max([depth[child] for child in inner], default=0)
            if not isinstance(expr, _NAMEABLE):
                continue
            if uses[id(expr)] > 1 or depth[id(expr)] > _DEPTH:
                text = self._expr(expr)
                depth[id(expr)] = 0
                self.values[id(expr)] = f"v{self.count}"
                self.lines.append(f"    v{self.count} = {text}")
                self.count += 1

    def _expr(self, expr: Expr) -> str:
        known = self.values.get(id(expr))
        if known is not None:
            return known
        match expr:
            case Const():
                return f"{short_name(expr.dtype)}({_number(expr.value, expr.dtype)})"
            case Param():
                return self._named(self.scalars, expr.scalar)
            case Get():
                return self._named(self.cells, expr.cell)
            case IndexValue():
                return f"{short_name(expr.dtype)}({self._index(expr.index)})"
            case Load():
                return self._load(expr)
            case Cast():
                return f"{short_name(expr.dtype)}<-{self._expr(expr.arg)}"
            case Prim():
                args = ", ".join(map(self._expr, expr.args))
                return f"{expr.name}{_result_dtype(expr)}({args})"
        raise CheckError(f"kernel {self.kernel.name}: not an expression: {expr!r}")

    def _load(self, load: Load) -> str:
        place = self._place(load.buffer, load.index)
        if load.guard is None:
            return place
        fill = self._expr(load.fill) if load.fill is not None else "nothing"
        return f"({place} if {self._expr(load.guard)} else {fill})"

    def _place(self, buffer: Buffer, index: Index) -> str:
        return f"{self._named(self.buffers, buffer)}[{self._index(index)}]"

    def _named(self, names: Mapping[N, str], item: N) -> str:
        try:
            return names[item]
        except KeyError:
            raise CheckError(
                f"kernel {self.kernel.name}: {type(item).__name__.lower()} {item.name!r} is used "
                "but neither the kernel nor an enclosing stage declares it"
            ) from None

    def _index(self, index: Index) -> str:
        terms = [
            self._atom(atom) if c == 1 else f"{c}*{self._atom(atom)}" for atom, c in index.terms
        ]
        if index.const or not terms:
            terms.append(str(index.const))
        return " + ".join(terms)

    def _atom(self, atom: Axis | Quot | Rem | Data) -> str:
        match atom:
            case Axis():
                return self._named(self.axes, atom)
            case Quot():
                return f"(({self._index(atom.index)}) // {atom.divisor})"
            case Rem():
                return f"(({self._index(atom.index)}) % {atom.divisor})"
            case Data():
                return f"data({self._expr(atom.value)}, {atom.size})"
        raise CheckError(f"kernel {self.kernel.name}: not an index atom: {atom!r}")


def _number(value: bool | int | float | complex, dtype: np.dtype) -> str:
    """Digits that tell any two values of the dtype apart, signed zeros included."""
    if is_bool(dtype):
        return str(bool(value)).lower()
    if isinstance(value, np.generic):
        value = value.item()
    return repr(value)


def _result_dtype(prim: Prim) -> str:
    """`:dtype` where the arguments do not tell the result's dtype."""
    if PRIMS[prim.name].result is truth:
        return "" if is_bool(prim.dtype) else f":{short_name(prim.dtype)}"
    same = prim.args[-1].dtype == prim.dtype if prim.args else False
    return "" if same else f":{short_name(prim.dtype)}"
