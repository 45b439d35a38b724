"""Counts of n draws among several outcomes: logpmf, pmf.

logpmf(x, n, p)         # x: f32[..., k], p: f32[k] -> f32[...]
"""

from __future__ import annotations

import math
from typing import Any

from fxad.numpy import exp, sum, where
from fxad.numpy.core import promoted
from fxad.scipy.special import gammaln, xlogy
from fxad.trace.array import Array


def logpmf(x: Any, n: Any, p: Any) -> Array:
    """Logarithm of the probability of the counts x; -inf where they do not add up to n."""
    counts, draws, chances = promoted(
        "multinomial", x, n, p, inexact=True, numbers=False, broadcast=False
    )
    value = gammaln(draws + 1) + sum(xlogy(counts, chances) - gammaln(counts + 1), -1)
    return where(sum(counts, -1) == draws, value, -math.inf)


def pmf(x: Any, n: Any, p: Any) -> Array:
    """The probability of the counts x."""
    return exp(logpmf(x, n, p))
