"""Numbers of Programs as text: the shortest decimal form that reads back to the same bits.

>>> number(0.1), number(np.float32(0.1).item(), np.dtype(np.float32)), number(1e30)
('0.1', '0.1', '1e+30')

What is the same depends on the dtype: 0.3333 is a third in bfloat16 (0.333), not in float32.
"""

from __future__ import annotations

import functools
import math

import numpy as np

_DIGITS = 17  # tell all float64 apart
_PARTS = {np.dtype(np.complex64): np.dtype(np.float32)}  # dtype of the parts, where not float64


def rounded(value: bool | int | float | complex, dtype: np.dtype) -> bool | int | float | complex:
    """The value that the dtype holds, as a Python number (beyond its range: infinity)."""
    if type(value) is float:
        return _as(value, dtype)
    part = _PARTS.get(dtype)
    if type(value) is complex and part is not None:
        return complex(_as(value.real, part), _as(value.imag, part))
    return value


def _as(value: float, dtype: np.dtype) -> float:
    # Zeros of both signs are one key of a cache, and NaNs none.
    return _held(value, dtype) if value and value == value else value


@functools.lru_cache(maxsize=4096)
def _held(value: float, dtype: np.dtype) -> float:
    with np.errstate(over="ignore"):
        return float(dtype.type(value))


def number(value: bool | int | float | complex, dtype: np.dtype | None = None) -> str:
    """The text of a number of a dtype (None: a Python number, whose floats are float64).

    All NaNs print alike, as they are one literal (`Lit.key`); the sign of a zero is kept.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        part = None if dtype is None else _PARTS.get(dtype)
        return f"complex({number(value.real, part)},{number(value.imag, part)})"
    if math.isnan(value):
        return "nan"
    return repr(value) if dtype is None or value == 0 else _shortest(value, dtype)


@functools.lru_cache(maxsize=4096)
def _shortest(value: float, dtype: np.dtype) -> str:
    """The fewest digits that round to the value in the dtype."""
    held = _as(value, dtype)
    if dtype == np.float64 or not math.isfinite(held):
        return repr(held)
    forms = (float(f"{held:.{digits}g}") for digits in range(1, _DIGITS))
    return repr(next((form for form in forms if _as(form, dtype) == held), held))
