"""Fit the Chebyshev coefficients of tables.py beside this file, and write them there.

    python -m fxad.scipy.special.fit_tables

A function of t in [-1, 1] is interpolated at 60 Chebyshev points with 45 digits, and its series cut
where terms fall below 1e-19 of the largest. Needs mpmath.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, TypeAlias

import mpmath as mp

OUTPUT = pathlib.Path(__file__).with_name("tables.py")
POINTS, DIGITS = 60, 45
Real: TypeAlias = Any  # an mpmath number


def fit(function: Callable[[Real], Real]) -> list[float]:
    """Coefficients of the function's Chebyshev series."""
    with mp.workdps(DIGITS):
        angles = [mp.pi * (2 * k + 1) / (2 * POINTS) for k in range(POINTS)]
        values = [function(mp.cos(a)) for a in angles]
        terms = [
            2 * mp.fsum(v * mp.cos(n * a) for v, a in zip(values, angles, strict=True)) / POINTS
            for n in range(POINTS)
        ]
        terms[0] /= 2
        least = max(map(abs, terms)) * mp.mpf("1e-19")
        count = 1 + max(n for n, term in enumerate(terms) if abs(term) > least)
        return [float(term) for term in terms[:count]]


def bessel(order: int) -> dict[str, Callable[[Real], Real]]:
    """The tables of J, Y and I of an order, 0 or 1, which divides by x to be even."""

    def near(t: Real) -> Real:  # x from 0 to 8
        return mp.sqrt(32 * (t + 1))

    def far(t: Real) -> Real:  # x from 8 to infinity
        return 8 / mp.sqrt((t + 1) / 2)

    def j(t: Real) -> Real:
        return mp.besselj(order, near(t)) / near(t) ** order

    def y(t: Real) -> Real:
        x = near(t)
        singular = 2 / mp.pi * (mp.log(x) * mp.besselj(order, x) - (1 / x if order else 0))
        return (mp.bessely(order, x) - singular) / x**order

    def waves(x: Real) -> tuple[Real, Real, Real, Real]:
        c = x - (2 * order + 1) * mp.pi / 4
        return mp.besselj(order, x), mp.bessely(order, x), mp.cos(c), mp.sin(c)

    def p(t: Real) -> Real:
        j, y, cosine, sine = waves(far(t))
        return mp.sqrt(mp.pi * far(t) / 2) * (j * cosine + y * sine)

    def q(t: Real) -> Real:
        j, y, cosine, sine = waves(far(t))
        return far(t) * mp.sqrt(mp.pi * far(t) / 2) * (y * cosine - j * sine)

    def i_low(t: Real) -> Real:
        x = 4 * (t + 1)
        return mp.exp(-x) * mp.besseli(order, x) / x**order

    def i_high(t: Real) -> Real:
        x = 16 / (t + 1)
        return mp.exp(-x) * mp.sqrt(x) * mp.besseli(order, x)

    names = {"J{}": j, "Y{}": y, "P{}": p, "Q{}": q, "I{}_LOW": i_low, "I{}_HIGH": i_high}
    return {name.format(order): function for name, function in names.items()}


def gamma(t: Real) -> Real:
    f = (t + 1) / 2
    return (mp.gamma(2 + f) - 1) / f


def faddeeva() -> dict[str, Callable[[Real], Real]]:
    """The tables of erfcx, Dawson's integral and the Fresnel integrals."""

    def erfcx(t: Real) -> Real:
        x = 3 * (1 + t) / (1 - t)
        return (x + mp.mpf(1) / 2) * mp.exp(x * x) * mp.erfc(x)

    def dawson(x: Real) -> Real:
        return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)

    def dawson_near(t: Real) -> Real:
        x = mp.sqrt(25 * (t + 1) / 2)
        return (1 + x * x) * dawson(x) / x

    def dawson_far(t: Real) -> Real:
        x = 5 / mp.sqrt((t + 1) / 2)
        return 2 * x * dawson(x)

    def near(t: Real) -> Real:  # x from 0 to 1.5
        return 1.5 * mp.root((t + 1) / 2, 4)

    def waves(t: Real) -> tuple[Real, Real, Real, Real, Real]:  # x from 1.5 to infinity
        x = 1.5 + 3 * (1 + t) / (1 - t)
        half, angle = mp.mpf(1) / 2, mp.pi * x * x / 2
        return x, half - mp.fresnels(x), half - mp.fresnelc(x), mp.cos(angle), mp.sin(angle)

    def f(t: Real) -> Real:
        x, s, c, cosine, sine = waves(t)
        return mp.pi * x * (s * cosine - c * sine)

    def g(t: Real) -> Real:
        x, s, c, cosine, sine = waves(t)
        return mp.pi**2 * x**3 * (c * cosine + s * sine)

    return {
        "ERFCX": erfcx,
        "DAWSON_NEAR": dawson_near,
        "DAWSON_FAR": dawson_far,
        "FRESNEL_S": lambda t: mp.fresnels(near(t)) / near(t) ** 3,
        "FRESNEL_C": lambda t: mp.fresnelc(near(t)) / near(t),
        "FRESNEL_F": f,
        "FRESNEL_G": g,
    }


def sine_integral() -> dict[str, Callable[[Real], Real]]:
    """The tables of the sine and cosine integrals."""

    def near(t: Real) -> Real:  # x from 0 to 4
        return mp.sqrt(8 * (t + 1))

    def waves(t: Real) -> tuple[Real, Real, Real, Real, Real]:  # x from 4 to infinity
        x = 4 + 8 * (1 + t) / (1 - t)
        return x, mp.pi / 2 - mp.si(x), mp.ci(x), mp.cos(x), mp.sin(x)

    def f(t: Real) -> Real:
        x, s, c, cosine, sine = waves(t)
        return x * (c * sine + s * cosine)

    def g(t: Real) -> Real:
        x, s, c, cosine, sine = waves(t)
        return x * x * (s * sine - c * cosine)

    return {
        "SINE_NEAR": lambda t: mp.si(near(t)) / near(t),
        "COSINE_NEAR": lambda t: (mp.euler + mp.log(near(t)) - mp.ci(near(t))) / near(t) ** 2,
        "SINE_F": f,
        "SINE_G": g,
    }


def dilogarithm(t: Real) -> Real:
    return mp.polylog(2, t / 2) / (t / 2) if t else mp.mpf(1)


TABLES = {
    **bessel(0),
    **bessel(1),
    "GAMMA": gamma,
    **faddeeva(),
    **sine_integral(),
    "DILOGARITHM": dilogarithm,
}


def main() -> None:
    head = OUTPUT.read_text().split("\n\nJ0 = ")[0]
    lines = [head, ""]
    for name, function in TABLES.items():
        lines += [f"{name} = (", *(f"    {c!r}," for c in fit(function)), ")"]
    OUTPUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
