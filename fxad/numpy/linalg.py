"""`fxad.numpy.linalg`: systems, factorisations and norms of matrices in the last two axes.

x = linalg.solve(a, b)    u, s, vh = linalg.svd(m, full_matrices=False)    linalg.norm(m, "fro")

Leading axes are batches. Where NumPy raises LinAlgError for a matrix without a solution, results
here are NaN, since a compiled batch cannot stop for one of its lanes. Derivatives of any order
exist where the result is differentiable; docstrings say where a rule is missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.lazy import lazy as _lazy
from fxad.ir.program import OPS
from fxad.numpy import elementwise as e
from fxad.numpy import products, reductions
from fxad.numpy.core import (
    axes_tuple,
    axis_index,
    cast,
    promoted,
    result_shape,
    spread_to,
    value_of,
    vector_of,
)
from fxad.numpy.creation import diagonal as _diagonal
from fxad.numpy.creation import eye, tril, triu
from fxad.numpy.determinants import expanded, factored
from fxad.numpy.functional import vectorize
from fxad.numpy.householder import packed_qr
from fxad.numpy.manipulation import matrix_transpose as matrix_transpose
from fxad.numpy.manipulation import moveaxis, reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed

__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond",
    "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm",
    "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv",
    "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip

matmul, tensordot, vecdot = products.matmul, products.tensordot, products.vecdot


def outer(x1: Any, x2: Any, /) -> Array:
    """Products of all pairs of elements of two vectors; `numpy.outer` takes any shapes."""
    return products.outer(vector_of(x1, "linalg.outer"), vector_of(x2, "linalg.outer"))


# ---------------------------------------------------------------- arguments


def _inexact(name: str, a: Any) -> Array:
    (value,) = promoted(name, a, inexact=True, numbers=False)
    return value


def _square(name: str, a: Any) -> Array:
    value = _inexact(name, a)
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        raise ShapeError(
            f"{name}: expects square matrices in the last two axes, got shape {value.shape}"
        )
    return value


def _matrices(name: str, a: Any) -> Array:
    value = _inexact(name, a)
    if value.ndim < 2:
        raise ShapeError(f"{name}: expects matrices in the last two axes, got shape {value.shape}")
    return value


def _adjoint(a: Array) -> Array:
    flipped = matrix_transpose(a)
    return e.conj(flipped) if dt.is_complex(a.dtype) else flipped


def _from_triangle(a: Array, lower: bool) -> Array:
    """The Hermitian matrix one triangle of which is a's; imaginary diagonals do not count."""
    strict = tril(a, -1) if lower else triu(a, 1)
    kept = tril(triu(a)) if not dt.is_complex(a.dtype) else tril(triu((a + e.conj(a)) / 2))
    return strict + kept + _adjoint(strict)


# ---------------------------------------------------------------- systems


@replayed
def solve(a: Any, b: Any) -> Array:
    """x with a @ x = b. A one-dimensional b is one vector; other b are matrices of columns.

    Leading axes broadcast. NaN where a is singular.
    """
    left, right = promoted("solve", a, b, inexact=True, numbers=False, broadcast=False)
    left = _square("solve", left)
    if right.ndim == 0 or right.shape[max(right.ndim - 2, 0)] != left.shape[-1]:
        raise ShapeError(
            f"solve: a has shape {left.shape} and b {right.shape}: b must have "
            f"{left.shape[-1]} rows"
        )
    vector = right.ndim == 1
    right = reshape(right, (*right.shape, 1)) if vector else right
    lead = result_shape("solve", [left.shape[:-2], right.shape[:-2]])
    out = OPS["solve"](
        spread_to(left, (*lead, *left.shape[-2:])), spread_to(right, (*lead, *right.shape[-2:]))
    )
    return reshape(out, out.shape[:-1]) if vector else out


@replayed
def inv(a: Any) -> Array:
    """The inverse; NaN where a is singular."""
    value = _square("inv", a)
    return solve(value, eye(value.shape[-1], dtype=value.dtype))


@replayed
def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Array:
    """x with tensordot(a, x, x.ndim) == b; `axes` of a go to the end first."""
    left, right = value_of(a), value_of(b)
    if axes is not None:
        moved = [axis_index(i, left.ndim, "tensorsolve") for i in axes]
        order = (*(i for i in range(left.ndim) if i not in moved), *moved)
        left = OPS["transpose"](left, permutation=order)
    shape = left.shape[right.ndim :]
    if math.prod(shape) != right.size:
        raise ShapeError(f"tensorsolve: {left.type} and {right.type} make no square system")
    return reshape(solve(reshape(left, (right.size, -1)), reshape(right, (-1,))), shape)


