"""The directory of a run, kept by one process and followed where it is moved.

with reserved(Path("runs/nano-1")) as place:
    ...                                     # mv runs/nano-1 runs/best
    place.settle()                          # "runs/nano-1 was moved to .../runs/best; ..."
    place.path                              # .../runs/best
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fxad.core.system import lock, path_of
from fxad_nn.errors import ConfigError


class Place:
    """A locked directory. The lock is on the directory itself, not on its name, and ends with
    the process, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._absolute = path.absolute()  # the working directory may vanish too
        self._handle = _locked(path)

    def in_place(self) -> bool:
        """Whether `path` still names the directory that was locked."""
        return _is_at(self.path, self._handle)

    def settle(self) -> str | None:
        """Make `path` name the directory again, and say in words what had become of it.

        A moved directory is followed. One that is gone is made again, under a name that nobody
        has taken meanwhile; OSError where that cannot be done. None where nothing happened.
        """
        if self.in_place():
            return None
        old = self.path
        if moved := _present_path(self._handle):
            self.path = self._absolute = moved
            return f"{old} was moved to {moved}; the run goes on there"
        made = _made_again(self._absolute)
        handle = _locked(made)
        os.close(self._handle)
        self.path, self._absolute, self._handle = made, made, handle
        return f"{old} is gone, removed or moved to another disk; the run goes on in {made}, new"

    def release(self) -> None:
        """End the lock; a directory that is still empty is removed."""
        if self.in_place():
            with contextlib.suppress(OSError):
                self.path.rmdir()
        os.close(self._handle)


@contextlib.contextmanager
def reserved(directory: Path) -> Iterator[Place]:
    """Keep other processes that ask the same out of `directory`, which is made if it is missing
    (and removed if it is still empty at the end). ConfigError where another one is in there."""
    directory.mkdir(parents=True, exist_ok=True)
    place = Place(directory)
    try:
        yield place
    finally:
        place.release()


def _locked(directory: Path) -> int:
    """An open handle that holds the lock of `directory`."""
    handle = os.open(directory, os.O_RDONLY)
    if not lock(handle, wait=False):
        os.close(handle)
        raise ConfigError(
            f"another process is training in {directory}: wait until it has ended, or choose "
            "another directory with `out`"
        )
    return handle


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except OSError:
        return False


def _present_path(handle: int) -> Path | None:
    """Where an open directory is now, if it is anywhere and the system can tell."""
    path = path_of(handle)
    return Path(path) if path and _is_at(Path(path), handle) else None


def _made_again(path: Path) -> Path:
    """A new directory at `path`, or at `path`.1, .2, ... where somebody else has made one."""
    made, number = path, 0
    while True:
        try:
            made.mkdir(parents=True)
            return made
        except FileExistsError:
            number += 1
            made = path.with_name(f"{path.name}.{number}")
