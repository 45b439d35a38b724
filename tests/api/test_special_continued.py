"""loggamma, bernoulli, bessel_jn and sph_harm_y against mpmath, differences and their limits."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.scipy import special

R = np.random.default_rng(9)
INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def wide():
    with fxad.enable_x64():
        yield


def everywhere() -> np.ndarray:
    """Complex numbers: in all quadrants, close to the axis, the zeros and the poles, and large."""
    square = R.uniform(-15, 15, (2, 60))
    flat = R.uniform(-4, 4, 60), R.standard_normal(60) * 10.0 ** R.uniform(-12, 0, 60)
    zeros = np.array(
        [1 + 1e-5j, 2 - 1e-9j, 1.15 + 0.1j, 1.8 - 0.3j, 0.51 + 0.8j, -3 + 1e-6j, 200 + 3j]
    )
    return np.concatenate([square[0] + 1j * square[1], flat[0] + 1j * flat[1], zeros, -zeros])


def test_loggamma_of_complex_numbers() -> None:
    for dtype, units in ((np.complex128, 60), (np.complex64, 120)):
        z = everywhere().astype(dtype)
        eps = float(np.finfo(dtype).eps)
        wanted = np.array([complex(mp.loggamma(mp.mpc(complex(v)))) for v in z])
        for got in (special.loggamma(z), fxad.jit(special.loggamma)(z)):
            assert got.dtype == dtype
            error = np.abs(np.asarray(got) - wanted) / np.abs(wanted)
            assert error.max() < units * eps


def test_slope_of_loggamma_is_digamma() -> None:
    z = everywhere()
    slope = fxad.vmap(fxad.grad(special.loggamma, holomorphic=True))(z)
    wanted = np.array([complex(mp.digamma(mp.mpc(complex(v)))) for v in z])
    np.testing.assert_allclose(slope, wanted, rtol=1e-11)
    x = np.array([0.3, 1.0, 7.5])
    np.testing.assert_allclose(fxad.vmap(fxad.grad(special.loggamma))(x), special.digamma(x))


def test_limits_of_loggamma() -> None:
    x = np.array([0.0, -0.0, -1.0, -0.5, INF, -INF, NAN, 3.0])
    np.testing.assert_allclose(
        special.loggamma(x), [INF, INF, NAN, NAN, INF, NAN, NAN, math.log(2)], rtol=1e-15
    )
    assert special.loggamma(3).dtype == jnp.asarray(0.5).dtype
    assert np.isnan(np.asarray(special.loggamma(np.array([-1 + 0j, 0j, NAN + 1j])))).all()
    above, below = (special.loggamma(complex(-2.5, side)) for side in (0.0, -0.0))
    assert complex(above) == complex(below).conjugate()
    assert float(above.imag) == pytest.approx(-3 * math.pi)


def test_bernoulli_numbers_are_rounded_once() -> None:
    got = np.asarray(special.bernoulli(262))
    wanted = [float(mp.bernoulli(k)) for k in range(259)]
    np.testing.assert_array_equal(got[:259], wanted)
    assert got[259:].tolist() == [0, -INF, 0, INF]
    for n in (0, 1, 2, 3):
        assert special.bernoulli(n).tolist() == wanted[: n + 1]
    with fxad.enable_x64(False):
        assert special.bernoulli(4).dtype == np.float32
    for wrong in (-1, 2.0, True):
        with pytest.raises(BadArgument, match="bernoulli: n must be an int"):
            special.bernoulli(wrong)


X = np.array([1e-9, 1e-3, 0.02, 0.9, 1.0, 1.1, 2.4048, 4.0, 6.99, 7.0, 7.01, 8.5, 30.0, 500.0])


@pytest.mark.parametrize("v", [0, 1, 2, 7])
def test_bessel_functions_of_all_orders(v: int) -> None:
    x = np.concatenate([X, -X, [0.0]])
    wanted = np.array([[float(mp.besselj(k, float(at))) for at in x] for k in range(v + 1)])
    for got in (special.bessel_jn(x, v=v), fxad.jit(lambda x: special.bessel_jn(x, v=v))(x)):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=3e-15)
    single = special.bessel_jn(x.astype(np.float32), v=v)
    assert single.dtype == np.float32
    exact = np.abs(x) < 10  # beyond, the argument's rounding is seen
    np.testing.assert_allclose(np.asarray(single)[:, exact], wanted[:, exact], atol=1e-6)


def test_slopes_and_limits_of_bessel_functions() -> None:
    x = np.array([-3.0, 0.4, 2.0, 9.0])

    def total(x: Any) -> Any:
        return (special.bessel_jn(x, v=3) * np.arange(1.0, 5)[:, None]).sum(0)

    def slope(x: Any) -> Any:
        return fxad.grad(lambda x: total(x).sum())(x)

    for function in (total, slope):
        difference = (function(x + 1e-6) - function(x - 1e-6)) / 2e-6
        got = fxad.grad(lambda x, f=function: f(x).sum())(x)
        np.testing.assert_allclose(got, difference, rtol=1e-7, atol=1e-9)
    edge = np.asarray(special.bessel_jn(np.array([INF, -INF, NAN]), v=3))
    assert (edge[:, :2] == 0).all() and np.isnan(edge[:, 2]).all()
    assert special.bessel_jn(np.zeros((2, 3)), v=4).shape == (5, 2, 3)
    assert special.bessel_jn(2, v=1).shape == (2,)
    with pytest.raises(BadArgument, match="0 or more"):
        special.bessel_jn(1.0, v=-1)
    with pytest.raises(TypeMismatch, match="bessel_jn: takes real numbers"):
        special.bessel_jn(1j, v=1)


def harmonic(n: int, m: int, theta: float, phi: float) -> complex:
    """By Rodrigues' formula, whose power of x**2 - 1 is differentiated term by term."""
    size = abs(m)
    with mp.workdps(60):
        x = mp.cos(mp.mpf(theta))
        terms = [
            (-1) ** k * math.comb(n, k) * math.perm(2 * (n - k), n + size) * x ** (n - size - 2 * k)
            for k in range((n - size) // 2 + 1)
        ]
        legendre = mp.fsum(terms) * (-mp.sin(mp.mpf(theta))) ** size / 2**n / mp.factorial(n)
        scale = (2 * n + 1) / (4 * mp.pi) * mp.factorial(n - size) / mp.factorial(n + size)
        value = complex(mp.sqrt(scale) * legendre * mp.expj(size * mp.mpf(phi)))
    return value if m >= 0 else (-1) ** size * value.conjugate()


def test_spherical_harmonics() -> None:
    n = np.array([0, 1, 1, 1, 2, 5, 5, 12, 12, 30, 30])
    m = np.array([0, 0, 1, -1, -2, 3, 5, -7, 12, 1, -29])
    theta, phi = R.uniform(0.1, 3, n.size), R.uniform(-6, 6, n.size)
    every = zip(n.tolist(), m.tolist(), theta.tolist(), phi.tolist(), strict=True)
    wanted = np.array([harmonic(*one) for one in every])
    np.testing.assert_allclose(special.sph_harm_y(n, m, theta, phi), wanted, atol=2e-14)
    traced = fxad.jit(lambda *a: special.sph_harm_y(*a, n_max=30))
    np.testing.assert_allclose(traced(n, m, theta, phi), wanted, atol=2e-14)
    single = special.sph_harm_y(n, m, theta.astype(np.float32), phi.astype(np.float32))
    assert single.dtype == np.complex64
    np.testing.assert_allclose(single, wanted, atol=1e-5)


def test_slopes_of_spherical_harmonics() -> None:
    n, m = np.array([3, 6, 4]), np.array([-2, 0, 4])
    at = [np.array([0.0, 1.2, 2.5]), np.array([0.3, -1.0, 2.0])]
    for number in (0, 1):
        for part in (jnp.real, jnp.imag):

            def total(*angles: Any, part: Any = part) -> Any:
                return part(special.sph_harm_y(n, m, *angles))

            ends = [
                total(*(a + s * 1e-6 if i == number else a for i, a in enumerate(at)))
                for s in (1, -1)
            ]
            got = fxad.grad(lambda *angles, f=total: f(*angles).sum(), number)(*at)
            inside = slice(1 if number == 0 else 0, None)  # sin(theta) is |sin(theta)| below 0
            difference = (ends[0] - ends[1]) / 2e-6
            np.testing.assert_allclose(got[inside], difference[inside], rtol=1e-7, atol=1e-8)
            assert np.isfinite(np.asarray(got)).all()


def test_shapes_of_spherical_harmonics_and_what_they_refuse() -> None:
    assert special.sph_harm_y(2, 1, 0.5, 0.5).shape == ()
    assert special.sph_harm_y(np.array([2]), np.array([1]), 0.5, 0.5).shape == (1,)
    assert special.sph_harm_y(np.arange(4)[:, None], np.arange(3), 0.5, 0.5).shape == (4, 3)
    assert special.sph_harm_y(2, 3, 0.5, 0.5) == 0
    clipped = special.sph_harm_y(10, 2, 0.5, 0.5, n_max=6)
    assert clipped == special.sph_harm_y(6, 2, 0.5, 0.5)
    with pytest.raises(BadArgument, match="diff_n"):
        special.sph_harm_y(2, 1, 0.5, 0.5, 1)
    with pytest.raises(BadArgument, match="give n_max"):
        fxad.jit(special.sph_harm_y)(2, 1, 0.5, 0.5)
