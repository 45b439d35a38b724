"""Ops that combine axes away: sum, prod, extrema, all, any, argmax, argmin.

    sum(x, axes=(0, 2))                           # x: f32[2,3,4] -> f32[3]
    argmax(x, axis=1, dtype=np.dtype("int32"))    # x: f32[2,3] -> i32[2]

`axes` is a sorted tuple of axes counted from 0. Sums and products of half-width floats
accumulate in f32; integers wrap. References of sums add in f64, so they are nearly exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.core.types import ArrayType
from fxad.ir.loops import Reduce
from fxad.ir.rewrite import literal
from fxad.ops.arrays.movement import broadcast, concatenate, reshape, slice, transpose
from fxad.ops.arrays.slicing import check_axes
from fxad.ops.base import (
    Primitive,
    Sample,
    case,
    check_kind,
    define,
    fails,
    narrow,
    only,
    operand_type,
)
from fxad.ops.elements.arithmetic import add, div, mul
from fxad.ops.elements.compare import eq, select
from fxad.ops.elements.convert import convert
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, SamplesRule, Tangents, Value, Values
    from fxad.trace.array import Array

Axes = tuple[int, ...]
SUMS = {"f16": 1, "bf16": 1, "f32": 16, "f64": 32, "c64": 32, "c128": 32}


def widened(x: np.ndarray) -> np.ndarray:
    """Half-width floats as f32, which NumPy handles fully; anything else as it is."""
    return x.astype(dt.float32) if dt.is_float(x.dtype) and x.dtype.itemsize < 4 else x


def kept_axes(ndim: int, axes: Axes) -> Axes:
    return tuple(a for a in range(ndim) if a not in axes)


def _type(name: str, allowed: str, empty: bool = True) -> Callable[..., ArrayType]:
    def rule(x: ArrayType, *, axes: Axes) -> ArrayType:
        check_kind(name, x, allowed)
        check_axes(name, axes, x)
        if list(axes) != sorted(axes):
            raise ShapeError(f"{name}: axes {axes} must be sorted")
        if not empty and 0 in [x.shape[a] for a in axes]:
            raise ShapeError(f"{name}: {x} has no elements along axes {axes}, so no {name[:3]}")
        return x.with_shape(tuple(x.shape[a] for a in kept_axes(x.ndim, axes)))

    return rule


def _samples(empty: bool) -> SamplesRule:
    def samples(r: Draws) -> list[Sample]:
        zero_size = case(r.x(0, 3), axes=(0,))
        if not empty:
            zero_size = fails(r.x(0, 3), axes=(0,), saying="no elements along axes (0,)")
        return [
            case(r.x(3, 4), axes=(1,)),
            case(r.x(3, 4), axes=(0,)),
            case(r.x(2, 3, 5), axes=(0, 2)),
            case(r.x(7), axes=(0,)),
            case(r.x(), axes=()),
            case(r.x(2, 0), axes=(0,)),
            zero_size,
            fails(r.x(3), axes=(1,), saying="axis 1 is not an axis"),
            fails(r.x(2, 3), axes=(1, 0), saying="must be sorted"),
        ]

    return samples


def _reduction(
    name: str, monoid: str, allowed: str, *, empty: bool = True, **rules: Any
) -> Primitive[Array]:
    """A reduction over `axes` whose result has the operand's dtype."""

    def batch(size: int, batched: Sequence[bool], args: Values, *, axes: Axes) -> Value:
        return op(args[0], axes=tuple(a + 1 for a in axes))

    op = define(
        name,
        type=_type(name, allowed, empty),
        batch=batch,
        loops=lambda types, *, axes: Reduce(monoid, axes),
        dtypes=allowed,
        samples=_samples(empty),
        **rules,
    )
    return op


# ---------------------------------------------------------------- sum and prod


def _sum_reference(x: np.ndarray, *, axes: Axes) -> np.ndarray:
    if dt.is_integer(x.dtype):
        return np.asarray(np.add.reduce(x, axes, x.dtype))
    wide = dt.complex128 if dt.is_complex(x.dtype) else dt.float64
    return narrow(np.add.reduce(x, axes, wide), x.dtype)


def _sum_transpose(ct: Value, args: Operands, *, axes: Axes) -> Cotangents:
    return [spread_back(ct, operand_type(args[0]).shape, axes)]


def spread_back(value: Value, shape: tuple[int, ...], axes: Axes) -> Value:
    """Repeat a reduction's result along the axes it was reduced over."""
    return broadcast(value, shape=shape, axes=kept_axes(len(shape), axes))


def _prod_reference(x: np.ndarray, *, axes: Axes) -> np.ndarray:
    wide = widened(x)
    return narrow(wide.prod(axes, dtype=wide.dtype), x.dtype)


def _prod_jvp(primals: Values, tangents: Tangents, out: Value, *, axes: Axes) -> Value | None:
    """A tree of products of pairs (value, tangent): exact with zeros, to every order."""
    shape = type_of(primals[0]).shape
    kept = kept_axes(len(shape), axes)
    lead = tuple(shape[a] for a in kept)
    count = math.prod(shape[a] for a in axes)
    if count == 0:
        return None
    x, dx = (
        reshape(transpose(v, permutation=(*kept, *axes)), shape=(*lead, count))
        for v in (primals[0], only(tangents))
    )
    while count > 1:
        half = count // 2
        a, da, b, db = (cut(v, i * half, half) for i in (0, 1) for v in (x, dx))
        pair, d_pair = mul(a, b), add(mul(da, b), mul(a, db))
        if count % 2:
            pair, d_pair = (
                concatenate(v, cut(rest, count - 1, 1), axis=len(lead))
                for v, rest in ((pair, x), (d_pair, dx))
            )
        x, dx, count = pair, d_pair, half + count % 2
    return reshape(dx, shape=lead)


