"""llm.c's token shards: a header of 256 int32, then token ids, read part by part.

Ids are uint16, or uint32 in those that llm.c writes for Llama 3, which have other first numbers.

tokens = read_shard(Path("fineweb_val_000000.bin"), vocab=50257)    # uint16 [length]
tokens[1000:2000]
write_shard(Path("mine.bin"), ids)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fxad_nn.errors import DataError
from fxad_nn.files import replacing
from fxad_nn.token_file import TokenFile, TokenSequence

MAGIC = 20240520
VERSION = 1
WIDE_MAGIC, WIDE_VERSION = 20240801, 7
KINDS = {MAGIC: (VERSION, "<u2"), WIDE_MAGIC: (WIDE_VERSION, "<u4")}
HEADER_BYTES = 256 * 4


def read_shard(path: str | Path, vocab: int) -> TokenFile:
    """The ids of a shard, uint16 or uint32 [length].

    A wrong magic number or version, a truncated file, or an id of `vocab` or above is a
    DataError that names the file.
    """
    path = Path(path)
    size = path.stat().st_size
    if size < HEADER_BYTES:
        raise DataError(f"{path} holds {size} bytes; a token shard's header alone has 1024")
    magic, version, count = (int(i) for i in np.fromfile(path, "<i4", count=3))
    if magic not in KINDS:
        raise DataError(f"{path} is no token shard: it starts with {magic}, not {MAGIC}")
    known, dtype = KINDS[magic]
    if version != known:
        raise DataError(f"{path} is a token shard of version {version}; only {known} is known")
    if not count:
        raise DataError(f"{path} is a token shard that holds no tokens")
    expected = HEADER_BYTES + np.dtype(dtype).itemsize * count
    if count < 1 or size != expected:
        state = "truncated" if size < expected else "damaged"
        raise DataError(
            f"{path} is {state}: its header promises {count} tokens, {expected} bytes, "
            f"and it holds {size} bytes"
        )
    tokens = TokenFile(path, dtype, HEADER_BYTES, count)
    check_vocabulary(tokens, vocab, path)
    return tokens


def check_vocabulary(tokens: TokenSequence, vocab: int, path: Path) -> None:
    """DataError naming the file, position and id where an id is not below `vocab`."""
    chunk = 1 << 22
    for start in range(0, len(tokens), chunk):
        part = tokens[start : start + chunk]
        if int(part.max()) >= vocab:
            at = int(np.argmax(part >= vocab))
            raise DataError(
                f"{path}: token {start + at} is id {int(part[at])}, outside the vocabulary of "
                f"{vocab}; was the file made with another tokenizer?"
            )


def write_shard(path: str | Path, ids: np.ndarray) -> None:
    """Write ids, all below 65536, as one shard."""
    path = Path(path)
    with replacing(path) as temporary:
        temporary.write_bytes(_header(len(ids), wide=False) + _content(ids, False, path))


def _header(count: int, wide: bool) -> bytes:
    header = np.zeros(256, "<i4")
    header[:3] = (WIDE_MAGIC, WIDE_VERSION, count) if wide else (MAGIC, VERSION, count)
    return header.tobytes()


def _content(ids: np.ndarray, wide: bool, path: Path) -> bytes:
    largest = (1 << 31) - 1 if wide else (1 << 16) - 1
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) <= largest:
        raise DataError(
            f"{path}: a shard holds ids from 0 to {largest}, got up to {int(ids.max())}"
        )
    return ids.astype("<u4" if wide else "<u2").tobytes()


class ShardWriter:
    """Ids as shards NAME_000000.bin, NAME_000001.bin, ... of `most` tokens each, as they come.

        with ShardWriter(Path("out"), "train", most=100_000_000, wide=False) as writer:
            writer.add(ids)

    Each shard is wholly there or not there; where the body fails, the one that was begun is not.
    Raises OSError, and DataError for ids that do not fit.
    """

    def __init__(self, directory: str | Path, name: str, most: int, wide: bool) -> None:
        self._directory, self._name, self._most, self._wide = Path(directory), name, most, wide
        self._open = contextlib.ExitStack()
        self._file: BinaryIO | None = None
        self._count = 0
        self.shards: list[Path] = []
        self.tokens = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None and self._file is not None:
            with self._writing():
                self._finish()
        self._open.__exit__(*error)

    def add(self, ids: np.ndarray) -> None:
        """Write ids [length] after those before."""
        while len(ids):
            part, ids = ids[: self._most - self._count], ids[self._most - self._count :]
            with self._writing():
                file = self._file or self._begin()
                file.write(_content(part, self._wide, self.shards[-1]))
                self._count += len(part)
                self.tokens += len(part)
                if self._count == self._most:
                    self._finish()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """An error of the disk names the shard."""
        try:
            yield
        except OSError as error:
            what = f"{error.strerror or error}; choose another directory with `out`"
            if len(self.shards) > 1:
                what += ", or remove the shards before this one, which are whole"
            raise OSError(error.errno, what, str(self.shards[-1])) from error

    def _begin(self) -> BinaryIO:
        self.shards.append(self._directory / f"{self._name}_{len(self.shards):06d}.bin")
        temporary = self._open.enter_context(replacing(self.shards[-1]))
        self._file = self._open.enter_context(open(temporary, "wb"))  # noqa: SIM115
        self._file.write(bytes(HEADER_BYTES))
        return self._file

    def _finish(self) -> None:
        assert self._file is not None
        self._file.seek(0)
        self._file.write(_header(self._count, self._wide))
        self._file, self._count = None, 0
        self._open.close()
