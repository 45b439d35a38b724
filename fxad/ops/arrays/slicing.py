"""Ops that cut and join arrays: slice, pad, concatenate.

    pad(x: f32[3], 0.0; low=(1,), high=(0,), interior=(1,))  -> f32[6], 0 x0 0 x1 0 x2

slice and pad are transposes of each other. All are linear and computed by rewriting indices.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import INDEX, Const, Expr, Index, IndexValue, Prim, quotient, remainder
from fxad.ir.loops import Indexed, Point, View
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.ops.base import ANY, Primitive, case, define, fails, known, operand_type, spread, zeros
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

Shape = tuple[int, ...]


def sized(op: str, dtype: np.dtype, shape: Shape) -> ArrayType:
    """The type of a result, after checking that its lengths are valid and its bytes countable."""
    if shape and min(shape) < 0:
        raise ShapeError(f"{op}: shape {shape} has a negative length")
    result = ArrayType(dtype, shape)
    if result.nbytes >= 2**63:
        raise ShapeError(f"{op}: {result} would hold {result.nbytes} bytes, more than 2**63 - 1")
    return result


def check_axes(op: str, axes: Sequence[int], type: ArrayType) -> None:
    """Axes must be distinct and in 0 .. ndim-1."""
    for axis in axes:
        if not 0 <= axis < type.ndim:
            raise ShapeError(f"{op}: axis {axis} is not an axis of {type}")
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op}: axes {tuple(axes)} name an axis twice")


def own(array: np.ndarray) -> np.ndarray:
    """A row-major copy, so that no result shares memory with an operand."""
    return np.array(array, order="C")


def per_axis(op: str, x: ArrayType, **params: Shape) -> None:
    for name, values in params.items():
        if len(values) != x.ndim:
            raise ShapeError(f"{op}: {name}={values} needs one entry per axis of {x}")


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """The conjunction of two conditions, where None is always true."""
    if a is None or b is None:
        return b if a is None else a
    return Prim("and", (a, b), dt.bool_)


def within(index: Index, low: int, high: int) -> Expr | None:
    """low <= index < high, as far as the index' own bounds do not say so already."""
    first, last = index.bounds()
    value = IndexValue(index, INDEX)
    above = below = None
    if first < low:
        above = Prim("ge", (value, Const(low, INDEX)), dt.bool_)
    if last >= high:
        below = Prim("lt", (value, Const(high, INDEX)), dt.bool_)
    return both(above, below)


# ---------------------------------------------------------------- slice, pad


