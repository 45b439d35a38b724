"""New arrays: zeros and ones, ranges, grids, diagonals and triangles, functions of positions.

zeros((2, 3))      linspace(0, 1, 5)      eye(3)      meshgrid(x, y)      tril(a)
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.api.vectorise import vmap
from fxad.core import dtypes as dt
from fxad.core.errors import (
    AxisError,
    BadArgument,
    ConcretizationError,
    NumberOverflow,
    TypeMismatch,
)
from fxad.core.promotion import entry_of, is_python_scalar, promote
from fxad.core.semantics import semantics
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import (
    array,
    asarray,
    axis_index,
    cast,
    check_device,
    check_order,
    converted,
    full_of,
    promoted,
    shape_tuple,
    spread_to,
    value_of,
    vector_of,
    within,
)
from fxad.numpy.elementwise import clip, exp, log, sign, where
from fxad.numpy.manipulation import moveaxis, ravel
from fxad.numpy.weak import finish, gives_strong, strong, weak_as_first, weak_result
from fxad.trace.array import Array
from fxad.trace.convert import shaped
from fxad.trace.replay import by_numpy, replayed
from fxad.trace.tracer import Tracer

__all__ = [
    "arange", "astype", "copy", "diag", "diagflat", "diagonal", "empty", "empty_like", "eye",
    "frombuffer", "fromfunction", "full", "full_like", "geomspace", "identity", "indices",
    "linspace", "logspace", "meshgrid", "ones", "ones_like", "tri", "tril", "triu", "vander",
    "zeros", "zeros_like",
]  # fmt: skip


def _dtype(dtype: Any, default: np.dtype) -> np.dtype:
    return default if dtype is None else dt.canonicalize(dtype, explicit=True)


@replayed
def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of zeros (float32 unless dtype says otherwise).

    >>> jnp.zeros((2, 3))
    Array([[0., 0., 0.],
           [0., 0., 0.]], dtype=float32)
    >>> jnp.zeros(2, dtype=int)
    Array([0, 0], dtype=int32)
    """
    check_device(device, "zeros")
    type_ = ArrayType(_dtype(dtype, dt.default_float()), shape_tuple(shape, "zeros"))
    return full_of(0, type_)


@replayed
def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of ones.

    >>> jnp.ones((2, 3), jnp.int8)
    Array([[1, 1, 1],
           [1, 1, 1]], dtype=int8)
    """
    check_device(device, "ones")
    type_ = ArrayType(_dtype(dtype, dt.default_float()), shape_tuple(shape, "ones"))
    return full_of(1, type_)


empty = zeros


@replayed
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Array:
    """An array of one value, which may itself be an array that broadcasts to the shape.

    >>> jnp.full((2, 2), 7)
    Array([[7, 7],
           [7, 7]], dtype=int32)
    >>> jnp.full((2, 2), jnp.array([1.0, 2.0]))
    Array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    check_device(device, "full")
    sizes = shape_tuple(shape, "full")
    own, weak = entry_of(fill_value)
    wanted = _dtype(dtype, own)
    if is_python_scalar(fill_value):
        made = full_of(fill_value, ArrayType(wanted, sizes))
    else:
        made = spread_to(cast(value_of(fill_value), wanted), sizes)
    return made if semantics.filled_arrays_are_strong else finish(made, weak and dtype is None)


def _like(x: Any, dtype: Any, shape: Any) -> ArrayType:
    type_ = shaped(x)
    sizes = type_.shape if shape is None else shape_tuple(shape, "shape")
    return ArrayType(_dtype(dtype, type_.dtype), sizes)


