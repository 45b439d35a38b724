"""Types of the values a Program computes with.

>>> print(ArrayType(np.dtype("float32"), (3, 4)))
f32[3,4]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from fxad.core.dtypes import all_dtypes, int32, int64, key, short_name

# Equal dtypes may be several objects; types hold one of each, so native code can compare them.
_ONE = {dtype: dtype for dtype in (*all_dtypes, key)}


class ArrayType:
    """Element dtype and static shape of an array. Immutable; equal types are one object, so that
    comparing and hashing them costs nothing."""

    __slots__ = ("dtype", "nbytes", "shape", "size")
    dtype: np.dtype
    shape: tuple[int, ...]
    size: int  # elements
    nbytes: int
    _known: ClassVar[dict[tuple[np.dtype, tuple[int, ...]], ArrayType]] = {}

    def __new__(cls, dtype: np.dtype, shape: tuple[int, ...]) -> ArrayType:
        key = (dtype, shape)
        found = cls._known.get(key)
        if found is None:
            made = super().__new__(cls)
            made.dtype = _ONE.get(dtype, dtype)
            made.shape = tuple(map(int, shape))
            made.size = math.prod(made.shape)
            made.nbytes = made.size * made.dtype.itemsize
            found = cls._known.setdefault((made.dtype, made.shape), made)
        return found

    def __reduce__(self) -> tuple[object, ...]:
        return ArrayType, (self.dtype, self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> ArrayType:
        return ArrayType(self.dtype, shape)

    def with_dtype(self, dtype: np.dtype) -> ArrayType:
        return ArrayType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{short_name(self.dtype)}[{','.join(map(str, self.shape))}]"

    __repr__ = __str__


class TapeType:
    """An array of write-once tapes of residual blocks, each addressed by iteration number.

    `blocks` are the types written at each number, arrays or tapes (of inner loops); `lanes` is the
    shape of the array: every lane has its own numbering, whether it is a vmap's or the trip of an
    outer scan. Printed as `tape(f32[3], f32[])` or `tape(f32[3]; 4)` with four lanes. In memory a
    tape is a handle of 8 bytes (`dtype`), 0 while nothing is written.
    """

    __slots__ = ("blocks", "lanes")
    blocks: tuple[ArrayType | TapeType, ...]
    lanes: tuple[int, ...]
    dtype: ClassVar[np.dtype] = int64

    def __init__(
        self, blocks: tuple[ArrayType | TapeType, ...], lanes: tuple[int, ...] = ()
    ) -> None:
        self.blocks = blocks
        self.lanes = lanes

    @property
    def shape(self) -> tuple[int, ...]:
        return self.lanes

    @property
    def ndim(self) -> int:
        return len(self.lanes)

    @property
    def size(self) -> int:
        return math.prod(self.lanes)

    @property
    def nbytes(self) -> int:
        return 8 * self.size

    def with_shape(self, shape: tuple[int, ...]) -> TapeType:
        return TapeType(self.blocks, shape)

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


INT32 = ArrayType(int32, ())  # of the numbers of trips, lanes and branches
Type = ArrayType | TapeType  # of a value: few are tapes


def array_types(types: Iterable[Type]) -> tuple[ArrayType, ...]:
    """The types, which must all be of arrays. Raises TypeError for a tape."""
    return tuple([array_type(t) for t in types])


def array_type(type: Type) -> ArrayType:
    """The type, which must be an array's. Raises TypeError for a tape."""
    if not isinstance(type, ArrayType):
        raise TypeError(f"expected an array, got {type}")
    return type


def tape_type(type: Type) -> TapeType:
    """The type, which must be a tape's. Raises TypeError for an array."""
    if not isinstance(type, TapeType):
        raise TypeError(f"expected a tape, got {type}")
    return type
