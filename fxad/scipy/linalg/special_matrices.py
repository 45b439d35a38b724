"""Matrices with a pattern: Toeplitz, Hankel, companion, Hilbert, Pascal and others.

    toeplitz([1, 2, 3])     dft(8)     block_diag(a, b)

Those made of vectors take batches of them along leading axes.
"""

from __future__ import annotations

import builtins
import itertools
import math
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.numpy.core import promoted, result_shape, spread_to
from fxad.trace.array import Array


def block_diag(*arrs: Any) -> Array:
    """Matrices along the diagonal of a larger one, zeros elsewhere.

    >>> block_diag(jnp.ones((1, 2)), 3.0)
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float32)
    """
    if not arrs:
        return jnp.zeros((1, 0))
    blocks = promoted("block_diag", *arrs, numbers=False, broadcast=False)
    if builtins.any(b.ndim > 2 for b in blocks):
        raise ShapeError("block_diag: takes matrices, vectors and numbers")
    blocks = [jnp.reshape(b, (1, b.size)) if b.ndim < 2 else b for b in blocks]
    width = builtins.sum(b.shape[1] for b in blocks)
    rows, start = [], 0
    for block in blocks:
        height, own = block.shape
        left = jnp.zeros((height, start), block.dtype)
        right = jnp.zeros((height, width - start - own), block.dtype)
        rows.append(jnp.concatenate([left, block, right], 1))
        start += own
    return jnp.concatenate(rows, 0)


# ---------------------------------------------------------------- constant diagonals


def toeplitz(c: Any, r: Any = None) -> Array:
    """The matrix with constant diagonals, first column c and first row r (conj(c) by default):
    c [..., m], r [..., n] -> [..., m, n]; r[0] is not read.

    >>> toeplitz(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], dtype=int32)
    """
    column, row = _lines("toeplitz", c, jnp.conj(jnp.asarray(c)) if r is None else r)
    line = jnp.concatenate([column[..., ::-1], row[..., 1:]], -1)
    m, n = column.shape[-1], row.shape[-1]
    return line[..., np.arange(m - 1, -1, -1)[:, None] + np.arange(n)]


def hankel(c: Any, r: Any = None) -> Array:
    """The matrix with constant antidiagonals, first column c and last row r (zeros by default):
    c [..., m], r [..., n] -> [..., m, n]; r[0] is not read.

    >>> hankel(jnp.array([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 3, 0],
           [3, 0, 0]], dtype=int32)
    """
    column, row = _lines("hankel", c, jnp.zeros_like(jnp.asarray(c)) if r is None else r)
    line = jnp.concatenate([column, row[..., 1:]], -1)
    return line[..., np.arange(column.shape[-1])[:, None] + np.arange(row.shape[-1])]


def circulant(c: Any) -> Array:
    """The matrix whose columns are c shifted in a circle: c [..., n] -> [..., n, n].

    >>> circulant(jnp.array([1, 2, 3]))
    Array([[1, 3, 2],
           [2, 1, 3],
           [3, 2, 1]], dtype=int32)
    """
    column = _line("circulant", c)
    places = np.arange(column.shape[-1])
    return column[..., (places[:, None] - places) % max(len(places), 1)]


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Array:
    """The matrix whose product with v [n] is `convolve(a, v, mode)`: a [..., m] -> [..., k, n].

    >>> convolution_matrix(jnp.array([-1, 4, -2]), 3, mode="same")
    Array([[ 4, -1,  0],
           [-2,  4, -1],
           [ 0, -2,  4]], dtype=int32)
    """
    line = _line("convolution_matrix", a)
    if mode not in ("full", "same", "valid"):
        raise BadArgument(f"convolution_matrix: mode must be full, same or valid, got {mode!r}")
    m = line.shape[-1]
    if n < 1 or m < 1:
        raise BadArgument(f"convolution_matrix: n and the length of a must be positive: {n}, {m}")
    zeros = jnp.zeros((*line.shape[:-1], n - 1), line.dtype)
    column, row = (jnp.concatenate([part, zeros], -1) for part in (line, line[..., :1]))
    whole = toeplitz(column, row)
    cut = min(m, n) - 1
    if mode == "same":
        start = cut // 2
        return whole[..., start : start + max(m, n), :]
    return whole if mode == "full" else whole[..., cut : cut + abs(m - n) + 1, :]


