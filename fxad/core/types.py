"""Types of the values a Program computes with.

>>> print(ArrayType(np.dtype("float32"), (3, 4)))
f32[3,4]
"""

from __future__ import annotations

import math

import numpy as np

from fxad.core.dtypes import all_dtypes, short_name


# Equal dtypes may be several objects; types hold one of each, so native code can compare them.
_ONE = {dtype: dtype for dtype in all_dtypes}


class ArrayType:
    """Element dtype and static shape of an array. Immutable, compared by value."""

    __slots__ = ("_hash", "dtype", "shape")
    dtype: np.dtype
    shape: tuple[int, ...]

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.dtype = _ONE.get(dtype, dtype)
        self.shape = shape
        self._hash = hash((dtype, shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[int, ...]) -> ArrayType:
        return ArrayType(self.dtype, shape)

    def with_dtype(self, dtype: np.dtype) -> ArrayType:
        return ArrayType(dtype, self.shape)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(other) is ArrayType and self.shape == other.shape and self.dtype == other.dtype
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


class TapeType:
    """A write-once tape of residual blocks, addressed by iteration number.

    `blocks` are the types written at each number; `lanes` are leading batch sizes: every lane
    has its own numbering. Printed as `tape(f32[3], f32[])` or `tape(f32[3]; 4)` with four lanes.
    """

    __slots__ = ("blocks", "lanes")
    blocks: tuple[ArrayType, ...]
    lanes: tuple[int, ...]

    def __init__(self, blocks: tuple[ArrayType, ...], lanes: tuple[int, ...] = ()) -> None:
        self.blocks = blocks
        self.lanes = lanes

    def with_lanes(self, size: int) -> TapeType:
        return TapeType(self.blocks, (size, *self.lanes))

    def __eq__(self, other: object) -> bool:
        return type(other) is TapeType and (self.blocks, self.lanes) == (other.blocks, other.lanes)

    def __hash__(self) -> int:
        return hash((self.blocks, self.lanes))

    def __str__(self) -> str:
        lanes = f"; {','.join(map(str, self.lanes))}" if self.lanes else ""
        return f"tape({', '.join(map(str, self.blocks))}{lanes})"

    __repr__ = __str__
