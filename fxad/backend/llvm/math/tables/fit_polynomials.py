"""Fit polynomials and tables of floats, and write polynomials.py and floats.py beside this file.

    python -m fxad.backend.llvm.math.tables.fit_polynomials

An entry of ENTRIES interpolates a function at Chebyshev nodes in 60-digit arithmetic. The function
is chosen so that what is left out is small (`log1p(f) = f - f*f/2 + f**3 * P(f)`), which makes the
polynomial's absolute error the relative error of the result. One of SINGLE has coefficients that
are floats, and nearly the least largest error that such can have. Needs mpmath.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Callable
from typing import Any, TypeAlias

import mpmath as mp
import numpy as np

mp.mp.dps = 60
OUTPUT = pathlib.Path(__file__).parent
Real: TypeAlias = Any  # an mpmath number


def fit(f: Callable[[Real], Real], low: Real, high: Real, degree: int) -> list[float]:
    """Coefficients, constant first, of the interpolant at the Chebyshev nodes of [low, high]."""
    count = degree + 1
    nodes = [mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]
    points = [(low + high) / 2 + (high - low) / 2 * t for t in nodes]
    matrix = mp.matrix(count, count)
    for i, x in enumerate(points):
        for j in range(count):
            matrix[i, j] = x**j
    solution = mp.lu_solve(matrix, mp.matrix([f(x) for x in points]))
    return [float(c) for c in solution]


def minimax(
    f: Callable[[Real], Real], low: Real, high: Real, degree: int, weight: Callable[[Real], Real]
) -> list[float]:
    """float32 coefficients with nearly the least largest weight(x) |f(x) - P(x)|.

    Lawson's reweighted least squares on Chebyshev nodes; each coefficient is rounded before those
    after it are fitted to what is left.
    """
    nodes = [mp.cos(mp.pi * (2 * k + 1) / 800) for k in range(400)]
    points = [(low + high) / 2 + (high - low) / 2 * t for t in nodes]
    x = np.array([float(v) for v in points])
    rest = np.array([float(f(v)) for v in points])
    weights = np.array([float(weight(v)) for v in points])
    scale, found = np.abs(x).max(), []
    for first in range(degree + 1):
        powers = np.stack([(x / scale) ** k for k in range(first, degree + 1)], 1)
        solution = lawson(powers, rest, weights)
        found.append(float(np.float32(solution[0] / scale**first)))
        rest = rest - found[-1] * x**first
    return found


def lawson(powers: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Factors of the columns of `powers` with nearly the least largest weighted error."""
    share = np.full(len(wanted), 1 / len(wanted))
    best: tuple[float, np.ndarray] = (np.inf, wanted)
    for _ in range(60):
        by = np.sqrt(share) * weights
        solution = np.linalg.lstsq(powers * by[:, None], wanted * by, rcond=None)[0]
        error = np.abs(powers @ solution - wanted) * weights
        if error.max() < best[0]:
            best = float(error.max()), solution
        share *= error / error.max() + 1e-3
        share /= share.sum()
    return best[1]


