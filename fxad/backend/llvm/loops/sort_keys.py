"""The keys of a sort: columns of numbers in scratch, read as unsigned integers of the same order.

keys = keys_of(scope, [buffer], 100, descending=False)
column = keys.columns[0]
bits = load_integers(scope, column.address, column.size, "%i", 16)  # 16 from the i-th on
integers = ordered(bits, column.dtype, keys.descending)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Scope
from fxad.core import dtypes
from fxad.core.record import record
from fxad.ir import kernel as ir


@record
class Column:
    """One key of every element, side by side. It may be read up to the end of a cache line."""

    address: str
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Bytes of a key."""
        return self.dtype.itemsize


@record
class Keys:
    """What elements are sorted by.

    columns: the most important first. extent: how many elements there are, at the most.
    descending: the largest first; of equals the first stays the first.
    """

    columns: tuple[Column, ...]
    extent: int
    descending: bool


def keys_of(scope: Scope, buffers: Sequence[ir.Buffer], extent: int, descending: bool) -> Keys:
    """The keys in these buffers."""
    columns = [Column(scope.context.pointers[b], b.dtype) for b in buffers]
    return Keys(tuple(columns), extent, descending)


def ordered(bits: Vec, dtype: np.dtype, descending: bool) -> Vec:
    """The unsigned integers that stand for keys, given by their bits; NaN is the largest, both
    zeros are one number. descending: the largest key is the smallest integer."""
    ascending = _ascending(bits, dtype)
    return ~ascending if descending else ascending


def _ascending(bits: Vec, dtype: np.dtype) -> Vec:
    if dtype.kind in "ub":
        return bits
    sign = bits.like(-(1 << 8 * dtype.itemsize - 1))
    if not dtypes.is_float(dtype):
        return bits ^ sign
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    size = bits & ~(-(1 << 8 * dtype.itemsize - 1))
    flipped = bits ^ (bits.binary("ashr", 8 * dtype.itemsize - 1) | sign)
    flipped = size.equals(0).where(sign, flipped)
    return size.compare("ugt", infinity).where(bits.like(-1), flipped)


def load_integers(scope: Scope, array: str, size: int, place: str | int, lanes: int = 1) -> Vec:
    """Integers of `size` bytes, from a place of an array of them on."""
    address = scope.f.offset(array, scope.f.mul(place, size))
    kind = f"i{8 * size}"
    type_ = kind if lanes == 1 else f"<{lanes} x {kind}>"
    return scope.code.op(kind, lanes, f"load {type_}, ptr {address}, align {lanes * size}")


def store_integers(scope: Scope, value: Vec, array: str, size: int, place: str) -> None:
    """Integers of `size` bytes, to a place of an array of them."""
    address = scope.f.offset(array, scope.f.mul(place, size))
    align = value.width * size
    scope.f.line(f"store {value.type} {value.text}, ptr {address}, align {align}")
