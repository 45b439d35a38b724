"""Ops that move elements without computing: broadcast, reshape, transpose, slice, pad, ...

    broadcast(x: f32[3]; shape=(2, 3), axes=(1,))  -> f32[2,3]
    reshape(x: f32[2,6]; shape=(3, 4))             -> f32[3,4]

Nearly all are `View`s: the lowering rewrites the reader's index, and nothing is copied. All of
them are linear, so their tangents are the same op applied to tangents. slice, pad and
concatenate live in `fxad.ops.arrays.slicing` and are offered here too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fxad.core.aligned import empty
from fxad.core.errors import ShapeError
from fxad.core.types import ArrayType
from fxad.ir.kernel import INDEX, Cast, Expr, Index, IndexValue, quotient, remainder
from fxad.ir.loops import Alias, Generate, Point, Pointwise, View
from fxad.ir.program import OPS
from fxad.ops.arrays.slicing import Shape, check_axes, concatenate, own, pad, sized, slice
from fxad.ops.base import ANY, Batched, Primitive, case, check_kind, define, fails, nonzero
from fxad.trace.tracer import bind

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

__all__ = [
    "barrier",
    "broadcast",
    "concatenate",
    "copy",
    "inverse",
    "iota",
    "name",
    "pad",
    "reshape",
    "reshape_source",
    "reverse",
    "slice",
    "transpose",
]

# ---------------------------------------------------------------- broadcast


def _broadcast_type(x: ArrayType, *, shape: Shape, axes: Shape) -> ArrayType:
    if len(axes) != x.ndim:
        raise ShapeError(f"broadcast: axes={axes} needs one entry per axis of {x}")
    if any(a >= b for a, b in pairwise(axes)):
        raise ShapeError(f"broadcast: axes={axes} must increase; transpose the operand first")
    for axis, size in zip(axes, x.shape, strict=True):
        if not 0 <= axis < len(shape) or shape[axis] != size:
            raise ShapeError(
                f"broadcast: {x} does not fit shape {shape} at axes {axes}: lengths must be equal "
                "(reshape axes of length 1 away first)"
            )
    return sized("broadcast", x.dtype, shape)


def _broadcast_numpy(x: np.ndarray, *, shape: Shape, axes: Shape) -> np.ndarray:
    aligned = [1] * len(shape)
    for axis, size in zip(axes, x.shape, strict=True):
        aligned[axis] = size
    repeated = empty(shape, x.dtype)  # parameters and states begin so: zeros, ones
    repeated[...] = x.reshape(aligned)
    return repeated


def _broadcast_transpose(ct: Value, args: Operands, *, shape: Shape, axes: Shape) -> Cotangents:
    new = tuple(a for a in range(len(shape)) if a not in axes)
    return [bind(OPS["sum"], ct, axes=new) if new else ct]


broadcast: Primitive[Array] = define(
    "broadcast",
    doc="Repeat along new axes: axis i of the operand becomes axis axes[i] of the result.",
    type=_broadcast_type,
    numpy=_broadcast_numpy,
    jvp="linear",
    transpose=_broadcast_transpose,
    batch=lambda size, batched, args, *, shape, axes: broadcast(
        args[0], shape=(size, *shape), axes=(0, *(a + 1 for a in axes))
    ),
    loops=lambda types, *, shape, axes: View(lambda point: tuple(point[a] for a in axes)),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(3), shape=(2, 3), axes=(1,)),
        case(r.x(3), shape=(3, 4), axes=(0,)),
        case(r.x(2, 3), shape=(2, 4, 3, 1), axes=(0, 2)),
        case(r.x(), shape=(2, 2), axes=()),
        case(r.x(0), shape=(2, 0), axes=(1,)),
        fails(r.x(1), shape=(3,), axes=(0,), saying="lengths must be equal"),
        fails(r.x(2, 3), shape=(3, 2), axes=(1, 0), saying="must increase"),
        fails(r.x(), shape=(2**62, 2), axes=(), saying="bytes"),
    ],
)

# ---------------------------------------------------------------- reshape


def _reshape_type(x: ArrayType, *, shape: Shape) -> ArrayType:
    result = sized("reshape", x.dtype, shape)
    if result.size != x.size:
        raise ShapeError(
            f"reshape: {x} has {x.size} elements, but shape {shape} holds {result.size}"
        )
    return result


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of axes of equal size: (old axes, new axes), those of length 1 left out."""
    left = [i for i, n in enumerate(old) if n != 1]
    right = [i for i, n in enumerate(new) if n != 1]
    groups = []
    while left:
        a, b = [left.pop(0)], [right.pop(0)]
        size_a, size_b = old[a[0]], new[b[0]]
        while size_a != size_b:
            if size_a < size_b:
                a.append(left.pop(0))
                size_a *= old[a[-1]]
            else:
                b.append(right.pop(0))
                size_b *= new[b[-1]]
        groups.append((a, b))
    return groups


