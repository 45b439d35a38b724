"""The gamma function and its relatives: gamma, beta, digamma, polygamma, zeta, ...

gamma(5.0)                      # 24.0
polygamma(1, 0.5)               # pi**2 / 2
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.ir.program import OPS
from fxad.lax.branches import cond
from fxad.numpy import (
    any,
    asarray,
    exp,
    floor,
    isinf,
    log,
    log1p,
    maximum,
    minimum,
    sin,
    where,
    zeros_like,
)
from fxad.numpy import power as pow
from fxad.numpy import round as rounded
from fxad.numpy.weak import gives_strong
from fxad.ops.elements.special import digamma as _digamma
from fxad.scipy.special.support import HALF_LOG_2PI, chebyshev, polynomial, special
from fxad.scipy.special.tables import GAMMA
from fxad.trace.array import Array

# Stirling's series: log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + x**-1 S(x**-2)
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)


@special
def gammaln(x: Any) -> Array:
    """log |Gamma(x)|; inf at 0, -1, -2, ... and at -inf.

    >>> fxad.scipy.special.gammaln(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.572, 0.   , 1.792], dtype=float32)
    """
    return OPS["lgamma"](x)


@gives_strong
@special
def gammasgn(x: Any) -> Array:
    """Sign of Gamma(x): 1, -1, or NaN at the poles -1, -2, ...; that of x at 0.

    >>> fxad.scipy.special.gammasgn(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([1., 1., 1.], dtype=float32)
    """
    negative = x < 0
    below = floor(where(negative, x, 0.0))
    odd = below - 2 * floor(below / 2)
    signed = where(negative, where(x == below, math.nan, 1 - 2 * odd), where(x == x, 1.0, math.nan))
    return where(x == 0, where(1 / x < 0, -1.0, 1.0), signed)


def stirling_rest(x: Array) -> Array:
    """log Gamma(x) less the leading terms of Stirling's series, x >= 8."""
    inverse = 1 / x
    return inverse * polynomial(inverse * inverse, STIRLING)


def _gamma_small(x: Array) -> Array:
    """Gamma on 0.5 <= x < 8: a polynomial on [2, 3) and the recurrence."""
    fraction = x - floor(x)
    steps = floor(x) - 2
    value = 1 + fraction * chebyshev(2 * fraction - 1, GAMMA)
    for k in range(2, 7):
        value = value * where(steps > k - 2, fraction + k, 1.0)
    value = where(steps <= -1, value / (fraction + 1), value)
    return where(steps <= -2, value / where(steps <= -2, fraction, 1.0), value)


def _gamma_large(x: Array) -> tuple[Array, Array]:
    """Gamma by Stirling's series, x >= 8, as two factors, as the power overflows first.

    Beyond `limit` Gamma and 1 / (x Gamma) are out of range, and exp(-x) would be 0 next to inf.
    """
    limit = 45.0 if x.dtype == dt.float32 else 200.0
    x = minimum(x, limit)
    half = pow(x, 0.5 * x - 0.25)
    return math.sqrt(2 * math.pi) * exp(stirling_rest(x)) * half, half * exp(-x)


def _gamma_factors(x: Array) -> tuple[Array, Array]:
    """Two factors of Gamma for x >= 0.5, which are finite where their product is not."""
    small = x < 8
    first, second = _gamma_large(where(small, 8.0, x))
    return where(small, _gamma_small(where(small, x, 2.0)), first), where(small, 1.0, second)


def _sine(x: Array) -> Array:
    """sin(pi x), 0 at whole numbers."""
    nearest = rounded(x)
    return sin(math.pi * (x - nearest)) * _parity(nearest)


def _parity(n: Array) -> Array:
    """(-1)**n of whole numbers."""
    return 1 - 2 * (n - 2 * floor(n / 2))


@custom_jvp
def _gamma(x: Array) -> Array:
    mirrored = x < 0.5
    first, second = _gamma_factors(where(mirrored, 1 - x, x))
    value = first * second
    sine = _sine(x)
    pole = sine == 0
    sine = where(pole, 1.0, sine)
    # Of a product that overflows the inverse may still be more than 0.
    gradual = math.pi / (sine * first) / second
    reflected = where(isinf(value), gradual, math.pi / (sine * value))
    reflected = where(x == 0, 1 / x, where(pole, math.nan, reflected))
    return where(mirrored, where(isinf(x), math.nan, reflected), where(isinf(x), x, value))


@_gamma.defjvp
def _gamma_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    value = _gamma(x)
    return value, dx * (value * _digamma(x))


@gives_strong
@special
def gamma(x: Any) -> Array:
    """The gamma function; NaN at -1, -2, ..., signed infinity at 0.

    >>> fxad.scipy.special.gamma(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([1.772, 1.   , 6.   ], dtype=float32)
    """
    return _gamma(x)


@custom_jvp
def _rgamma(x: Array) -> Array:
    mirrored = x < 0.5
    sine = _sine(where(mirrored, x, 0.25))
    first, second = _gamma_factors(where(mirrored, 1 - x, x))
    value = first * second
    upper = where(isinf(value), 1 / first / second, 1 / value)
    reflected = where((sine == 0) | isinf(x), 0.0, sine * first / math.pi * second)
    return where(mirrored, reflected, where(isinf(x), 0.0, upper))


@_rgamma.defjvp
def _rgamma_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """-digamma(x) / Gamma(x), below 1/2 as the product that it is by reflection (DLMF 5.5.3):
    Gamma(1 - x) (cos(pi x) - sin(pi x) digamma(1 - x) / pi), which has no poles."""
    (x,), (dx,) = primals, tangents
    value = _rgamma(x)
    mirrored = x < 0.5
    below, above = where(mirrored, x, 0.25), where(mirrored | isinf(x), 1.0, x)
    cosine = _sine(below + 0.5)
    turned = cosine - _sine(below) * (_digamma(1 - below) / math.pi)
    slope = where(mirrored, _gamma(1 - below) * turned, -value * _digamma(above))
    return value, dx * slope


@special
def rgamma(x: Any) -> Array:
    """1 / Gamma(x), which has no poles: 0 at 0, -1, -2, ..., and derivatives there.

    >>> fxad.scipy.special.rgamma(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.564, 1.   , 0.167], dtype=float32)
    """
    return _rgamma(x)


def factorial(n: Any, exact: bool = False) -> Array:
    """n! = Gamma(n + 1), and 0 for negative n. Raises BadArgument for `exact`.

    >>> fxad.scipy.special.factorial(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([ 0.886,  1.   , 24.   ], dtype=float32)
    """
    if exact:
        raise BadArgument("factorial: computed as a float: exact must be False")
    return _factorial(n)


@special
def _factorial(n: Any) -> Array:
    return where(n < 0, 0.0, _gamma(maximum(n, 0) + 1))


@gives_strong
@special
def poch(z: Any, m: Any) -> Array:
    """Pochhammer's symbol Gamma(z + m) / Gamma(z), z > 0 and z + m > 0.

    >>> fxad.scipy.special.poch(3.0, jnp.array([0.0, 1.0, 2.0])).round(3)  # 1, 3, 3 * 4
    Array([ 1.,  3., 12.], dtype=float32)
    """
    large = (z >= 8) & (z + m >= 8)
    near, steps = where(large, z, 8.0), where(large, m, 0.0)
    # By Stirling's series; the power is split, as it may overflow first.
    rest = stirling_rest(near + steps) - stirling_rest(near)
    size = (near - 0.5) * log1p(steps / near) - steps + rest
    half = pow(near + steps, 0.5 * steps)
    direct = exp(where(large, 0.0, OPS["lgamma"](z + m) - OPS["lgamma"](z)))
    return where(large, half * exp(size) * half, direct)


# ---------------------------------------------------------------- beta


def _log_beta_large(a: Array, b: Array) -> Array:
    """log B(a, b), 8 <= a <= b, without cancellation."""
    rest = stirling_rest(a) + stirling_rest(b) - stirling_rest(a + b)
    ratio = a / (a + b)
    return HALF_LOG_2PI - 0.5 * log(b) + rest + (a - 0.5) * log(ratio) + b * log1p(-ratio)


def _log_gamma_ratio(a: Array, b: Array) -> Array:
    """log(Gamma(b) / Gamma(a + b)), b >= 8 and a < b."""
    rest = stirling_rest(b) - stirling_rest(a + b)
    return rest - (b - 0.5) * log1p(a / b) + a - a * log(a + b)


@special
def betaln(a: Any, b: Any) -> Array:
    """log |B(a, b)|, accurate also where the gamma functions in it are much larger.

    >>> fxad.scipy.special.betaln(2.0, jnp.array([1.0, 3.0])).round(3)
    Array([-0.693, -2.485], dtype=float32)
    """
    low, high = minimum(a, b), maximum(a, b)
    both, one = low >= 8, (high >= 8) & (low > 0) & (low < 8)
    safe = where(one | both, high, 8.0)
    large = _log_beta_large(where(both, low, 8.0), safe)
    mixed = OPS["lgamma"](low) + _log_gamma_ratio(where(one, low, 1.0), safe)
    small = OPS["lgamma"](low) + OPS["lgamma"](high) - OPS["lgamma"](low + high)
    return where(both, large, where(one, mixed, small))


@gives_strong
@special
def beta(a: Any, b: Any) -> Array:
    """Gamma(a) Gamma(b) / Gamma(a + b).

    >>> fxad.scipy.special.beta(2.0, jnp.array([1.0, 3.0])).round(4)
    Array([0.5   , 0.0833], dtype=float32)
    """
    signs = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    return OPS["stop_gradient"](signs) * exp(betaln(a, b))


# ---------------------------------------------------------------- derivatives of log gamma


@special
def digamma(x: Any) -> Array:
    """Derivative of gammaln.

    >>> fxad.lax.digamma(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([-1.964, -0.577,  1.256], dtype=float32)
    """
    return _digamma(x)


psi = digamma

# B(2k) / (2k)! of the Euler-Maclaurin formula
_EULER_MACLAURIN = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
    43867 / 5109094217170944000,
)
_TERMS = 10


