"""The memory that slabs are made of: the host's, or what a backend gives (a GPU's)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fxad.core import aligned, system
from fxad.runtime.disk import Tier

MAPPED = 1 << 16  # bytes; from here on slabs are pages of their own


class Space(Protocol):
    """Memory in which a Shelf keeps its slabs. A buffer is an array of bytes of this space."""

    def fresh(self, size: int) -> Any:
        """A buffer of undefined contents. Raises MemoryError."""

    def view(self, buffer: Any, dtype: np.dtype, shape: tuple[int, ...]) -> Any:
        """The first bytes of a buffer as an array."""

    def fill(self, view: Any, array: Any) -> None:
        """Copy an array, of this space or of the host, into a view."""

    def write(self, below: Tier, buffer: Any, used: int) -> Any:
        """Write the first `used` bytes to the tier below; its ticket."""

    def read(self, below: Tier, ticket: Any, buffer: Any, used: int) -> None:
        """Read them back."""


class HostSpace:
    """The memory of this process. What is dropped goes back to the operating system, which what
    `malloc` gives does only sometimes."""

    def fresh(self, size: int) -> np.ndarray:
        if size < MAPPED:
            return aligned.maker((size,), np.dtype(np.uint8), size)()
        return np.frombuffer(system.fresh_pages(size), np.uint8)

    def view(self, buffer: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        return np.ndarray(shape, dtype, buffer.data)

    def fill(self, view: np.ndarray, array: np.ndarray) -> None:
        view[...] = array

    def write(self, below: Tier, buffer: np.ndarray, used: int) -> Any:
        return below.write(buffer[:used])

    def read(self, below: Tier, ticket: Any, buffer: np.ndarray, used: int) -> None:
        below.read(ticket, buffer)


HOST: Space = HostSpace()