@replayed
def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of tensordot(a, x, x.ndim), whose results have the first `ind` axes of a."""
    value = value_of(a)
    rows, columns = value.shape[:ind], value.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError(f"tensorinv: {value.type} is not square after {ind} axes")
    return reshape(inv(reshape(value, (math.prod(rows), -1))), (*columns, *rows))


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


@replayed
@gives_strong
def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Sign (a phase if complex) of the determinant, and the log of its absolute value.

    By LU, whichever `method` is asked for.
    """
    return SlogdetResult(*OPS["slogdet"](_square("slogdet", a)))


@replayed
@gives_strong
def det(a: Any) -> Array:
    """The determinant. Gradients are right at singular matrices too; higher derivatives may be NaN
    there for matrices larger than 3 x 3."""
    value = _square("det", a)
    return expanded(value) if value.shape[-1] <= 3 else factored(value)


def lstsq(
    a: Any, b: Any, rcond: float | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Least squares: x of least norm that minimises |a @ x - b|, residuals, rank of a, and its
    singular values; for one matrix a.

    There is a residual for each column of b. numpy_resid: they are empty, as NumPy's are, where a
    has no more rows than columns or, if its values are known, less than full rank.
    """
    left, right = promoted("lstsq", a, b, inexact=True, numbers=False, broadcast=False)
    if left.ndim != 2 or right.ndim not in (1, 2) or left.shape[0] != right.shape[0]:
        raise ShapeError(
            f"lstsq: expects a of shape [m, n] and b of [m] or [m, k], got {left.shape} and "
            f"{right.shape}"
        )
    x = products.matmul(pinv(left, rcond), right)
    rest = squares(right - products.matmul(left, x))
    residuals = reductions.sum(reshape(rest, (*right.shape, 1)[:2]), 0)
    values = svdvals(left)
    rank = _rank(left, values, rcond)
    rows, columns = left.shape
    lacking = isinstance(rank, Concrete) and int(rank) < columns
    if numpy_resid and (rows <= columns or lacking):
        residuals = residuals[:0]
    return x, residuals, rank, values


@replayed
@gives_strong
def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Array:
    """The Moore-Penrose inverse; singular values up to rtol (a number, or one for each matrix, also
    traced ones) times the largest count as 0.

    `hermitian` is accepted for NumPy's sake and changes nothing; `rcond` is rtol's older name.
    """
    rtol = rcond if rtol is None else rtol
    value = _matrices("pinv", a)
    if isinstance(rtol, Array | np.ndarray | np.generic):  # in one way, traced or not
        return _pinv_each(value, rtol)
    return OPS["pinv"](value, rtol=_cutoff(value) if rtol is None else float(rtol))


def _pinv_each(value: Array, rtol: Any) -> Array:
    u, values, vh = svd(value, full_matrices=False)
    kept = values > _each(rtol) * values[..., :1]
    inverse = e.where(kept, 1 / e.where(kept, values, 1.0), 0.0)
    return products.matmul(_adjoint(vh) * inverse[..., None, :], _adjoint(u))


def _each(rtol: Any) -> Array:
    """A tolerance for each matrix, against its singular values."""
    limit = value_of(rtol)
    return reshape(limit, (*limit.shape, 1))


def _cutoff(value: Array) -> float:
    """NumPy's default: the larger side times eps."""
    return max(value.shape[-2:]) * float(dt.finfo(value.dtype).eps)


def _rank(value: Array, values: Array, rtol: Any) -> Array:
    limit = _cutoff(value) if rtol is None else _each(rtol)
    return reductions.sum(values > limit * values[..., :1], -1)


@replayed
def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: None = None) -> Array:
    """Number of singular values above rtol (a number, or one for each matrix) times the largest.

    `hermitian` changes nothing. A vector that is not zero has rank 1. Raises BadArgument for `tol`,
    an absolute limit.
    """
    if tol is not None:
        raise BadArgument("matrix_rank: tol must be None; rtol is relative to the largest value")
    value = _inexact("matrix_rank", M)
    if value.ndim < 2:
        return cast(reductions.any(value != 0), dt.default_int())
    return _rank(value, svdvals(value), rtol)


@replayed
def cond(x: Any, p: Any = None) -> Array:
    """Condition number in the norm p (2 by default)."""
    value = _matrices("cond", x)
    if p is None or p in (2, -2):
        values = svdvals(value)
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    return matrix_norm(value, ord=p) * matrix_norm(inv(value), ord=p)


# ---------------------------------------------------------------- factorisations


