"""Fit what float64 functions read from tables, and write doubles.py beside this file.

    python -m fxad.backend.llvm.math.tables.fit_doubles

A table has 16 rows, which two registers of AVX-512 hold, or 32. Polynomials are constant first.
Needs mpmath.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np

from fxad.backend.llvm.math.tables.fit_polynomials import (
    OUTPUT,
    Real,
    asin_rest,
    atan_rest,
    cosine_rest,
    exp_rest,
    fit,
    lawson,
    log1p_squared,
    log_rest,
    series,
    sin_rest,
    sinh_rest,
    tan_rest,
)

Row = list[float]
LN2_BITS = 42  # multiples of 2**-42 that are products with an exponent are exact
TAIL = 1500  # candidates for a centre


def closest(f: Callable[[Real], Real], low: Real, high: Real, degree: int, zeros: int) -> Row:
    """Coefficients with nearly the least largest x**zeros |f(x) - P(x)|: those of the interpolant,
    and what least squares, weighted again and again, make of the rest."""
    first = fit(f, low, high, degree)
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (k + 0.5) / 400)
              for k in range(400)]  # fmt: skip
    rest = np.array([float(f(x) - mp.polyval(first[::-1], x)) for x in points])
    x = np.array([float(v) for v in points])
    size = np.abs(x).max()
    powers = np.stack([(x / size) ** k for k in range(degree + 1)], 1)
    more = lawson(powers, rest / np.abs(rest).max(), np.abs(x / size) ** zeros)
    more *= np.abs(rest).max()
    return [c + float(m / size**k) for k, (c, m) in enumerate(zip(first, more, strict=True))]


def split(value: Real, bits: int = LN2_BITS) -> Row:
    """A number as the sum of two doubles, the first a multiple of 2**-bits."""
    high = mp.nint(value * 2**bits) / mp.mpf(2) ** bits
    return [float(high), float(value - high)]


def inverses(rows: int, unit: int) -> list[Row]:
    """By the first bits after the leading one of m, 1 <= m < 2: c near 1 / m, a multiple of
    1 / unit. It is 1 in the first row and 1/2 in the last; in those beside them m c - 1 must be
    exact, as a multiple of 2**-57 below 1/16."""
    found = [mp.mpf(1)]
    for part in range(1, rows - 1):
        middle = 1 + (part + mp.mpf("0.5")) / rows
        beside = rows == 16 and part in (1, 14)
        found.append(mp.ceil(32 / middle) / 32 if beside else mp.nint(unit / middle) / unit)
    return [[float(c)] for c in [*found, mp.mpf("0.5")]]


def logarithms(rows: int, unit: int, base: Real = mp.e) -> list[Row]:
    """c, and its negative logarithm as a sum of two."""
    return [[c, *split(-mp.log(c) / mp.log(base))] for (c,) in inverses(rows, unit)]


def powers() -> list[Row]:
    """2**(k / 16) as s exp(l)."""
    exact = [mp.mpf(2) ** (mp.mpf(k) / 16) for k in range(16)]
    return [[float(s), float(mp.log(s / mp.mpf(float(s))))] for s in exact]


def sines() -> list[Row]:
    """The sine of k pi / 16 as the sum of two, and the cosine."""
    angles = [mp.pi * k / 16 for k in range(16)]
    return [[*_sum_of_two(mp.sin(a)), _sum_of_two(mp.cos(a))[0]] for a in angles]


def _sum_of_two(value: Real) -> Row:
    """What is nothing but the last digits computed with is zero."""
    high = mp.mpf(float(value)) if abs(value) > mp.mpf(10) ** -25 else value * 0
    low = value - high
    return [float(high), float(low) if abs(low) > mp.mpf(10) ** -25 else 0.0]


def tangents() -> list[Row]:
    """p and q, each as the sum of two: p / q is the tangent of k pi / 16, and the larger is 1."""
    rows = []
    for k in range(16):
        steep = 4 < k < 12
        small = _sum_of_two((mp.cot if steep else mp.tan)(mp.pi * k / 16))
        rows.append([1.0, 0.0, *small] if steep else [*small, 1.0, 0.0])
    return rows


def sectors() -> list[Row]:
    """By exponent and a bit of mantissa of x, modulo 16, from 1/8 to 16: (p, q) and the angle of
    (p, q) as a sum of two, q / p near the middle; below 1/8 q is 0, from 16 on p is."""
    first = (1023 - 3) * 2 - 1
    edges = [mp.mpf(2) ** (k // 2 - 3) * (1 + mp.mpf(k % 2) / 2) for k in range(15)]
    centres = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    rows = [[1.0, 0.0, 0.0, 0.0]]
    rows += [[1.0, float(c), *split(mp.atan(c), 51)] for c in centres]
    rows += [[0.0, 1.0, *split(mp.pi / 2, 51)]]
    return [rows[(k - first) % 16] for k in range(16)]


def pieces(f: Callable[[Real], Real], edges: Sequence[float], degree: int) -> list[Row]:
    """By intervals of x: c, f(c), and a polynomial in x - c for (f(x) - f(c)) / (x - c).

    c is near the middle, with f(c) nearly a double; in the first interval 0, and the polynomial is
    that of (f(x) - x) / x.
    """
    rest = series(lambda x: f(x) / x - 1)
    rows = [[0.0, 0.0, *closest(rest, mp.mpf(10) ** -12, mp.mpf(edges[1]), degree, 0)]]
    for low, high in itertools.pairwise(edges[1:]):
        c, value = _nearly(f, mp.mpf(low + high) / 2, mp.mpf(high - low) / 50)
        slope = series(lambda r: (f(c + r) - value) / r)
        slopes = closest(slope, low - c, high - c, degree, 1)
        rows.append([float(c), float(value), *slopes])
    return rows


def _nearly(f: Callable[[Real], Real], middle: Real, reach: Real) -> tuple[Real, Real]:
    """(c, f(c)) with c a double near the middle and f(c) a double but for little."""
    best = (np.inf, mp.mpf(0), mp.mpf(0))
    for step in range(TAIL):
        c = mp.mpf(float(middle + reach * (mp.mpf(step) / TAIL - 0.5)))
        exact = f(c)
        value = mp.mpf(float(exact))
        best = min(best, (float(abs(exact - value) / np.spacing(float(value))), c, value))
        if best[0] < 1 / 512:
            break
    return best[1:]


# Of x + 2 the exponent and three bits of mantissa are the row.
ERF_EDGES = [k / 4 for k in range(8)] + [2 + k / 2 for k in range(9)]
SIXTEENTH, THIRTY_SECOND = mp.mpf("0.0626"), mp.mpf("0.0315")
SLICE = (mp.pi / 32) ** 2 * mp.mpf("1.01")
STEP = mp.log(2) / 32 * mp.mpf("1.001")

TABLES: dict[str, Callable[[], list[Row]]] = {
    "LOGS": lambda: logarithms(16, 128),
    "LOGS2": lambda: logarithms(16, 128, mp.mpf(2)),
    "FINE_LOGS": lambda: logarithms(32, 64),
    "POWERS": powers,
    "SINES": sines,
    "TANGENTS": tangents,
    "SECTORS": sectors,
    "ERF": lambda: pieces(mp.erf, ERF_EDGES, 11),
}
POLYNOMIALS: dict[str, Callable[[], list[float]]] = {
    "LN2": lambda: split(mp.log(2)),
    "LOG": lambda: closest(log1p_squared, mp.mpf("-0.0315"), SIXTEENTH, 8, 1),
    "LOG_CUBE": lambda: closest(log_rest, mp.mpf("-0.021"), THIRTY_SECOND, 8, 2),
    "ASIN": lambda: closest(asin_rest, mp.mpf(10) ** -12, mp.mpf("0.25"), 12, 1),
    "ATAN": lambda: closest(atan_rest, mp.mpf(10) ** -12, mp.mpf("0.0205"), 7, 1),
    "SIN": lambda: closest(sin_rest, mp.mpf(10) ** -12, SLICE, 3, 1),
    "COS": lambda: closest(cosine_rest, mp.mpf(10) ** -12, SLICE, 4, 1),
    "TAN": lambda: closest(tan_rest, mp.mpf(10) ** -12, SLICE, 5, 1),
    "SINH": lambda: closest(sinh_rest, mp.mpf(10) ** -12, mp.mpf(1), 6, 1),
    "EXP": lambda: closest(exp_rest, -STEP, STEP, 4, 2),
    "EXPM1": lambda: closest(exp_rest, -STEP, STEP, 5, 1),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    lines = [
        '"""Tables of doubles for lookup.py; written by fit_doubles.py."""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
    ]
    for name, make in POLYNOMIALS.items():
        lines.append(f"{name} = (")
        lines += [f"    {c!r}," for c in make()]
        lines.append(")")
    for name, table in TABLES.items():
        lines.append(f"{name} = (")
        lines += [f"    ({', '.join(repr(v) for v in row)})," for row in table()]
        lines.append(")")
    (OUTPUT / "doubles.py").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
