"""Logarithms and entropies with their limits: xlogy, entr, logit, logsumexp, ...

xlogy(0.0, 0.0)     # 0.0, and so is its gradient
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad.ir.program import OPS
from fxad.nn.softmax import log_softmax as log_softmax_over
from fxad.nn.softmax import softmax as softmax_over
from fxad.numpy import asarray, log, log1p, where, zeros_like
from fxad.numpy import logsumexp as logsumexp
from fxad.scipy.special.support import special
from fxad.trace.array import Array


def softmax(x: Any, axis: Any = None) -> Array:
    """exp(x) / sum(exp(x)) over all elements or over the given axes."""
    return softmax_over(x, _axes(x, axis))


def log_softmax(x: Any, axis: Any = None) -> Array:
    """log(softmax(x)), accurate for small probabilities."""
    return log_softmax_over(x, _axes(x, axis))


def _axes(x: Any, axis: Any) -> Any:
    return tuple(range(asarray(x).ndim)) if axis is None else axis


@special
def expit(x: Any) -> Array:
    """1 / (1 + exp(-x))."""
    return OPS["logistic"](x)


@special
def log_expit(x: Any) -> Array:
    """log(expit(x)) without underflow."""
    return where(x < 0, x, 0.0) - log1p(OPS["exp"](-OPS["abs"](x)))


@special
def logit(p: Any) -> Array:
    """log(p / (1 - p)), the inverse of expit."""
    return log(p) - log1p(-p)


@special
def xlogy(x: Any, y: Any) -> Array:
    """x log(y), 0 where x = 0 (unless y is NaN)."""
    zero = (x == 0) & (y == y)
    return where(zero, 0.0, x * log(where(zero, 1.0, y)))


@special
def xlog1py(x: Any, y: Any) -> Array:
    """x log(1 + y), 0 where x = 0 (unless y is NaN)."""
    zero = (x == 0) & (y == y)
    return where(zero, 0.0, x * log1p(where(zero, 0.0, y)))


@special
def entr(x: Any) -> Array:
    """-x log(x); 0 at 0, -inf below."""
    return where(x < 0, -math.inf, -xlogy(x, where(x > 0, x, 1.0)))


def _divergence(x: Array, y: Array, inner: Callable[..., Array], at_zero: Array) -> Array:
    """inner(x, y) for positive x and y, at_zero for x = 0 <= y, else inf or NaN."""
    both = (x > 0) & (y > 0)
    value = inner(where(both, x, 1.0), where(both, y, 1.0))
    value = where(both, value, where((x == 0) & (y >= 0), at_zero, math.inf))
    return where((x == x) & (y == y), value, math.nan)


@special
def rel_entr(x: Any, y: Any) -> Array:
    """x log(x / y); 0 at x = 0 <= y, inf where x or y is negative or y alone is 0."""
    return _divergence(x, y, lambda a, b: a * log(a / b), zeros_like(y))


@special
def kl_div(x: Any, y: Any) -> Array:
    """x log(x / y) - x + y, with the limits of rel_entr."""
    return _divergence(x, y, lambda a, b: a * log(a / b) - a + b, y)
