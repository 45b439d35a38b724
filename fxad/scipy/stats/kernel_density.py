"""gaussian_kde: a density from samples, a Gaussian round each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxad import random
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.node_types import register_node
from fxad.numpy import (
    asarray,
    atleast_1d,
    atleast_2d,
    cov,
    diag,
    exp,
    full,
    log,
    moveaxis,
    sum,
    zeros,
)
from fxad.numpy import linalg as la
from fxad.numpy.core import promoted
from fxad.scipy.linalg import cho_solve, cholesky
from fxad.scipy.special import logsumexp, ndtr
from fxad.trace.array import Array


class gaussian_kde:
    """The density that samples come from, estimated as the mean of a Gaussian round each sample.

    dataset: [n] numbers or [dimensions, n] of at least two samples; weights: [n]. bw_method: the
    width beside the samples' covariance: "scott" (also None), "silverman", a number, or a function
    of this object. A pytree of its arrays.

    >>> from fxad.scipy.stats import gaussian_kde
    >>> density = gaussian_kde(jnp.array([-1.0, 0.0, 1.0]))
    >>> density(jnp.array([0.0, 3.0])).round(4)
    Array([0.3182, 0.0076], dtype=float32)
    >>> density.integrate_box_1d(-jnp.inf, 0.0).round(4)
    Array(0.5, dtype=float32)
    """

    __slots__ = ("covariance", "dataset", "inv_cov", "neff", "weights")

    def __init__(
        self,
        dataset: Any,
        bw_method: str | float | Callable[[gaussian_kde], Any] | None = None,
        weights: Any = None,
    ) -> None:
        (data,) = promoted("gaussian_kde", atleast_2d(asarray(dataset)), inexact=True)
        if data.dtype.kind == "c":
            raise TypeMismatch("gaussian_kde: complex samples have no density here")
        if data.ndim != 2 or data.size < 2:
            raise ShapeError(
                f"gaussian_kde: dataset must be [n] or [dimensions, n] with at least two elements, "
                f"got shape {data.shape}"
            )
        n = data.shape[1]
        if weights is None:
            shares = full(n, 1 / n, data.dtype)
        else:
            (shares,) = promoted("gaussian_kde", atleast_1d(asarray(weights)), inexact=True)
            if shares.shape != (n,):
                raise ShapeError(
                    f"gaussian_kde: there must be a weight for each of the {n} samples, got shape "
                    f"{shares.shape}"
                )
            shares = (shares / sum(shares)).astype(data.dtype)
        self.dataset = data
        self.weights = shares
        self.neff = 1 / sum(shares**2)
        factor = self._factor(bw_method)
        spread = atleast_2d(cov(data, rowvar=True, bias=False, aweights=shares))
        self.covariance = (spread * factor**2).astype(data.dtype)
        self.inv_cov = (la.inv(spread) / factor**2).astype(data.dtype)

    def _factor(self, method: Any) -> Any:
        """The Gaussians' width, where the samples' own is 1 (Scott 1992; Silverman 1986)."""
        if method is None or method == "scott":
            return self.neff ** (-1 / (self.d + 4))
        if method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        if callable(method):
            return method(self)
        if isinstance(method, str):
            raise BadArgument(
                f"gaussian_kde: bw_method must be 'scott', 'silverman', a number or a function; "
                f"got {method!r}"
            )
        return method

    @property
    def d(self) -> int:
        """Dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """Samples."""
        return self.dataset.shape[1]

    def evaluate(self, points: Any) -> Array:
        """The density at points [dimensions, m] (or [m] in one dimension): [m]."""
        return exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Array:
        """The logarithm of the density."""
        places = self._points(x)
        return logsumexp(_log_normal(places, self.dataset, self.covariance), axis=1, b=self.weights)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of the density times a Gaussian of mean [dimensions] and covariance."""
        mean, spread = atleast_1d(asarray(mean)), atleast_2d(asarray(cov))
        if mean.shape != (self.d,) or spread.shape != (self.d, self.d):
            raise ShapeError(
                f"integrate_gaussian: the density has {self.d} dimensions; got a mean of shape "
                f"{mean.shape} and a covariance of shape {spread.shape}"
            )
        logs = _log_normal(mean[:, None], self.dataset, self.covariance + spread)
        return sum(exp(logs[0]) * self.weights)

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The probability of the numbers between two, of a density in one dimension."""
        if self.d != 1:
            raise ShapeError(f"integrate_box_1d: the density has {self.d} dimensions, not 1")
        wide = self.covariance[0, 0] ** 0.5
        ends = [ndtr((asarray(end) - self.dataset[0]) / wide) for end in (high, low)]
        return sum(self.weights * (ends[0] - ends[1]))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two densities."""
        if other.d != self.d:
            raise ShapeError(f"integrate_kde: the densities have {self.d} and {other.d} dimensions")
        logs = _log_normal(other.dataset, self.dataset, self.covariance + other.covariance)
        return sum(exp(logs) * self.weights * other.weights[:, None])

    def resample(self, key: Any, shape: tuple[int, ...] = ()) -> Array:
        """Random samples from the density, [dimensions, *shape]."""
        which, apart = random.split(key)
        chosen = random.choice(which, self.n, shape=shape, p=self.weights)
        moved = random.multivariate_normal(
            apart, zeros(self.d, self.dataset.dtype), self.covariance, shape=shape
        )
        found = self.dataset.T[chosen] + moved.astype(self.dataset.dtype)
        return moveaxis(found, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Raises BadArgument, as JAX does: integrate_box_1d is there."""
        raise BadArgument("gaussian_kde.integrate_box: only integrate_box_1d is there")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Raises BadArgument, as JAX does: make another gaussian_kde."""
        raise BadArgument("gaussian_kde never changes: make another one with bw_method=")

    def _points(self, points: Any) -> Array:
        found = atleast_2d(asarray(points))
        if found.ndim == 2 and found.shape[0] != self.d and found.shape == (1, self.d):
            found = found.reshape(self.d, 1)
        if found.ndim != 2 or found.shape[0] != self.d:
            raise ShapeError(
                f"gaussian_kde: points must be [{self.d}, m], as the samples are; got shape "
                f"{found.shape}"
            )
        (found,) = promoted("gaussian_kde", found, inexact=True)
        return found


def _log_normal(points: Array, samples: Array, covariance: Array) -> Array:
    """The logarithms of Gaussians round samples [d, n] at points [d, m]: [m, n]."""
    factor = cholesky(covariance, lower=True)
    d = samples.shape[0]
    apart = points[:, :, None] - samples[:, None, :]
    flat = apart.reshape(d, -1)
    squares = sum(flat * cho_solve((factor, True), flat), axis=0).reshape(apart.shape[1:])
    return -squares / 2 - sum(log(diag(factor))) - d / 2 * math.log(2 * math.pi)


def _unflatten(_: None, children: Any) -> gaussian_kde:
    made = object.__new__(gaussian_kde)
    for name, value in zip(_FIELDS, children, strict=True):
        setattr(made, name, value)
    return made


_FIELDS = ("neff", "dataset", "weights", "covariance", "inv_cov")
register_node(gaussian_kde, lambda kde: ([getattr(kde, n) for n in _FIELDS], None), _unflatten)
