"""Large arrays put aside by key, in memory up to a budget and in a file beyond it.

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

from fxad.core.errors import BadArgument
from fxad.runtime.disk import Tier
from fxad.runtime.shelf import ALIGN, Slab, shelf_of
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
        self._lent: Slab | None = None

    def __len__(self) -> int:
        return len(self._held)

    def put(self, key: Hashable, array: Any) -> None:
        """Keep a copy. Raises BadArgument where the key is taken, StorageError (see Shelf)."""
        self._reclaim()
        if key in self._held:
            raise BadArgument(f"the store holds something under {key!r} already")
        nbytes = math.prod(array.shape) * array.dtype.itemsize
        slab, space = self.shelf.new(max(-(-nbytes // ALIGN), 1) * ALIGN), self.shelf.space
        space.fill(space.view(slab.buffer, array.dtype, array.shape), array)
        slab.used = nbytes
        self._held[key] = (slab, array.dtype, array.shape)
        self.shelf.seal(slab)

    def take(self, key: Hashable) -> Any:
        """The array put under this key, which is free again. The memory is lent until the next
        call. Raises BadArgument where there is none."""
        self._reclaim()
        if key not in self._held:
            raise BadArgument(f"the store holds nothing under {key!r}")
        slab, dtype, shape = self._held[key]
        self.shelf.want(slab)
        del self._held[key]
        self._lent = slab
        return self.shelf.space.view(slab.buffer, dtype, shape)

    def close(self) -> None:
        """Drop everything, and the file. The store cannot be used afterwards."""
        self._held.clear()
        self._lent = None
        self.shelf.close()

    def _reclaim(self) -> None:
        if self._lent is not None:
            self.shelf.drop(self._lent)
            self._lent = None