def _euler_maclaurin(s: Array, q: Array) -> Array:
    """Hurwitz' zeta function for s > 1 and q > 0, by the Euler-Maclaurin formula (DLMF 25.11.5)."""
    total = pow(q, -s)
    for k in range(1, _TERMS):
        total = total + pow(q + k, -s)
    at = q + _TERMS
    last = pow(at, -s)
    total = total + last * at / (s - 1) + 0.5 * last
    factor = s * last / at
    for k, coefficient in enumerate(_EULER_MACLAURIN):
        total = total + coefficient * factor
        factor = factor * ((s + 2 * k + 1) / at) * ((s + 2 * k + 2) / at)
    return total


def _zeta_below(s: Array, q: Array) -> Array:
    """The sum of (q + k)**-s over k = 0, 1, ... for a whole s > 1 and q < 0.

    That over all whole k is a function of q with period 1. With f = q - floor(q) it is
    zeta(s, f) + (-1)**s zeta(s, 1 - f), and what is too many of it is (-1)**s zeta(s, 1 - q).
    """
    below, above = q - floor(q), -floor(-q) - q
    rest = _euler_maclaurin(s, above) - _euler_maclaurin(s, 1 - q)
    return _euler_maclaurin(s, below) + _parity(s) * rest


@special
def zeta(x: Any, q: Any = 1.0) -> Array:
    """Hurwitz' zeta function: the sum of (q + k)**-x over k = 0, 1, ...; x > 1, q > 0 or x whole.

    inf at x = 1 and q = 0, -1, ..., NaN outside. For q > 0 it has derivatives in both arguments.

    >>> fxad.lax.zeta(2.0, jnp.array([1.0, 2.0])).round(3)  # pi**2 / 6, and 1 less
    Array([1.645, 0.645], dtype=float32)
    """
    above = (x > 1) & (q > 0)
    value = _euler_maclaurin(where(above, x, 2.0), where(above, q, 1.0))
    pole = (x > 1) & (q <= 0) & (q == floor(q))
    below = (x > 1) & (q < 0) & (x == floor(x)) & ~pole
    mirrored = cond(
        any(below),
        lambda: _zeta_below(where(below, x, 2.0), where(below, q, -0.5)),
        lambda: zeros_like(value),
    )
    edge = where((x == 1) | pole, math.inf, math.nan)
    return where(above, value, where(below, mirrored, edge))


