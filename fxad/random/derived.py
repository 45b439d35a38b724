"""Continuous distributions made of draws of others: heavy tails, balls, rotations, correlations.

x = multivariate_normal(key, mean, cov)     # f32[2], f32[2,2] -> f32[2]
q = orthogonal(key, 3)

For one key the values are those of `jax.random`, up to rounding of the functions they go through.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy import linalg
from fxad.numpy.contraction import einsum
from fxad.numpy.core import cast, shape_tuple, spread_to, value_of
from fxad.numpy.division import power
from fxad.numpy.elementwise import abs, exp, log, log1p, sign, sqrt, where
from fxad.numpy.manipulation import expand_dims, matrix_transpose
from fxad.numpy.reductions import sum
from fxad.random.bits import float_dtype, shape_for, uniform
from fxad.random.distributions import exponential, normal, rademacher
from fxad.random.gammas import chisquare, gamma
from fxad.random.keys import checked, split
from fxad.trace.array import Array


def _parameters(
    name: str, shape: Any, dtype: Any, *values: Any
) -> tuple[tuple[int, ...], np.dtype, list[Array]]:
    """(shape of the draw, its dtype, the parameters in both)."""
    wanted = float_dtype(name, dtype)
    arrays = [cast(value_of(v, name), wanted) for v in values]
    full = shape_for(name, shape, *(a.shape for a in arrays))
    return full, wanted, [spread_to(a, full) for a in arrays]


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Student's t numbers of df degrees of freedom.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.t(key, 6.0, (10000,))
    >>> x.var().round(1)  # df / (df - 2)
    Array(1.5, dtype=float32)
    """
    shape, wanted, (freedom,) = _parameters("t", shape, dtype, df)
    keys = split(checked(key, "t"))
    half = freedom / 2
    return normal(keys[0], shape, wanted) * sqrt(half / gamma(keys[1], half, shape, wanted))


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Fisher's F numbers: a quotient of chi-square numbers, each over its degrees of freedom.

    >>> key = fxad.random.key(0)
    >>> fxad.random.f(key, 3.0, 10.0, (10000,)).mean().round(1)  # dfden / (dfden - 2)
    Array(1.3, dtype=float32)
    """
    shape, wanted, (above, below) = _parameters("f", shape, dtype, dfnum, dfden)
    keys = split(checked(key, "f"))
    numerator = chisquare(keys[1], above, shape, wanted) / above
    return numerator / (chisquare(keys[0], below, shape, wanted) / below)


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Pareto numbers of shape parameter b, from 1 on.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.pareto(key, 3.0, (10000,))
    >>> x.min() >= 1, x.mean().round(1)  # b / (b - 1)
    (Array(True, dtype=bool), Array(1.5, dtype=float32))
    """
    shape, wanted, (tail,) = _parameters("pareto", shape, dtype, b)
    return exp(exponential(key, shape, wanted) / tail)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Lengths of plane vectors with normal components of deviation `scale`.

    >>> key = fxad.random.key(0)
    >>> (fxad.random.rayleigh(key, 2.0, (10000,)) ** 2).mean().round(0)  # 2 scale**2
    Array(8., dtype=float32)
    """
    shape, wanted, (scale,) = _parameters("rayleigh", shape, dtype, scale)
    drawn = uniform(checked(key, "rayleigh"), shape, wanted)
    return scale * sqrt(log(drawn) * -2)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Lengths of vectors of three standard normal components.

    >>> key = fxad.random.key(0)
    >>> (fxad.random.maxwell(key, (10000,)) ** 2).mean().round(1)
    Array(3., dtype=float32)
    """
    shape = shape_tuple(shape, "maxwell")
    return linalg.norm(normal(key, (*shape, 3), float_dtype("maxwell", dtype)), axis=-1)


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """loc + scale * a Maxwell number of random sign.

    Result: `shape`, or what loc and scale broadcast to, followed by the latter, as in JAX.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.double_sided_maxwell(key, 1.0, 2.0, (10000,))
    >>> x.shape, (x > 1).mean().round(2)
    ((10000,), Array(0.5, dtype=float32))
    """
    wanted = float_dtype("double_sided_maxwell", dtype)
    middle, spread = (cast(value_of(v, "double_sided_maxwell"), wanted) for v in (loc, scale))
    common = shape_for("double_sided_maxwell", None, middle.shape, spread.shape)
    full = (*(shape_tuple(shape, "double_sided_maxwell") or common), *common)
    keys = split(checked(key, "double_sided_maxwell"))
    return rademacher(keys[1], full, wanted) * maxwell(keys[0], full, wanted) * spread + middle


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """Weibull numbers.

    >>> key = fxad.random.key(0)
    >>> fxad.random.weibull_min(key, 2.0, 1.0, (10000,)).mean().round(1)
    Array(2., dtype=float32)
    """
    wanted = float_dtype("weibull_min", dtype)
    drawn = uniform(checked(key, "weibull_min"), shape, wanted)
    return power(-log1p(-drawn), 1.0 / value_of(concentration)) * scale


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Inverse Gaussian numbers of a given mean and shape parameter 1 (Michael and others, 1976).

    >>> key = fxad.random.key(0)
    >>> fxad.random.wald(key, 2.0, (10000,)).mean().round(0)
    Array(2., dtype=float32)
    """
    shape, wanted, (mean,) = _parameters("wald", shape, dtype, mean)
    keys = split(checked(key, "wald"))
    y = normal(keys[0], shape, wanted) ** 2
    chance = uniform(keys[1], shape, wanted)
    root = sqrt(4 * mean * y + mean**2 * y**2)
    x = mean + mean**2 * y / 2 - mean / 2 * root
    return where(chance <= mean / (mean + x), x, mean**2 / x)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None
) -> Array:
    """Numbers in [left, right], most often near mode.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.triangular(key, 0.0, 1.0, 5.0, (10000,))
    >>> x.mean().round(1)  # (left + mode + right) / 3
    Array(2., dtype=float32)
    """
    shape, wanted, bounds = _parameters("triangular", shape, dtype, left, mode, right)
    left, mode, right = bounds
    drawn = uniform(checked(key, "triangular"), shape, wanted)
    rising = left + sqrt(drawn * (right - left) * (mode - left))
    falling = right - sqrt((1 - drawn) * (right - left) * (right - mode))
    return where(drawn < (mode - left) / (right - left), rising, falling)


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Numbers with density proportional to exp(-|x|^p).

    >>> key = fxad.random.key(0)
    >>> fxad.random.generalized_normal(key, 2.0, (10000,)).var().round(2)
    Array(0.49, dtype=float32)
    """
    wanted = float_dtype("generalized_normal", dtype)
    shape = shape_tuple(shape, "generalized_normal")
    keys = split(checked(key, "generalized_normal"))
    size = gamma(keys[0], 1 / p, shape, wanted)
    return rademacher(keys[1], shape, wanted) * size ** (1 / p)


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Array:
    """Uniform points of the unit ball of the p-norm in d dimensions: shape (*shape, d).

    Barthe and others, "A probabilistic approach to the geometry of the l_p^n-ball", 2005.

    >>> key = fxad.random.key(0)
    >>> points = fxad.random.ball(key, 3, shape=(1000,))
    >>> points.shape, jnp.linalg.norm(points, axis=-1).max() <= 1
    ((1000, 3), Array(True, dtype=bool))
    """
    wanted, shape = float_dtype("ball", dtype), shape_tuple(shape, "ball")
    keys = split(checked(key, "ball"))
    direction = generalized_normal(keys[0], p, (*shape, d), wanted)
    spare = exponential(keys[1], shape, wanted)
    return direction / expand_dims((sum(abs(direction) ** p, -1) + spare) ** (1 / p), -1)


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Array:
    """Uniform (Haar) orthogonal matrices, shape (*shape, n, m): orthonormal rows or columns.

    >>> key = fxad.random.key(0)
    >>> q = fxad.random.orthogonal(key, 3)
    >>> abs(q @ q.T - jnp.eye(3)).max() < 1e-5
    Array(True, dtype=bool)
    """
    wanted, shape = float_dtype("orthogonal", dtype), shape_tuple(shape, "orthogonal")
    columns = n if m is None else m
    drawn = normal(key, (*shape, max(n, columns), min(n, columns)), wanted)
    q, r = linalg.qr(drawn)
    signed = q * expand_dims(sign(linalg.diagonal(r)), -2)
    return matrix_transpose(signed) if n < columns else signed


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: str = "cholesky"
) -> Array:
    """Normal vectors of a mean and a covariance matrix (last axes; leading axes are batches).

    shape: that of the result without the last axis. method: how the matrix is factored, one of
    cholesky, eigh and svd. Raises ShapeError if mean and cov do not fit.

    >>> key = fxad.random.key(0)
    >>> cov = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> x = fxad.random.multivariate_normal(key, jnp.zeros(2), cov, (10000,))
    >>> jnp.cov(x.T).round(1).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    wanted = float_dtype("multivariate_normal", dtype)
    middle, matrix = (cast(value_of(v, "multivariate_normal"), wanted) for v in (mean, cov))
    if not middle.ndim or matrix.shape[-2:] != 2 * middle.shape[-1:]:
        raise ShapeError(
            f"multivariate_normal: mean {middle.type} and cov {matrix.type} must end in n and n, n"
        )
    shape = shape_for("multivariate_normal", shape, middle.shape[:-1], matrix.shape[:-2])
    drawn = normal(key, (*shape, middle.shape[-1]), wanted)
    return middle + einsum("...ij,...j->...i", _factor(matrix, method), drawn)


def _factor(matrix: Array, method: str) -> Array:
    """A matrix whose product with its transpose is the given one."""
    if method == "cholesky":
        return linalg.cholesky(matrix)
    if method == "eigh":
        values, vectors = linalg.eigh(matrix)
    elif method == "svd":
        vectors, values, _ = linalg.svd(matrix)
    else:
        raise BadArgument(
            f"multivariate_normal: method must be cholesky, eigh or svd, not {method!r}"
        )
    return vectors * expand_dims(sqrt(values), -2)
