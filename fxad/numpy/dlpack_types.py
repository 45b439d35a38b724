"""Dtypes that DLPack has and NumPy's side of it does not: bfloat16 and two of 8 bits.

They pass NumPy as unsigned integers of their size; their code is changed in the capsule
(https://dmlc.github.io/dlpack/latest/c_api.html).

capsule = exported(array, max_version=(1, 0))    # what array.__dlpack__ returns
array = imported(tensor)                         # what np.from_dlpack returns
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from fxad.core import dtypes as dt

_UNSIGNED = 1  # kDLUInt
_CODES = {dt.bfloat16: 4, dt.float8_e4m3fn: 10, dt.float8_e5m2: 12}
_DTYPES = {(code, dtype.itemsize * 8): dtype for dtype, code in _CODES.items()}

# Names of capsules, and where DLManagedTensor and DLManagedTensorVersioned have their DLTensor: at
# the start, and after a version, two pointers and flags. It begins with a pointer, a device and the
# number of axes, then comes the dtype: its code, its bits.
_CODE_AT = {b"dltensor": 20, b"dltensor_versioned": 32 + 20}


def exported(data: np.ndarray, **asked: Any) -> Any:
    """`data.__dlpack__(**asked)` for every dtype that DLPack has."""
    code = _CODES.get(data.dtype)
    if code is None:
        return data.__dlpack__(**asked)
    capsule = data.view(f"u{data.dtype.itemsize}").__dlpack__(**asked)
    _type_in(capsule)[0] = code
    return capsule


def imported(tensor: Any) -> np.ndarray:
    """`np.from_dlpack(tensor)` for every dtype that DLPack has."""
    through = _AsIntegers(tensor)
    data = np.from_dlpack(through)
    return data if through.dtype is None else data.view(through.dtype)


class _AsIntegers:
    """An array of another library, which NumPy sees as integers where it lacks the dtype."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.dtype: np.dtype | None = None  # the one that NumPy lacks

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **asked: Any) -> Any:
        capsule = self._tensor.__dlpack__(**asked)
        kind = _type_in(capsule)
        self.dtype = _DTYPES.get((kind[0], kind[1]))
        if self.dtype is not None:
            kind[0] = _UNSIGNED
        return capsule


def _type_in(capsule: Any) -> Any:
    """Two bytes of a capsule's tensor: the code of its dtype and its bits."""
    name = _capsule("Name", ctypes.c_char_p, ctypes.py_object)(capsule)
    pointer = _capsule("Pointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(capsule, name)
    return (ctypes.c_uint8 * 2).from_address(pointer + _CODE_AT[name])


def _capsule(what: str, result: Any, *arguments: Any) -> Any:
    """The function `PyCapsule_Get...` of Python's C API."""
    return ctypes.PYFUNCTYPE(result, *arguments)((f"PyCapsule_Get{what}", ctypes.pythonapi))
