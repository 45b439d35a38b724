"""Program to Kernels: tensor expressions composed by index, fused, laid into loop nests."""

from fxad.lower.lower import LowerConfig, lower
from fxad.lower.steps import (
    Block,
    Branching,
    HostStep,
    Launch,
    Looping,
    TapeStep,
    Transfer,
    Whiling,
)

__all__ = [
    "Block",
    "Branching",
    "HostStep",
    "Launch",
    "Looping",
    "LowerConfig",
    "TapeStep",
    "Transfer",
    "Whiling",
    "lower",
]
