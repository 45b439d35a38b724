"""Exponential integrals: exp1, expi, expn.

exp1(0.5)       # the integral of exp(-t) / t from 0.5 to infinity

Power series near 0, continued fractions (DLMF 8.19.17) or asymptotic series far from it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core.errors import BadArgument
from fxad.numpy import exp, log, where, zeros_like
from fxad.numpy.weak import gives_strong
from fxad.scipy.special.incomplete import lentz
from fxad.scipy.special.support import special
from fxad.trace.array import Array

_EULER = float(np.euler_gamma)


def _near(n: int, x: Array) -> Array:
    """E_n(x) for 0 < x <= 1, DLMF 8.19.8."""
    harmonic = math.fsum(1 / k for k in range(1, n))
    power = (-1.0) ** (n - 1) / math.factorial(n - 1)
    total = power * x ** (n - 1) * (harmonic - _EULER - log(x))
    for m in range(22):
        if m != n - 1:
            total = total - (-1.0) ** m / ((m - n + 1) * math.factorial(m)) * x**m
    return total


def _far(n: int, x: Array) -> Array:
    """E_n(x) for x > 1."""
    return exp(-x) / lentz(lambda k, x: -k * (k + (n - 1)), lambda k, x: x + (n + 2 * k), x)


@partial(custom_jvp, nondiff_argnums=(0,))
def _expn(n: int, x: Array) -> Array:
    if n == 0:
        return where(x >= 0, exp(-x) / x, math.nan)
    near = x <= 1
    value = where(near, _near(n, where(near, x, 1.0)), _far(n, where(near, 2.0, x)))
    value = where(x == math.inf, 0.0, value)
    edge = math.inf if n == 1 else 1 / (n - 1)
    return where(x > 0, value, where(x == 0, edge, math.nan))


@_expn.defjvp
def _expn_jvp(n: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,) = primals
    value = _expn(n, x)
    # E_0' = -(1 + 1 / x) E_0, and E_n' = -E_(n-1)
    slope = -(1 + 1 / x) * value if n == 0 else -_expn(n - 1, x)
    return value, tangents[0] * slope


def expn(n: int, x: Any) -> Array:
    """The integral of exp(-x t) / t**n from 1 to infinity; n = 0, 1, ... and x >= 0, else NaN.

    >>> fxad.scipy.special.expn(2, jnp.array([0.0, 1.0, 4.0])).round(3)
    Array([1.   , 0.148, 0.003], dtype=float32)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise BadArgument(f"expn: the order must be an int, 0 or more, got {n!r}")
    return special(lambda x: _expn(int(n), x))(x)


@gives_strong
@special
def exp1(x: Any) -> Array:
    """The integral of exp(-t) / t from x to infinity; x >= 0, else NaN.

    >>> fxad.scipy.special.exp1(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.56 , 0.219, 0.004], dtype=float32)
    """
    return _expn(1, x)


@custom_jvp
def _expi(x: Array) -> Array:
    middle = (x > 0) & (x < 40)
    at = where(middle, x, 1.0)
    term, total = at, at
    for k in range(2, 140):
        term = term * (at / k)
        total = total + term / k
    series = _EULER + log(at) + total
    high = where(x >= 40, x, 40.0)
    inverse = 1 / high
    tail, part = 1 + zeros_like(x), 1 + zeros_like(x)
    for k in range(1, 30):
        part = part * (k * inverse)
        tail = tail + part
    far = where(x == math.inf, x, exp(high) * inverse * tail)
    below = -_expn(1, where(x < 0, -x, 1.0))
    value = where(x < 0, below, where(middle, series, far))
    return where(x == 0, -math.inf, where(x == x, value, math.nan))


@_expi.defjvp
def _expi_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,) = primals
    return _expi(x), tangents[0] * (exp(x) / x)


@gives_strong
@special
def expi(x: Any) -> Array:
    """The principal value of the integral of exp(t) / t from -infinity to x; -inf at 0.

    >>> fxad.scipy.special.expi(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 0.454,  1.895, 19.631], dtype=float32)
    """
    return _expi(x)
