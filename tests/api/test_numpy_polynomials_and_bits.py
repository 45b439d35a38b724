"""fxad.numpy beside NumPy: polynomials and their roots, grids of bins, parts of floats, bits."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _wide():
    with fxad.enable_x64():
        yield


def close(found, want, rtol=1e-10):
    np.testing.assert_allclose(np.asarray(found), want, rtol=rtol, atol=1e-12)


def by_value(numbers):
    return np.sort_complex(np.asarray(numbers))


# ---------------------------------------------------------------- polynomials


def test_poly():
    for zeros in ([1.0, 2.0, -3.0], [2.0], [1 + 1j, 1 - 1j, 3.0]):
        close(jnp.poly(np.array(zeros)), np.poly(zeros))
    matrix = RANDOM.standard_normal((3, 3))
    close(jnp.poly(matrix), np.poly(matrix))
    with pytest.raises(ShapeError, match="poly"):
        jnp.poly(np.ones((2, 3)))


def test_roots():
    for p in ([1.0, -6, 11, -6], [0.0, 0, 2, 4], [1.0, 2, 5, 0, 0], [3.0], [0.0]):
        found = jnp.roots(np.array(p))
        assert found.shape == np.roots(p).shape
        close(by_value(found), by_value(np.roots(p)), rtol=1e-7)
    p = np.array([1.0, -6, 11, -6])
    traced = fxad.jit(lambda p: jnp.roots(p, strip_zeros=False))(p)
    close(by_value(traced), [1, 2, 3], rtol=1e-9)
    with pytest.raises(fxad.errors.ConcretizationError, match="strip_zeros"):
        fxad.jit(jnp.roots)(p)


def test_the_derivative_of_a_root():
    """d r / d p_k = -r**(n - k) / p'(r), for the largest root r."""
    p = np.array([1.0, -6, 11, -6])
    largest = lambda p: jnp.max(jnp.real(jnp.roots(p, strip_zeros=False)))  # noqa: E731
    close(
        fxad.grad(largest)(p), -(3.0 ** np.arange(3, -1, -1)) / np.polyval(np.polyder(p), 3.0), 1e-7
    )


def test_polyfit():
    x, y = np.linspace(-1, 2, 12), RANDOM.standard_normal(12)
    both, w = RANDOM.standard_normal((12, 2)), RANDOM.uniform(1, 2, 12)
    close(jnp.polyfit(x, y, 3), np.polyfit(x, y, 3), 1e-8)
    close(jnp.polyfit(x, both, 2, w=w), np.polyfit(x, both, 2, w=w), 1e-8)
    for cov in (True, "unscaled"):
        for values in (y, both):
            ours, theirs = jnp.polyfit(x, values, 2, cov=cov), np.polyfit(x, values, 2, cov=cov)
            close(ours[0], theirs[0], 1e-8)
            close(ours[1], theirs[1], 1e-8)
    for ours, theirs in zip(
        jnp.polyfit(x, y, 2, full=True), np.polyfit(x, y, 2, full=True), strict=True
    ):
        close(ours, theirs, 1e-8)
    slope = fxad.jacobian(lambda y: jnp.polyfit(x, y, 1))(y)
    close(slope, np.linalg.pinv(np.vander(x, 2)), 1e-8)
    with pytest.raises(BadArgument, match="more than 4 points"):
        jnp.polyfit(x[:4], y[:4], 3, cov=True)
    with pytest.raises(ShapeError, match="polyfit"):
        jnp.polyfit(x, y[:5], 1)


def test_polydiv():
    u, v = np.array([2.0, 3, 5, 7]), np.array([1.0, 2])
    quotient, rest = jnp.polydiv(u, v)
    close(quotient, np.polydiv(u, v)[0])
    close(np.trim_zeros(np.asarray(rest), "f"), np.polydiv(u, v)[1])
    assert jnp.polydiv(v, u)[0].tolist() == [0]


# ---------------------------------------------------------------- grids of bins


