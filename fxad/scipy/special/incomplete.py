"""Incomplete gamma and beta functions: gammainc, gammaincc, betainc.

gammainc(a, x)      # P(a, x), the share of Gamma(a)'s integral below x

Series and continued fractions run until every element has converged (Numerical Recipes, 6.2 and
6.4); where the shape of gammainc is large, Temme's expansion takes their place (DLMF 8.12). The
derivative in x is the integrand; that in a shape parameter is the derivative of the series itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from fxad.api.autodiff import jvp
from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.lax.loops import while_loop
from fxad.numpy import (
    abs,
    any,
    exp,
    expm1,
    isinf,
    isnan,
    log,
    log1p,
    maximum,
    minimum,
    ones,
    ones_like,
    sqrt,
    where,
    zeros_like,
)
from fxad.scipy.special.gammas import betaln, digamma, stirling_rest
from fxad.scipy.special.loggammas import log_gamma_1p
from fxad.scipy.special.support import moved, polynomial, slope, special
from fxad.trace.array import Array

_LIMIT = 2000  # iterations; the slowest, at a = x, take about 8.5 sqrt(a)
_LARGE = 4e4  # the shape from which the uniform expansion takes over
_LARGE_32 = 200.0  # the same for slopes of draws in float32
_NEAR = 0.22  # |x - a| / a, beyond which P and Q of a large shape are 0 or 1 to the last bit


def _until_converged(
    step: Callable[..., Any], start: tuple, unfinished: Callable[[tuple], Array]
) -> Any:
    """Iterate a state while any element is unfinished."""

    def going(carry: Any) -> Array:
        count, state = carry
        return (count < _LIMIT) & any(unfinished(state))

    def body(carry: Any) -> Any:
        count, state = carry
        return count + 1, step(count, *state)

    first = ones((), start[0].dtype)
    return while_loop(going, body, (first, start))[1]


def _counts(change: Array, total: Array, units: float) -> Array:
    """Whether a change is more than some units of rounding of the total."""
    small = units * float(dt.finfo(total.dtype).eps)
    return abs(change) > small * abs(total)


def gamma_series(a: Array, x: Array) -> Array:
    """Sum of x**n / ((a + 1) ... (a + n))."""

    def step(n: Array, term: Array, total: Array) -> tuple:
        term = term * x / (a + n)
        return term, total + term

    one = ones_like(x)
    return _until_converged(step, (one, one), lambda state: _counts(state[0], state[1], 0.5))[1]


_UNITS = 3.0  # converged factors are 1 to within the rounding of c and d, not exactly


def _lentz_step(n: Array, b: Array, c: Array, d: Array, value: Array) -> tuple:
    """From k - 1 to k terms of a fraction; c and d are the ratios of its numerators and of its
    denominators, the last result is how much the value changes."""
    tiny = 1e-30
    d = b + n * d
    d = 1 / where(d == 0, tiny, d)
    c = b + n / c
    c = where(c == 0, tiny, c)
    factor = c * d
    return c, d, value * factor, value * (factor - 1)


@partial(custom_jvp, nondiff_argnums=(0, 1))
def _lentz(numerator: Callable, denominator: Callable, parameters: tuple) -> Array:
    start = denominator(0, *parameters)

    def step(k: Array, c: Array, d: Array, value: Array, change: Array) -> tuple:
        return _lentz_step(numerator(k, *parameters), denominator(k, *parameters), c, d, value)

    return _until_converged(
        step, (start, 0 * start, start, start), lambda state: _counts(state[3], state[2], _UNITS)
    )[2]


def _lentz_slope(
    numerator: Callable, denominator: Callable, parameters: tuple, index: int
) -> Array:
    """The derivative of a fraction in one of its parameters, iterated until it has converged too.

    That is later than the fraction has where a numerator is close to 0 but its derivative is not.
    """
    at = parameters[index]

    def moved_to(p: Array) -> tuple:
        return *parameters[:index], p, *parameters[index + 1 :]

    def step(k: Array, *state: Array) -> tuple:
        def next_of(p: Array, c: Array, d: Array, value: Array) -> tuple:
            ps = moved_to(p)
            return _lentz_step(numerator(k, *ps), denominator(k, *ps), c, d, value)

        values, slopes = jvp(next_of, (at, *state[:3]), (ones_like(at), *state[4:7]))
        return *values, *slopes

    def unfinished(state: tuple) -> Array:
        _, d, value, change, rate, _, slope, slope_change = state
        # What it changes by is a difference of numbers of the size of value * rate * d.
        size = abs(slope) + abs(value) * (1 + abs(rate * d))
        steep = _counts(slope_change, size, _UNITS)
        return _counts(change, value, _UNITS) | steep

    start = denominator(0, *parameters)
    rate = slope(lambda p: denominator(0, *moved_to(p)), at)
    zero = 0 * start
    first = (start, zero, start, start, rate, zero, rate, rate)
    return _until_converged(step, first, unfinished)[6]


def _lentz_jvp(
    numerator: Callable, denominator: Callable, primals: Any, tangents: Any
) -> tuple[Array, Array]:
    (parameters,), (ways,) = primals, tangents
    in_each = (
        partial(_lentz_slope, numerator, denominator, parameters, k) for k in range(len(ways))
    )
    return _lentz(numerator, denominator, parameters), moved(*zip(ways, in_each, strict=True))


_lentz.defjvp(_lentz_jvp, symbolic_zeros=True)


def lentz(numerator: Callable, denominator: Callable, *parameters: Array) -> Array:
    """d_0 + n_1 / (d_1 + n_2 / (d_2 + ...)) by the modified method of Lentz.

    numerator, denominator: functions of k and of the parameters, in which it has derivatives.
    """
    return _lentz(numerator, denominator, parameters)


def gamma_fraction(a: Array, x: Array) -> Array:
    """Gamma(a, x) exp(x) x**-a as 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - ...)), x >= a + 1."""
    return 1 / lentz(lambda k, a, x: -k * (k - a), lambda k, a, x: x + 2 * k + 1 - a, a, x)


def stirling_power(a: Array, x: Array) -> Array:
    """log(x**a exp(-x) sqrt(2 pi a) / Gamma(a + 1)) by Stirling's series, a >= 8; x may be close
    to a."""
    off = (x - a) / a
    near = abs(off) < 0.5
    ratio = where(near, log1p(where(near, off, 0.0)), log(x / a))
    return a * (ratio - off) - stirling_rest(a)


def _prefactor(a: Array, x: Array) -> Array:
    """x**a exp(-x) / Gamma(a + 1)."""
    large = a >= 8
    size = where(large, a, 8.0)
    stirling = exp(stirling_power(size, x)) / sqrt(2 * math.pi * size)
    return where(large, stirling, exp(a * log(x) - x - OPS["lgamma"](a + 1)))


def _temme() -> tuple[list[float], ...]:
    """Taylor coefficients of c_0, c_1 and c_2 of DLMF 8.12.7, by 8.12.11 and 8.12.12."""
    count = 20
    alpha = [0.0, 1.0]
    for n in range(2, count):
        products = math.fsum(j * alpha[j] * alpha[n + 1 - j] for j in range(2, n))
        alpha.append((alpha[n - 1] - products) / (n + 1))
    rows = [[-1 / 3, *((n + 2) * alpha[n + 2] for n in range(1, count - 2))]]
    for k, g in ((1, 1 / 12), (2, 1 / 288)):
        older, sign = rows[-1], (-1) ** k
        rows.append([sign * g * rows[0][n] + (n + 2) * older[n + 2] for n in range(len(older) - 2)])
    return tuple(row[:size] for row, size in zip(rows, (14, 10, 6), strict=True))


_TEMME = _temme()
# (w - log(1 + w)) / w**2, |w| <= _NEAR
_LESS_LOG = [(-1) ** k / (k + 2) for k in range(24)]


def _eta_per_off(a: Array, x: Array) -> tuple[Array, Array]:
    """off = (x - a) / a within _NEAR, and eta / off, eta as in DLMF 8.12.1."""
    off = maximum(minimum((x - a) / a, _NEAR), -_NEAR)
    return off, sqrt(2 * polynomial(off, _LESS_LOG))


def _gamma_uniform(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) and Q(a, x) for a >= _LARGE: Temme's uniform expansion, DLMF 8.12.3 to 8.12.7."""
    off, per_off = _eta_per_off(a, x)
    eta = off * per_off
    z = eta * sqrt(0.5 * a)
    zeroth, first, second = (polynomial(eta, row) for row in _TEMME)
    rest = exp(-z * z) / sqrt(2 * math.pi * a) * (zeroth + (first + second / a) / a)
    return 0.5 * OPS["erfc"](-z) - rest, 0.5 * OPS["erfc"](z) + rest