def _slice_type(x: ArrayType, *, start: Shape, stop: Shape, step: Shape) -> ArrayType:
    per_axis("slice", x, start=start, stop=stop, step=step)
    for first, last, by, size in zip(start, stop, step, x.shape, strict=True):
        if not 0 <= first <= last <= size or by < 1:
            raise ShapeError(
                f"slice: start={start} stop={stop} step={step} does not fit {x}; needed are "
                "0 <= start <= stop <= length and step >= 1"
            )
    lengths = zip(start, stop, step, strict=True)
    return ArrayType(x.dtype, tuple(-(-(last - first) // by) for first, last, by in lengths))


def _slice_numpy(x: np.ndarray, *, start: Shape, stop: Shape, step: Shape) -> np.ndarray:
    return own(x[tuple(map(builtins.slice, start, stop, step))])


def _slice_transpose(
    ct: Value, args: Operands, *, start: Shape, stop: Shape, step: Shape
) -> Cotangents:
    high = []
    x = operand_type(args[0])
    sizes = zip(x.shape, type_of(ct).shape, start, step, strict=True)
    for size, length, first, by in sizes:
        high.append(size - first - (1 + (length - 1) * by if length else 0))
    interior = tuple(by - 1 for by in step)
    return [pad(ct, literal(0, x.dtype), low=start, high=tuple(high), interior=interior)]


def _slice_batch(
    size: int, batched: Sequence[bool], args: Values, *, start: Shape, stop: Shape, step: Shape
) -> Value:
    return slice(args[0], start=(0, *start), stop=(size, *stop), step=(1, *step))


def _slice_loops(types: Sequence[ArrayType], *, start: Shape, stop: Shape, step: Shape) -> View:
    return View(
        lambda point: tuple(i * by + first for i, first, by in zip(point, start, step, strict=True))
    )


slice: Primitive[Array] = define(
    "slice",
    doc="Elements start, start + step, ... below stop, along every axis.",
    type=_slice_type,
    numpy=_slice_numpy,
    jvp="linear",
    transpose=_slice_transpose,
    batch=_slice_batch,
    loops=_slice_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(5), start=(1,), stop=(4,), step=(1,)),
        case(r.x(4, 7), start=(0, 1), stop=(4, 7), step=(2, 3)),
        case(r.x(6), start=(0,), stop=(5,), step=(4,)),
        case(r.x(3), start=(3,), stop=(3,), step=(1,)),
        fails(r.x(3), start=(0,), stop=(4,), step=(1,), saying="does not fit"),
    ],
)


def _pad_type(
    x: ArrayType, value: ArrayType, *, low: Shape, high: Shape, interior: Shape
) -> ArrayType:
    per_axis("pad", x, low=low, high=high, interior=interior)
    if value.shape or value.dtype != x.dtype:
        raise TypeMismatch(f"pad: the value must be a scalar of the dtype of {x}, got {value}")
    if any(between < 0 for between in interior):
        raise ShapeError(f"pad: interior={interior} must not be negative")
    shape = []
    for size, before, after, between in zip(x.shape, low, high, interior, strict=True):
        shape.append(before + after + size + max(size - 1, 0) * between)
    if any(n < 0 for n in shape):
        raise ShapeError(f"pad: low={low} high={high} crop more than {x} has")
    return sized("pad", x.dtype, tuple(shape))


def _pad_numpy(
    x: np.ndarray, value: np.ndarray, *, low: Shape, high: Shape, interior: Shape
) -> np.ndarray:
    ends = zip(x.shape, low, high, interior, strict=True)
    shape = [lo + hi + n + max(n - 1, 0) * gap for n, lo, hi, gap in ends]
    result = np.full(shape, value, x.dtype)
    source, target = [], []
    for size, out, before, between in zip(x.shape, shape, low, interior, strict=True):
        places = before + (between + 1) * np.arange(size)
        inside = (places >= 0) & (places < out)
        source.append(np.flatnonzero(inside))
        target.append(places[inside])
    result[np.ix_(*target)] = x[np.ix_(*source)]
    return result


def _pad_jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value | None:
    x, value = map(type_of, primals)
    dx = zeros(x) if tangents[0] is None else tangents[0]
    dvalue = literal(0, value.dtype) if tangents[1] is None else tangents[1]
    return pad(dx, dvalue, **params)


def _padding(x: ArrayType, **params: Any) -> Value:
    """Booleans of the padded shape: False where an element of the operand lies."""
    return pad(zeros(x.with_dtype(dt.bool_)), literal(True, dt.bool_), **params)


def _pad_transpose(
    ct: Value, args: Operands, *, low: Shape, high: Shape, interior: Shape
) -> Cotangents:
    x, value = args
    dx = dvalue = None
    if not known(x):
        zero = literal(0, x.dtype)
        grow_low, grow_high = (tuple(max(-n, 0) for n in ends) for ends in (low, high))
        grown = ct
        if any(grow_low) or any(grow_high):
            grown = pad(ct, zero, low=grow_low, high=grow_high, interior=(0,) * len(low))
        start = tuple(max(n, 0) for n in low)
        sizes = zip(type_of(grown).shape, high, strict=True)
        stop = tuple(n - max(after, 0) for n, after in sizes)
        dx = slice(grown, start=start, stop=stop, step=tuple(gap + 1 for gap in interior))
    if not known(value):
        params = {"low": low, "high": high, "interior": interior}
        mask = _padding(operand_type(x).with_dtype(value.dtype), **params)
        kept = bind(OPS["select"], mask, ct, zeros(type_of(ct)))
        dvalue = bind(OPS["sum"], kept, axes=tuple(range(len(low))))
    return [dx, dvalue]


def _pad_batch(
    size: int, batched: Sequence[bool], args: Values, *, low: Shape, high: Shape, interior: Shape
) -> Value:
    x, value = args
    x = x if batched[0] else spread(x, size)
    lanes = {"low": (0, *low), "high": (0, *high), "interior": (0, *interior)}
    if not batched[1]:
        return pad(x, value, **lanes)
    type_ = type_of(x)
    padded = pad(x, literal(0, type_.dtype), **lanes)
    values = bind(OPS["broadcast"], value, shape=type_of(padded).shape, axes=(0,))
    return bind(OPS["select"], _padding(type_, **lanes), values, padded)


def _pad_loops(types: Sequence[ArrayType], *, low: Shape, high: Shape, interior: Shape) -> View:
    def source(point: Point) -> Point:
        places = zip(point, low, interior, strict=True)
        return tuple(quotient(i + -before, between + 1) for i, before, between in places)

    def guard(point: Point) -> Expr | None:
        held: Expr | None = None
        axes = zip(point, types[0].shape, low, interior, strict=True)
        for i, size, before, between in axes:
            offset = i + -before
            held = both(held, within(offset, 0, max((size - 1) * (between + 1) + 1, 0)))
            phase = remainder(offset, between + 1)
            if phase != Index():
                zero = Const(0, INDEX)
                held = both(held, Prim("eq", (IndexValue(phase, INDEX), zero), dt.bool_))
        return held

    return View(source, guard)


pad: Primitive[Array] = define(
    "pad",
    doc="Put `value` before, after and between elements; negative low or high crop.",
    type=_pad_type,
    numpy=_pad_numpy,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    batch=_pad_batch,
    loops=_pad_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(3), r.x(), low=(1,), high=(2,), interior=(0,)),
        case(r.x(2, 3), r.lit(0), low=(0, 1), high=(1, 0), interior=(1, 2)),
        case(r.x(5), r.x(), low=(-1,), high=(-2,), interior=(0,)),
        case(r.x(4), r.x(), low=(-2,), high=(1,), interior=(2,)),
        case(r.x(0), r.x(), low=(1,), high=(1,), interior=(1,)),
        fails(r.x(3), r.x(), low=(-2,), high=(-2,), interior=(0,), saying="crop"),
    ],
)

