"""A file of byte blocks whose space is used again: the tier below memory.

    disk = Disk("/scratch")
    ticket = disk.write(array_of_bytes)
    disk.read(ticket, into)
    disk.free(ticket)

The file has no name, so nothing is left behind however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from typing import Any, Protocol

import numpy as np

from fxad.core.arena import Arena
from fxad.core.errors import StorageError
from fxad.core.limits import readable
from fxad.core.record import valued


class Tier(Protocol):
    """What can lie below a Shelf: it keeps the bytes of blocks and gives them back."""

    def write(self, data: np.ndarray) -> Any:
        """Keep a copy of the bytes; the answer finds them again. Raises StorageError."""

    def read(self, ticket: Any, into: np.ndarray) -> None:
        """Fill `into` with the bytes. Raises StorageError."""

    def free(self, ticket: Any) -> None:
        """The bytes are not needed any more."""

    def close(self) -> None:
        """Free everything."""


@valued
class Extent:
    """A place in the file."""

    offset: int
    nbytes: int


class Disk:
    """Blocks in an unnamed file of `directory` (the system's directory for temporary files).

    Any number of threads may use it. Every failure of the file system is a StorageError.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = os.fspath(directory or tempfile.gettempdir())
        self._space = Arena()
        self._lock = threading.Lock()
        try:
            self._file = tempfile.TemporaryFile(dir=self.directory, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed("cannot make a file", error) from error
        self._end = weakref.finalize(self, self._file.close)

    @property
    def peak_bytes(self) -> int:
        """The largest size the file has had."""
        return self._space.peak

    def write(self, data: np.ndarray) -> Extent:
        """Keep a copy of an array of bytes."""
        with self._lock:
            offset = self._space.take(data.nbytes)
        view, at = data.data, offset
        try:
            while view:
                done = os.pwrite(self._file.fileno(), view, at)
                view, at = view[done:], at + done
        except (OSError, ValueError) as error:
            with self._lock:
                self._space.give(offset)
            raise self._failed(f"cannot write {readable(data.nbytes)}", error) from error
        return Extent(offset, data.nbytes)

    def read(self, ticket: Extent, into: np.ndarray) -> None:
        """Fill an array of bytes with what was written."""
        view, at = into.data[: ticket.nbytes], ticket.offset
        try:
            while view:
                done = os.preadv(self._file.fileno(), [view], at)
                if not done:
                    raise OSError(f"the file ends before byte {at:,}")
                view, at = view[done:], at + done
        except (OSError, ValueError) as error:
            raise self._failed(f"cannot read {readable(ticket.nbytes)}", error) from error

    def free(self, ticket: Extent) -> None:
        """The space may be used again."""
        with self._lock:
            self._space.give(ticket.offset)

    def close(self) -> None:
        """Give the file's space back to the file system."""
        self._end()

    def _failed(self, what: str, error: Exception) -> StorageError:
        return StorageError(
            f"{what} in {self.directory}: {error}; free space there, or choose another directory "
            "(the environment variable TMPDIR says which is taken by default)"
        )
