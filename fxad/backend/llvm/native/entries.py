"""Files in the directory of compiled code: named by a hash, checked when they are read.

    entries.write(name, body)     # name: 64 hexadecimal digits
    entries.read(name)            # the body, or None

They are machine code, so they are read only where nobody else can have written them
(`folder.py`), and only under the name they were written for: a file that was renamed or restored
to a wrong place would run another program on buffers of this one's sizes.

`FXAD_CACHE_DIR` says where it is. It may hold other files too, then nothing is ever deleted: that
is done only in a directory with our tag (https://bford.info/cachedir), which one that is new or
empty gets, and only to names that nobody else uses.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from fxad.backend.llvm.native.folder import TEMPORARY, Folder, NotPrivate, private
from fxad.core import system
from fxad.core.config import config
from fxad.core.errors import CacheWarning

BOUND = 1 << 29  # bytes of entries kept, the least recently used go first
MAGIC = b"fxad compiled 2\n"
TAG = "CACHEDIR.TAG"
TAG_TEXT = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n# Compiled code of fxad; delete it freely.\n"
)
_ENTRY = re.compile(r"[0-9a-f]{64}\.fxad")
_STALE = 3600  # seconds after which nobody is writing a temporary file any more


def directory() -> Path:
    """Where entries are."""
    if config.cache_dir:
        return Path(config.cache_dir)
    return system.cache_directory()


def read(name: str) -> bytes | None:
    """The body of an entry, if there is a whole and private one."""
    raw = get(_file(name), used=True)
    if raw is None:
        return None
    body = raw[len(MAGIC) + 32 :]
    if not raw.startswith(seal(name, body)):
        damaged(name, "the digest does not match")
        return None
    return body


def damaged(name: str, why: object) -> None:
    """Warn that an entry is of no use."""
    warn_once(f"ignoring the damaged cache entry {directory() / _file(name)}: {why}")


def write(name: str, body: bytes) -> None:
    """Write an entry. Never raises for a disk that does not take it."""
    put(_file(name), seal(name, body) + body)


def seal(name: str, body: bytes) -> bytes:
    """What an entry begins with: which layout it has, and the SHA-256 of its name and body."""
    found = hashlib.sha256(name.encode())
    found.update(body)
    return MAGIC + found.digest()


def _file(name: str) -> str:
    return f"{name}.fxad"


def get(name: str, *, used: bool = False) -> bytes | None:
    """A file of the directory, None where there is none or others may have written it."""
    try:
        with private(directory()) as folder:
            content = folder.read(name)
            if used and content is not None:
                with contextlib.suppress(OSError):
                    folder.touch(name)
            return content
    except NotPrivate as why:
        _refused(why)
    except OSError:
        pass
    return None


def put(name: str, content: bytes) -> bool:
    """Write a file of the directory, whole or not at all; says whether it is there now."""
    try:
        with private(directory(), make=True) as folder:
            tagged = _tagged(folder)
            folder.write(name, content)
            _trim(folder, tagged)
            return True
    except NotPrivate as why:
        _refused(why)
    except OSError as error:
        if config.cache_dir:
            warn_once(f"cannot write to the cache directory {directory()}: {error}")
    return False


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time is inside, where the directory takes a file to lock."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, NotPrivate):
            folder = stack.enter_context(private(directory(), make=True))
            stack.enter_context(folder.locked(f"{name}.lock"))
        yield


def _refused(why: NotPrivate) -> None:
    warn_once(
        f"the cache directory {directory()} is not used: {why}. Put that right, or set "
        "FXAD_CACHE_DIR to a directory of your own"
    )


def _tagged(folder: Folder) -> bool:
    """Whether this is a directory of ours; an empty one becomes one."""
    try:
        tag = folder.read(TAG)
    except NotPrivate:
        return False
    if tag is not None:
        return tag == TAG_TEXT
    # fxad_nn's directory in it; what another process is writing, maybe the tag.
    others = [n for n in folder.names() if n != "nn" and not TEMPORARY.fullmatch(n)]
    if others:
        return False
    folder.write(TAG, TAG_TEXT)
    return True


def _trim(folder: Folder, tagged: bool) -> None:
    """Delete entries beyond BOUND, and what killed processes left behind."""
    entries = []
    for name in folder.names():
        with contextlib.suppress(OSError):  # another process deletes too
            facts = folder.facts(name)
            if _ENTRY.fullmatch(name) and stat.S_ISREG(facts.st_mode):
                entries.append((facts.st_mtime, facts.st_size, name))
            elif tagged and TEMPORARY.fullmatch(name) and time.time() - facts.st_mtime > _STALE:
                folder.delete(name)
    total = sum(size for _, size, _ in entries)
    if total > BOUND and not tagged:
        warn_once(
            f"the compiled programs in {folder.path} take {total >> 20} MB, and nothing is deleted "
            "in a directory that holds other files: set FXAD_CACHE_DIR to one of its own"
        )
        return
    for _, size, name in sorted(entries):
        if total <= BOUND:
            return
        with contextlib.suppress(OSError):
            folder.delete(name)
        total -= size


_warned: set[str] = set()


def warn_once(message: str) -> None:
    kind = message.split(":")[0].split("/")[0]
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(message, CacheWarning, stacklevel=2)
