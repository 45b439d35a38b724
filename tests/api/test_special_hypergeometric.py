"""hyp1f1 and hyp2f1 against mpmath, derivatives in all arguments, limits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import fxad
from fxad.core.errors import TypeMismatch
from fxad.scipy import special

R = np.random.default_rng(10)
INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def between(low: float, high: float, count: int = 24) -> np.ndarray:
    return R.uniform(low, high, count)


def whole(low: int, high: int, count: int = 24) -> np.ndarray:
    return R.integers(low, high, count).astype(float)


# function, arguments, relative tolerance in float64 (of the terms that cancel, of the exponent)
CASES = {
    "small": ("hyp1f1", [between(0.1, 5), between(0.1, 5), between(-20, 20)], 1e-13),
    "large": ("hyp1f1", [between(0.1, 5), between(0.1, 5), between(-500, 500)], 3e-13),
    "signed": ("hyp1f1", [between(-4, 4), between(-4, 4), between(-20, 20)], 3e-13),
    "integers": ("hyp1f1", [whole(1, 5), whole(1, 8), between(-30, 30)], 1e-13),
    "laguerre": ("hyp1f1", [whole(-6, 1), between(0.3, 5), between(-20, 20)], 3e-12),
    "inside": ("hyp2f1", [between(0.1, 5), between(0.1, 5), between(0.3, 9), between(0, 1)], 3e-13),
    "left": (
        "hyp2f1",
        [between(-4, 4), between(-4, 4), between(0.1, 4), -(10 ** between(-9, 6))],
        1e-12,
    ),
    "logarithms": (
        "hyp2f1",
        [whole(1, 4), whole(1, 5), whole(1, 6), 1 - 10 ** between(-12, 0)],
        3e-13,
    ),
    "jacobi": ("hyp2f1", [whole(-6, 1), between(0.1, 5), between(0.3, 6), between(-3, 3)], 3e-12),
    "at one": ("hyp2f1", [between(-2, 2), between(-2, 2), between(4.2, 6), np.ones(24)], 1e-13),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    function, args, tolerance = CASES[name]
    ours = getattr(special, function)
    wanted = [float(getattr(mp, function)(*map(float, at))) for at in zip(*args, strict=True)]
    np.testing.assert_allclose(ours(*args), wanted, rtol=tolerance)
    np.testing.assert_allclose(fxad.jit(ours)(*args), wanted, rtol=tolerance)
    typed = [a.astype(np.float32) for a in args]
    single = ours(*typed)
    assert single.dtype == np.float32
    in_double = np.asarray(ours(*(t.astype(np.float64) for t in typed)))
    fits = np.abs(np.log(np.abs(in_double))) < 80
    eps = float(np.finfo(np.float32).eps / np.finfo(np.float64).eps)
    np.testing.assert_allclose(np.asarray(single)[fits], in_double[fits], rtol=tolerance * eps)


# where derivatives are taken: series, transformations, asymptotic series, polynomials, x = 1
POINTS = [
    ("hyp1f1", (1.3, 2.4, 1.7)),
    ("hyp1f1", (1.3, 2.4, -3.7)),
    ("hyp1f1", (1.3, 2.4, 90.0)),
    ("hyp1f1", (-2.0, 2.4, 1.7)),
    ("hyp2f1", (1.3, 0.7, 2.4, 0.3)),
    ("hyp2f1", (1.3, 0.7, 2.0, 0.93)),
    ("hyp2f1", (1.3, 0.7, 2.4, -5.0)),
    ("hyp2f1", (-2.0, 0.7, 2.4, 0.3)),
]


@functools.cache
def derivatives(name: str) -> Callable[..., Any]:
    """The first ones, those of the last argument's in all, and the last argument's of all."""
    ours, numbers = getattr(special, name), range(3 if name == "hyp1f1" else 4)
    last = fxad.grad(ours, numbers[-1])

    def found(*point: Any) -> Any:
        mixed = [fxad.grad(fxad.grad(ours, k), numbers[-1])(*point) for k in numbers]
        other = [fxad.grad(last, k)(*point) for k in numbers]
        return fxad.grad(ours, tuple(numbers))(*point), mixed, other

    return fxad.jit(found)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "point"), POINTS)
def test_derivatives_in_all_arguments(name: str, point: tuple[float, ...]) -> None:
    oracle = getattr(mp, name)
    numbers = tuple(range(len(point)))

    def along(number: int, order: int) -> float:
        def moved(v: Any) -> Any:
            return oracle(*(v if i == number else p for i, p in enumerate(point)))

        with mp.workdps(40):
            return float(mp.diff(moved, point[number], order))

    got, mixed, other = derivatives(name)(*point)
    np.testing.assert_allclose(got, [along(k, 1) for k in numbers], rtol=1e-13)
    assert float(mixed[-1]) == pytest.approx(along(numbers[-1], 2), rel=1e-12)
    np.testing.assert_allclose(mixed, other, rtol=1e-11)


def test_limits() -> None:
    a = np.array([0, 0, 1, 1, -2, -3, -2, INF, NAN, 1, 0])
    b = np.array([0, 2, 0, -1, -3, -2, -2, 1, 1, 1, -1])
    x = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 1, INF, 2])
    wanted = [1, 1, INF, INF, 11 / 6, INF, 2.5, NAN, NAN, NAN, 1]
    np.testing.assert_allclose(special.hyp1f1(a, b, x), wanted)
    a = np.array([1, 1, -2, -2, 1, 1, 1, NAN, 0, 1, 1])
    c = np.array([0, -1, -3, -1, 2, 3, 2, 1, 2, 0, 2])
    x = np.array([0.5, 0.5, 0.5, 0.5, 1, 1, 1.5, 0.5, 9, 0, -INF])
    wanted = [INF, INF, 17 / 12, INF, INF, 2, INF, NAN, 1, 1, NAN]
    np.testing.assert_allclose(special.hyp2f1(a, np.ones(11), c, x), wanted)


def test_dtypes_and_shapes() -> None:
    with fxad.enable_x64(False):
        assert special.hyp1f1(1, 2, 1).dtype == special.hyp2f1(1, 1, 2, 0).dtype == np.float32
        assert special.hyp1f1(np.float16(1), 2.0, 1.0).dtype == np.float16
        assert special.hyp2f1(np.ones((2, 1), np.float32), 1.0, 2.0, np.zeros(3)).shape == (2, 3)
        assert special.hyp1f1(1.0, 2.0, np.zeros((0, 2), np.float32)).shape == (0, 2)
    rows = [between(0.5, 2, 6).reshape(2, 3) for _ in range(3)]
    np.testing.assert_allclose(fxad.vmap(special.hyp1f1)(*rows), special.hyp1f1(*rows), rtol=1e-14)
    with pytest.raises(TypeMismatch, match="hyp2f1: takes real numbers"):
        special.hyp2f1(1.0, 1.0, 2.0, 1j)
