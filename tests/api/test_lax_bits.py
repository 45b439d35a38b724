"""Bits read as other dtypes, bitwise reductions, upper halves of products."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
from fxad import lax
from fxad.core.errors import ShapeError, TypeMismatch

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
