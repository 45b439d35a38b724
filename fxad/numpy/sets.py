"""Arrays as sets: distinct elements, membership, unions, differences.

unique(x)      unique_counts(x).counts      isin(x, table)      unique(x, size=10, fill_value=0)

The number of distinct elements is a shape, so these functions need known values, except `isin` and
those told the result's `size`: what is more is left out, what is missing has the fill value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.core.promotion import promote
from fxad.numpy.core import asarray, axis_index, cast, known_values, promoted, value_of
from fxad.numpy.creation import arange, full, zeros
from fxad.numpy.elementwise import isnan, where
from fxad.numpy.indexing import getitem
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import moveaxis, reshape
from fxad.numpy.selection import nonzero, take
from fxad.numpy.sorting import argsort, lexsort, searchsorted, sort
from fxad.numpy.weak import entry, gives_strong, weak_result
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed

__all__ = [
    "intersect1d", "isin", "setdiff1d", "setxor1d", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip

_HINT = "pass size="
_PAIRS = 32  # elements of a table; a longer one is sorted and searched


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """Sorted distinct elements, or distinct slices along an axis.

    Then, as asked for: where each occurs first, which one each element is, how often each occurs.
    size: how many results (needed under `jit`); fill_value: the smallest element unless given.

    >>> jnp.unique(jnp.array([3, 1, 3]), return_counts=True)
    (Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))
    >>> jnp.unique(jnp.array([3, 1, 3]), size=3, fill_value=0)  # under jit
    Array([1, 3, 0], dtype=int32)
    """
    flags = (True, return_index, return_inverse, return_counts)
    if size is not None:
        found = _distinct(value_of(ar, "unique"), axis, equal_nan, size, fill_value)
        return _chosen(found[:4], flags)
    values = known_values(ar, "unique", _HINT)
    if axis is not None and dt.is_float(values.dtype) and np.isnan(values).any():
        # NumPy compares slices as records, whose NaNs are never equal, and in no order.
        at_axis = axis_index(axis, values.ndim, "unique")
        found = _distinct(Concrete(values), axis, equal_nan, values.shape[at_axis])
        some = arange(int(found.valid.sum()))
        rows = take(found.values, some, at_axis)
        return _chosen((rows, found.first[some], found.inverse, found.counts[some]), flags)
    wanted: Any = (*flags[1:], axis)
    data: Any = np.unique(values, *wanted, equal_nan=equal_nan)
    if not isinstance(data, tuple):
        return Concrete(data, weak_result(ar))
    return (Concrete(data[0], weak_result(ar)), *map(_positions, data[1:]))


def _chosen(results: Sequence[Array], flags: Sequence[bool]) -> Any:
    """The results whose flag is set; one result is no tuple."""
    some = tuple(r for r, flag in zip(results, flags, strict=True) if flag)
    return some if len(some) > 1 else some[0]


class _Distinct(NamedTuple):
    """valid: whether each of `values` was found, rather than filled in."""

    values: Array
    first: Array
    inverse: Array
    counts: Array
    valid: Array


def _distinct(
    value: Array, axis: int | None, equal_nan: bool, size: int, fill_value: Any = None
) -> _Distinct:
    """A given number of distinct slices, by sorting and comparing neighbours."""
    shape: tuple[int, ...] = value.shape
    if axis is None:
        value, at_axis = reshape(value, (-1,)), 0
    else:
        at_axis = axis_index(axis, value.ndim, "unique")
        shape = (value.shape[at_axis],)
    rows = moveaxis(value, at_axis, 0)
    count = rows.shape[0]
    if count == 0:
        if fill_value is None and size:
            raise BadArgument(f"unique: of no elements, size={size} needs a fill_value")
        rows = full((1, *rows.shape[1:]), 0 if fill_value is None else fill_value, rows.dtype)
    width = math.prod(rows.shape[1:])
    columns = reshape(rows, (rows.shape[0], width))
    order = lexsort(columns.T[::-1]) if width else arange(rows.shape[0])
    ranked = getitem(rows, order)
    a, b = getitem(ranked, slice(1, None)), getitem(ranked, slice(None, -1))
    differ = a != b
    if equal_nan and dt.is_inexact(rows.dtype):
        differ = differ & ~(isnan(a) & isnan(b))
    first = concatenate([full((1,), count > 0, bool), reshape(differ, (a.shape[0], width)).any(1)])
    (places,) = nonzero(first, size=size)
    values, valid = getitem(ranked, places), arange(size) < first.sum()
    if fill_value is not None:
        beside = reshape(valid, (size, *[1] * (rows.ndim - 1)))
        values = where(beside, values, cast(value_of(fill_value), rows.dtype))
    inverse = zeros(len(order), dt.default_int()).at[order].set(first.cumsum() - 1)
    (ends,) = nonzero(first, size=size + 1, fill_value=count)
    return _Distinct(
        moveaxis(values, 0, at_axis),
        order[places],
        reshape(inverse[:count], shape),
        ends[1:] - ends[:-1],
        valid,
    )


@replayed
@gives_strong
def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Whether each element occurs in the test elements. How it is
    searched follows from the sizes, whatever `method` says.

    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([2, 3]))
    Array([False,  True,  True], dtype=bool)
    """
    x, table = promoted(
        "isin", asarray(element), asarray(test_elements), numbers=False, broadcast=False
    )
    table = reshape(table, (-1,))
    if table.size <= _PAIRS or dt.is_complex(table.dtype):
        out = (reshape(x, (*x.shape, 1)) == table).any(-1)
    else:
        table = sort(table)
        place = searchsorted(table, x)
        out = getitem(table, where(place < table.size, place, 0)) == x
    return ~out if invert else out


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Sorted distinct elements of both.

    >>> jnp.union1d(jnp.array([1, 3]), jnp.array([2, 3]))
    Array([1, 2, 3], dtype=int32)
    """
    both = concatenate([reshape(value_of(ar), (-1,)) for ar in (ar1, ar2)])
    return unique(both, size=size, fill_value=fill_value)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Sorted distinct elements that both have; then where each occurs first in either.

    >>> jnp.intersect1d(jnp.array([1, 2, 3]), jnp.array([3, 2, 7]))
    Array([2, 3], dtype=int32)
    """
    if size is None:
        x, y, weak = _known("intersect1d", ar1, ar2)
        if not return_indices:
            return Concrete(np.intersect1d(x, y, assume_unique), weak)
        common, *places = np.intersect1d(x, y, assume_unique, return_indices=True)
        return (Concrete(common, weak), *map(_positions, places))
    a, b = _flat("intersect1d", ar1, ar2)
    found = _distinct(a, None, True, a.size, 0)
    values, at = _kept(found.values, found.valid & isin(found.values, b), size, fill_value)
    if not return_indices:
        return values
    order = argsort(b)
    place = searchsorted(getitem(b, order), found.values).clip(0, max(b.size - 1, 0))
    return values, _at(found.first, at, a.size), _at(_at(order, place, b.size), at, b.size)