@special
def _polygamma(n: Any, x: Any) -> Array:
    order = where(n == 0, 1.0, n)
    value = -_parity(n) * exp(OPS["lgamma"](order + 1)) * zeta(order + 1, x)
    return where(n == 0, _digamma(x), value)


def polygamma(n: Any, x: Any) -> Array:
    """Derivative number n of digamma, n = 0, 1, 2, ...

    >>> fxad.lax.polygamma(1.0, jnp.array([1.0, 2.0])).round(3)
    Array([1.645, 0.645], dtype=float32)
    """
    return _polygamma(OPS["stop_gradient"](n) if isinstance(n, Array) else n, x)


@gives_strong
def multigammaln(a: Any, d: int) -> Array:
    """log of the multivariate gamma function of dimension d: a > (d - 1) / 2.

    >>> fxad.scipy.special.multigammaln(jnp.array([2.0, 5.0]), 2).round(3)
    Array([0.452, 6.204], dtype=float32)
    """
    if isinstance(d, bool) or not hasattr(d, "__index__") or d.__index__() < 1:
        raise BadArgument(f"multigammaln: the dimension d must be a positive int, got {d!r}")
    total = gammaln(a) + 0.25 * d * (d - 1) * math.log(math.pi)
    for k in range(1, d):
        total = total + gammaln(a - 0.5 * k)
    return total


