"""The combining functions of Reduce, Scan and Scatter.

combine("add", "c0", "v1", float32)   # "(c0 + v1)"
"""

from __future__ import annotations

import numpy as np

from fxad.backend.numba.formats import carrier, literal
from fxad.backend.numba.prims import prim
from fxad.core import dtypes

ARG = {"argmax": 1, "argmin": -1}
FAR = (1 << 63) - 1  # a position after every other


def combine(monoid: str, a: str, b: str, dtype: np.dtype) -> str:
    """`a monoid b`, in the dtype that `dtype` computes in: a result is rounded once, at the end."""
    wide = carrier(dtype)
    return prim(monoid, (a, b), wide, wide)


def identity(monoid: str, dtype: np.dtype) -> str:
    """What changes nothing when combined (argmin and argmax: of the value)."""
    dtype = carrier(dtype)
    match monoid:
        case "add":
            return literal(0, dtype)
        case "mul":
            return literal(1, dtype)
        case "and":
            return literal(1 if dtypes.is_bool(dtype) else _ones(dtype), dtype)
        case "or":
            return literal(0, dtype)
        case "min" | "argmin":
            return literal(_extreme(dtype, 1), dtype)
        case "max" | "argmax":
            return literal(_extreme(dtype, -1), dtype)
    raise ValueError(f"unknown monoid {monoid!r}; try add, mul, min, max, and, or, argmin, argmax")


def _ones(dtype: np.dtype) -> int:
    return -1 if dtypes.is_signed(dtype) else int(np.iinfo(dtype).max)


def _extreme(dtype: np.dtype, side: int) -> float | int | bool:
    """The largest value (side 1) or the smallest (side -1); infinite where the dtype is."""
    if dtypes.is_bool(dtype):
        return side > 0
    if dtypes.is_integer(dtype):
        limits = np.iinfo(dtype)
        return int(limits.max if side > 0 else limits.min)
    return side * float("inf")
