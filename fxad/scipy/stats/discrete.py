"""Distributions of integers: poisson, bernoulli, binom, betabinom, geom, nbinom.

poisson.logpmf(k, mu)       binom.pmf(k, n, p)      bernoulli.cdf(k, p)

`k` may be any real number; where it is no integer in the support, the probability is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fxad.core.errors import BadArgument
from fxad.numpy import arange, ceil, exp, expm1, floor, isnan, log, log1p, maximum, sum, where
from fxad.numpy.core import promoted
from fxad.scipy.special import betainc, betaln, entr, gammainc, gammaincc, gammaln, xlog1py, xlogy
from fxad.scipy.stats.tails import (
    beta_above,
    log1mexp,
    log_beta_above,
    log_beta_below,
    log_gamma_above,
    log_gamma_below,
    log_of,
)
from fxad.trace.array import Array


class Discrete:
    """One distribution of integers from 0 (or `least`) up. Methods take (k, *shapes, loc=0).

    Raises BadArgument for missing or unknown parameters.
    """

    def __init__(
        self,
        name: str,
        shapes: Sequence[str],
        *,
        least: int = 0,
        most: Callable[..., Any] = lambda *shapes: math.inf,
        **formulas: Callable[..., Any],
    ) -> None:
        self.name = name
        self.shapes = tuple(shapes)
        self._formulas = formulas
        self._least, self._most = least, most

    def __repr__(self) -> str:
        return f"<distribution {self.name}({', '.join((*self.shapes, 'loc'))})>"

    def _arguments(self, method: str, k: Any, args: tuple, named: dict[str, Any]) -> list[Array]:
        """k - loc and the shape parameters in one dtype and shape."""
        names = (*self.shapes, "loc")
        given = {"loc": 0, **dict(zip(names, args, strict=False)), **named}
        clash = set(given) != set(names) or set(names[: len(args)]) & set(named)
        if clash or len(args) > len(names):
            raise BadArgument(
                f"{self.name}: takes ({', '.join(names)}) after its first argument; "
                f"got {len(args)} positional and {sorted(named)}"
            )
        ordered = [given[n] for n in ("loc", *self.shapes)]
        values = promoted(f"{self.name}.{method}", k, *ordered, inexact=True, numbers=False)
        return [values[0] - values[1], *values[2:]]

    def logpmf(self, k: Any, *args: Any, **named: Any) -> Array:
        """Logarithm of the probability of k; -inf outside the support."""
        n, *shapes = self._arguments("logpmf", k, args, named)
        inside = (n >= self._least) & (n <= self._most(*shapes)) & (n == floor(n))
        value = self._formula("logpmf")(where(inside, n, float(self._least)), *shapes)
        return where(isnan(n), math.nan, where(inside, value, -math.inf))

    def pmf(self, k: Any, *args: Any, **named: Any) -> Array:
        """Probability of k."""
        return exp(self.logpmf(k, *args, **named))

    def _formula(self, name: str) -> Callable[..., Any]:
        """A formula; logarithms by default those of cdf and sf."""
        if name in ("logcdf", "logsf") and name not in self._formulas:
            part, rest = map(self._formula, ("cdf", "sf") if name == "logcdf" else ("sf", "cdf"))
            return lambda k, *shapes: log_of(part(k, *shapes), rest(k, *shapes))
        if name not in self._formulas:
            raise BadArgument(f"{self.name}: {name} has no closed form; add up pmf")
        return self._formulas[name]

    def _at(self, name: str, k: Any, args: tuple, named: Any, below: float, above: float) -> Array:
        """A formula at the whole number up to k, constants outside the support, NaN at NaN."""
        formula = self._formula(name)
        n, *shapes = self._arguments(name, k, args, named)
        whole = floor(n)
        beyond = whole >= self._most(*shapes)
        inside = (whole >= self._least) & ~beyond
        value = formula(where(inside, whole, float(self._least)), *shapes)
        value = where(inside, value, where(beyond, above, below))
        return where(isnan(n), math.nan, value)

    def cdf(self, k: Any, *args: Any, **named: Any) -> Array:
        """Probability of a value up to k."""
        return self._at("cdf", k, args, named, 0.0, 1.0)

    def sf(self, k: Any, *args: Any, **named: Any) -> Array:
        """Probability of a value above k, accurate in the upper tail."""
        return self._at("sf", k, args, named, 1.0, 0.0)

    def logcdf(self, k: Any, *args: Any, **named: Any) -> Array:
        """log(cdf), accurate in both tails."""
        return self._at("logcdf", k, args, named, -math.inf, 0.0)

    def logsf(self, k: Any, *args: Any, **named: Any) -> Array:
        """log(sf), accurate in both tails."""
        return self._at("logsf", k, args, named, 0.0, -math.inf)


class Bernoulli(Discrete):
    """0 or 1."""

    def ppf(self, q: Any, p: Any) -> Array:
        """The least k whose cdf is at least q; NaN for a q or a p outside [0, 1]."""
        q, p = promoted("bernoulli.ppf", q, p, inexact=True, numbers=False)
        inside = (q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)
        return where(inside, where(q <= 1 - p, 0.0, 1.0), math.nan)

    def isf(self, q: Any, p: Any) -> Array:
        """The least k whose sf is at most q; NaN for a q or a p outside [0, 1]."""
        q, p = promoted("bernoulli.isf", q, p, inexact=True, numbers=False)
        inside = (q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)
        return where(inside, where(p <= q, 0.0, 1.0), math.nan)

    def entropy(self, p: Any) -> Array:
        """-p log p - (1 - p) log(1 - p), in nats; NaN for a p outside [0, 1]."""
        (p,) = promoted("bernoulli.entropy", p, inexact=True, numbers=False)
        inside = (p >= 0) & (p <= 1)
        return where(inside, entr(p) - xlog1py(1 - p, -p), math.nan)


class Geometric(Discrete):
    """Trials up to the first success."""

    def ppf(self, q: Any, p: Any, loc: Any = 0) -> Array:
        """The least k whose cdf is at least q: the logarithms' ratio, or 1 less if rounded up."""
        q, p, loc = promoted("geom.ppf", q, p, loc, inexact=True, numbers=False)
        safe = where((q >= 0) & (q <= 1), q, 0.5)
        k = where(p == 1, 1.0, maximum(ceil(log1p(-safe) / log1p(-p)), 1))
        k = where((k > 1) & (self.cdf(k - 1, p) >= safe), k - 1, k)
        return self._whole(k, q, p, loc, q == 0)

    def isf(self, q: Any, p: Any, loc: Any = 0) -> Array:
        """The least k whose sf is at most q, accurate for small q."""
        q, p, loc = promoted("geom.isf", q, p, loc, inexact=True, numbers=False)
        safe = where((q >= 0) & (q <= 1), q, 0.5)
        k = where(p == 1, 1.0, maximum(ceil(log(safe) / log1p(-p)), 1))
        k = where((k > 1) & (self.sf(k - 1, p) <= safe), k - 1, k)
        return self._whole(k, q, p, loc, q == 1)

    def _whole(self, k: Array, q: Array, p: Array, loc: Array, none: Array) -> Array:
        """k + loc, 0 + loc where no probability is asked for, NaN outside of the domain."""
        inside = (q >= 0) & (q <= 1) & (p > 0) & (p <= 1)
        return where(inside, where(none, 0.0, k) + loc, math.nan)

    def entropy(self, p: Any, loc: Any = 0) -> Array:
        """-log p - (1 - p) log(1 - p) / p, in nats; NaN unless 0 < p <= 1."""
        p, _ = promoted("geom.entropy", p, loc, inexact=True, numbers=False)
        inside = (p > 0) & (p <= 1)
        safe = where(inside, p, 1.0)
        return where(inside, -log(safe) - xlog1py(1 - safe, -safe) / safe, math.nan)


