"""Arrays as sets: distinct elements, membership, unions.

unique(x)      unique_counts(x).counts      isin(x, table)

The number of distinct elements is a shape, so these functions need known values, except `isin`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fxad.core import dtypes as dt
from fxad.numpy.core import asarray, known_values, promoted, value_of
from fxad.numpy.joining import concatenate
from fxad.numpy.shaping import reshape
from fxad.trace.array import Array, Concrete

_HINT = "sort it and compare neighbours instead"


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """Sorted distinct elements of a concrete array."""
    values = known_values(ar, "unique", _HINT)
    wanted: Any = (return_index, return_inverse, return_counts, axis)
    data: Any = np.unique(values, *wanted)
    if not isinstance(data, tuple):
        return Concrete(data)
    return tuple(Concrete(d if i == 0 else d.astype(dt.default_int())) for i, d in enumerate(data))


def isin(element: Any, test_elements: Any, invert: bool = False) -> Array:
    """Whether each element occurs in the test elements."""
    x, table = promoted(
        "isin", asarray(element), asarray(test_elements), numbers=False, broadcast=False
    )
    hits = reshape(x, (*x.shape, 1)) == reshape(table, (-1,))
    out = hits.any(-1)
    return ~out if invert else out


def union1d(ar1: Any, ar2: Any) -> Array:
    """Sorted distinct elements of both."""
    return unique(concatenate([reshape(value_of(ar1), (-1,)), reshape(value_of(ar2), (-1,))]))


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


def unique_all(x: Any, /) -> UniqueAll:
    """Sorted distinct elements, where each occurs first, which one each element of x is (in x's
    shape), and how often each occurs. Every NaN is distinct (array API)."""
    found = np.unique_all(known_values(x, "unique_all", _HINT))
    return UniqueAll(Concrete(found.values), *map(_positions, found[1:]))


def unique_counts(x: Any, /) -> UniqueCounts:
    """Sorted distinct elements, and how often each occurs."""
    found = np.unique_counts(known_values(x, "unique_counts", _HINT))
    return UniqueCounts(Concrete(found.values), _positions(found.counts))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Sorted distinct elements, and which one each element of x is, in x's shape."""
    found = np.unique_inverse(known_values(x, "unique_inverse", _HINT))
    return UniqueInverse(Concrete(found.values), _positions(found.inverse_indices))


def unique_values(x: Any, /) -> Array:
    """Sorted distinct elements."""
    return Concrete(np.unique(known_values(x, "unique_values", _HINT), equal_nan=False))


def _positions(found: np.ndarray) -> Array:
    return Concrete(found.astype(dt.default_int()))
