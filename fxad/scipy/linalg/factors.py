"""Factorisations and linear systems.

x = cho_solve(cho_factor(a), b)     q, r = qr(a)     solve_triangular(l, b, lower=True)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax import linalg as _lax_linalg
from fxad.numpy import (
    arange,
    argsort,
    asarray,
    conj,
    diag,
    eye,
    matmul,
    matrix_transpose,
    reshape,
    take_along_axis,
    tril,
    triu,
    where,
)
from fxad.numpy import linalg as _linalg
from fxad.numpy.core import promoted, result_shape, spread_to
from fxad.scipy.linalg.checks import matrix
from fxad.trace.array import Array


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
    left = matrix("solve_triangular", left)
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
    """L and U in one matrix (L has a unit diagonal), and pivots: row k was swapped with row
    pivots[k]."""
    both, pivots, _ = _lax_linalg.lu(matrix("lu_factor", a, square=False))
    return both, pivots


def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """x with op(a) @ x = b, from lu_factor(a). trans: 0, 1 or 2 as in LAPACK.

    b [..., n] is a vector where it has one dimension, or one less than a; other b [..., n, k] are
    matrices of columns.
    """
    both, pivots = lu_and_piv
    order = _lax_linalg.lu_pivots_to_permutation(pivots, np.shape(both)[-1])
    right = asarray(b)
    vector = right.ndim in (1, np.ndim(both) - 1)
    right = right[..., None] if vector else right
    if trans not in (0, 1, 2):
        raise BadArgument(f"lu_solve: trans must be 0, 1 or 2, got {trans!r}")
    if right.ndim < 2 or right.shape[-2] != np.shape(both)[-1]:
        raise ShapeError(f"lu_solve: factors {np.shape(both)} and {np.shape(b)} do not go together")
    if trans == 0:
        half = solve_triangular(both, _rows(right, order), lower=True, unit_diagonal=True)
        out = solve_triangular(both, half)
    else:
        half = solve_triangular(both, right, trans)
        half = solve_triangular(both, half, trans, lower=True, unit_diagonal=True)
        out = _rows(half, argsort(order))
    return out[..., 0] if vector else out


def _rows(a: Array, order: Array) -> Array:
    """Matrices' rows in another order each: a[..., order, :]."""
    lead = result_shape("lu_solve", [a.shape[:-2], order.shape[:-1]])
    rows = spread_to(order, (*lead, order.shape[-1]))
    return take_along_axis(spread_to(a, (*lead, *a.shape[-2:])), rows[..., None], -2)


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """a [..., m, n] = P @ L @ U, with L [..., m, k] and U [..., k, n] of k = min(m, n); (P @ L, U)
    with `permute_l`."""
    both, _, perm = _lax_linalg.lu(matrix("lu", a, square=False))
    rows, size = both.shape[-2], min(both.shape[-2:])
    low = tril(both[..., :size], -1) + eye(rows, size, dtype=both.dtype)
    up = triu(both[..., :size, :])
    swap = (arange(rows)[:, None] == perm[..., None, :]).astype(both.dtype)
    return (matmul(swap, low), up) if permute_l else (swap, low, up)


# ---------------------------------------------------------------- other factorisations


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """a = Q @ R: "full" (square Q), "economic" or "r" (R alone). See numpy.linalg.qr.

    With `pivoting` a[:, p] = Q @ R, and p comes last: at each step the column goes first that has
    the largest norm left, so that the diagonal of R falls in size.
    """
    kinds = {"full": "complete", "economic": "reduced", "r": "r"}
    if mode not in kinds:
        raise BadArgument(f"qr: mode must be full, economic or r, got {mode!r}")
    if pivoting:
        q, r, order = _lax_linalg.qr(a, pivoting=True, full_matrices=mode == "full")
        if mode == "r":  # as high as a: what is below the triangle is zero
            r = _lax_linalg.qr(a, pivoting=True, full_matrices=True)[1]
            return r, order
        return q, r, order
    out = _linalg.qr(a, kinds[mode])
    return (out,) if mode == "r" else tuple(out)


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Any:
    """(c @ Q, R), or with mode="left" (Q @ c, R), for a = Q @ R; with `pivoting` the order of
    columns comes last. `conjugate` takes conj(Q). A vector c is one row, or one column.

    >>> a, b = jnp.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), jnp.array([1.0, 3.0, 5.0])
    >>> onto, r = qr_multiply(a, b)
    >>> solve_triangular(r, onto)
    Array([1.       , 1.9999998], dtype=float32)
    """
    if mode not in ("left", "right"):
        raise BadArgument(f"qr_multiply: mode must be left or right, got {mode!r}")
    left, right = promoted("qr_multiply", a, c, inexact=True, numbers=False, broadcast=False)
    q, r, *order = qr(left, mode="economic", pivoting=pivoting)
    q = conj(q) if conjugate else q
    vector = right.ndim == 1
    if vector:
        right = reshape(right, (-1, 1) if mode == "left" else (1, -1))
    inner = (q.shape[-1], right.shape[-2]) if mode == "left" else (right.shape[-1], q.shape[-2])
    if inner[0] != inner[1]:
        raise ShapeError(
            f"qr_multiply: Q of {q.type} and c of {asarray(c).type} do not go together"
        )
    out = matmul(q, right) if mode == "left" else matmul(right, q)
    return (reshape(out, (-1,)) if vector else out, r, *order)


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


def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """Ascending eigenvalues, and eigenvectors unless `eigvals_only`, of the symmetric matrix with
    diagonal d [n] and the diagonal e [n - 1] beside it. select: "a" all, or "i" those numbered from
    select_range[0] to select_range[1], both included.

    The matrix is made dense; `tol` and `key`, of iterations, change nothing.

    >>> eigh_tridiagonal(jnp.array([2.0, 2.0]), jnp.array([1.0]), eigvals_only=True)
    Array([1., 3.], dtype=float32)
    """
    main, beside = promoted("eigh_tridiagonal", d, e, inexact=True, numbers=False, broadcast=False)
    if main.ndim != 1 or beside.shape != (max(main.shape[0] - 1, 0),):
        raise ShapeError(
            f"eigh_tridiagonal: expects vectors of n and n - 1 numbers, got {main.type}, "
            f"{beside.type}"
        )
    if select not in ("a", "i"):
        raise BadArgument(
            f"eigh_tridiagonal: select must be a or i, got {select!r}; how many values lie in a "
            "range (v) is not known before they are computed"
        )
    values, vectors = _linalg.eigh(diag(main) + diag(beside, -1) + diag(beside, 1))
    if select == "i":
        if select_range is None:
            raise BadArgument("eigh_tridiagonal: select='i' needs select_range=(first, last)")
        chosen = slice(int(select_range[0]), int(select_range[1]) + 1)
        values, vectors = values[chosen], vectors[:, chosen]
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