class Poisson(Discrete):
    """Counts of events that are independent of each other."""

    def entropy(self, mu: Any, loc: Any = 0) -> Array:
        """-sum p log p in nats: term by term for small mu, else by its expansion in 1 / mu
        (Evans, Boersma, Blachman and Jagers 1988), whose error is about 0.1 / mu**4."""
        mu, _ = promoted("poisson.entropy", mu, loc, inexact=True, numbers=False)
        large = mu >= _EXPANDED
        few = where(large, 1.0, mu)[..., None]
        logs = self.logpmf(arange(2 * _EXPANDED, dtype=mu.dtype), few)
        direct = -sum(where(logs > -math.inf, exp(logs) * logs, 0.0), axis=-1)
        many = where(large, mu, 1.0)
        series = -1 / (12 * many) - 1 / (24 * many**2) - 19 / (360 * many**3)
        expanded = (log(many) + math.log(2 * math.pi * math.e)) / 2 + series
        return where(mu >= 0, where(large, expanded, direct), math.nan)


_EXPANDED = 256  # twice as many terms reach 16 standard deviations beyond any smaller mean

poisson = Poisson(
    "poisson",
    ("mu",),
    logpmf=lambda k, mu: xlogy(k, mu) - gammaln(k + 1) - mu,
    cdf=lambda k, mu: gammaincc(k + 1, mu),
    sf=lambda k, mu: gammainc(k + 1, mu),
    logcdf=lambda k, mu: log_gamma_above(mu, k + 1),
    logsf=lambda k, mu: log_gamma_below(mu, k + 1),
)
bernoulli = Bernoulli(
    "bernoulli",
    ("p",),
    most=lambda p: 1.0,
    logpmf=lambda k, p: xlogy(k, p) + xlog1py(1 - k, -p),
    cdf=lambda k, p: 1 - p,
    sf=lambda k, p: p,
    logcdf=lambda k, p: log1p(-p),
    logsf=lambda k, p: log(p),
)


