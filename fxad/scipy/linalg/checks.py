"""What functions of matrices check of their arguments."""

from __future__ import annotations

from typing import Any

from fxad.core.errors import ShapeError
from fxad.numpy.core import promoted
from fxad.trace.array import Array


def matrix(name: str, a: Any, square: bool = True) -> Array:
    """The argument as an array of inexact numbers. Raises ShapeError unless it is (square)
    matrices."""
    (value,) = promoted(name, a, inexact=True, numbers=False)
    if value.ndim < 2 or (square and value.shape[-1] != value.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"{name}: expects {kind} in the last two axes, got {value.type}")
    return value
