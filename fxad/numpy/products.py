"""Products of vectors and matrices: matmul, dot, tensordot, outer, kron, cross, ...

matmul(a, b)      tensordot(a, b, 2)
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.precision import DotAlgorithmPreset, Precision, default_terms, terms_of
from fxad.ir.program import OPS
from fxad.numpy.core import (
    axis_index,
    cast,
    full_of,
    no_out,
    promoted,
    result_shape,
    spread_to,
    sum_dtype,
    value_of,
    within,
)
from fxad.numpy.elementwise import multiply
from fxad.numpy.manipulation import moveaxis, reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import by_value, replayed
from fxad.trace.tracer import type_of

__all__ = [
    "cross", "dot", "inner", "kron", "matmul", "matvec", "outer",
    "tensordot", "trace", "vdot", "vecdot", "vecmat",
]  # fmt: skip


by_value(Precision)
by_value(DotAlgorithmPreset)


def product(
    a: Any,
    b: Any,
    contract: tuple,
    batch: tuple = ((), ()),
    wide: Any = None,
    precision: Any = None,
) -> Array:
    """`dot` with the result dtype that promotion gives (or `preferred_element_type`).

    A `precision` that means parts is for float32; where it is given, not the default, dtypes that
    hold more raise TypeMismatch. Narrower floats are summed in float32 anyway.
    """
    dtype = type_of(a).dtype
    terms = default_terms() if precision is None else terms_of(precision)
    if dt.is_bool(dtype):
        out = OPS["dot"](
            cast(a, dt.int32), cast(b, dt.int32), contract=contract, batch=batch, dtype=dt.int32
        )
        return OPS["ne"](out, 0)
    wanted = dtype if wide is None else dt.canonicalize(wide, explicit=True)
    if terms is not None and dtype == wanted == dt.float32:
        return OPS["dot_by_parts"](a, b, contract=contract, batch=batch, terms=terms)
    if terms is not None and precision is not None and not _fits_float32(dtype, wanted):
        raise TypeMismatch(
            f"precision {precision} is for products of float32 with float32 results, not of "
            f"{type_of(a)} and {type_of(b)} with results of {dt.short_name(wanted)}"
        )
    return OPS["dot"](a, b, contract=contract, batch=batch, dtype=wanted)


def _fits_float32(*dtypes: np.dtype) -> bool:
    return all(dt.is_float(d) and d.itemsize <= 4 for d in dtypes)


@replayed
def matmul(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Matrix product over the last two axes; leading axes broadcast, vectors are rows or
    columns.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    >>> jnp.matmul(jnp.ones((5, 2, 3)), jnp.ones((3, 4))).shape
    (5, 2, 4)
    """
    x, y = promoted("matmul", a, b, numbers=False, broadcast=False)
    how = {"wide": preferred_element_type, "precision": precision}
    left, right = type_of(x).shape, type_of(y).shape
    nx, ny = len(left), len(right)
    if nx == 0 or ny == 0:
        raise ShapeError("matmul: operands must have at least one axis; use multiply for scalars")
    if left[-1] != right[-2 if ny > 1 else 0]:
        raise ShapeError(
            f"matmul: {type_of(x)} @ {type_of(y)}: the last axis of the first ({left[-1]}) must "
            f"match axis {max(ny - 2, 0)} of the second ({right[-2 if ny > 1 else 0]})"
        )
    if ny <= 2:
        return product(x, y, ((nx - 1,), (builtins.max(ny - 2, 0),)), **how)
    if nx == 1:
        return product(y, x, ((ny - 2,), (0,)), **how)
    lead = result_shape("matmul", [left[:-2], right[:-2]])
    if left[:-2] == right[:-2]:
        axes = tuple(range(len(lead)))
        return product(x, y, ((nx - 1,), (ny - 2,)), (axes, axes), **how)
    x = spread_to(x, (*lead, *left[-2:]))
    y = spread_to(y, (*lead, *right[-2:]))
    rank, axes = len(lead), tuple(range(len(lead)))
    return product(x, y, ((rank + 1,), (rank,)), (axes, axes), **how)


