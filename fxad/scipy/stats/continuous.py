"""Continuous distributions of one variable: norm, beta, gamma, t, chi2, ...

norm.logpdf(x, loc=1.0, scale=2.0)      gamma.cdf(x, 2.5)       expon.ppf(0.5)

A distribution is a record: formulas for the standard form, of z = (x - loc) / scale and its shape
parameters. Arguments broadcast; outside the support densities are 0 and have gradient 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core.errors import BadArgument
from fxad.numpy import abs, arctan, cos, exp, expm1, isnan, log, log1p, minimum, sign, tan, where
from fxad.numpy.core import promoted
from fxad.scipy.special import (
    betainc,
    betaln,
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
from fxad.scipy.special.support import LOG_2PI, moved, slope
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

    def _formula(self, name: str, method: str) -> Formula:
        if name not in self._formulas:
            raise BadArgument(f"{self.name}.{method}: not available for this distribution")
        return self._formulas[name]

    def _at(
        self, name: str, arguments: Sequence[Array], below: Any, above: Any, scaled: bool = False
    ) -> Array:
        """A formula inside the support, constants outside, NaN at NaN."""
        x, loc, scale, *shapes = arguments
        z = (x - loc) / scale
        low, high = self._support(*shapes)
        inside = (z >= low) & (z <= high)
        inner = where(low > -math.inf, low + 0.5 * minimum(high - low, 1), minimum(high, 0) - 0.5)
        safe = where(inside, z, inner)
        value = self._formula(name, name)(safe, *shapes)
        value = value - log(scale) if scaled else value
        value = where(inside, value, where(z < low, below, above))
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
        """Probability of a value above x; accurate in the upper tail where there is a formula."""
        if "sf" not in self._formulas:
            return 1 - self.cdf(x, *args, **named)
        return self._at("sf", self._arguments("sf", x, args, named), 1.0, 0.0)

    def logcdf(self, x: Any, *args: Any, **named: Any) -> Array:
        """log(cdf)."""
        if "logcdf" not in self._formulas:
            return log(self.cdf(x, *args, **named))
        return self._at("logcdf", self._arguments("logcdf", x, args, named), -math.inf, 0.0)

    def logsf(self, x: Any, *args: Any, **named: Any) -> Array:
        """log(sf)."""
        if "logsf" not in self._formulas:
            return log(self.sf(x, *args, **named))
        return self._at("logsf", self._arguments("logsf", x, args, named), 0.0, -math.inf)

    def ppf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The x with cdf(x) = q; NaN unless 0 <= q <= 1."""
        return self._quantile("ppf", q, args, named)

    def isf(self, q: Any, *args: Any, **named: Any) -> Array:
        """The x with sf(x) = q."""
        if "isf" in self._formulas:
            return self._quantile("isf", q, args, named)
        return self.ppf(1 - q, *args, **named)

    def _quantile(self, name: str, q: Any, args: tuple, named: dict[str, Any]) -> Array:
        value, loc, scale, *shapes = self._arguments(name, q, args, named)
        inside = (value >= 0) & (value <= 1)
        z = self._formula(name, name)(where(inside, value, 0.5), *shapes)
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
halfnorm = Continuous(
    "halfnorm",
    support=positive,
    logpdf=lambda z: -0.5 * (z * z + LOG_2PI) + math.log(2),
    cdf=lambda z: 1 - 2 * ndtr(-z),
    sf=lambda z: 2 * ndtr(-z),
    logsf=lambda z: log_ndtr(-z) + math.log(2),
    ppf=lambda q: math.sqrt(2) * erfinv(q),
)
lognorm = Continuous(
    "lognorm",
    ("s",),
    support=positive,
    logpdf=lambda z, s: -0.5 * ((log(z) / s) ** 2 + LOG_2PI) - log(s * z),
    cdf=lambda z, s: ndtr(log(z) / s),
    sf=lambda z, s: ndtr(-log(z) / s),
    logcdf=lambda z, s: log_ndtr(log(z) / s),
    logsf=lambda z, s: log_ndtr(-log(z) / s),
    ppf=lambda q, s: exp(s * ndtri(q)),
)


def _log_mass(a: Array, b: Array) -> Array:
    """log(ndtr(b) - ndtr(a)), a < b, from the side on which both are small."""
    mirrored = a > 0
    low, high = where(mirrored, -b, a), where(mirrored, -a, b)
    top = log_ndtr(high)
    return top + log1p(-exp(log_ndtr(low) - top))


