"""What bits depend on: the orders of sums, and which unit or library computes what.

    k_block(1024)                          # 512: K is summed in equal blocks of at most 768
    bf16_unit(frozenset({"amx_bf16"}))     # "tiles"

A number in this module reaches results: change one, and the same program gives other bits (within
its error bounds). So they are frozen, stand here once, and every backend reads them from here. What
only makes code faster or slower is a `Tuning` of the backend (`backend/llvm/base/tuning.py`).

Most orders are the same everywhere. Those that depend on the machine depend on its capabilities
alone, which `CAPABILITIES` lists; `identity` is the text of all of it, for keys of caches, for
checkpoints and for people.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

# ---------------------------------------------------------------- sums

K_BLOCK = 768  # most steps of a matrix product's K that are summed from 0 before blocks are added
PARTIALS = 64  # interleaved partial sums of a reduction along the last axis
# A long reduction is done in two steps: from how many elements, the length of a chunk, and the rows
# from which on there are enough of them to keep several threads busy without.
LANES_FROM, LANES_CHUNK, LANES_ROWS = 1 << 15, 8192, 8
SERIAL_FROM, SERIAL_CHUNK = 1024, 256
# Products in parts: least length of a sum, most batch elements and elements of the result; least
# multiply-adds or bytes of operands, about what takes a thread 0.1 ms; numbers of parts.
PRODUCT_FROM, PRODUCT_BATCH, PRODUCT_SIZE = 4096, 4, 128 * 128
PRODUCT_WORK, PRODUCT_BYTES = 1 << 23, 1 << 22
PRODUCT_PARTS = range(16, 3, -1)
# Products of complex numbers as one of their parts: least steps of k, least length of the longer
# side of the result, and least products of two numbers: of matrices, and where one of them has one
# row or column; there at most so many bytes of the other, since it is copied.
COMPLEX_DEPTH, COMPLEX_SIDE, COMPLEX_WORK, COMPLEX_VECTOR_WORK = 2, 8, 512, 1 << 13
COMPLEX_VECTOR_BYTES = 1 << 24


def k_block(size: int) -> int:
    """Length of the equal blocks that K is summed in (the last may be shorter): a multiple of 16,
    or 0 for an empty K."""
    if size == 0:
        return 0
    equal = _quotient(size, _quotient(size, K_BLOCK))
    return _quotient(equal, 16) * 16


def _quotient(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


# ---------------------------------------------------------------- attention

# Pieces of work wanted of attention's gradient, and queries for which a copy of all keys is little.
ATTENTION_UNITS, ATTENTION_QUERIES = 4, 1024
# Few queries read keys where they lie: most queries, rows of all heads that share keys (of more,
# keys are worth transposing), and depth of a head. Many keys are taken in parts: pieces of work
# wanted, least keys in one, which are a multiple of so many.
KEYS_QUERIES, KEYS_ROWS, KEYS_DEPTH = 12, 24, 512
KEYS_UNITS, KEYS_FROM, KEYS_STEP = 8, 512, 16
# Keys are met block by block, and sums scaled where a later block has a row's maximum. A block is
# so many panels: of few queries as many as fit these bytes. All rows of a block meet so many rows
# of values before the next, and a score is summed over so much of a head's depth at a time.
ATTENTION_PANELS, ATTENTION_BYTES, ATTENTION_VALUES, ATTENTION_DEPTH = 24, 1 << 16, 192, 128
# Rows and vectors of the register tile of scores, vectors of that of other products: a panel is
# `vectors` registers of keys.
ATTENTION_TILES = {
    "avx512": (8, 3, 4),
    "avx2": (6, 2, 2),
    "neon": (8, 3, 4),
    "generic": (4, 2, 2),
}
# The gradient: bytes of a chunk of keys, whose sums are added to those of the chunks before;
# queries in a block, and panels of keys.
GRADIENT_BYTES, GRADIENT_ROWS, GRADIENT_PANELS = 1.25e6, 96, 8
# On tiles, of float32 in parts: queries and panels in a block; queries in a block of the gradient,
# where a window's first keys decide which are added together; least queries, and least elements of
# keys and values of a head.
SPLIT_ROWS, SPLIT_PANELS, SPLIT_GRADIENT_ROWS = 64, 16, 64
SPLIT_QUERIES, SPLIT_KEYS = 128, 1 << 16

# ---------------------------------------------------------------- which unit

TILE_DEPTH = 32  # steps of K that a tile product sums
TILES_WORK = 1 << 16  # least multiply-adds of a product on tiles
FEW = 8  # most rows or columns of a skinny product of bf16, which is never done on tiles

CAPABILITIES = {
    "amx_bf16": "products of bf16 are summed on tiles, 32 steps of K at a time",
    "amx_float32": "asked for: products of float32 in attention are sums of products of bf16 parts",
    "bf16_pairs": "products of bf16 take 0 for denormal factors, products and sums",
}


def bf16_unit(features: Iterable[str]) -> str:
    """What computes large products of bf16: "tiles", "pairs" of k in one instruction, or "lanes" of
    float32. Pairs add in the order of lanes, but take 0 for what is denormal."""
    found = frozenset(features)
    if "amx_bf16" in found:
        return "tiles"
    return "pairs" if "bf16_pairs" in found else "lanes"


# ---------------------------------------------------------------- native code or LAPACK

# Of more rows or columns than the former OpenBLAS divides a matrix among its threads; up to the
# latter it is held to one, which is as fast and does not suffer beside other programs.
LAPACK_FEW_ROWS, LAPACK_MANY_ROWS = 16, 256
CHOLESKY_ROWS = 1024  # of a factor that one thread makes; of more, LAPACK's is left to all threads
LU_ROWS = 512  # of a matrix with pivots: every thread has scratch for one, 2 MB of float64
LU_FACTOR_ROWS = 2048  # of one that is wanted itself, which NumPy has no function for
# An LU factor in each lane: most rows, and numbers of a matrix and its right sides, 72 KB of lanes.
LU_LANE_ROWS, LU_LANE_NUMBERS = 32, 1152
QR_ROWS = 32  # rows and columns of orthogonal factors
QR_FEW_ROWS = 24  # of fewer than 8 matrices, which leave lanes idle

# ---------------------------------------------------------------- Fourier transforms

# Fewer transforms than these, or longer ones, are done in two steps, where n has two factors.
FOURIER_LANES, FOURIER_LENGTH = 8, 2048
# Fewer side by side than these leave most lanes idle: longer ones are NumPy's, unless in two steps.
FOURIER_FEW, FOURIER_FEW_LENGTH = 4, 4096


# ---------------------------------------------------------------- all of it


def identity(isa: str, features: Iterable[str], libraries: Mapping[str, str]) -> dict[str, str]:
    """What the bits of a result depend on besides the program, by name.

    isa: widths of registers reach long attention alone. libraries: versions of those that compute
    something themselves (LAPACK, the C library's rare functions).
    """
    found = sorted(frozenset(features) & frozenset(CAPABILITIES))
    return {
        "orders": _digest(),
        "attention blocks": f"{ATTENTION_TILES[isa][1]} registers of {isa}",
        "bf16 products": bf16_unit(features),
        "capabilities": ", ".join(found) or "none that reach bits",
        **{name: libraries[name] for name in sorted(libraries)},
    }


def constants() -> dict[str, object]:
    """Every number above by name. Checkpoints record a digest of them, names included: whoever
    resumes after one was renamed is told that results may differ."""
    return {
        name: value
        for name, value in sorted(globals().items())
        if name.isupper() and not name.startswith("_") and name != "CAPABILITIES"
    }


def _digest() -> str:
    """A short name of the numbers above."""
    return hashlib.sha256(repr(constants()).encode()).hexdigest()[:12]
