"""Compiled programs as native functions of Arrays: what a small program costs beyond its work.

    refused = function(*operands, *results)  # Arrays, then NumPy arrays to write to

Through `Executable.run` a program of one kernel takes 2 us of Python; this takes a tenth.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.backend.llvm.native.direct_code import CallWord
from fxad.backend.llvm.native.library import runtime
from fxad.core.types import ArrayType
from fxad.trace.array import Borrowed, Concrete

_FASTCALL = 0x80  # CPython's flag of a function that takes its arguments in an array


class _Definition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@functools.cache
def _definition() -> _Definition:
    return _Definition(b"run", runtime().call, _FASTCALL, None)


def function_of(record: np.ndarray) -> Callable[..., bool]:
    """The function whose record (words of int64, see `CallWord`) this is; it keeps it alive."""
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
    make, definition = new(("PyCFunction_NewEx", ctypes.pythonapi)), _definition()
    # As its module: it reads the definition when it is freed, at exit after this cache.
    return make(ctypes.addressof(definition), record, definition)


def kinds_of(types: Sequence[ArrayType], weak: Sequence[bool]) -> np.ndarray:
    """What `fx_call` compares operands with: objects that there is one of, and that stay."""
    return np.array([[id(t), id(w)] for t, w in zip(types, weak, strict=True)], np.int64)


@functools.cache
def fixed_words() -> dict[CallWord, int]:
    """The words of a record that are the same for all programs; none where this Python has no lock
    that keeps others from an Array while it is read, or has its attributes elsewhere."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return {}
    type, data = ArrayType(np.dtype(np.float32), ()), np.zeros((), np.float32)
    array = Concrete.of(data, type, True)
    words = (ctypes.c_int64 * (Concrete.__basicsize__ // 8)).from_address(id(array))
    at = {id_: 8 * number for number, id_ in enumerate(words)}
    if not {id(type), id(data), id(True)} <= at.keys():
        return {}
    found = {
        CallWord.CLASS: id(Concrete),
        CallWord.BORROWED: id(Borrowed),
        CallWord.TYPE_AT: at[id(type)],
        CallWord.WEAK_AT: at[id(True)],
        CallWord.DATA_AT: at[id(data)],
    }
    for word, name in _PYTHON.items():
        found[word] = _address(getattr(ctypes.pythonapi, name))
    return found


_PYTHON = {
    CallWord.SAVE: "PyEval_SaveThread",
    CallWord.RESTORE: "PyEval_RestoreThread",
    CallWord.SIGNALS: "PyErr_CheckSignals",
    CallWord.BOOL: "PyBool_FromLong",
    CallWord.HOLD: "Py_IncRef",
    CallWord.RELEASE: "Py_DecRef",
}


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address
