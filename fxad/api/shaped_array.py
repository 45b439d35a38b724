"""ShapedArray: what is known of an array before it exists, as JAX has it (`x.aval`).

>>> fxad.typeof(fxad.numpy.ones((2, 3)))      # the ArrayType, of which there is one for all equal
f32[2,3]
>>> fxad.numpy.ones((2, 3)).aval
ShapedArray(float32[2,3])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.api.placement import NOWHERE, NamedSharding, PartitionSpec
from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.trace.convert import shaped


class AbstractValue:
    """What is known of a value before it exists."""

    __slots__ = ()


class ShapedArray(AbstractValue):
    """Shape, dtype, and whether the dtype adapts to others. Compared by these three."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(
        self, shape: Sequence[int], dtype: Any, weak_type: bool = False, **ignored: Any
    ) -> None:
        self.shape = tuple(map(int, shape))
        self.dtype = dtype if dtype == dt.float0 else dt.canonicalize(dtype, explicit=True)
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def type(self) -> ArrayType:
        """The same in fxad's terms, without the weakness."""
        return ArrayType(self.dtype, self.shape)

    @property
    def sharding(self) -> NamedSharding:
        return NamedSharding(NOWHERE, PartitionSpec(*(None,) * self.ndim))

    def update(self, **changes: Any) -> ShapedArray:
        """A copy with another shape, dtype or weak_type."""
        given = {"shape": self.shape, "dtype": self.dtype, "weak_type": self.weak_type}
        return ShapedArray(**{**given, **changes})

    def strip_weak_type(self) -> ShapedArray:
        return self.update(weak_type=False)

    def to_tangent_aval(self) -> ShapedArray:
        """What tangents have: float0 where there are none."""
        return self if dt.is_inexact(self.dtype) else ShapedArray(self.shape, dt.float0)

    def str_short(self, short_dtypes: bool = False) -> str:
        """`float32[2,3]`, or `f32[2,3]`."""
        short = short_dtypes and self.dtype in dt.all_dtypes
        name = dt.short_name(self.dtype) if short else dt.long_name(self.dtype)
        return f"{name}[{','.join(map(str, self.shape))}]"

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.weak_type

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of the type of a scalar")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapedArray) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __str__(self) -> str:
        return self.str_short()

    def __repr__(self) -> str:
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short()}{weak})"


def aval_of(x: Any) -> ShapedArray:
    """The ShapedArray of an array, a number, or anything with a shape and a dtype."""
    if isinstance(x, np.ndarray) and x.dtype == dt.float0:
        return ShapedArray(x.shape, dt.float0)
    type_ = shaped(x)
    weak = bool(getattr(x, "weak_type", getattr(x, "weak", isinstance(x, int | float | complex))))
    return ShapedArray(type_.shape, type_.dtype, weak and not dt.is_bool(type_.dtype))
