"""Compiled complex functions near poles and zeros, and the sign of zeros."""

from __future__ import annotations

import math

import numpy as np
import pytest
from array_api_same import same

import fxad
import fxad.numpy as jnp

EDGES = [0.0, -0.0, 1e-8, -1e-8, 0.3, -0.3, 1.0, -1.0, 1.5, math.pi / 2, -math.pi / 2, 40.0, 1e200]
POINTS = np.asarray([complex(x, y) for x in EDGES for y in EDGES])


@pytest.fixture(autouse=True)
def wide():
    """NumPy's default dtypes, so that dtypes can be compared."""
    with fxad.enable_x64():
        yield


@pytest.mark.parametrize("name", ["tan", "tanh", "atan", "atanh", "log1p", "sign"])
def test_complex_functions_near_poles_and_zeros(name):
    """Compiled values against NumPy's, or, for log1p, against logarithms of more digits."""
    got = np.asarray(fxad.jit(getattr(jnp, name))(POINTS))
    with np.errstate(all="ignore"):
        if name == "log1p":
            wide = POINTS.astype(np.clongdouble)
            size = np.abs(1 + wide)
            square = wide.real * (wide.real + 2) + wide.imag**2
            real = np.where(np.abs(square) < 0.5, np.log1p(square) / 2, np.log(size))
            wanted = real.astype(float) + 1j * np.arctan2(POINTS.imag, 1 + POINTS.real)
        else:
            wanted = np.asarray(getattr(jnp, name)(POINTS))
    finite = np.isfinite(wanted)
    assert (finite == np.isfinite(got)).all()
    got, wanted = got[finite], wanted[finite]
    for part in (np.real, np.imag):
        size = np.maximum(np.abs(part(wanted)), 1e-3 * np.abs(wanted))
        assert (np.abs(part(got) - part(wanted)) <= 1e-12 * size).all()


def test_sign_of_zeros_is_zero():
    for zeros in (np.asarray([0.0, -0.0]), np.asarray([0.0, -0.0], np.float32)):
        same(fxad.jit(jnp.sign)(zeros), np.sign(zeros))
        same(jnp.sign(zeros), np.sign(zeros))


def test_sign_of_complex_numbers_below_the_normal_ones():
    for dtype, tiny in ((np.complex64, 1e-41), (np.complex128, 1e-314)):
        x = np.array([1j * tiny, -tiny, complex(3 * tiny, 4 * tiny), 2.0, 0], dtype)
        for sign in (jnp.sign, fxad.jit(jnp.sign)):
            got = sign(x)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, [1j, -1, 0.6 + 0.8j, 1, 0], rtol=1e-3)