def _small_upper(a: Array, x: Array) -> Array:
    """Q(a, x) for a <= 1/2 and x <= 3/2 as a small number and not as 1 - P(a, x).

    P = exp(t) (1 + a s), with t = a log x - log Gamma(1 + a) and s the sum of
    (-x)**n / ((a + n) n!) over n = 1, 2, ... (DLMF 8.7.1).
    """

    def step(n: Array, term: Array, total: Array, _: Array) -> tuple:
        term = term * (-x / n)
        change = term / (a + n)
        return term, total + change, change

    start = (ones_like(x), zeros_like(x), ones_like(x))
    total = _until_converged(step, start, lambda state: _counts(state[2], state[1], 0.5))[1]
    t = a * log(x) - log_gamma_1p(a)
    return -expm1(t) - exp(t) * (a * total)


def _gamma_both(a: Array, x: Array) -> tuple[Array, Array]:
    """P(a, x) and Q(a, x) for a > 0 and 0 < x < inf, each without cancellation where small."""
    large = a >= _LARGE
    uniform = _gamma_uniform(where(large, a, _LARGE), where(large, x, _LARGE))
    a, x = where(large, 1.0, a), where(large, 1.0, x)
    low = x < a + 1
    scale = _prefactor(a, x)
    below = scale * gamma_series(a, where(low, x, 0.5 * a))
    above = scale * a * gamma_fraction(a, where(low, 2 * a + 2, x))
    small = low & (a < 0.5) & (below > 0.9)
    upper = _small_upper(where(small, a, 0.5), where(small, x, 1e-30))
    lower, upper = where(low, below, 1 - above), where(low, where(small, upper, 1 - below), above)
    return where(large, uniform[0], lower), where(large, uniform[1], upper)