def cut(x: Value, first: int, count: int, axis: int = -1) -> Value:
    """`count` positions of one axis, from `first` on."""
    shape = type_of(x).shape
    axis = axis % len(shape)
    start, stop = [0] * len(shape), list(shape)
    start[axis], stop[axis] = first, first + count
    return slice(x, start=tuple(start), stop=tuple(stop), step=(1,) * len(shape))


sum = _reduction(
    "sum",
    "add",
    "float complex int",
    doc="Sum over axes.",
    numpy=_sum_reference,
    jvp="linear",
    transpose=_sum_transpose,
    ulp=SUMS,
)
prod = _reduction(
    "prod",
    "mul",
    "float complex int",
    doc="Product over axes.",
    numpy=_prod_reference,
    jvp=_prod_jvp,
    ulp={**SUMS, "c64": 64, "c128": 64},
)

# ---------------------------------------------------------------- extrema, all, any


def _extremum_jvp(primals: Values, tangents: Tangents, out: Value, *, axes: Axes) -> Value:
    """The mean of the tangents of all elements that reach the extremum."""
    x, dtype = primals[0], type_of(out).dtype
    reaches = eq(x, spread_back(out, type_of(x).shape, axes))
    total = sum(select(reaches, only(tangents), literal(0, dtype)), axes=axes)
    return div(total, sum(convert(reaches, dtype=dtype), axes=axes))


def _plain(function: np.ufunc) -> Callable[..., np.ndarray]:
    def rule(x: np.ndarray, *, axes: Axes) -> np.ndarray:
        return np.asarray(function.reduce(widened(x), axes)).astype(x.dtype, copy=False)

    return rule


max_reduce = _reduction(
    "max_reduce",
    "max",
    "bool int float",
    empty=False,
    doc="Largest element over axes; NaN if there is one. Ties share the gradient evenly.",
    numpy=_plain(np.maximum),
    jvp=_extremum_jvp,
    exact=True,
)
min_reduce = _reduction(
    "min_reduce",
    "min",
    "bool int float",
    empty=False,
    doc="Smallest element over axes; NaN if there is one. Ties share the gradient evenly.",
    numpy=_plain(np.minimum),
    jvp=_extremum_jvp,
    exact=True,
)
all = _reduction(
    "all",
    "and",
    "bool",
    doc="Whether all are true; true of none.",
    numpy=_plain(np.logical_and),
    exact=True,
)
any = _reduction(
    "any",
    "or",
    "bool",
    doc="Whether any is true; false of none.",
    numpy=_plain(np.logical_or),
    exact=True,
)

# ---------------------------------------------------------------- argmax, argmin


def _position(name: str, function: Callable[..., Any], doc: str) -> Primitive[Array]:
    def type_rule(x: ArrayType, *, axis: int, dtype: np.dtype) -> ArrayType:
        check_kind(name, x, "bool int float")
        check_kind(f"{name}: the result", ArrayType(dtype, ()), "int")
        check_axes(name, (axis,), x)
        if x.shape[axis] == 0:
            raise ShapeError(f"{name}: {x} has no elements along axis {axis}")
        if x.shape[axis] - 1 > np.iinfo(dtype).max:
            raise ShapeError(f"{name}: {dtype} cannot count to the end of axis {axis} of {x}")
        return ArrayType(dtype, x.shape[:axis] + x.shape[axis + 1 :])

    def batch(
        size: int, batched: Sequence[bool], args: Values, *, axis: int, dtype: np.dtype
    ) -> Value:
        return op(args[0], axis=axis + 1, dtype=dtype)

    op = define(
        name,
        doc=doc,
        type=type_rule,
        numpy=lambda x, *, axis, dtype: np.asarray(function(widened(x), axis)).astype(dtype),
        batch=batch,
        loops=lambda types, *, axis, dtype: Reduce(name, (axis,)),
        weak=(),
        exact=True,
        dtypes="bool int float",
        samples=lambda r: [
            case(r.x(3, 4), axis=1, dtype=dt.int32),
            case(r.x(3, 4), axis=0, dtype=dt.int64),
            case(r.x(40, low=0, high=3), axis=0, dtype=dt.int32),
            case(r.x(0, 4), axis=1, dtype=dt.int32),
            fails(r.x(3, 0), axis=1, dtype=dt.int32, saying="no elements along axis 1"),
            fails(r.x(3), axis=1, dtype=dt.int32, saying="axis 1 is not an axis"),
            fails(r.x(3), axis=0, dtype=dt.float32, saying="does not take"),
            fails(r.x(129), axis=0, dtype=dt.int8, saying="cannot count to the end"),
        ],
    )
    return op


argmax = _position(
    "argmax", np.argmax, "Position of the largest element, the first of equals; NaN wins."
)
argmin = _position(
    "argmin", np.argmin, "Position of the smallest element, the first of equals; NaN wins."
)