# ---------------------------------------------------------------- polynomials and populations


def companion(a: Any) -> Array:
    """The matrix [..., n - 1, n - 1] whose eigenvalues are the roots of the polynomial with
    coefficients a [..., n], the highest first.

    >>> companion(jnp.array([1.0, -3.0, 2.0]))
    Array([[ 3., -2.],
           [ 1.,  0.]], dtype=float32)
    """
    line = _line("companion", a, inexact=True)
    size = line.shape[-1] - 1
    if size < 1:
        raise ShapeError(f"companion: a polynomial has two coefficients at least, got {line.type}")
    top = -line[..., 1:] / line[..., :1]
    return _under(top, jnp.ones((*top.shape[:-1], size - 1), top.dtype))


def leslie(f: Any, s: Any) -> Array:
    """The matrix of a population by age: fecundities f [..., n] as first row, survival rates
    s [..., n - 1] below the diagonal."""
    top, below = promoted("leslie", f, s, numbers=False, broadcast=False)
    if not top.ndim or not below.ndim or top.shape[-1] != below.shape[-1] + 1:
        raise ShapeError(f"leslie: s must be one shorter than f, got {below.type} and {top.type}")
    lead = result_shape("leslie", [top.shape[:-1], below.shape[:-1]])
    return _under(
        spread_to(top, (*lead, top.shape[-1])), spread_to(below, (*lead, below.shape[-1]))
    )


def _under(top: Array, below: Array) -> Array:
    """A matrix of a first row and a first subdiagonal."""
    size = top.shape[-1]
    rest = jnp.where(np.eye(size - 1, size, dtype=bool), below[..., :, None], 0)
    return jnp.concatenate([top[..., None, :], rest.astype(top.dtype)], -2)


def fiedler(a: Any) -> Array:
    """|a_i - a_j|: a [..., n] -> [..., n, n]."""
    line = _line("fiedler", a)
    return jnp.abs(line[..., :, None] - line[..., None, :])


def fiedler_companion(a: Any) -> Array:
    """A matrix of five diagonals with the eigenvalues of `companion(a)` (Fiedler 2003)."""
    line = _line("fiedler_companion", a, inexact=True)
    size = line.shape[-1] - 1
    if size < 0:
        raise ShapeError("fiedler_companion: a polynomial has one coefficient at least, got none")
    lead = line.shape[:-1]
    if size == 0:
        return jnp.zeros((*lead, 0, 0), line.dtype)
    coefficients = -line / line[..., :1]
    if size == 1:
        return coefficients[..., 1:, None]
    # Where a coefficient stands (its number), and where a one does (-1).
    table = np.zeros((size, size), int)
    for k in range(size - 2):
        table[k, k + 2] = -1 if k % 2 == 0 else 0
        table[k + 2, k] = -1 if k % 2 == 1 else 0
    for k in range(2, size, 2):
        table[k, k - 1] = k + 1
        if k < size - 1:
            table[k, k + 1] = k + 2
    table[0, 0], table[0, 1], table[1, 0] = 1, 2, -1
    chosen = coefficients[..., np.maximum(table, 0)]
    return jnp.where(table > 0, chosen, jnp.where(table < 0, 1, 0).astype(line.dtype))


# ---------------------------------------------------------------- of a size alone


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Array:
    """The matrix of the discrete Fourier transform, exp(-2 pi i j k / n); scale: None, "sqrtn" (a
    unitary matrix) or "n"."""
    scales = {None: 1.0, "sqrtn": math.sqrt(n), "n": n}
    if scale not in scales:
        raise BadArgument(f"dft: scale must be None, 'sqrtn' or 'n', got {scale!r}")
    kind = dt.complex_of(dt.default_float()) if dtype is None else np.dtype(dtype)
    places = np.arange(n)
    turns = (np.outer(places, places) % max(n, 1)) / max(n, 1)
    return jnp.asarray((np.exp(-2j * np.pi * turns) / scales[scale]).astype(kind))


def hadamard(n: int, dtype: Any = int) -> Array:
    """Hadamard's matrix of Sylvester's construction: entries 1 and -1, orthogonal rows. n must be a
    power of 2."""
    if n < 1 or n & (n - 1):
        raise BadArgument(f"hadamard: n must be a power of 2, got {n}")
    made = np.ones((1, 1), int)
    while len(made) < n:
        made = np.block([[made, made], [made, -made]])
    return jnp.asarray(made).astype(dtype)


