"""Arrays put together and cut apart: concatenate, stack, block, split, insert, delete, ...

left, right = split(concatenate([a, b]), 2)
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fxad.api.indices import reaching
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, IndexOutOfRange, ShapeError, TypeMismatch
from fxad.core.semantics import semantics
from fxad.ir.program import OPS
from fxad.numpy.core import (
    array,
    asarray,
    axis_index,
    cast,
    known_values,
    no_out,
    promoted,
    shape_tuple,
    stack_values,
    value_of,
)
from fxad.numpy.creation import ones, zeros
from fxad.numpy.elementwise import clip, where
from fxad.numpy.manipulation import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    moveaxis,
    ravel,
    reshape,
    slice_axis,
    tile,
)
from fxad.numpy.selection import nonzero
from fxad.numpy.sorting import argsort
from fxad.numpy.weak import weak_as_first
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed
from fxad.trace.tracer import Tracer, type_of

__all__ = [
    "append", "array_split", "block", "column_stack", "concat", "concatenate", "delete",
    "dsplit", "dstack", "hsplit", "hstack", "insert", "resize", "split", "stack", "unstack",
    "vsplit", "vstack",
]  # fmt: skip


@replayed
def concatenate(arrays: Sequence[Any], axis: int | None = 0, dtype: Any = None) -> Array:
    """Arrays joined along an existing axis (flattened first if axis is None).

    >>> jnp.concatenate([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int32)
    >>> jnp.concatenate([jnp.zeros((2, 1)), jnp.ones((2, 2))], axis=1)
    Array([[0., 1., 1.],
           [0., 1., 1.]], dtype=float32)
    """
    values = _sequence(arrays, "concatenate", axis)
    if axis is None:
        values, axis = [ravel(v) for v in values], 0
    values = promoted("concatenate", *values, numbers=False, broadcast=False)
    if dtype is not None:
        values = [OPS["convert"](v, dtype=dt.canonicalize(dtype, explicit=True)) for v in values]
    first = type_of(values[0])
    at = axis_index(axis, first.ndim, "concatenate")
    for value in values:
        own = type_of(value).shape
        if (
            len(own) != first.ndim
            or own[:at] + own[at + 1 :] != first.shape[:at] + first.shape[at + 1 :]
        ):
            seen = ", ".join(str(type_of(v)) for v in values)
            raise ShapeError(f"concatenate: shapes must agree except along axis {at}: {seen}")
    return values[0] if len(values) == 1 else OPS["concatenate"](*values, axis=at)


concat = concatenate


def _sequence(arrays: Any, name: str, axis: Any = None) -> list[Array]:
    if np.ndim(axis) > 0:
        raise BadArgument(f"{name}: the arrays go in one list, {name}([a, b]); the axis is an int")
    if isinstance(arrays, Array):
        values = [arrays[i] for i in range(len(arrays))]
    else:
        values = [value_of(a, name) for a in arrays]
    if not values:
        raise BadArgument(f"{name}: needs at least one array")
    return values


@replayed
def stack(arrays: Sequence[Any], axis: int = 0, out: None = None, dtype: Any = None) -> Array:
    """Arrays of one shape joined along a new axis.

    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    no_out("stack", out)
    values = _sequence(arrays, "stack", axis)
    if any(v.shape != values[0].shape for v in values):
        seen = ", ".join(str(v.type) for v in values)
        raise ShapeError(f"stack: all arrays must have one shape: {seen}")
    result = stack_values(values, axis)
    return result if dtype is None else cast(result, dt.canonicalize(dtype, explicit=True))


@replayed
def vstack(tup: Sequence[Any], dtype: Any = None) -> Array:
    """Arrays joined as rows.

    >>> jnp.vstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    return concatenate([atleast_2d(v) for v in _sequence(tup, "vstack")], 0, dtype)


@replayed
def hstack(tup: Sequence[Any], dtype: Any = None) -> Array:
    """Arrays joined as columns.

    >>> jnp.hstack([jnp.array([1, 2]), jnp.array([3])])
    Array([1, 2, 3], dtype=int32)
    """
    values = [atleast_1d(v) for v in _sequence(tup, "hstack")]
    return concatenate(values, 0 if values[0].ndim == 1 else 1, dtype)


@replayed
def dstack(tup: Sequence[Any], dtype: Any = None) -> Array:
    """Arrays joined along a third axis.

    >>> jnp.dstack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[[1, 3],
            [2, 4]]], dtype=int32)
    """
    return concatenate([atleast_3d(v) for v in _sequence(tup, "dstack")], 2, dtype)


@replayed
def column_stack(tup: Sequence[Any]) -> Array:
    """Vectors (and numbers) as columns of a matrix, beside the columns of matrices.

    >>> jnp.column_stack([jnp.array([1, 2]), jnp.array([3, 4])])
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    values = _sequence(tup, "column_stack")
    return concatenate([reshape(v, (v.size, 1)) if v.ndim < 2 else v for v in values], 1)


