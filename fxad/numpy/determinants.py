"""Determinants whose derivatives exist at singular matrices too.

d det(A) = tr(adj(A) dA), and the adjugate adj(A) is a polynomial in the entries of A: it needs no
inverse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fxad.api.custom import custom_jvp
from fxad.core.lazy import later
from fxad.ir.program import OPS
from fxad.numpy import elementwise as e
from fxad.numpy import reductions
from fxad.numpy.core import spread_to
from fxad.numpy.creation import arange, eye, ones, zeros, zeros_like
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import matrix_transpose
from fxad.trace.array import Array

if TYPE_CHECKING:
    from fxad.lax import branches
else:
    branches = later("fxad.lax.branches")

_PAIRS = {2: [(0, 1)], 3: [(1, 2), (2, 0), (0, 1)]}  # columns of the minors


def expanded(a: Array) -> Array:
    """The determinant of matrices [..., n, n] with n up to 3, along the first row."""
    size = a.shape[-1]
    if size == 0:
        return ones(a.shape[:-2], a.dtype)
    if size == 1:
        return a[..., 0, 0]
    *_, row, last = (a[..., i, :] for i in range(size))
    minor = {
        (i, j): row[..., i] * last[..., j] - row[..., j] * last[..., i] for i, j in _PAIRS[size]
    }
    if size == 2:
        return minor[0, 1]
    first = a[..., 0, :]
    return first[..., 0] * minor[1, 2] + first[..., 1] * minor[2, 0] + first[..., 2] * minor[0, 1]


@custom_jvp
def factored(a: Array) -> Array:
    """The determinant of matrices [..., n, n], by LU."""
    sign, size = OPS["slogdet"](a)
    return sign * e.exp(size)


@factored.defjvp
def _factored_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    value = factored(primals[0])
    cofactors = matrix_transpose(_adjugate(primals[0], value))
    return value, reductions.sum(cofactors * tangents[0], (-2, -1))


def _adjugate(a: Array, det: Array) -> Array:
    """adj(a) [..., n, n], of matrices whose determinants are known: det(a) inv(a) where that
    exists, for both come from the same pivots, however small the last one is."""
    regular = det != 0

    def of_regular(a: Array) -> Array:
        return _each(det) * _inverse(a)

    def of_any(a: Array) -> Array:
        # chosen before it is inverted: the derivatives of a NaN that is left out are NaN
        known = e.where(_each(regular), a, eye(a.shape[-1], dtype=a.dtype))
        return e.where(_each(regular), of_regular(known), _bordered(a))

    return branches.cond(reductions.all(regular), of_regular, of_any, a)


def _bordered(a: Array) -> Array:
    """adj(a) by the inverse of m = [[a, b], [b^T, 0]], which exists down to rank n - 1.

    Let its blocks be [[p, q], [r^T, s]]. Where a is regular, with t = -b^T inv(a) b, they are
    s = 1 / t, p = inv(a) + s inv(a) b b^T inv(a), q r^T = s^2 inv(a) b b^T inv(a), and
    det(m) = t det(a). So adj(a) = det(m) (s p - q r^T), polynomials on both sides, equal for all a.
    b: any vector that no usual matrix is orthogonal to, of the size of a's entries.
    """
    size = a.shape[-1]
    sizes = OPS["stop_gradient"](e.sqrt(reductions.mean(e.abs(a) ** 2, -1)))
    b = (0.7 + e.cos(1 + 2.4 * arange(size))) * reductions.max(sizes, -1, keepdims=True)
    corner = zeros((*b.shape[:-1], 1), b.dtype)
    column = concatenate([b, corner], -1)[..., None].astype(a.dtype)
    rows = concatenate([a, matrix_transpose(column[..., :-1, :])], -2)
    m = concatenate([rows, column], -1)
    det, inverse = factored(m), _inverse(m)
    p, q = inverse[..., :size, :size], inverse[..., :size, size:]
    r, s = inverse[..., size:, :size], inverse[..., size:, size:]
    return e.where(_each(det) != 0, _each(det) * (s * p - q * r), _of_low_rank(a))


@custom_jvp
def _of_low_rank(a: Array) -> Array:
    """The adjugate below rank n - 1: zero, with derivatives that are not known, so NaN."""
    return zeros_like(a)


@_of_low_rank.defjvp
def _of_low_rank_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _of_low_rank(primals[0]), tangents[0] * math.nan


def _inverse(a: Array) -> Array:
    return OPS["solve"](a, spread_to(eye(a.shape[-1], dtype=a.dtype), a.shape))


def _each(values: Array) -> Array:
    """A value for each matrix, against its entries."""
    return values[..., None, None]
