"""Shapes, slices and fills with `jax.lax`'s names and argument orders.

row = dynamic_index_in_dim(x, i, axis=0, keepdims=False)
"""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.api.indices import check_indices
from fxad.core import dtypes as dt
from fxad.core.errors import IndexOutOfRange, ShapeError
from fxad.ir.program import OPS
from fxad.numpy.core import (
    axes_tuple,
    axis_index,
    cast,
    promoted,
    shape_tuple,
    spread_to,
    stack_values,
    value_of,
)
from fxad.numpy.creation import iota as _iota
from fxad.numpy.dynamic_slices import start_index
from fxad.numpy.manipulation import slice_axis
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def broadcast(operand: Any, sizes: Sequence[int]) -> Array:
    """New leading axes of the given sizes.

    >>> fxad.lax.broadcast(jnp.array([1, 2]), (3,))
    Array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    value = value_of(operand, "broadcast")
    lead = shape_tuple(sizes, "broadcast")
    axes = tuple(range(len(lead), len(lead) + value.ndim))
    return OPS["broadcast"](value, shape=(*lead, *value.shape), axes=axes)


def broadcast_in_dim(
    operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]
) -> Array:
    """Axis i of the operand becomes axis broadcast_dimensions[i]; axes of size 1 repeat.

    >>> column = jnp.array([1, 2])
    >>> fxad.lax.broadcast_in_dim(column, (2, 3), (0,))  # its axis is the first of the result
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    value = value_of(operand, "broadcast_in_dim")
    shape, axes = shape_tuple(shape, "broadcast_in_dim"), tuple(broadcast_dimensions)
    fits = len(axes) == value.ndim and all(0 <= a < len(shape) for a in axes)
    if not fits or len(set(axes)) < len(axes):
        raise ShapeError(
            f"broadcast_in_dim: broadcast_dimensions={axes} must be {value.ndim} different axes "
            f"of shape {shape}"
        )
    if any(b < a for a, b in itertools.pairwise(axes)):
        order = sorted(range(len(axes)), key=axes.__getitem__)
        value, axes = transpose(value, order), tuple(sorted(axes))
    pairs = list(zip(axes, value.shape, strict=True))
    if any(size not in (1, shape[a]) for a, size in pairs):
        raise ShapeError(f"broadcast_in_dim: {value.type} does not fit {shape} at axes {axes}")
    kept = [(a, size) for a, size in pairs if size == shape[a]]
    if len(kept) < len(pairs):
        value = OPS["reshape"](value, shape=tuple(size for _, size in kept))
    return OPS["broadcast"](value, shape=shape, axes=tuple(a for a, _ in kept))


