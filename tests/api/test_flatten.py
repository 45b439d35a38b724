"""fxad.flatten_util: a pytree as one vector, and back."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ShapeError
from fxad.flatten_util import ravel_pytree


def test_round_trip_restores_shapes_dtypes_and_structure() -> None:
    tree = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [2.5, np.int32(4)], "c": ()}
    flat, unravel = ravel_pytree(tree)
    np.testing.assert_array_equal(flat, [0, 1, 2, 3, 4, 5, 2.5, 4])
    back = unravel(flat)
    assert back["b"][1].dtype == np.int32 and back["c"] == ()
    np.testing.assert_array_equal(back["a"], tree["a"])


def test_gradients_of_the_vector() -> None:
    flat, unravel = ravel_pytree((np.float32(3), np.ones(2, np.float32)))
    loss = lambda v: jnp.sum(unravel(v)[0] * unravel(v)[1])  # noqa: E731
    np.testing.assert_array_equal(fxad.jit(fxad.grad(loss))(flat), [2, 3, 3])
    grow = fxad.vmap(lambda v: ravel_pytree({"x": v, "y": 2 * v})[0])
    np.testing.assert_array_equal(grow(np.ones((2, 1), np.float32)), [[1, 2], [1, 2]])


def test_complex_and_empty_trees_and_wrong_lengths() -> None:
    flat, unravel = ravel_pytree([1.0, 2j])
    assert flat.dtype == np.complex64
    assert float(unravel(flat)[0]) == 1.0
    empty, back = ravel_pytree({})
    assert empty.shape == (0,) and back(empty) == {}
    with pytest.raises(ShapeError, match="expected a vector of 2 elements"):
        unravel(np.ones(3))