truncnorm = Continuous(
    "truncnorm",
    ("a", "b"),
    support=lambda a, b: (a, b),
    logpdf=lambda z, a, b: -0.5 * (z * z + LOG_2PI) - _log_mass(a, b),
    cdf=lambda z, a, b: exp(_log_mass(a, z) - _log_mass(a, b)),
    sf=lambda z, a, b: exp(_log_mass(z, b) - _log_mass(a, b)),
    logcdf=lambda z, a, b: _log_mass(a, z) - _log_mass(a, b),
    logsf=lambda z, a, b: _log_mass(z, b) - _log_mass(a, b),
)
uniform = Continuous(
    "uniform", support=unit, logpdf=lambda z: 0 * z, cdf=lambda z: z, ppf=lambda q: q
)
expon = Continuous(
    "expon",
    support=positive,
    logpdf=lambda z: -z,
    cdf=lambda z: -expm1(-z),
    sf=lambda z: exp(-z),
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
)
chi2 = Continuous(
    "chi2",
    ("df",),
    support=positive,
    logpdf=lambda z, df: xlogy(df / 2 - 1, z / 2) - z / 2 - gammaln(df / 2) - math.log(2),
    cdf=lambda z, df: gammainc(df / 2, z / 2),
    sf=lambda z, df: gammaincc(df / 2, z / 2),
)
beta = Continuous(
    "beta",
    ("a", "b"),
    support=unit,
    logpdf=lambda z, a, b: xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b),
    cdf=lambda z, a, b: betainc(a, b, z),
    sf=lambda z, a, b: betainc(b, a, 1 - z),
)
weibull_min = Continuous(
    "weibull_min",
    ("c",),
    support=positive,
    logpdf=lambda z, c: log(c) + xlogy(c - 1, z) - z**c,
    cdf=lambda z, c: -expm1(-(z**c)),
    sf=lambda z, c: exp(-(z**c)),
    logsf=lambda z, c: -(z**c),
    ppf=lambda q, c: (-log1p(-q)) ** (1 / c),
)
pareto = Continuous(
    "pareto",
    ("b",),
    support=lambda b: (1.0, math.inf),
    logpdf=lambda z, b: log(b) - (b + 1) * log(z),
    cdf=lambda z, b: -expm1(-b * log(z)),
    sf=lambda z, b: exp(-b * log(z)),
    logsf=lambda z, b: -b * log(z),
    ppf=lambda q, b: exp(-log1p(-q) / b),
)


# ---------------------------------------------------------------- on the whole line


def _t_logpdf(z: Array, df: Array) -> Array:
    return -0.5 * (df + 1) * log1p(z * z / df) - 0.5 * log(df) - betaln(0.5 * df, 0.5)


def _t_tail(df: Array, z: Array) -> Array:
    """Half the probability outside of -|z| .. |z|, from the smaller argument of betainc."""
    square = z * z
    far = square > df
    tail = betainc(0.5 * df, 0.5, where(far, df / (df + square), 0.5))
    body = betainc(0.5, 0.5 * df, where(far, 0.5, square / (df + square)))
    return 0.5 * where(far, tail, 1 - body)


@custom_jvp
def _t_cdf(z: Array, df: Array) -> Array:
    tail = _t_tail(df, z)
    return where(z < 0, tail, 1 - tail)


def _t_cdf_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (z, df), (dz, ddf) = primals, tangents
    apart = where(z == 0, 1.0, z)  # at 0 the function is 1/2 for all df

    def in_df() -> Array:
        return where(z == 0, 0.0, -sign(apart) * slope(lambda v: _t_tail(v, apart), df))

    return _t_cdf(z, df), moved((dz, lambda: exp(_t_logpdf(z, df))), (ddf, in_df))


_t_cdf.defjvp(_t_cdf_jvp, symbolic_zeros=True)


t = Continuous("t", ("df",), logpdf=_t_logpdf, cdf=_t_cdf, sf=lambda z, df: _t_cdf(-z, df))


def _cauchy_ppf(q: Array) -> Array:
    edge = (q == 0) | (q == 1)
    return where(edge, where(q == 0, -math.inf, math.inf), tan(math.pi * (q - 0.5)))


cauchy = Continuous(
    "cauchy",
    logpdf=lambda z: -log1p(z * z) - math.log(math.pi),
    cdf=lambda z: 0.5 + arctan(z) / math.pi,
    sf=lambda z: 0.5 - arctan(z) / math.pi,
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
    small = 0.5 * exp(-abs(z))
    return where(z < 0, small, 1 - small)


def _laplace_ppf(q: Array) -> Array:
    lower = q < 0.5
    return where(lower, log(2 * where(lower, q, 0.5)), -log(2 * where(lower, 0.5, 1 - q)))


laplace = Continuous(
    "laplace",
    logpdf=lambda z: -abs(z) - math.log(2),
    cdf=_half_exp,
    sf=lambda z: _half_exp(-z),
    ppf=_laplace_ppf,
)
gumbel_r = Continuous(
    "gumbel_r",
    logpdf=lambda z: -z - exp(-z),
    cdf=lambda z: exp(-exp(-z)),
    sf=lambda z: -expm1(-exp(-z)),
    logcdf=lambda z: -exp(-z),
    ppf=lambda q: -log(-log(q)),
)
gumbel_l = Continuous(
    "gumbel_l",
    logpdf=lambda z: z - exp(z),
    cdf=lambda z: -expm1(-exp(z)),
    sf=lambda z: exp(-exp(z)),
    logsf=lambda z: -exp(z),
    ppf=lambda q: log(-log1p(-q)),
)


def _gennorm_cdf(z: Array, beta: Array) -> Array:
    tail = 0.5 * gammaincc(1 / beta, abs(z) ** beta)
    return where(z < 0, tail, 1 - tail)


gennorm = Continuous(
    "gennorm",
    ("beta",),
    logpdf=lambda z, beta: log(beta / 2) - gammaln(1 / beta) - abs(z) ** beta,
    cdf=_gennorm_cdf,
    sf=lambda z, beta: _gennorm_cdf(-z, beta),
)
vonmises = Continuous(
    "vonmises",
    ("kappa",),
    logpdf=lambda z, kappa: kappa * (cos(z) - 1) - log(i0e(kappa)) - LOG_2PI,
)
wrapcauchy = Continuous(
    "wrapcauchy",
    ("c",),
    support=lambda c: (0.0, 2 * math.pi),
    logpdf=lambda z, c: log1p(-c * c) - LOG_2PI - log1p(c * c - 2 * c * cos(z)),
)
