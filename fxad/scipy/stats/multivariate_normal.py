"""The normal distribution of vectors: logpdf, pdf, entropy.

logpdf(x, mean, cov)        # x: f32[..., n], mean: f32[n], cov: f32[n, n] -> f32[...]
logpdf(x, 0.0, 2.0)         # x: f32[...] -> f32[...], numbers of one dimension
"""

from __future__ import annotations

from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.ir.program import OPS
from fxad.numpy import abs, exp, eye, linalg, log, matmul, max, sum, where
from fxad.numpy.core import promoted, spread_to
from fxad.scipy.special.support import LOG_2PI
from fxad.trace.array import Array


def _arguments(x: Any, mean: Any, cov: Any) -> tuple[Array, Array]:
    """Deviations [..., n] and the covariance matrix [n, n]; n is 1 if mean and cov are numbers."""
    mean = 0.0 if mean is None else mean
    cov = 1.0 if cov is None else cov
    point, centre, spread = promoted(
        "multivariate_normal", x, mean, cov, inexact=True, numbers=False, broadcast=False
    )
    if not centre.ndim and not spread.ndim:
        return (point - centre)[..., None], spread[None, None]
    size = spread.shape[-1] if spread.ndim else centre.shape[-1]
    gap = point - centre
    if spread.ndim < 2:
        spread = eye(size, dtype=spread.dtype) * spread
    if spread.shape != (size, size) or (gap.ndim and gap.shape[-1] not in (1, size)):
        raise ShapeError(
            f"multivariate_normal: x {point.type}, mean {centre.type} and cov {spread.type} do not "
            "go together; expects [..., n], [n] and [n, n]"
        )
    return spread_to(gap, (*gap.shape[:-1], size)), spread


def _regular(gap: Array, cov: Array) -> tuple[Array, Array, int]:
    """Squared Mahalanobis distances, log det(cov) and n, by a Cholesky factor."""
    factor = linalg.cholesky(cov)
    flat = gap.reshape((-1, cov.shape[-1]))
    white = OPS["triangular_solve"](factor, flat.T, lower=True, unit=False)
    determinant = 2 * sum(log(linalg.diagonal(factor)))
    return sum(white * white, 0).reshape(gap.shape[:-1]), determinant, cov.shape[-1]


def _singular(gap: Array, cov: Array) -> tuple[Array, Array, Array]:
    """The same in the span of a singular cov, by its eigenvectors; and its rank."""
    values, vectors = linalg.eigh(cov)
    limit = (1e3 if cov.dtype == dt.float32 else 1e6) * float(dt.finfo(cov.dtype).eps)
    kept = values > limit * max(abs(values))
    safe = where(kept, values, 1.0)
    along = matmul(gap, vectors)
    distance = sum(where(kept, along * along / safe, 0.0), -1)
    return distance, sum(log(safe)), sum(kept).astype(cov.dtype)


def logpdf(x: Any, mean: Any = None, cov: Any = None, allow_singular: bool = False) -> Array:
    """Logarithm of the density. cov: a matrix, a diagonal, or a number times the identity.

    With `allow_singular` the density in the span of cov; without, a singular cov gives NaN.
    """
    gap, spread = _arguments(x, mean, cov)
    distance, determinant, rank = (_singular if allow_singular else _regular)(gap, spread)
    return -0.5 * (distance + determinant + rank * LOG_2PI)


def pdf(x: Any, mean: Any = None, cov: Any = None, allow_singular: bool = False) -> Array:
    """The density."""
    return exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any = None, cov: Any = None) -> Array:
    """Differential entropy, which does not depend on the mean."""
    gap, spread = _arguments(0.0 if mean is None else mean, mean, cov)
    sign, determinant = linalg.slogdet(spread)
    del gap, sign
    return 0.5 * (spread.shape[-1] * (1 + LOG_2PI) + determinant)