def _left(k: Array, n: Array) -> Array:
    """n - k, and 1 where that is not positive: outside, where another value is chosen."""
    return where(k < n, n - k, 1.0)


binom = Discrete(
    "binom",
    ("n", "p"),
    most=lambda n, p: n,
    logpmf=lambda k, n, p: xlogy(k, p) + xlog1py(n - k, -p) - betaln(1 + n - k, 1 + k) - log1p(n),
    cdf=lambda k, n, p: beta_above(k + 1, _left(k, n), p),
    sf=lambda k, n, p: betainc(k + 1, _left(k, n), p),
    logcdf=lambda k, n, p: log_beta_above(p, k + 1, _left(k, n)),
    logsf=lambda k, n, p: log_beta_below(p, k + 1, _left(k, n)),
)
betabinom = Discrete(
    "betabinom",
    ("n", "a", "b"),
    most=lambda n, a, b: n,
    logpmf=lambda k, n, a, b: (
        betaln(k + a, n - k + b) - betaln(a, b) - log1p(n) - betaln(n - k + 1, k + 1)
    ),
)
geom = Geometric(
    "geom",
    ("p",),
    least=1,
    logpmf=lambda k, p: xlog1py(k - 1, -p) + log(p),
    cdf=lambda k, p: -expm1(xlog1py(k, -p)),
    sf=lambda k, p: exp(xlog1py(k, -p)),
    logcdf=lambda k, p: log1mexp(-xlog1py(k, -p)),
    logsf=lambda k, p: xlog1py(k, -p),
)
nbinom = Discrete(
    "nbinom",
    ("n", "p"),
    logpmf=lambda k, n, p: (
        gammaln(k + n) - gammaln(n) - gammaln(k + 1) + xlogy(n, p) + xlog1py(k, -p)
    ),
    cdf=lambda k, n, p: betainc(n, k + 1, p),
    sf=lambda k, n, p: beta_above(n, k + 1, p),
    logcdf=lambda k, n, p: log_beta_below(p, n, k + 1),
    logsf=lambda k, n, p: log_beta_above(p, n, k + 1),
)
