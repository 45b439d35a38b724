"""Memory between pages that nobody may touch: reading or writing past an array ends the process.

    array = guarded(x)  # a copy whose last byte is the last before such a page

pytest's faulthandler then names the test.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

MARK = 0xA5  # what lies between the page before an array and the array
_PAGE = mmap.PAGESIZE
_FORBIDDEN = 0  # PROT_NONE


def guarded(array: np.ndarray, offset: int | None = None) -> np.ndarray:
    """A contiguous copy that ends where an inaccessible page begins, and begins anywhere.

    offset: begin so many bytes after a multiple of 64 instead; up to 63 MARKs then follow.
    """
    nbytes = max(array.nbytes, 1)
    body = -(-(nbytes + 63) // _PAGE) * _PAGE
    pages = mmap.mmap(-1, body + 2 * _PAGE)  # unmapped when the last array on it is gone
    whole = np.frombuffer(pages, np.uint8)
    whole[_PAGE:-_PAGE] = MARK
    start = _PAGE + body - array.nbytes
    if offset is not None:
        start -= (start - offset) % 64
    copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    for page in (whole[:_PAGE], whole[-_PAGE:]):
        _forbid(page.__array_interface__["data"][0])
    return copy


def around(copy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The accessible bytes before and after a guarded array."""
    owner = copy
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if not copy.size:  # NumPy gives these another address
        return owner[_PAGE:-_PAGE], owner[:0]
    start = copy.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return owner[_PAGE:start], owner[start + copy.nbytes : -_PAGE]


def _forbid(address: int) -> None:
    if sys.platform == "win32":
        return  # the marks alone find writes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(_PAGE), _FORBIDDEN):
        raise OSError(ctypes.get_errno(), "mprotect")
