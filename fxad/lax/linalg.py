"""`fxad.lax.linalg`: factorisations with `jax.lax.linalg`'s names and orders of results.

v, w = eigh(a)      # vectors first, unlike fxad.numpy.linalg.eigh
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.lax.loops import scan
from fxad.numpy import householder, linalg
from fxad.numpy.core import promoted
from fxad.numpy.creation import zeros_like
from fxad.numpy.elementwise import conj
from fxad.numpy.functional import vectorize
from fxad.numpy.manipulation import matrix_transpose, moveaxis
from fxad.trace.array import Array


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangle L with x = L L^H; NaN where x is not positive definite."""
    return linalg.cholesky(x, symmetrize_input=symmetrize_input)


def eigh(
    x: Any, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True
) -> tuple[Array, Array]:
    """(eigenvectors as columns, ascending eigenvalues) of a Hermitian matrix."""
    values, vectors = linalg.eigh(x, "L" if lower else "U", symmetrize_input)
    return vectors, values


def qr(x: Any, *, full_matrices: bool = True) -> tuple[Array, Array]:
    """(q, r) with x = q r; q is square if full_matrices."""
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
    if taus.ndim < 1 or taus.shape[-1] > packed.shape[-1]:
        raise ShapeError(f"{name}: {taus.type} are more reflections than {packed.type} has columns")


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """(u, s, v^H), or s alone without compute_uv."""
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


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any) -> Array:
    """x with A x = b, for A with the diagonals dl (below), d and du (above), without pivoting.

    dl, d, du: [..., n], with dl[..., 0] and du[..., -1] not used. b, x: [..., n, k]. Raises
    ShapeError for others.
    """
    name = "tridiagonal_solve"
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
