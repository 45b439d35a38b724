"""Polynomials as vectors of coefficients, the highest power first.

polyval([1, 0, 2], x)       # x**2 + 2
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.promotion import result_type
from fxad.numpy import linalg
from fxad.numpy.convolutions import convolve
from fxad.numpy.core import asarray, cast, known_values, promoted, value_of
from fxad.numpy.creation import arange, eye, ones, vander, zeros, zeros_like
from fxad.numpy.elementwise import sqrt
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import broadcast_shapes, broadcast_to, reshape
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "roots",
]  # fmt: skip


@replayed
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The polynomial p[0] x^n + ... + p[n] by Horner's rule; 0 without coefficients.

    Raises ShapeError if p has no axis.

    >>> jnp.polyval(jnp.array([1, 2, 3]), 10)
    Array(123, dtype=int32)
    """
    coefficients, value = asarray(p), value_of(x)
    if not coefficients.ndim:
        raise ShapeError(f"polyval: coefficients need an axis, not {coefficients.type}")
    shape = broadcast_shapes(coefficients.shape[1:], value.shape)
    total = zeros(shape, result_type(coefficients, value))
    for i in range(coefficients.shape[0]):
        total = total * value + coefficients[i]
    return total


@replayed
def polyadd(a1: Any, a2: Any) -> Array:
    """Sum of two polynomials, highest power first.

    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([1, 0, 0]))
    Array([1, 1, 2], dtype=int32)
    """
    x, y = promoted("polyadd", asarray(a1), asarray(a2), broadcast=False)
    size = builtins.max(x.shape[0], y.shape[0])
    return _padded(x, size) + _padded(y, size)


@replayed
def polysub(a1: Any, a2: Any) -> Array:
    """Difference of two polynomials, highest power first.

    >>> jnp.polysub(jnp.array([1, 2]), jnp.array([1, 0, 0]))
    Array([-1,  1,  2], dtype=int32)
    """
    return polyadd(a1, -asarray(a2))


def _padded(value: Array, size: int) -> Array:
    return concatenate([zeros_like(value, shape=size - value.shape[0]), value])


