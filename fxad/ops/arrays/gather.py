"""gather: read at computed places; and the spec it shares with scatter.

    gather(x: f32[8,3], i: i32[5]; axes=(0,))              -> f32[5,3], rows x[i]
    gather(x: f32[4,8], i: i32[4,2]; axes=(1,), batch=1)   -> f32[4,2], x[b, i[b]]

`axes`: the axes of x that are indexed, each by one integer array; all index arrays have one
shape. `batch`: how many leading axes x and the index arrays share, lane by lane. What gather
gives, and scatter takes as updates, has the axes of the index arrays (batch axes first), then
the remaining axes of x, the window, in order.

Indices count from 0; negative ones are out of range (`fxad.numpy` adds the length first). There
mode "clamp" reads the nearest element, and "fill" gives `fill` (None: NaN, the lowest signed or
the highest unsigned integer, True). `unique` promises that no two indices meet: it only matters
to the transpose, a scatter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import INDEX, Const, Expr, Index, Prim
from fxad.ir.loops import Indexed, Point
from fxad.ir.program import OPS, Number
from fxad.ir.rewrite import literal
from fxad.ops.arrays.dynamic import Read, as_index, data_index
from fxad.ops.arrays.movement import transpose
from fxad.ops.arrays.slicing import Shape, both, check_axes, own, sized
from fxad.ops.base import (
    ANY,
    Primitive,
    case,
    define,
    fails,
    only,
    operand_type,
    spread,
    values_of,
    zeros,
)
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array


def window_axes(x: ArrayType, axes: Shape, batch: int) -> Shape:
    """Axes of x that are neither batch axes nor indexed."""
    return tuple(a for a in range(batch, x.ndim) if a not in axes)


def check_spec(
    op: str, x: ArrayType, indices: Sequence[ArrayType], axes: Shape, batch: int, clamps: bool
) -> Shape:
    """Check the spec; return the shape of what is read or written."""
    check_axes(op, axes, x)
    if not indices or len(indices) != len(axes):
        raise ShapeError(f"{op}: axes={axes} needs as many index arrays, got {len(indices)}")
    if any(a < batch for a in axes) or not 0 <= batch <= x.ndim:
        raise ShapeError(f"{op}: axes={axes} of {x} overlap its {batch} batch axes")
    shape = indices[0].shape
    for index in indices:
        if not dt.is_integer(index.dtype):
            raise TypeMismatch(f"{op}: indices must be integers, got {index}")
        if index.shape != shape:
            raise ShapeError(f"{op}: index arrays differ in shape: {indices[0]} and {index}")
    if shape[:batch] != x.shape[:batch]:
        raise ShapeError(f"{op}: {x} and indices {indices[0]} must share {batch} leading axes")
    if clamps and indices[0].size and any(x.shape[a] == 0 for a in axes):
        raise ShapeError(f"{op}: {x} has an axis of length 0 among {axes}: no element to index")
    return (*shape, *(x.shape[a] for a in window_axes(x, axes, batch)))


def flat_positions(
    x: np.ndarray, indices: Sequence[np.ndarray], axes: Shape, batch: int, clamps: bool
) -> tuple[np.ndarray, np.ndarray, Shape]:
    """Row-major positions over batch and indexed axes; which are in range; the axes of x in the
    order batch, indexed, window."""
    shape = indices[0].shape
    position = np.zeros(shape, np.int64)
    valid = np.ones(shape, np.bool_)
    for axis in range(batch):
        line = [1] * len(shape)
        line[axis] = -1
        position = position * x.shape[axis] + np.arange(x.shape[axis]).reshape(line)
    for axis, index in zip(axes, indices, strict=True):
        wide = index.astype(np.int64)
        size = x.shape[axis]
        if not clamps:
            valid &= (wide >= 0) & (wide < size)
        position = position * size + np.clip(wide, 0, max(size - 1, 0))
    order = (*range(batch), *axes, *window_axes(ArrayType(x.dtype, x.shape), axes, batch))
    return position.ravel(), valid.ravel(), order


def as_rows(x: np.ndarray, order: Shape, count: int) -> np.ndarray:
    """A copy of x as a matrix: one row per element of the first `count` axes of `order`."""
    moved = x.transpose(order)
    rows, width = math.prod(moved.shape[:count]), math.prod(moved.shape[count:])
    return own(moved).reshape(rows, width)


def place(
    point: Point, x: ArrayType, axes: Shape, batch: int, lanes: int, read: Read, first: int
) -> tuple[Point, Expr | None]:
    """Where `point` (index axes, then window axes) lies in x, and the condition that it does."""
    where = [*point[:batch], *[Index()] * (x.ndim - batch)]
    inside: Expr | None = None
    for operand, axis in enumerate(axes, first):
        value = as_index(read(operand, point[:lanes]))
        size = x.shape[axis]
        where[axis] = data_index(value, size)
        above = Prim("ge", (value, Const(0, INDEX)), dt.bool_)
        below = Prim("lt", (value, Const(size, INDEX)), dt.bool_)
        inside = both(inside, both(above, below))
    for axis, index in zip(window_axes(x, axes, batch), point[lanes:], strict=True):
        where[axis] = index
    return tuple(where), inside


# ---------------------------------------------------------------- gather


def fill_value(dtype: np.dtype, fill: Number | None) -> Number:
    """What an out-of-range read gives in mode "fill"."""
    if fill is not None:
        return literal(fill, dtype).value
    if dt.is_integer(dtype):
        limits = dt.iinfo(dtype)
        return int(limits.min if dt.is_signed(dtype) else limits.max)
    if dtype == dt.key:
        return 2**64 - 1  # both words, as JAX fills them
    return literal(True if dt.is_bool(dtype) else math.nan, dtype).value


def _gather_type(
    x: ArrayType,
    *indices: ArrayType,
    axes: Shape,
    batch: int = 0,
    mode: str = "clamp",
    fill: Number | None = None,
    unique: bool = False,
) -> ArrayType:
    if mode not in ("clamp", "fill"):
        raise TypeMismatch(f"gather: mode must be 'clamp' or 'fill', got {mode!r}")
    shape = check_spec("gather", x, indices, axes, batch, mode == "clamp")
    return sized("gather", x.dtype, shape)


def _from_zero(index: np.ndarray, size: int) -> np.ndarray:
    """An index that NumPy finds out of range where it is negative. Raises IndexError."""
    unsigned = _UNSIGNED.get(index.dtype)
    if unsigned is not None and size <= 1 << (8 * unsigned.itemsize - 1):
        return index.view(unsigned)
    if index.dtype.kind == "i" and index.size and index.min() < 0:  # unsigned, it may be in range
        raise IndexError
    return index


_UNSIGNED = {dt.int8: dt.uint8, dt.int16: dt.uint16, dt.int32: dt.uint32}


def _gather_numpy(
    x: np.ndarray,
    *indices: np.ndarray,
    axes: Shape,
    batch: int = 0,
    mode: str = "clamp",
    fill: Number | None = None,
    unique: bool = False,
) -> np.ndarray:
    if batch == 0 and axes == tuple(range(len(axes))) and 0 not in x.shape:
        try:
            return own(x[tuple([_from_zero(i, n) for i, n in zip(indices, x.shape, strict=False)])])
        except IndexError:
            pass
        wide = [i.astype(np.int64, copy=False) for i in indices]
        near = [np.minimum(np.maximum(i, 0), n - 1) for i, n in zip(wide, x.shape, strict=False)]
        found = own(x[tuple(near)])
        if mode == "fill":
            outside = np.any([i != j for i, j in zip(wide, near, strict=True)], axis=0)
            found[outside] = fill_value(x.dtype, fill)
        return found
    position, valid, order = flat_positions(x, indices, axes, batch, mode == "clamp")
    count = batch + len(axes)
    rows = as_rows(x, order, count)
    result = np.full((position.size, rows.shape[1]), fill_value(x.dtype, fill), x.dtype)
    result[valid] = rows[position[valid]]
    return result.reshape((*indices[0].shape, *(x.shape[a] for a in order[count:])))


def _gather_jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value:
    """Where the result is the fill value its tangent is zero."""
    return gather(only(tangents), *primals[1:], **{**params, "fill": 0})


def _gather_transpose(ct: Value, args: Operands, **params: Any) -> Cotangents:
    dx = _gather_onto(zeros(operand_type(args[0])), ct, args, **params)
    return [dx, *[None] * (len(args) - 1)]


def _gather_onto(
    total: Value,
    ct: Value,
    args: Operands,
    *,
    axes: Shape,
    batch: int = 0,
    mode: str = "clamp",
    fill: Number | None = None,
    unique: bool = False,
) -> Value:
    mode = "clamp" if mode == "clamp" else "drop"
    params = {"axes": axes, "batch": batch, "monoid": "add", "mode": mode, "unique": unique}
    return bind(OPS["scatter"], total, ct, *values_of(args[1:]), **params)


def moved(x: Value, source: int, target: int) -> Value:
    """One axis moved to another place."""
    if source == target:
        return x
    order = [a for a in range(type_of(x).ndim) if a != source]
    order.insert(target, source)
    return transpose(x, permutation=tuple(order))


def _gather_batch(
    size: int, batched: Sequence[bool], args: Values, *, axes: Shape, batch: int = 0, **params: Any
) -> Value:
    """Lanes of x become a batch axis; an x without lanes is read by longer index arrays."""
    x, *indices = args
    indices = [i if b else spread(i, size) for i, b in zip(indices, batched[1:], strict=True)]
    if batched[0]:
        axes = tuple(a + 1 for a in axes)
        return gather(x, *indices, axes=axes, batch=batch + 1, **params)
    indices = [moved(i, 0, batch) for i in indices]
    return moved(gather(x, *indices, axes=axes, batch=batch, **params), batch, 0)


def _gather_loops(
    types: Sequence[ArrayType],
    *,
    axes: Shape,
    batch: int = 0,
    mode: str = "clamp",
    fill: Number | None = None,
    unique: bool = False,
) -> Indexed:
    x, lanes = types[0], types[1].ndim

    def value(point: Point, read: Read) -> Expr:
        where, inside = place(point, x, axes, batch, lanes, read, 1)
        if mode == "clamp":
            return read(0, where)
        return read(0, where, guard=inside, fill=Const(fill_value(x.dtype, fill), x.dtype))

    return Indexed(value)


def _i32(*values: int | list[int]) -> np.ndarray:
    return np.array(values, np.int32)


gather: Primitive[Array] = define(
    "gather",
    doc="Elements, rows or blocks of x at computed places.",
    type=_gather_type,
    numpy=_gather_numpy,
    jvp=_gather_jvp,
    transpose=_gather_transpose,
    onto=_gather_onto,
    batch=_gather_batch,
    loops=_gather_loops,
    weak=(0,),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(5, 3), _i32(4, 0, 4), axes=(0,)),
        case(r.x(5, 3), _i32(4, -1, 9), axes=(0,), mode="clamp"),
        case(r.x(5, 3), _i32(2, -1, 5), axes=(0,), mode="fill", fill=0),
        case(r.x(5, 3), np.int32(2), axes=(1,)),
        case(r.x(2, 4, 3), _i32([0, 1], [3, 2]), _i32([1, 0], [2, 2]), axes=(1, 2)),
        case(r.x(2, 4, 3), _i32(0, 2), _i32(1, 1), axes=(2, 0)),
        case(r.x(2, 4, 3), _i32([0, 3, 3], [1, 1, 2]), axes=(1,), batch=1, mode="fill", fill=1),
        case(r.x(0, 2), _i32(0, 1), axes=(0,), mode="fill", fill=0),
        case(r.x(4), np.array(9, np.int32), axes=(0,), mode="fill", fill=0),
        fails(r.x(3), np.zeros(2, np.float32), axes=(0,), saying="must be integers"),
        fails(r.x(0, 2), _i32(0), axes=(0,), saying="length 0"),
        fails(r.x(3), _i32(0), _i32(0), axes=(0,), saying="as many index arrays"),
    ],
)
