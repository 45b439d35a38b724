"""The BLAS under NumPy, held to one thread where several are in each other's way.

    with one_thread():
        np.linalg.eigh(a)

OpenBLAS divides every operation of a factorization among all cores and lets them spin meanwhile.
On small matrices that costs more than it brings, and many times as much where another program
takes a core. Other libraries (MKL, Accelerate) are left alone.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from fxad.core import system

# OpenBLAS's functions, as NumPy's own build names them and others do.
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


class _Thread(threading.local):
    inside = 0  # blocks


_lock = system.free_in_children(threading.Lock())
_thread = _Thread()
_inside = 0  # blocks of all threads
_before = 1


@functools.cache
def _functions() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """What tells and what sets the number of threads; None where NumPy has another library."""
    try:  # looked for in what NumPy's module was linked with
        library = ctypes.PyDLL(np.linalg._umath_linalg.__file__)
    except (AttributeError, TypeError, OSError):
        return None
    for name in _NAMES:
        tell, put = (getattr(library, name.format(word), None) for word in ("get", "set"))
        if tell and put:
            put.restype = None
            return tell, put
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for NumPy's OpenBLAS in this block, in all threads of Python."""
    functions = _functions()
    if functions is None:
        yield
        return
    global _inside, _before
    tell, put = functions
    with _lock:
        _inside += 1
        _thread.inside += 1
        if _inside == 1:
            _before = tell()
            put(1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _thread.inside -= 1
            if _inside == 0 and tell() == 1:
                put(_before)


def _forked() -> None:
    """In a forked child: the blocks of other threads never end."""
    global _inside
    if _inside and not _thread.inside:
        functions = _functions()
        assert functions is not None
        functions[1](_before)
    _inside = _thread.inside


system.at_fork(child=_forked)