def comb(N: Any, k: Any, *, repetition: bool = False) -> Array:
    """Binomial coefficient of real N >= k >= 0, through betaln; with `repetition`, of N + k - 1.

    >>> fxad.scipy.special.comb(5, jnp.array([0, 2, 3])).round(3)
    Array([ 1., 10., 10.], dtype=float32)
    """
    if repetition:
        return comb(N + k - 1, k)
    return _comb(N, k)


@special
def _comb(n: Any, k: Any) -> Array:
    inside = (k >= 0) & (k <= n)
    top, chosen = where(inside, n, 1.0), where(inside, k, 0.0)
    size = -betaln(1 + top - chosen, 1 + chosen)
    large = size > (80.0 if n.dtype == dt.float32 else 700.0)  # its exponential may overflow
    divisor = where(large, 1.0, top + 1)
    return where(inside, exp(size - where(large, log(top + 1), 0.0)) / divisor, 0.0)


_FINITE = 258  # B_258 is the last Bernoulli number that float64 holds


def _bernoulli_number(n: int, tangents: list[int]) -> float:
    if n < 2 or n % 2:
        return {0: 1.0, 1: -0.5}.get(n, 0.0)
    sign = 1 if n % 4 == 2 else -1
    if n > _FINITE:
        return sign * math.inf
    return float(Fraction(sign * n * tangents[n // 2 - 1], 4**n - 2**n))


def _tangent_numbers(count: int) -> list[int]:
    """1, 2, 16, 272, ...: R. P. Brent and D. Harvey, "Fast computation of Bernoulli, tangent and
    secant numbers", 2011, algorithm 2."""
    numbers = [math.factorial(k) for k in range(count)]
    for k in range(1, count):
        for j in range(k, count):
            numbers[j] = (j - k) * numbers[j - 1] + (j - k + 2) * numbers[j]
    return numbers


def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B_0, ..., B_n, with B_1 = -1/2: n + 1 floats, each rounded once.

    Raises BadArgument unless n is an int, 0 or more.

    >>> bernoulli(1)
    Array([ 1. , -0.5], dtype=float32)
    """
    if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 0:
        raise BadArgument(f"bernoulli: n must be an int, 0 or more, got {n!r}")
    tangents = _tangent_numbers(min(int(n), _FINITE) // 2)
    return asarray([_bernoulli_number(k, tangents) for k in range(int(n) + 1)])
