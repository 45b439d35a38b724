"""Summaries of samples: mode, ranks, the standard error of a mean, entropy.

rankdata([10, 30, 10])      # [1.5, 3, 1.5]
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.numpy import (
    argmax,
    asarray,
    expand_dims,
    isnan,
    moveaxis,
    reshape,
    sort,
    squeeze,
    std,
    sum,
    take_along_axis,
    where,
)
from fxad.numpy.core import axis_index, cast, promoted, value_of
from fxad.scipy.special.elementary import entr, rel_entr
from fxad.trace.array import Array

_METHODS = ("average", "min", "max", "dense", "ordinal")


class ModeResult(NamedTuple):
    mode: Array
    count: Array  # type: ignore[assignment]  # the name that SciPy and JAX give it


def _along(name: str, a: Any, axis: int | None, nan_policy: str) -> tuple[Array, int]:
    """The array and the axis to reduce; without an axis the flat array. NaN propagates."""
    if nan_policy != "propagate":
        raise BadArgument(f"{name}: nan_policy must be 'propagate', not {nan_policy!r}")
    value = value_of(a, name)
    if dt.is_complex(value.dtype):
        raise TypeMismatch(f"{name}: takes real numbers, not {value.type}")
    if axis is None:
        return reshape(value, (-1,)), 0
    return value, axis_index(axis, value.ndim, name)


def mode(
    a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """The most frequent element along an axis, the smallest of equally frequent ones, and how
    often it occurs (integers).

    >>> fxad.scipy.stats.mode(jnp.array([[1, 2], [1, 3], [2, 3]]))
    ModeResult(mode=Array([1, 3], dtype=int32), count=Array([2, 2], dtype=int32))
    """
    rank = value_of(a, "mode").ndim
    value, at = _along("mode", a, axis, nan_policy)
    ordered = sort(moveaxis(value, at, -1), -1)
    # Rows are short lists in statistics; every element is compared with every other.
    same = expand_dims(ordered, -1) == expand_dims(ordered, -2)
    both = isnan(ordered) if dt.is_float(ordered.dtype) else ordered != ordered
    same = same | (expand_dims(both, -1) & expand_dims(both, -2))
    counts = sum(same, -1)
    first = argmax(counts, -1, keepdims=True)
    found = ModeResult(take_along_axis(ordered, first, -1), take_along_axis(counts, first, -1))
    if axis is None and keepdims:
        return ModeResult(*(reshape(part, (1,) * rank) for part in found))
    kept = (moveaxis(part, -1, at) for part in found)
    return ModeResult(*(kept if keepdims else (squeeze(part, at) for part in kept)))


def rankdata(
    a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Array:
    """Ranks from 1 along an axis (default: of the flat array); floats for method "average".

    Equal elements get the average, the smallest ("min") or the largest ("max") of their ranks,
    consecutive ones ("ordinal"), or one after the next different element ("dense"). A row with a
    NaN has NaN ranks.

    >>> fxad.scipy.stats.rankdata(jnp.array([10, 20, 20, 5]))
    Array([2. , 3.5, 3.5, 1. ], dtype=float32)
    """
    if method not in _METHODS:
        raise BadArgument(f"rankdata: method must be one of {', '.join(_METHODS)}, not {method!r}")
    value, at = _along("rankdata", a, axis, nan_policy)
    rows = moveaxis(value, at, -1)
    less = expand_dims(rows, -1) > expand_dims(rows, -2)  # [..., element, other]
    same = expand_dims(rows, -1) == expand_dims(rows, -2)
    size = rows.shape[-1]
    before = np.tri(size, size, -1, dtype=bool)
    match method:
        case "min":
            ranks = sum(less, -1) + 1
        case "max":
            ranks = sum(less | same, -1)
        case "ordinal":
            ranks = sum(less | (same & before), -1) + 1
        case "dense":
            first = ~(same & before).any(-1)  # the first of its equals
            ranks = sum(less & expand_dims(first, -2), -1) + 1
        case _:
            ranks = (sum(less, -1) + sum(less | same, -1) + 1) * asarray(0.5, dt.default_float())
    if dt.is_float(rows.dtype):
        bad = isnan(rows).any(-1, keepdims=True)
        ranks = where(bad, math.nan, cast(ranks, dt.default_float()))
    return moveaxis(ranks, -1, at)


def sem(
    a: Any,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean along an axis: std(a, ddof) / sqrt(count).

    >>> fxad.scipy.stats.sem(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array(0.577, dtype=float32)
    """
    value, at = _along("sem", a, axis, nan_policy)
    out = std(value, at, ddof=ddof, keepdims=keepdims) / math.sqrt(value.shape[at])
    return reshape(out, (1,) * value_of(a).ndim) if axis is None and keepdims else out


def entropy(
    pk: Any,
    qk: Any = None,
    base: float | None = None,
    axis: int = 0,
    *,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> Array:
    """Shannon's entropy -sum(p log p) of weights made to add up to 1, or with qk the relative
    entropy sum(p log(p / q)); in units of log(base), natural by default.

    >>> fxad.scipy.stats.entropy(jnp.array([0.5, 0.5])).round(3)
    Array(0.693, dtype=float32)
    >>> fxad.scipy.stats.entropy(jnp.array([1, 1]), jnp.array([3, 1])).round(3)  # relative
    Array(0.144, dtype=float32)
    """
    _along("entropy", pk, axis, nan_policy)
    if base is not None and base <= 0:
        raise BadArgument(f"entropy: base must be positive, not {base!r}")
    given = (pk,) if qk is None else (pk, qk)
    shares = [
        p / sum(p, axis, keepdims=True)
        for p in promoted("entropy", *given, inexact=True, numbers=False)
    ]
    terms = entr(shares[0]) if qk is None else rel_entr(*shares)
    out = sum(terms, axis, keepdims=keepdims)
    return out if base is None else out / math.log(base)