def _at_limits(a: Array, x: Array) -> tuple[Array, Array, Array]:
    """Whether (a, x) is inside the domain, and arguments that are."""
    inside = (a > 0) & (x > 0) & ~isinf(x) & ~isinf(a)
    return inside, where(inside, a, 1.0), where(inside, x, 1.0)


@custom_jvp
def _gammainc(a: Array, x: Array) -> Array:
    return _gamma_both(a, x)[0]


@custom_jvp
def _gammaincc(a: Array, x: Array) -> Array:
    return _gamma_both(a, x)[1]


def _density(a: Array, x: Array) -> Array:
    return _prefactor(a, x) * (a / x)


def _gammainc_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, x), (da, dx) = primals, tangents
    in_a = lambda: slope(lambda v: _gamma_both(v, x)[0], a)  # noqa: E731
    return _gammainc(a, x), moved((da, in_a), (dx, lambda: _density(a, x)))


def _gammaincc_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, x), (da, dx) = primals, tangents
    in_a = lambda: slope(lambda v: _gamma_both(v, x)[1], a)  # noqa: E731
    return _gammaincc(a, x), moved((da, in_a), (dx, lambda: -_density(a, x)))


_gammainc.defjvp(_gammainc_jvp, symbolic_zeros=True)
_gammaincc.defjvp(_gammaincc_jvp, symbolic_zeros=True)


