"""Distributions by transforming uniform numbers.

x = normal(key, (2, 3))
token = categorical(key, logits)

For one key the values are those of `jax.random`, up to rounding of the functions they go through.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, promoted, shape_tuple, spread_to, value_of
from fxad.numpy.elementwise import abs, exp, less, log, log1p, sign, tan
from fxad.numpy.manipulation import moveaxis
from fxad.numpy.reductions import argmax
from fxad.random.bits import float_dtype, shape_for, uniform, unit
from fxad.random.keys import checked, low_mode, split
from fxad.random.large import compiled_if_large
from fxad.trace.array import Array


@compiled_if_large
def normal(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Standard normal numbers; complex ones have independent parts of variance 1/2.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.normal(key, (10000,))
    >>> x.std().round(2)
    Array(1.01, dtype=float32)
    """
    wanted = dt.default_float() if dtype is None else dt.canonicalize(dtype, explicit=True)
    shape = shape_tuple(shape, "normal")
    key = checked(key, "normal")
    if not dt.is_complex(wanted):
        return _normal(key, shape, float_dtype("normal", wanted))
    keys = split(key)
    parts = [_normal(keys[i], shape, dt.real_of(wanted)) for i in range(2)]
    return OPS["complex"](*parts) / math.sqrt(2)


