"""Windows whose place is computed: dynamic_slice and dynamic_update.

    dynamic_slice(x: f32[8], start: i32[]; sizes=(3,))                     -> f32[3]
    dynamic_update(x: f32[8], update: f32[3], start: i32[])                -> f32[8]
    dynamic_slice(x: f32[4,8], start: i32[4]; sizes=(3,), batch=1)         -> f32[4,3]

Starts are clamped so that the window lies inside, as in JAX. With `batch` > 0 that many leading
axes are shared by all operands, every lane has its own starts, and `sizes` leaves them out.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import INDEX, Cast, Data, Expr, Index
from fxad.ir.loops import Indexed, Point, Scatter
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.ops.arrays.slicing import Shape, own
from fxad.ops.base import (
    ANY,
    Primitive,
    case,
    define,
    fails,
    known,
    operand_type,
    spread,
    values_of,
    zeros,
)
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

Read = Callable[..., Expr]


def as_index(value: Expr) -> Expr:
    """An integer expression as an int64 index (uint64 beyond its range wraps to negative)."""
    return value if value.dtype == INDEX else Cast(value, INDEX)


def data_index(value: Expr, size: int) -> Index:
    """The index `value` clamped into 0 .. size-1."""
    return Index(0, ((Data(value, size), 1),)) if size > 1 else Index()


def _check_window(
    op: str, x: ArrayType, sizes: Shape, starts: Sequence[ArrayType], batch: int
) -> None:
    axes = x.ndim - batch
    if batch < 0 or axes < 0 or len(sizes) != axes or len(starts) != axes:
        raise ShapeError(
            f"{op}: {x} with {batch} batch axes needs {max(axes, 0)} starts and sizes, got "
            f"{len(starts)} starts and sizes {sizes}"
        )
    for size, length in zip(sizes, x.shape[batch:], strict=True):
        if not 0 <= size <= length:
            raise ShapeError(f"{op}: a window of sizes {sizes} does not fit into {x}")
    for start in starts:
        if not dt.is_integer(start.dtype):
            raise TypeMismatch(f"{op}: starts must be integers, got {start}")
        if start.shape != x.shape[:batch]:
            raise ShapeError(f"{op}: starts must have shape {x.shape[:batch]}, got {start}")


def _windows(
    shape: Shape, sizes: Shape, starts: Sequence[np.ndarray], batch: int
) -> list[tuple[Any, ...]]:
    """For each lane the subscript of its window."""
    found = []
    for lane in np.ndindex(*shape[:batch]):
        window = []
        for length, size, start in zip(shape[batch:], sizes, starts, strict=True):
            first = min(max(int(start[lane].astype(np.int64)), 0), length - size)
            window.append(builtins.slice(first, first + size))
        found.append((*lane, *window))
    return found


def _places(point: Point, shape: Shape, sizes: Shape, batch: int, read: Read, first: int) -> Point:
    """Where element `point` of a window lies in the array."""
    lane = point[:batch]
    place = list(lane)
    ends = zip(point[batch:], shape[batch:], sizes, strict=True)
    for operand, (i, length, size) in enumerate(ends, first):
        value = as_index(read(operand, lane))
        place.append(i + data_index(value, length - size + 1))
    return tuple(place)


# ---------------------------------------------------------------- dynamic_slice


def _slice_type(x: ArrayType, *starts: ArrayType, sizes: Shape, batch: int = 0) -> ArrayType:
    _check_window("dynamic_slice", x, sizes, starts, batch)
    return ArrayType(x.dtype, (*x.shape[:batch], *sizes))


def _slice_numpy(x: np.ndarray, *starts: np.ndarray, sizes: Shape, batch: int = 0) -> np.ndarray:
    lanes = [x[window] for window in _windows(x.shape, sizes, starts, batch)]
    shape = (*x.shape[:batch], *sizes)
    return np.stack(lanes).reshape(shape) if lanes else np.zeros(shape, x.dtype)


def _slice_transpose(ct: Value, args: Operands, *, sizes: Shape, batch: int = 0) -> Cotangents:
    starts = values_of(args[1:])
    dx = dynamic_update(zeros(operand_type(args[0])), ct, *starts, batch=batch)
    return [dx, *[None] * len(starts)]


def _slice_onto(total: Value, ct: Value, args: Operands, *, sizes: Shape, batch: int = 0) -> Value:
    starts = values_of(args[1:])
    before = dynamic_slice(total, *starts, sizes=sizes, batch=batch)
    return dynamic_update(total, bind(OPS["add"], before, ct), *starts, batch=batch)


def _lanes(size: int, batched: Sequence[bool], args: Values) -> list[Value]:
    """Every operand with the lane axis first."""
    return [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]


def _slice_batch(
    size: int, batched: Sequence[bool], args: Values, *, sizes: Shape, batch: int = 0
) -> Value:
    if batch == 0 and not any(batched[1:]):
        return dynamic_slice(args[0], literal(0, dt.int32), *args[1:], sizes=(size, *sizes))
    return dynamic_slice(*_lanes(size, batched, args), sizes=sizes, batch=batch + 1)


def _slice_loops(types: Sequence[ArrayType], *, sizes: Shape, batch: int = 0) -> Indexed:
    shape = types[0].shape
    return Indexed(lambda point, read: read(0, _places(point, shape, sizes, batch, read, 1)))


def _i32(*values: int) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.int32)


dynamic_slice: Primitive[Array] = define(
    "dynamic_slice",
    doc="The window of the given sizes at computed starts, clamped to lie inside.",
    type=_slice_type,
    numpy=_slice_numpy,
    jvp=lambda primals, tangents, out, **params: dynamic_slice(tangents[0], *primals[1:], **params),
    transpose=_slice_transpose,
    onto=_slice_onto,
    batch=_slice_batch,
    loops=_slice_loops,
    weak=(0,),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(5), _i32(1), sizes=(3,)),
        case(r.x(5), _i32(4), sizes=(3,)),
        case(r.x(4, 5), _i32(-7), _i32(2), sizes=(2, 2)),
        case(r.x(3, 5), _i32(0, 2, 9), sizes=(2,), batch=1),
        case(r.x(), sizes=()),
        fails(r.x(3), _i32(0), sizes=(4,), saying="does not fit"),
        fails(r.x(3), np.float32(0), sizes=(1,), saying="must be integers"),
    ],
)

# ---------------------------------------------------------------- dynamic_update


def _update_type(x: ArrayType, update: ArrayType, *starts: ArrayType, batch: int = 0) -> ArrayType:
    if x.dtype != update.dtype:
        raise TypeMismatch(f"dynamic_update: {x} and {update} differ in dtype; convert one side")
    if update.ndim != x.ndim or update.shape[:batch] != x.shape[:batch]:
        raise ShapeError(f"dynamic_update: {update} is no window of {x} ({batch} batch axes)")
    _check_window("dynamic_update", x, update.shape[batch:], starts, batch)
    return x


def _update_numpy(
    x: np.ndarray, update: np.ndarray, *starts: np.ndarray, batch: int = 0
) -> np.ndarray:
    result = own(x)
    windows = _windows(x.shape, update.shape[batch:], starts, batch)
    for lane, window in zip(np.ndindex(*x.shape[:batch]), windows, strict=True):
        result[window] = update[lane]
    return result


def _update_jvp(primals: Values, tangents: Tangents, out: Value, *, batch: int = 0) -> Value | None:
    pairs = zip(primals[:2], tangents[:2], strict=True)
    dx, dupdate = (zeros(type_of(p)) if t is None else t for p, t in pairs)
    return dynamic_update(dx, dupdate, *primals[2:], batch=batch)


def _update_transpose(ct: Value, args: Operands, *, batch: int = 0) -> Cotangents:
    x, update = args[:2]
    starts = values_of(args[2:])
    dx = dupdate = None
    shape = operand_type(update).shape
    # The window is read before it is overwritten, which may happen in place.
    if not known(update):
        dupdate = dynamic_slice(ct, *starts, sizes=shape[batch:], batch=batch)
    if not known(x):
        dx = dynamic_update(ct, zeros(ArrayType(x.dtype, shape)), *starts, batch=batch)
    return [dx, dupdate, *[None] * len(starts)]


def _update_batch(size: int, batched: Sequence[bool], args: Values, *, batch: int = 0) -> Value:
    if batch == 0 and not any(batched[2:]):
        x, update = _lanes(size, batched[:2], args[:2])
        return dynamic_update(x, update, literal(0, dt.int32), *args[2:])
    return dynamic_update(*_lanes(size, batched, args), batch=batch + 1)


def _update_loops(types: Sequence[ArrayType], *, batch: int = 0) -> Scatter:
    shape, sizes = types[0].shape, types[1].shape[batch:]

    def target(point: Point, read: Read) -> tuple[Point, Expr | None]:
        return _places(point, shape, sizes, batch, read, 2), None

    return Scatter("set", 1, (), target)


dynamic_update: Primitive[Array] = define(
    "dynamic_update",
    doc="The operand with a window at computed starts, clamped to lie inside, replaced.",
    type=_update_type,
    numpy=_update_numpy,
    jvp=_update_jvp,
    transpose=_update_transpose,
    batch=_update_batch,
    loops=_update_loops,
    weak=(),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(5), r.x(3), _i32(1)),
        case(r.x(5), r.x(3), _i32(4)),
        case(r.x(4, 5), r.x(2, 2), _i32(-7), _i32(2)),
        case(r.x(3, 5), r.x(3, 2), _i32(0, 2, 9), batch=1),
        case(r.x(3), r.x(0), _i32(1)),
        fails(r.x(3), r.x(4), _i32(0), saying="does not fit"),
        fails(r.x(3, 3), r.x(3), _i32(0), _i32(0), saying="no window"),
    ],
)
