"""`fxad.lax.linalg`: factorisations with `jax.lax.linalg`'s names and orders of results.

v, w = eigh(a)      # vectors first, unlike fxad.numpy.linalg.eigh
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.lax.loops import scan
from fxad.numpy import householder, linalg
from fxad.numpy.core import asarray, promoted
from fxad.numpy.creation import arange, tril, triu, zeros_like
from fxad.numpy.elementwise import abs, conj, where
from fxad.numpy.functional import vectorize
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import broadcast_to, matrix_transpose, moveaxis
from fxad.numpy.products import matmul
from fxad.numpy.reductions import argmax
from fxad.numpy.selection import take_along_axis
from fxad.trace.array import Array


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangle L with x = L L^H; NaN where x is not positive definite."""
    return linalg.cholesky(x, symmetrize_input=symmetrize_input)


def _only(name: str, **given: Any) -> None:
    """Raise BadArgument for a keyword that is not None or False, the one meaning it has."""
    for keyword, value in given.items():
        if value is not None and value is not False:
            raise BadArgument(f"{name}: {keyword}={value!r} is not here; leave it out")


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: None = None,
    implementation: Any = None,
) -> tuple[Array, Array]:
    """(eigenvectors as columns, ascending eigenvalues) of a Hermitian matrix. `implementation` is
    accepted and ignored."""
    _only("eigh", subset_by_index=subset_by_index)
    values, vectors = linalg.eigh(x, "L" if lower else "U", symmetrize_input)
    return vectors, values


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, Array]:
    """(q, r) with x = q r; q is square if full_matrices. `use_magma` is accepted and ignored."""
    _only("qr", pivoting=pivoting)
    q, r = linalg.qr(x, "complete" if full_matrices else "reduced")
    return q, r


def householder_product(a: Any, taus: Any) -> Array:
    """Q's first n columns of the reflections that a [..., m, n], m >= n, and taus [..., n] hold:
    what `fxad.numpy.linalg.qr(mode="raw")` gives, transposed."""
    packed, scales = promoted(
        "householder_product", a, taus, inexact=True, numbers=False, broadcast=False
    )
    _check_reflections("householder_product", packed, scales)
    return vectorize(householder.product, signature="(m,n),(k)->(m,n)")(packed, scales)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Array:
    """Q c (left) or c Q for the square Q of reflections (see `householder_product`); Q^H in its
    place where `transpose`."""
    packed, scales, other = promoted(
        "ormqr", a, taus, c, inexact=True, numbers=False, broadcast=False
    )
    _check_reflections("ormqr", packed, scales)
    if other.ndim < 2 or other.shape[-2 if left else -1] != packed.shape[-2]:
        raise ShapeError(f"ormqr: Q of {packed.type} and c of {other.type} do not go together")
    applied = partial(householder.applied, left=left, adjoint=transpose)
    return vectorize(applied, signature="(m,n),(k),(p,q)->(p,q)")(packed, scales, other)


def _check_reflections(name: str, packed: Array, taus: Array) -> None:
    """Raises ShapeError."""
    if packed.ndim < 2 or packed.shape[-2] < packed.shape[-1]:
        raise ShapeError(f"{name}: expects at least as many rows as columns, not {packed.type}")
    if taus.shape[:-1] != packed.shape[:-2] or taus.shape[-1] > packed.shape[-1]:
        raise ShapeError(f"{name}: {taus.type} are no factors for the columns of {packed.type}")


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: None = None,
    algorithm: Any = None,
) -> Any:
    """(u, s, v^H), or s alone without compute_uv. `algorithm` is accepted and ignored."""
    _only("svd", subset_by_index=subset_by_index)
    return linalg.svd(x, full_matrices, compute_uv)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """x with op(a) x = b (left_side) or x op(a) = b, for a triangular a.

    op transposes and conjugates a as asked. Leading axes are batches and must be equal. b may
    lack its last axis (left_side) or its second to last one.
    """
    matrix, right = promoted("triangular_solve", a, b, inexact=True, numbers=False, broadcast=False)
    if matrix.ndim < 2 or right.ndim not in (matrix.ndim, matrix.ndim - 1):
        raise ShapeError(f"triangular_solve: {matrix.type} and {right.type} do not go together")
    vector = right.ndim == matrix.ndim - 1
    shape = right.shape
    if vector:
        wide = (*shape, 1) if left_side else (*shape[:-1], 1, shape[-1])
        right = OPS["reshape"](right, shape=wide)
    if conjugate_a:
        matrix = conj(matrix)
    # x op(a) = b is op(a)^T x^T = b^T.
    if transpose_a is left_side:
        matrix, lower = matrix_transpose(matrix), not lower
    if not left_side:
        right = matrix_transpose(right)
    out = OPS["triangular_solve"](matrix, right, lower=lower, unit=unit_diagonal)
    out = out if left_side else matrix_transpose(out)
    return OPS["reshape"](out, shape=shape) if vector else out


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """x with A x = b, for A with the diagonals dl (below), d and du (above), without pivoting.

    dl, d, du: [..., n], with dl[..., 0] and du[..., -1] not used. b, x: [..., n, k]. Raises
    ShapeError for others.
    """
    name = "tridiagonal_solve"
    _only(name, perturb_singular=perturb_singular)
    values = promoted(name, dl, d, du, b, inexact=True, numbers=False, broadcast=False)
    *diagonals, right = values
    if any(v.shape != right.shape[:-1] for v in diagonals) or right.ndim < 2:
        seen = ", ".join(str(v.type) for v in values)
        raise ShapeError(f"{name}: expected three arrays [..., n] and one [..., n, k], got {seen}")
    rows = [moveaxis(v, -1, 0)[..., None] for v in diagonals], moveaxis(right, -2, 0)

    def down(above: tuple, row: tuple) -> tuple:
        (low, middle, up), r = row
        ratio, x = above
        pivot = middle - low * ratio
        below = up / pivot, (r - low * x) / pivot
        return below, below

    def back(below: Array, row: tuple) -> tuple:
        ratio, x = row
        solved = x - ratio * below
        return solved, solved

    first = zeros_like(rows[0][0][0]), zeros_like(rows[1][0])
    out = scan(back, first[1], scan(down, first, rows)[1], reverse=True)[1]
    return moveaxis(out, 0, -2)


