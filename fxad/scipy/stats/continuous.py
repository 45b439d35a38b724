"""Continuous distributions of one variable: norm, beta, gamma, t, chi2, ...

norm.logpdf(x, loc=1.0, scale=2.0)      gamma.cdf(x, 2.5)       expon.ppf(0.5)

A distribution is a record: formulas for the standard form, of z = (x - loc) / scale and its shape
parameters. Arguments broadcast; outside the support densities are 0 and have gradient 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.core.errors import BadArgument
from fxad.numpy import (
    abs,
    arctan2,
    cos,
    exp,
    expm1,
    isnan,
    log,
    log1p,
    minimum,
    sin,
    sqrt,
    tan,
    where,
)
from fxad.numpy.core import promoted
from fxad.scipy.special import (
    betainc,
    betaln,
    erf,
    erfinv,
    expit,
    gammainc,
    gammaincc,
    gammaln,
    i0e,
    log_expit,
    log_ndtr,
    logit,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)
from fxad.scipy.special.normal import ROOT_HALF
from fxad.scipy.special.support import LOG_2PI
from fxad.scipy.stats.tails import (
    LOG_2,
    after_zero,
    beta_above,
    log1mexp,
    log1mexp_exp,
    log1p_square,
    log_beta_above,
    log_beta_below,
    log_gamma_above,
    log_gamma_below,
    log_mass,
    log_of,
    log_smaller,
    log_t_tail,
    sloped,
)
from fxad.trace.array import Array

Formula = Callable[..., Any]


class Continuous:
    """One distribution. Its methods take (x, *shapes, loc=0, scale=1), also by keyword.

    Raises BadArgument for missing or unknown parameters, and for a function that the
    distribution has no formula of.
    """

    def __init__(
        self,
        name: str,
        shapes: Sequence[str] = (),
        *,
        support: Formula = lambda *shapes: (-math.inf, math.inf),
        logpdf: Formula,
        **formulas: Formula,
    ) -> None:
        self.name = name
        self.shapes = tuple(shapes)
        self._support = support
        self._formulas = {"logpdf": logpdf, **formulas}

    def __repr__(self) -> str:
        return f"<distribution {self.name}({', '.join((*self.shapes, 'loc', 'scale'))})>"

    def _arguments(self, method: str, x: Any, args: tuple, named: dict[str, Any]) -> list[Array]:
        """x, loc, scale and the shape parameters in one dtype and shape."""
        names = (*self.shapes, "loc", "scale")
        given = {"loc": 0.0, "scale": 1.0, **dict(zip(names, args, strict=False)), **named}
        wrong = sorted(set(given) - set(names)) or sorted(set(names) - set(given))
        if wrong or len(args) > len(names) or set(names[: len(args)]) & set(named):
            raise BadArgument(
                f"{self.name}: takes ({', '.join(names)}) after its first argument; "
                f"got {len(args)} positional and {sorted(named)}"
            )
        ordered = [given[n] for n in ("loc", "scale", *self.shapes)]
        return promoted(f"{self.name}.{method}", x, *ordered, inexact=True, numbers=False)

    def _formula(self, name: str) -> Formula:
        """A formula; logarithms by default those of cdf and sf."""
        if name in ("logcdf", "logsf") and name not in self._formulas:
            part, rest = map(self._formula, ("cdf", "sf") if name == "logcdf" else ("sf", "cdf"))
            return lambda z, *shapes: log_of(part(z, *shapes), rest(z, *shapes))
        if name not in self._formulas:
            raise BadArgument(f"{self.name}.{name}: not available for this distribution")
        return self._formulas[name]

    def _at(
        self, name: str, arguments: Sequence[Array], below: Any, above: Any, scaled: bool = False
    ) -> Array:
        """A formula inside the support, constants outside, NaN at NaN."""
        x, loc, scale, *shapes = arguments
        z = (x - loc) / scale
        low, high = self._support(*shapes)
        inside = (z >= low) & (z <= high)
        if name != "logpdf":
            inside = inside & (abs(z) < math.inf)
        if name in ("logcdf", "logsf"):  # -inf at an end, where slopes are infinite or NaN
            inside = inside & (z > low if name == "logcdf" else z < high)
        inner = where(low > -math.inf, low + 0.5 * minimum(high - low, 1), minimum(high, 0) - 0.5)
        safe = where(inside, z, inner)
        value = self._formula(name)(safe, *shapes)
        value = value - log(scale) if scaled else value
        value = where(inside, value, where(z < inner, below, above))
        return where(isnan(z) | (scale <= 0), math.nan, value)

    def logpdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """Logarithm of the density; -inf outside the support."""
        arguments = self._arguments("logpdf", x, args, named)
        return self._at("logpdf", arguments, -math.inf, -math.inf, scaled=True)

    def pdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """Density."""
        return exp(self.logpdf(x, *args, **named))

    def cdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """Probability of a value up to x."""
        return self._at("cdf", self._arguments("cdf", x, args, named), 0.0, 1.0)

    def sf(self, x: Any, *args: Any, **named: Any) -> Array:
        """Probability of a value above x, accurate in the upper tail."""
        return self._at("sf", self._arguments("sf", x, args, named), 1.0, 0.0)

    def logcdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """log(cdf), accurate in both tails."""
        return self._at("logcdf", self._arguments("logcdf", x, args, named), -math.inf, 0.0)

    def logsf(self, x: Any, *args: Any, **named: Any) -> Array:
        """log(sf), accurate in both tails."""
        return self._at("logsf", self._arguments("logsf", x, args, named), 0.0, -math.inf)

    def ppf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The x with cdf(x) = q; NaN unless 0 <= q <= 1."""
        return self._quantile("ppf", q, args, named)

    def isf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The x with sf(x) = q, accurate for small q; NaN unless 0 <= q <= 1."""
        return self._quantile("isf", q, args, named)

    def _quantile(self, name: str, q: Any, args: tuple, named: dict[str, Any]) -> Array:
        value, loc, scale, *shapes = self._arguments(name, q, args, named)
        inside = (value >= 0) & (value <= 1)
        z = self._formula(name)(where(inside, value, 0.5), *shapes)
        return where(inside & (scale > 0), loc + scale * z, math.nan)


def positive(*shapes: Any) -> tuple[float, float]:
    """Support of distributions of positive numbers."""
    return 0.0, math.inf


def unit(*shapes: Any) -> tuple[float, float]:
    """Support of distributions on [0, 1]."""
    return 0.0, 1.0


norm = Continuous(
    "norm",
    logpdf=lambda z: -0.5 * (z * z + LOG_2PI),
    cdf=ndtr,
    sf=lambda z: ndtr(-z),
    logcdf=log_ndtr,
    logsf=lambda z: log_ndtr(-z),
    ppf=ndtri,
    isf=lambda q: -ndtri(q),
)


def _halfnorm_logsf(z: Array) -> Array:
    near = z < 0.5
    body = log1p(-erf(ROOT_HALF * where(near, z, 0.0)))
    return where(near, body, log_ndtr(-where(near, 1.0, z)) + LOG_2)


halfnorm = Continuous(
    "halfnorm",
    support=positive,
    logpdf=lambda z: -0.5 * (z * z + LOG_2PI) + LOG_2,
    cdf=lambda z: erf(ROOT_HALF * z),
    sf=lambda z: 2 * ndtr(-z),
    logcdf=lambda z: log_of(erf(ROOT_HALF * z), 2 * ndtr(-z)),
    logsf=_halfnorm_logsf,
    ppf=lambda q: math.sqrt(2) * erfinv(q),
    isf=lambda q: -ndtri(0.5 * q),
)
lognorm = Continuous(
    "lognorm",
    ("s",),
    support=positive,
    logpdf=after_zero(
        lambda z, s: -0.5 * ((log(z) / s) ** 2 + LOG_2PI) - log(s * z), at_zero=-math.inf
    ),
    cdf=after_zero(lambda z, s: ndtr(log(z) / s), at_zero=0.0),
    sf=after_zero(lambda z, s: ndtr(-log(z) / s), at_zero=1.0),
    logcdf=after_zero(lambda z, s: log_ndtr(log(z) / s), at_zero=-math.inf),
    logsf=after_zero(lambda z, s: log_ndtr(-log(z) / s), at_zero=0.0),
    ppf=lambda q, s: exp(s * ndtri(q)),
    isf=lambda q, s: exp(-s * ndtri(q)),
)


def _share(low: Array, high: Array, a: Array, b: Array) -> Array:
    """log of the probability of low .. high, an end of a .. b."""
    return log_mass(low, high) - log_mass(a, b)


truncnorm = Continuous(
    "truncnorm",
    ("a", "b"),
    support=lambda a, b: (a, b),
    logpdf=lambda z, a, b: -0.5 * (z * z + LOG_2PI) - log_mass(a, b),
    cdf=lambda z, a, b: exp(_share(a, z, a, b)),
    sf=lambda z, a, b: exp(_share(z, b, a, b)),
    logcdf=lambda z, a, b: log_smaller(_share(a, z, a, b), _share(z, b, a, b)),
    logsf=lambda z, a, b: log_smaller(_share(z, b, a, b), _share(a, z, a, b)),
)
uniform = Continuous(
    "uniform",
    support=unit,
    logpdf=lambda z: 0 * z,
    cdf=lambda z: z,
    sf=lambda z: 1 - z,
    logcdf=log,
    logsf=lambda z: log1p(-z),
    ppf=lambda q: q,
    isf=lambda q: 1 - q,
)
expon = Continuous(
    "expon",
    support=positive,
    logpdf=lambda z: -z,
    cdf=lambda z: -expm1(-z),
    sf=lambda z: exp(-z),
    logcdf=log1mexp,
    logsf=lambda z: -z,
    ppf=lambda q: -log1p(-q),
    isf=lambda q: -log(q),
)
gamma = Continuous(
    "gamma",
    ("a",),
    support=positive,
    logpdf=lambda z, a: xlogy(a - 1, z) - z - gammaln(a),
    cdf=lambda z, a: gammainc(a, z),
    sf=lambda z, a: gammaincc(a, z),
    logcdf=log_gamma_below,
    logsf=log_gamma_above,
)
chi2 = Continuous(
    "chi2",
    ("df",),
    support=positive,
    logpdf=lambda z, df: xlogy(df / 2 - 1, z / 2) - z / 2 - gammaln(df / 2) - math.log(2),
    cdf=lambda z, df: gammainc(df / 2, z / 2),
    sf=lambda z, df: gammaincc(df / 2, z / 2),
    logcdf=lambda z, df: log_gamma_below(z / 2, df / 2),
    logsf=lambda z, df: log_gamma_above(z / 2, df / 2),
)
beta = Continuous(
    "beta",
    ("a", "b"),
    support=unit,
    logpdf=lambda z, a, b: xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b),
    cdf=lambda z, a, b: betainc(a, b, z),
    sf=lambda z, a, b: beta_above(a, b, z),
    logcdf=log_beta_below,
    logsf=log_beta_above,
)
weibull_min = Continuous(
    "weibull_min",
    ("c",),
    support=positive,
    logpdf=lambda z, c: log(c) + xlogy(c - 1, z) - z**c,
    cdf=lambda z, c: -expm1(-(z**c)),
    sf=lambda z, c: exp(-(z**c)),
    logcdf=lambda z, c: log1mexp(z**c),
    logsf=lambda z, c: -(z**c),
    ppf=lambda q, c: (-log1p(-q)) ** (1 / c),
    isf=lambda q, c: (-log(q)) ** (1 / c),
)
pareto = Continuous(
    "pareto",
    ("b",),
    support=lambda b: (1.0, math.inf),
    logpdf=lambda z, b: log(b) - (b + 1) * log(z),
    cdf=lambda z, b: -expm1(-b * log(z)),
    sf=lambda z, b: exp(-b * log(z)),
    logcdf=lambda z, b: log1mexp(b * log(z)),
    logsf=lambda z, b: -b * log(z),
    ppf=lambda q, b: exp(-log1p(-q) / b),
    isf=lambda q, b: exp(-log(q) / b),
)


# ---------------------------------------------------------------- on the whole line


def _t_logpdf(z: Array, df: Array) -> Array:
    log_power = log1p_square(z / sqrt(df))
    return -0.5 * (df + 1) * log_power - 0.5 * log(df) - betaln(0.5 * df, 0.5)


def _t_tail(df: Array, z: Array) -> tuple[Array, Array]:
    """Half the probability outside of -|z| .. |z|, and its logarithm; by the probability within
    where |z| < 1, where that is the smaller."""
    size = abs(z)
    far = size > 1
    square = where(far, 0.5, z * z)
    near = 0.5 * (1 - betainc(0.5, 0.5 * df, square / (df + square)))
    log_far = log_t_tail(where(far, size, 2.0), df)
    return where(far, exp(log_far), near), where(far, log_far, log(near))


def _t_cdf_value(z: Array, df: Array) -> Array:
    tail, _ = _t_tail(df, z)
    return where(z < 0, tail, 1 - tail)


def _t_logcdf_value(z: Array, df: Array) -> Array:
    tail, log_tail = _t_tail(df, z)
    return where(z < 0, log_tail, log1p(-tail))


def _t_density(value: Array, z: Array, df: Array) -> Array:
    return exp(_t_logpdf(z, df))


def _t_logcdf_slope(value: Array, z: Array, df: Array) -> Array:
    return exp(_t_logpdf(z, df) - value)


_t_cdf = sloped(_t_cdf_value, _t_density)
_t_logcdf = sloped(_t_logcdf_value, _t_logcdf_slope)
t = Continuous(
    "t",
    ("df",),
    logpdf=_t_logpdf,
    cdf=_t_cdf,
    sf=lambda z, df: _t_cdf(-z, df),
    logcdf=_t_logcdf,
    logsf=lambda z, df: _t_logcdf(-z, df),
)


def _cauchy_ppf(q: Array) -> Array:
    """-cot(pi q), from the nearer of 0, 1/2 and 1, whose distances are exact."""
    edge = (q == 0) | (q == 1)
    inner = where(edge, 0.5, q)
    low, high = inner < 0.25, inner > 0.75
    middle = tan(math.pi * (where(low | high, 0.5, inner) - 0.5))
    side = 1 / tan(math.pi * where(low, inner, where(high, 1 - inner, 0.25)))
    value = where(low, -side, where(high, side, middle))
    return where(edge, where(q == 0, -math.inf, math.inf), value)


cauchy = Continuous(
    "cauchy",
    logpdf=lambda z: -log1p_square(z) - math.log(math.pi),
    cdf=lambda z: arctan2(1, -z) / math.pi,
    sf=lambda z: arctan2(1, z) / math.pi,
    ppf=_cauchy_ppf,
    isf=lambda q: -_cauchy_ppf(q),
)
logistic = Continuous(
    "logistic",
    logpdf=lambda z: log_expit(z) + log_expit(-z),
    cdf=expit,
    sf=lambda z: expit(-z),
    logcdf=log_expit,
    logsf=lambda z: log_expit(-z),
    ppf=logit,
    isf=lambda q: -logit(q),
)


def _half_exp(z: Array) -> Array:
    """exp(z) / 2 below 0, 1 - exp(-z) / 2 above."""
    below = z < 0
    small = 0.5 * exp(where(below, z, -z))
    return where(below, small, 1 - small)


def _log_half_exp(z: Array) -> Array:
    below = z < 0
    return where(below, z - LOG_2, log1p(-0.5 * exp(-where(below, 0.0, z))))


def _laplace_ppf(q: Array) -> Array:
    lower = q < 0.5
    return where(lower, log(2 * where(lower, q, 0.5)), -log(2 * where(lower, 0.5, 1 - q)))


laplace = Continuous(
    "laplace",
    logpdf=lambda z: -abs(z) - LOG_2,
    cdf=_half_exp,
    sf=lambda z: _half_exp(-z),
    logcdf=_log_half_exp,
    logsf=lambda z: _log_half_exp(-z),
    ppf=_laplace_ppf,
    isf=lambda q: -_laplace_ppf(q),
)
gumbel_r = Continuous(
    "gumbel_r",
    logpdf=lambda z: -z - exp(-z),
    cdf=lambda z: exp(-exp(-z)),
    sf=lambda z: -expm1(-exp(-z)),
    logcdf=lambda z: -exp(-z),
    logsf=lambda z: log1mexp_exp(-z),
    ppf=lambda q: -log(-log(q)),
    isf=lambda q: -log(-log1p(-q)),
)
gumbel_l = Continuous(
    "gumbel_l",
    logpdf=lambda z: z - exp(z),
    cdf=lambda z: -expm1(-exp(z)),
    sf=lambda z: exp(-exp(z)),
    logcdf=log1mexp_exp,
    logsf=lambda z: -exp(z),
    ppf=lambda q: log(-log1p(-q)),
    isf=lambda q: log(-log(q)),
)


def _gennorm_logpdf(z: Array, beta: Array) -> Array:
    edge = z == 0  # where abs(z)**beta may have no derivative
    power = where(edge, 0.0, where(edge, 1.0, abs(z)) ** beta)
    return log(beta / 2) - gammaln(1 / beta) - power


def _gennorm_cdf_value(z: Array, beta: Array) -> Array:
    tail = 0.5 * gammaincc(1 / beta, abs(z) ** beta)
    return where(z < 0, tail, 1 - tail)


def _gennorm_logcdf_value(z: Array, beta: Array) -> Array:
    log_tail = log_gamma_above(abs(z) ** beta, 1 / beta) - LOG_2
    return where(z < 0, log_tail, log1p(-exp(log_tail)))


def _gennorm_density(value: Array, z: Array, beta: Array) -> Array:
    return exp(_gennorm_logpdf(z, beta))


def _gennorm_logcdf_slope(value: Array, z: Array, beta: Array) -> Array:
    return exp(_gennorm_logpdf(z, beta) - value)


_gennorm_cdf = sloped(_gennorm_cdf_value, _gennorm_density)
_gennorm_logcdf = sloped(_gennorm_logcdf_value, _gennorm_logcdf_slope)
gennorm = Continuous(
    "gennorm",
    ("beta",),
    logpdf=_gennorm_logpdf,
    cdf=_gennorm_cdf,
    sf=lambda z, beta: _gennorm_cdf(-z, beta),
    logcdf=_gennorm_logcdf,
    logsf=lambda z, beta: _gennorm_logcdf(-z, beta),
)
vonmises = Continuous(
    "vonmises",
    ("kappa",),
    logpdf=lambda z, kappa: kappa * (cos(z) - 1) - log(i0e(kappa)) - LOG_2PI,
)


def _turn(half: Array, c: Array) -> tuple[Array, Array]:
    """(1 + c) sin and (1 - c) cos of half an angle, whose direction is pi times the share of the
    wrapped Cauchy distribution up to the angle; the sine is not negative up to 2 pi, as rounded."""
    c = where(abs(c) < 1, c, math.nan)
    sine = sin(half)
    return (1 + c) * where(sine < 0, 0.0, sine), (1 - c) * cos(half)


def _wrapcauchy_cdf(z: Array, c: Array) -> Array:
    y, x = _turn(0.5 * z, c)
    return arctan2(y, x) / math.pi


def _wrapcauchy_sf(z: Array, c: Array) -> Array:
    y, x = _turn(0.5 * z, c)
    return arctan2(y, -x) / math.pi


def _wrapcauchy_ppf(q: Array, c: Array) -> Array:
    y, x = _turn(math.pi * q, -c)
    return 2 * arctan2(y, x)


def _wrapcauchy_isf(q: Array, c: Array) -> Array:
    y, x = _turn(math.pi * q, -c)
    return 2 * arctan2(y, -x)


wrapcauchy = Continuous(
    "wrapcauchy",
    ("c",),
    support=lambda c: (0.0, 2 * math.pi),
    logpdf=lambda z, c: log1p(-c * c) - LOG_2PI - log1p(c * c - 2 * c * cos(z)),
    cdf=_wrapcauchy_cdf,
    sf=_wrapcauchy_sf,
    ppf=_wrapcauchy_ppf,
    isf=_wrapcauchy_isf,
)