def broadcast_like(arr: Any, like_arr: Any) -> Array:
    """The arr broadcast, as NumPy does it, to the shape of `like_arr`.

    >>> fxad.lax.broadcast_like(jnp.array([[1], [2]]), jnp.zeros((2, 3)))
    Array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    return spread_to(value_of(arr, "broadcast_like"), value_of(like_arr, "broadcast_like").shape)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """New leading axes of size 1, up to a number of axes.

    >>> fxad.lax.broadcast_to_rank(jnp.ones((2, 3)), 4).shape
    (1, 1, 2, 3)
    """
    value = value_of(x, "broadcast_to_rank")
    if rank < value.ndim:
        raise ShapeError(f"broadcast_to_rank: {value.type} has more than {rank} axes")
    return OPS["reshape"](value, shape=(1,) * (rank - value.ndim) + value.shape)


def tile(operand: Any, reps: Sequence[int]) -> Array:
    """The operand repeated reps[i] times along axis i.

    >>> fxad.lax.tile(jnp.array([[1, 2]]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    value, counts = value_of(operand, "tile"), shape_tuple(reps, "tile")
    if len(counts) != value.ndim:
        raise ShapeError(f"tile: {len(counts)} repetitions for {value.type}")
    doubled = tuple(n for pair in zip(counts, value.shape, strict=True) for n in pair)
    axes = tuple(range(1, 2 * value.ndim, 2))
    shape = tuple(c * s for c, s in zip(counts, value.shape, strict=True))
    return OPS["reshape"](OPS["broadcast"](value, shape=doubled, axes=axes), shape=shape)


def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """Arrays of one shape side by side along a new axis.

    >>> fxad.lax.stack([jnp.zeros(2), jnp.ones(2)], axis=1)
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    return stack_values(promoted("stack", *operands, numbers=False, broadcast=False), axis)


def unstack(x: Any, axis: int = 0) -> list[Array]:
    """The slices along an axis, without it.

    >>> x, y = fxad.lax.unstack(jnp.array([[1, 2], [3, 4]]), axis=1)
    >>> x
    Array([1, 3], dtype=int32)
    """
    value = value_of(x, "unstack")
    at = axis_index(axis, value.ndim, "unstack")
    rows = [slice_axis(value, at, i, i + 1) for i in range(value.shape[at])]
    return [squeeze(row, (at,)) for row in rows]


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Consecutive pieces of the given sizes along an axis, which they must fill.

    >>> fxad.lax.split(jnp.arange(6), (1, 2, 3))
    [Array([0], dtype=int32), Array([1, 2], dtype=int32), Array([3, 4, 5], dtype=int32)]
    """
    value, counts = value_of(operand, "split"), shape_tuple(sizes, "split")
    at = axis_index(axis, value.ndim, "split")
    if sum(counts) != value.shape[at]:
        raise ShapeError(f"split: sizes {counts} do not add up to axis {at} of {value.type}")
    ends = list(itertools.accumulate(counts))
    return [slice_axis(value, at, e - n, e) for n, e in zip(counts, ends, strict=True)]


def reshape(operand: Any, new_sizes: Sequence[int], dimensions: Any = None) -> Array:
    """The same elements in another shape; `dimensions` transposes first.

    >>> fxad.lax.reshape(jnp.arange(4).reshape(2, 2), (4,), dimensions=(1, 0))  # column by column
    Array([0, 2, 1, 3], dtype=int32)
    """
    value = value_of(operand, "reshape")
    if dimensions is not None:
        value = transpose(value, dimensions)
    return OPS["reshape"](value, shape=shape_tuple(new_sizes, "reshape"))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Axes from start to stop (exclusive) joined into one.

    >>> fxad.lax.collapse(jnp.ones((2, 3, 4)), 0, 2).shape  # batch and time joined
    (6, 4)
    """
    value = value_of(operand, "collapse")
    start, stop, _ = builtins.slice(start_dimension, stop_dimension).indices(value.ndim)
    joined = int(np.prod(value.shape[start:stop], dtype=np.int64))
    return OPS["reshape"](value, shape=(*value.shape[:start], joined, *value.shape[stop:]))


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """Axis i of the result is axis permutation[i] of the operand.

    >>> fxad.lax.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return OPS["transpose"](value_of(operand, "transpose"), permutation=tuple(permutation))


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """Elements in reverse order along the given axes.

    >>> fxad.lax.rev(jnp.arange(6).reshape(2, 3), (1,))
    Array([[2, 1, 0],
           [5, 4, 3]], dtype=int32)
    """
    value = value_of(operand, "rev")
    axes = axes_tuple(tuple(dimensions), value.ndim, "rev")
    return OPS["reverse"](value, axes=axes) if axes else value


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """New axes of size 1 at the given places of the result.

    >>> fxad.lax.expand_dims(jnp.ones((2, 3)), (0, 3)).shape
    (1, 2, 3, 1)
    """
    value = value_of(array, "expand_dims")
    places = axes_tuple(tuple(dimensions), value.ndim + len(tuple(dimensions)), "expand_dims")
    sizes = iter(value.shape)
    shape = [1 if i in places else next(sizes) for i in range(value.ndim + len(places))]
    return OPS["reshape"](value, shape=tuple(shape))


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """Without the given axes, which must have size 1.

    >>> fxad.lax.squeeze(jnp.ones((1, 3, 1)), (0,)).shape
    (3, 1)
    """
    value = value_of(array, "squeeze")
    axes = axes_tuple(tuple(dimensions), value.ndim, "squeeze")
    if any(value.shape[a] != 1 for a in axes):
        raise ShapeError(f"squeeze: axes {axes} of {value.type} do not all have size 1")
    return OPS["reshape"](value, shape=tuple(s for i, s in enumerate(value.shape) if i not in axes))


def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays joined along an axis, after promotion.

    >>> fxad.lax.concatenate([jnp.zeros((2, 1)), jnp.ones((2, 2))], 1)
    Array([[0., 1., 1.],
           [0., 1., 1.]], dtype=float32)
    """
    values = promoted("concatenate", *operands, numbers=False, broadcast=False)
    axis = axis_index(dimension, type_of(values[0]).ndim, "concatenate")
    return OPS["concatenate"](*values, axis=axis)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """(low, high, interior) padding per axis; negative low and high crop.

    >>> fxad.lax.pad(jnp.array([1, 2, 3]), 0, [(1, 2, 0)])
    Array([0, 1, 2, 3, 0, 0], dtype=int32)
    >>> # holes between elements, the last cropped
    >>> fxad.lax.pad(jnp.array([1, 2, 3]), 0, [(0, -1, 1)])
    Array([1, 0, 2, 0], dtype=int32)
    """
    value = value_of(operand, "pad")
    filler = cast(value_of(padding_value, "pad"), value.dtype)
    if len(padding_config) != value.ndim:
        raise ShapeError(f"pad: {len(padding_config)} entries of padding for {value.type}")
    low, high, interior = (tuple(c[i] for c in padding_config) for i in range(3))
    return OPS["pad"](value, filler, low=low, high=high, interior=interior)


def iota(dtype: Any, size: int) -> Array:
    """0, 1, 2, ... up to size.

    >>> fxad.lax.iota(jnp.float32, 4)
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return _iota(dt.canonicalize(dtype, explicit=True), (size,), 0)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Array:
    """Each element's position along an axis.

    >>> fxad.lax.broadcasted_iota(jnp.int32, (2, 3), 1)
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    shape = shape_tuple(shape, "broadcasted_iota")
    axis = axis_index(dimension, len(shape), "broadcasted_iota")
    return _iota(dt.canonicalize(dtype, explicit=True), shape, axis)


# ---------------------------------------------------------------- static slices


def slice(
    operand: Any,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> Array:
    """operand[start:limit:stride] on every axis.

    >>> fxad.lax.slice(jnp.arange(12).reshape(3, 4), (1, 0), (3, 4), (1, 2))  # x[1:3, 0:4:2]
    Array([[ 4,  6],
           [ 8, 10]], dtype=int32)
    """
    value = value_of(operand, "slice")
    steps = (1,) * value.ndim if strides is None else tuple(strides)
    return OPS["slice"](value, start=tuple(start_indices), stop=tuple(limit_indices), step=steps)


def slice_in_dim(
    operand: Any,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """operand[start:limit:stride] along one axis; negative bounds count from the end.

    >>> fxad.lax.slice_in_dim(jnp.arange(8), 1, -1, stride=2)
    Array([1, 3, 5], dtype=int32)
    """
    value = value_of(operand, "slice_in_dim")
    at = axis_index(axis, value.ndim, "slice_in_dim")
    size = value.shape[at]
    start, limit = (
        default if bound is None else bound + size if bound < 0 else bound
        for bound, default in ((start_index, 0), (limit_index, size))
    )
    return slice_axis(value, at, start, limit, stride)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """The slice at a fixed index of an axis. Raises IndexError out of range.

    >>> fxad.lax.index_in_dim(jnp.arange(6).reshape(2, 3), -1, axis=1, keepdims=False)
    Array([2, 5], dtype=int32)
    """
    value = value_of(operand, "index_in_dim")
    at = axis_index(axis, value.ndim, "index_in_dim")
    number, size = index.__index__(), value.shape[at]
    if not -size <= number < size:
        raise IndexOutOfRange(
            f"index_in_dim: index {number} is out of range for {value.type} axis {at}"
        )
    out = slice_axis(value, at, number % size, number % size + 1)
    return out if keepdims else squeeze(out, (at,))


# ---------------------------------------------------------------- slices at computed places


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """A window of fixed sizes at computed starts, moved inside where it would stick out.

    start_indices: one integer per axis (a sequence, or a vector); negative ones count from the
    end, unless allow_negative_indices (for all axes, or one for each) is False: then they are
    moved to 0.

    >>> x = jnp.arange(12).reshape(3, 4)
    >>> window = fxad.jit(lambda i, j: fxad.lax.dynamic_slice(x, (i, j), (2, 2)))
    >>> window(0, 1)
    Array([[1, 2],
           [5, 6]], dtype=int32)
    >>> window(1, 3)  # it would stick out at column 4: moved inside
    Array([[ 6,  7],
           [10, 11]], dtype=int32)
    """
    value = value_of(operand, "dynamic_slice")
    sizes = shape_tuple(slice_sizes, "dynamic_slice")
    starts = _starts("dynamic_slice", value, start_indices, sizes, allow_negative_indices)
    return OPS["dynamic_slice"](value, *starts, sizes=sizes)


def dynamic_update_slice(
    operand: Any,
    update: Any,
    start_indices: Any,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with a window at computed starts replaced by `update` (see dynamic_slice).

    >>> fxad.lax.dynamic_update_slice(jnp.zeros((3, 4)), jnp.ones((2, 2)), (1, 2))
    Array([[0., 0., 0., 0.],
           [0., 0., 1., 1.],
           [0., 0., 1., 1.]], dtype=float32)
    >>> # in place, as a cache grows
    >>> cache = fxad.jit(fxad.lax.dynamic_update_slice, donate_argnums=0)
    >>> cache(jnp.zeros(4), jnp.array([7.0]), (2,))
    Array([0., 0., 7., 0.], dtype=float32)
    """
    value = value_of(operand, "dynamic_update_slice")
    new = value_of(update, "dynamic_update_slice")
    if new.weak:
        new = cast(new, value.dtype)
    starts = _starts(
        "dynamic_update_slice", value, start_indices, new.shape, allow_negative_indices
    )
    return OPS["dynamic_update"](value, new, *starts)


def _starts(
    name: str, value: Array, starts: Any, sizes: Sequence[int], from_end: bool | Sequence[bool]
) -> list[Any]:
    """One rank-0 integer per axis, negative ones counted from the end where `from_end`."""
    flags = [from_end] * value.ndim if isinstance(from_end, bool) else list(from_end)
    if not isinstance(starts, list | tuple):
        vector = value_of(starts, name)
        if vector.ndim != 1:
            raise ShapeError(f"{name}: start_indices must be a sequence or a vector")
        rows = [slice_axis(vector, 0, i, i + 1) for i in range(vector.shape[0])]
        starts = [OPS["reshape"](row, shape=()) for row in rows]
    if len(starts) != value.ndim:
        raise ShapeError(f"{name}: {len(starts)} start indices for {value.type}")
    for axis, (start, window) in enumerate(zip(starts, sizes, strict=False)):
        if flags[axis]:
            check_indices(name, start, value.shape, axis, window=window)
    each = zip(starts, value.shape, flags, strict=True)
    return [start_index(name, start, size, flag) for start, size, flag in each]


def dynamic_slice_in_dim(
    operand: Any,
    start_index: Any,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """`dynamic_slice` along one axis.

    >>> batch = fxad.jit(lambda i: fxad.lax.dynamic_slice_in_dim(jnp.arange(10), 3 * i, 3))
    >>> batch(2)
    Array([6, 7, 8], dtype=int32)
    """
    value = value_of(operand, "dynamic_slice_in_dim")
    at = axis_index(axis, value.ndim, "dynamic_slice_in_dim")
    sizes = [slice_size if i == at else s for i, s in enumerate(value.shape)]
    starts = _only(at, start_index, value.ndim)
    return dynamic_slice(value, starts, sizes, allow_negative_indices=allow_negative_indices)


def _only(axis: int, start: Any, ndim: int) -> list[Any]:
    return [start if i == axis else 0 for i in range(ndim)]


def dynamic_index_in_dim(
    operand: Any,
    index: Any,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The slice at a computed index of an axis, clamped.

    >>> table = jnp.arange(6).reshape(3, 2)
    >>> fxad.jit(lambda i: fxad.lax.dynamic_index_in_dim(table, i, keepdims=False))(1)
    Array([2, 3], dtype=int32)
    """
    out = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return out if keepdims else squeeze(out, (axis,))


def dynamic_update_slice_in_dim(
    operand: Any,
    update: Any,
    start_index: Any,
    axis: int,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """`dynamic_update_slice` along one axis.

    >>> fxad.lax.dynamic_update_slice_in_dim(jnp.zeros((2, 4)), jnp.ones((2, 1)), 3, axis=1)
    Array([[0., 0., 0., 1.],
           [0., 0., 0., 1.]], dtype=float32)
    """
    value = value_of(operand, "dynamic_update_slice_in_dim")
    at = axis_index(axis, value.ndim, "dynamic_update_slice_in_dim")
    return dynamic_update_slice(
        value,
        update,
        _only(at, start_index, value.ndim),
        allow_negative_indices=allow_negative_indices,
    )


def dynamic_update_index_in_dim(
    operand: Any,
    update: Any,
    index: Any,
    axis: int,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The operand with the slice at a computed index of an axis replaced.

    >>> fill = lambda i, squares: fxad.lax.dynamic_update_index_in_dim(squares, i * i, i, 0)
    >>> fxad.lax.fori_loop(0, 5, fill, jnp.zeros(5, jnp.int32))
    Array([ 0,  1,  4,  9, 16], dtype=int32)
    """
    value = value_of(operand, "dynamic_update_index_in_dim")
    at = axis_index(axis, value.ndim, "dynamic_update_index_in_dim")
    new = value_of(update, "dynamic_update_index_in_dim")
    if new.ndim != value.ndim:
        new = expand_dims(new, (at,))
    return dynamic_update_slice_in_dim(
        value, new, index, at, allow_negative_indices=allow_negative_indices
    )
