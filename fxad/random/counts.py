"""Distributions of counts: poisson, binomial, multinomial, geometric.

n = poisson(key, 3.5, (10,))        # i32[10]

All lanes of a draw share their loop and go on until the last is done, as in `jax.random`, so that
one key gives the same numbers. W. Hörmann, "The transformed rejection method for generating
Poisson random variables", 1993, and "The generation of binomial random variates", 1993.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.ir.program import OPS
from fxad.lax.loops import scan, while_loop
from fxad.numpy.core import cast, promoted, shape_tuple, spread_to, value_of
from fxad.numpy.creation import full, zeros
from fxad.numpy.elementwise import (
    abs,
    clip,
    isinf,
    isnan,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    sqrt,
    where,
)
from fxad.numpy.manipulation import moveaxis
from fxad.numpy.reductions import any
from fxad.numpy.rounding import ceil, floor
from fxad.numpy.selection import take
from fxad.random.bits import float_dtype, int_dtype, shape_for, uniform
from fxad.random.keys import checked, split
from fxad.trace.array import Array

_TAIL = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """How many trials of chance p until the first success: 1, 2, 3, ...

    >>> key = fxad.random.key(0)
    >>> fxad.random.geometric(key, 0.25, (6,))
    Array([1, 1, 4, 3, 2, 7], dtype=int32)
    """
    wanted = int_dtype("geometric", dtype)
    (chance,) = promoted("geometric", p, inexact=True, numbers=False)
    shape = shape_for("geometric", shape, chance.shape)
    drawn = uniform(checked(key, "geometric"), shape, chance.dtype)
    drawn = where(drawn == 0, 1.0, drawn)  # its logarithm must be finite
    return cast(floor(log(drawn) / spread_to(log1p(-chance), shape)) + 1, wanted)


# ---------------------------------------------------------------- poisson


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Poisson counts of mean lam >= 0.

    >>> key = fxad.random.key(0)
    >>> fxad.random.poisson(key, 4.0, (6,))
    Array([0, 1, 5, 5, 2, 2], dtype=int32)
    """
    wanted = int_dtype("poisson", dtype)
    mean = cast(value_of(lam, "poisson"), dt.float32)
    shape = shape_for("poisson", shape, mean.shape)
    mean, key = spread_to(mean, shape), checked(key, "poisson")
    small = logical_or(isnan(mean), mean < 10)
    few = _poisson_by_products(key, where(small, mean, 0.0), wanted)
    many = _poisson_by_rejection(key, where(small, 1e5, mean), wanted)
    return where(mean == 0, 0, where(small, few, many))


def _poisson_by_products(key: Array, mean: Array, dtype: np.dtype) -> Array:
    """How many uniform factors keep a product above exp(-mean) (Knuth)."""

    def more(state: tuple) -> Array:
        return any(state[2] > -mean)

    def step(state: tuple) -> tuple:
        count, key, total = state
        keys = split(key)
        count = where(total > -mean, count + 1, count)
        return count, keys[0], total + log(uniform(keys[1], mean.shape, dt.float32))

    start = (full(mean.shape, 0, dtype), key, full(mean.shape, 0, dt.float32))
    return while_loop(more, step, start)[0] - 1


def _poisson_by_rejection(key: Array, mean: Array, dtype: np.dtype) -> Array:
    log_mean = log(mean)
    b = 0.931 + 2.53 * sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)

    def attempt(u: Array, v: Array) -> tuple[Array, Array]:
        room = 0.5 - abs(u)
        k = floor((2 * a / room + b) * u + mean + 0.43)
        score = log(v * inverse_alpha / (a / (room * room) + b))
        bound = -mean + k * log_mean - OPS["lgamma"](k + 1)
        sure = logical_and(room >= 0.07, v <= limit)
        never = logical_or(k < 0, logical_and(room < 0.013, v > room))
        return k, logical_or(sure, logical_and(logical_not(never), score <= bound))

    return cast(_until_accepted(key, attempt, mean), dtype)


def _until_accepted(key: Array, attempt: Any, like: Array) -> Array:
    """attempt(u in [-1/2, 1/2), v in [0, 1)) -> (value, accepted), again until all are accepted.

    A lane takes the value of its latest accepted attempt.
    """

    def waiting(state: tuple) -> Array:
        return any(logical_not(state[1]))

    def step(state: tuple) -> tuple:
        value, accepted, key = state
        keys = split(key, 3)
        u = uniform(keys[1], like.shape, like.dtype) - 0.5
        found, now = attempt(u, uniform(keys[2], like.shape, like.dtype))
        return where(now, found, value), logical_or(accepted, now), keys[0]

    start = (full(like.shape, -1, like.dtype), full(like.shape, False), key)
    return while_loop(waiting, step, start)[0]


