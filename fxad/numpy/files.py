"""Arrays in NumPy's files. Not for traced values.

save("weights.npy", w)          w = load("weights.npy")
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from fxad.numpy.core import asarray

__all__ = ["load", "save", "savez"]


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """NumPy's `save`. Raises ConcretizationError for a traced value."""
    np.save(file, np.asarray(arr), allow_pickle)


def savez(file: Any, *args: Any, allow_pickle: bool = True, **kwds: Any) -> None:
    """NumPy's `savez`: several arrays in one file, by name or as arr_0, arr_1, ..."""
    plain = {name: np.asarray(value) for name, value in kwds.items()}
    np.savez(file, *map(np.asarray, args), allow_pickle=allow_pickle, **plain)


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """NumPy's `load`: of a .npy file an Array in the dtype that was saved, of a .npz file NumPy's
    mapping of names to NumPy arrays. Pickles are refused unless allow_pickle=True."""
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    if found.dtype == np.dtype("V2"):  # what NumPy's format has for a dtype it does not know
        found = found.view(ml_dtypes.bfloat16)
    return asarray(found, dtype=found.dtype)
