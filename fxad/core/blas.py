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
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from fxad.core.overlapping import Overlapping

# OpenBLAS's functions, as NumPy's own build names them and others do.
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


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


def _hold() -> int:
    """One thread, where there is OpenBLAS; how many there were."""
    functions = _functions()
    assert functions is not None
    tell, put = functions
    before = tell()
    put(1)
    return before


def _release(before: int) -> None:
    """As many threads as before, unless somebody has set others meanwhile."""
    functions = _functions()
    assert functions is not None
    tell, put = functions
    if tell() == 1:
        put(before)


_held = Overlapping(_hold, _release)


def one_thread() -> AbstractContextManager[None]:
    """One thread for NumPy's OpenBLAS in this block, in all threads of Python."""
    return nullcontext() if _functions() is None else _held.block()
