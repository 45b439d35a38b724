"""Names of `jax.api_util`."""

from __future__ import annotations

from typing import Any

from fxad.api.shaped_array import ShapedArray, aval_of

__all__ = ["shaped_abstractify"]


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an array as a ShapedArray."""
    return aval_of(x)