@replayed
def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """Product of two polynomials, highest power first. trim_leading_zeros: without theirs, which
    must be known.

    >>> jnp.polymul(jnp.array([1, 1]), jnp.array([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    x, y = asarray(a1), asarray(a2)
    if trim_leading_zeros:
        x, y = (_without_leading("polymul", value, 0.0) for value in (x, y))
        x, y = (value if value.size else zeros(1, value.dtype) for value in (x, y))
    return convolve(x, y)


def _without_leading(name: str, value: Array, limit: float) -> Array:
    """A vector from its first element that is larger than `limit`."""
    known = known_values(value, name, "pass trim_leading_zeros=False")
    places = np.flatnonzero(~(np.abs(known) <= limit))  # NaN is no zero
    return value[int(places[0]) if places.size else value.size :]


@replayed
def polyder(p: Any, m: int = 1) -> Array:
    """m-th derivative of a polynomial, highest power first.

    >>> jnp.polyder(jnp.array([1, 2, 3]))
    Array([2., 2.], dtype=float32)
    """
    value = asarray(p)
    value = cast(value, dt.inexact_for(value.dtype))
    for _ in range(m):
        powers = arange(value.shape[0] - 1, 0, -1)
        value = value[:-1] * cast(powers, value.dtype)
    return value


@replayed
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """m-th antiderivative of a polynomial, highest power first; k: the constants (0), one for all
    or one per integration.

    >>> jnp.polyint(jnp.array([2.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    value = asarray(p)
    value = cast(value, dt.inexact_for(value.dtype))
    constants = zeros(m, value.dtype) if k is None else cast(asarray(k), value.dtype)
    constants = broadcast_to(constants, (m,))
    for i in range(m):
        powers = cast(arange(value.shape[0], 0, -1), value.dtype)
        value = concatenate([value / powers, constants[i : i + 1]])
    return value


@replayed
def poly(seq_of_zeros: Any) -> Array:
    """Coefficients of the polynomial with these roots, or of a matrix's characteristic one,
    highest power first and 1.

    Complex roots give complex coefficients, also where they come in pairs.

    >>> jnp.poly(jnp.array([1.0, 2.0]))  # (x - 1) (x - 2)
    Array([ 1., -3.,  2.], dtype=float32)
    """
    zeros_ = value_of(seq_of_zeros, "poly")
    if zeros_.ndim == 2 and zeros_.shape[0] == zeros_.shape[1] and zeros_.shape[0]:
        zeros_ = linalg.eigvals(zeros_)
    if zeros_.ndim > 1:
        raise ShapeError(f"poly: takes a vector of roots or a square matrix, not {zeros_.type}")
    zeros_ = reshape(cast(zeros_, dt.inexact_for(zeros_.dtype)), (-1,))
    out = ones(1, zeros_.dtype)
    for i in range(zeros_.shape[0]):
        out = concatenate([out, zeros(1, out.dtype)]) - concatenate(
            [zeros(1, out.dtype), out * zeros_[i]]
        )
    return out


def roots(p: Any, *, strip_zeros: bool = True) -> Array:
    """The complex roots of a polynomial, highest power first: eigenvalues of its companion matrix.

    strip_zeros: leading and trailing coefficients that are 0 are taken off, which traced values do
    not allow; without it the first coefficient must not be 0.

    >>> jnp.roots(jnp.array([1.0, -3.0, 2.0])).real.round(3)
    Array([2., 1.], dtype=float32)
    """
    coefficients = value_of(p, "roots")
    if coefficients.ndim != 1:
        raise ShapeError(f"roots: takes a vector of coefficients, not {coefficients.type}")
    coefficients = cast(coefficients, dt.inexact_for(coefficients.dtype))
    trailing = 0
    if strip_zeros:
        known = known_values(coefficients, "roots", "pass strip_zeros=False")
        places = np.nonzero(known)[0]
        first, last = (int(places[0]), int(places[-1])) if places.size else (0, -1)
        trailing = known.size - 1 - last if places.size else 0
        coefficients = coefficients[first : last + 1]
    found = _roots(coefficients)
    return concatenate([found, zeros(trailing, found.dtype)]) if trailing else found


def _roots(coefficients: Array) -> Array:
    degree = coefficients.shape[0] - 1
    if degree < 1:
        return zeros(0, result_type(coefficients, 1j))
    top = reshape(-coefficients[1:] / coefficients[0], (1, degree))
    shifted = eye(degree - 1, degree, dtype=coefficients.dtype)
    return linalg.eigvals(concatenate([top, shifted]))


def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: bool | str = False,
) -> Any:
    """The polynomial of degree `deg` that fits y at x by least squares, highest power first.

    y: [n] or [n, k]; w: weights of the residuals, [n]. With `full` also residuals, rank, singular
    values and rcond, as `linalg.lstsq` gives them of scaled columns. With `cov` the covariance of
    the coefficients too, scaled by the residuals unless cov is "unscaled".

    >>> x = jnp.arange(4.0)
    >>> jnp.polyfit(x, 2 * x + 1, 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    points, values = promoted("polyfit", x, y, inexact=True, numbers=False, broadcast=False)
    if points.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != points.shape[0]:
        raise ShapeError(f"polyfit: {points.type} and {values.type} are not [n] and [n] or [n, k]")
    if deg < 0 or not points.shape[0]:
        raise BadArgument(f"polyfit: degree {deg} of {points.shape[0]} points")
    limit = points.shape[0] * float(dt.finfo(points.dtype).eps) if rcond is None else rcond
    columns = vander(points, deg + 1)
    if w is not None:
        weights = cast(value_of(w, "polyfit: w"), points.dtype)
        if weights.shape != points.shape:
            raise ShapeError(f"polyfit: weights {weights.type} for {points.shape[0]} points")
        columns = columns * weights[:, None]
        values = values * (weights[:, None] if values.ndim == 2 else weights)
    scale = sqrt((columns * columns).sum(0))
    found, residuals, rank, singular = linalg.lstsq(columns / scale, values, limit)
    found = (found.T / scale).T
    if full:
        return found, residuals, rank, singular, limit
    if not cov:
        return found
    spread = linalg.inv(columns.T @ columns)
    spread = spread[..., None] if values.ndim == 2 else spread
    if cov == "unscaled":
        return found, spread
    free = points.shape[0] - deg - 1
    if free <= 0:
        raise BadArgument(f"polyfit: a covariance needs more than {deg + 1} points")
    return found, spread * (residuals / free)


@replayed
def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """(quotient, remainder) of polynomials, highest power first. trim_leading_zeros: the remainder,
    which must be known, without leading elements of at most the square root of the dtype's eps.

    >>> jnp.polydiv(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 1.0]))
    (Array([ 1., -1.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    rest, divisor = promoted("polydiv", u, v, inexact=True, numbers=False, broadcast=False)
    count = rest.shape[0] - divisor.shape[0] + 1
    parts = []
    for i in range(count):
        part = rest[i] / divisor[0]
        parts.append(reshape(part, (1,)))
        rest = rest.at[i : i + divisor.shape[0]].add(-part * divisor)
    quotient = concatenate(parts) if parts else zeros(1, rest.dtype)
    if trim_leading_zeros:
        rest = _without_leading("polydiv", rest, float(dt.finfo(rest.dtype).eps) ** 0.5)
    return quotient, rest
