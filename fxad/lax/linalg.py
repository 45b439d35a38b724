"""`fxad.lax.linalg`: factorisations with `jax.lax.linalg`'s names and orders of results.

v, w = eigh(a)      # vectors first, unlike fxad.numpy.linalg.eigh
"""

from __future__ import annotations

from typing import Any

from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.numpy import linalg
from fxad.numpy.core import promoted
from fxad.numpy.elementwise import conj
from fxad.numpy.shaping import matrix_transpose
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
