"""`fxad.lax.linalg`: factorisations with `jax.lax.linalg`'s names and orders of results.

v, w = eigh(a)      # vectors first, unlike fxad.numpy.linalg.eigh
"""

from __future__ import annotations

from enum import Enum
from functools import cache, partial
from math import inf
from typing import Any

from fxad.api.compiled import interpreting
from fxad.api.custom import custom_jvp
from fxad.api.jit import jit
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.lax.loops import scan, while_loop
from fxad.lax.schur import schur_form
from fxad.numpy import householder, linalg
from fxad.numpy.core import asarray, promoted
from fxad.numpy.creation import arange, eye, tril, triu, zeros, zeros_like
from fxad.numpy.data_types import finfo
from fxad.numpy.elementwise import abs, cbrt, conj, minimum, real, sqrt, where
from fxad.numpy.functional import vectorize
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import broadcast_to, matrix_transpose, moveaxis
from fxad.numpy.products import matmul
from fxad.numpy.reductions import argmax, sum
from fxad.numpy.selection import take_along_axis
from fxad.trace.array import Array
from fxad.trace.tracer import staging

_LARGE_LU = 1 << 10  # elements of matrices from which compiling pays off


class EigImplementation(Enum):
    """What may compute `eig`: accepted, and LAPACK whichever is named."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(Enum):
    """What may compute `eigh`: accepted, and the same whichever is named."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(Enum):
    """What may compute `svd`: accepted, and the same whichever is named."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


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
) -> Any:
    """(q, r) with x = q r; q is square if full_matrices. With `pivoting` (q, r, p) with x[:, p] =
    q r, where the diagonal of r falls in size. `use_magma` is accepted and ignored."""
    if pivoting:
        (value,) = promoted("qr", x, inexact=True, numbers=False)
        if value.ndim < 2:
            raise ShapeError(f"qr: expects matrices, got {value.type}")
        factored = vectorize(
            partial(_pivoted_qr, full=full_matrices), signature="(m,n)->(m,k),(k,n),(n)"
        )
        return factored(value)
    q, r = linalg.qr(x, "complete" if full_matrices else "reduced")
    return q, r


def _pivoted_qr(a: Array, full: bool) -> tuple[Array, Array, Array]:
    rows, columns = a.shape
    packed, taus, order = householder.pivoted_qr(a)
    size = rows if full else min(rows, columns)
    unit = eye(rows, size, dtype=a.dtype)
    return householder.applied(packed, taus, unit, True, False), triu(packed[:size]), order


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


# ---------------------------------------------------------------- Hessenberg and Schur forms


def _square(name: str, a: Any) -> Array:
    (value,) = promoted(name, a, inexact=True, numbers=False)
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        raise ShapeError(f"{name}: expects square matrices in the last two axes, got {value.type}")
    return value


def hessenberg(a: Any) -> tuple[Array, Array]:
    """(packed, taus) of square matrices [..., n, n]: Hessenberg's form down to the first
    subdiagonal, and below it the reflections that lead to it (see `householder_product`), whose
    factors are taus [..., n - 1]."""
    packed = vectorize(householder.packed_hessenberg, signature="(n,n)->(n,n),(k)")
    return packed(_square("hessenberg", a))


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """(packed, d, e, taus) of Hermitian matrices [..., n, n], of which one triangle is read: the
    diagonal d and the diagonal e beside it of a tridiagonal matrix with the same eigenvalues, both
    real, and the reflections that lead to it, packed as by `hessenberg` (above the diagonal if not
    `lower`)."""
    value = _square("tridiagonal", a)
    # The other triangle is this one with rows and columns in reverse.
    value = value if lower else value[..., ::-1, ::-1]
    low = tril(value, -1)
    main = where(eye(value.shape[-1], dtype=bool), real(value), 0).astype(value.dtype)
    packed, taus = hessenberg(low + main + conj(matrix_transpose(low)))
    packed = tril(packed) + triu(value, 1)
    d, e = real(linalg.diagonal(packed)), real(linalg.diagonal(packed, offset=-1))
    if lower:
        return packed, d, e, taus
    return packed[..., ::-1, ::-1], d[..., ::-1], e[..., ::-1], taus[..., ::-1]


@custom_jvp
def _schur(a: Array) -> tuple[Array, Array]:
    return vectorize(schur_form, signature="(n,n)->(n,n),(n,n)")(a)


@_schur.defjvp
def _schur_jvp(primals: Any, tangents: Any) -> Any:
    raise TypeMismatch(
        "schur: has no derivative, as the order of eigenvalues is not determined; use eig, or eigh "
        "for a Hermitian matrix"
    )


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Any = None,
) -> Any:
    """(T, Q) with x = Q T Q^H of square matrices [..., n, n], or [T]: T is a triangle, for real x
    with a 2 by 2 block for each pair of complex eigenvalues (see fxad.lax.schur). The last two
    arguments change nothing. No derivative, as in JAX."""
    value = _square("schur", x)
    narrow = value.dtype.itemsize == 2
    t, q = _schur(value.astype("float32") if narrow else value)
    t, q = (v.astype(value.dtype) for v in (t, q)) if narrow else (t, q)
    return (t, q) if compute_schur_vectors else [t]


# ---------------------------------------------------------------- polar factors


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """(u, h, steps, whether it converged) of one matrix [m, n], m >= n, of full rank: x = u h, with
    orthonormal columns u and a positive definite h, by Halley's iteration with dynamic weights and
    QR factors (Y. Nakatsukasa, Z. Bai and F. Gygi 2010).

    At most max_iterations (10) steps, until one changes u by less than (4 eps)^(1/3) of it; eps is
    the dtype's. `is_hermitian` changes nothing.
    """
    (value,) = promoted("qdwh", x, inexact=True, numbers=False)
    _only("qdwh", dynamic_shape=dynamic_shape)
    if value.ndim != 2 or value.shape[0] < value.shape[1]:
        raise ShapeError(
            f"qdwh: expects one matrix with no fewer rows than columns, not {value.type}"
        )
    rows, columns = value.shape
    unit = finfo(value.dtype).eps if eps is None else eps
    # Bounds of the singular values: the largest from above, the smallest from below.
    largest = sqrt(linalg.norm(value, 1) * linalg.norm(value, inf))
    start = value / where(largest == 0, 1, largest)
    _, r = linalg.qr(start)
    smallest = 1 / (linalg.norm(linalg.inv(r), 1) * columns**0.5)
    tolerance = (4 * unit) ** (1 / 3)

    def step(state: tuple) -> tuple:
        u, low, steps, _ = state
        square = low * low
        root = cbrt(4 * (1 / square - 1) / square)
        a = sqrt(1 + root) + sqrt(8 - 4 * root + 8 * (2 - square) / (square * sqrt(1 + root))) / 2
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        scale = sqrt(c).astype(u.dtype)
        q, _ = linalg.qr(concatenate([scale * u, eye(columns, dtype=u.dtype)], 0))
        turned = matmul(q[:rows], conj(matrix_transpose(q[rows:])))
        moved = (b / c).astype(u.dtype) * u + ((a - b / c) / sqrt(c)).astype(u.dtype) * turned
        low = minimum(low * (a + b * square) / (1 + c * square), 1)
        settled = linalg.norm(moved - u) <= tolerance * linalg.norm(moved)
        return moved, low, steps + 1, settled

    limit = 10 if max_iterations is None else max_iterations
    zero = zeros((), "int32")
    first = (start, minimum(smallest, 1 - unit).astype(smallest.dtype), zero, zero != 0)
    u, _, steps, settled = while_loop(lambda s: (s[2] < limit) & ~s[3], step, first)
    # One step of Newton and Schulz makes columns orthonormal to the last digits.
    u = 1.5 * u - 0.5 * matmul(u, matmul(conj(matrix_transpose(u)), u))
    h = matmul(conj(matrix_transpose(u)), value)
    return u, (h + conj(matrix_transpose(h))) / 2, steps, settled


# ---------------------------------------------------------------- LU, eigenvectors


def lu(x: Any) -> tuple[Array, Array, Array]:
    """Of matrices [..., m, n]: L and U in one matrix (L has a unit diagonal), pivots
    [..., min(m, n)] (row k was swapped with row pivots[k]), and the order of rows [..., m] with
    x[order] = L U."""
    (value,) = promoted("lu", x, inexact=True, numbers=False)
    if value.ndim >= 2 and value.shape[-1] != value.shape[-2]:
        return vectorize(_rectangular_lu, signature="(m,n)->(m,n),(k),(m)")(value)
    if value.size >= _LARGE_LU and not (staging() or interpreting()):
        return _compiled_lu()(value)
    return OPS["lu"](value)


@cache
def _compiled_lu() -> Any:
    """Outside jit too, since its reference works column by column in Python."""
    return jit(OPS["lu"])


def _rectangular_lu(a: Array) -> tuple[Array, Array, Array]:
    """Column by column, with the largest element as pivot (Golub and Van Loan, 3.4.1)."""
    rows, columns = a.shape
    at_row, at_column = arange(rows, dtype="int32"), arange(columns)

    def step(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        a, order = state
        column = sum(where(at_column == k, a, 0), 1)
        pivot = argmax(where(at_row >= k, abs(column), -1)).astype("int32")
        swapped = where(at_row == k, pivot, where(at_row == pivot, k, at_row))
        a, order, column = a[swapped], order[swapped], column[swapped]
        own = sum(where(at_row == k, column, 0))
        below = where(at_row > k, column / where(own == 0, 1, own), 0)
        row = sum(where((at_row == k)[:, None], a, 0), 0)
        a = a - where(at_column > k, below[:, None] * row, 0)
        kept = (at_column == k) & (at_row > k)[:, None]
        return (where(kept, below[:, None], a), order), pivot

    count = arange(min(rows, columns), dtype="int32")
    (packed, order), pivots = scan(step, (a, at_row), count)
    return packed, pivots, order


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
