"""llm.c's token shards: a header of 256 int32, then uint16 token ids, read part by part.

tokens = read_shard(Path("fineweb_val_000000.bin"), vocab=50257)    # uint16 [length]
tokens[1000:2000]
write_shard(Path("mine.bin"), ids)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fxad_nn.errors import DataError
from fxad_nn.files import replacing
from fxad_nn.token_file import TokenFile, TokenSequence

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 256 * 4


def read_shard(path: Path, vocab: int) -> TokenFile:
    """The ids of a shard, uint16 [length].

    A wrong magic number or version, a truncated file, or an id of `vocab` or above is a
    DataError that names the file.
    """
    size = path.stat().st_size
    if size < HEADER_BYTES:
        raise DataError(f"{path} holds {size} bytes; a token shard's header alone has 1024")
    magic, version, count = (int(i) for i in np.fromfile(path, "<i4", count=3))
    if magic != MAGIC:
        raise DataError(f"{path} is no token shard: it starts with {magic}, not {MAGIC}")
    if version != VERSION:
        raise DataError(f"{path} is a token shard of version {version}; only {VERSION} is known")
    expected = HEADER_BYTES + 2 * count
    if count < 1 or size != expected:
        state = "truncated" if size < expected else "damaged"
        raise DataError(
            f"{path} is {state}: its header promises {count} tokens, {expected} bytes, "
            f"and it holds {size} bytes"
        )
    tokens = TokenFile(path, "<u2", HEADER_BYTES, count)
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


def write_shard(path: Path, ids: np.ndarray) -> None:
    """Write ids, all below 65536, as one shard."""
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < 1 << 16:
        raise DataError(f"{path}: a shard holds ids from 0 to 65535, got up to {int(ids.max())}")
    header = np.zeros(256, "<i4")
    header[:3] = MAGIC, VERSION, len(ids)
    with replacing(path) as temporary:
        temporary.write_bytes(header.tobytes() + ids.astype("<u2").tobytes())