# ---------------------------------------------------------------- binomial


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """Successes in n trials of chance p, as floats. NaN where n < 0, or p < 0 or NaN.

    >>> key = fxad.random.key(0)
    >>> fxad.random.binomial(key, 10, 0.5, (6,))
    Array([6., 7., 5., 6., 7., 3.], dtype=float32)
    """
    wanted = float_dtype("binomial", dtype)
    (chance,) = promoted("binomial", p, inexact=True, numbers=False)
    count = cast(value_of(n, "binomial"), chance.dtype)
    shape = shape_for("binomial", shape, count.shape, chance.shape)
    count, chance = spread_to(count, shape), spread_to(chance, shape)
    key = checked(key, "binomial")
    low = chance < 0.5
    rare = where(low, chance, 1.0 - chance)  # of success and failure, the rarer
    no_count = logical_or(isnan(count), count < 0)
    no_chance = logical_or(isnan(rare), rare < 0)
    infinite = isinf(count)
    not_rare = isnan(rare)
    rare = where(no_chance, 0.01, rare)
    small = logical_or(no_count, count * rare <= 10)
    count = floor(count)
    few = _binomial_by_gaps(key, where(small, count, 0.0), rare)
    many = _binomial_by_rejection(key, where(small, 1e4, count), where(small, 0.5, rare))
    drawn = cast(where(small, few, many), wanted)
    invalid = logical_or(no_chance, no_count)
    drawn = where(
        invalid, math.nan, where(logical_and(infinite, logical_not(invalid)), math.inf, drawn)
    )
    keep = logical_or(logical_or(low, no_count), logical_or(not_rare, infinite))
    return where(keep, drawn, cast(count, wanted) - drawn)


def _binomial_by_gaps(key: Array, count: Array, chance: Array) -> Array:
    """Sum the geometric gaps between successes until they pass the number of trials."""
    scale = log1p(-chance)

    def more(state: tuple) -> Array:
        return any(state[1] <= count)

    def step(state: tuple) -> tuple:
        found, total, key = state
        keys = split(key)
        found = where(total <= count, found + 1, found)
        gap = ceil(log(uniform(keys[0], chance.shape, chance.dtype)) / scale)
        return found, total + gap, keys[1]

    nothing = zeros(chance.shape, chance.dtype)
    return while_loop(more, step, (nothing, nothing, key))[0] - 1


def _binomial_by_rejection(key: Array, count: Array, chance: Array) -> Array:
    deviation = sqrt(count * chance * (1 - chance))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * chance
    c = count * chance + 0.5
    limit = 0.92 - 4.2 / b
    odds = chance / (1 - chance)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = floor((count + 1) * chance)

    def attempt(u: Array, v: Array) -> tuple[Array, Array]:
        room = 0.5 - abs(u)
        k = floor((2 * a / room + b) * u + c)
        score = log(v * alpha / (a / (room * room) + b))
        bound = (
            (mode + 0.5) * log((mode + 1) / (odds * (count - mode + 1)))
            + (count + 1) * log((count - mode + 1) / (count - k + 1))
            + (k + 0.5) * log(odds * (count - k + 1) / (k + 1))
            + _stirling_rest(mode)
            + _stirling_rest(count - mode)
            - _stirling_rest(k)
            - _stirling_rest(count - k)
        )
        sure = logical_and(room >= 0.07, v <= limit)
        never = logical_or(k < 0, k > count)
        return k, logical_or(sure, logical_and(logical_not(never), score <= bound))

    return _until_accepted(key, attempt, count)


def _stirling_rest(k: Array) -> Array:
    """log k! minus Stirling's formula: a table up to 9, then its series."""
    table = value_of(np.asarray(_TAIL, k.dtype))
    inside = clip(k, 0.0, 9.0)
    square = (inside + 1) * (inside + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (inside + 1)
    return where(k <= 9, take(table, cast(floor(inside), dt.int32), mode="clip"), series)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int = 1
) -> Array:
    """Counts per class (last axis) of n trials with class probabilities p.

    shape: that of the result, classes included; n broadcasts to the shape without them.

    >>> key = fxad.random.key(0)
    >>> fxad.random.multinomial(key, 100, jnp.array([0.5, 0.3, 0.2]))
    Array([57., 26., 17.], dtype=float32)
    """
    wanted = float_dtype("multinomial", dtype)
    count, chances = promoted("multinomial", n, p, inexact=True, numbers=False, broadcast=False)
    if not chances.ndim:
        raise TypeMismatch(f"multinomial: p needs an axis of classes, got {chances.type}")
    full_shape = chances.shape if shape is None else shape_tuple(shape, "multinomial")
    classes = moveaxis(spread_to(chances, full_shape), -1, 0)
    left = OPS["cumsum"](classes, axis=0, reverse=True)
    ratios = classes / where(left == 0, 1.0, left)
    keys = split(checked(key, "multinomial"), classes.shape[0])

    def draw(rest: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        ratio, own = given
        found = binomial(own, rest, clip(ratio, 0.0, 1.0), dtype=rest.dtype)
        return rest - found, found

    counts = scan(draw, spread_to(count, full_shape[:-1]), (ratios, keys))[1]
    return cast(moveaxis(counts, 0, -1), wanted)