def _logarithm(series: list[float]) -> list[float]:
    """Taylor coefficients of the logarithm of a series that begins with 1, from the first power."""
    found: list[float] = []
    for n in range(1, len(series)):
        older = math.fsum(k * found[k - 1] * series[n - k] for k in range(1, n))
        found.append(series[n] - older / n)
    return found


# log(eta / off) / off
_LOG_PER_OFF = [0.5 * c for c in _logarithm([2 * c for c in _LESS_LOG])]


def _log_slope_of_large(a: Array, x: Array) -> Array:
    """`log_slope_of_draw` for large a, but for a part in a**-2. What P depends on, and so stays as
    it is, is (eta - c(eta) / a) sqrt(a), with c = log(eta / off) / eta (N. M. Temme, "Asymptotic
    inversion of incomplete gamma functions", 1992)."""
    off, per_off = _eta_per_off(a, x)
    eta = off * per_off
    c, in_off = jvp(
        lambda at: polynomial(at, _LOG_PER_OFF) / sqrt(2 * polynomial(at, _LESS_LOG)),
        (off,), (ones_like(off),),
    )  # fmt: skip
    in_eta = in_off * (1 + off) * per_off
    return (1 - 0.5 * per_off * (eta + c / a) / (1 - in_eta / a)) / a


@special
def log_slope_of_draw(a: Array, log_x: Array) -> Array:
    """d log(x) / da of a draw x of the gamma distribution of shape a: how x moves where P(a, x)
    stays as it is, -(dP/da) / (x dP/dx).

    With P and Q as powers times a series or a fraction, the powers cancel, so that a draw that
    underflows has a slope as well (M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization
    gradients", 2018).
    """
    x = exp(log_x)
    large = a >= (_LARGE if a.dtype == dt.float64 else _LARGE_32)
    large = large & (abs(x - a) <= _NEAR * a)
    expanded = _log_slope_of_large(where(large, a, _LARGE), where(large, x, _LARGE))
    a, log_x, x = where(large, 1.0, a), where(large, 0.0, log_x), where(large, 1.0, x)
    low = x < a + 1
    below = where(low, x, 0.5 * a)
    series, in_series = jvp(lambda v: gamma_series(v, below), (a,), (ones_like(a),))
    at_low = -(series * (log_x - digamma(a + 1)) + in_series) / a
    above = where(low, 2 * a + 2, x)
    fraction, in_fraction = jvp(lambda v: gamma_fraction(v, above), (a,), (ones_like(a),))
    at_high = fraction * (log_x - digamma(a)) + in_fraction
    return where(large, expanded, where(low, at_low, at_high))


@special
def gammainc(a: Any, x: Any) -> Array:
    """Regularised lower incomplete gamma function P(a, x); a > 0 and x >= 0, else NaN.

    >>> fxad.lax.igamma(2.0, jnp.array([0.0, 1.0, 10.0])).round(3)
    Array([0.   , 0.264, 1.   ], dtype=float32)
    """
    inside, shape, at = _at_limits(a, x)
    edge = where(
        (a > 0) & ~isinf(a) & (x == 0), 0.0, where((a >= 0) & ~isinf(a) & (x > 0), 1.0, math.nan)
    )
    edge = where((a == math.inf) & (x >= 0), where(isinf(x), math.nan, 0.0), edge)
    edge = where(isnan(a) | isnan(x), math.nan, edge)
    return where(inside, _gammainc(shape, at), edge)


@special
def gammaincc(a: Any, x: Any) -> Array:
    """Regularised upper incomplete gamma function Q(a, x) = 1 - P(a, x).

    >>> fxad.lax.igammac(2.0, jnp.array([0.0, 1.0, 10.0])).round(3)
    Array([1.   , 0.736, 0.   ], dtype=float32)
    """
    inside, shape, at = _at_limits(a, x)
    edge = where(
        (a > 0) & ~isinf(a) & (x == 0), 1.0, where((a >= 0) & ~isinf(a) & (x > 0), 0.0, math.nan)
    )
    edge = where((a == math.inf) & (x >= 0), where(isinf(x), math.nan, 1.0), edge)
    edge = where(isnan(a) | isnan(x), math.nan, edge)
    return where(inside, _gammaincc(shape, at), edge)


