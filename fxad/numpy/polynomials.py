"""Polynomials as vectors of coefficients, the highest power first.

polyval([1, 0, 2], x)       # x**2 + 2
"""

from __future__ import annotations

import builtins
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.promotion import result_type
from fxad.numpy.core import asarray, cast, value_of
from fxad.numpy.creation import arange, zeros
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import broadcast_shapes, broadcast_to
from fxad.numpy.products import convolve
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["polyadd", "polyder", "polyint", "polymul", "polysub", "polyval"]


@replayed
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Array:
    """The polynomial p[0] x^n + ... + p[n] by Horner's rule; 0 without coefficients.

    Raises ShapeError if p has no axis.
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
    """Sum of two polynomials, highest power first."""
    x, y = asarray(a1), asarray(a2)
    size = builtins.max(x.shape[0], y.shape[0])
    return _padded(x, size) + _padded(y, size)


@replayed
def polysub(a1: Any, a2: Any) -> Array:
    """Difference of two polynomials, highest power first."""
    return polyadd(a1, -asarray(a2))


def _padded(value: Array, size: int) -> Array:
    return concatenate([zeros(size - value.shape[0], value.dtype), value])


@replayed
def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Array:
    """Product of two polynomials, highest power first.

    Raises BadArgument for trim_leading_zeros: how many there are is not known while tracing.
    """
    if trim_leading_zeros:
        raise BadArgument("polymul: pass trim_leading_zeros=False, and trim_zeros the result")
    return convolve(asarray(a1), asarray(a2))


@replayed
def polyder(p: Any, m: int = 1) -> Array:
    """m-th derivative of a polynomial, highest power first."""
    value = asarray(p)
    for _ in range(m):
        powers = arange(value.shape[0] - 1, 0, -1)
        value = value[:-1] * cast(powers, value.dtype)
    return value


@replayed
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """m-th antiderivative of a polynomial, highest power first; k: the constants (0), one for all
    or one per integration."""
    value = asarray(p)
    value = cast(value, dt.inexact_for(value.dtype))
    constants = zeros(m, value.dtype) if k is None else cast(asarray(k), value.dtype)
    constants = broadcast_to(constants, (m,))
    for i in range(m):
        powers = cast(arange(value.shape[0], 0, -1), value.dtype)
        value = concatenate([value / powers, constants[i : i + 1]])
    return value
