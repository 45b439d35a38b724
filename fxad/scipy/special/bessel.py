"""Bessel functions of order 0 and 1: j0, j1, y0, y1, i0, i1, i0e, i1e.

j0(2.404825557695773)       # 0 to within rounding: its first zero

Chebyshev series (`tables`), good to a few units in the last place of the largest nearby value.
"""

from __future__ import annotations

import math
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.numpy import abs, cos, exp, log, maximum, minimum, sign, sin, sqrt, where
from fxad.scipy.special import tables
from fxad.scipy.special.support import chebyshev, polynomial, special
from fxad.trace.array import Array

# ---------------------------------------------------------------- J and Y of order 0 and 1


def _wave(x: Array, order: int, second: bool) -> Array:
    """J or (if `second`) Y for x >= 8: sqrt(2 / (pi x)) (P cos c -+ Q sin c), whose angle
    c = x - (2 order + 1) pi / 4 is expanded so that the sine and cosine are those of x."""
    t = 128 / (x * x) - 1
    p = chebyshev(t, (tables.P0, tables.P1)[order])
    q = chebyshev(t, (tables.Q0, tables.Q1)[order]) / x
    plus, minus = sin(x) + cos(x), sin(x) - cos(x)
    cosine, sine = (plus, minus) if order == 0 else (minus, -plus)
    value = p * sine + q * cosine if second else p * cosine - q * sine
    return value / sqrt(math.pi * x)


def _first(x: Array, order: int) -> Array:
    """J of order 0 or 1."""
    size = abs(x)
    near = minimum(size, 8.0)
    series = chebyshev(near * near / 32 - 1, (tables.J0, tables.J1)[order])
    value = where(
        size < 8, series * near if order else series, _wave(maximum(size, 8.0), order, False)
    )
    value = where(size == math.inf, 0.0, value)
    return where(x < 0, -value, value) if order else value


def _second(x: Array, order: int) -> Array:
    """Y of order 0 or 1: -inf at 0, NaN below."""
    inside = (x > 0) & (x < 8)
    near = where(inside, x, 1.0)
    series = chebyshev(near * near / 32 - 1, (tables.Y0, tables.Y1)[order])
    if order:
        series = series * near - 2 / (math.pi * near)
    series = series + 2 / math.pi * log(near) * _first(near, order)
    value = where(inside, series, _wave(maximum(x, 8.0), order, True))
    value = where(x == math.inf, 0.0, value)
    return where(x > 0, value, where(x == 0, -math.inf, math.nan))


@custom_jvp
def _j0(x: Array) -> Array:
    return _first(x, 0)


@custom_jvp
def _j1(x: Array) -> Array:
    return _first(x, 1)


@custom_jvp
def _y0(x: Array) -> Array:
    return _second(x, 0)


@custom_jvp
def _y1(x: Array) -> Array:
    return _second(x, 1)


def _over(value: Array, x: Array, unit: int) -> Array:
    """J_1(x) / x for the unit -1, I_1(x) / x for 1: near 0 by the power series in unit * x**2
    (DLMF 10.2.2), since derivatives of the quotient are differences of numbers that grow without
    bound there."""
    near = abs(x) < 1
    square = where(near, x, 0.0) * where(near, x, 0.0)
    series = [
        0.5 * (unit / 4) ** k / (math.factorial(k) * math.factorial(k + 1)) for k in range(14)
    ]
    return where(near, polynomial(square, series), value / where(near, 1.0, x))


_j0.defjvps(lambda dx, y, x: -dx * _j1(x))
_j1.defjvps(lambda dx, y, x: dx * (_j0(x) - _over(y, x, -1)))
_y0.defjvps(lambda dx, y, x: -dx * _y1(x))
_y1.defjvps(lambda dx, y, x: dx * (_y0(x) - y / x))


@special
def j0(x: Any) -> Array:
    """Bessel function of the first kind of order 0.

    >>> fxad.scipy.special.j0(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 0.938,  0.765, -0.397], dtype=float32)
    """
    return _j0(x)


@special
def j1(x: Any) -> Array:
    """Bessel function of the first kind of order 1.

    >>> fxad.scipy.special.j1(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 0.242,  0.44 , -0.066], dtype=float32)
    """
    return _j1(x)


@special
def y0(x: Any) -> Array:
    """Bessel function of the second kind of order 0; x > 0.

    >>> fxad.scipy.special.y0(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([-0.445,  0.088, -0.017], dtype=float32)
    """
    return _y0(x)


@special
def y1(x: Any) -> Array:
    """Bessel function of the second kind of order 1; x > 0.

    >>> fxad.scipy.special.y1(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([-1.471, -0.781,  0.398], dtype=float32)
    """
    return _y1(x)


# ---------------------------------------------------------------- I of order 0 and 1


def _scaled(x: Array, order: int) -> Array:
    """exp(-|x|) I(x) of order 0 or 1."""
    size = abs(x)
    near, far = minimum(size, 8.0), maximum(size, 8.0)
    low = chebyshev(near / 4 - 1, (tables.I0_LOW, tables.I1_LOW)[order])
    high = chebyshev(16 / far - 1, (tables.I0_HIGH, tables.I1_HIGH)[order]) / sqrt(far)
    value = where(size < 8, low * near if order else low, high)
    return where(x < 0, -value, value) if order else value


@custom_jvp
def _i0e(x: Array) -> Array:
    return _scaled(x, 0)


@custom_jvp
def _i1e(x: Array) -> Array:
    return _scaled(x, 1)


@custom_jvp
def _i0(x: Array) -> Array:
    return exp(abs(x)) * _scaled(x, 0)


@custom_jvp
def _i1(x: Array) -> Array:
    return exp(abs(x)) * _scaled(x, 1)


def _scaled_over(value: Array, x: Array) -> Array:
    """exp(-|x|) I_1(x) / x."""
    near = abs(x) < 1
    scale = exp(-abs(where(near, x, 0.0)))
    return where(near, scale, 1.0) * _over(value, x, 1)


_i0.defjvps(lambda dx, y, x: dx * _i1(x))
_i1.defjvps(lambda dx, y, x: dx * (_i0(x) - _over(y, x, 1)))
_i0e.defjvps(lambda dx, y, x: dx * (_i1e(x) - sign(x) * y))
_i1e.defjvps(lambda dx, y, x: dx * (_i0e(x) - _scaled_over(y, x) - sign(x) * y))


@special
def i0(x: Any) -> Array:
    """Modified Bessel function of order 0.

    >>> fxad.scipy.special.i0(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 1.063,  1.266, 11.302], dtype=float32)
    """
    return _i0(x)


@special
def i1(x: Any) -> Array:
    """Modified Bessel function of order 1.

    >>> fxad.scipy.special.i1(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.258, 0.565, 9.759], dtype=float32)
    """
    return _i1(x)


@special
def i0e(x: Any) -> Array:
    """exp(-|x|) i0(x).

    >>> fxad.lax.bessel_i0e(jnp.array([0.0, 1.0, 100.0])).round(3)
    Array([1.   , 0.466, 0.04 ], dtype=float32)
    """
    return _i0e(x)


@special
def i1e(x: Any) -> Array:
    """exp(-|x|) i1(x).

    >>> fxad.lax.bessel_i1e(jnp.array([0.0, 1.0, 100.0])).round(3)
    Array([0.   , 0.208, 0.04 ], dtype=float32)
    """
    return _i1e(x)
