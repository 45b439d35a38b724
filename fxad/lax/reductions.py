"""Reductions, running reductions, sorting and products with `jax.lax`'s names.

values, places = top_k(scores, 5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.lax import windows
from fxad.numpy import reductions
from fxad.numpy.core import axes_tuple, axis_index, cast, promoted, value_of
from fxad.numpy.manipulation import moveaxis
from fxad.numpy.products import product
from fxad.numpy.weak import weak_as_first
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def _reduction(op: str, name: str, doc: str) -> Callable[..., Array]:
    def function(operand: Any, axes: Sequence[int]) -> Array:
        value = value_of(operand, name)
        found = axes_tuple(tuple(axes), value.ndim, name)
        return OPS[op](value, axes=found) if found else value

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


reduce_sum = _reduction(
    "sum",
    "reduce_sum",
    """Sum over axes, in the operand's dtype.

    >>> fxad.lax.reduce_sum(jnp.array([[1, 2], [3, 4]]), axes=(0,))
    Array([4, 6], dtype=int32)
    """,
)
reduce_prod = _reduction(
    "prod",
    "reduce_prod",
    """Product over axes, in the operand's dtype.

    >>> fxad.lax.reduce_prod(jnp.array([[1, 2], [3, 4]]), axes=(1,))
    Array([ 2, 12], dtype=int32)
    """,
)
_all = _reduction("all", "reduce_and", "")
_any = _reduction("any", "reduce_or", "")


@weak_as_first
def reduce_and(operand: Any, axes: Sequence[int]) -> Array:
    """Whether all bools along axes hold; for integers the bits that all have.

    >>> fxad.lax.reduce_and(jnp.array([[True, False], [True, True]]), (1,))
    Array([False,  True], dtype=bool)
    """
    value = value_of(operand, "reduce_and")
    if not dt.is_integer(value.dtype):
        return _all(value, axes)
    ones = ~np.zeros((), value.dtype)
    return windows.reduce(value, ones, lambda a, b: OPS["and"](a, b), axes)


@weak_as_first
def reduce_or(operand: Any, axes: Sequence[int]) -> Array:
    """Whether any bool along axes holds; for integers the bits that any has.

    >>> fxad.lax.reduce_or(jnp.array([1, 2, 8]), (0,))  # the bits of any
    Array(11, dtype=int32)
    """
    value = value_of(operand, "reduce_or")
    if not dt.is_integer(value.dtype):
        return _any(value, axes)
    return windows.reduce(value, 0, lambda a, b: OPS["or"](a, b), axes)


@weak_as_first
def reduce_xor(operand: Any, axes: Sequence[int]) -> Array:
    """Exclusive or of bools or integers over axes.

    >>> fxad.lax.reduce_xor(jnp.array([5, 3, 5]), (0,))  # what occurs twice cancels
    Array(3, dtype=int32)
    """
    value = value_of(operand, "reduce_xor")
    if dt.is_inexact(value.dtype):
        raise TypeMismatch(f"reduce_xor: takes bools and integers, not {value.type}")
    zero = False if dt.is_bool(value.dtype) else 0
    return windows.reduce(value, zero, lambda a, b: OPS["xor"](a, b), axes)


@weak_as_first
def reduce_max(operand: Any, axes: Sequence[int]) -> Array:
    """Largest element over axes; NaN wins.

    >>> fxad.lax.reduce_max(jnp.array([[1.0, 4.0], [3.0, 2.0]]), (0,))
    Array([3., 4.], dtype=float32)
    """
    return reductions.max(operand, tuple(axes)) if len(axes) else value_of(operand)


@weak_as_first
def reduce_min(operand: Any, axes: Sequence[int]) -> Array:
    """Smallest element over axes; NaN wins.

    >>> fxad.lax.reduce_min(jnp.array([[1.0, 4.0], [3.0, 2.0]]), (0, 1))
    Array(1., dtype=float32)
    """
    return reductions.min(operand, tuple(axes)) if len(axes) else value_of(operand)


def _running(op: str, forwards: str, backwards: str) -> Callable[..., Array]:
    """forwards, backwards: what becomes of 2, 1, 3 without and with `reverse`."""

    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
        value = value_of(operand, op)
        return OPS[op](value, axis=axis_index(axis, value.ndim, op), reverse=reverse)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"""Running {op[3:]} along an axis, from the end with `reverse`.

    >>> fxad.lax.{op}(jnp.array([2.0, 1.0, 3.0])).round(2)
    Array({forwards}, dtype=float32)
    >>> fxad.lax.{op}(jnp.array([2.0, 1.0, 3.0]), reverse=True).round(2)
    Array({backwards}, dtype=float32)
    """
    return function


cumsum = _running("cumsum", "[2., 3., 6.]", "[6., 4., 3.]")
cumprod = _running("cumprod", "[2., 2., 6.]", "[6., 3., 3.]")
cummax = _running("cummax", "[2., 2., 3.]", "[3., 3., 3.]")
cummin = _running("cummin", "[2., 1., 1.]", "[1., 1., 3.]")
cumlogsumexp = _running("cumlogsumexp", "[2.  , 2.31, 3.41]", "[3.41, 3.13, 3.  ]")


def argmax(operand: Any, axis: int, index_dtype: Any = None) -> Array:
    """Position of the first largest element along an axis.

    >>> fxad.lax.argmax(jnp.array([[1.0, 9.0, 9.0], [7.0, 2.0, 3.0]]), 1)
    Array([1, 0], dtype=int32)
    """
    return _place("argmax", operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any = None) -> Array:
    """Position of the first smallest element along an axis.

    >>> fxad.lax.argmin(jnp.array([3.0, 1.0, 2.0]), 0, jnp.uint8)
    Array(1, dtype=uint8)
    """
    return _place("argmin", operand, axis, index_dtype)


def _place(op: str, operand: Any, axis: int, index_dtype: Any) -> Array:
    found = getattr(reductions, op)(operand, axis)
    return (
        found if index_dtype is None else cast(found, dt.canonicalize(index_dtype, explicit=True))
    )


# ---------------------------------------------------------------- sorting


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort an array, or several arrays together by the first `num_keys` of them. Stable.

    >>> fxad.lax.sort(jnp.array([[3, 1, 2], [9, 7, 8]]))
    Array([[1, 2, 3],
           [7, 8, 9]], dtype=int32)
    >>> names, ages = jnp.array([10, 11, 12]), jnp.array([30, 20, 30])
    >>> fxad.lax.sort((ages, names))  # together, by age; equal ages keep their order
    (Array([20, 30, 30], dtype=int32), Array([11, 10, 12], dtype=int32))
    """
    many = isinstance(operand, list | tuple)
    values = [value_of(v, "sort") for v in (operand if many else (operand,))]
    if not 1 <= num_keys <= len(values):
        raise BadArgument(f"sort: num_keys={num_keys} of {len(values)} arrays")
    if any(v.shape != values[0].shape for v in values):
        seen = ", ".join(str(v.type) for v in values)
        raise ShapeError(f"sort: arrays must have one shape, got {seen}")
    axis = axis_index(dimension, values[0].ndim, "sort")
    outs = OPS["sort"](*values, axis=axis, keys=num_keys)
    return tuple(outs) if many else outs[0]


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Keys in order, and the values in the order of their keys.

    >>> fxad.lax.sort_key_val(jnp.array([3, 1, 2]), jnp.array([30.0, 10.0, 20.0]))
    (Array([1, 2, 3], dtype=int32), Array([10., 20., 30.], dtype=float32))
    """
    ordered = sort((keys, values), dimension)
    return ordered[0], ordered[1]


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> Any:
    """`top_k`: the search is exact. Hints about recall are accepted for ported code.

    >>> fxad.lax.approx_max_k(jnp.array([0.1, 0.7, 0.3]), 2)
    [Array([0.7, 0.3], dtype=float32), Array([1, 2], dtype=int32)]
    """
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> Any:
    """The k smallest elements along an axis in ascending order, and their positions (int32).

    >>> fxad.lax.approx_min_k(jnp.array([0.1, 0.7, 0.3]), 2)
    [Array([0.1, 0.3], dtype=float32), Array([0, 2], dtype=int32)]
    """
    value = value_of(operand, "approx_min_k")
    values, places = top_k(OPS["neg"](value), k, axis=reduction_dimension)
    return [OPS["neg"](values), places]


def top_k(operand: Any, k: int, axis: int = -1) -> list[Array]:
    """The k largest elements along an axis in descending order, and their positions (int32), as a
    list, which it is in JAX.

    >>> scores, places = fxad.lax.top_k(jnp.array([0.1, 0.7, 0.3, 0.5]), 2)
    >>> scores, places
    (Array([0.7, 0.5], dtype=float32), Array([1, 3], dtype=int32))
    >>> fxad.grad(lambda x: fxad.lax.top_k(x, 2)[0].sum())(jnp.array([0.1, 0.7, 0.3, 0.5]))
    Array([0., 1., 0., 1.], dtype=float32)
    """
    value = value_of(operand, "top_k")
    at = axis_index(axis, value.ndim, "top_k")
    if not 0 <= k <= value.shape[at]:
        raise ShapeError(f"top_k: k={k} of {value.shape[at]} elements along axis {at}")
    values, places = OPS["top_k"](moveaxis(value, at, -1), k=k.__index__())
    return [moveaxis(values, -1, at), moveaxis(places, -1, at)]


# ---------------------------------------------------------------- products


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: tuple,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Sum of products. dimension_numbers: ((lhs, rhs contracting axes), (lhs, rhs batch axes)).

    Axes of the result: batch, free of lhs, free of rhs. precision: a DotAlgorithmPreset or its
    name; BF16_BF16_F32_X3, _X6 and _X9 multiply float32 numbers by their bfloat16 parts, all else
    is full precision. Raises BadArgument for an unknown one.

    >>> a, b = jnp.ones((8, 2, 3)), jnp.ones((8, 3, 4))
    >>> # 8 products, [2, 3] by [3, 4]
    >>> fxad.lax.dot_general(a, b, (((2,), (1,)), ((0,), (0,)))).shape
    (8, 2, 4)
    >>> x = jnp.full((2, 2), 100, jnp.int8)  # sums of int8 would wrap round
    >>> fxad.lax.dot_general(x, x, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    Array([[20000, 20000],
           [20000, 20000]], dtype=int32)
    """
    a, b = promoted("dot_general", lhs, rhs, numbers=False, broadcast=False)
    pairs = []
    for left, right in dimension_numbers:
        left = tuple(axis_index(i, type_of(a).ndim, "dot_general") for i in left)
        right = tuple(axis_index(i, type_of(b).ndim, "dot_general") for i in right)
        pairs.append((left, right))
    if len(pairs) != 2:
        raise TypeMismatch("dot_general: dimension_numbers are ((lhs, rhs), (lhs, rhs)) axes")
    return product(a, b, pairs[0], pairs[1], preferred_element_type, precision)


