"""Slices of a known length from computed starts, as parts of an index.

    x[ds(i, 3)]                     # x[i : i + 3], where i may be traced
    x.at[0, ds(i, 3)].add(1.0)

How the window is read and put back is in `fxad.numpy.indexing` and `fxad.numpy.updates`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.core import pytree
from fxad.core.errors import BadArgument, ShapeError, TracedIndexError
from fxad.trace.tracer import Tracer

__all__ = ["Slice", "check_fits", "ds", "without_slice"]


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


def check_fits(item: Slice, axis: int, length: int) -> None:
    """ShapeError where an axis has fewer elements than a slice without a stride."""
    if item.stride == 1 and item.size > length:
        raise ShapeError(
            f"indexing: ds(..., {item.size}) of axis {axis}, which has length {length}; a window "
            "is no longer than its axis"
        )