def _at(values: Array, places: Array, beyond: int) -> Array:
    """values[places], and `beyond` where a place is past the end."""
    if values.size == 0:
        return full(places.shape, beyond, values.dtype)
    inside = getitem(values, places.clip(0, values.size - 1))
    return where(places < values.size, inside, beyond)


def setdiff1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """Sorted distinct elements of the first, in its dtype, that the second lacks
    (`assume_unique`: in order).

    >>> jnp.setdiff1d(jnp.array([1, 2, 3]), jnp.array([2]))
    Array([1, 3], dtype=int32)
    """
    if size is None:
        _, y, _ = _known("setdiff1d", ar1, ar2)
        x = known_values(ar1, "setdiff1d", _HINT)
        x = x.reshape(-1) if assume_unique else np.unique(x)
        return Concrete(x[~np.isin(x.astype(y.dtype), y)], weak_result(ar1))
    a, b = reshape(value_of(ar1), (-1,)), value_of(ar2)
    fill_value = 0 if fill_value is None else fill_value
    if assume_unique:
        return _kept(a, ~isin(a, b), size, fill_value)[0]
    found = _distinct(a, None, True, a.size, 0)
    return _kept(found.values, found.valid & ~isin(found.values, b), size, fill_value)[0]


def setxor1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Array:
    """Sorted distinct elements that only one of both has.

    >>> jnp.setxor1d(jnp.array([1, 2]), jnp.array([2, 3]))
    Array([1, 3], dtype=int32)
    """
    if size is None:
        x, y, weak = _known("setxor1d", ar1, ar2)
        return Concrete(np.setxor1d(x, y, assume_unique), weak)
    a, b = _flat("setxor1d", ar1, ar2)
    each = [_distinct(v, None, True, v.size, 0) for v in (a, b) if v.size]
    if not each:
        return _kept(a, a != a, size, fill_value)[0]
    values = concatenate([found.values for found in each])
    valid = concatenate([found.valid for found in each])
    order = lexsort((values, ~valid))
    values, valid = getitem(values, order), getitem(valid, order)
    # In order, what both have stands twice; a NaN differs from every other.
    differ = (values[1:] != values[:-1]) | ~valid[1:]
    end = full((1,), True, bool)
    once = concatenate([end, differ]) & concatenate([differ, end])
    return _kept(values, valid & once, size, fill_value)[0]


