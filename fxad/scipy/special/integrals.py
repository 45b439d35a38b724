"""Integrals of the Gaussian and of others: erfcx, dawsn, fresnel, sici, spence, owens_t.

erfcx(50.0)         # 0.0112815...: exp(2500) erfc(50) would be inf * 0
sici(1.0)           # Si(1), Ci(1)

Chebyshev series (`tables`) near 0 and of the slowly varying factors far from it (DLMF 6.5, 7.5);
Owen's T by Gauss-Legendre quadrature.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.ir.program import OPS
from fxad.numpy import (
    abs,
    arctan,
    cos,
    exp,
    iscomplexobj,
    log,
    log1p,
    maximum,
    minimum,
    sign,
    sin,
    sinc,
    where,
    zeros_like,
)
from fxad.numpy import round as rounded
from fxad.numpy.weak import gives_strong
from fxad.scipy.special import tables
from fxad.scipy.special.faddeeva import wofz
from fxad.scipy.special.support import chebyshev, moved, polynomial, special
from fxad.trace.array import Array

_ROOT_PI = math.sqrt(math.pi)

# ---------------------------------------------------------------- of the Gaussian


@custom_jvp
def _erfcx(x: Array) -> Array:
    size = abs(x)
    value = chebyshev(1 - 6 / (size + 3), tables.ERFCX) / (size + 0.5)
    # exp(x**2) with the square in two parts: its rounding error would be magnified by x**2
    below = where(x < 0, maximum(x, -30.0), 0.0)
    high = rounded(below * 16) / 16
    low = below - high
    mirrored = 2 * (exp(high * high) * exp(low * (below + high))) - value
    return where(x < 0, mirrored, value)


def _asymptotic(x: Array, sign: int) -> Array:
    """The sum of sign**k (2k - 1)!! / (2 x**2)**k over k = 1, 2, ..., for |x| >= 12."""
    inverse = sign * 0.5 / x / x
    coefficients, factor = [], 1.0
    for k in range(1, 15):
        factor *= 2 * k - 1
        coefficients.append(factor)
    return inverse * polynomial(inverse, coefficients)


_FAR = 12.0


def _erfcx_slope(y: Array, x: Array) -> Array:
    """2 x erfcx(x) - 2 / sqrt(pi), where they cancel by their asymptotic series."""
    far = x > _FAR
    near = 2 * where(far, 0.0, x * y) - 2 / _ROOT_PI
    return where(far, 2 / _ROOT_PI * _asymptotic(where(far, x, _FAR), -1), near)


def _dawsn_slope(y: Array, x: Array) -> Array:
    """1 - 2 x dawsn(x), in the same way."""
    far = abs(x) > _FAR
    return where(far, -_asymptotic(where(far, x, _FAR), 1), 1 - 2 * where(far, 0.0, x * y))


_erfcx.defjvps(lambda dx, y, x: dx * _erfcx_slope(y, x))


@special
def _erfcx_real(x: Any) -> Array:
    return _erfcx(x)


@gives_strong
def erfcx(x: Any) -> Array:
    """exp(x**2) erfc(x), without overflow for large x; of real or complex numbers.

    >>> print(f"{float(erfcx(50.0)):.5f}")
    0.01128
    """
    return wofz(1j * x) if iscomplexobj(x) else _erfcx_real(x)


@custom_jvp
def _dawsn(x: Array) -> Array:
    size = abs(x)
    near, far = minimum(size, 5.0), maximum(size, 5.0)
    square = near * near
    low = near * chebyshev(0.08 * square - 1, tables.DAWSON_NEAR) / (1 + square)
    inverse = 5 / far
    high = chebyshev(2 * inverse * inverse - 1, tables.DAWSON_FAR) * (0.5 / far)
    value = where(size < 5, low, high)
    return where(x < 0, -value, where(x == 0, x, value))


_dawsn.defjvps(lambda dx, y, x: dx * _dawsn_slope(y, x))


@gives_strong
@special
def dawsn(x: Any) -> Array:
    """Dawson's integral: exp(-x**2) times the integral of exp(t**2) from 0 to x.

    >>> print(f"{float(dawsn(1.0)):.5f}")
    0.53808
    """
    return _dawsn(x)


def _quarter_waves(x: Array) -> tuple[Array, Array]:
    """cos and sin of pi x**2 / 2. With n the nearest integer and r the rest, x**2 is
    n**2 + 2 n r + r**2, and of n**2 only its parity counts: the angle keeps its digits."""
    whole = rounded(x)
    rest = x - whole
    odd = whole - 2 * OPS["floor"](whole / 2)
    twice = whole * rest
    turns = 2 * (twice - 2 * rounded(twice / 2)) + rest * rest
    angle = 0.5 * math.pi * turns
    cosine, sine = cos(angle), sin(angle)
    return where(odd == 1, -sine, cosine), where(odd == 1, cosine, sine)


def _fresnel(x: Array) -> tuple[Array, Array]:
    size = abs(x)
    near = minimum(size, 1.5)
    cube = near * near * near
    t = 2 / 1.5**4 * cube * near - 1
    far = where(size < math.inf, maximum(size, 1.5), 1.5)
    t_far = 1 - 6 / (far + 1.5)
    f = chebyshev(t_far, tables.FRESNEL_F) / (math.pi * far)
    g = chebyshev(t_far, tables.FRESNEL_G) / far / far / (math.pi**2 * far)
    cosine, sine = _quarter_waves(far)
    values = []
    for low, high in (
        (cube * chebyshev(t, tables.FRESNEL_S), 0.5 - f * cosine - g * sine),
        (near * chebyshev(t, tables.FRESNEL_C), 0.5 + f * sine - g * cosine),
    ):
        value = where(size < 1.5, low, where(size == math.inf, 0.5, high))
        value = where(x == x, value, math.nan)
        values.append(where(x < 0, -value, where(x == 0, x, value)))
    return values[0], values[1]


@custom_jvp
def _fresnel_s(x: Array) -> Array:
    return _fresnel(x)[0]


@custom_jvp
def _fresnel_c(x: Array) -> Array:
    return _fresnel(x)[1]


@custom_jvp
def _quarter_cosine(x: Array) -> Array:
    return _quarter_waves(x)[0]


@custom_jvp
def _quarter_sine(x: Array) -> Array:
    return _quarter_waves(x)[1]


_fresnel_s.defjvps(lambda dx, y, x: dx * _quarter_sine(x))
_fresnel_c.defjvps(lambda dx, y, x: dx * _quarter_cosine(x))
_quarter_cosine.defjvps(lambda dx, y, x: dx * (-math.pi * x * _quarter_sine(x)))
_quarter_sine.defjvps(lambda dx, y, x: dx * (math.pi * x * _quarter_cosine(x)))


@gives_strong
def fresnel(x: Any) -> tuple[Array, Array]:
    """The Fresnel integrals S(x), C(x): of sin(pi t**2 / 2) and cos(pi t**2 / 2) from 0 to x.

    >>> s, c = fresnel(1.0)
    >>> print(f"{float(s):.5f} {float(c):.5f}")
    0.43826 0.77989
    """
    return special(_named("fresnel", _fresnel_s))(x), special(_named("fresnel", _fresnel_c))(x)


# ---------------------------------------------------------------- of elementary functions


def _sici(x: Array) -> tuple[Array, Array]:
    size = abs(x)
    near = minimum(size, 4.0)
    t = 0.125 * near * near - 1
    far = where(size < math.inf, maximum(size, 4.0), 4.0)
    t_far = 1 - 16 / (far + 4)
    f = chebyshev(t_far, tables.SINE_F) / far
    g = chebyshev(t_far, tables.SINE_G) / far / far
    cosine, sine = cos(far), sin(far)
    si = where(
        size < 4, near * chebyshev(t, tables.SINE_NEAR), 0.5 * math.pi - f * cosine - g * sine
    )
    si = where(size == math.inf, 0.5 * math.pi, si)
    ci = np.euler_gamma + log(near) - near * near * chebyshev(t, tables.COSINE_NEAR)
    ci = where(size < 4, ci, where(x == math.inf, 0.0, f * sine - g * cosine))
    ci = where((x == x) & (x != -math.inf), ci, math.nan)
    si = where(x == x, si, math.nan)
    return where(x < 0, -si, where(x == 0, x, si)), ci


@custom_jvp
def _si(x: Array) -> Array:
    return _sici(x)[0]


@custom_jvp
def _ci(x: Array) -> Array:
    return _sici(x)[1]


_si.defjvps(lambda dx, y, x: dx * sinc(x / math.pi))
_ci.defjvps(lambda dx, y, x: dx * (cos(x) / x))


@gives_strong
def sici(x: Any) -> tuple[Array, Array]:
    """The sine and cosine integrals Si(x), Ci(x); for x < 0 Ci(-x), as in SciPy.

    >>> si, ci = sici(1.0)
    >>> print(f"{float(si):.5f} {float(ci):.5f}")
    0.94608 0.33740
    """
    return special(_named("sici", _si))(x), special(_named("sici", _ci))(x)


def _named(name: str, function: Any) -> Any:
    """The function of one argument under the name that messages are to say."""

    def call(x: Any) -> Array:
        return function(x)

    call.__name__ = name
    return call


@custom_jvp
def _spence(x: Array) -> Array:
    # Three identities of the dilogarithm Li_2(1 - x) (DLMF 25.12.4, 25.12.6) bring 1 - x into
    # [-1/2, 1/2]: x -> 1 / x above 3/2, then x -> 1 - x below 1/2.
    inside = (x > 0) & (x < math.inf)
    at = where(inside, x, 1.0)
    large = at > 1.5
    y = where(large, 1 / at, at)
    rest = where(large, (at - 1) / at, 1 - at)  # 1 - y
    small = y < 0.5
    w = where(small, y, rest)
    value = w * chebyshev(2 * w, tables.DILOGARITHM)
    logarithm = log(at)
    of_y = where(large, -logarithm, logarithm)
    reflected = math.pi**2 / 6 - of_y * log1p(-where(small, y, 0.5)) - value
    value = where(small, reflected, value)
    value = where(large, -value - 0.5 * logarithm * logarithm, value)
    beyond = where(x == math.inf, -math.inf, x * math.nan)
    edge = where(x == 0, math.pi**2 / 6, beyond)
    return where(inside, value, edge)


def _spence_slope(x: Array) -> Array:
    """log(x) / (1 - x), by its power series in 1 - x close to 1."""
    w = 1 - x
    near = abs(w) < 0.25
    series = -polynomial(where(near, w, 0.0), [1 / (k + 1) for k in range(28)])
    return where(near, series, log(where(near, 2.0, x)) / where(near, 1.0, w))


_spence.defjvps(lambda dx, y, x: dx * _spence_slope(x))


@gives_strong
@special
def spence(x: Any) -> Array:
    """Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x.

    NaN for x < 0.

    >>> print(f"{float(spence(0.0)):.5f}")
    1.64493
    """
    return _spence(x)


# ---------------------------------------------------------------- Owen's T

# Of [0, 1]: with exp(-40) left out at the end of the range, 30 nodes give all digits of f64.
_NODES, _WEIGHTS = (part.tolist() for part in np.polynomial.legendre.leggauss(30))
_REACH = 9.0


def _owens_below(h: Array, a: Array) -> Array:
    """T(h, a) for h >= 0 and 0 <= a <= 1; the integrand is nothing beyond 9 / h."""
    h = minimum(h, 1e3)  # where exp(-h**2 / 2) is 0 already
    end = minimum(a, _REACH / maximum(h, _REACH))
    total = zeros_like(h)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        x = end * (0.5 + 0.5 * node)
        hx = h * x
        total = total + weight * (exp(-0.5 * hx * hx) / (1 + x * x))
    return end * total * exp(-0.5 * h * h) * (0.25 / math.pi)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    size, slope = abs(h), abs(a)
    large = slope > 1
    product = where(size == 0, 0.0, size * slope)
    value = _owens_below(where(large, product, size), where(large, 1 / slope, slope))
    # T(h, a) + T(a h, 1 / a) in terms of the normal distribution's tails
    first = 0.5 * OPS["erfc"](math.sqrt(0.5) * size)
    second = 0.5 * OPS["erfc"](math.sqrt(0.5) * product)
    value = where(large, 0.5 * (first + second) - first * second - value, value)
    value = where(size == 0, arctan(slope) * (0.5 / math.pi), value)
    value = where(size == math.inf, 0.0, value)
    return where((h == h) & (a == a), sign(a) * value, math.nan)


def _owens_t_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (h, a), (dh, da) = primals, tangents

    def in_h() -> Array:
        scale = -0.5 / math.sqrt(2 * math.pi)
        return scale * exp(-0.5 * h * h) * OPS["erf"](math.sqrt(0.5) * a * h)

    def in_a() -> Array:
        square = 1 + a * a
        return exp(-0.5 * h * h * square) / (2 * math.pi * square)

    return _owens_t(h, a), moved((dh, in_h), (da, in_a))


_owens_t.defjvp(_owens_t_jvp, symbolic_zeros=True)


@gives_strong
@special
def owens_t(h: Any, a: Any) -> Array:
    """Owen's T: the probability of X > h and 0 < Y < a X, X and Y standard normal.

    The integral of exp(-h**2 (1 + x**2) / 2) / (2 pi (1 + x**2)) from 0 to a.

    >>> print(f"{float(owens_t(0.0, 1.0)):.5f}")
    0.12500
    """
    return _owens_t(h, a)