def dot(
    lhs: Any,
    rhs: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    dimension_numbers: Any = None,
) -> Array:
    """Product of vectors or matrices: last axis of lhs with the first of rhs; or, with
    dimension_numbers, `dot_general`.

    >>> fxad.lax.dot(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 10.0]))
    Array([21., 43.], dtype=float32)
    """
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    a, b = promoted("dot", lhs, rhs, numbers=False, broadcast=False)
    ranks = type_of(a).ndim, type_of(b).ndim
    if not all(1 <= r <= 2 for r in ranks):
        raise ShapeError(f"dot: takes vectors and matrices, got {type_of(a)} and {type_of(b)}")
    contract = (ranks[0] - 1,), (0,)
    return product(a, b, contract, wide=preferred_element_type, precision=precision)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Matrix products over equal leading axes.

    >>> fxad.lax.batch_matmul(jnp.ones((5, 2, 3)), jnp.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    a, b = promoted("batch_matmul", lhs, rhs, numbers=False, broadcast=False)
    rank = type_of(a).ndim
    if rank < 2 or type_of(b).ndim != rank:
        raise ShapeError(f"batch_matmul: {type_of(a)} and {type_of(b)} need equal ranks >= 2")
    lead = tuple(range(rank - 2))
    return product(a, b, ((rank - 1,), (rank - 2,)), (lead, lead), precision=precision)
