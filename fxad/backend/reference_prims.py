"""Scalar functions of Kernels in NumPy, for reference.py.

    apply("div", [x, y], np.dtype("int32"))     # x // 0 == 0

Those that are correctly rounded give exact bits; the others are good to half a unit in the last
place or so, since they are computed in extended precision and rounded.
"""

from __future__ import annotations

import math

import numpy as np

from fxad.core import dtypes
from fxad.ir.prims import meaning


def compute_dtype(dtype: np.dtype) -> np.dtype:
    """float32 for narrow floats, else the dtype itself."""
    narrow = dtypes.is_float(dtype) and dtype.itemsize < 4
    return dtypes.float32 if narrow else dtype


def extreme(dtype: np.dtype, highest: bool) -> float | int | bool:
    """The largest or smallest value (infinite for floats)."""
    if dtypes.is_float(dtype):
        return math.inf if highest else -math.inf
    if dtype.kind == "b":
        return highest
    limits = dtypes.iinfo(dtype)
    return limits.max if highest else limits.min


def round_to(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A result in its dtype; bf16 denormals become zero."""
    x = np.asarray(x)
    if dtype == dtypes.bfloat16:
        wide = x.astype(np.float32)
        x = np.where(np.abs(wide) < np.float32(2.0**-126), wide * np.float32(0), wide)
    return x.astype(dtype)


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Convert: floats to integers saturate, NaN gives 0; complex to real drops the rest."""
    x = np.asarray(x)
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    if dtype.kind == "b":
        return x != np.zeros((), x.dtype)
    if dtypes.is_float(x.dtype) and dtypes.is_integer(dtype):
        wide = np.nan_to_num(
            np.trunc(x.astype(np.float64)), nan=0.0, posinf=2.0**70, neginf=-(2.0**70)
        )
        limits = np.iinfo(dtype)
        inside = (wide > float(limits.min) - 0.5) & (wide < float(limits.max) + 0.5)
        safe = np.where(inside & (wide < 2.0**63 if dtype != np.uint64 else inside), wide, 0)
        result = safe.astype(dtype)
        result = np.where(wide >= float(limits.max), dtype.type(limits.max), result)
        return np.where(wide <= float(limits.min), dtype.type(limits.min), result)
    if dtypes.is_float(dtype):
        narrow = dtype.itemsize < 4 and x.dtype.kind in "iu"
        return round_to(x.astype(np.float32) if narrow else x, dtype)
    return x.astype(dtype)


def apply(name: str, args: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """One scalar function; `dtype` is the result's.

    Raises NotImplementedError where it has no meaning for the dtype of the last argument.
    """
    source = args[-1].dtype
    function = meaning(name, source)
    if name == "bitcast":
        return np.ascontiguousarray(args[0]).view(dtype).reshape(np.shape(args[0]))
    if name == "select":
        return np.where(*args).astype(dtype)
    wide = source if name in ("nextafter", "copysign") else compute_dtype(source)
    values = [a.astype(wide) for a in args]
    if dtypes.is_inexact(source) and not function.correctly_rounded:
        more: type[np.inexact] = np.complex128 if wide.kind == "c" else np.longdouble
        values = [v.astype(more) for v in values]
    result = function.numpy(*values)
    return result.astype(dtype) if function.moves else round_to(result, dtype)
