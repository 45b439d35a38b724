"""Token ids in a file, read part by part, so that no text has to fit in memory.

tokens = TokenFile(Path("fineweb_val_000000.bin"), "<u2", offset=1024, length=100_000)
tokens[5:9]                                         # uint16 [4], read from the disk

Parts are read, not memory-mapped: where another process cuts a mapped file, or its disk fails,
the next access kills this process with SIGBUS; a read comes back short, and is a DataError.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fxad_nn.errors import DataError


class TokenSequence(Protocol):
    """Ids of a text, integers [length]: a NumPy array or a `TokenFile`."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Any: ...


class TokenFile:
    """`length` integers from `offset` on in the file at `path`; slices of it are read.

    The file stays open: renaming or removing it changes nothing.
    """

    def __init__(
        self, path: Path, dtype: str, offset: int, length: int, handle: int | None = None
    ) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self._offset = offset
        self._length = length
        self._handle = os.open(path, os.O_RDONLY) if handle is None else os.dup(handle)
        weakref.finalize(self, os.close, self._handle)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> np.ndarray:
        """The ids of a slice without a step; DataError where the file no longer holds them."""
        start, stop, step = part.indices(self._length)
        if step != 1:
            raise DataError(f"{self.path} can be read in slices without a step, got {part}")
        ids = np.empty(max(stop - start, 0), self.dtype)
        self._read(ids.view(np.uint8).data, start)
        return ids

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All ids at once."""
        return np.asarray(self[:], dtype)

    def between(self, start: int, stop: int) -> TokenFile:
        """The ids from number `start` up to `stop` as a sequence of their own, not read yet."""
        offset = self._offset + start * self.dtype.itemsize
        return TokenFile(self.path, self.dtype.str, offset, stop - start, self._handle)

    def _read(self, buffer: memoryview, start: int) -> None:
        """Fill `buffer` with the ids from number `start` on."""
        done = 0
        while done < len(buffer):
            at = self._offset + start * self.dtype.itemsize + done
            try:
                count = os.preadv(self._handle, [buffer[done:]], at)
            except OSError as error:
                raise DataError(f"{self.path} cannot be read any more: {error.strerror}") from error
            if not count:
                raise DataError(
                    f"{self.path} was cut while it was in use: it ends before byte {at}; put the "
                    "whole file back"
                )
            done += count