def reshape_source(old: Shape, new: Shape, point: Point) -> Point:
    """Where element `point` of a reshape's result lies in its operand.

    Axes are regrouped as little as possible, so that splitting, merging, inserting and dropping
    axes give affine indices whenever the index functions can see it.
    """
    source = [Index()] * len(old)
    if 0 in old:
        return tuple(source)
    for old_axes, new_axes in _groups(old, new):
        linear = Index()
        for axis in new_axes:
            linear = linear * new[axis] + point[axis]
        stride = math.prod(old[a] for a in old_axes)
        for axis in old_axes:
            stride //= old[axis]
            part = quotient(linear, stride)
            source[axis] = part if axis == old_axes[0] else remainder(part, old[axis])
    return tuple(source)


def _reshape_loops(types: Sequence[ArrayType], *, shape: Shape) -> View:
    return View(lambda point: reshape_source(types[0].shape, shape, point))


reshape: Primitive[Array] = define(
    "reshape",
    doc="The same elements in row-major order under another shape.",
    type=_reshape_type,
    numpy=lambda x, *, shape: own(x).reshape(shape),
    jvp="linear",
    transpose=lambda ct, args, *, shape: [reshape(ct, shape=args[0].shape)],
    batch=lambda size, batched, args, *, shape: reshape(args[0], shape=(size, *shape)),
    loops=_reshape_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(2, 6), shape=(3, 4)),
        case(r.x(2, 6), shape=(2, 2, 3)),
        case(r.x(2, 3, 4), shape=(6, 1, 4)),
        case(r.x(1), shape=()),
        case(r.x(2, 0), shape=(0, 5)),
        fails(r.x(2, 3), shape=(5,), saying="6 elements"),
    ],
)

# ---------------------------------------------------------------- transpose, reverse


def _transpose_type(x: ArrayType, *, permutation: Shape) -> ArrayType:
    if sorted(permutation) != list(range(x.ndim)):
        raise ShapeError(f"transpose: {permutation} is not a permutation of the axes of {x}")
    return ArrayType(x.dtype, tuple(x.shape[p] for p in permutation))


