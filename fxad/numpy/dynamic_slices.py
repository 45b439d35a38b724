"""Slices of a known length from computed starts, as parts of an index.

    x[ds(i, 3)]                     # x[i : i + 3], where i may be traced
    x.at[0, ds(i, 3)].add(1.0)

`fxad.numpy.indexing` and `fxad.numpy.updates` do the rest of the index in the window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.api.indices import check_indices, reaching
from fxad.core import dtypes as dt
from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError, TracedIndexError, TypeMismatch
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS
from fxad.ir.rewrite import literal
from fxad.numpy.core import value_of
from fxad.ops.arrays.gather import fill_value
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import Tracer

__all__ = ["Slice", "Window", "ds", "start_index", "without_slice"]


@pytree.register_dataclass(data_fields=["start"], meta_fields=["size", "stride"])
@dataclass(frozen=True)
class Slice:
    """`size` elements from `start` on, every `stride`-th."""

    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: Any = None, stride: int | None = None) -> slice | Slice:
    """A part of an index: `size` elements from `start` on, which may be a traced integer.

    `ds(None)` is `:`, `ds(n)` is `:n` and `ds(i, n, step)` every step-th element from i on. A
    negative start counts from the end. A window that sticks out is moved inside by reads, and left
    alone by updates (mode="clip": moved inside); with a stride that holds of each element.

    >>> x = fxad.numpy.arange(10)
    >>> fxad.jit(lambda i: x[ds(i, 3)])(4)
    Array([4, 5, 6], dtype=int32)

    Raises TracedIndexError for a traced size, BadArgument for one below 0 or a stride below 1, and
    where it is used ShapeError for one above the axis's length.
    """
    if start is None:
        return slice(None)
    stride = 1 if stride is None else stride
    if size is None:
        start, size = 0, start
    if isinstance(size, Tracer) or isinstance(stride, Tracer):
        raise TracedIndexError(
            "ds: size and stride must be known, only the start may be traced; mask what is read "
            "too much with fxad.numpy.where"
        )
    size, stride = int(np.asarray(size)), int(np.asarray(stride))
    if size < 0 or stride < 1:
        raise BadArgument(f"ds: size {size} and stride {stride}: expected size >= 0, stride >= 1")
    return Slice(start, size, stride)


def without_slice(index: Any) -> tuple[int, Slice, tuple[Any, ...]] | None:
    """Where the first Slice of an index stands, itself, and the index with `:` in its place."""
    items = index if isinstance(index, tuple) else (index,)
    for at, item in enumerate(items):
        if isinstance(item, Slice):
            return at, item, (*items[:at], slice(None), *items[at + 1 :])
    return None


class Window:
    """The elements of an array that a Slice names on one axis: read, and put back changed.

    checked: places outside are an error under `debug.indices`. wrap: a start below 0 counts from
    the end. Raises ShapeError where the axis is shorter than a slice without a stride.
    """

    def __init__(self, value: Array, axis: int, item: Slice, checked: bool, wrap: bool) -> None:
        length = value.shape[axis]
        if item.stride == 1 and item.size > length:
            raise ShapeError(
                f"indexing: ds(..., {item.size}) of axis {axis} of {value.type}; a window is no "
                "longer than its axis"
            )
        if checked and item.size:
            span = (item.size - 1) * item.stride + 1
            check_indices("indexing", item.start, value.shape, axis, wrap, window=span)
        self.value, self.axis, self.item = value, axis, item
        known = item.start if isinstance(item.start, int) else None
        self.known = known + length if known is not None and known < 0 and wrap else known
        self.start = start_index("ds", item.start, length, wrap)

    def read(self, mode: str, fill: Any = None) -> Array:
        """mode: "clamp" moves a window inside that sticks out, "fill" fills it. With a stride that
        holds of each element."""
        value, axis = self.value, self.axis
        if self.item.stride != 1:
            how = {"batch": 0, "mode": mode, "fill": fill, "unique": False}
            found = OPS["gather"](value, self._places(), axes=(axis,), **how)
            return OPS["transpose"](found, permutation=(*range(1, axis + 1), 0, *self._after()))
        sizes = (*value.shape[:axis], self.item.size, *value.shape[axis + 1 :])
        found = OPS["dynamic_slice"](value, *self._starts(), sizes=sizes)
        if mode == "clamp":
            return found
        filling = literal(fill_value(value.dtype, fill), value.dtype)
        return OPS["select"](self._fits(sizes), found, _broadcast(filling, sizes))

    def replaced(self, new: Array, mode: str) -> Array:
        """The array with `new` in the window's place. mode: "drop" leaves a window alone that
        sticks out, or with a stride such elements; "clamp" moves them inside."""
        value, axis = self.value, self.axis
        if self.item.stride != 1:
            first = OPS["transpose"](new, permutation=(axis, *range(axis), *self._after()))
            how = {"batch": 0, "mode": mode, "monoid": "set", "unique": mode == "drop"}
            return OPS["scatter"](value, first, self._places(), axes=(axis,), **how)
        if mode == "drop":
            new = OPS["select"](self._fits(new.shape), new, self.read("clamp"))
        return OPS["dynamic_update"](value, new, *self._starts())

    def _after(self) -> range:
        return range(self.axis + 1, self.value.ndim)

    def _starts(self) -> list[Any]:
        zero = literal(0, dt.int32)
        return [self.start if a == self.axis else zero for a in range(self.value.ndim)]

    def _places(self) -> Any:
        length = self.value.shape[self.axis]
        dtype = dt.index_dtype(length)
        count = np.arange(self.item.size, dtype=np.int64) * self.item.stride
        if self.known is not None:  # `start_index` has moved the first one near the axis
            return np.clip(count + self.known, -1, length).astype(dtype)
        first = OPS["convert"](self.start, dtype=dtype)
        return OPS["add"](_broadcast(first, count.shape), count.astype(dtype))

    def _fits(self, shape: tuple[int, ...]) -> Any:
        length = self.value.shape[self.axis]
        last = length - self.item.size
        if self.known is not None:
            return Concrete(np.full(shape, 0 <= self.known <= last))
        start = OPS["convert"](self.start, dtype=dt.index_dtype(length))
        return _broadcast(OPS["and"](OPS["ge"](start, 0), OPS["le"](start, last)), shape)


def _broadcast(value: Any, shape: tuple[int, ...]) -> Any:
    return OPS["broadcast"](value, shape=shape, axes=())


def start_index(name: str, start: Any, size: int, from_end: bool) -> Any:
    """A start on an axis of `size` elements as one integer; negative ones counted from the end
    where `from_end`. Raises TypeMismatch for anything else."""
    if isinstance(start, int):
        number = start + size if start < 0 and from_end else start
        return literal(min(max(number, -1), size), dt.index_dtype(size))
    index = value_of(start, name)
    if is_python_scalar(start) or index.shape or not dt.is_integer(index.dtype):
        seen = repr(start) if is_python_scalar(start) else index.type
        raise TypeMismatch(f"{name}: a start index must be one integer, not {seen}")
    if not dt.is_signed(index.dtype) or not from_end:
        return index
    index = reaching(index, size)
    return OPS["select"](OPS["lt"](index, 0), OPS["add"](index, size), index)
