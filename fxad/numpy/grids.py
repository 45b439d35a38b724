"""Index grids and arrays made from blocks or functions: mgrid, r_, ix_, block, fromfunction.

x, y = mgrid[0:3, 0:4]
r_[1.0, 2.0:3.0:5j]
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.numpy.core import asarray, axis_index, cast, promoted, value_of
from fxad.numpy.creation import arange, diag, ends, indices, iota, linspace
from fxad.numpy.elementwise import exp, log, where
from fxad.numpy.joining import concatenate
from fxad.numpy.shaping import moveaxis, ravel, reshape
from fxad.numpy.updates import At
from fxad.trace.array import Array
from fxad.trace.replay import replayed

s_, index_exp = np.s_, np.index_exp


def _range(item: slice) -> Array:
    """start:stop:step; an imaginary step counts points and includes the end."""
    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        return linspace(start, item.stop, int(builtins.abs(item.step)))
    return arange(start, item.stop, 1 if item.step is None else item.step)


class _Grid:
    """mgrid and ogrid: slices to coordinate arrays."""

    def __init__(self, full: bool) -> None:
        self.full = full

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _range(key)
        axes = promoted("mgrid", *map(_range, key), broadcast=False)
        count = len(axes)
        columns = [
            reshape(axis, tuple(-1 if i == j else 1 for j in range(count)))
            for i, axis in enumerate(axes)
        ]
        if not self.full:
            return columns
        shape = tuple(axis.shape[0] for axis in axes)
        spread = [column + 0 * sum(columns[1:], columns[0]) for column in columns]
        return concatenate([reshape(c, (1, *shape)) for c in spread])


mgrid, ogrid = _Grid(True), _Grid(False)


class _Joined:
    """r_ and c_: arrays, numbers and ranges joined along one axis."""

    def __init__(self, columns: bool) -> None:
        self.columns = columns

    def __getitem__(self, key: Any) -> Array:
        items = key if isinstance(key, tuple) else (key,)
        if any(isinstance(item, str) for item in items):
            raise TypeMismatch("r_ and c_ take no directives; use concatenate with axis=")
        parts = [_range(i) if isinstance(i, slice) else asarray(i) for i in items]
        if not self.columns:
            return concatenate([reshape(p, (1,)) if p.ndim == 0 else p for p in parts])
        parts = [reshape(p, (-1, 1)) if p.ndim < 2 else p for p in parts]
        return concatenate(parts, -1)


r_, c_ = _Joined(False), _Joined(True)


def ix_(*sequences: Any) -> tuple[Array, ...]:
    """Index arrays for the cross product of 1-d index sequences (or masks).

    Empty sequences are integers, as `[]` is an array of floats.
    """
    columns = []
    for number, given in enumerate(sequences):
        values = np.asarray(given) if isinstance(given, list | tuple) else value_of(given)
        if values.dtype == np.bool_:
            values = np.nonzero(np.asarray(values))[0].astype(dt.index_dtype(values.size))
        if not values.size:
            values = np.zeros(0, dt.default_int())
        shape = tuple(-1 if i == number else 1 for i in range(len(sequences)))
        columns.append(reshape(asarray(values), shape))
    return tuple(columns)


def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Indices of the main diagonal of an array with `ndim` axes of length n."""
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> tuple[Array, ...]:
    """Indices of the main diagonal of a square array."""
    value = value_of(arr)
    if value.ndim < 2 or len(set(value.shape)) != 1:
        raise ShapeError(f"diag_indices_from: needs axes of one length, not {value.type}")
    return diag_indices(value.shape[0], value.ndim)


@replayed
def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with the flattened input on its k-th diagonal."""
    return diag(ravel(asarray(v)), k)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Array:
    """The array with its main diagonal replaced (a new array: inplace must be False)."""
    if inplace or wrap:
        raise TypeMismatch("fill_diagonal: arrays are immutable; call it with inplace=False")
    value = value_of(a)
    count = builtins.min(value.shape)
    return At(value)[(arange(count),) * value.ndim].set(val)


@replayed
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Array:
    """Numbers spaced evenly on a log scale, from start to stop (both positive), which are exact."""
    low, high = ends("geomspace", start, stop, dtype)
    points = exp(linspace(log(low), log(high), num, endpoint))
    place = iota(dt.int32, points.shape, 0)
    points = where(place == 0, low, points)
    points = where(place == num - 1, high, points) if endpoint and num > 1 else points
    points = points if dtype is None else cast(points, dt.canonicalize(dtype, explicit=True))
    return moveaxis(points, 0, axis)


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float) -> Any:
    """function(coordinates of axis 0, axis 1, ...) over a grid."""
    grid = indices(shape, dtype=dt.canonicalize(dtype, explicit=True))
    return function(*[grid[i] for i in range(len(shape))])


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array of a buffer's bytes (copied)."""
    return asarray(np.frombuffer(buffer, dt.canonicalize(dtype, explicit=True), count, offset))


@replayed
def block(arrays: Any) -> Array:
    """An array from nested lists of blocks, the innermost joined along the last axis."""

    def depth(item: Any) -> int:
        return 1 + builtins.max(map(depth, item)) if isinstance(item, list) else 0

    levels = depth(arrays)

    def leaves(item: Any) -> list[Any]:
        return [v for i in item for v in leaves(i)] if isinstance(item, list) else [item]

    rank = builtins.max([levels, *(asarray(v).ndim for v in leaves(arrays))])

    def join(item: Any, level: int) -> Array:
        if not isinstance(item, list):
            value = asarray(item)
            return reshape(value, (1,) * (rank - value.ndim) + value.shape)
        return concatenate(
            [join(i, level + 1) for i in item], axis_index(level - levels, rank, "block")
        )

    return join(arrays, 0)
