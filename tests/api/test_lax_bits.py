"""Bits read as other dtypes, bitwise reductions, upper halves of products."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "float16"])
def test_bits_of_narrower_and_wider_dtypes(wrap, dtype):
    parts = wrap(lambda x: lax.bitcast_convert_type(x, dtype))(X)
    count = 4 // np.dtype(dtype).itemsize
    expected = X.view(dtype).reshape(3, 4, count)
    assert parts.shape == (3, 4, count)
    assert np.asarray(parts).tobytes() == expected.tobytes()
    again = wrap(lambda p: lax.bitcast_convert_type(p, "float32"))(parts)
    np.testing.assert_array_equal(again, X)


def test_bits_of_one_width():
    np.testing.assert_array_equal(lax.bitcast_convert_type(X, "int32"), X.view(np.int32))
    assert lax.bitcast_convert_type(X, "float32").dtype == np.float32
    with pytest.raises(ShapeError, match="last axis of 2"):
        lax.bitcast_convert_type(np.zeros((2, 3), np.uint16), "int32")


def test_bitwise_reductions():
    n = np.array([[12, 10], [7, 3]], np.int32)
    assert lax.reduce_and(n, (1,)).tolist() == [8, 3]
    assert lax.reduce_or(n, (0,)).tolist() == [15, 11]
    assert lax.reduce_and(n > 5, (0,)).tolist() == [True, False]
    assert bool(lax.reduce_or(n > 11, (0, 1)))
    assert lax.reduce_and(np.zeros((0, 2), np.uint8), (0,)).tolist() == [255, 255]


def test_upper_halves():
    a = np.array([2**31 - 1, -5, 123456789], np.int32)
    b = np.array([2**31 - 1, 7, -987654321], np.int32)
    expected = (a.astype(np.int64) * b.astype(np.int64)) >> 32
    assert lax.mulhi(a, b).tolist() == expected.tolist()
    assert fxad.jit(lax.mulhi)(a, b).tolist() == expected.tolist()


def test_barriers_take_trees():
    out = lax.optimization_barrier({"a": X, "b": (1.0,)})
    np.testing.assert_array_equal(out["a"], X)
    assert float(out["b"][0]) == 1.0
    assert lax.optimization_barrier(()) == ()
    with pytest.raises(TypeMismatch, match="Python int"):
        lax.integer_pow(X, 1.5)


def in_format(x, exponent, mantissa):
    """Floats rounded to the format by frexp, ldexp and rint: no bits are looked at."""
    fraction, power = np.frexp(x.astype(np.float64))
    near = np.ldexp(np.rint(np.ldexp(fraction, mantissa + 1)), power - mantissa - 1)
    bias = (1 << (exponent - 1)) - 1
    power = np.frexp(near)[1] - 1
    near = np.where(power > bias, np.copysign(np.inf, near), near)
    return np.where((power <= -bias) & np.isfinite(x), np.copysign(0.0, near), near)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_reduced_precision(wrap, dtype):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(500) * 2.0 ** rng.integers(-9, 10, 500)).astype(dtype)
    x = np.concatenate([x, np.array([0.0, -0.0, np.inf, -np.inf, 1.5, 2.5], dtype)])
    limits = np.finfo(dtype)
    for exponent in (2, 4, 5):
        for mantissa in (0, 2, 7, limits.nmant):
            if exponent == limits.nexp:
                continue  # subnormals of the dtype itself are kept
            got = wrap(lambda x, e=exponent, m=mantissa: lax.reduce_precision(x, e, m))(x)
            expected = in_format(x, exponent, mantissa)
            np.testing.assert_array_equal(got, expected)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    assert np.isnan(lax.reduce_precision(np.float32(np.nan), 4, 3))
    slope = fxad.vmap(fxad.grad(lambda x: lax.reduce_precision(x, 4, 3)))(X.ravel())
    assert slope.tolist() == [1.0] * X.size
    with pytest.raises(TypeMismatch, match="expects floats"):
        lax.reduce_precision(np.arange(3), 4, 3)
    with pytest.raises(BadArgument, match="0 exponent"):
        lax.reduce_precision(X, 0, 3)
