"""Types for annotations, under the names of `jax.typing`.

def norm(x: ArrayLike, dtype: DTypeLike = None) -> Array: ...
"""

from typing import Any

import numpy as np

from fxad.trace.array import Array

ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
DTypeLike = Any  # a dtype, its name, a scalar type, or None: as NumPy takes it

__all__ = ["Array", "ArrayLike", "DTypeLike"]