@replayed
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """NumPy's dot: sum over the last axis of a and the second to last of b.

    >>> jnp.dot(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    >>> jnp.dot(jnp.ones((2, 3)), jnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = promoted("dot", a, b, numbers=False, broadcast=False)
    if not type_of(x).ndim or not type_of(y).ndim:
        return OPS["mul"](*promoted("dot", x, y))
    axis = builtins.max(type_of(y).ndim - 2, 0)
    _check_sizes("dot", x, y, (type_of(x).ndim - 1,), (axis,))
    contract = (type_of(x).ndim - 1,), (axis,)
    return product(x, y, contract, wide=preferred_element_type, precision=precision)


def _check_sizes(name: str, x: Any, y: Any, left: tuple, right: tuple) -> None:
    for i, j in zip(left, right, strict=True):
        if type_of(x).shape[i] != type_of(y).shape[j]:
            raise ShapeError(
                f"{name}: axis {i} of {type_of(x)} and axis {j} of {type_of(y)} differ in length"
            )


@replayed
def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Sum of conj(a) * b over all elements.

    >>> jnp.vdot(jnp.array([1j, 2]), jnp.array([1j, 1]))  # conjugates the first
    Array(3.+0.j, dtype=complex64)
    """
    x, y = promoted("vdot", a, b, numbers=False, broadcast=False)
    if dt.is_complex(type_of(x).dtype):
        x = OPS["conj"](x)
    x, y = reshape(x, (-1,)), reshape(y, (-1,))
    _check_sizes("vdot", x, y, (0,), (0,))
    return product(x, y, ((0,), (0,)), precision=precision, wide=preferred_element_type)


