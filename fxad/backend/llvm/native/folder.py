"""A directory that nobody but this user (and root) can have written to, open while it is used.

    with private(Path("/home/me/.cache/fxad"), make=True) as folder:  # NotPrivate, OSError
        folder.write("name", b"content")  # whole or not at all
        folder.read("name")               # None: not there

What is checked is what is used: the path is walked from the root, each directory on it is judged
by its open descriptor, and files are opened relative to the last one, never through a link, and
judged likewise. Who renames what in between does not matter.

Windows has no such descriptors, owners or modes: there a folder is its path, and private by where
it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from fxad.core import system

# Whether files can be opened relative to a directory, and have owners.
DESCRIPTORS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
TEMPORARY = re.compile(r"\.fxad-[0-9a-f]{16}\.tmp")  # files that are being written
_LINKS = 40  # followed on the way to a directory, as many as Linux follows

# Flags that not every platform has.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = _SAFE | getattr(os, "O_DIRECTORY", 0)
_PASS = getattr(os, "O_PATH", os.O_RDONLY)  # /home is often closed to reading
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a named pipe would never open


class NotPrivate(Exception):
    """Somebody else may have written, or may replace, a file or directory; says which and why."""


class Folder:
    """An open directory. Names are of files in it; everything raises OSError and NotPrivate."""

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor  # None: every file by its path

    def read(self, name: str) -> bytes | None:
        """The content of a file, None if there is none."""
        try:
            with self._opened(name, _READ) as handle, open(handle, "rb", closefd=False) as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file."""
        temporary, new = f".fxad-{os.urandom(8).hex()}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            with self._opened(temporary, new) as handle, open(handle, "wb", closefd=False) as file:
                file.write(content)
            here = self._descriptor
            os.replace(self._at(temporary), self._at(name), src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with contextlib.suppress(OSError):
                self.delete(temporary)
            raise

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """One process at a time is inside, by a lock on the file `name`, made if it is missing."""
        with self._opened(name, os.O_RDWR | os.O_CREAT) as handle:
            system.lock(handle)
            yield

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self._descriptor is None else self._descriptor))

    def facts(self, name: str) -> os.stat_result:
        """Of the file itself, also where it is a link."""
        return os.lstat(self._at(name), dir_fd=self._descriptor)

    def touch(self, name: str) -> None:
        """Note that a file was used now."""
        os.utime(self._at(name), dir_fd=self._descriptor)

    def delete(self, name: str) -> None:
        os.unlink(self._at(name), dir_fd=self._descriptor)

    def _at(self, name: str) -> str | Path:
        return self.path / name if self._descriptor is None else name

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        where = self.path / name
        try:
            handle = os.open(self._at(name), flags | _SAFE, 0o600, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotPrivate(f"{where} is a link") from None
            raise
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise NotPrivate(f"{where} is not a file")
            if self._descriptor is not None:
                _judge(where, facts, (os.geteuid(),))
            yield handle
        finally:
            os.close(handle)


@contextlib.contextmanager
def private(path: Path, *, make: bool = False) -> Iterator[Folder]:
    """The directory `path`; with `make` it and those above it are made if missing, with mode 0700.

    Raises NotPrivate where it is not this user's, one above it is neither this user's nor root's,
    or others may write to one of them (above it they may if it is sticky, as /tmp is); OSError.
    """
    if not DESCRIPTORS:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        yield Folder(path, None)
        return
    with contextlib.ExitStack() as held:
        yield Folder(path, _walk(path, make, held))


def _walk(path: Path, make: bool, held: contextlib.ExitStack) -> int:
    """A descriptor of the directory at the end of a path, links followed."""
    own, links = os.geteuid(), 0
    here, at = -1, Path()  # the first part is the root, which is opened relative to nothing
    rest = [*reversed(path.absolute().parts)]
    while rest:
        part = rest.pop()
        at /= part
        facts = _facts(part, here, make)
        if stat.S_ISLNK(facts.st_mode):
            # Who else may replace it was asked of its directory; in a sticky one, its owner may.
            _judge(at, facts, (0, own))
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            rest += reversed(Path(os.readlink(part, dir_fd=here)).parts)
            at = at.parent
            continue
        way = _PASS if rest else os.O_RDONLY  # the last one may be listed
        here = os.open(part, way | _DIRECTORY, dir_fd=here)
        held.callback(os.close, here)
        _judge(at, os.fstat(here), (0, own) if rest else (own,), above=bool(rest))
    return here


def _facts(part: str, here: int, make: bool) -> os.stat_result:
    """What is at a step of a path: a directory made now if there is nothing, or a link itself."""
    try:
        return os.lstat(part, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):  # another process made it
        os.mkdir(part, 0o700, dir_fd=here)
    return os.lstat(part, dir_fd=here)


def _judge(
    where: Path, facts: os.stat_result, owners: tuple[int, ...], above: bool = False
) -> None:
    """NotPrivate where others own something or may write to it."""
    if facts.st_uid not in owners:
        raise NotPrivate(f"{where} belongs to another user ({facts.st_uid})")
    shared = facts.st_mode & 0o022 and not stat.S_ISLNK(facts.st_mode)  # a link has no mode
    if shared and not (above and facts.st_mode & stat.S_ISVTX):
        raise NotPrivate(f"others may write to {where}")
