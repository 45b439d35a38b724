"""Files that are either wholly there or not there: temporary name, fsync, rename.

with replacing(path) as temporary:
    temporary.write_text("...")
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fxad.core.system import cache_directory as shared_directory
from fxad_nn.errors import ConfigError


def cache_directory() -> Path:
    """Where derived and downloaded files live: $FXAD_CACHE_DIR, else the user's cache."""
    if chosen := os.environ.get("FXAD_CACHE_DIR"):
        shared = Path(chosen)
    else:
        shared = shared_directory()
    with contextlib.suppress(OSError):  # who needs it will say so
        # Compiled code is kept there too, and used only if no group may write there.
        shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    return shared / "nn"


def no_directory(path: Path) -> str:
    """What a path is that is no directory, in words."""
    return "is a file" if path.exists() else "does not exist"


def sync(path: Path) -> None:
    """Force a file or a directory's names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Written:
    """The bytes of a file that was written."""

    size: int
    sha256: str


Content = bytes | memoryview  # contiguous
_PART = 16 << 20  # bytes that are written, and hashed, at once
_UNSYNCED = 64 << 20  # written bytes that are forced to the disk while more are written
_UNHASHED = 4  # parts that may wait: the caller may have made them for this call alone


def write(path: Path, contents: Iterable[Content]) -> Written:
    """Make a file of these bytes, one after another. Raises OSError.

    Two threads hash them and force them to the disk meanwhile: 1.5 GB take as long as the slowest
    of the three. The digest is of what was given, so a later read also finds what was written
    wrong.
    """
    digest, size, unsynced = hashlib.sha256(), 0, 0
    hashed: list[Future[None]] = []
    synced: Future[None] | None = None
    with (
        open(path, "xb") as file,
        ThreadPoolExecutor(1, "hash") as hashing,
        ThreadPoolExecutor(1, "sync") as syncing,
    ):
        for part in _parts(contents):
            if len(hashed) >= _UNHASHED:
                hashed[-_UNHASHED].result()
            hashed.append(hashing.submit(digest.update, part))
            file.write(part)
            size, unsynced = size + len(part), unsynced + len(part)
            if unsynced >= _UNSYNCED and (synced is None or synced.done()):
                if synced is not None:
                    synced.result()
                synced, unsynced = syncing.submit(os.fsync, file.fileno()), 0
        for task in (*hashed, synced):
            if task is not None:
                task.result()
    return Written(size, digest.hexdigest())


def _parts(contents: Iterable[Content]) -> Iterator[memoryview]:
    for content in contents:
        if not memoryview(content).nbytes:  # which cannot be cast
            continue
        whole = memoryview(content).cast("B")
        for start in range(0, len(whole), _PART):
            yield whole[start : start + _PART]


def written(path: Path) -> Written:
    """What a file holds now. Raises OSError."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Written(os.fstat(file.fileno()).st_size, digest)


def require_writable(directory: Path) -> None:
    """ConfigError where nothing could be saved in `directory`, made or still to be made: better
    to learn that before hours of training than after."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigError(f"cannot write to {directory}: {existing} is a file; choose another")
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise ConfigError(
            f"cannot write to {directory}: {error.strerror}; choose another directory with `out`"
        ) from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name next to `path`; on success sync it and rename it to `path`.

    Makes missing parent directories. Where the body or the disk fails, what was at `path` stays
    as it was, and the temporary file or directory is removed; `abandoned` finds those of
    processes that were killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        for part in temporary.iterdir() if temporary.is_dir() else ():
            sync(part)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def withdrawn(path: Path) -> Iterator[None]:
    """Take a file's name away before the body runs; it has it again where the body fails, and is
    removed where it ends. For a file that says something of others that the body replaces."""
    aside = _temporary(path.with_name(f"{path.name}.old"))
    there = path.exists()
    if there:
        os.replace(path, aside)
        sync(path.parent)
    try:
        yield
    except BaseException:
        if there:
            os.replace(aside, path)
        raise
    aside.unlink(missing_ok=True)


def discard(path: Path) -> None:
    """Remove a directory. It loses its name first: what a killed process leaves is `abandoned`."""
    unnamed = _temporary(path)
    with contextlib.suppress(OSError):
        os.replace(path, unnamed)
    shutil.rmtree(unnamed, ignore_errors=True)


def _temporary(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}.tmp"


def abandoned(directory: Path, pattern: str) -> list[Path]:
    """What `replacing` was writing, or `discard` removing, when its process ended, of names that
    match `pattern`."""
    return [path for path in directory.glob(f".{pattern}.*.tmp") if not _writer_lives(path)]


def _writer_lives(temporary: Path) -> bool:
    number = temporary.name.split(".")[-2]
    try:
        os.kill(int(number), 0)
    except (ValueError, OverflowError, ProcessLookupError):
        return False
    except PermissionError:  # another user's
        return True
    return int(number) != os.getpid()
