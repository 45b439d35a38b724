"""Attention and the loss of a linear head as one op each: what lies between is not stored."""

from fxad.ops.fused import (
    attention,
    linear_cross_entropy,
)

__all__ = ["attention", "linear_cross_entropy"]
