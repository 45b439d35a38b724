"""NumPy memory that begins at a cache line, so that vectors of it never cross one.

    copied(array).ctypes.data % 64 == 0

NumPy's own large arrays begin 16 bytes into a line; kernels read them a tenth to a third slower.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np

LINE = 64  # bytes of a cache line
SMALL = 1 << 11  # up to so many bytes NumPy's allocator is as good, and twice as fast


def to_line(at: int) -> int:
    """An address or a size, up to the next beginning of a cache line."""
    return -(-at // LINE) * LINE


def in_lines(nbytes: int) -> int:
    """So many bytes, up to whole cache lines: at least one."""
    return max(to_line(nbytes), LINE)


def maker(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> Callable[[], np.ndarray]:
    """Makes uninitialised arrays of this type, which has `nbytes`: contiguous, on a line."""
    empty, uint8, padded = np.empty, np.dtype(np.uint8), nbytes + LINE

    def aligned() -> np.ndarray:
        raw = empty(padded, uint8)
        offset = -ctypes.c_size_t.from_address(id(raw) + object.__basicsize__).value % LINE
        return np.ndarray(shape, dtype, raw, offset)

    return aligned


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array: contiguous, on a line above SMALL bytes."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes <= SMALL or dtype.hasobject:
        return np.empty(shape, dtype)
    raw: Any = np.empty(nbytes + LINE, np.uint8)
    # Not a view of an array, which somebody else might hold: what is made may be donated.
    owner: Any = (ctypes.c_char * raw.size).from_buffer(raw)
    return np.ndarray(shape, dtype, owner, -raw.ctypes.data % LINE)


def copied(array: np.ndarray) -> np.ndarray:
    """A copy of an array: contiguous, on a line above SMALL bytes."""
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy
