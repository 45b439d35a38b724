"""A float32 split into three terms of bf16, and products of float32 as six of theirs.

    first, second, third = split(x)          # x is their sum

    x = x1 + x2 + x3        # the first, the next and the last 8 of a float32's 24 bits: exact
    x y ~ x1 y1 + x1 y2 + x2 y1 + x2 y2 + x1 y3 + x3 y1

The terms of the product that are left out are below 2**-21 of it, 2**-24 as a rule: the size of
float32's own rounding. Terms below 2**-126 count as 0, so numbers keep their last bits above
2**-110; an infinite operand gives NaN.
"""

from __future__ import annotations

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.amx_tiles import LINES, TILE_BYTES

TERMS = 3
TERM_BYTES = 2
NUMBER_BYTES = TERMS * TERM_BYTES
TILES = 2  # tiles of rows of a micro-kernel, and most tiles of columns
KERNEL_ROWS = TILES * LINES
STEP_BYTES = TERMS * TILE_BYTES  # of one tile of each term
_HALF = -65536  # the upper 16 bits


def split(x: Vec) -> list[Vec]:
    """The bits of three numbers, in the upper half of each lane, whose sum is x. The lower halves
    mean nothing."""
    first = x.bits() & _HALF
    rest = x - first.floats()
    second = rest.bits() & _HALF
    return [first, second, (rest - second.floats()).bits()]


def paired(low: Vec, high: Vec) -> Vec:
    """The upper halves of two vectors' lanes as pairs."""
    return low.binary("lshr", 16) | (high & _HALF)
