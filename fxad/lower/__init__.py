"""Program to Kernels: tensor expressions composed by index, fused, laid into loop nests."""

from fxad.lower.lower import LowerConfig, lower

__all__ = ["LowerConfig", "lower"]
