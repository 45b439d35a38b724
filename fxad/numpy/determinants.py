"""Determinants whose derivatives exist at singular matrices too.

d det(A) = tr(adj(A) dA), and the adjugate adj(A) is a polynomial in the entries of A: it needs no
inverse.
"""

from __future__ import annotations

from typing import Any

from fxad.api.custom import custom_jvp
from fxad.ir.program import OPS
from fxad.numpy import elementwise as e
from fxad.numpy import reductions
from fxad.numpy.creation import arange, diagonal, eye, ones
from fxad.numpy.manipulation import matrix_transpose
from fxad.numpy.selection import take_along_axis
from fxad.trace.array import Array


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


_PAIRS = {2: [(0, 1)], 3: [(1, 2), (2, 0), (0, 1)]}


@custom_jvp
def factored(a: Array) -> Array:
    """The determinant of matrices [..., n, n], by LU."""
    sign, size = OPS["slogdet"](a)
    return sign * e.exp(size)


@factored.defjvp
def _factored_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    cofactors = matrix_transpose(_adjugate(primals[0]))
    return factored(primals[0]), reductions.sum(cofactors * tangents[0], (-2, -1))


def _adjugate(a: Array) -> Array:
    """det(a) inv(a), also where a is singular; [..., n, n].

    By a = P^T L U with only the last pivot u of U zero, if a's rank is n - 1: let V be U with 1 for
    u, then adj(U) = p V^-1 diag(u, ..., u, 1), p the product of the other pivots. The column of the
    first zero pivot is a sum of those before it: it moves to the end, so its pivot is the last. If
    others are zero even so, the rank is below n - 1 and the adjugate is zero.
    """
    places = arange(a.shape[-1])
    end = a.shape[-1] - 1
    zero = diagonal(OPS["lu"](OPS["stop_gradient"](a))[0], axis1=-2, axis2=-1) == 0
    moved = e.where(zero.any(-1), zero.argmax(-1), end)[..., None]
    order = e.where(places < moved, places, e.where(places == end, moved, places + 1))
    back = e.where(places < moved, places, e.where(places == moved, end, places - 1))

    lu, swaps, perm = OPS["lu"](take_along_axis(a, order[..., None, :], -1))
    pivots = diagonal(lu, axis1=-2, axis2=-1)
    odd = (reductions.sum(swaps != places, -1) + end - moved[..., 0]) % 2
    product = reductions.prod(pivots[..., :-1], -1) * e.where(odd, -1, 1)
    scale = e.where(places == end, 1, pivots[..., -1:])
    corner = (places == end) & (places == end)[:, None]
    regular = (product != 0)[..., None, None]
    # chosen before the division by pivots: the derivatives of a NaN that is left out are NaN
    upper = e.where(regular & ~corner, lu, eye(end + 1, dtype=a.dtype))
    rows = (perm[..., None] == places).astype(a.dtype)
    inner = OPS["triangular_solve"](lu, rows, lower=True, unit=True) * scale[..., None]
    outer = OPS["triangular_solve"](upper, inner, lower=False, unit=False)
    return take_along_axis(outer * product[..., None, None], back[..., None], -2)