def _normal(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    low = float(np.nextafter(dtype.type(-1), dtype.type(0)))
    return OPS["erfinv"](uniform(key, shape, dtype, low, 1.0)) * math.sqrt(2)


@compiled_if_large
def truncated_normal(
    key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None
) -> Array:
    """Standard normal numbers given that they lie between lower and upper.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.truncated_normal(key, -1.0, 2.0, (1000,))
    >>> x.min() >= -1, x.max() <= 2
    (Array(True, dtype=bool), Array(True, dtype=bool))
    """
    wanted = float_dtype("truncated_normal", dtype)
    low, high = (cast(value_of(v, "truncated_normal"), wanted) for v in (lower, upper))
    shape = shape_for("truncated_normal", shape, low.shape, high.shape)
    first, last = (OPS["erf"](v / math.sqrt(2)) for v in (low, high))
    out = OPS["erfinv"](uniform(key, shape, wanted, first, last)) * math.sqrt(2)
    # Rounding must not reach the bounds themselves.
    low, high = (OPS["stop_gradient"](v) for v in (low, high))
    inside = OPS["max"](out, spread_to(OPS["nextafter"](low, math.inf), shape))
    return OPS["min"](inside, spread_to(OPS["nextafter"](high, -math.inf), shape))


@compiled_if_large
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Array:
    """Bools that are true with probability p. mode: as in `gumbel`.

    >>> key = fxad.random.key(0)
    >>> fxad.random.bernoulli(key, 0.9, (8,))
    Array([False, False,  True,  True,  True,  True,  True,  True], dtype=bool)
    >>> fxad.random.bernoulli(key, jnp.array([0.1, 0.5]), (10000, 2)).mean(0).round(2)
    Array([0.1, 0.5], dtype=float32)
    """
    low_mode("bernoulli", mode)
    (chance,) = promoted("bernoulli", p, inexact=True, numbers=False)
    shape = shape_for("bernoulli", shape, chance.shape)
    drawn = unit(checked(key, "bernoulli"), shape, chance.dtype)
    return less(drawn, p if is_python_scalar(p) else chance)


@compiled_if_large
def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """-1 and 1 with equal chance, in any signed dtype.

    >>> key = fxad.random.key(0)
    >>> fxad.random.rademacher(key, (6,))
    Array([-1, -1,  1,  1, -1,  1], dtype=int32)
    """
    wanted = dt.default_int() if dtype is None else dt.canonicalize(dtype, explicit=True)
    return cast(bernoulli(key, 0.5, shape_tuple(shape, "rademacher")), wanted) * 2 - 1


@compiled_if_large
def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Array:
    """Standard Gumbel numbers, -log(-log(u)). mode: None or "low"; JAX's "high", with more bits
    of u near 0, is not here.

    >>> key = fxad.random.key(0)
    >>> logits = jnp.log(jnp.array([0.2, 0.8]))
    >>> noise = fxad.random.gumbel(key, (10000, 2))
    >>> drawn = jnp.argmax(logits + noise, axis=-1)  # as `categorical`
    >>> drawn.mean().round(2)
    Array(0.8, dtype=float32)
    """
    low_mode("gumbel", mode)
    wanted = float_dtype("gumbel", dtype)
    return -log(-log(_open_unit("gumbel", key, shape, wanted)))


def _open_unit(name: str, key: Any, shape: Any, dtype: np.dtype) -> Array:
    """Uniform numbers in (0, 1), from the smallest normal float on."""
    return uniform(checked(key, name), shape, dtype, float(dt.finfo(dtype).tiny), 1.0)


@compiled_if_large
def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Exponential numbers of rate 1.

    >>> key = fxad.random.key(0)
    >>> fxad.random.exponential(key, (10000,)).mean().round(2)
    Array(1.01, dtype=float32)
    """
    wanted = float_dtype("exponential", dtype)
    return -log1p(-uniform(checked(key, "exponential"), shape, wanted))


@compiled_if_large
def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Standard Laplace numbers.

    >>> key = fxad.random.key(0)
    >>> abs(fxad.random.laplace(key, (10000,))).mean().round(2)
    Array(1.02, dtype=float32)
    """
    wanted = float_dtype("laplace", dtype)
    low = float(wanted.type(-1) + dt.finfo(wanted).epsneg)
    drawn = uniform(checked(key, "laplace"), shape, wanted, low, 1.0)
    return sign(drawn) * log1p(-abs(drawn))


@compiled_if_large
def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Standard logistic numbers.

    >>> key = fxad.random.key(0)
    >>> x = fxad.random.logistic(key, (10000,))
    >>> fxad.nn.sigmoid(x).mean().round(2)  # it becomes uniform
    Array(0.5, dtype=float32)
    """
    drawn = _open_unit("logistic", key, shape, float_dtype("logistic", dtype))
    return log(drawn) - log1p(-drawn)


@compiled_if_large
def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Standard Cauchy numbers.

    >>> key = fxad.random.key(0)
    >>> jnp.median(abs(fxad.random.cauchy(key, (10001,)))).round(1)
    Array(1., dtype=float32)
    """
    wanted = float_dtype("cauchy", dtype)
    low = float(dt.finfo(wanted).eps)
    return tan((uniform(checked(key, "cauchy"), shape, wanted, low, 1.0) - 0.5) * math.pi)


@compiled_if_large
def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Array:
    """exp(sigma * x) of standard normal x.

    >>> key = fxad.random.key(0)
    >>> jnp.median(fxad.random.lognormal(key, 0.5, (10001,))).round(2)
    Array(1., dtype=float32)
    """
    wanted = float_dtype("lognormal", dtype)
    scale = cast(value_of(sigma, "lognormal"), wanted)
    return exp(normal(key, shape_for("lognormal", shape, scale.shape), wanted) * scale)


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Positions along `axis`, drawn with probabilities proportional to exp(logits).

    shape: that of the result; it ends with the shape of logits without the axis, which is the
    default. Without replacement the leading part of `shape` holds distinct positions. mode: as in
    `gumbel`.

    >>> key = fxad.random.key(0)
    >>> logits = jnp.log(jnp.array([0.7, 0.2, 0.1]))
    >>> drawn = fxad.random.categorical(key, logits, shape=(10000,))
    >>> (jnp.bincount(drawn) / 10000).round(2)
    Array([0.7, 0.2, 0.1], dtype=float32)
    """
    low_mode("categorical", mode)
    key = checked(key, "categorical")
    (scores,) = promoted("categorical", logits, inexact=True, numbers=False)
    at = axis_index(axis, scores.ndim, "categorical")
    batch = (*scores.shape[:at], *scores.shape[at + 1 :])
    wanted = batch if shape is None else shape_tuple(shape, "categorical")
    count = len(wanted) - len(batch)
    lead, rest = wanted[: max(count, 0)], wanted[max(count, 0) :]
    if count < 0 or (rest != batch and not (replace and _repeats(batch, rest))):
        raise ShapeError(f"categorical: shape {wanted} must end with the batch shape {batch}")
    if not replace:
        return _distinct(key, scores, at, lead)
    full = (*lead, *rest[:at], scores.shape[at], *rest[at:])
    noisy = gumbel(key, full, scores.dtype) + scores
    return argmax(noisy, at + len(lead))


def _repeats(batch: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a batch shape broadcasts to a shape of as many axes."""
    return all(b in (1, size) for b, size in zip(batch, shape, strict=True))


def _distinct(key: Array, scores: Array, axis: int, lead: tuple[int, ...]) -> Array:
    """The best of scores with Gumbel noise: draws without replacement."""
    count = math.prod(lead)
    if count > scores.shape[axis]:
        raise ShapeError(
            f"categorical: {count} distinct positions of {scores.shape[axis]} are impossible"
        )
    noisy = moveaxis(gumbel(key, scores.shape, scores.dtype) + scores, axis, -1)
    places = moveaxis(OPS["top_k"](noisy, k=count)[1], -1, 0)
    return OPS["reshape"](places, shape=(*lead, *places.shape[1:]))
