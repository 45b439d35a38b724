"""How an op's loop body is described to the lowering: the answers of an op's `loops` rule.

`loops(types, **params)` looks at the operands' types and parameters and returns one of these
records; `fxad.lower` turns them into Kernels. Operands are numbered from 0. A record that becomes a
stage of its own has the stage's name: `loops.Reduce` becomes a `kernel.Reduce`. A Scan combines
along an axis, as `cumsum` does; the op `scan` is a Loop, of a Block and then of a Plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir.kernel import Expr, Index
from fxad.ir.program import Eqn

Point = tuple[Index, ...]  # one index per axis


@record
class Pointwise:
    """out[i] = value(x0[i], x1[i], ...): operands have the output's shape or rank 0.

    known: code is better for knowing the numbers among the operands; others are its arguments.
    """

    value: Callable[..., Expr]
    known: bool = False


@record
class View:
    """out[i] = x[source(i)]; where guard(i) is false, operand 1 (a scalar) instead.

    Costs nothing: the reader's index is rewritten.
    """

    source: Callable[[Point], Point]
    guard: Callable[[Point], Expr | None] | None = None


@record
class Generate:
    """out[i] = value(i): no array operands (iota)."""

    value: Callable[[Point], Expr]


@record
class Indexed:
    """out[i] = value(i, read) with read(operand, point, guard=None, fill=None) -> Expr.

    For gathers, concatenation, dynamic slices: any operand may be read at any index.
    """

    value: Callable[[Point, Callable[..., Expr]], Expr]


@record
class Reduce:
    """Combine operand 0 along `axes` with a monoid of ir.kernel (argmin/argmax: index result)."""

    monoid: str
    axes: tuple[int, ...]


@record
class Contract:
    """Matrix product of operands 0 and 1: out axes = batch, then free axes of each.

    contract and batch: ((axes of operand 0), (axes of operand 1)). parts: more than 1 where the
    contracted axes are cut into so many equal parts, which become the result's first axis. The
    lowering sets it.
    """

    contract: tuple[tuple[int, ...], tuple[int, ...]]
    batch: tuple[tuple[int, ...], tuple[int, ...]]
    parts: int = 1


@record
class Unpack:
    """A matrix of so many columns from operand 0, its codes, and operand 1, the scales of blocks:
    see `ir.packed`."""

    format: str
    columns: int


@record
class Attention:
    """Softmax attention of operands q, k, v (`ops.attention.flash_attention`); with `backward` its
    cotangents from q, k, v, lse, delta, d_out. More operands are read by the functions.

    Query t sees keys t - left ... t + right; -1: all on that side. logit(score, (b, n, t, s), read)
    and its derivative by the score, slope((b, n, t, s), read).

    start((b, t), read), if given: the first key that a query may see; end((b, t), read): the one
    after the last. Integers that do not fall from query to query.

    parts: in how many parts the query heads that share a key head are taken, and the queries, when
    the cotangents of k and v are sums over parts: [parts, B, S, K, H]; the lowering sets it.
    key_parts: in how many equal parts the keys are taken forward; results are those of each part:
    [key_parts, B, T, N, H] and [key_parts, B, N, T].
    """

    backward: bool
    left: int
    right: int
    logit: Callable[[Expr, Point, Callable[..., Expr]], Expr]
    slope: Callable[[Point, Callable[..., Expr]], Expr]
    parts: tuple[int, int] = (1, 1)
    key_parts: int = 1
    start: Callable[[Point, Callable[..., Expr]], Expr] | None = None
    end: Callable[[Point, Callable[..., Expr]], Expr] | None = None


@record
class Scan:
    """Running combination of operand 0 along `axis`."""

    monoid: str
    axis: int
    reverse: bool = False


@record
class Sort:
    """Stable sort of all operands along `axis` by the first `keys` of them.

    largest: of one operand only so many, from the largest down, and (a second result) where they
    were; of equals the first comes first.
    """

    axis: int
    keys: int
    largest: int | None = None


@record
class Scatter:
    """out = operand 0, then for points of `loop` in order and of `window` in any order:
    out[target] = out[target] monoid read(update).

    The update operand's axes are enumerated by (parallel, serial): indices along `parallel`
    axes of the update never hit the same element. `target(point, read)` gives the output's
    point and a guard (or None) for an update's point.
    """

    monoid: str
    update: int
    serial: tuple[int, ...]
    target: Callable[[Point, Callable[..., Expr]], tuple[Point, Expr | None]]


@record
class Structured:
    """Control flow or a call: of the kinds `CONTROL` when lowering begins, and lowered by name."""

    kind: str


CONTROL = ("scan", "while", "cond", "tape_write", "tape_read", "tape_span")


@record
class HostCall:
    """Computed by a Python function on NumPy arrays in the middle of the plan."""

    function: Callable[..., object]


@record
class Factoring:
    """What a HostCall computes, for executors with code of their own for it: its function has this
    as the attribute `factoring`. Operands and results are `lanes` matrices of numbers of `dtype`.

    cholesky: rows x rows -> its lower factor. triangular_solve: rows x rows, rows x columns -> x,
    with the `lower` or upper triangle, `unit` with ones on its diagonal. solve: the same with a
    whole matrix. slogdet: rows x rows -> the determinant's sign, and the logarithm of its size. lu:
    rows x rows -> L and U in one matrix, rows exchanged and their order. qr:
    rows x columns -> orthogonal factors, the first with `basis` columns.
    """

    kind: str
    dtype: np.dtype
    lanes: int
    rows: int
    columns: int
    lower: bool = True
    unit: bool = False
    basis: int = 0


@record
class Fourier:
    """The same, for unscaled discrete Fourier transforms of an operand of a shape, over axes that
    are counted from the end. dtype: of the real and imaginary parts.

    fft: complex to complex, or its `inverse`. rfft: real to complex, of one axis. irfft: complex to
    real, whose one axis has `n` elements then.
    """

    kind: str
    dtype: np.dtype
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    inverse: bool = False
    n: int = 0


@record
class Alias:
    """The output is operand 0 itself (barriers, names): no code."""

    operand: int = 0


Loops = (
    Pointwise
    | View
    | Generate
    | Indexed
    | Reduce
    | Contract
    | Unpack
    | Attention
    | Scan
    | Sort
    | Scatter
    | Structured
    | HostCall
    | Alias
)

Rule = Callable[..., Loops | Sequence[Loops]]


def loops_of(eqn: Eqn) -> Any:
    """What an equation's op says about its loops: a record, or one for each result; None where it
    has no rule or an operand is no array (a tape)."""
    types = [a.type for a in eqn.inputs]
    if eqn.op.loops is None or not all(isinstance(t, ArrayType) for t in types):
        return None
    return eqn.op.loops(types, **eqn.params)
