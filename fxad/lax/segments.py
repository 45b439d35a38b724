"""Reductions of rows that share a number: `jax.ops.segment_sum` and its like.

sums = segment_sum(values, owners, num_segments=3)      # f32[9], i32[9] -> f32[3]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.numpy.core import full_of, known_values, value_of
from fxad.trace.array import Array


def _lowest(dtype: np.dtype) -> Any:
    if dt.is_bool(dtype):
        return False
    return dt.iinfo(dtype).min if dt.is_integer(dtype) else -np.inf


def _highest(dtype: np.dtype) -> Any:
    if dt.is_bool(dtype):
        return True
    return dt.iinfo(dtype).max if dt.is_integer(dtype) else np.inf


def _segments(
    name: str, method: str, empty: Callable[[np.dtype], Any], doc: str, example: str
) -> Any:
    """example: what becomes of 1 alone, and of 2 and 5 together."""

    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: str | None = None,
    ) -> Array:
        values, numbers = value_of(data, name), value_of(segment_ids, f"{name}: segment_ids")
        if not dt.is_integer(numbers.dtype):
            raise TypeMismatch(f"{name}: segment_ids must hold integers, not {numbers.type}")
        if values.shape[: numbers.ndim] != numbers.shape:
            raise ShapeError(f"{name}: segment_ids {numbers.type} do not fit data {values.type}")
        count = num_segments
        if count is None:
            hint = "give num_segments=, since the result's shape depends on it"
            count = int(np.max(known_values(numbers, name, hint), initial=-1)) + 1
        if count < 0:
            raise BadArgument(f"{name}: num_segments is {count}; it must not be negative")
        shape = (count.__index__(), *values.shape[numbers.ndim :])
        start = full_of(empty(values.dtype), ArrayType(values.dtype, shape))
        return getattr(start.at[numbers], method)(
            values,
            unique_indices=unique_indices,
            mode=mode or "drop",
            wrap_negative_indices=False,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc} of the rows of data with the same segment id.

    segment_ids: integers for the leading axis of data; ids outside [0, num_segments) are dropped.
    num_segments: size of the result's leading axis; by default the largest id plus 1, which needs
    known ids (outside jit). Other arguments are accepted for ported code.

    >>> fxad.lax.{name}(jnp.array([1, 2, 5]), jnp.array([0, 1, 1]), num_segments=2)
    Array({example}, dtype=int32)
    """
    return function


segment_sum = _segments("segment_sum", "add", lambda dtype: 0, "Sum", "[1, 7]")
segment_prod = _segments("segment_prod", "multiply", lambda dtype: 1, "Product", "[ 1, 10]")
segment_max = _segments("segment_max", "max", _lowest, "Largest", "[1, 5]")
segment_min = _segments("segment_min", "min", _highest, "Smallest", "[1, 2]")
