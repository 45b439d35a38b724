"""Drawing from what there is: permutation and choice.

batch = choice(key, 1000, (32,), replace=False)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, promoted, shape_tuple, value_of
from fxad.numpy.creation import arange
from fxad.numpy.cumulative import cumsum
from fxad.numpy.elementwise import log
from fxad.numpy.manipulation import slice_axis
from fxad.numpy.selection import take
from fxad.numpy.sorting import searchsorted
from fxad.random.bits import bits, randint, uniform
from fxad.random.distributions import gumbel
from fxad.random.keys import checked, low_mode, split
from fxad.trace.array import Array


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """x with the slices along an axis in random order; for an int, 0 to x - 1 in random order.

    With `independent` every line along the axis has an order of its own.

    >>> key = fxad.random.key(0)
    >>> fxad.random.permutation(key, 6)
    Array([0, 1, 5, 4, 3, 2], dtype=int32)
    >>> fxad.random.permutation(key, jnp.array([10, 20, 30, 40]))
    Array([10, 20, 40, 30], dtype=int32)
    """
    key = checked(key, "permutation")
    value = value_of(x, "permutation")
    if not value.shape:
        return _shuffled(key, arange(_count(value, "permutation")), 0)
    at = axis_index(axis, value.ndim, "permutation")
    if independent or value.ndim == 1:
        return _shuffled(key, value, at)
    return take(value, _shuffled(key, arange(value.shape[at]), 0), at, mode="clip")


def _count(value: Array, name: str) -> int:
    if not dt.is_integer(value.dtype):
        raise TypeMismatch(f"{name}: expected an integer or an array with axes, got {value.type}")
    return int(value)


def _shuffled(key: Array, value: Array, axis: int) -> Array:
    """Sort by random 32-bit numbers, often enough that equal numbers do not matter."""
    size = max(1, value.size)
    for _ in range(math.ceil(3 * math.log(size) / math.log(2**32 - 1))):
        keys = split(key)
        key = keys[0]
        order = bits(keys[1], value.shape)
        value = OPS["sort"](order, value, axis=axis, keys=1)[1]
    return value


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Elements of a along an axis (of range(a) for an int), with probabilities p if given.

    Result: `shape` in place of the axis. Raises ShapeError if p does not fit, BadArgument for more
    draws without replacement than there are elements.

    >>> key = fxad.random.key(0)
    >>> fxad.random.choice(key, 5, (4,), replace=False)
    Array([0, 1, 4, 3], dtype=int32)
    >>> fxad.random.choice(key, jnp.array([10, 20, 30]), (6,), p=jnp.array([0.0, 0.5, 0.5]))
    Array([20, 20, 30, 30, 20, 30], dtype=int32)
    """
    low_mode("choice", mode)
    key = checked(key, "choice")
    shape = shape_tuple(shape, "choice")
    value = value_of(a, "choice")
    at = axis_index(axis, value.ndim, "choice") if value.shape else 0
    population = value.shape[at] if value.shape else _count(value, "choice")
    draws = math.prod(shape)
    if draws and population <= 0:
        raise BadArgument("choice: nothing to choose from")
    if not replace and draws > population:
        raise BadArgument(f"choice: {draws} draws from {population} elements need replace=True")
    if not draws:
        places = arange(0)
    elif p is not None:
        places = _weighted(key, p, population, draws, replace)
    elif replace:
        places = OPS["reshape"](randint(key, shape, 0, population), shape=(draws,))
    else:
        places = None
    if places is None:
        found = slice_axis(permutation(key, value, at), at, 0, draws)
    else:
        found = take(value, places, at, mode="clip") if value.shape else places
    lead, rest = (value.shape[:at], value.shape[at + 1 :]) if value.shape else ((), ())
    return OPS["reshape"](found, shape=(*lead, *shape, *rest))


def _weighted(key: Array, p: Any, population: int, draws: int, replace: bool) -> Array:
    (chances,) = promoted("choice: p", p, inexact=True, numbers=False)
    if chances.shape != (population,):
        raise ShapeError(f"choice: p is {chances.type}, but there are {population} elements")
    if not replace:
        noisy = gumbel(key, (population,), chances.dtype) + log(chances)
        return OPS["top_k"](noisy, k=draws)[1]
    total = cumsum(chances)
    drawn = total[-1] * (1 - uniform(key, (draws,), chances.dtype))
    return cast(searchsorted(total, drawn), np.dtype(np.int32))
