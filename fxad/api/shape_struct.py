"""ShapeDtypeStruct: an argument that `eval_shape`, `make_ir` and `lower` take in place of an array.

jit(f).lower(ShapeDtypeStruct((8, 3), "float32"))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument
from fxad.core.types import ArrayType
from fxad.trace.convert import shaped


class ShapeDtypeStruct:
    """The shape and dtype of an array that need not exist. sharding: kept as it is given.

    >>> like = fxad.ShapeDtypeStruct((3, 4), jnp.float32)
    >>> fxad.jit(jnp.transpose).lower(like).out_info
    ShapeDtypeStruct(shape=(4, 3), dtype=float32)
    """

    __slots__ = ("dtype", "shape", "sharding", "weak_type")

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, weak_type: bool = False, sharding: Any = None
    ) -> None:
        if dtype is None:
            raise BadArgument("ShapeDtypeStruct: a dtype must be given")
        self.shape = tuple(shape)
        self.dtype = dt.canonicalize(dtype, explicit=True)
        self.weak_type = weak_type
        self.sharding = sharding

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The shape, dtype and weakness of an array, or of anything with a shape and a dtype."""
        type_ = shaped(x)
        weak = bool(getattr(x, "weak_type", getattr(x, "weak", False)))
        return cls(type_.shape, type_.dtype, weak_type=weak)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with another `shape`, `dtype`, `weak_type` or `sharding`."""
        return ShapeDtypeStruct(**{name: getattr(self, name) for name in self.__slots__} | changes)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return ArrayType(self.dtype, self.shape).size

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of the shape struct of a scalar")
        return self.shape[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (
            other.shape,
            other.dtype,
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={dt.long_name(self.dtype)})"
