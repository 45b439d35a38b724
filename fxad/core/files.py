"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """`write_bytes` of a text in UTF-8."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file under a temporary name beside it, and give it its name when all is on the disk.
    A reader sees what was there before or the whole content, whatever happens in between."""
    whole = os.path.abspath(os.fspath(path))
    temporary = f"{whole}.{os.urandom(6).hex()}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, whole)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