def inverse(permutation: Sequence[int]) -> Shape:
    """The permutation that undoes `permutation`."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _transpose_loops(types: Sequence[ArrayType], *, permutation: Shape) -> View:
    back = inverse(permutation)
    return View(lambda point: tuple(point[b] for b in back))


transpose: Primitive[Array] = define(
    "transpose",
    doc="Reorder axes: axis i of the result is axis permutation[i] of the operand.",
    type=_transpose_type,
    numpy=lambda x, *, permutation: own(x.transpose(permutation)),
    jvp="linear",
    transpose=lambda ct, args, *, permutation: [transpose(ct, permutation=inverse(permutation))],
    batch=lambda size, batched, args, *, permutation: transpose(
        args[0], permutation=(0, *(p + 1 for p in permutation))
    ),
    loops=_transpose_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(2, 3), permutation=(1, 0)),
        case(r.x(2, 3, 4), permutation=(2, 0, 1)),
        case(r.x(), permutation=()),
        fails(r.x(2, 3), permutation=(0, 0), saying="not a permutation"),
    ],
)


def _reverse_type(x: ArrayType, *, axes: Shape) -> ArrayType:
    check_axes("reverse", axes, x)
    return x


def _reverse_loops(types: Sequence[ArrayType], *, axes: Shape) -> View:
    shape = types[0].shape
    return View(
        lambda point: tuple(
            i * -1 + (n - 1) if a in axes else i
            for a, (i, n) in enumerate(zip(point, shape, strict=True))
        )
    )


reverse: Primitive[Array] = define(
    "reverse",
    doc="Turn axes around.",
    type=_reverse_type,
    numpy=lambda x, *, axes: own(np.flip(x, axes)),
    jvp="linear",
    transpose=lambda ct, args, *, axes: [reverse(ct, axes=axes)],
    batch=lambda size, batched, args, *, axes: reverse(args[0], axes=tuple(a + 1 for a in axes)),
    loops=_reverse_loops,
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.x(2, 3), axes=(1,)),
        case(r.x(2, 3), axes=(0, 1)),
        fails(r.x(2), axes=(1,), saying="axis 1"),
    ],
)

# ---------------------------------------------------------------- iota and identities


def _iota_type(*, dtype: np.dtype, shape: Shape, axis: int) -> ArrayType:
    result = sized("iota", dtype, shape)
    check_kind("iota", result, "int float complex")
    check_axes("iota", (axis,), result)
    last = shape[axis] - 1  # narrow integers wrap, on purpose; of a long axis nobody expects it
    if dtype.kind in "iu" and last > max(np.iinfo(np.int32).max, np.iinfo(dtype).max):
        raise ShapeError(f"iota: {dtype} cannot count to the end of axis {axis} of {result}")
    return result


def _iota_numpy(*, dtype: np.dtype, shape: Shape, axis: int) -> np.ndarray:
    aligned = [1] * len(shape)
    aligned[axis] = shape[axis]
    line = np.arange(shape[axis], dtype=np.int64).astype(dtype)
    return own(np.broadcast_to(line.reshape(aligned), shape))


def _iota_loops(
    types: Sequence[ArrayType], *, dtype: np.dtype, shape: Shape, axis: int
) -> Generate:
    def value(point: Point) -> Expr:
        position = IndexValue(point[axis], INDEX)
        return position if dtype == INDEX else Cast(position, dtype)

    return Generate(value)


iota: Primitive[Array] = define(
    "iota",
    doc="Every element is its own position along an axis.",
    type=_iota_type,
    numpy=_iota_numpy,
    loops=_iota_loops,
    exact=True,
    dtypes="int float complex",
    samples=lambda r: [
        case(dtype=np.dtype("int32"), shape=(5,), axis=0),
        case(dtype=np.dtype("int64"), shape=(2, 3), axis=1),
        case(dtype=np.dtype("int8"), shape=(300,), axis=0),
        case(dtype=np.dtype("float32"), shape=(3, 2), axis=0),
        fails(dtype=np.dtype("int32"), shape=(2,), axis=1, saying="axis 1"),
        fails(dtype=np.dtype("bool"), shape=(2,), axis=0, saying="does not take"),
    ],
)

copy: Primitive[Array] = define(
    "copy",
    doc="The operand in memory of its own.",
    type=lambda x: x,
    numpy=own,
    jvp="linear",
    transpose=lambda ct, args: [ct],
    batch=lambda size, batched, args: copy(args[0]),
    loops=lambda types: Pointwise(lambda x: x),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [case(r.x(3)), case(r.x())],
)


def _barrier_jvp(primals: Values, tangents: Tangents, outs: Values) -> Tangents:
    """The tangents there are pass a barrier of their own."""
    passed = iter(barrier(*nonzero(tangents)))
    return tuple(None if t is None else next(passed) for t in tangents)


barrier: Primitive[tuple[Array, ...]] = define(
    "barrier",
    doc="The operands themselves; no pass looks through it or moves work across it.",
    type=lambda *types: types,
    numpy=lambda *arrays: arrays,
    jvp=_barrier_jvp,
    transpose=lambda ct, args: list(ct) if isinstance(ct, tuple) else [ct],
    batch=lambda size, batched, args: Batched(barrier(*args), tuple(batched)),
    loops=lambda types: tuple(Alias(i) for i in range(len(types))),
    weak="each",
    exact=True,
    dtypes=ANY,
    samples=lambda r: [case(r.x(2)), case(r.x(2), r.x(3, 1))],
)

name: Primitive[Array] = define(
    "name",
    doc="The operand itself, named for a checkpoint policy.",
    type=lambda x, *, name: x,
    numpy=lambda x, *, name: x,
    jvp=lambda primals, tangents, out, *, name: tangents[0],
    transpose=lambda ct, args, *, name: [ct],
    batch=lambda size, batched, args, *, name: bind(OPS["name"], args[0], name=name),
    loops=lambda types, *, name: Alias(),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [case(r.x(3), name="activations")],
)
