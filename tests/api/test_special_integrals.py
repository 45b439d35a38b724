"""erfcx, dawsn, boxcox, spence, fresnel, sici, owens_t against mpmath, differences and limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import fxad
from fxad.core.errors import TypeMismatch
from fxad.scipy import special
from fxad.scipy.special import fit_tables, tables

R = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def dawson(x: Any) -> Any:
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def dilogarithm(x: Any) -> Any:
    return mp.re(mp.polylog(2, 1 - x))


def box_cox(x: Any, power: Any) -> Any:
    return mp.expm1(power * mp.log(x)) / power


def owen(h: Any, a: Any) -> Any:
    def inside(x: Any) -> Any:
        return mp.exp(-h * h * (1 + x * x) / 2) / (2 * mp.pi * (1 + x * x))

    return mp.quad(inside, mp.linspace(0, a, 9))


def of_both_signs(*xs: float) -> np.ndarray:
    return np.array([sign * x for x in xs for sign in (1, -1)])


SPREAD = [1e-300, 3e-9, 0.02, 0.7, 1.4999, 1.5, 1.9, 3.99, 4.0, 4.99, 5.0, 8.3, 26.2, 740.6, 1e5]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "erfcx": (special.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x)),
    "dawsn": (special.dawsn, dawson),
    "fresnel S": (lambda x: special.fresnel(x)[0], mp.fresnels),
    "fresnel C": (lambda x: special.fresnel(x)[1], mp.fresnelc),
    "Si": (lambda x: special.sici(x)[0], mp.si),
    "Ci": (lambda x: special.sici(x)[1], lambda x: mp.ci(abs(x))),
    "spence": (special.spence, dilogarithm),
    "boxcox": (special.boxcox, box_cox),
    "boxcox1p": (special.boxcox1p, lambda x, power: box_cox(1 + x, power)),
    "owens_t": (special.owens_t, owen),
}
POSITIVE = [*(x for x in SPREAD if x > 1e-10), 0.49, 0.5, 0.51, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0, 2.1]
POWERS = [2.5, -3.0, 1e-9, -1e-20, 0.3, 1.0] * 4
POINTS = {
    "erfcx": (of_both_signs(*SPREAD[:-2], 1e3),),
    "spence": (np.array(POSITIVE),),
    "boxcox": (np.array(POSITIVE), np.array(POWERS[: len(POSITIVE)])),
    "boxcox1p": (np.array(POSITIVE), np.array(POWERS[: len(POSITIVE)])),
    "owens_t": (
        of_both_signs(1e-12, 0.3, 0.6, 1.0, 2.0, 4.0, 6.0, 7.5, 9.0),
        np.array([0.3, 1.0, -1.0, 0.01, 0.99, 2.0, 1.01, -5.0, 0.5] * 2),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name: str) -> None:
    function, oracle = FUNCTIONS[name]
    args = POINTS.get(name, (of_both_signs(*SPREAD),))
    for dtype, units in ((np.float64, 12), (np.float32, 12)):
        typed = [a.astype(dtype) for a in args]
        with mp.workdps(50):
            wanted = np.array(
                [float(oracle(*map(mp.mpf, map(float, v)))) for v in zip(*typed, strict=True)]
            )
        most = float(np.finfo(dtype).max)
        eps = float(np.finfo(dtype).eps)
        # exp multiplies the rounding of its argument by it: p log(x), or h**2 / 2.
        conditioned = 90 if name.startswith(("boxcox", "owens")) else units
        for got in (function(*typed), fxad.jit(function)(*typed)):
            assert got.dtype == dtype
            tolerance = {"rtol": conditioned * eps, "atol": units * eps if name == "Ci" else 1e-44}
            fits = np.abs(wanted) < most
            np.testing.assert_allclose(np.asarray(got)[fits], wanted[fits], **tolerance)


# name, arguments: where first and second derivatives are compared with differences
SMOOTH = {
    "erfcx": (np.array([-2.5, -0.3, 0.0, 1.7, 11.9, 13.0]),),
    "dawsn": (np.array([-7.0, -0.3, 0.0, 0.92, 4.9, 12.5]),),
    "fresnel S": (np.array([-3.0, -0.3, 0.0, 1.4, 1.6, 2.2]),),
    "fresnel C": (np.array([-3.0, -0.3, 0.0, 1.4, 1.6, 2.2]),),
    "Si": (np.array([-6.0, -0.3, 0.2, 1.4, 3.9, 20.0]),),
    "Ci": (np.array([-6.0, 0.3, 0.2, 1.4, 3.9, 20.0]),),
    "spence": (np.array([0.1, 0.7, 0.9, 1.0, 1.3, 1.8, 30.0]),),
    "boxcox": (np.array([0.2, 0.9, 1.5, 2.0, 7.0]), np.array([0.0, -2.0, 0.3, 1e-9, 1.5])),
    "boxcox1p": (np.array([-0.2, 0.9, 0.0, 2.0, 7.0]), np.array([0.0, -2.0, 0.3, 1e-9, 1.5])),
    "owens_t": (np.array([0.3, -1.0, 2.0, 1.5, 0.0]), np.array([0.5, 1.0, -2.0, 0.0, 3.0])),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name: str) -> None:
    """Of first and second order, forward and reverse, against central differences."""
    function, args = FUNCTIONS[name][0], SMOOTH[name]
    for number in range(len(args)):

        def slope(*xs: Any, number: int = number) -> Any:
            return fxad.grad(lambda *at: function(*at).sum(), number)(*xs)

        for of in (function, slope):
            _check_slope(of, args, number)
        ways = [np.zeros_like(a) for a in args]
        ways[number] = np.ones_like(args[number])
        forward = fxad.jit(lambda *xs, ways=tuple(ways): fxad.jvp(function, xs, ways)[1])(*args)
        np.testing.assert_allclose(forward, slope(*args), rtol=1e-14)


def _check_slope(function: Callable[..., Any], args: tuple[np.ndarray, ...], number: int) -> None:
    def moved(step: float) -> np.ndarray:
        return np.asarray(
            function(*(a + step if i == number else a for i, a in enumerate(args)))
        ).astype(np.float64)

    h = 5e-4
    difference = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
    got = fxad.grad(lambda *xs: function(*xs).sum(), number)(*args)
    np.testing.assert_allclose(got, difference, rtol=2e-8, atol=1e-10)


def test_slopes_keep_their_digits_far_out() -> None:
    """erfcx' -> -1 / (sqrt(pi) x**2) and dawsn' -> -1 / (2 x**2): differences of equal numbers."""
    for x in (1e4, 1e9):
        assert float(fxad.grad(special.erfcx)(x)) == pytest.approx(
            -1 / (math.sqrt(math.pi) * x * x), 2e-8
        )
        assert float(fxad.grad(special.dawsn)(x)) == pytest.approx(-1 / (2 * x * x), 2e-8)
    assert fxad.grad(special.erfcx)(math.inf) == fxad.grad(special.dawsn)(-math.inf) == 0


INF, NAN = math.inf, math.nan
LIMITS = [
    ("erfcx", [INF, -INF, NAN, -0.0, -27.0, 5e-324], [0, INF, NAN, 1, INF, 1]),
    ("dawsn", [INF, -INF, NAN, 5e-324, 1e308], [0, 0, NAN, 5e-324, 5e-309]),
    ("fresnel S", [INF, -INF, NAN, 0.0, 1e300], [0.5, -0.5, NAN, 0, 0.5]),
    ("fresnel C", [INF, -INF, NAN, 0.0, 1e300], [0.5, -0.5, NAN, 0, 0.5]),
    ("Si", [INF, -INF, NAN, 0.0, 1e300], [math.pi / 2, -math.pi / 2, NAN, 0, math.pi / 2]),
    ("Ci", [INF, -INF, NAN, 0.0], [0, NAN, NAN, -INF]),
    (
        "spence",
        [0.0, 1.0, -1.0, NAN, INF, 5e-324],
        [math.pi**2 / 6, 0, NAN, NAN, -INF, math.pi**2 / 6],
    ),
]


@pytest.mark.parametrize(("name", "xs", "wanted"), LIMITS)
def test_limits(name: str, xs: list, wanted: list) -> None:
    got = np.asarray(FUNCTIONS[name][0](np.array(xs)))
    np.testing.assert_allclose(got, wanted, rtol=1e-15)


def test_signs_of_zeros() -> None:
    for name in ("dawsn", "fresnel S", "fresnel C", "Si"):
        assert np.signbit(np.asarray(FUNCTIONS[name][0](np.array([0.0, -0.0])))).tolist() == [
            False,
            True,
        ]


def test_limits_of_two_arguments() -> None:
    x = np.array([INF, -1.0, NAN, 0.0, 0.0, INF, 0.0, 2.0])
    power = np.array([1.0, 2.0, 1.0, 1.0, 0.0, -1.0, -1.0, 0.0])
    wanted = [INF, NAN, NAN, -1, -INF, 1, -INF, math.log(2)]
    np.testing.assert_allclose(special.boxcox(x, power), wanted)
    np.testing.assert_allclose(special.boxcox1p(x[3:] - 1, power[3:]), wanted[3:])
    h = np.array([INF, NAN, 0.0, 0.0, 1.0, -1.0, 1.0, 0.0, INF, 50.0])
    a = np.array([1.0, 1.0, INF, -INF, INF, INF, NAN, 1.0, INF, 0.5])
    tail = 0.25 * math.erfc(math.sqrt(0.5))
    np.testing.assert_allclose(
        special.owens_t(h, a), [0, NAN, 0.25, -0.25, tail, tail, NAN, 0.125, 0, 0], atol=1e-300
    )


def test_boxcox_at_power_zero_has_its_derivative_in_the_power() -> None:
    x = np.array([0.5, 2.0, 9.0])
    slope = fxad.vmap(fxad.grad(special.boxcox, 1), (0, None))
    np.testing.assert_allclose(slope(x, 0.0), np.log(x) ** 2 / 2, rtol=1e-15)


def test_dtypes() -> None:
    with fxad.enable_x64(False):
        for name in ("erfcx", "dawsn", "spence", "fresnel S", "Ci"):
            function = FUNCTIONS[name][0]
            assert function(2).dtype == function(np.array([2, 3])).dtype == np.float32
            assert function(np.float16(2)).dtype == np.float16
            assert not function(2.0).weak and not function(np.float32(2)).weak
            assert function(np.zeros((0, 3), np.float32)).shape == (0, 3)
        assert special.owens_t(np.ones((3, 1), np.float32), np.ones(2, int)).shape == (3, 2)
    with pytest.raises(TypeMismatch, match="sici: takes real numbers"):
        special.sici(1j)
    with pytest.raises(TypeMismatch, match="dawsn: takes real numbers"):
        special.dawsn(1j)


def test_erfcx_of_complex_numbers() -> None:
    z = np.array([1 + 2j, -1 + 0.3j, 5 - 3j, 0.2j])
    wanted = [complex(mp.exp(mp.mpc(v) ** 2) * mp.erfc(mp.mpc(v))) for v in z]
    np.testing.assert_allclose(special.erfcx(z), wanted, rtol=1e-13)
    slope = fxad.vmap(fxad.grad(special.erfcx, holomorphic=True))(z)
    np.testing.assert_allclose(slope, 2 * z * wanted - 2 / math.sqrt(math.pi), rtol=1e-12)


@pytest.mark.parametrize("name", ["ERFCX", "DAWSON_FAR", "FRESNEL_G", "COSINE_NEAR", "DILOGARITHM"])
def test_tables_are_what_their_script_fits(name: str) -> None:
    assert tuple(fit_tables.fit(fit_tables.TABLES[name])) == getattr(tables, name)
