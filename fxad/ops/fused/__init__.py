"""Attention and the loss of a linear head as one op each: what lies between is not stored."""

from fxad.ops.fused import (
    attention,
    head_loss,
)

__all__ = ["attention", "head_loss"]