def _known(name: str, ar1: Any, ar2: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """Both arrays in one dtype, and whether that is weak."""
    values = known_values(ar1, name, _HINT), known_values(ar2, name, _HINT)
    dtype, weak = promote(entry(ar1), entry(ar2))
    return values[0].astype(dtype), values[1].astype(dtype), weak


def _flat(name: str, *arrays: Any) -> list[Array]:
    """Vectors of one dtype."""
    values = promoted(name, *map(asarray, arrays), numbers=False, broadcast=False)
    return [reshape(v, (-1,)) for v in values]


def _kept(values: Array, keep: Array, size: int, fill_value: Any) -> tuple[Array, Array]:
    """The first `size` of the values to keep, and where they are (past the end where filled).
    Filled with the first of them (0 if there is none) unless a value is given."""
    (at,) = nonzero(keep, size=size, fill_value=values.size)
    if fill_value is None:
        fill_value = where(keep.any(), getitem(values, keep.argmax()), 0) if values.size else 0
    fill = cast(value_of(fill_value), values.dtype)
    return where(at < values.size, _at(values, at, 0), fill), at


class UniqueAll(NamedTuple):
    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    values: Array
    inverse_indices: Array


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Sorted distinct elements, where each occurs first, which one each element of x is (in x's
    shape), and how often each occurs. Every NaN is distinct (array API). size and fill_value as in
    `unique`.

    >>> jnp.unique_all(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    if size is not None:
        return UniqueAll(*_distinct(value_of(x), None, False, size, fill_value)[:4])
    found = np.unique_all(known_values(x, "unique_all", _HINT))
    return UniqueAll(Concrete(found.values, weak_result(x)), *map(_positions, found[1:]))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Sorted distinct elements, and how often each occurs; see `unique_all`.

    >>> jnp.unique_counts(jnp.array([3, 1, 3])).counts
    Array([1, 2], dtype=int32)
    """
    if size is not None:
        some = unique_all(x, size=size, fill_value=fill_value)
        return UniqueCounts(some.values, some.counts)
    found = np.unique_counts(known_values(x, "unique_counts", _HINT))
    return UniqueCounts(Concrete(found.values, weak_result(x)), _positions(found.counts))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Sorted distinct elements, and which one each element of x is, in x's shape; see `unique_all`.

    >>> jnp.unique_inverse(jnp.array([3, 1, 3])).inverse_indices
    Array([1, 0, 1], dtype=int32)
    """
    if size is not None:
        some = unique_all(x, size=size, fill_value=fill_value)
        return UniqueInverse(some.values, some.inverse_indices)
    found = np.unique_inverse(known_values(x, "unique_inverse", _HINT))
    return UniqueInverse(Concrete(found.values, weak_result(x)), _positions(found.inverse_indices))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Sorted distinct elements; see `unique_all`.

    >>> jnp.unique_values(jnp.array([3, 1, 3]))
    Array([1, 3], dtype=int32)
    """
    if size is not None:
        return unique_all(x, size=size, fill_value=fill_value).values
    found = np.unique(known_values(x, "unique_values", _HINT), equal_nan=False)
    return Concrete(found, weak_result(x))


def _positions(found: np.ndarray) -> Array:
    return Concrete(found.astype(dt.default_int()))
