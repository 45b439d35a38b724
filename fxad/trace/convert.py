"""From what users pass to values that ops take: `to_value(3.0)`, `to_value(np.ones(3))`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, NumberOverflow, TypeMismatch
from fxad.core.promotion import is_python_scalar, scalar_entry
from fxad.core.types import ArrayType
from fxad.trace.array import Array, Borrowed, Concrete

_SCALARS = (Array, np.generic)
_AS_THEY_ARE = frozenset(d for d in dt.all_dtypes if d.itemsize < 8 or d == dt.complex64)


def is_array_like(value: Any) -> bool:
    """Whether a leaf counts as an array: Arrays, NumPy arrays (not of float0) and numbers."""
    if isinstance(value, _SCALARS):
        return True
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind != "V" or value.dtype != dt.float0)
    return is_python_scalar(value)


def to_value(value: Any, what: str = "argument") -> Array:
    """An Array of a leaf. NumPy arrays are copied only if their dtype or byte order must change.

    Raises TypeMismatch for anything that is not an array or a number.
    """
    if isinstance(value, Array):
        return value
    if type(value) is np.ndarray:
        return Borrowed(native(value, what))
    if is_python_scalar(value):
        dtype, weak = scalar_entry(value)
        if type(value) is int and not dt.iinfo(dtype).min <= value <= dt.iinfo(dtype).max:
            raise NumberOverflow(
                f"{what}: the Python int {value} does not fit {dtype}; pass a NumPy array of a "
                "wider dtype, or use fxad.enable_x64()"
            )
        return Concrete(np.asarray(value, dtype), weak)
    if isinstance(value, np.ma.MaskedArray):
        raise BadArgument(
            f"{what}: masked arrays are not supported; pass its data, and its mask as an array"
        )
    if isinstance(value, np.ndarray | np.generic):
        return Borrowed(native(as_numpy(value), what))
    if hasattr(value, "__jax_array__"):
        return to_value(value.__jax_array__(), what)
    if hasattr(value, "__array__"):
        return Borrowed(native(np.asarray(value), what))
    raise TypeMismatch(
        f"{what}: expected an array or a number, got {type(value).__name__} ({value!r:.60})"
    )


def as_numpy(value: np.ndarray | np.generic) -> np.ndarray:
    """A NumPy array as it is; a number of NumPy's as an array of rank 0, 32-bit unless x64 is on.
    Nothing warns of that: such numbers come from calculations in Python, as floats do."""
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    return np.asarray(value, dt.of_number(value.dtype))


def native(array: np.ndarray, what: str = "array") -> np.ndarray:
    """The array in a dtype fxad computes with (64-bit inputs narrow unless x64 is on)."""
    dtype = array.dtype
    if dtype in _AS_THEY_ARE:
        return array
    if dtype.kind in "OUSMmV" and dtype not in (*dt.all_dtypes, dt.key):
        raise TypeMismatch(f"{what}: arrays of dtype {dtype} are not supported")
    wanted = dt.canonicalize(dtype, explicit=False)
    if wanted != dtype or not dtype.isnative:
        return array.astype(wanted)
    return array


def shaped(value: Any) -> ArrayType:
    """The type of an Array, a leaf, or anything with `shape` and `dtype`."""
    if isinstance(value, Array):
        return value.type
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        if isinstance(value, np.generic):
            return ArrayType(native(as_numpy(value)).dtype, ())
        of_numpy = isinstance(value, np.ndarray)
        dtype = dt.canonicalize(value.dtype, explicit=not of_numpy)
        return ArrayType(dtype, tuple(value.shape))
    return to_value(value).type