@replayed
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Cut into equal parts, or at given positions.

    >>> jnp.split(jnp.arange(6), 3)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32), Array([4, 5], dtype=int32)]
    >>> jnp.split(jnp.arange(6), [1, 4])
    [Array([0], dtype=int32), Array([1, 2, 3], dtype=int32), Array([4, 5], dtype=int32)]
    """
    value = value_of(ary)
    at = axis_index(axis, value.ndim, "split")
    length = value.shape[at]
    if isinstance(indices_or_sections, int | np.integer):
        parts = int(indices_or_sections)
        if parts < 1 or length % parts:
            raise ShapeError(f"split: axis {at} of {value.type} does not divide into {parts} parts")
        cuts = [length // parts * i for i in range(1, parts)]
    else:
        cuts = [int(i) for i in indices_or_sections]
    return _cut(value, cuts, at)


@replayed
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Like `split`; the first parts are one longer where it does not divide.

    >>> jnp.array_split(jnp.arange(5), 2)
    [Array([0, 1, 2], dtype=int32), Array([3, 4], dtype=int32)]
    """
    value = value_of(ary)
    at = axis_index(axis, value.ndim, "array_split")
    if not isinstance(indices_or_sections, int | np.integer):
        return split(value, indices_or_sections, at)
    parts = int(indices_or_sections)
    short, extra = builtins.divmod(value.shape[at], parts)
    sizes = [short + (i < extra) for i in range(parts)]
    return _cut(value, [sum(sizes[:i]) for i in range(1, parts)], at)


def _cut(value: Array, cuts: list[int], axis: int) -> list[Array]:
    bounds = [0, *cuts, value.shape[axis]]
    if sorted(bounds) != bounds:
        raise ShapeError(
            f"split: positions {cuts} must rise from 0 to {bounds[-1]}, axis {axis} of {value.type}"
        )
    return [slice_axis(value, axis, low, high) for low, high in pairwise(bounds)]


@replayed
def hsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Split along the second axis (the first of a vector).

    >>> left, right = jnp.hsplit(jnp.arange(8).reshape(2, 4), 2)
    >>> right
    Array([[2, 3],
           [6, 7]], dtype=int32)
    """
    return split(ary, indices_or_sections, 0 if value_of(ary).ndim == 1 else 1)


@replayed
def vsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Split along the first axis.

    >>> upper, lower = jnp.vsplit(jnp.arange(8).reshape(2, 4), 2)
    >>> lower
    Array([[4, 5, 6, 7]], dtype=int32)
    """
    return split(ary, indices_or_sections, 0)


@replayed
def dsplit(ary: Any, indices_or_sections: Any) -> list[Array]:
    """Cut along axis 2.

    >>> [part.shape for part in jnp.dsplit(jnp.zeros((2, 2, 6)), 3)]
    [(2, 2, 2), (2, 2, 2), (2, 2, 2)]
    """
    return split(ary, indices_or_sections, 2)


