"""Maxima and minima of rows: NaN wherever it is, signed zeros, rows that fill no vector."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp

HIGHEST = fxad.jit(lambda x: jnp.max(x, -1))
LOWEST = fxad.jit(lambda x: jnp.min(x, -1))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [9, 16, 64, 100, 257])
def test_a_nan_anywhere_is_the_extreme(width, dtype):
    x = np.random.default_rng(0).uniform(-1, 1, (width + 1, width)).astype(dtype)
    x[np.arange(width), np.arange(width)] = np.nan  # in row i at i; none in the last row
    with fxad.enable_x64():
        for compiled, numpy in ((HIGHEST, np.max), (LOWEST, np.min)):
            np.testing.assert_array_equal(compiled(x), numpy(x, -1))


@pytest.mark.parametrize("width", [16, 100])
def test_zero_lies_above_its_negative(width):
    x = np.full((2, width), -0.0, np.float32)
    x[0, 3] = x[1, 3] = 0.0
    x[1] = -x[1]  # row 0: one +0 among -0; row 1: one -0 among +0
    assert not np.signbit(HIGHEST(x)).any()
    assert np.signbit(LOWEST(x)).all()


def test_infinities():
    x = np.full((2, 40), -np.inf, np.float32)
    x[1, 7] = 5.0
    np.testing.assert_array_equal(HIGHEST(x), np.float32([-np.inf, 5]))
    np.testing.assert_array_equal(LOWEST(-x), np.float32([np.inf, -5]))