@special
def igamma_grad_a(a: Any, x: Any) -> Array:
    """Derivative of `gammainc(a, x)` in the shape a; a > 0 and x >= 0, else NaN.

    >>> fxad.lax.igamma_grad_a(2.0, jnp.array([0.0, 1.0, 10.0])).round(3)
    Array([ 0.   , -0.276, -0.001], dtype=float32)
    """
    inside, shape, at = _at_limits(a, x)
    edge = where((a > 0) & ((x == 0) | isinf(x)) & (x >= 0) & ~isinf(a), 0.0, math.nan)
    return where(inside, slope(lambda v: _gamma_both(v, at)[0], shape), edge)


@special
def random_gamma_grad(a: Any, x: Any) -> Array:
    """dx / da of a draw x of the gamma distribution of shape a (`log_slope_of_draw`).

    >>> fxad.lax.random_gamma_grad(2.0, jnp.array([0.0, 1.0, 10.0])).round(3)
    Array([0.   , 0.751, 2.177], dtype=float32)
    """
    inside, shape, at = _at_limits(a, x)
    edge = where((a > 0) & (x == 0), 0.0, math.nan)
    return where(inside, at * log_slope_of_draw(shape, log(at)), edge)


# ---------------------------------------------------------------- beta


def beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """The continued fraction of I_x(a, b), DLMF 8.17.22, x < (a + 1) / (a + b + 2)."""

    def numerator(k: Array, a: Array, b: Array, x: Array) -> Array:
        m = OPS["floor"](k / 2)
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        return where(k == 2 * m, even, odd)

    return 1 / lentz(numerator, lambda k, a, b, x: ones_like(x), a, b, x)


def _beta_below(a: Array, b: Array, x: Array) -> Array:
    front = exp(a * log(x) + b * log1p(-x) - betaln(a, b))
    swap = x >= (a + 1) / (a + b + 2)
    first, second = where(swap, b, a), where(swap, a, b)
    value = front * beta_fraction(first, second, where(swap, 1 - x, x)) / first
    return where(swap, 1 - value, value)


@custom_jvp
def _betainc(a: Array, b: Array, x: Array) -> Array:
    return _beta_below(a, b, x)


def _betainc_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b, x), (da, db, dx) = primals, tangents
    return _betainc(a, b, x), moved(
        (da, lambda: slope(lambda v: _beta_below(v, b, x), a)),
        (db, lambda: slope(lambda v: _beta_below(a, v, x), b)),
        (dx, lambda: exp((a - 1) * log(x) + (b - 1) * log1p(-x) - betaln(a, b))),
    )


_betainc.defjvp(_betainc_jvp, symbolic_zeros=True)


@special
def betainc(a: Any, b: Any, x: Any) -> Array:
    """Regularised incomplete beta function I_x(a, b); a, b > 0 and 0 <= x <= 1, else NaN.

    >>> fxad.lax.betainc(2.0, 3.0, jnp.array([0.0, 0.5, 1.0])).round(3)
    Array([0.   , 0.688, 1.   ], dtype=float32)
    """
    shapes = (a > 0) & (b > 0) & ~isinf(a) & ~isinf(b)
    inside = shapes & (x > 0) & (x < 1)
    safe = [where(inside, v, 0.5) for v in (a, b, x)]
    edge = where(shapes & (x == 0), 0.0, where(shapes & (x == 1), 1.0, math.nan))
    return where(inside, _betainc(*safe), edge)


@special
def betaincc(a: Any, b: Any, x: Any) -> Array:
    """1 - betainc(a, b, x) = I_(1 - x)(b, a).

    >>> fxad.scipy.special.betaincc(2.0, 3.0, jnp.array([0.0, 0.5, 1.0])).round(3)
    Array([1.   , 0.312, 0.   ], dtype=float32)
    """
    return betainc(b, a, 1 - x)