@replayed
def vecdot(
    x1: Any,
    x2: Any,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Sum of conj(x1) * x2 along an axis; the other axes broadcast.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    x, y = promoted("vecdot", x1, x2, numbers=False, broadcast=False)
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    _check_sizes("vecdot", x, y, (x.ndim - 1,), (y.ndim - 1,))
    if dt.is_complex(x.dtype):
        x = OPS["conj"](x)
    common = result_shape("vecdot", [x.shape, y.shape])
    x, y = spread_to(x, common), spread_to(y, common)
    rank = len(common) - 1
    lead = tuple(range(rank))
    return product(
        x,
        y,
        ((rank,), (rank,)),
        (lead, lead),
        precision=precision,
        wide=preferred_element_type,
    )


@replayed
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Sum over the last axes of both.

    >>> jnp.inner(jnp.array([1, 2]), jnp.array([[3, 4], [5, 6]]))
    Array([11, 17], dtype=int32)
    """
    x, y = promoted("inner", a, b, numbers=False, broadcast=False)
    if not type_of(x).ndim or not type_of(y).ndim:
        return OPS["mul"](*promoted("inner", x, y))
    left, right = (type_of(x).ndim - 1,), (type_of(y).ndim - 1,)
    _check_sizes("inner", x, y, left, right)
    return product(x, y, (left, right), precision=precision, wide=preferred_element_type)


@replayed
def outer(a: Any, b: Any, out: None = None) -> Array:
    """Products of all pairs of elements.

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    no_out("outer", out)
    x, y = promoted("outer", a, b, numbers=False, broadcast=False)
    return multiply(reshape(x, (-1, 1)), reshape(y, (1, -1)))


@replayed
def tensordot(
    a: Any, b: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """Sum over pairs of axes: a count of last/first axes, or two lists.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((4, 3)), axes=[(1, 2), (1, 0)])
    Array([12., 12.], dtype=float32)
    """
    x, y = promoted("tensordot", a, b, numbers=False, broadcast=False)
    if isinstance(axes, int):
        left = tuple(range(type_of(x).ndim - axes, type_of(x).ndim))
        right = tuple(range(axes))
    else:
        left, right = (tuple(s) if isinstance(s, tuple | list) else (s,) for s in axes)
        left = tuple(axis_index(i, type_of(x).ndim, "tensordot") for i in left)
        right = tuple(axis_index(i, type_of(y).ndim, "tensordot") for i in right)
    if len(left) != len(right):
        raise ShapeError(f"tensordot: {len(left)} axes of the first, {len(right)} of the second")
    _check_sizes("tensordot", x, y, left, right)
    return product(x, y, (left, right), precision=precision, wide=preferred_element_type)


@replayed
def kron(a: Any, b: Any) -> Array:
    """Kronecker product.

    >>> jnp.kron(jnp.array([1, 2]), jnp.array([1, 10]))
    Array([ 1, 10,  2, 20], dtype=int32)
    """
    x, y = promoted("kron", a, b, numbers=False, broadcast=False)
    rank = builtins.max(type_of(x).ndim, type_of(y).ndim)
    left = (1,) * (rank - type_of(x).ndim) + type_of(x).shape
    right = (1,) * (rank - type_of(y).ndim) + type_of(y).shape
    x = reshape(x, tuple(s for size in left for s in (size, 1)))
    y = reshape(y, tuple(s for size in right for s in (1, size)))
    out = OPS["mul"](*promoted("kron", x, y))
    return reshape(out, tuple(p * q for p, q in zip(left, right, strict=True)))


@replayed
@gives_strong
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Array:
    """Cross product of vectors of length 3 (or 2: the third component).

    >>> jnp.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = promoted("cross", a, b, numbers=False, broadcast=False)
    x, y = moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)
    n, m = type_of(x).shape[-1], type_of(y).shape[-1]
    if n not in (2, 3) or m not in (2, 3):
        raise ShapeError(f"cross: vectors must have length 2 or 3, not {n} and {m}")
    x = [x[..., i] for i in range(n)]
    y = [y[..., i] for i in range(m)]
    if n == 2 and m == 2:
        return x[0] * y[1] - x[1] * y[0]
    zero = x[0] * 0
    x, y = [*x, zero][:3], [*y, zero][:3]
    parts = [x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]]
    out = OPS["concatenate"](*[reshape(p, (*p.shape, 1)) for p in parts], axis=parts[0].ndim)
    return moveaxis(out, -1, axisc)


@replayed
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
) -> Array:
    """Sum of the diagonal; small integers add up in the default integer.

    >>> jnp.trace(jnp.array([[1, 2], [3, 4]]))
    Array(5, dtype=int32)
    """
    no_out("trace", out)
    value = value_of(a)
    value = cast(value, sum_dtype(value.dtype, dtype))
    first, second = (axis_index(i, value.ndim, "trace") for i in (axis1, axis2))
    rows = OPS["iota"](dtype=dt.int32, shape=value.shape, axis=first)
    columns = OPS["iota"](dtype=dt.int32, shape=value.shape, axis=second)
    offset = within(offset, value.shape[first], value.shape[second])
    kept = OPS["select"](OPS["eq"](rows + offset, columns), value, full_of(0, value.type))
    return OPS["sum"](kept, axes=tuple(sorted((first, second))))


@replayed
def matvec(x1: Any, x2: Any, /) -> Array:
    """Matrices times vectors over leading axes.

    >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    x, y = value_of(x1), value_of(x2)
    return (x @ reshape(y, (*y.shape, 1)))[..., 0]


@replayed
def vecmat(x1: Any, x2: Any, /) -> Array:
    """Vectors times matrices over leading axes.

    >>> jnp.vecmat(jnp.array([1, 10]), jnp.array([[1, 2], [3, 4]]))
    Array([31, 42], dtype=int32)
    """
    x, y = value_of(x1), value_of(x2)
    return (reshape(x.conj(), (*x.shape[:-1], 1, x.shape[-1])) @ y)[..., 0, :]