@pytest.mark.parametrize("density", [False, True])
def test_histograms_of_several_axes(density):
    x, y, w = RANDOM.standard_normal((3, 50))
    edges = np.linspace(-2, 2, 5)
    for options in (
        {},
        {"bins": 4, "weights": w},
        {"bins": [3, 5], "range": [(-1, 1), (-2, 2)]},
        {"bins": edges},
        {"bins": [edges, 3]},
    ):
        ours = jnp.histogram2d(x, y, density=density, **options)
        theirs = np.histogram2d(x, y, density=density, **options)
        for a, b in zip(ours, theirs, strict=True):
            close(a, b)
    sample = RANDOM.standard_normal((40, 3))
    counts, found = jnp.histogramdd(sample, (2, 3, 4), density=density)
    wanted, places = np.histogramdd(sample, (2, 3, 4), density=density)
    close(counts, wanted)
    assert all(np.allclose(a, b) for a, b in zip(found, places, strict=True))
    with pytest.raises(BadArgument, match="3 axes"):
        jnp.histogramdd(sample, (2, 3))


# ---------------------------------------------------------------- parts of floats

SPECIAL = [0.0, -0.0, 1.0, -1.5, 0.1, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_frexp_and_ldexp(dtype):
    info = np.finfo(dtype)
    x = np.array(
        [*SPECIAL, info.max, info.tiny, -info.smallest_subnormal, 3 * info.tiny / 4], dtype
    )
    mantissa, exponent = jnp.frexp(x)
    wanted = np.frexp(x)
    assert mantissa.dtype == dtype and exponent.dtype == np.int32
    np.testing.assert_array_equal(mantissa, wanted[0])
    np.testing.assert_array_equal(np.signbit(mantissa), np.signbit(wanted[0]))
    np.testing.assert_array_equal(exponent, np.where(np.isfinite(x), wanted[1], 0))
    np.testing.assert_array_equal(jnp.ldexp(mantissa, exponent), x)
    for power in (0, 3, -3, 20, -20, 200, -200, 3000, -3000, 2**31 - 1, -(2**31)):
        with np.errstate(over="ignore", under="ignore"):
            np.testing.assert_array_equal(jnp.ldexp(x, np.int32(power)), np.ldexp(x, power))


def test_derivatives_of_frexp_and_ldexp():
    assert fxad.grad(lambda x: jnp.ldexp(x, 3))(1.5) == 8
    assert fxad.grad(lambda x: jnp.frexp(x)[0])(5.0) == 2.0**-3
    with pytest.raises(TypeMismatch, match="integers"):
        jnp.ldexp(1.0, 0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_spacing(dtype):
    x = np.array([*SPECIAL, 1e3, -7.0, np.finfo(dtype).tiny], dtype)
    with np.errstate(invalid="ignore"):  # NumPy warns of infinities
        wanted = np.spacing(x)
    np.testing.assert_array_equal(np.abs(jnp.spacing(x)), np.abs(wanted))
    assert jnp.spacing(dtype(-7)) < 0
    assert fxad.grad(jnp.spacing)(2.0) == 0


def test_bits():
    a = RANDOM.integers(0, 2, (3, 11))
    for axis in (None, 0, 1, -1):
        for order in ("big", "little"):
            packed = jnp.packbits(a, axis, order)
            assert packed.dtype == np.uint8
            np.testing.assert_array_equal(packed, np.packbits(a, axis, order))
            for count in (None, 5, -2, 40):
                np.testing.assert_array_equal(
                    jnp.unpackbits(packed, axis, count, order),
                    np.unpackbits(np.asarray(packed), axis, count, order),
                )
    with pytest.raises(TypeMismatch, match="uint8"):
        jnp.unpackbits(np.ones(2))
    with pytest.raises(TypeMismatch, match="bools"):
        jnp.packbits(np.ones(2))
    with pytest.raises(BadArgument, match="bitorder"):
        jnp.packbits(a, bitorder="middle")