def helmert(n: int, full: bool = False) -> Array:
    """Rows of orthonormal contrasts: row k compares the mean of k entries with the next one.
    [n - 1, n]; with `full` a first row of 1 / sqrt(n) makes it square."""
    if n < 1:
        raise BadArgument(f"helmert: n must be positive, got {n}")
    rows = np.arange(n)[:, None]
    made = np.tril(np.ones((n, n)), -1) - np.diag(np.arange(n))
    made[0], norms = 1, np.sqrt(rows * (rows + 1))
    norms[0] = math.sqrt(n)
    return _floats((made / norms)[0 if full else 1 :])


def hilbert(n: int) -> Array:
    """1 / (i + j + 1).

    >>> hilbert(2)
    Array([[1.        , 0.5       ],
           [0.5       , 0.33333334]], dtype=float32)
    """
    at = jnp.arange(n)
    return 1 / (at[:, None] + at + 1.0)


def invhilbert(n: int) -> Array:
    """The inverse of `hilbert(n)`, whose entries are integers; rounded once."""

    def entry(i: int, j: int) -> int:
        sign = -1 if (i + j) % 2 else 1
        two = math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1)
        return sign * (i + j + 1) * two * math.comb(i + j, i) ** 2

    return _integers([[entry(i, j) for j in range(n)] for i in range(n)])


def pascal(n: int, kind: str | None = None) -> Array:
    """Binomial coefficients: "symmetric" (i + j over i; the default), "lower" (i over j) or
    "upper".

    >>> pascal(3)
    Array([[1., 1., 1.],
           [1., 2., 3.],
           [1., 3., 6.]], dtype=float32)
    """
    chosen = _pascal_kind("pascal", kind)
    rows = [[1] * n]
    while len(rows) < n:  # by additions, which large numbers do quickly
        rows.append([*itertools.accumulate(rows[-1])])
    if chosen == "symmetric":
        return _integers(rows[:n])
    upper = [[0] * i + rows[i][: n - i] for i in range(n)]  # (j over i) stands at i, j - i
    lower = [list(column) for column in zip(*upper, strict=True)]
    return _integers(upper if chosen == "upper" else lower)


def invpascal(n: int, kind: str | None = None) -> Array:
    """The inverse of `pascal(n, kind)`, whose entries are integers; rounded once."""
    lower = [[(-1) ** (i - j) * math.comb(i, j) for j in range(i + 1)] for i in range(n)]
    lower = [row + [0] * (n - len(row)) for row in lower]
    upper = [list(column) for column in zip(*lower, strict=True)]
    match _pascal_kind("invpascal", kind):
        case "lower":
            return _integers(lower)
        case "upper":
            return _integers(upper)
    return _integers(
        [[sum(upper[i][k] * lower[k][j] for k in range(n)) for j in range(n)] for i in range(n)]
    )


def _pascal_kind(name: str, kind: str | None) -> str:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise BadArgument(f"{name}: kind must be symmetric, lower or upper, got {kind!r}")
    return kind or "symmetric"


# ---------------------------------------------------------------- helpers


def _line(name: str, c: Any, inexact: bool = False) -> Array:
    """A vector, or batches of them."""
    (line,) = promoted(name, c, inexact=inexact, numbers=False)
    if not line.ndim:
        raise ShapeError(f"{name}: expects vectors along the last axis, got {line.type}")
    return line


def _lines(name: str, c: Any, r: Any) -> tuple[Array, Array]:
    """A column and a row with the same leading axes; a number is a vector of one."""
    both = promoted(name, jnp.atleast_1d(c), jnp.atleast_1d(r), numbers=False, broadcast=False)
    lead = result_shape(name, [v.shape[:-1] for v in both])
    column, row = (spread_to(v, (*lead, v.shape[-1])) for v in both)
    return column, row


def _floats(values: np.ndarray) -> Array:
    return jnp.asarray(values.astype(dt.default_float()))


def _integers(rows: list[list[int]]) -> Array:
    """Integers of any size as floats: infinite where they are too large."""
    size = len(rows)
    wide = np.array([[_float(v) for v in row] for row in rows], np.float64).reshape(size, size)
    with np.errstate(over="ignore"):
        return _floats(wide)


def _float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
