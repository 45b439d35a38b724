"""Shapes and the order of axes and elements: reshape, transpose, broadcast, flip, roll, tile, ...

reshape(x, (2, -1))      moveaxis(x, 0, -1)      broadcast_to(x, (3, 4))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.api.indices import reaching
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.numpy.core import (
    asarray,
    axes_tuple,
    axis_index,
    cast,
    result_shape,
    shape_items,
    shape_tuple,
    spread_to,
    value_of,
)
from fxad.trace.array import Array
from fxad.trace.replay import replayed
from fxad.trace.tracer import Tracer, type_of

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes",
    "broadcast_to", "expand_dims", "flip", "fliplr", "flipud", "matrix_transpose", "moveaxis",
    "ndim", "permute_dims", "ravel", "reshape", "roll", "rollaxis", "rot90", "shape",
    "size", "squeeze", "swapaxes", "tile", "transpose",
]  # fmt: skip


def _lengths(a: Any) -> tuple[int, ...]:
    """Of whatever has a shape, of elements of any kind; of nested sequences, the array's that they
    make."""
    if isinstance(a, Array):
        return a.shape
    if isinstance(a, list | tuple):
        return asarray(a).shape
    known = None if isinstance(a, type) else getattr(a, "shape", None)
    if type(known) is tuple:
        return known
    return tuple(known) if isinstance(known, Sequence) else value_of(a).shape


def shape(a: Any) -> tuple[int, ...]:
    """Lengths of the axes.

    >>> jnp.shape(jnp.zeros((2, 3)))
    (2, 3)
    """
    return _lengths(a)


def ndim(a: Any) -> int:
    """Number of axes.

    >>> jnp.ndim(jnp.zeros((2, 3)))
    2
    """
    return len(_lengths(a))


def size(a: Any, axis: Any = None) -> int:
    """Number of elements, or the length of an axis, or the product of those of several.

    >>> jnp.size(jnp.zeros((2, 3))), jnp.size(jnp.zeros((2, 3)), 1)
    (6, 3)
    """
    lengths = _lengths(a)
    return math.prod(lengths[i] for i in axes_tuple(axis, len(lengths), "size"))


@replayed
def reshape(
    a: Any,
    shape: Any = None,
    *rest: int,
    order: str = "C",
    newshape: Any = None,
    copy: bool | None = None,
) -> Array:
    """The same elements in row-major order under another shape; one size may be -1.

    `copy` changes nothing that could be seen: arrays are immutable.

    >>> jnp.reshape(jnp.arange(6), (2, 3))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    >>> jnp.reshape(jnp.arange(6), (3, -1))
    Array([[0, 1],
           [2, 3],
           [4, 5]], dtype=int32)
    """
    value = value_of(a, "reshape")
    given = newshape if shape is None else (shape, *rest) if rest else shape
    if order == "F":
        return _reshape_fortran(value, given)
    if order not in "CA":
        raise BadArgument(f"reshape: order must be 'C' or 'F', not {order!r}")
    sizes = _completed(value.type, given)
    return value if sizes == value.shape else OPS["reshape"](value, shape=sizes)


def _reshape_fortran(value: Array, given: Any) -> Array:
    sizes = _completed(value.type, given)
    flipped = OPS["reshape"](transpose(value), shape=sizes[::-1])
    return transpose(flipped)


def _completed(type_: ArrayType, given: Any) -> tuple[int, ...]:
    items = list(shape_items(given))
    unknown = [i for i, s in enumerate(items) if isinstance(s, _INTEGERS) and s == -1]
    if len(unknown) > 1:
        raise ShapeError(f"reshape: only one size may be -1, got {tuple(items)}")
    if unknown:
        items[unknown[0]] = 1
        known = math.prod([int(s) for s in items])
        if known == 0 or type_.size % known:
            raise ShapeError(f"reshape: cannot fit {type_} into {shape_items(given)}")
        items[unknown[0]] = type_.size // known
    sizes = shape_tuple(items, "reshape")
    if math.prod(sizes) != type_.size:
        raise ShapeError(
            f"reshape: {type_} has {type_.size} elements, shape {sizes} has {math.prod(sizes)}"
        )
    return sizes


_INTEGERS = (int, np.integer)


@replayed
def ravel(a: Any, order: str = "C") -> Array:
    """One axis with all elements.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]))
    Array([1, 2, 3, 4], dtype=int32)
    """
    return reshape(a, (-1,) if value_of(a).size else (0,), order=order)


@replayed
def transpose(a: Any, axes: Any = None) -> Array:
    """Axes permuted (reversed by default).

    >>> jnp.transpose(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    >>> jnp.transpose(jnp.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    value = value_of(a, "transpose")
    order = tuple(reversed(range(value.ndim))) if axes is None else tuple(axes)
    order = tuple(axis_index(i, value.ndim, "transpose") for i in order)
    if sorted(order) != list(range(value.ndim)):
        raise ShapeError(f"transpose: axes {order} are not a permutation for {value.type}")
    if order == tuple(range(value.ndim)):
        return value
    return OPS["transpose"](value, permutation=order)


permute_dims = transpose


@replayed
def matrix_transpose(x: Any, /) -> Array:
    """The last two axes exchanged.

    >>> jnp.matrix_transpose(jnp.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    return swapaxes(x, -1, -2)


@replayed
def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    >>> jnp.swapaxes(jnp.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    value = value_of(a)
    first, second = (axis_index(i, value.ndim, "swapaxes") for i in (axis1, axis2))
    order = list(range(value.ndim))
    order[first], order[second] = second, first
    return transpose(value, order)


@replayed
def moveaxis(a: Any, source: Any, destination: Any) -> Array:
    """Axes moved to new positions, the others keeping their order.

    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    value = value_of(a)
    sources = [axis_index(i, value.ndim, "moveaxis") for i in shape_items(source)]
    targets = [axis_index(i, value.ndim, "moveaxis") for i in shape_items(destination)]
    if len(sources) != len(targets):
        raise ShapeError(f"moveaxis: {len(sources)} sources but {len(targets)} destinations")
    order = [i for i in range(value.ndim) if i not in sources]
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return transpose(value, order)


@replayed
def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """One axis moved before another.

    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    axis = axis_index(axis, value_of(a).ndim, "rollaxis")
    return moveaxis(a, axis, start - 1 if start > axis else start)


@replayed
def expand_dims(a: Any, axis: Any) -> Array:
    """New axes of length 1.

    >>> jnp.expand_dims(jnp.zeros((2, 3)), (0, -1)).shape
    (1, 2, 3, 1)
    """
    value = value_of(a)
    count = value.ndim + len(shape_items(axis))
    at = axes_tuple(axis, count, "expand_dims")
    sizes = iter(value.shape)
    return reshape(value, tuple(1 if i in at else next(sizes) for i in range(count)))


@replayed
def squeeze(a: Any, axis: Any = None) -> Array:
    """Axes of length 1 removed.

    >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
    (3,)
    >>> jnp.squeeze(jnp.zeros((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    value = value_of(a)
    if axis is None:
        return reshape(value, tuple(s for s in value.shape if s != 1))
    at = axes_tuple(axis, value.ndim, "squeeze")
    for i in at:
        if value.shape[i] != 1:
            raise ShapeError(
                f"squeeze: axis {i} of {value.type} has length {value.shape[i]}, not 1"
            )
    return reshape(value, tuple(s for i, s in enumerate(value.shape) if i not in at))


@replayed
def broadcast_to(array: Any, shape: Any) -> Array:
    """NumPy broadcasting to a given shape.

    >>> jnp.broadcast_to(jnp.array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    value = value_of(array)
    sizes = shape_tuple(shape, "broadcast_to")
    if result_shape("broadcast_to", [value.shape, sizes]) != sizes:
        raise ShapeError(f"broadcast_to: {value.type} does not broadcast to {sizes}")
    return spread_to(value, sizes)


@replayed
def broadcast_arrays(*args: Any) -> tuple[Array, ...]:
    """All arguments in their common shape.

    >>> a, b = jnp.broadcast_arrays(jnp.array([1, 2]), jnp.array([[3], [4]]))
    >>> a
    Array([[1, 2],
           [1, 2]], dtype=int32)
    >>> b
    Array([[3, 3],
           [4, 4]], dtype=int32)
    """
    values = [value_of(a) for a in args]
    common = result_shape("broadcast_arrays", [v.shape for v in values])
    return tuple([spread_to(v, common) for v in values])


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that shapes broadcast to. Raises ShapeError if there is none.

    >>> jnp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    known = [shape_tuple(s, "broadcast_shapes") for s in shapes]
    return result_shape("Incompatible shapes for broadcasting", known)


@replayed
def atleast_1d(*arys: Any) -> Any:
    """Arrays with at least one axis.

    >>> jnp.atleast_1d(5.0)
    Array([5.], dtype=float32)
    """
    out = [v if v.ndim >= 1 else reshape(v, (1,)) for v in map(value_of, arys)]
    return out[0] if len(out) == 1 else out


@replayed
def atleast_2d(*arys: Any) -> Any:
    """Arrays with at least two axes.

    >>> jnp.atleast_2d(jnp.array([1, 2]))
    Array([[1, 2]], dtype=int32)
    """
    out = [
        v if v.ndim >= 2 else reshape(v, (1,) * (2 - v.ndim) + v.shape) for v in map(value_of, arys)
    ]
    return out[0] if len(out) == 1 else out


@replayed
def atleast_3d(*arys: Any) -> Any:
    """Arrays with at least three axes.

    >>> jnp.atleast_3d(jnp.array([1, 2])).shape
    (1, 2, 1)
    """
    out = []
    for value in map(value_of, arys):
        sizes = {0: (1, 1, 1), 1: (1, *value.shape, 1), 2: (*value.shape, 1)}.get(value.ndim)
        out.append(value if sizes is None else reshape(value, sizes))
    return out[0] if len(out) == 1 else out


def slice_axis(value: Any, axis: int, start: int, stop: int, step: int = 1) -> Array:
    """Elements start, start+step, ... below stop along one axis."""
    sizes = type_of(value).shape
    starts = tuple(start if i == axis else 0 for i in range(len(sizes)))
    stops = tuple(stop if i == axis else s for i, s in enumerate(sizes))
    steps = tuple(step if i == axis else 1 for i in range(len(sizes)))
    return OPS["slice"](value, start=starts, stop=stops, step=steps)


@replayed
def flip(m: Any, axis: Any = None) -> Array:
    """Elements in reverse order along axes (all by default).

    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    value = value_of(m)
    return OPS["reverse"](value, axes=axes_tuple(axis, value.ndim, "flip"))


@replayed
def fliplr(m: Any) -> Array:
    """Columns reversed.

    >>> jnp.fliplr(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return flip(m, 1)


@replayed
def flipud(m: Any) -> Array:
    """Rows reversed.

    >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return flip(m, 0)


@replayed
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotated by k quarter turns.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    value = value_of(m)
    first, second = (axis_index(axis, value.ndim, "rot90") for axis in axes)
    if first == second:
        raise ShapeError(f"rot90: axes must be two of {value.type}, not {axes} twice")
    match k % 4:
        case 0:
            return value
        case 1:
            return flip(swapaxes(value, first, second), first)
        case 2:
            return flip(value, (first, second))
    return flip(swapaxes(value, first, second), second)


@replayed
def roll(a: Any, shift: Any, axis: Any = None) -> Array:
    """Elements moved along axes, coming back in at the other end.

    shift and axis: a number or several, one of either for all of the other. Shifts may be traced.

    >>> jnp.roll(jnp.arange(5), 2)
    Array([3, 4, 0, 1, 2], dtype=int32)
    >>> jnp.roll(jnp.array([[1, 2], [3, 4]]), 1, axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    value = value_of(a)
    if axis is None:
        return reshape(roll(ravel(value), shift, 0), value.shape)
    shifts = _shifts(shift)
    axes = [axis_index(i, value.ndim, "roll") for i in shape_items(axis)]
    (count,) = result_shape("roll: shifts and axes", [(len(shifts),), (len(axes),)])
    if len(shifts) != count:
        shifts = shifts * count
    if len(axes) != count:
        axes = axes * count
    for amount, at in zip(shifts, axes, strict=True):
        if value.shape[at]:
            value = _rolled(value, amount, at)
    return value


def _shifts(shift: Any) -> list[Any]:
    """Distances to roll by: Python's integers where they are known, else traced ones."""
    if isinstance(shift, tuple | list):
        return [one for item in shift for one in _shifts(item)]
    given = shift if isinstance(shift, Tracer) else np.asarray(shift)
    if given.ndim > 1:
        raise ShapeError(f"roll: shifts are a number or a vector, not of shape {given.shape}")
    if isinstance(given, np.ndarray):
        return [int(s) for s in given.reshape(-1)]
    whole = given if dt.is_integer(given.dtype) else cast(given, dt.int32)
    return [whole] if not whole.ndim else [whole[i] for i in range(whole.shape[0])]


def _rolled(value: Array, shift: Any, at: int) -> Array:
    length = value.shape[at]
    if isinstance(shift, int):
        cut = -shift % length
        if not cut:
            return value
        head = slice_axis(value, at, 0, cut)
        return OPS["concatenate"](slice_axis(value, at, cut, length), head, axis=at)
    # A window of the array and the array again: one slice, whose derivative is one update.
    start = length - reaching(shift, 2 * length) % length
    starts = [start if i == at else literal(0, dt.int32) for i in range(value.ndim)]
    twice = OPS["concatenate"](value, value, axis=at)
    return OPS["dynamic_slice"](twice, *starts, sizes=value.shape)


@replayed
def tile(A: Any, reps: Any) -> Array:
    """The array repeated as a block.

    >>> jnp.tile(jnp.array([1, 2]), 2)
    Array([1, 2, 1, 2], dtype=int32)
    >>> jnp.tile(jnp.array([1, 2]), (2, 1))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    value = value_of(A)
    counts = [int(r) for r in shape_items(reps)]
    rank = max(len(counts), value.ndim)
    counts = [1] * (rank - len(counts)) + counts
    sizes = (1,) * (rank - value.ndim) + value.shape
    spread: list[int] = []
    for count, length in zip(counts, sizes, strict=True):
        spread += [count, length]
    axes = tuple(2 * i + 1 for i in range(rank))
    value = OPS["broadcast"](reshape(value, sizes), shape=tuple(spread), axes=axes)
    return reshape(value, tuple(c * s for c, s in zip(counts, sizes, strict=True)))
