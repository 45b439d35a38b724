"""Float32 products of two BLAS libraries, called by address: no array checks in what is timed.

    found = libraries(["numpy", "torch"])      # {"OpenBLAS (SkylakeX)": ..., "MKL": ...}
    run = found["MKL"].product(a, b, c)        # c = a @ b; operands may be transposed views

NumPy's wheels bring OpenBLAS, PyTorch's bring MKL.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Blas:
    """A library's `sgemm` as Fortran sees it; integer: the type of its sizes."""

    sgemm: Any
    integer: type
    limit: Callable[[int], object]

    def product(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> Callable[[], None]:
        """c = a @ b of float32 matrices, each contiguous or the transpose of a contiguous one."""
        (m, k), n = a.shape, b.shape[1]
        # Column by column c is the transpose: cT = bT @ aT.
        right, left = (self._operand(x) for x in (b, a))
        numbers = [self._by_reference(x) for x in (n, m, k, right[1], left[1], n)]
        one, zero = ctypes.byref(ctypes.c_float(1.0)), ctypes.byref(ctypes.c_float(0.0))
        n_, m_, k_, ldb, lda, ldc = numbers
        flags = ctypes.c_char_p(right[0]), ctypes.c_char_p(left[0])
        places = [ctypes.c_void_p(x.__array_interface__["data"][0]) for x in (b, a, c)]
        given = (*flags, n_, m_, k_, one, places[0], ldb, places[1], lda, zero, places[2], ldc)

        def run(_: object = (a, b, c)) -> None:
            self.sgemm(*given)

        return run

    def _operand(self, x: np.ndarray) -> tuple[bytes, int]:
        """(whether Fortran sees it transposed, its leading dimension)."""
        rows, columns = (stride // x.itemsize for stride in x.strides)
        return (b"N", rows) if columns == 1 else (b"T", columns)

    def _by_reference(self, value: int) -> Any:
        return ctypes.byref(self.integer(value))


def libraries(peers: Sequence[str]) -> dict[str, Blas]:
    """Those of OpenBLAS (peer "numpy") and MKL (peer "torch") that can be found."""
    found: dict[str, Blas] = {}
    if "numpy" in peers:
        found |= _openblas()
    if "torch" in peers:
        found |= _mkl()
    return found


def _openblas() -> dict[str, Blas]:
    folder = os.path.join(os.path.dirname(np.__file__), os.pardir, "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        library = ctypes.CDLL(path)
        try:
            name = library.scipy_openblas_get_corename64_
            limit, sgemm = library.scipy_openblas_set_num_threads64_, library.scipy_sgemm_64_
        except AttributeError:
            continue
        name.restype = ctypes.c_char_p
        return {f"OpenBLAS ({name().decode()})": Blas(sgemm, ctypes.c_int64, limit)}
    return {}


def _mkl() -> dict[str, Blas]:
    import torch

    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
    try:
        library = ctypes.CDLL(path)
        limit, sgemm = library.MKL_Set_Num_Threads_Local, library.sgemm_
    except (OSError, AttributeError):
        return {}
    return {"MKL": Blas(sgemm, ctypes.c_int32, limit)}
