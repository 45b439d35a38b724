"""`fxad.scipy.linalg`: factorisations, solvers and functions of matrices under SciPy's names.

x = cho_solve(cho_factor(a), b)     expm(a)     solve_triangular(l, b, lower=True)

Leading axes are batches unless said otherwise. A matrix that cannot be factored gives NaN.

SciPy's hints (`overwrite_a`, `check_finite`, `debug`, `lwork`, `turbo`, `lapack_driver`) are
accepted, as in JAX, and change nothing.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax.loops import fori_loop
from fxad.numpy import (
    abs,
    arange,
    argsort,
    asarray,
    ceil,
    concatenate,
    conj,
    eye,
    log2,
    matmul,
    matrix_transpose,
    max,
    reshape,
    sqrt,
    sum,
    tril,
    triu,
    where,
    zeros,
)
from fxad.numpy import linalg as _linalg
from fxad.numpy.core import promoted, result_shape, spread_to
from fxad.numpy.linalg import pinv as pinv
from fxad.trace.array import Array


def _matrix(name: str, a: Any, square: bool = True) -> Array:
    (value,) = promoted(name, a, inexact=True, numbers=False)
    if value.ndim < 2 or (square and value.shape[-1] != value.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"{name}: expects {kind} in the last two axes, got {value.type}")
    return value


def _adjoint(a: Array) -> Array:
    return conj(matrix_transpose(a)) if dt.is_complex(a.dtype) else matrix_transpose(a)


# ---------------------------------------------------------------- triangular systems


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """x with op(T) @ x = b, T one triangle of a; op: none, transpose (1, "T") or adjoint (2, "C").

    A one-dimensional b is one vector; other b are matrices of columns.
    """
    left, right = promoted("solve_triangular", a, b, inexact=True, numbers=False, broadcast=False)
    left = _matrix("solve_triangular", left)
    kinds = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    if trans not in kinds:
        raise BadArgument(
            f"solve_triangular: trans must be 0, 1, 2, 'N', 'T' or 'C', got {trans!r}"
        )
    if kinds[trans]:
        left = _adjoint(left) if kinds[trans] == 2 else matrix_transpose(left)
        lower = not lower
    vector = right.ndim == 1
    if right.ndim == 0 or right.shape[0 if vector else -2] != left.shape[-1]:
        raise ShapeError(f"solve_triangular: {left.type} and {right.type} do not go together")
    right = reshape(right, (*right.shape, 1)) if vector else right
    lead = result_shape("solve_triangular", [left.shape[:-2], right.shape[:-2]])
    out = OPS["triangular_solve"](
        spread_to(left, (*lead, *left.shape[-2:])),
        spread_to(right, (*lead, *right.shape[-2:])),
        lower=bool(lower),
        unit=bool(unit_diagonal),
    )
    return reshape(out, out.shape[:-1]) if vector else out


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """Upper U with U^H @ U = a, or with `lower` L with L @ L^H = a; only that triangle is read."""
    return _linalg.cholesky(a, upper=not lower, symmetrize_input=False)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """A Cholesky factor and whether it is the lower one, for cho_solve."""
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """x with a @ x = b, from cho_factor(a)."""
    factor, lower = c_and_lower
    first, second = ("N", "C") if lower else ("C", "N")
    return solve_triangular(factor, solve_triangular(factor, b, first, lower), second, lower)


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """x with a @ x = b. `assume_a`: "gen", "sym", "her", or "pos" for positive definite a."""
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise BadArgument(f"solve: assume_a must be gen, sym, her or pos, got {assume_a!r}")
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower), b)
    return _linalg.solve(a, b)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant. See numpy.linalg.det."""
    return _linalg.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse; NaN where a is singular."""
    return _linalg.inv(a)


def solve_banded(l_and_u: tuple[int, int], ab: Any, b: Any) -> Array:
    """x with a @ x = b, a banded: ab[u + i - j, j] = a[i, j]. For one matrix; a is made dense."""
    low, high = l_and_u
    bands, right = promoted("solve_banded", ab, b, inexact=True, numbers=False, broadcast=False)
    if bands.ndim != 2 or bands.shape[0] != low + high + 1:
        raise ShapeError(
            f"solve_banded: ab must be [{low + high + 1}, n] for l, u = {low}, {high}; "
            f"got {bands.type}"
        )
    size = bands.shape[1]
    rows, columns = np.indices((size, size))
    band = high + rows - columns
    inside = (band >= 0) & (band < bands.shape[0])
    dense = bands[np.where(inside, band, 0), columns]
    return _linalg.solve(where(asarray(inside), dense, 0), right)


# ---------------------------------------------------------------- LU


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """L and U in one square matrix (L has a unit diagonal), and pivots: row k was swapped with
    row pivots[k]."""
    both, pivots, _ = OPS["lu"](_matrix("lu_factor", a))
    return both, pivots


def _permutation(pivots: Array) -> Array:
    """The order of rows after all swaps, one after the other."""

    def swap(k: Array, order: Array) -> Array:
        other = pivots[k]
        first, second = order[k], order[other]
        return order.at[k].set(second).at[other].set(first)

    return fori_loop(0, pivots.shape[0], swap, arange(pivots.shape[0], dtype=pivots.dtype))


def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """x with op(a) @ x = b, from lu_factor(a); for one matrix. trans: 0, 1 or 2 as in LAPACK."""
    both, pivots = lu_and_piv
    order = _permutation(asarray(pivots))
    right = asarray(b)
    if trans == 0:
        half = solve_triangular(both, right[order], lower=True, unit_diagonal=True)
        return solve_triangular(both, half)
    half = solve_triangular(both, right, trans)
    out = solve_triangular(both, half, trans, lower=True, unit_diagonal=True)
    return out[argsort(order)]


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """a = P @ L @ U of square matrices; (P @ L, U) with `permute_l`."""
    both, _, perm = OPS["lu"](_matrix("lu", a))
    size = both.shape[-1]
    low = tril(both, -1) + eye(size, dtype=both.dtype)
    swap = (arange(size)[:, None] == perm[..., None, :]).astype(both.dtype)
    return (matmul(swap, low), triu(both)) if permute_l else (swap, low, triu(both))


# ---------------------------------------------------------------- other factorisations


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """a = Q @ R: "full" (square Q), "economic" or "r" (R alone). See numpy.linalg.qr."""
    if pivoting:
        raise BadArgument("qr: there is no column pivoting; pass pivoting=False")
    kinds = {"full": "complete", "economic": "reduced", "r": "r"}
    if mode not in kinds:
        raise BadArgument(f"qr: mode must be full, economic or r, got {mode!r}")
    out = _linalg.qr(a, kinds[mode])
    return (out,) if mode == "r" else tuple(out)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """a = (U * s) @ Vh, or s alone."""
    return _linalg.svd(a, full_matrices, compute_uv)


def svdvals(a: Any) -> Array:
    """Descending singular values."""
    return _linalg.svdvals(a)


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Ascending eigenvalues and eigenvectors of Hermitian matrices; reads one triangle."""
    if b is not None or eigvals is not None or type != 1:
        raise BadArgument(
            "eigh: only the whole spectrum of a @ v = w * v is computed: b and eigvals must be "
            "None and type 1"
        )
    values, vectors = _linalg.eigh(a, "L" if lower else "U")
    return values if eigvals_only else (values, vectors)


