"""Names of private modules of JAX that public packages import."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import numpy as np

from fxad.api.jaxpr import builtin
from fxad.core.errors import TypePromotionError
from fxad.core.promotion import entry_of, promote
from fxad.core.source import PACKAGE

__all__ = [
    "DType",
    "ExtendedDType",
    "TypePromotionError",
    "api_boundary",
    "backend_compile_and_load",
    "include_frame",
    "lattice_result_type",
    "register_exclusion",
    "stop_gradient_p",
    "wait_for_tokens",
]

_exclude_paths: list[str] = []
DType = np.dtype


class ExtendedDType:
    """A dtype with rules of its own. No array has one."""


F = TypeVar("F", bound=Callable[..., Any])
stop_gradient_p = builtin("stop_gradient")
_backends: dict[str, Any] = {}  # chex asks whether a backend was started


def backend_compile_and_load(backend: Any, *args: Any, **kwargs: Any) -> Any:
    """What chex wraps to forbid a backend; fxad's compiler does not call it."""
    raise NotImplementedError


def lattice_result_type(*args: Any) -> tuple[np.dtype, bool]:
    """The dtype that values and dtypes promote to, and whether it is weak."""
    return promote(*map(entry_of, args))


def register_exclusion(path: str) -> None:
    """Have `include_frame` leave out a file."""
    _exclude_paths.append(path)


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is of neither fxad nor an excluded file."""
    return not frame.f_code.co_filename.startswith((PACKAGE, *_exclude_paths))


def api_boundary(fun: F, **options: Any) -> F:
    """The function itself: tracebacks end at the user's line anyway."""
    return fun


def wait_for_tokens() -> None:
    """Nothing: effects have happened when a call returns."""
