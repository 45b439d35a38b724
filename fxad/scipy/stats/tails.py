"""Tail probabilities and their logarithms, for the distributions of this package.

log_smaller(log(0.3), log(0.7))     # log(0.3), or log1p(-0.7) where that keeps more digits

A probability near 1 holds few digits of what it lacks; so distributions state both tails, and
logarithms are taken of the smaller one (M. Mächler, "Accurately computing log(1 - exp(-|a|))",
2012).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.lax.loops import fori_loop
from fxad.numpy import (
    abs,
    exp,
    expm1,
    isfinite,
    isnan,
    log,
    log1p,
    maximum,
    minimum,
    ones,
    sqrt,
    where,
)
from fxad.scipy.special import (
    betainc,
    betaln,
    gammainc,
    gammaincc,
    gammaln,
    log_ndtr,
    xlog1py,
    xlogy,
)
from fxad.scipy.special.incomplete import (
    beta_fraction,
    gamma_fraction,
    gamma_series,
    stirling_power,
)
from fxad.scipy.special.support import LOG_2PI, moved, slope
from fxad.trace.array import Array

LOG_2 = math.log(2)


def log_of(part: Array, rest: Array) -> Array:
    """log(part), from rest = 1 - part where part is the larger."""
    upper = part > rest
    near = log1p(-where(upper, rest, 0.5))
    return where(upper, near, log(where(upper, 0.5, part)))


def log_smaller(part: Array, rest: Array) -> Array:
    """log p of part = log p and rest = log(1 - p), by the smaller of them."""
    upper = part > rest
    return where(upper, log1p(-exp(where(upper, rest, -1.0))), part)


def log1mexp(x: Array) -> Array:
    """log(1 - exp(-x)), x >= 0."""
    small = x < LOG_2
    near = log(-expm1(-where(small, x, 1.0)))
    return where(small, near, log1p(-exp(-where(small, 1.0, x))))


def log1mexp_exp(x: Array) -> Array:
    """log(1 - exp(-exp(x))), which is x to within exp(x) / 2 far below 0."""
    far = x < -40
    return where(far, x, log1mexp(exp(minimum(where(far, 0.0, x), 80.0))))


def after_zero(formula: Callable[..., Any], at_zero: float) -> Callable[..., Any]:
    """A formula of z > 0 that is a constant at 0, where its parts are infinite."""

    def value(z: Array, *shapes: Array) -> Array:
        edge = z == 0
        return where(edge, at_zero, formula(where(edge, 1.0, z), *shapes))

    return value


def beta_above(a: Array, b: Array, x: Array) -> Array:
    """1 - I_x(a, b); without 1 - x, which would round x away, where x is small."""
    low = x < (a + 1) / (a + b + 2)
    first, second, at = where(low, a, b), where(low, b, a), where(low, x, 1 - x)
    value = betainc(first, second, at)
    return where(low, 1 - value, value)


def sloped(function: Callable[..., Array], rate: Callable[..., Array]) -> Callable[..., Array]:
    """A function of z and shape parameters with rate(value, z, *shapes) as its derivative in z.

    At z = 0 it is a constant of the shapes, as distributions that are symmetric about 0 are.
    """

    @custom_jvp
    def call(z: Array, *shapes: Array) -> Array:
        return function(z, *shapes)

    def derivative(primals: Any, tangents: Any) -> tuple[Array, Array]:
        (z, *shapes), (dz, *moves) = primals, tangents
        value = call(z, *shapes)
        apart = where(z == 0, 1.0, z)

        def in_shape(i: int) -> Array:
            along = slope(lambda v: function(apart, *shapes[:i], v, *shapes[i + 1 :]), shapes[i])
            return where(z == 0, 0.0, along)

        parts = [(move, lambda i=i: in_shape(i)) for i, move in enumerate(moves)]
        return value, moved((dz, lambda: rate(value, z, *shapes)), *parts)

    call.defjvp(derivative, symbolic_zeros=True)
    return call


# ---------------------------------------------------------------- gamma

_FAR = 1e-25  # tails below are computed by their logarithms; float32 ends at 1e-38
_SUMMED = 4e4  # up to which shape their sums converge at any distance


def _log_gamma_power(a: Array, x: Array) -> Array:
    """log(x**a exp(-x) / Gamma(a + 1)), by Stirling's series for a >= 8."""
    large = a >= 8
    size = where(large, a, 8.0)
    stirling = stirling_power(size, x) - 0.5 * (LOG_2PI + log(size))
    return where(large, stirling, a * log(x) - x - gammaln(a + 1))


def _far_below(a: Array, x: Array) -> Array:
    """log P(a, x), x < a."""
    return _log_gamma_power(a, x) + log(gamma_series(a, x))


def _far_above(a: Array, x: Array) -> Array:
    """log Q(a, x), x > a + 1."""
    return _log_gamma_power(a, x) + log(a * gamma_fraction(a, x))


def _log_gamma(x: Array, a: Array, above: bool) -> Array:
    below, rest = gammainc(a, x), gammaincc(a, x)
    part, rest = (rest, below) if above else (below, rest)
    least = 4 * float(dt.finfo(part.dtype).tiny)
    far = (part < where(a < _SUMMED, _FAR, least)) & (x > 0) & isfinite(x) & isfinite(a)
    value = log_of(where(far, 0.5, part), where(far, 0.5, rest))
    if above:
        tail = _far_above(where(far, a, 1.0), where(far, x, 50.0))
    else:
        tail = _far_below(where(far, a, 50.0), where(far, x, 1.0))
    return where(far, tail, value)


