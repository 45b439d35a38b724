"""Names of private modules of JAX that public packages import."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

import numpy as np

import fxad.numpy as jnp
from fxad.api.jaxpr import builtin
from fxad.api.jit import Jit as PjitFunction
from fxad.api.ported import Device
from fxad.api.shaped_array import aval_of
from fxad.core import dtypes as dt
from fxad.core.errors import TypePromotionError
from fxad.core.promotion import entry_of, promote
from fxad.core.source import PACKAGE

__all__ = [
    "DType",
    "Device",
    "ExtendedDType",
    "PjitFunction",
    "TypePromotionError",
    "api_boundary",
    "backend_compile_and_load",
    "canonicalize_dtype_handlers",
    "include_frame",
    "lattice_result_type",
    "promote_dtypes_complex",
    "pytype_aval_mappings",
    "register_exclusion",
    "stop_gradient_p",
    "to_complex_dtype",
    "user_context",
    "wait_for_tokens",
]

_exclude_paths: list[str] = []
DType = np.dtype


class ExtendedDType:
    """A dtype with rules of its own. No array has one."""


F = TypeVar("F", bound=Callable[..., Any])
stop_gradient_p = builtin("stop_gradient")
_backends: dict[str, Any] = {}  # chex asks whether a backend was started
# By type, how JAX takes a value: packages copy NumPy's entry for classes of their own. These are
# read here by nobody else: what has `__jax_array__` or `__array__` is taken as it says.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = {np.ndarray: np.asarray}
pytype_aval_mappings: dict[type, Callable[[Any], Any]] = {np.ndarray: aval_of}


def to_complex_dtype(dtype: Any) -> np.dtype:
    """The complex dtype for numbers of a dtype: complex128 for those of 64 bits."""
    wide = np.dtype(dtype) in (dt.int64, dt.uint64, dt.float64, dt.complex128)
    return dt.complex128 if wide else dt.complex64


def backend_compile_and_load(backend: Any, *args: Any, **kwargs: Any) -> Any:
    """What chex wraps to forbid a backend; fxad's compiler does not call it."""
    raise NotImplementedError


def lattice_result_type(*args: Any) -> tuple[np.dtype, bool]:
    """The dtype that values and dtypes promote to, and whether it is weak."""
    return promote(*map(entry_of, args))


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """The values as arrays of one complex dtype."""
    dtype = to_complex_dtype(lattice_result_type(*args)[0])
    return [jnp.asarray(x, dtype) for x in args]


def register_exclusion(path: str) -> None:
    """Have `include_frame` leave out a file."""
    _exclude_paths.append(path)


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is of neither fxad nor an excluded file."""
    return not frame.f_code.co_filename.startswith((PACKAGE, *_exclude_paths))


@contextlib.contextmanager
def user_context(traceback: Any, *, name_stack: Any = None) -> Iterator[None]:
    """Nothing: an equation that is made within has the line where it is made."""
    yield


def api_boundary(fun: F, **options: Any) -> F:
    """The function itself: tracebacks end at the user's line anyway."""
    return fun


def wait_for_tokens() -> None:
    """Nothing: effects have happened when a call returns."""