# ---------------------------------------------------------------- concatenate


def _concatenate_type(*types: ArrayType, axis: int) -> ArrayType:
    if not types:
        raise ShapeError("concatenate: needs at least one operand")
    first = types[0]
    check_axes("concatenate", (axis,), first)
    total = 0
    for t in types:
        if t.dtype != first.dtype:
            raise TypeMismatch(f"concatenate: {first} and {t} differ in dtype; convert one side")
        if t.shape[:axis] + t.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ShapeError(f"concatenate: {first} and {t} may differ along axis {axis} only")
        total += t.shape[axis]
    return sized("concatenate", first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _concatenate_jvp(primals: Values, tangents: Tangents, out: Value, *, axis: int) -> Value | None:
    pairs = zip(primals, tangents, strict=True)
    return concatenate(*[zeros(type_of(x)) if dx is None else dx for x, dx in pairs], axis=axis)


def _concatenate_transpose(ct: Value, args: Operands, *, axis: int) -> Cotangents:
    shape = type_of(ct).shape
    results: list[Value | None] = []
    offset = 0
    for arg in args:
        size = operand_type(arg).shape[axis]
        start, stop = [0] * len(shape), list(shape)
        start[axis], stop[axis] = offset, offset + size
        offset += size
        if known(arg):
            results.append(None)
            continue
        ones = (1,) * len(shape)
        results.append(slice(ct, start=tuple(start), stop=tuple(stop), step=ones))
    return results


def _concatenate_batch(size: int, batched: Sequence[bool], args: Values, *, axis: int) -> Value:
    full = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
    return concatenate(*full, axis=axis + 1)


def _concatenate_loops(types: Sequence[ArrayType], *, axis: int) -> Indexed:
    pieces = []
    offset = 0
    for operand, type_ in enumerate(types):
        if type_.shape[axis]:
            pieces.append((operand, offset, type_.shape[axis]))
        offset += type_.shape[axis]

    def value(point: Point, read: Callable[..., Expr]) -> Expr:
        result: Expr = Const(literal(0, types[0].dtype).value, types[0].dtype)
        for operand, first, size in reversed(pieces):
            place = point[axis] + -first
            source = (*point[:axis], place, *point[axis + 1 :])
            guard = within(place, 0, size)
            fill = None if guard is None else result
            result = read(operand, source, guard=guard, fill=fill)
        return result

    return Indexed(value)


concatenate: Primitive[Array] = define(
    "concatenate",
    doc="Operands one after another along an axis.",
    type=_concatenate_type,
    numpy=lambda *arrays, axis: np.concatenate(arrays, axis),
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
    batch=_concatenate_batch,
    loops=_concatenate_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(2), r.x(3), axis=0),
        case(r.x(2, 1), r.x(2, 3), r.x(2, 0), r.x(2, 2), axis=1),
        case(r.x(3), axis=0),
        fails(r.x(2, 2), r.x(3, 3), axis=0, saying="may differ along axis 0 only"),
    ],
)
