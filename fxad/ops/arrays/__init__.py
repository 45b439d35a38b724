"""Ops that move, choose, order and combine elements; random bits; sums over the lanes of a vmap."""

from fxad.ops.arrays import (
    collective,
    cumulative,
    dynamic,
    gather,
    indexing,
    movement,
    random,
    reduce,
    slicing,
    sorting,
)

__all__ = [
    "collective",
    "cumulative",
    "dynamic",
    "gather",
    "indexing",
    "movement",
    "random",
    "reduce",
    "slicing",
    "sorting",
]
