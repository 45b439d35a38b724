"""How a Fourier transform is taken apart, and the tables that its native functions read.

    radices(96)                       # (3, 8, 4)
    radices(17)                       # None: left to NumPy
    plan = plan_of(96, float64)       # plan.address: what `fourier_transform` is given

A plan in memory is 64-bit words: how many passes, then of every pass its radix, the elements `m`
between two operands of a butterfly in units of `s`, the stride `s`, and the address of its factors.
They are exp(-2 pi i p k / (r m)) for p < m, 0 < k < r, in pairs: Stockham's autosort, decimation
in frequency (Van Loan, Computational Frameworks for the Fast Fourier Transform, 1.7).
"""

from __future__ import annotations

import functools

import numpy as np

from fxad.core.record import record

ODD = (13, 11, 7, 5, 3)
COMMON = (5, 3, 8, 4, 2)  # compiled apart from the others, which take longer than all of these
RADICES = (*ODD, 8, 4, 2)


@record
class Plan:
    """Words at an address, and the arrays that must stay alive while they are used."""

    address: int
    passes: int
    keep: tuple[object, ...]


def radices(n: int) -> tuple[int, ...] | None:
    """Of each pass over n elements, odd ones first; None where n has a prime factor above 13."""
    found = []
    for prime in ODD:
        while n % prime == 0:
            n //= prime
            found.append(prime)
    if n & (n - 1):
        return None
    twos = n.bit_length() - 1
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0  # 4 * 4 rather than 8 * 2
    eights = (twos - 2 * fours) // 3
    return (*found, *[8] * eights, *[4] * fours, *[2] * (twos - 2 * fours - 3 * eights))


def split(n: int) -> tuple[int, int] | None:
    """n as a product of two numbers that are near its square root, the smaller first, for a
    transform in two steps; None where there are none of at least 4."""
    parts = radices(n)
    if parts is None:
        return None
    root = int(n**0.5) + 1
    small = max((d for d in range(1, root + 1) if n % d == 0 and d * d <= n), default=1)
    return (small, n // small) if small >= 4 else None


def roots(numbers: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i k / n) of integers k, as [..., 2] of float64: angles of at most an eighth of a
    turn, whose sine and cosine are as exact as float64 has them."""
    eighths, rest = np.divmod(8 * (np.asarray(numbers, np.int64) % n), n)  # rest / 8n of a turn
    back = eighths % 2 == 1
    angle = np.where(back, n - rest, rest) * (np.pi / (4 * n))
    c, s = np.cos(angle), np.sin(angle)
    c, s = np.where(back, s, c), np.where(back, c, s)
    quarters = eighths // 2
    real = np.choose(quarters, [c, -s, -c, s])
    imaginary = np.choose(quarters, [-s, -c, s, c])
    return np.stack([real, imaginary], axis=-1)


@functools.lru_cache(maxsize=256)
def plan_of(n: int, dtype: np.dtype) -> Plan:
    """The passes over n elements, whose radices there must be."""
    parts = radices(n)
    if parts is None:
        raise ValueError(f"no passes for {n} elements")
    words, keep = [len(parts)], []
    stride, left = 1, n
    for radix in parts:
        m = left // radix
        powers = np.arange(m)[:, None] * np.arange(1, radix)
        factors = np.ascontiguousarray(roots(powers, left), dtype)
        words += [radix, m, stride, factors.ctypes.data]
        keep.append(factors)
        stride, left = stride * radix, m
    table = np.array(words, np.int64)
    return Plan(table.ctypes.data, len(parts), (table, *keep))


@functools.lru_cache(maxsize=64)
def half_roots(n: int, dtype: np.dtype) -> np.ndarray:
    """exp(-2 pi i k / n) for k up to n / 2, in pairs."""
    return np.ascontiguousarray(roots(np.arange(n // 2 + 1), n), dtype)


@functools.lru_cache(maxsize=32)
def step_roots(rows: int, columns: int, dtype: np.dtype) -> np.ndarray:
    """Between two steps: [2, rows, columns], exp(-2 pi i k j / (rows columns)) of row k, column
    j; real parts first."""
    powers = np.arange(rows)[:, None] * np.arange(columns)
    both = np.moveaxis(roots(powers, rows * columns), -1, 0)
    return np.ascontiguousarray(both, dtype)