def polar(
    a: Any,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """a = U @ P (or P @ U for side "left"): U with orthonormal columns, P positive semidefinite.

    Through singular values, whatever the three options of an iteration say.
    """
    if side not in ("right", "left"):
        raise BadArgument(f"polar: side must be right or left, got {side!r}")
    u, s, vh = _linalg.svd(a, full_matrices=False)
    middle = (vh, _adjoint(vh)) if side == "right" else (_adjoint(u), u)
    return matmul(u, vh), matmul(middle[1] * s[..., None, :].astype(u.dtype), middle[0])


# ---------------------------------------------------------------- functions of matrices

# Numerator of exp's diagonal Pade approximant of order 13 (Higham 2005)
_PADE = [
    math.comb(13, k) * math.factorial(26 - k) // math.factorial(13) for k in range(14)
]  # over 26! / 13!, cleared of denominators
_PADE_NORM = 5.371920351148152  # up to this 1-norm the approximant is exact to f64


def _pade(a: Array) -> Array:
    """exp of matrices with small norm."""
    scale = float(_PADE[0])
    c = [k / scale for k in _PADE]
    unit = eye(a.shape[-1], dtype=a.dtype)
    a2 = matmul(a, a)
    a4 = matmul(a2, a2)
    a6 = matmul(a4, a2)
    odd = matmul(a6, c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2
    odd = matmul(a, odd + c[1] * unit)
    even = matmul(a6, c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2
    even = even + c[0] * unit
    return _linalg.solve(even - odd, even + odd)


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Matrix exponential, by scaling and squaring (Higham 2005).

    Norms up to 5.4 * 2**max_squarings; NaN beyond. upper_triangular: only that triangle is read.
    """
    value = _matrix("expm", A)
    value = triu(value) if upper_triangular else value
    size = max(sum(abs(value), -2), -1, initial=0.0)
    steps = ceil(log2(where(size > _PADE_NORM, size / _PADE_NORM, 1.0)))
    steps = OPS["stop_gradient"](steps)[..., None, None]
    start = _pade(value * (0.5**steps).astype(value.dtype))

    def squared(k: Array, power: Array) -> Array:
        return where(k < steps, matmul(power, power), power)

    out = fori_loop(0, max_squarings, squared, start)
    return where(steps <= max_squarings, out, math.nan)


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """x with A @ x + x @ B = C. Costs (m * n)**3 for A [m, m] and B [n, n]: for small matrices.

    One direct method, whatever `method` and `tol` say.
    """
    values = promoted("solve_sylvester", A, B, C, inexact=True, numbers=False, broadcast=False)
    return OPS["sylvester"](*values)


@custom_jvp
def _sqrtm(a: Array) -> Array:
    """Through the eigenvectors, and one step of Newton's iteration."""
    values, vectors = _linalg.eig(a)
    scaled = vectors * sqrt(values)[..., None, :]
    root = matrix_transpose(_linalg.solve(matrix_transpose(vectors), matrix_transpose(scaled)))
    better = 0.5 * (root + _linalg.solve(root, a.astype(root.dtype)))
    return where(better == better, better, root)


@_sqrtm.defjvp
def _sqrtm_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """X dX + dX X = dA."""
    root = _sqrtm(primals[0])
    return root, OPS["sylvester"](root, root, tangents[0].astype(root.dtype))


def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root, complex, of matrices that can be diagonalised."""
    if blocksize != 1:
        raise BadArgument(f"sqrtm: blocksize must be 1, got {blocksize!r}")
    return _sqrtm(_matrix("sqrtm", A))


# ---------------------------------------------------------------- special matrices


def block_diag(*arrs: Any) -> Array:
    """Matrices along the diagonal of a larger one, zeros elsewhere."""
    if not arrs:
        return zeros((1, 0))
    blocks = promoted("block_diag", *arrs, numbers=False, broadcast=False)
    if builtins.any(b.ndim > 2 for b in blocks):
        raise ShapeError("block_diag: takes matrices, vectors and numbers")
    blocks = [reshape(b, (1, b.size)) if b.ndim < 2 else b for b in blocks]
    width = builtins.sum(b.shape[1] for b in blocks)
    rows, start = [], 0
    for block in blocks:
        height, own = block.shape
        left = zeros((height, start), block.dtype)
        right = zeros((height, width - start - own), block.dtype)
        rows.append(concatenate([left, block, right], 1))
        start += own
    return concatenate(rows, 0)


def toeplitz(c: Any, r: Any = None) -> Array:
    """The matrix with constant diagonals, first column c and first row r (conj(c) by default)."""
    first = asarray(c)
    column, row = promoted(
        "toeplitz", first, conj(first) if r is None else r, numbers=False, broadcast=False
    )
    column, row = reshape(column, (-1,)), reshape(row, (-1,))
    line = concatenate([column[::-1], row[1:]])
    m, n = column.shape[0], row.shape[0]
    return line[np.arange(m - 1, -1, -1)[:, None] + np.arange(n)]


def hilbert(n: int) -> Array:
    """1 / (i + j + 1)."""
    at = arange(n)
    return 1 / (at[:, None] + at + 1.0)
