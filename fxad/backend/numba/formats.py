"""Element types in emitted source: the name in registers, the type in memory, and casts.

    load("b0[i0]", bfloat16)   # "decode_bf16(b0[i0])"

Bools are bools, complex numbers complex; f16, bf16 and the 8-bit floats are float32 in registers
and unsigned integers in memory.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core import dtypes

# Kept as bits in memory and as float32 in registers.
_NARROW: dict[np.dtype, np.dtype] = {
    dtypes.float16: np.dtype("uint16"),
    dtypes.bfloat16: np.dtype("uint16"),
    dtypes.float8_e4m3fn: np.dtype("uint8"),
    dtypes.float8_e5m2: np.dtype("uint8"),
}
_STORED = {**_NARROW, dtypes.key: dtypes.uint64}


def storage(dtype: np.dtype) -> np.dtype:
    """The dtype of the arrays that hold elements of `dtype`."""
    return _STORED.get(dtype, dtype)


def carrier(dtype: np.dtype) -> np.dtype:
    """The dtype of a value of `dtype` while it is computed with."""
    return dtypes.float32 if dtype in _NARROW else storage(dtype)


def register(dtype: np.dtype) -> str:
    """Name of the carrier's constructor: f32, i64, bool, c64..."""
    return dtypes.short_name(carrier(dtype))


def suffix(dtype: np.dtype) -> str:
    """32 or 64, as in round32: which variant of a float helper fits."""
    return "64" if dtype == dtypes.float64 else "32"


def load(element: str, dtype: np.dtype) -> str:
    """The value in memory element `element`."""
    return f"decode_{dtypes.short_name(dtype)}({element})" if dtype in _NARROW else element


def store(value: str, dtype: np.dtype) -> str:
    """What to assign to a memory element so that it holds `value` (already rounded)."""
    return f"encode_{dtypes.short_name(dtype)}({value})" if dtype in _NARROW else value


def rounded(value: str, dtype: np.dtype) -> str:
    """A float32 result rounded to a narrow dtype; others unchanged."""
    return f"round_{dtypes.short_name(dtype)}({value})" if dtype in _NARROW else value


def literal(value: Any, dtype: np.dtype) -> str:
    """Source of the number `value` as a constant of `dtype`."""
    if dtypes.is_bool(dtype):
        return str(bool(value))
    if dtypes.is_integer(dtype):
        return f"{register(dtype)}({int(value)})"
    if dtypes.is_complex(dtype):
        number = complex(value)
        return f"{register(dtype)}(complex({_float(number.real)}, {_float(number.imag)}))"
    exact = float(np.asarray(value).astype(dtype)) if dtype in _NARROW else float(value)
    return f"{register(dtype)}({_float(exact)})"


def _float(value: float) -> str:
    """A float's repr; inf and nan are names that the emitted source knows."""
    if math.isnan(value):
        return "nan"
    return repr(value)


def cast(value: str, source: np.dtype, target: np.dtype) -> str:
    """Conversion by the rules: float to int saturates, NaN gives 0, complex drops its imaginary
    part, anything becomes a bool by comparing with 0."""
    if source == target:
        return value
    if dtypes.is_bool(target):
        return f"bool({value} != 0)"
    if dtypes.is_complex(source) and not dtypes.is_complex(target):
        return cast(f"{value}.real", dtypes.real_of(source), target)
    if dtypes.is_integer(target):
        return _to_integer(value, source, target)
    if dtypes.is_complex(target):
        if dtypes.is_complex(source):
            return f"{register(target)}({value})"
        part = register(dtypes.real_of(target))
        return f"{register(target)}(complex({part}({value}), {part}(0)))"
    if target in _NARROW:
        # NumPy rounds float64 to float16 once, to the others by way of float32.
        once = (source, target) == (dtypes.float64, dtypes.float16)
        return rounded(f"odd32({value})" if once else f"f32({value})", target)
    return f"{register(target)}({value})"


def _to_integer(value: str, source: np.dtype, target: np.dtype) -> str:
    if not dtypes.is_float(source):
        return f"{register(target)}({value})"
    if target == dtypes.uint64:
        return f"saturate_u64(f64({value}))"
    limits = np.iinfo(target)
    return f"{register(target)}(saturate(f64({value}), {limits.min}, {limits.max}))"
