"""The matrix product over any axes.

    dot(a: f32[m,k], b: f32[k,n]; contract=((1,), (0,)), batch=((), ()), dtype=f32)  -> f32[m,n]

The result's axes are the batch axes, then the free axes of a, then those of b, each in order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Contract
from fxad.ir.program import OPS
from fxad.ops.arrays.movement import transpose
from fxad.ops.arrays.slicing import check_axes, sized
from fxad.ops.base import (
    Primitive,
    Sample,
    Unknown,
    case,
    check_kind,
    define,
    fails,
    known,
    value_of,
)
from fxad.trace.tracer import bind, type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

Axes = tuple[int, ...]
Pair = tuple[Axes, Axes]
KINDS = "int float complex"


def free_axes(ndim: int, contract: Axes, batch: Axes) -> Axes:
    """Axes that are neither contracted nor batch axes, in order."""
    return tuple([i for i in range(ndim) if i not in contract and i not in batch])


def accumulator(operand: np.dtype, result: np.dtype) -> np.dtype:
    """Where products are summed: float32 for narrower floats, else the result's dtype."""
    if dt.is_float(operand) and result.itemsize < 4:
        return dt.float32
    return result


def _dot_type(
    a: ArrayType, b: ArrayType, *, contract: Pair, batch: Pair, dtype: np.dtype
) -> ArrayType:
    if a.dtype != b.dtype:
        raise TypeMismatch(f"dot: {a} and {b} differ in dtype; convert one side")
    check_kind("dot", a, KINDS)
    check_result(a, b, dtype)
    return product_type("dot", a, b, contract, batch, dtype)


def check_result(a: ArrayType, b: ArrayType, dtype: np.dtype) -> None:
    """Raise TypeMismatch unless sums of products of such elements may have this dtype."""
    narrower = dtype != a.dtype and dtype.itemsize <= a.dtype.itemsize
    if dt.kind_of(dtype) != dt.kind_of(a.dtype) or narrower:
        raise TypeMismatch(
            f"dot: the result of {a} and {b} cannot be {dt.short_name(dtype)}; it must be their "
            "dtype or a wider one of its kind"
        )


def product_type(
    name: str, a: ArrayType, b: ArrayType, contract: Pair, batch: Pair, dtype: np.dtype
) -> ArrayType:
    """The type of a product whose elements are of this dtype. Raises ShapeError."""
    for side, type_ in enumerate((a, b)):
        check_axes(name, (*batch[side], *contract[side]), type_)
    for what, (left, right) in (("contracted", contract), ("batch", batch)):
        sizes = [a.shape[i] for i in left], [b.shape[i] for i in right]
        if sizes[0] != sizes[1]:
            raise ShapeError(
                f"{name}: {what} axes {left} of {a} and {right} of {b} differ in length: "
                f"{sizes[0]} and {sizes[1]}"
            )
    shape = [a.shape[i] for i in batch[0]]
    shape += [a.shape[i] for i in free_axes(a.ndim, contract[0], batch[0])]
    shape += [b.shape[i] for i in free_axes(b.ndim, contract[1], batch[1])]
    return sized(name, dtype, tuple(shape))


def dot_numpy(
    a: np.ndarray, b: np.ndarray, *, contract: Pair, batch: Pair, dtype: np.dtype
) -> np.ndarray:
    """The product in NumPy."""
    wide = accumulator(a.dtype, dtype)
    plain = a.ndim == b.ndim == 2 and contract == ((1,), (0,)) and not batch[0]
    if plain and a.dtype is wide is dtype:
        return np.matmul(a, b)
    (a_order, a_shape), (b_order, b_shape), shape = _as_matrices(a.shape, b.shape, contract, batch)
    a = a.transpose(a_order).reshape(a_shape)
    b = b.transpose(b_order).reshape(b_shape)
    product = np.matmul(a.astype(wide, copy=False), b.astype(wide, copy=False))
    return product.astype(dtype, copy=False).reshape(shape)


@functools.lru_cache(maxsize=4096)
def _as_matrices(a: Axes, b: Axes, contract: Pair, batch: Pair) -> tuple[Pair, Pair, Axes]:
    """Of operands of these shapes: (order of axes, shape [lanes, rows, columns]) that makes
    matrices of each, and the shape of their product."""
    left = free_axes(len(a), contract[0], batch[0])
    right = free_axes(len(b), contract[1], batch[1])
    lanes, rows, depth = (tuple([a[i] for i in axes]) for axes in (batch[0], left, contract[0]))
    columns = tuple([b[i] for i in right])
    sizes = tuple(map(math.prod, (lanes, rows, depth, columns)))
    return (
        ((*batch[0], *left, *contract[0]), sizes[:3]),
        ((*batch[1], *contract[1], *right), (sizes[0], *sizes[2:])),
        lanes + rows + columns,
    )


# The rules of a product, whichever way it is computed: `product(a, b, contract=..., batch=...)`.
Product = Callable[..., "Value"]


def product_jvp(
    product: Product, primals: Values, tangents: Tangents, contract: Pair, batch: Pair
) -> Value:
    """Tangent of a product."""
    a, b = primals
    da, db = tangents
    pairs = {"contract": contract, "batch": batch}
    if da is None:
        return product(a, db, **pairs)
    if db is None:
        return product(da, b, **pairs)
    return bind(OPS["add"], product(da, b, **pairs), product(a, db, **pairs))


def _convert(x: Value, dtype: np.dtype) -> Value:
    return x if type_of(x).dtype == dtype else bind(OPS["convert"], x, dtype=dtype)


