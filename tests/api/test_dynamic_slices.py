"""Slices from computed starts in an index, beside NumPy's slices and JAX's `ds`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import ds
from fxad.errors import BadArgument, NumericsError, ShapeError, TracedIndexError, TypeMismatch

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)

USES: dict[str, Any] = {
    "one axis": lambda ds, jnp, x, i: x[ds(i, 2)],
    "last axis": lambda ds, jnp, x, i: x[..., ds(i, 3)],
    "two axes": lambda ds, jnp, x, i: x[ds(i, 2), :, ds(i, 1)],
    "beside an integer": lambda ds, jnp, x, i: x[1, ds(i, 2), None],
    "beside a traced integer": lambda ds, jnp, x, i: x[i, ds(i, 2)],
    "beside an array": lambda ds, jnp, x, i: x[jnp.array([[0], [2]]), ds(i, 2)],
    "between arrays": lambda ds, jnp, x, i: x[jnp.array([0, 2]), ds(i, 2), jnp.array([1, 4])],
    "stride": lambda ds, jnp, x, i: x[:, :, ds(i, 3, 2)],
    "sticks out": lambda ds, jnp, x, i: x[ds(i + 8, 2)],
    "from the end": lambda ds, jnp, x, i: x[:, ds(-i - 2, 2)],
    "set": lambda ds, jnp, x, i: x.at[:, ds(i, 2)].set(-1.0),
    "set an array": lambda ds, jnp, x, i: x.at[0, ds(i, 2)].set(jnp.arange(5.0)),
    "add": lambda ds, jnp, x, i: x.at[ds(i, 2), jnp.array([1, 1])].add(2.0),
    "multiply a stride": lambda ds, jnp, x, i: x.at[..., ds(i, 2, 2)].multiply(3.0),
    "set outside": lambda ds, jnp, x, i: x.at[ds(i + 1, 2)].set(0.0),
    "set a stride outside": lambda ds, jnp, x, i: x.at[:, :, ds(i + 2, 2, 2)].set(0.0),
    "apply": lambda ds, jnp, x, i: x.at[ds(i, 2)].apply(jnp.sin),
    "fill": lambda ds, jnp, x, i: x.at[:, :, ds(i + 3, 2)].get(mode="fill", fill_value=-1.0),
    "fill a stride": lambda ds, jnp, x, i: x.at[:, ds(i, 3, 2)].get(mode="fill", fill_value=-1.0),
    "clip": lambda ds, jnp, x, i: x.at[ds(i + 1, 2)].add(1.0, mode="clip"),
    "a stride far outside": lambda ds, jnp, x, i: x.at[:, :, ds(i - 20, 3, 2)].set(0.0),
    "beside a list of bools": lambda ds, jnp, x, i: x[np.array([True, False, True]), ds(i, 2)],
    "only a size": lambda ds, jnp, x, i: x[ds(2), ds(None)],
}


@pytest.mark.peers
@pytest.mark.parametrize("use", USES)
def test_like_jax(use: str) -> None:
    jax = pytest.importorskip("jax")
    for start in (0, 1):
        wanted = USES[use](jax.ds, jax.numpy, jax.numpy.asarray(X), start)
        ours = lambda x, i: USES[use](ds, jnp, x, i)  # noqa: E731
        for got in (ours(jnp.asarray(X), start), fxad.jit(ours)(X, start)):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        lanes = fxad.vmap(ours, in_axes=(None, 0))(jnp.asarray(X), jnp.array([start, 0]))
        np.testing.assert_allclose(lanes[0], wanted, rtol=1e-6)


def test_like_slices() -> None:
    read = fxad.jit(lambda x, i: x[1, ds(i, 2), ::2])
    write = fxad.jit(lambda x, i: x.at[:, ds(i, 2)].add(1.0))
    for i in range(3):
        np.testing.assert_array_equal(read(X, i), X[1, i : i + 2, ::2])
        wanted = X.copy()
        wanted[:, i : i + 2] += 1
        np.testing.assert_array_equal(write(X, i), wanted)


def test_places_outside_are_an_error_where_indices_are_checked() -> None:
    x = jnp.asarray(X)
    for use in (lambda i: x[ds(i, 2)], lambda i: x.at[ds(i, 2, 2)].set(0.0)):
        with fxad.debug.indices():
            use(jnp.asarray(0))
            with pytest.raises(NumericsError, match="index 2 is out of range for axis 0"):
                use(jnp.asarray(2))


def test_a_negative_start_that_does_not_wrap() -> None:
    x = jnp.arange(10.0)
    kept = x.at[ds(-2, 2)].set(0.0, wrap_negative_indices=False)
    np.testing.assert_array_equal(kept, x)
    found = x.at[ds(-2, 2)].get(wrap_negative_indices=False)
    np.testing.assert_array_equal(found, [0.0, 1.0])


def test_the_gradient_is_of_the_window() -> None:
    slope = fxad.grad(lambda x, i: jnp.sum(x[:, ds(i, 2)] ** 2))
    wanted = np.zeros_like(X)
    wanted[:, 1:3] = 2 * X[:, 1:3]
    np.testing.assert_array_equal(slope(X, 1), wanted)
    changed = fxad.grad(lambda x, i: jnp.sum(x.at[:, ds(i, 2)].set(0.0)))
    outside = np.ones_like(X)
    outside[:, 1:3] = 0
    np.testing.assert_array_equal(changed(X, 1), outside)


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda x: x[ds(0, 9)], ShapeError, "9.*axis 0 of f32.3,4,5"),
        (lambda x: x[ds(0, -1)], BadArgument, "size -1"),
        (lambda x: x[ds(0, 2, 0)], BadArgument, "stride 0"),
        (lambda x: x[ds(0.5, 2)], TypeMismatch, "integer"),
        (lambda x: fxad.lax.dynamic_slice(x, [0.5, 0, 0], [1, 1, 1]), TypeMismatch, "not 0.5"),
        (lambda x: x[ds(jnp.arange(2), 2)], TypeMismatch, "one integer"),
        (lambda x: fxad.jit(lambda n: x[ds(0, n)])(2), TracedIndexError, "only the start"),
    ],
)
def test_what_is_no_slice(use: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        use(jnp.asarray(X))
