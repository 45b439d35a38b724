"""Removing a mean or straight lines from a signal.

detrend(signal, bp=[100, 250])      # lines fitted to three parts of it
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy import concatenate, mean, moveaxis, sum
from fxad.numpy.core import axis_index, promoted, value_of
from fxad.trace.array import Array


def _without_line(x: Array) -> Array:
    """Along the last axis: x minus the line with the least squares."""
    times = np.arange(x.shape[-1]) - (x.shape[-1] - 1) / 2
    squares = (times**2).sum()
    weights = (times / squares if squares else times).astype(x.dtype)
    slope = sum(x * weights, -1, keepdims=True)
    return x - mean(x, -1, keepdims=True) - slope * times.astype(x.dtype)


def detrend(
    data: Any,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] | np.ndarray = 0,
    overwrite_data: Any = None,
) -> Array:
    """The data minus the line fitted along an axis ("linear"), or minus the mean ("constant").

    bp: where a new line begins, positions along the axis. `overwrite_data` is accepted and ignored.
    Raises BadArgument for another type, ShapeError for a position outside the axis.
    """
    if type not in ("linear", "constant"):
        raise BadArgument(f"detrend: type must be 'linear' or 'constant', not {type!r}")
    (value,) = promoted("detrend", value_of(data, "detrend"), inexact=True, numbers=False)
    at = axis_index(axis, value.ndim, "detrend")
    if type == "constant":
        return value - mean(value, at, keepdims=True)
    length = value.shape[at]
    cuts = sorted({0, length, *np.atleast_1d(bp).tolist()})
    if cuts[0] < 0 or cuts[-1] > length:
        raise ShapeError(f"detrend: bp={bp} leaves the axis, which has {length} elements")
    if not length:
        return value
    value = moveaxis(value, at, -1)
    parts = [_without_line(value[..., a:b]) for a, b in pairwise(cuts)]
    return moveaxis(concatenate(parts, -1), -1, at)
