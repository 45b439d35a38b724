"""Token ids of a text on the disk: written once, proved whenever they are read.

    write_tokens(path, ids)                     # ids uint16 [length]
    tokens = read_tokens(path, "<u2", 50257)    # a TokenFile, or None: make them again

A file is the ids and, at its end, the SHA-256 of its name, its dtype and the ids. So neither zeros
nor floats nor the ids of another text under this name are ever trained on.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fxad_nn.errors import DamageWarning
from fxad_nn.files import replacing
from fxad_nn.token_file import TokenFile

DIGEST_BYTES = 32
_PART = 1 << 22


def write_tokens(path: Path, ids: np.ndarray) -> None:
    """Put ids [length] of a little-endian dtype into the file at `path`; raises OSError."""
    digest = _begin(path, ids.dtype)
    content = np.ascontiguousarray(ids).view(np.uint8).data
    digest.update(content)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.write(digest.digest())


def read_tokens(path: Path, dtype: str, vocab: int) -> TokenFile | None:
    """The ids in a file, or None where there are none that can be used.

    A file that is not what was written, or holds an id of `vocab` or above, is a DamageWarning.
    """
    try:
        with open(path, "rb") as file:
            length, rest = divmod(os.fstat(file.fileno()).st_size - DIGEST_BYTES, _size(dtype))
            if length >= 0 and not rest and _is_whole(file, path, dtype, length, vocab):
                return TokenFile(path, dtype, 0, length, file.fileno())
    except FileNotFoundError:
        return None
    except OSError as error:
        warnings.warn(f"{path} cannot be read: {error.strerror}", DamageWarning, stacklevel=3)
        return None
    message = f"{path} is damaged: its bytes are not those that were written; it is made again"
    warnings.warn(message, DamageWarning, stacklevel=3)
    return None


def _is_whole(file: BinaryIO, path: Path, dtype: str, length: int, vocab: int) -> bool:
    """Whether a file holds `length` ids below `vocab`, and their digest."""
    digest, left, largest = _begin(path, np.dtype(dtype)), length * _size(dtype), -1
    while left:
        part = file.read(min(left, _PART))
        if not part:  # cut while it was read
            return False
        digest.update(part)
        largest = max(largest, int(np.frombuffer(part, dtype).max()))
        left -= len(part)
    return file.read() == digest.digest() and largest < vocab


def _begin(path: Path, dtype: np.dtype) -> hashlib._Hash:
    return hashlib.sha256(f"{path.name} {dtype.str}\n".encode())


def _size(dtype: str) -> int:
    return np.dtype(dtype).itemsize