@replayed
def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Zeros with a's shape and dtype.

    >>> jnp.zeros_like(jnp.array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    check_device(device, "zeros_like")
    return finish(full_of(0, _like(a, dtype, shape)), dtype is None and weak_result(a))


@replayed
def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Array:
    """Ones with a's shape and dtype.

    >>> jnp.ones_like(jnp.array([1, 2]), dtype=float)
    Array([1., 1.], dtype=float32)
    """
    check_device(device, "ones_like")
    return finish(full_of(1, _like(a, dtype, shape)), dtype is None and weak_result(a))


@replayed
def empty_like(
    prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Array:
    """Zeros with the prototype's shape and dtype.

    >>> jnp.empty_like(jnp.array([1, 2]))  # zeros
    Array([0, 0], dtype=int32)
    """
    return zeros_like(prototype, dtype, shape, device=device)


@replayed
def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Array:
    """One value with a's shape and dtype.

    >>> jnp.full_like(jnp.array([1, 2]), 7)
    Array([7, 7], dtype=int32)
    """
    check_device(device, "full_like")
    type_ = _like(a, dtype, shape)
    made = strong(full(type_.shape, fill_value, type_.dtype))
    if made is fill_value:
        made = OPS["convert"](made, dtype=type_.dtype)  # an array of our own, to mark
    of_number = getattr(fill_value, "ndim", 0) == 0
    return finish(made, dtype is None and of_number and weak_result(a))


def iota(dtype: Any, shape: Sequence[int], axis: int) -> Array:
    """Each element's position along `axis`."""
    sizes = shape_tuple(shape, "iota")
    return OPS["iota"](
        dtype=np.dtype(dtype), shape=sizes, axis=axis_index(axis, len(sizes), "iota")
    )


@replayed
def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None
) -> Array:
    """start, start + step, ... below stop; all arguments must be concrete numbers.

    >>> jnp.arange(5), jnp.arange(2, 10, 3)
    (Array([0, 1, 2, 3, 4], dtype=int32), Array([2, 5, 8], dtype=int32))
    >>> jnp.arange(0, 1, 0.25)
    Array([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    check_device(device, "arange")
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    try:
        bounds = [
            b.item() if isinstance(b, Array | np.generic | np.ndarray) else b
            for b in (start, stop, step)
        ]
    except ConcretizationError as error:
        raise error.of_a_shape("arange: a bound") from None
    if not all(is_python_scalar(b) for b in bounds):
        raise TypeMismatch(f"arange: bounds must be numbers, got {bounds}")
    start, stop, step = bounds
    if step == 0:
        raise BadArgument("arange: step must not be zero")
    kind = promote(*[entry_of(b) for b in bounds])[0]
    wanted = _dtype(dtype, kind if dt.is_inexact(kind) else dt.default_int())
    count = max(0, math.ceil((stop - start) / step))
    (count,) = shape_tuple(count, "arange")
    last = start + (count - 1) * step
    if dtype is None and dt.is_integer(wanted) and count:
        range_ = dt.iinfo(wanted)
        if not range_.min <= last <= range_.max:
            raise NumberOverflow(
                f"arange: {last} does not fit {wanted}; give a dtype, or use fxad.enable_x64()"
            )
    positions = OPS["iota"](
        dtype=wanted if not dt.is_bool(wanted) else dt.int32, shape=(count,), axis=0
    )
    if step < 0 and not dt.is_signed(wanted):
        return cast(cast_number(start, wanted) - positions * cast_number(-step, wanted), wanted)
    out = positions if step == 1 else positions * cast_number(step, wanted)
    out = out if start == 0 else out + cast_number(start, wanted)
    return cast(out, wanted)


def cast_number(value: Any, dtype: np.dtype) -> Any:
    """A Python number of the dtype's kind."""
    return float(value) if dt.is_float(dtype) else value if dt.is_complex(dtype) else int(value)


@replayed
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` evenly spaced values from start to stop, computed in `dtype` (integers: in floats).

    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    >>> jnp.linspace(0, 1, 4, endpoint=False)
    Array([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    check_device(device, "linspace")
    low, high = ends("linspace", start, stop, dtype)
    (num,) = shape_tuple(num, "linspace")
    wanted = low.dtype
    parts = num - 1 if endpoint else num
    shape = (num, *low.shape)
    position = cast(OPS["iota"](dtype=dt.real_of(wanted), shape=shape, axis=0), wanted)
    step = (high - low) / max(parts, 1)
    out = low + position * step
    if endpoint and num > 1:
        # The last point is exact.
        from_end = iota(dt.int32, shape, 0) == num - 1
        out = OPS["select"](from_end, spread_to(high, shape), out)
    if dtype is not None:
        target = _dtype(dtype, wanted)
        out = OPS["floor"](out) if dt.is_integer(target) else out
        out = cast(out, target)
    if axis != 0:
        order = list(range(1, len(shape)))
        order.insert(axis_index(axis, len(shape), "linspace"), 0)
        out = OPS["transpose"](out, permutation=tuple(order))
    return (out, step) if retstep else out


def ends(name: str, start: Any, stop: Any, dtype: Any) -> list[Array]:
    """Both ends of a range in the dtype to compute it in: the requested one, if it is inexact."""
    if dtype is not None and dt.is_inexact(target := dt.canonicalize(dtype, explicit=True)):
        given = [np.dtype(getattr(end, "dtype", type(end))) for end in (start, stop)]
        wide = dt.complex_of(target) if any(map(dt.is_complex, given)) else target
        start, stop = (array(end, wide) for end in (start, stop))
    return promoted(name, start, stop, inexact=True, numbers=False)


@replayed
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Array:
    """base ** linspace(start, stop).

    >>> jnp.logspace(0, 3, 4).round(2)
    Array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    low, high = ends("logspace", start, stop, dtype)
    points = linspace(low, high, num, endpoint, axis=axis)
    out = OPS["pow"](*promoted("logspace", base, points, numbers=False))
    return out if dtype is None else cast(out, _dtype(dtype, out.dtype))


@replayed
def eye(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None
) -> Array:
    """Ones on the k-th diagonal; k may be traced.

    >>> jnp.eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    check_device(device, "eye")
    shape = shape_tuple((N, N if M is None else M), "eye")
    return cast(OPS["eq"](*_diagonals(k, shape)), _dtype(dtype, dt.default_float()))


@replayed
def identity(n: int, dtype: Any = None) -> Array:
    """The n by n identity matrix.

    >>> jnp.identity(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@replayed
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Array:
    """Ones at and below the k-th diagonal; k may be traced.

    >>> jnp.tri(3)
    Array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    shape = shape_tuple((N, N if M is None else M), "tri")
    return cast(OPS["ge"](*_diagonals(k, shape)), _dtype(dtype, dt.default_float()))


def _diagonals(k: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Two numbers for each element of a matrix: equal on its k-th diagonal, and the first larger
    below it. k may be traced."""
    rows, columns = iota(dt.int32, shape, 0), iota(dt.int32, shape, 1)
    if not isinstance(k, Tracer):
        return rows + within(k, *shape), columns
    if k.shape or not dt.is_integer(k.dtype):
        raise TypeMismatch(f"a diagonal's number must be an int, not {k.type}")
    return rows + clip(cast(k, dt.int32), -shape[0], shape[1]), columns


def _triangle(m: Any, k: int, upper: bool) -> Array:
    value = value_of(m)
    if value.ndim < 2:
        raise TypeMismatch(f"tril/triu need at least two axes, not {value.type}")
    mask = tri(value.shape[-2], value.shape[-1], k - 1 if upper else k, dt.bool_)
    mask = spread_to(OPS["not"](mask) if upper else mask, value.shape)
    return OPS["select"](mask, value, full_of(0, value.type))


@replayed
@weak_as_first
def tril(m: Any, k: int = 0) -> Array:
    """The lower triangle; zeros elsewhere.

    >>> jnp.tril(jnp.arange(9).reshape(3, 3))
    Array([[0, 0, 0],
           [3, 4, 0],
           [6, 7, 8]], dtype=int32)
    """
    return _triangle(m, k, False)


@replayed
@weak_as_first
def triu(m: Any, k: int = 0) -> Array:
    """The upper triangle; zeros elsewhere.

    >>> jnp.triu(jnp.arange(9).reshape(3, 3), k=1)
    Array([[0, 1, 2],
           [0, 0, 5],
           [0, 0, 0]], dtype=int32)
    """
    return _triangle(m, k, True)


@replayed
def diag(v: Any, k: int = 0) -> Array:
    """A matrix with v on its k-th diagonal, or a matrix's k-th diagonal.

    >>> jnp.diag(jnp.array([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    >>> jnp.diag(jnp.arange(9).reshape(3, 3))
    Array([0, 4, 8], dtype=int32)
    """
    value, k = value_of(v), operator.index(k)
    if value.ndim == 1:
        size = value.shape[0] + abs(k)
        padded = OPS["pad"](
            value,
            full_of(0, ArrayType(value.dtype, ())),
            low=(max(k, 0),),
            high=(max(-k, 0),),
            interior=(0,),
        )
        mask = eye(size, k=k, dtype=dt.bool_)
        rows = OPS["broadcast"](padded, shape=(size, size), axes=(1,))
        return finish(OPS["select"](mask, rows, full_of(0, rows.type)), value.weak)
    return diagonal(value, k)


@replayed
@gives_strong
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two axes, as a new last axis.

    >>> jnp.diagonal(jnp.arange(9).reshape(3, 3), offset=1)
    Array([1, 5], dtype=int32)
    """
    value = value_of(a)
    first, second = (axis_index(x, value.ndim, "diagonal") for x in (axis1, axis2))
    if first == second:
        raise AxisError(f"diagonal: axes {(axis1, axis2)} name one axis twice")
    offset = within(offset, value.shape[first], value.shape[second])
    return _diagonal(value, offset=offset, first=first, second=second)


def _diagonal_numpy(a: np.ndarray, *, offset: int, first: int, second: int) -> np.ndarray:
    return a.diagonal(offset, first, second).copy()


def _diagonal_type(a: ArrayType, **axes: int) -> ArrayType:
    shaped = np.broadcast_to(np.zeros((), a.dtype), a.shape)  # without memory of that size
    return ArrayType(a.dtype, _diagonal_numpy(shaped, **axes).shape)


@by_numpy(type=_diagonal_type, numpy=_diagonal_numpy)
def _diagonal(value: Array, *, offset: int, first: int, second: int) -> Array:
    order = [i for i in range(value.ndim) if i not in (first, second)] + [first, second]
    value = OPS["transpose"](value, permutation=tuple(order))
    rows, columns = value.shape[-2:]
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    index = arange(count)
    return value[..., index + max(-offset, 0), index + max(offset, 0)]


@replayed
def meshgrid(
    *xs: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> tuple[Array, ...]:
    """Coordinate arrays from coordinate vectors.

    >>> x, y = jnp.meshgrid(jnp.arange(3), jnp.arange(2))
    >>> x
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    >>> y
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    if not copy:
        raise BadArgument("meshgrid: arrays share no memory; pass copy=True")
    if indexing not in ("xy", "ij"):
        raise BadArgument(f"meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}")
    values = [vector_of(x, "meshgrid") for x in xs]
    order = list(range(len(values)))
    if indexing == "xy" and len(values) > 1:
        order[0], order[1] = 1, 0
    sizes = [0] * len(values)
    for value, axis in zip(values, order, strict=True):
        sizes[axis] = value.shape[0]
    out = []
    for value, axis in zip(values, order, strict=True):
        if sparse:
            shape = [1] * len(values)
            shape[axis] = value.shape[0]
            out.append(OPS["reshape"](value, shape=tuple(shape)))
        else:
            out.append(OPS["broadcast"](value, shape=tuple(sizes), axes=(axis,)))
    return tuple(out)


@replayed
def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """Index grids stacked along a new first axis; sparse: a tuple of them, each with its own axis
    only.

    >>> rows, columns = jnp.indices((2, 3))
    >>> rows
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    >>> columns
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    shape = shape_tuple(dimensions, "indices")
    wanted = _dtype(dtype, dt.default_int())
    if sparse:
        open_ = [tuple(n if j == i else 1 for j in range(len(shape))) for i, n in enumerate(shape)]
        return tuple(iota(wanted, own, i) for i, own in enumerate(open_))
    grids = [iota(wanted, shape, i) for i in range(len(shape))]
    return OPS["concatenate"](*[OPS["reshape"](g, shape=(1, *shape)) for g in grids], axis=0)


@replayed
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Array:
    """Powers of x as columns.

    >>> jnp.vander(jnp.array([1, 2, 3]), 3)
    Array([[1, 1, 1],
           [4, 2, 1],
           [9, 3, 1]], dtype=int32)
    """
    value = value_of(x)
    count = value.shape[0] if N is None else N
    shape = shape_tuple((value.shape[0], count), "vander")
    if not count:
        return zeros(shape, value.dtype)
    powers = range(count) if increasing else reversed(range(count))
    columns = [OPS["integer_pow"](value, n=p) if p else full_of(1, value.type) for p in powers]
    return OPS["concatenate"](*[OPS["reshape"](c, shape=(*c.shape, 1)) for c in columns], axis=1)


def copy(a: Any, order: str | None = None) -> Array:
    """The same values in their own memory. Raises UnsupportedError for an order but C, K and A.

    >>> jnp.copy(jnp.array([1, 2]))
    Array([1, 2], dtype=int32)
    """
    check_order("copy", order)
    return array(a, copy=True)


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """Converted to a dtype.

    >>> jnp.astype(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    check_device(device, "astype")
    return converted(value_of(x), dt.canonicalize(dtype, explicit=True))


@replayed
@gives_strong
def diagflat(v: Any, k: int = 0) -> Array:
    """A matrix with the flattened input on its k-th diagonal.

    >>> jnp.diagflat(jnp.array([[1, 2]]), 1)
    Array([[0, 1, 0],
           [0, 0, 2],
           [0, 0, 0]], dtype=int32)
    """
    return diag(ravel(asarray(v)), k)


@replayed
def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Array:
    """Numbers spaced evenly on a log scale, from start to stop, which are exact. Both have the same
    sign, or are complex.

    >>> jnp.geomspace(1, 1000, 4).round(2)
    Array([   1.,   10.,  100., 1000.], dtype=float32)
    """
    low, high = ends("geomspace", start, stop, dtype)
    side = sign(low)
    points = side * exp(linspace(log(low / side), log(high / side), num, endpoint))
    place = iota(dt.int32, points.shape, 0)
    points = where(place == 0, low, points)
    points = where(place == num - 1, high, points) if endpoint and num > 1 else points
    points = points if dtype is None else cast(points, dt.canonicalize(dtype, explicit=True))
    return moveaxis(points, 0, axis)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any
) -> Any:
    """function(coordinates of axis 0, axis 1, ..., **kwargs) at each point of a grid, mapped over
    it by `vmap`: its results' own axes come last.

    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    sizes = shape_tuple(shape, "fromfunction")
    places = [arange(size, dtype=dtype) for size in sizes]
    mapped: Callable[..., Any] = functools.partial(function, **kwargs)
    for at in reversed(range(len(sizes))):
        mapped = vmap(mapped, tuple(0 if i == at else None for i in range(len(sizes))))
    return mapped(*places)


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Array:
    """An array of a buffer's bytes (copied).

    >>> jnp.frombuffer(b"\\x01\\x02", jnp.uint8)
    Array([1, 2], dtype=uint8)
    """
    return asarray(np.frombuffer(buffer, dt.canonicalize(dtype, explicit=True), count, offset))
