"""Types of the values a Program computes with.

    >>> print(ArrayType(np.dtype("float32"), (3, 4)))
    f32[3,4]
"""

from __future__ import annotations

import math

import numpy as np

from fxad.core.dtypes import short_name


class ArrayType:
    """Element dtype and static shape of an array. Immutable, compared by value."""

    __slots__ = ("_hash", "dtype", "shape")
    dtype: np.dtype
    shape: tuple[int, ...]

    def __init__(self, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
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
    """A write-once tape: `length` slots, each holding one block of every type in `blocks`.

    Printed as `tape(10, f32[3], f32[])`. Slots are addressed by iteration number.
    """

    __slots__ = ("blocks", "length")
    blocks: tuple[ArrayType, ...]
    length: int

    def __init__(self, length: int, blocks: tuple[ArrayType, ...]) -> None:
        self.length = length
        self.blocks = blocks

    def __eq__(self, other: object) -> bool:
        return type(other) is TapeType and (self.length, self.blocks) == (other.length, other.blocks)

    def __hash__(self) -> int:
        return hash((self.length, self.blocks))

    def __str__(self) -> str:
        return f"tape({', '.join([str(self.length), *map(str, self.blocks)])})"

    __repr__ = __str__


type_of_any = ArrayType | TapeType
