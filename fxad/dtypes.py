"""Element types and questions about them, under the names of `jax.dtypes`.

>>> from fxad import dtypes
>>> dtypes.issubdtype(dtypes.bfloat16, np.floating), dtypes.canonicalize_dtype("float64")
(True, dtype('float32'))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from fxad.core.dtypes import (
    canonicalize,
    default_float,
    extended,
    float0,
    kind_of,
    narrow,
    prng_key,
)
from fxad.core.errors import TypePromotionError
from fxad.core.lazy import lazy as _lazy
from fxad.core.promotion import entry_of, promote
from fxad.numpy.data_types import finfo, iinfo
from fxad.numpy.data_types import issubdtype as _issubdtype
from fxad.trace.convert import shaped

bfloat16 = ml_dtypes.bfloat16


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> np.dtype:
    """The dtype that arrays made of this one have: 64-bit ones narrow, unless x64 is on. None is
    the default float."""
    return default_float() if dtype is None else narrow(dtype)


def issubdtype(a: Any, b: Any) -> bool:
    """Whether a dtype is of a kind, or of one below it (`fxad.numpy.issubdtype`)."""
    return _issubdtype(a, b)


def itemsize_bits(dtype: Any) -> int:
    """Bits of one element."""
    return 8 * canonicalize(dtype, explicit=True).itemsize


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """The dtype that values, dtypes and Python numbers promote to together; with
    return_weak_type_flag the pair of it and whether it is weak."""
    dtype, weak = promote(*map(entry_of, args))
    return (dtype, weak) if return_weak_type_flag else dtype


def scalar_type_of(x: Any) -> type:
    """Python's type of the elements: bool, int, float or complex."""
    kinds = {"bool": bool, "int": int, "float": float, "complex": complex}
    return kinds[kind_of(shaped(x).dtype)]


__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "result_type",
    "scalar_type_of",
]


if not TYPE_CHECKING:  # TAB completion shows what is public
    __getattr__, __dir__ = _lazy(globals())