# ---------------------------------------------------------------- LU, eigenvectors


def lu(x: Any) -> tuple[Array, Array, Array]:
    """Of square matrices [..., n, n]: L and U in one matrix (L has a unit diagonal), pivots
    [..., n] (row k was swapped with row pivots[k]), and the order of rows [..., n] with
    x[order] = L U."""
    (value,) = promoted("lu", x, inexact=True, numbers=False)
    return OPS["lu"](value)


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The order [..., permutation_size] of rows after swapping row k with row pivots[..., k], for
    one k after the other."""
    swaps = asarray(pivots)
    if not swaps.ndim or swaps.shape[-1] > permutation_size:
        raise ShapeError(
            f"lu_pivots_to_permutation: {swaps.type} are no pivots of {permutation_size} rows"
        )
    rows = arange(permutation_size, dtype=swaps.dtype)

    def swap(order: Array, pair: tuple[Array, Array]) -> tuple[Array, None]:
        k, other = pair
        mine, theirs = take_along_axis(order, k, -1), take_along_axis(order, other, -1)
        return where(rows == k, theirs, where(rows == other, mine, order)), None

    others = moveaxis(swaps, -1, 0)[..., None]
    firsts = broadcast_to(rows[: swaps.shape[-1]].reshape((-1, *(1,) * swaps.ndim)), others.shape)
    start = broadcast_to(rows, (*swaps.shape[:-1], permutation_size))
    return scan(swap, start, (firsts, others))[0]


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = True,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """[eigenvalues, left, right eigenvectors] of square matrices, complex, in no order; columns
    have norm 1, and u^H x = value u^H. Left ones are those of the inverse of the right ones, so
    they are not finite where there are too few. The last three arguments change nothing.
    """
    values, right = linalg.eig(x)
    found = [values]
    if compute_left_eigenvectors:
        left = conj(matrix_transpose(linalg.inv(right)))
        left = left / linalg.norm(left, axis=-2, keepdims=True)
        largest = take_along_axis(left, argmax(abs(left), -2, keepdims=True), -2)
        found.append(left * conj(largest) / abs(largest))
    return [*found, right] if compute_right_eigenvectors else found


# ---------------------------------------------------------------- updates


def symmetric_product(
    a_matrix: Any,
    c_matrix: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """alpha a a^T + beta c, of a [..., n, k] and a symmetric c [..., n, n]. With
    `symmetrize_output` the upper triangle is that of the lower one."""
    a, c = promoted(
        "symmetric_product", a_matrix, c_matrix, inexact=True, numbers=False, broadcast=False
    )
    out = alpha * matmul(a, matrix_transpose(a)) + beta * c
    return tril(out) + matrix_transpose(tril(out, -1)) if symmetrize_output else out


def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """The upper triangle S, with a positive diagonal, with S^T S = r^T r + w w^T, for an upper
    triangle r [..., n, n] and w [..., n] of real numbers. From the QR factors of r above w^T, so
    that nothing is squared."""
    r, w = promoted(
        "cholesky_update", r_matrix, w_vector, inexact=True, numbers=False, broadcast=False
    )
    if r.shape[:-1] != w.shape or r.shape[-1:] != w.shape[-1:]:
        raise ShapeError(f"cholesky_update: {r.type} and {w.type} do not go together")
    _, upper = linalg.qr(concatenate([triu(r), w[..., None, :]], -2))
    signs = where(linalg.diagonal(upper) < 0, -1, 1).astype(r.dtype)
    return upper * signs[..., None]