def series(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """f, computed with enough digits to survive the cancellation near 0."""

    def careful(x: Real) -> Real:
        with mp.workdps(200):
            return f(x)

    return careful


sinh_rest = series(lambda z: (mp.sinh(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)
log1p_squared = series(lambda f: (mp.log1p(f) - f) / f**2)
cosh_rest = series(lambda z: (mp.cosh(mp.sqrt(z)) - 1) / z)
cosine_rest = series(lambda z: (mp.cos(mp.sqrt(z)) - 1) / z)
tan_rest = series(lambda z: (mp.tan(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)
half_atanh_rest = series(lambda z: (mp.atanh(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)
asin_rest = series(lambda z: (mp.asin(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)
exp_rest = series(lambda r: (mp.expm1(r) - r) / r**2)
exp2_rest = series(lambda r: mp.expm1(r * mp.log(2)) / r)
log_rest = series(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3)
sin_rest = series(lambda z: (mp.sin(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)
cbrt_rest = series(lambda e: ((1 - e) ** (-mp.mpf(2) / 3) - 1) / e)
atan_rest = series(lambda z: (mp.atan(mp.sqrt(z)) - mp.sqrt(z)) / mp.sqrt(z) ** 3)


def erfinv_of_w(w: Real) -> Real:
    """erfinv(x) / x where w = -log(1 - x*x)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


def erfcx_of_t(t: Real) -> Real:
    """exp(x*x) erfc(x) where t = (x - 2) / (x + 2)."""
    x = 2 * (1 + t) / (1 - t)
    return mp.exp(x * x) * mp.erfc(x)


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0005")
QUARTER = (mp.pi / 4 * mp.mpf("1.001")) ** 2
TINY = mp.mpf(10) ** -12

ENTRIES: dict[str, tuple[Callable[[Real], Real], Real, Real, int]] = {
    "EXP_F32": (exp_rest, -HALF_LN2, HALF_LN2, 4),
    "EXP2_F32": (exp2_rest, mp.mpf("-0.5003"), mp.mpf("0.5003"), 5),
    "EXP_F64": (exp_rest, -HALF_LN2, HALF_LN2, 10),
    "ERFCX": (erfcx_of_t, mp.mpf(-1), mp.mpf("0.7"), 16),
    "ERFINV_CENTRE": (lambda t: erfinv_of_w(t + mp.mpf("2.5")), mp.mpf("-2.499"), 2.5, 12),
    "ERFINV_TAIL": (lambda t: erfinv_of_w((t + 3) ** 2), mp.mpf("-0.77"), mp.mpf("1.1"), 12),
}


STEP = (mp.pi / 32 * mp.mpf("1.001")) ** 2
HALF_STEP = HALF_LN2**2


def of_result(f: Callable[[Real], Real]) -> Callable[[Real], Real]:
    """Errors of the rest of an odd function, relative to its value at the root of z."""
    return lambda z: z * mp.sqrt(z) / f(mp.sqrt(z))


Weighted = tuple[Callable[[Real], Real], Real, int, Callable[[Real], Real]]
SINGLE: dict[str, Weighted] = {  # each from TINY on
    "EXP2_WEIGHT": (exp2_rest, mp.mpf(1), 4, lambda r: r / 2**r),
    "SIN_F32": (sin_rest, STEP, 1, lambda z: z),
    "COS_F32": (cosine_rest, STEP, 1, lambda z: z),
    "TAN_F32": (tan_rest, QUARTER, 6, of_result(mp.tan)),
    "ATAN_F32": (atan_rest, mp.mpf("0.137") ** 2, 2, lambda z: z),
    "ATANH_F32": (half_atanh_rest, mp.mpf("0.251") ** 2, 3, lambda z: z),
    "ASIN_F32": (asin_rest, mp.mpf("0.25"), 4, of_result(mp.asin)),
    "SINH_F32": (sinh_rest, HALF_STEP, 2, lambda z: z),
    "COSH_F32": (cosh_rest, HALF_STEP, 2, lambda z: z),
}
AROUND: dict[str, Weighted] = {  # each as far below 0 as above
    "LOG_F32": (log1p_squared, mp.mpf("0.0335"), 3, lambda r: abs(r)),
    "EXPM1_F32": (exp_rest, HALF_LN2, 4, lambda r: r * r * (2 if r < 0 else 1)),
    "EXP_STEP_F32": (exp_rest, mp.mpf("0.0112"), 1, lambda r: r * r),
    "LOG_CUBE_F32": (log_rest, mp.mpf("0.0335"), 3, lambda r: r * r),
    "CBRT_F32": (cbrt_rest, mp.mpf("0.1035"), 5, lambda e: abs(e)),
}


LOG2_E = 1 / mp.log(2)
Row = list[float]


def single(value: Real) -> float:
    return float(np.float32(float(value)))


def split(value: Real, bits: int = 24) -> Row:
    """A number as the sum of two floats, the first a multiple of 2**-bits."""
    high = single(mp.nint(value * 2**bits) / mp.mpf(2) ** bits)
    return [high, single(value - high)]


def sines() -> list[Row]:
    """sin(n pi / 16) for n from 0 to 31."""
    return [split(mp.sin(n * mp.pi / 16) if n % 16 else mp.mpf(0)) for n in range(32)]


def logarithms(unit: Real, bits: int) -> list[Row]:
    """By the five bits after the leading one of m, 1 <= m < 2: c near 1 / m, -log(c) unit.

    c is 1 in the first row and 1/2 in the last, and such that m c - 1 is a float; the logarithm's
    first part is a multiple of 2**-bits, so that adding a float multiple of an integer to it is
    exact.
    """
    rows = []
    for part in range(32):
        octave = 2 if part >= 16 else 1
        low = mp.mpf(32 + part) / (32 * octave)
        c = mp.nint(32 / (low * (1 + mp.mpf(1) / (64 + 2 * part)))) / (32 * octave)
        rows.append([single(c), *split(-mp.log(c) * unit, bits)])
    return rows


def powers() -> list[Row]:
    """2**(k / 32) as s exp(l): s a float of 12 bits, and l.

    Bits for k are taken from the exponent of s: those of the whole multiple of 1 / 32 are added.
    """
    rows = []
    for part in range(32):
        exact = mp.mpf(2) ** (mp.mpf(part) / 32)
        high = split(exact, 11)[0]
        bits = np.float32(high).view(np.int32) - np.int32(part << 18)
        rows.append([float(bits.view(np.float32)), single(mp.log(exact / high))])
    return rows


def angles() -> list[Row]:
    """By the exponent and two bits of mantissa of a ratio from 1/8 to 8: c, atan(c).

    Multiples of 2**-22, so that the difference to pi is exact.
    """
    rows = [[0.0] * 2 for _ in range(32)]
    for part in range(FIRST_PART + 1, FIRST_PART + 26):
        low, high = (mp.mpf(float(np.uint32(k << 21).view(np.float32))) for k in (part, part + 1))
        middle = mp.mpf(40) if low == 8 else mp.tan((mp.atan(low) + mp.atan(high)) / 2)
        c, value = _nearly(mp.atan, middle, (high - low) / 20, 2.0**-22)
        rows[part % 32] = [single(c), single(value)]
    return rows


def half_logarithms() -> list[Row]:
    """By how many halves of an octave 1 - x is below 1: c, atanh(c)."""
    rows = [[0.0] * 2]
    for part in range(1, 32):
        bits = [0x3F800000 - (k << 22) for k in (part, part + 1)]
        low, high = (1 - mp.mpf(float(np.int32(k).view(np.float32))) for k in bits)
        middle, reach = mp.tanh((mp.atanh(low) + mp.atanh(high)) / 2), (high - low) / 20
        if part == 1:  # nearer to where errors count most
            middle, reach = mp.mpf("0.361"), mp.mpf("0.002")
        c, value = _nearly(mp.atanh, middle, reach, _ulp(mp.atanh(middle)))
        rows.append([single(c), single(value)])
    return rows


FIRST_PART = 495  # exponent and two bits of mantissa of floats just below 1/8


def pieces(f: Callable[[Real], Real], top: float, apart: bool) -> list[Row]:
    """By the exponent and two bits of mantissa of x < top: c, f(c), a polynomial in x - c.

    It is (f(x) - f(c)) / (x - c), c near the middle with f(c) nearly a float; below 1/8
    (f(x) - x) / x where `apart`, else f(x) / x, whose constant must be 1.
    """
    rows = [[0.0] * 7 for _ in range(32)]
    rest = series(lambda x: f(x) / x - 1)
    slopes = minimax(rest, TINY, mp.mpf("0.125"), 4, lambda x: x / f(x))
    slopes[0] = slopes[0] if apart else single(1 + slopes[0])
    rows[FIRST_PART % 32] = [0.0, 0.0, *slopes]
    for part in range(FIRST_PART + 1, FIRST_PART + 33):
        low, high = (float(np.uint32(k << 21).view(np.float32)) for k in (part, part + 1))
        if low > top:
            break
        high = min(high, top)
        middle = mp.mpf(low + high) / 2
        c, value = _nearly(f, middle, mp.mpf(high - low) / 20, _ulp(f(middle)))
        slopes = minimax(
            lambda r: (f(c + r) - value) / r, low - c, high - c, 4, lambda r: abs(r) / f(c + r)
        )
        rows[part % 32] = [single(c), single(value), *slopes]
    return rows


def _nearly(f: Callable[[Real], Real], middle: Real, reach: Real, unit: float) -> tuple[Real, Real]:
    """(c, f(c)) with c a float near the middle and f(c) a multiple of the unit but for little."""
    best = (np.inf, mp.mpf(0), mp.mpf(0))
    for step in range(1500):
        c = mp.mpf(single(middle + reach * (mp.mpf(step) / 750 - 1)))
        value = mp.nint(f(c) / unit) * unit
        best = min(best, (float(abs(f(c) - value) / unit), c, value))
        if best[0] < 1 / 512:
            break
    return best[1:]


def _ulp(value: Real) -> float:
    return float(np.spacing(np.float32(float(value))))


TABLES: dict[str, Callable[[], list[Row]]] = {
    "SINES": sines,
    "LOGS": lambda: logarithms(mp.mpf(1), 17),
    "LOGS2": lambda: logarithms(LOG2_E, 16),
    "POWERS": powers,
    "ATANS": angles,
    "ATANHS": half_logarithms,
    "TANH": lambda: pieces(mp.tanh, 9.02, apart=False),
    "ERF": lambda: pieces(mp.erf, 3.95, apart=True),
}


def tables_text() -> str:
    lines = [
        '"""Tables of floats for lookup.py; written by fit_polynomials.py."""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "# ruff: noqa: E501",
    ]
    for name, make in TABLES.items():
        lines.append(f"{name} = (")
        lines += [f"    ({', '.join(str(np.float32(v)) for v in row)})," for row in make()]
        lines.append(")")
    return "\n".join(lines) + "\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    lines = [
        '"""Polynomial coefficients, constant first; written by fit_polynomials.py."""',
        "",
        "from __future__ import annotations",
        "",
    ]
    found = {
        name: fit(f, mp.mpf(low), mp.mpf(high), degree)
        for name, (f, low, high, degree) in ENTRIES.items()
    }
    for name, (f, high, degree, weight) in SINGLE.items():
        found[name] = minimax(f, TINY, high, degree, weight)
    for name, (f, high, degree, weight) in AROUND.items():
        found[name] = minimax(f, -high, high, degree, weight)
    for name, values in found.items():
        lines.append(f"{name} = (")
        lines += [f"    {c!r}," for c in values]
        lines.append(")")
    (OUTPUT / "floats.py").write_text(tables_text())
    (OUTPUT / "polynomials.py").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
