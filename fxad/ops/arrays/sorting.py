"""Ops that order: sort and top_k.

    sort(x, i, axis=0, keys=1)     # x: f32[5], i: i32[5] -> both in the order of x
    top_k(x, k=2)                  # x: f32[3,5] -> f32[3,2], i32[3,2]

NaN is larger than every number, and NaNs are equal; so are -0 and +0. Sorting is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Sort
from fxad.ops.arrays.gather import gather
from fxad.ops.arrays.movement import iota, transpose
from fxad.ops.arrays.reduce import widened
from fxad.ops.arrays.slicing import check_axes
from fxad.ops.base import Primitive, case, check_kind, define, fails, only, spread
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Tangents, Value, Values
    from fxad.trace.array import Array

# ---------------------------------------------------------------- sort


def _sort_type(*types: ArrayType, axis: int, keys: int) -> tuple[ArrayType, ...]:
    if not 1 <= keys <= len(types):
        raise TypeMismatch(f"sort: keys={keys} must be between 1 and the {len(types)} operands")
    for operand in types:
        if operand.shape != types[0].shape:
            raise ShapeError(f"sort: operands differ in shape: {types[0]} and {operand}")
    for key in types[:keys]:
        check_kind("sort: a key", key, "bool int float")
    check_axes("sort", (axis,), types[0])
    return types


def _sort_reference(*arrays: np.ndarray, axis: int, keys: int) -> tuple[np.ndarray, ...]:
    order = np.lexsort(tuple([widened(a) for a in reversed(arrays[:keys])]), axis=axis)
    if arrays[0].ndim == 1:
        return tuple([a[order] for a in arrays])
    return tuple([np.take_along_axis(a, order, axis) for a in arrays])


def take_along(x: Value, order: Value, axis: int) -> Value:
    """x[..., order[..., i, ...], ...] along one axis; positions of a row must differ."""
    last = type_of(x).ndim - 1
    swap = list(range(last + 1))
    swap[axis], swap[last] = last, axis
    moved, where = (transpose(v, permutation=tuple(swap)) for v in (x, order))
    taken = gather(moved, where, axes=(last,), batch=last, unique=True)
    return transpose(taken, permutation=tuple(swap))


def _sort_jvp(
    primals: Values, tangents: Tangents, outs: Values, *, axis: int, keys: int
) -> Tangents:
    """Tangents take the places their values took; an iota sorted along tells which."""
    shape = type_of(primals[0]).shape
    places = iota(dtype=dt.index_dtype(shape[axis]), shape=shape, axis=axis)
    order = sort(*primals[:keys], places, axis=axis, keys=keys)[-1]
    return tuple(None if t is None else take_along(t, order, axis) for t in tangents)


def _sort_batch(
    size: int, batched: Sequence[bool], args: Values, *, axis: int, keys: int
) -> Values:
    full = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
    return sort(*full, axis=axis + 1, keys=keys)


sort = define(
    "sort",
    doc="Sort all operands along an axis, ascending by the first `keys` of them.",
    type=_sort_type,
    numpy=_sort_reference,
    jvp=_sort_jvp,
    batch=_sort_batch,
    loops=lambda types, *, axis, keys: Sort(axis, keys),
    weak="each",
    exact=True,
    dtypes="bool int float",
    samples=lambda r: [
        case(r.x(9), axis=0, keys=1),
        case(r.x(3, 4), axis=1, keys=1),
        case(r.x(3, 4), axis=0, keys=1),
        case(r.x(40, low=0, high=3), r.i32(40, low=0, high=99), axis=0, keys=1),
        case(r.i32(12, low=0, high=2), r.x(12), r.i32(12, low=0, high=99), axis=0, keys=2),
        case(r.x(0, 3), axis=0, keys=1),
        case(r.x(1), axis=0, keys=1),
        fails(r.x(3), r.x(4), axis=0, keys=1, saying="differ in shape"),
        fails(r.x(3), axis=0, keys=2, saying="between 1 and the 1 operands"),
        fails(r.x(3), axis=1, keys=1, saying="axis 1 is not an axis"),
    ],
)

# ---------------------------------------------------------------- top_k


def _top_k_type(x: ArrayType, *, k: int) -> tuple[ArrayType, ArrayType]:
    check_kind("top_k", x, "bool int float")
    if not x.shape or not 0 <= k <= x.shape[-1]:
        raise ShapeError(f"top_k: k={k} does not fit the last axis of {x}")
    shape = (*x.shape[:-1], k)
    return ArrayType(x.dtype, shape), ArrayType(dt.index_dtype(x.shape[-1]), shape)


def _top_k_reference(x: np.ndarray, *, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending order of the reversed rows, reversed: of equals the first comes first."""
    rows = np.flip(widened(x), -1)
    order = np.flip(np.lexsort((rows,), axis=-1), -1)[..., :k]
    places = (x.shape[-1] - 1 - order).astype(dt.index_dtype(x.shape[-1]))
    return np.take_along_axis(x, places.astype(np.int64), -1), places


def _top_k_jvp(primals: Values, tangents: Tangents, outs: Values, *, k: int) -> Tangents:
    return take_along(only(tangents), outs[1], type_of(outs[1]).ndim - 1), None


top_k: Primitive[tuple[Array, ...]] = define(
    "top_k",
    doc="The k largest elements of the last axis, descending, and their positions (i32); of "
    "equal elements the first comes first, and NaN is the largest.",
    type=_top_k_type,
    numpy=_top_k_reference,
    jvp=_top_k_jvp,
    batch=lambda size, batched, args, *, k: top_k(args[0], k=k),
    loops=lambda types, *, k: Sort(types[0].ndim - 1, keys=1, largest=k),
    exact=True,
    dtypes="bool int float",
    samples=lambda r: [
        case(r.x(9), k=3),
        case(r.x(3, 4), k=4),
        case(r.x(2, 40, low=0, high=3), k=7),
        case(r.x(3, 4), k=0),
        case(r.x(2, 700), k=2),
        case(r.x(900, low=0, high=3), k=20),
        fails(r.x(3), k=4, saying="k=4 does not fit"),
        fails(r.x(), k=0, saying="does not fit the last axis"),
    ],
)