@replayed
def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Lower L with L @ L^H = a, or its adjoint with `upper`; NaN if a is not positive definite.

    `symmetrize_input` factors (a + a^H) / 2, which gives symmetric gradients; without it only the
    lower (or upper) triangle of a is read, as NumPy does.
    """
    value = _square("cholesky", a)
    if not symmetrize_input:
        value = _from_triangle(value, not upper)
    low = OPS["cholesky"](value)
    return _adjoint(low) if upper else low


class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


def eig(a: Any) -> EigResult:
    """Complex eigenvalues, in no order, and eigenvectors of norm 1 in columns, whose largest
    components are real. Equal eigenvalues have derivatives, their vectors none."""
    return EigResult(*OPS["eig"](_square("eig", a)))


def eigvals(a: Any) -> Array:
    """Complex eigenvalues, in no order."""
    return eig(a).eigenvalues


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


@replayed
def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Ascending eigenvalues of a Hermitian matrix and its eigenvectors, in columns.

    (a + a^H) / 2 is taken; with `UPLO` ("L" or "U"), only that triangle of a.
    """
    value = _square("eigh", a)
    if UPLO not in (None, "L", "U"):
        raise BadArgument(f"eigh: UPLO must be 'L' or 'U', got {UPLO!r}")
    if UPLO is not None or not symmetrize_input:
        value = _from_triangle(value, UPLO != "U")
    return EighResult(*OPS["eigh"](value))


@replayed
def eigvalsh(a: Any, UPLO: str | None = None, *, symmetrize_input: bool = True) -> Array:
    """Ascending eigenvalues of a Hermitian matrix."""
    return eigh(a, UPLO, symmetrize_input=symmetrize_input).eigenvalues


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: None = None,
) -> Any:
    """a = (U * S) @ Vh with descending S; without `compute_uv`, S alone.

    Full U and Vh have derivatives for square matrices only; thin ones always have. `hermitian`
    changes nothing. Raises BadArgument for a subset.
    """
    if subset_by_index is not None:
        raise BadArgument("svd: all singular values are computed: subset_by_index must be None")
    if not compute_uv:
        return svdvals(a)
    return SVDResult(*OPS["svd"](_matrices("svd", a), full=bool(full_matrices)))


@replayed
def svdvals(a: Any) -> Array:
    """Descending singular values."""
    return OPS["svd"](_matrices("svd", a), full=False)[1]


class QRResult(NamedTuple):
    Q: Array
    R: Array


