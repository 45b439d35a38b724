"""Where training text comes from: a file, Tiny Shakespeare, or Python's own sources.

text = find_text(None)
print(text.source)          # "Tiny Shakespeare (cached in ...)"
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import sysconfig
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from fxad_nn.errors import DataError
from fxad_nn.files import cache_directory, replacing

SHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
LIBRARY_BYTES = 1_200_000


@dataclass(frozen=True)
class Text:
    """A text and, in words for the user, where it came from."""

    content: str
    source: str


def find_text(path: str | Path | None, download: bool = True, marked: bool = False) -> Text:
    """The text of `path`, as `read_text`; without one, Tiny Shakespeare from the cache or the
    network, else sources of the running Python's standard library, which need neither."""
    if path is not None:
        return Text(read_text(path, marked), str(path))
    cached = cache_directory() / "tinyshakespeare.txt"
    with contextlib.suppress(OSError):  # absent, or not ours to read
        kept = cached.read_bytes()
        if _digest(kept) == SHAKESPEARE_SHA256:
            return Text(kept.decode(), f"Tiny Shakespeare (cached in {cached})")
    content = fetch(SHAKESPEARE_URL, seconds=8.0) if download else None
    if content is not None and _digest(content) == SHAKESPEARE_SHA256:
        with contextlib.suppress(OSError), replacing(cached) as temporary:
            temporary.write_bytes(content)
        return Text(content.decode(), "Tiny Shakespeare (downloaded)")
    return Text(library_text(), "Python's standard library sources (no Tiny Shakespeare at hand)")


def read_text(path: str | Path, marked: bool = False) -> str:
    """The contents of a UTF-8 file; a missing, empty or undecodable one is a DataError.

    The mark that some editors put before them (U+FEFF) is left out unless `marked` says that it is
    a part of the text.
    """
    path = Path(path)
    if not path.is_file():
        if path.exists():
            raise DataError(f"{path} is no regular file: a text is read from one")
        raise DataError(f"there is no file {path}{_similar_file(path)}")
    try:
        content = path.read_bytes().decode("utf-8" if marked else "utf-8-sig")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}: {error.reason}); convert it first, "
            f"or give token shards as .bin files"
        ) from error
    if not content:
        raise DataError(f"{path} is empty")
    return content


def _similar_file(path: Path) -> str:
    """A half sentence with the file of nearly that name beside `path`, where there is one."""
    if not path.parent.is_dir():
        return f"; {path.parent} does not exist"
    names = [sibling.name for sibling in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def fetch(url: str, seconds: float) -> bytes | None:
    """The body at `url`, or None where it does not arrive in time for whatever reason.

    A thread, because a resolver without a network may block longer than any socket timeout.
    """
    body: list[bytes] = []

    def load() -> None:
        try:
            with urllib.request.urlopen(url, timeout=seconds) as response:
                body.append(response.read())
        except (OSError, ValueError):
            return

    worker = threading.Thread(target=load, daemon=True)
    worker.start()
    worker.join(seconds)
    return body[0] if body else None


def library_text() -> str:
    """About 1.2 MB of the standard library's top-level modules, in the order of their names.

    Only ASCII modules, so that the alphabet stays as small as that of ordinary English.
    """
    parts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        content = path.read_bytes()
        if not content.isascii():
            continue
        parts.append(content.decode("ascii"))
        size += len(content)
        if size >= LIBRARY_BYTES:
            break
    if not parts:
        raise DataError("this Python carries no library sources; give a text with `data=FILE`")
    return "".join(parts)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
