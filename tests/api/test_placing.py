"""put, place, piecewise and indices of triangles, against NumPy; functions compiled ahead."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("places", [[0, 5], [[1, -2], [30, 3]], [7]])
def test_put(mode, places):
    expected = X.copy()
    np.put(expected, places, [-1, -2, -3], mode=mode)
    new = np.array([-1, -2, -3])
    put = fxad.jit(lambda x: jnp.put(x, np.array(places), new, mode=mode, inplace=False))
    got = put(X)
    np.testing.assert_array_equal(got, expected)


def test_put_drops_and_repeats():
    assert jnp.put(jnp.zeros(4), np.array([1, 9, 3]), 5, inplace=False).tolist() == [0, 5, 0, 5]
    assert jnp.put(jnp.zeros(4), np.array([-1]), 5, inplace=False).tolist() == [0, 0, 0, 5]
    assert jnp.put(X, np.zeros(0, np.int32), 5, inplace=False).shape == X.shape
    with pytest.raises(BadArgument, match="immutable"):
        jnp.put(X, 1, 2)
    with pytest.raises(BadArgument, match="mode"):
        jnp.put(X, 1, 2, mode="raise", inplace=False)


def test_place():
    mask = X % 3 == 0
    expected = X.copy()
    np.place(expected, mask, [-1, -2, -3])
    got = fxad.jit(lambda x, m: jnp.place(x, m, jnp.array([-1.0, -2, -3]), inplace=False))(X, mask)
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(ShapeError, match="mask of 4"):
        jnp.place(X, mask[0], 1.0, inplace=False)


def test_piecewise():
    x = np.linspace(-2, 2, 9).astype(np.float32)

    def double(v, scale=1.0):
        return 2 * scale * v

    for conditions, functions in (
        ([x < 0, x > 1], [double, -1.0]),
        ([x < 0, x > -1], [double, np.square, 7.0]),
        (x < 0, [double, 3.0]),
    ):
        expected = np.piecewise(x, conditions, functions)
        if np.square in functions:
            functions = [double, jnp.square, 7.0]
        np.testing.assert_allclose(jnp.piecewise(x, conditions, functions), expected)
    scaled = jnp.piecewise(x, [x < 0], [double, 0.0], scale=2.0)
    np.testing.assert_allclose(scaled, np.where(x < 0, 4 * x, 0))
    with pytest.raises(BadArgument, match="functions for"):
        jnp.piecewise(x, [x < 0], [1.0, 2.0, 3.0])


def test_triangles():
    for k in (-1, 0, 2):
        for name in ("tril_indices_from", "triu_indices_from"):
            if k != 2:
                expected = getattr(np, name)(X, k)
            else:
                expected = getattr(np, name)(X, k=k)
            got = getattr(jnp, name)(X, k)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    for ours, theirs in zip(
        jnp.mask_indices(3, jnp.triu, 1), np.mask_indices(3, np.triu, 1), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ShapeError, match="matrix"):
        jnp.tril_indices_from(X[0])


def test_functions_compiled_ahead_can_be_called():
    compiled = fxad.jit(lambda x, y: x @ y).lower(X, X.T).compile()
    np.testing.assert_allclose(compiled(X, X.T), X @ X.T)