def qr(a: Any, mode: str = "reduced") -> Any:
    """a = Q @ R; `mode` is "reduced", "complete" (a square Q), "r" (R alone), or "raw": (h, taus),
    where the transpose of h [..., n, m] holds R and the reflections as LAPACK's geqrf packs them.

    Derivatives: of reduced factors of matrices with at least as many rows as columns.
    """
    if mode not in ("reduced", "complete", "r", "raw"):
        raise BadArgument(f"qr: mode must be 'reduced', 'complete', 'r' or 'raw', got {mode!r}")
    if mode == "raw":
        packed, taus = vectorize(packed_qr, signature="(m,n)->(m,n),(k)")(_matrices("qr", a))
        return matrix_transpose(packed), taus
    q, r = OPS["qr"](_matrices("qr", a), complete=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


# ---------------------------------------------------------------- products


@replayed
def matrix_power(a: Any, n: int) -> Array:
    """a @ a @ ... (n times), by squaring; negative n takes the inverse."""
    value = _square("matrix_power", a) if n < 0 else a
    (value,) = promoted("matrix_power", value, numbers=False)
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        raise ShapeError(f"matrix_power: expects square matrices, got shape {value.shape}")
    power, count = (inv(value), -n) if n < 0 else (value, n)
    out = None
    while count:
        if count & 1:
            out = power if out is None else products.matmul(out, power)
        count >>= 1
        power = products.matmul(power, power) if count else power
    return spread_to(eye(value.shape[-1], dtype=value.dtype), value.shape) if out is None else out


@replayed
def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Array:
    """Product of several matrices (vectors at the ends allowed) in the cheapest order."""
    if len(arrays) < 2:
        raise BadArgument(f"multi_dot: expects at least two arrays, got {len(arrays)}")
    values = promoted("multi_dot", *arrays, numbers=False, broadcast=False)
    first, last = values[0].ndim == 1, values[-1].ndim == 1
    if first:
        values[0] = reshape(values[0], (1, -1))
    if last:
        values[-1] = reshape(values[-1], (-1, 1))
    if any(v.ndim != 2 for v in values):
        raise ShapeError("multi_dot: arrays between the ends must be matrices")
    splits = _splits([v.shape[0] for v in values] + [values[-1].shape[1]])
    out = _chain(values, splits, precision)
    shape = out.shape[1:] if first else out.shape
    return reshape(out, shape[:-1] if last else shape)


def _splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors i..j (Cormen et al., matrix-chain order)."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            choices = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], split[i, j] = min(choices)
    return split


def _chain(values: Sequence[Array], split: dict[tuple[int, int], int], precision: Any) -> Array:
    def run(i: int, j: int) -> Array:
        if i == j:
            return values[i]
        k = split[i, j]
        return products.matmul(run(i, k), run(k + 1, j), precision=precision)

    return run(0, len(values) - 1)


def diagonal(x: Any, /, *, offset: int = 0) -> Array:
    """Diagonals of the matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Sums of the diagonals of the matrices in the last two axes."""
    return products.trace(x, offset, -2, -1, dtype)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Cross products of vectors of length 3 along an axis (array API)."""
    x, y = promoted("cross", x1, x2, numbers=False, broadcast=False)
    sizes = [v.shape[axis_index(axis, v.ndim, "cross")] for v in (x, y)]
    if sizes != [3, 3]:
        raise ShapeError(
            f"cross: expects vectors of length 3 along axis {axis}, got shapes {x.shape} and "
            f"{y.shape}"
        )
    return products.cross(x, y, axis=axis)


# ---------------------------------------------------------------- norms


def squares(x: Array) -> Array:
    """|x|^2, real."""
    if dt.is_complex(x.dtype):
        return e.square(e.real(x)) + e.square(e.imag(x))
    return e.square(x)


@replayed
@gives_strong
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Array:
    """Norm of order `ord` over axes. The gradient of the 2-norm at 0 is 0."""
    (value,) = promoted("norm", x, inexact=True, numbers=False)
    if isinstance(ord, str):
        raise BadArgument(f"norm: ord={ord!r} is no norm of vectors; a number or inf is")
    if ord == 2:
        return reductions.safe_sqrt(reductions.sum(squares(value), axis, keepdims=keepdims))
    size = e.abs(value)
    if ord == math.inf:
        return _largest(size, axis, keepdims)
    if ord == -math.inf:
        return reductions.min(size, axis, keepdims=keepdims)
    if ord == 0:
        return reductions.sum(size != 0, axis, keepdims=keepdims).astype(size.dtype)
    if ord == 1:
        return reductions.sum(size, axis, keepdims=keepdims)
    return reductions.sum(size**ord, axis, keepdims=keepdims) ** (1.0 / ord)


def _largest(size: Array, axis: Any, keepdims: bool = False) -> Array:
    """The largest of non-negative numbers; 0 if there are none."""
    return reductions.max(size, axis, keepdims=keepdims, initial=None if size.size else 0)


@replayed
@gives_strong
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """Vector norm, or a matrix norm ("fro", "nuc", 1, 2, inf or negated) over two axes.

    The gradient of the 2-norm and of the Frobenius norm at 0 is 0.
    """
    (value,) = promoted("norm", x, inexact=True, numbers=False)
    if axis is None and ord is None:
        out = reductions.safe_sqrt(reductions.sum(squares(value)))
        return reshape(out, (1,) * value.ndim) if keepdims else out
    axes = axes_tuple(axis, value.ndim, "norm")
    if len(axes) == 2 and ord in ("fro", None):
        return reductions.safe_sqrt(reductions.sum(squares(value), axes, keepdims=keepdims))
    if len(axes) == 1:
        return vector_norm(value, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) == 2 and ord in (2, -2, "nuc"):
        return _spectral_norm(value, ord, axes if axis is None else tuple(axis), keepdims)
    if len(axes) != 2 or ord not in (1, -1, math.inf, -math.inf):
        raise ShapeError(f"norm: ord={ord!r} over {len(axes)} axes is not supported")
    rows, columns = axes if axis is None else tuple(a % value.ndim for a in axis)
    inner, outer_axis = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = reductions.sum(e.abs(value), inner, keepdims=True)
    pick = _largest if ord > 0 else reductions.min
    out = pick(sums, outer_axis, keepdims=True)
    if keepdims:
        return out
    return reshape(out, tuple(s for i, s in enumerate(value.shape) if i not in axes))


@replayed
@gives_strong
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norm of the matrices in the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def _spectral_norm(value: Array, ord: Any, axes: Sequence[int], keepdims: bool) -> Array:
    values = OPS["svd"](moveaxis(value, tuple(axes), (-2, -1)), full=False)[1]
    combine: Any = {2: _largest, -2: reductions.min, "nuc": reductions.sum}[ord]
    out = combine(values, -1)
    if not keepdims:
        return out
    kept = {a % value.ndim for a in axes}
    return reshape(out, tuple(1 if i in kept else n for i, n in enumerate(value.shape)))


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
