"""Sorting, searching in what is sorted, and interpolation in a table.

sort(x, axis=0)      order = argsort(x)      searchsorted(edges, x)      interp(x, xp, fp)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.counting import count_nonzero
from fxad.core.errors import BadArgument, CallError, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, full_of, promoted, value_of
from fxad.numpy.elementwise import imag, isnan, real, where
from fxad.numpy.indexing import getitem
from fxad.numpy.manipulation import flip, reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import by_numpy, replayed

__all__ = [
    "argpartition", "argsort", "interp", "lexsort", "partition", "searchsorted", "sort",
    "sort_complex",
]  # fmt: skip


@replayed
def sort(
    a: Any,
    axis: int | None = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    kind: None = None,
    order: None = None,
) -> Array:
    """Ascending order along an axis, NaN last; complex numbers by real part first.

    >>> jnp.sort(jnp.array([3.0, jnp.nan, 1.0]))
    Array([ 1.,  3., nan], dtype=float32)
    >>> jnp.sort(jnp.array([3, 1, 2]), descending=True)
    Array([3, 2, 1], dtype=int32)
    """
    _no_kind("sort", kind, order)
    value = value_of(a, "sort")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "sort")
    keys = _keys(value)
    ordered = OPS["sort"](*keys, axis=at, keys=len(keys))
    out = OPS["complex"](*ordered) if len(keys) == 2 else ordered[0]
    return flip(out, at) if descending else out


@replayed
@gives_strong
def sort_complex(a: Any) -> Array:
    """Complex numbers in ascending order along the last axis, by real part first; real ones become
    complex.

    >>> jnp.sort_complex(jnp.array([2 + 3j, 1 + 1j, 2 - 3j]))
    Array([1.+1.j, 2.-3.j, 2.+3.j], dtype=complex64)
    """
    value = value_of(a, "sort_complex")
    return cast(sort(value), dt.complex_of(value.dtype))


def _no_kind(name: str, kind: Any, order: Any) -> None:
    if kind is not None or order is not None:
        raise CallError(  # a TypeError, for which NumPy's functions convert the array and go on
            f"{name}: every sort is stable and arrays have no fields: kind and order must be None"
        )


def _keys(value: Array) -> list[Array]:
    return [real(value), imag(value)] if dt.is_complex(value.dtype) else [value]


@replayed
def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    kind: None = None,
    order: None = None,
    dtype: Any = None,
) -> Array:
    """Positions that sort along an axis; equal elements keep their order. dtype: that
    of the positions.

    >>> jnp.argsort(jnp.array([3, 1, 2]))
    Array([1, 2, 0], dtype=int32)
    """
    _no_kind("argsort", kind, order)
    value = value_of(a, "argsort")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "argsort")
    dtype = dt.index_dtype(value.shape[at], dt.default_int())
    positions = OPS["iota"](dtype=dtype, shape=value.shape, axis=at)
    operands = [*_keys(value), positions]
    if descending:
        operands = [flip(x, at) for x in operands]
    ordered = OPS["sort"](*operands, axis=at, keys=len(operands) - 1)[-1]
    out = flip(ordered, at) if descending else ordered
    return out if dtype is None else cast(out, dt.canonicalize(dtype, explicit=True))


@replayed
def lexsort(keys: Any, axis: int = -1) -> Array:
    """Positions that sort by the last key, then the one before, ...

    >>> jnp.lexsort((jnp.array([2, 1, 0]), jnp.array([0, 0, -1])))  # by the last key first
    Array([2, 1, 0], dtype=int32)
    """
    values = [value_of(k) for k in reversed(list(keys))]
    at = axis_index(axis, values[0].ndim, "lexsort")
    dtype = dt.index_dtype(values[0].shape[at], dt.default_int())
    positions = OPS["iota"](dtype=dtype, shape=values[0].shape, axis=at)
    return OPS["sort"](*values, positions, axis=at, keys=len(values))[-1]


@replayed
def partition(a: Any, kth: int, axis: int = -1) -> Array:
    """A sorted array is a partition.

    >>> jnp.partition(jnp.array([9, 1, 8, 2]), 1)[:2]  # the two smallest
    Array([1, 2], dtype=int32)
    """
    return sort(a, axis)


@replayed
def argpartition(a: Any, kth: int, axis: int = -1) -> Array:
    """Positions of a partition.

    >>> x = jnp.array([9, 1, 8, 2])
    >>> x[jnp.argpartition(x, 1)[:2]]  # the two smallest
    Array([1, 2], dtype=int32)
    """
    return argsort(a, axis)


@replayed
@gives_strong
def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Array:
    """Where elements of v would go in the sorted vector a. (method: accepted for ported code.)

    >>> jnp.searchsorted(jnp.array([1, 3, 5]), jnp.array([0, 3, 9]))
    Array([0, 1, 3], dtype=int32)
    >>> jnp.searchsorted(jnp.array([1, 3, 5]), 3, side="right")
    Array(2, dtype=int32)
    """
    if side not in ("left", "right"):
        raise BadArgument(f"searchsorted: side must be 'left' or 'right', not {side!r}")
    table, query = promoted("searchsorted", a, v, numbers=False, broadcast=False)
    if sorter is not None:
        table = table[value_of(sorter)]
    if table.ndim != 1:
        raise TypeMismatch(f"searchsorted: the sorted array must be a vector, not {table.type}")
    return _searchsorted(table, query, side=side)


def _search_type(table: ArrayType, query: ArrayType, *, side: str) -> ArrayType:
    return ArrayType(dt.index_dtype(table.size, dt.default_int()), query.shape)


def _search_numpy(table: np.ndarray, query: np.ndarray, *, side: Any) -> np.ndarray:
    dtype = dt.index_dtype(table.size, dt.default_int())
    return np.asarray(table.searchsorted(query, side)).astype(dtype)


@by_numpy(type=_search_type, numpy=_search_numpy)
def _searchsorted(table: Array, query: Array, *, side: str) -> Array:
    """Halves what is left of the table until nothing is. NaN is above all numbers."""
    length, least = table.shape[0], dt.default_int()
    wide = dt.index_dtype(2 * length, least)  # for the sum of two positions
    low = full_of(0, ArrayType(wide, query.shape))
    high = low + length
    for _ in range(max(1, length.bit_length())):
        middle = (low + high) // 2
        here = getitem(table, middle, strict=False) if length else query
        right = (here < query) if side == "left" else (here <= query)
        if dt.is_float(table.dtype):
            above = isnan(query)
            right = right | (above & ~isnan(here) if side == "left" else above)
        go = right & (low < high)
        low, high = where(go, middle + 1, low), where(go, high, middle)
    return cast(low, dt.index_dtype(length, least))


@replayed
def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Array:
    """Piecewise linear interpolation; `left` and `right` are the values outside, by default the
    outermost fp; with "extrapolate" the outermost lines go on. period: xp (in any order) repeats
    after so much, whatever its sign.

    >>> jnp.interp(jnp.array([0.5, 5.0]), jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 10.0, 40.0]))
    Array([ 5., 40.], dtype=float32)
    """
    x, xp, fp = promoted("interp", x, xp, fp, inexact=True, numbers=False, broadcast=False)
    if period is not None:
        if np.ndim(period):
            raise ShapeError(f"interp: period must be one number, not {value_of(period).type}")
        period = abs(period)
        x, xp = x % period, xp % period
        order = argsort(xp)
        xp, fp = xp[order], fp[order]
        parts = [[xp[-1:] - period, xp, xp[:1] + period], [fp[-1:], fp, fp[:1]]]
        xp, fp = (OPS["concatenate"](*p, axis=0) for p in parts)
    if xp.ndim != 1 or fp.shape != xp.shape or not xp.size:
        raise ShapeError(
            f"interp: xp and fp must be vectors of as many elements (at least one), not "
            f"{xp.type} and {fp.type}"
        )
    out = _interpolated(x, xp, fp)
    for beyond, value, first in ((x < xp[0], left, 0), (x > xp[-1], right, -2)):
        if isinstance(value, str):
            out = where(beyond, _line(x, xp, fp, first, value), out)
        elif value is not None:
            out = where(beyond, value, out)
    return out


def _line(x: Array, xp: Array, fp: Array, first: int, how: str) -> Array:
    """The line through point `first` and the next, or through the one there is."""
    if how != "extrapolate":
        raise BadArgument(f"interp: left and right are numbers or 'extrapolate', not {how!r}")
    i, j = (first, first + 1) if xp.size > 1 else (0, 0)
    gap = xp[j] - xp[i]
    flat = gap == 0
    return where(flat, fp[i], fp[i] + (x - xp[i]) / where(flat, 1, gap) * (fp[j] - fp[i]))


def _interp_numpy(x: np.ndarray, xp: np.ndarray, fp: np.ndarray) -> np.ndarray:
    below = xp[1:-1].searchsorted(x, "right")
    more = int(len(xp) > 1)
    x0, x1, y0 = xp[below], xp[more:][below], fp[below]
    gap = _chosen(x1 == x0, x.dtype.type(1), x1 - x0)
    out = y0 + (x - x0) / gap * (fp[more:][below] - y0)
    out = _chosen(x < xp[0, ...], fp[0], out)
    return _chosen(x > xp[-1, ...], fp[-1], out)


def _chosen(mask: np.ndarray, yes: Any, no: np.ndarray) -> np.ndarray:
    """np.where, fast where the mask is empty."""
    return np.where(mask, yes, no) if count_nonzero(mask) else no


@by_numpy(type=lambda x, xp, fp: x, numpy=_interp_numpy)
def _interpolated(x: Array, xp: Array, fp: Array) -> Array:
    """On the line between the two xp round x; outside of them all, the outermost fp."""
    at = _searchsorted(xp, x, side="right").clip(1, xp.shape[0] - 1)
    x0, x1, y0, y1 = xp[at - 1], xp[at], fp[at - 1], fp[at]
    gap = where(x1 == x0, 1.0, x1 - x0)
    out = where(x < xp[0], fp[0], y0 + (x - x0) / gap * (y1 - y0))
    return where(x > xp[-1], fp[-1], out)