@replayed
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis, without it.

    >>> jnp.unstack(jnp.array([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    value = moveaxis(x, axis, 0)
    return tuple(value[i] for i in range(value.shape[0]))


@replayed
def append(arr: Any, values: Any, axis: int | None = None) -> Array:
    """Values joined at the end.

    >>> jnp.append(jnp.array([1, 2]), 3)
    Array([1, 2, 3], dtype=int32)
    """
    return concatenate([value_of(arr), value_of(values)], axis)


@replayed
def resize(a: Any, new_shape: Any) -> Array:
    """Elements repeated as needed to fill a shape; zeros where there is none.

    >>> jnp.resize(jnp.array([1, 2, 3]), (2, 4))
    Array([[1, 2, 3, 1],
           [2, 3, 1, 2]], dtype=int32)
    """
    sizes = shape_tuple(new_shape, "resize")
    flat = ravel(a)
    count = int(np.prod(sizes))
    if not flat.size:
        return zeros(sizes, flat.dtype)
    return reshape(tile(flat, -(-count // flat.size))[:count], sizes)


def delete(
    arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Array:
    """Elements left out. Traced positions need assume_unique_indices: none may be there twice.

    >>> jnp.delete(jnp.array([10, 20, 30]), 1)
    Array([10, 30], dtype=int32)
    """
    value = value_of(arr)
    if axis is None:
        value, axis = ravel(value), 0
    at = axis_index(axis, value.ndim, "delete")
    length = value.shape[at]
    if isinstance(obj, Tracer) and dt.is_integer(obj.dtype) and assume_unique_indices:
        left = ones(length, bool).at[_places_within(ravel(obj), length)].set(False, mode="drop")
        (kept,) = nonzero(left, size=builtins.max(length - obj.size, 0))
        return value[(slice(None),) * at + (kept,)]
    if isinstance(obj, Array):
        hint = "where no position is given twice pass assume_unique_indices=True"
        obj = known_values(obj, "delete", hint)
    places = np.delete(np.arange(length), obj).astype(dt.index_dtype(length))
    return value[(slice(None),) * at + (places,)]


@weak_as_first
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Array:
    """Values put in before a position, or before each of several. They become of arr's dtype, and
    for one position (no vector of one) `values` has the axes of arr but `axis`, or stands along it.

    Traced positions out of range are moved to the nearest end. Raises IndexOutOfRange for known
    ones, TypeMismatch for positions that are no integers.

    >>> jnp.insert(jnp.array([10, 30]), 1, 20)
    Array([10, 20, 30], dtype=int32)
    """
    value = value_of(arr)
    if axis is None:
        value, axis = ravel(value), 0
    at = axis_index(axis, value.ndim, "insert")
    length = value.shape[at]
    index = range(*obj.indices(length)) if isinstance(obj, slice) else obj
    places = asarray(index if np.size(index) else np.zeros(0, np.int32))
    if places.ndim > 1 or not dt.is_integer(places.dtype):
        raise TypeMismatch(f"insert: positions are an integer or a vector, not {places.type}")
    new = array(value_of(values, "insert"), value.dtype, copy=None, ndmin=value.ndim)
    if not places.ndim:
        new = moveaxis(new, 0, at)
    count = new.shape[at] if places.size == 1 else places.size
    new = broadcast_to(new, (*value.shape[:at], count, *value.shape[at + 1 :]))
    order: Any
    if isinstance(places, Concrete):
        known = _known_places(places.data, length)
        if known.size == 1:
            head, tail = _cut(value, known.tolist(), at)
            return concatenate([head, new, tail], at)
        order = np.argsort(np.concatenate([2 * np.arange(length) + 1, 2 * known]), kind="stable")
        order = order.astype(dt.index_dtype(length + count))
    else:
        places = broadcast_to(ravel(_places_within(places, length)), (count,))
        order = argsort(concatenate([2 * np.arange(length, dtype=places.dtype) + 1, 2 * places]))
    return concatenate([value, new], at)[(slice(None),) * at + (order,)]


def _known_places(places: np.ndarray, length: int) -> np.ndarray:
    """Positions to insert before, as a vector and from the start."""
    if semantics.known_indices_are_checked and np.any((places < -length) | (places > length)):
        raise IndexOutOfRange(
            f"insert: position {places} is out of range for an axis of length {length}"
        )
    return np.clip(np.where(places < 0, places + length, places), 0, length).reshape(-1)


def _places_within(places: Array, length: int) -> Array:
    """Traced positions counted from the start, those out of range moved to the nearest end."""
    places = reaching(places, 2 * length + 1)
    return clip(where(places < 0, places + length, places), 0, length)


@replayed
def block(arrays: Any) -> Array:
    """An array from nested lists of blocks, the innermost joined along the last axis.

    >>> a, b = jnp.ones((1, 2), int), jnp.zeros((1, 1), int)
    >>> jnp.block([[a, b], [b, a]])
    Array([[1, 1, 0],
           [0, 1, 1]], dtype=int32)
    """

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
