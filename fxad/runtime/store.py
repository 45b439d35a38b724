"""Large arrays offloaded under keys, to memory up to a budget and to a file beyond it.

    store = Store("64MiB")
    store.put("layer 3", x)    # copied
    x = store.take("layer 3")  # valid until the next call

What was put last is expected back first: earlier blocks are read ahead in that order. Any order
works.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable
from typing import Any

import numpy as np

from fxad.core.aligned import in_lines
from fxad.core.errors import BadArgument
from fxad.runtime.disk import Tier
from fxad.runtime.shelf import Slab, shelf_of
from fxad.runtime.space import HOST, Space


class Store:
    """Arrays by key; see `Tape` for budget, directory and below. space: the memory they are in
    while they are above (`fxad.runtime.space`). Each is written and read whole, so they should be
    large. Used by one thread at a time."""

    def __init__(
        self,
        budget: int | str | None = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        below: Tier | None = None,
        space: Space = HOST,
    ) -> None:
        self.shelf = shelf_of("a store's budget", budget, directory, below, space)
        self._held: dict[Hashable, tuple[Slab, np.dtype, tuple[int, ...]]] = {}
        self._borrowed: Slab | None = None
        # Reserved for what is put next, and views.
        self._open: dict[Hashable, tuple[Slab, Any]] = {}
        self._out: dict[Hashable, Slab] = {}  # borrowed until they are released
        self._away = 0  # bytes of both

    def __len__(self) -> int:
        return len(self._held) + len(self._open) + len(self._out)

    def put(self, key: Hashable, array: Any) -> None:
        """Keep a copy, or the array itself if it is the one reserved for this key. Raises
        BadArgument where the key is taken, StorageError (see Shelf)."""
        self._reclaim()
        if key in self._held:
            raise BadArgument(f"the store holds something under {key!r} already")
        nbytes, space = _nbytes(array), self.shelf.space
        slab, view = self._open.pop(key, None) or (self._new(nbytes), None)
        if view is None or not _same_memory(view, array):
            space.fill(space.view(slab.buffer, array.dtype, array.shape), array)
        if view is not None:
            self._away -= slab.size
        slab.used = nbytes
        self._held[key] = (slab, array.dtype, array.shape)
        self.shelf.seal(slab)

    def reserve(self, key: Hashable, like: np.ndarray) -> Any:
        """An array like this one whose contents are to be put under the key next; None where that
        would leave less than half of the budget for what waits."""
        self._reclaim()
        if not self._spare(_nbytes(like)):
            return None
        slab = self._new(_nbytes(like))
        view = self.shelf.space.view(slab.buffer, like.dtype, like.shape)
        self._open[key] = slab, view
        self._away += slab.size
        return view

    def take(self, key: Hashable) -> Any:
        """The array put under this key, which is free again. The memory is borrowed until the
        next call. Raises BadArgument where there is none."""
        self._reclaim()
        if key not in self._held:
            raise BadArgument(f"the store holds nothing under {key!r}")
        slab, dtype, shape = self._held[key]
        self.shelf.want(slab)
        del self._held[key]
        self._borrowed = slab
        return self.shelf.space.view(slab.buffer, dtype, shape)

    def borrow(self, key: Hashable, own: np.ndarray) -> Any:
        """As `take`, but the memory is borrowed until `release`; None where that would leave less
        than half of the budget for what waits: then `own` holds the array."""
        array = self.take(key)
        slab, self._borrowed = self._borrowed, None
        assert slab is not None
        if not self._spare(slab.size):
            own[...] = array.reshape(own.shape)
            self.shelf.drop(slab)
            return None
        self.shelf.open(slab)
        self._out[key] = slab
        self._away += slab.size
        return array

    def release(self, key: Hashable) -> None:
        """The memory borrowed under this key, if any, is not needed any more."""
        self._reclaim()
        slab = self._out.pop(key, None)
        if slab is not None:
            self._away -= slab.size
            self.shelf.drop(slab)

    def close(self) -> None:
        """Drop everything, and the file. The store cannot be used afterwards."""
        self._held.clear()
        self._open.clear()
        self._out.clear()
        self._borrowed = None
        self.shelf.close()

    def _new(self, nbytes: int) -> Slab:
        return self.shelf.new(in_lines(nbytes))

    def _spare(self, nbytes: int) -> bool:
        """Whether so many bytes more may be neither written nor read over."""
        budget = self.shelf.budget
        return budget is None or self._away + nbytes <= budget // 2

    def _reclaim(self) -> None:
        if self._borrowed is not None:
            self.shelf.drop(self._borrowed)
            self._borrowed = None


def _nbytes(array: np.ndarray) -> int:
    return math.prod(array.shape) * array.dtype.itemsize


def _same_memory(view: np.ndarray, array: np.ndarray) -> bool:
    return view.ctypes.data == array.ctypes.data