def _operand_cotangent(
    product: Product,
    side: int,
    ct: Value,
    operand: Unknown,
    other: Value,
    contract: Pair,
    batch: Pair,
) -> Value:
    """Cotangent of one operand: the cotangent times the other operand over its free axes.

    Of the two orders of that product the one that needs no transposition afterwards is taken.
    """
    ct_type, other_type = type_of(ct), type_of(other)
    other = _convert(other, ct_type.dtype)
    mine, theirs = contract[side], contract[1 - side]
    lanes = tuple(range(len(batch[0])))
    own_free = free_axes(operand.type.ndim, mine, batch[side])
    other_free = free_axes(other_type.ndim, theirs, batch[1 - side])
    first = len(lanes) + (len(own_free) if side == 0 else 0)
    ct_axes = tuple(range(first, first + len(other_free)))
    matched = tuple(own for _, own in sorted(zip(theirs, mine, strict=True)))
    other_batch = batch[1 - side]
    ct_first = (*batch[side], *own_free, *matched)
    other_first = (*batch[side], *matched, *own_free)
    if _is_sorted(other_first) or (side == 1 and not _is_sorted(ct_first)):
        pairs = {"contract": (other_free, ct_axes), "batch": (other_batch, lanes)}
        order, result = other_first, product(other, ct, **pairs)
    else:
        pairs = {"contract": (ct_axes, other_free), "batch": (lanes, other_batch)}
        order, result = ct_first, product(ct, other, **pairs)
    if not _is_sorted(order):
        result = transpose(result, permutation=tuple(map(order.index, range(len(order)))))
    return _convert(result, operand.dtype)


def _is_sorted(axes: Axes) -> bool:
    return axes == tuple(range(len(axes)))


def product_transpose(
    product: Product, ct: Value, args: Operands, contract: Pair, batch: Pair
) -> Cotangents:
    """Cotangents of the operands of a product."""
    a, b = args
    da = db = None
    if not known(a):
        da = _operand_cotangent(product, 0, ct, a, value_of(b), contract, batch)
    if not known(b):
        db = _operand_cotangent(product, 1, ct, b, value_of(a), contract, batch)
    return [da, db]


def product_batch(
    product: Product, batched: Sequence[bool], args: Values, contract: Pair, batch: Pair
) -> Value:
    """A product with lanes.

    A lane axis of both operands is a batch axis; of one operand, a free axis moved first."""
    sides = range(2)
    moved = [tuple(i + batched[s] for i in contract[s]) for s in sides]
    lanes = [tuple(i + batched[s] for i in batch[s]) for s in sides]
    if all(batched):
        lanes = [(0, *axes) for axes in lanes]
    pairs = {"contract": (moved[0], moved[1]), "batch": (lanes[0], lanes[1])}
    result = product(*args, **pairs)
    if all(batched):
        return result
    place = len(batch[0])
    if batched[1]:
        place += len(free_axes(type_of(args[0]).ndim, contract[0], batch[0]))
    if place == 0:
        return result
    rest = (i for i in range(type_of(result).ndim) if i != place)
    return transpose(result, permutation=(place, *rest))


def _dot_jvp(
    primals: Values, tangents: Tangents, out: Value, *, contract: Pair, batch: Pair, dtype: np.dtype
) -> Value:
    return product_jvp(functools.partial(dot, dtype=dtype), primals, tangents, contract, batch)


def _dot_transpose(
    ct: Value, args: Operands, *, contract: Pair, batch: Pair, dtype: np.dtype
) -> Cotangents:
    product = functools.partial(dot, dtype=type_of(ct).dtype)
    return product_transpose(product, ct, args, contract, batch)


def _dot_batch(
    size: int,
    batched: Sequence[bool],
    args: Values,
    *,
    contract: Pair,
    batch: Pair,
    dtype: np.dtype,
) -> Value:
    return product_batch(functools.partial(dot, dtype=dtype), batched, args, contract, batch)


def _dot_samples(r: Draws) -> list[Sample]:
    a, b, t = r.x(3, 4), r.x(4, 5), r.x(2, 3, 4)
    kind = {"dtype": a.dtype}
    matrix = {"contract": ((1,), (0,)), "batch": ((), ()), **kind}
    return [
        case(a, b, **matrix),
        case(r.x(5, 4), a, contract=((1,), (1,)), batch=((), ()), **kind),
        case(t, r.x(2, 4, 5), contract=((2,), (1,)), batch=((0,), (0,)), **kind),
        case(t, r.x(5, 4, 2), contract=((2,), (1,)), batch=((0,), (2,)), **kind),
        case(t, r.x(4, 3, 5), contract=((1, 2), (1, 0)), batch=((), ()), **kind),
        case(r.x(4), r.x(4), contract=((0,), (0,)), batch=((), ()), **kind),
        case(a, r.x(4, 3), contract=((1,), (0,)), batch=((0,), (1,)), **kind),
        case(r.x(2), r.x(3), contract=((), ()), batch=((), ()), **kind),
        case(r.x(2, 0), r.x(0, 3), **matrix),
        fails(a, r.x(5, 4), **matrix, saying="differ in length"),
        fails(a, b, contract=((2,), (0,)), batch=((), ()), **kind, saying="axis 2"),
    ]


dot: Primitive[Array] = define(
    "dot",
    doc="Sum of products over contract axes; f16 and bf16 accumulate in f32, integers wrap.",
    type=_dot_type,
    numpy=dot_numpy,
    jvp=_dot_jvp,
    transpose=_dot_transpose,
    batch=_dot_batch,
    loops=lambda types, *, contract, batch, dtype: Contract(contract, batch),
    ulp={"f16": 1, "bf16": 1, "f32": 8, "f64": 8, "c64": 16, "c128": 16},
    dtypes=KINDS,
    samples=_dot_samples,
)
