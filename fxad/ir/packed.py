"""Matrices of floats kept in a few bits: blocks of `BLOCK` neighbours in a row share a scale.

    codes, scales = u8[4096, 1024], f32[4096, 32]     # of a matrix [4096, 2048], in NF4
    values = unpacked(codes, scales, "nf4", 2048)     # float32: level[code] * scale

Rows are padded to whole blocks. A code of `int8` is the number itself. Of `nf4` it is one of 16
levels, the quantiles of a normal distribution (Dettmers et al., 2023), two in a byte: byte j of a
block holds element j in its low half and element j + 32 in its high half, so that a vector of
bytes is two vectors of elements side by side.
"""

from __future__ import annotations

import numpy as np

BLOCK = 64

NF4_LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""As published: the table of the paper's appendix, and of bitsandbytes."""


CODES = {"nf4": np.dtype(np.uint8), "int8": np.dtype(np.int8)}
"""The formats, each with the dtype of an array of its codes."""

PER_BLOCK = {"nf4": BLOCK // 2, "int8": BLOCK}
"""How many elements of that array hold a block."""


def blocks_of(columns: int) -> int:
    """Blocks in a row, the last of which may be padded."""
    return -(-columns // BLOCK)


def unpacked(codes: np.ndarray, scales: np.ndarray, format: str, columns: int) -> np.ndarray:
    """The matrix [rows, columns] in float32."""
    rows, blocks = scales.shape
    blocked = codes.reshape(rows, blocks, PER_BLOCK[format])
    if format == "nf4":
        numbers = np.concatenate([blocked & 15, blocked >> 4], axis=-1)
        values = np.asarray(NF4_LEVELS, np.float32)[numbers]
    else:
        values = blocked.astype(np.float32)
    scaled: np.ndarray = values * scales.astype(np.float32)[..., None]
    return scaled.reshape(rows, blocks * BLOCK)[:, :columns]