def _gamma_rate(value: Array, x: Array, a: Array) -> Array:
    return exp(_log_gamma_power(a, x) + log(a / x) - value)


# log P(a, x) and log Q(a, x) of x and a, finite where the probabilities underflow
log_gamma_below = after_zero(sloped(lambda x, a: _log_gamma(x, a, False), _gamma_rate), -math.inf)
log_gamma_above = after_zero(
    sloped(lambda x, a: _log_gamma(x, a, True), lambda v, x, a: -_gamma_rate(v, x, a)), 0.0
)


# ---------------------------------------------------------------- beta


def _far_beta(a: Array, b: Array, x: Array, log_x: Array, log_y: Array) -> Array:
    """log I_x(a, b) at x < (a + 1) / (a + b + 2), y = 1 - x."""
    return a * log_x + b * log_y - betaln(a, b) + log(beta_fraction(a, b, x) / a)


def _log_beta(x: Array, a: Array, b: Array, above: bool) -> Array:
    below, rest = betainc(a, b, x), beta_above(a, b, x)
    part, rest = (rest, below) if above else (below, rest)
    far = (part < _FAR) & (x > 0) & (x < 1)
    value = log_of(where(far, 0.5, part), where(far, 0.5, rest))
    a, b, x = where(far, a, 2.0), where(far, b, 2.0), where(far, x, 0.5)
    logs = log(x), log1p(-x)
    tail = _far_beta(b, a, 1 - x, logs[1], logs[0]) if above else _far_beta(a, b, x, *logs)
    return where(far, tail, value)


def _beta_rate(value: Array, x: Array, a: Array, b: Array) -> Array:
    inside = (x > 0) & (x < 1)
    safe = where(inside, x, 0.5)
    density = xlogy(a - 1, safe) + xlog1py(b - 1, -safe) - betaln(a, b)
    return where(inside, exp(density - where(inside, value, 0.0)), 0.0)


# log I_x(a, b) and log(1 - I_x(a, b)) of x, a and b, finite where the probabilities underflow
log_beta_below = sloped(lambda x, a, b: _log_beta(x, a, b, False), _beta_rate)
log_beta_above = sloped(
    lambda x, a, b: _log_beta(x, a, b, True), lambda v, x, a, b: -_beta_rate(v, x, a, b)
)


# ---------------------------------------------------------------- normal

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def log_mass(a: Array, b: Array) -> Array:
    """log(ndtr(b) - ndtr(a)), from the side on which both are small; -inf unless a < b.

    Of a narrow interval by Gauss's rule, as the two are then nearly the same.
    """
    mirrored = a > 0
    low, high = where(mirrored, -b, a), where(mirrored, -a, b)
    some = low < high
    low, high = where(some, low, -2.0), where(some, high, 0.0)
    finite = maximum(low, high - 8)  # low may be -inf
    width, middle = high - finite, 0.5 * (high + finite)
    narrow = width * (1 + abs(middle)) < 1
    half, centre = where(narrow, 0.5 * width, 0.5), where(narrow, middle, 0.0)
    total: Any = 0.0
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        step = half * float(node)
        total = total + float(weight) * exp(-step * (centre + 0.5 * step))
    inner = log(half * total) - 0.5 * (centre * centre + LOG_2PI)
    top = log_ndtr(high)
    endless = low == -math.inf
    below = log_ndtr(where(narrow | endless, high - 1, low))
    outer = top + where(endless, 0.0, log1mexp(top - below))
    edge = where(isnan(a) | isnan(b), math.nan, -math.inf)
    return where(some, where(narrow, inner, outer), edge)


# ---------------------------------------------------------------- Student


def log1p_square(ratio: Array) -> Array:
    """log(1 + ratio**2) of a ratio whose square may overflow."""
    large = abs(ratio) > 1e8
    small = where(large, 1.0, ratio)  # not its size, which has no second derivative at 0
    return where(large, 2 * log(abs(where(large, ratio, 1.0))), log1p(small * small))


def log_t_tail(size: Array, df: Array) -> Array:
    """log of Student's probability above size >= 1.

    I_x(df / 2, 1 / 2) / 2 at x = df / (df + size**2) by DLMF 8.17.8 and Pfaff's transformation, so
    that x, which is near 1 for large df, does not occur: a power times
    F(1, 1/2; df / 2 + 1; -df / size**2) by Gauss's continued fraction (DLMF 15.7.5), all of whose
    terms are positive. For large df it is Laplace's, of the normal tail.

    As many terms as size = 1 takes, from the last one, whose rest is as if all that follow equalled
    it: forward, with df large, the rounding of the factors exceeds what tells that they have ended.
    """
    ratio = size / sqrt(df)
    inverse = 1 / ratio
    inverse = inverse * inverse

    def numerator(k: Any) -> Array:
        return (df + (k - 1)) / (df + (2 * k - 2)) * (k / (df + 2 * k) * inverse)

    def outward(i: Any, state: Any) -> tuple[Array, Array]:
        k, value = state
        return k - 1, 1 + numerator(k) / value

    terms = 40 if size.dtype == dt.float32 else 200  # to within the rounding of 1
    rest = 0.5 + sqrt(0.25 + numerator(terms + 1.0))
    last = terms * ones((), size.dtype)
    fraction = fori_loop(0, terms, outward, (last, rest))[1]
    power = 0.5 * log1p(inverse) - 0.5 * df * log1p_square(ratio)
    return power - log(df) - betaln(0.5 * df, 0.5) - log(fraction)
