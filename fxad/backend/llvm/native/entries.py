"""Files in the directory of compiled code: named by a hash, checked when they are read.

    entries.write(name, body)     # name: 64 hexadecimal digits
    entries.read(name)            # the body, or None

They are machine code, so they are read only from a directory that nobody else may write to, and
only under the name they were written for: a file that was renamed or restored to a wrong place
would run another program on buffers of this one's sizes.
`FXAD_CACHE_DIR` says where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from fxad.core.config import config
from fxad.core.errors import CacheWarning

try:
    import fcntl
except ImportError:  # Windows: no locks between processes
    fcntl = None  # type: ignore[assignment]

BOUND = 1 << 29  # bytes of entries kept, the least recently used go first
MAGIC = b"fxad compiled 2\n"


def directory() -> Path:
    """Where entries are."""
    if config.cache_dir:
        return Path(config.cache_dir)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home())) / "fxad"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "fxad"


def read(name: str) -> bytes | None:
    """The body of an entry, if there is a whole and private one."""
    path = directory() / name
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if not is_private(path.parent):
        return None
    body = raw[len(MAGIC) + 32 :]
    if not raw.startswith(seal(name, body)):
        damaged(name, "the digest does not match")
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return body


def damaged(name: str, why: object) -> None:
    """Warn that an entry is of no use."""
    warn_once(f"ignoring the damaged cache entry {directory() / name}: {why}")


def write(name: str, body: bytes) -> None:
    """Write an entry. Never raises for a disk that does not take it."""
    put(name, seal(name, body) + body)


def seal(name: str, body: bytes) -> bytes:
    """What an entry begins with: which layout it has, and the SHA-256 of its name and body."""
    found = hashlib.sha256(name.encode())
    found.update(body)
    return MAGIC + found.digest()


def put(name: str, content: bytes) -> bool:
    """Write a file of the directory, whole or not at all; says whether it is there now."""
    where = directory()
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(where):
            return False
        handle, temporary = tempfile.mkstemp(dir=where, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, where / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _trim(where)
        return True
    except OSError as error:
        if config.cache_dir:
            warn_once(f"cannot write to the cache directory {where}: {error}")
        return False


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time is inside, where the directory takes a file to lock."""
    where = directory()
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            where.mkdir(mode=0o700, parents=True, exist_ok=True)
            if fcntl is not None and is_private(where):
                file = stack.enter_context((where / f"{name}.lock").open("a"))
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_private(where: Path) -> bool:
    """Whether nobody but this user can have written what is in a directory."""
    if not hasattr(os, "getuid"):
        return True
    try:
        found = where.stat()
    except OSError:
        return False
    if found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return True
    warn_once(f"the cache directory {where} belongs to others or they may write to it; not used")
    return False


def _trim(where: Path) -> None:
    """Delete entries beyond BOUND, and what killed processes left behind."""
    entries = []
    for path in where.iterdir():
        with contextlib.suppress(OSError):  # another process deletes too
            facts = path.stat()
            if path.suffix == ".tmp":
                if time.time() - facts.st_mtime > 3600:
                    path.unlink()
            elif len(path.name) == 64:
                entries.append((facts.st_mtime, facts.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= BOUND:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


_warned: set[str] = set()


def warn_once(message: str) -> None:
    kind = message.split(":")[0].split("/")[0]
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, CacheWarning, stacklevel=2)
