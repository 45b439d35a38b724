"""The Dirichlet distribution on probability vectors: logpdf, pdf.

logpdf(x, alpha)        # x: f32[n] or f32[n, batch], alpha: f32[n]
"""

from __future__ import annotations

import math
from typing import Any

from fxad.core.errors import ShapeError
from fxad.numpy import abs, all, exp, sum, where
from fxad.numpy.core import promoted
from fxad.scipy.special import gammaln, xlogy
from fxad.trace.array import Array


def logpdf(x: Any, alpha: Any) -> Array:
    """Logarithm of the density; -inf where x is not positive or does not add up to 1 (to 1e-6)."""
    point, shape = promoted("dirichlet", x, alpha, inexact=True, numbers=False, broadcast=False)
    if shape.ndim != 1 or point.ndim not in (1, 2) or point.shape[0] != shape.shape[0]:
        raise ShapeError(
            f"dirichlet: expects x [n] or [n, batch] and alpha [n], got {point.type}, {shape.type}"
        )
    scale = gammaln(sum(shape)) - sum(gammaln(shape))
    inside = all(point > 0, 0) & (abs(sum(point, 0) - 1) < 1e-6)
    safe = where(inside, point, 1.0)
    powers = shape - 1 if point.ndim == 1 else (shape - 1)[:, None]
    return where(inside, scale + sum(xlogy(powers, safe), 0), -math.inf)


def pdf(x: Any, alpha: Any) -> Array:
    """The density."""
    return exp(logpdf(x, alpha))
