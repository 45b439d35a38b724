"""Sums and exchanges between lanes of a vmap with a name, against NumPy on the whole array."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch, UnboundAxisError

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)


def lanes(f, *args, **options):
    return fxad.vmap(f, axis_name="i", **options)(*args)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_against_the_whole_array(wrap):
    def check(f, expected):
        got = wrap(fxad.vmap(f, axis_name="i"))(X)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

    everywhere = np.ones((4, 1))
    check(lambda x: lax.psum(x, "i"), everywhere * X.sum(0))
    check(lambda x: x - lax.pmean(x, "i"), X - X.mean(0))
    check(lambda x: lax.pmax(x, "i"), everywhere * X.max(0))
    check(lambda x: lax.pmin(x, "i"), everywhere * X.min(0))
    check(lambda x: lax.all_gather(x, "i"), np.stack([X] * 4))
    check(lambda x: lax.all_gather(x, "i", axis=1), np.stack([X.T] * 4))
    check(lambda x: lax.all_gather(x, "i", tiled=True), np.stack([X.reshape(-1)] * 4))
    check(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]), [X[2], X[0], X[1], 0 * X[3]])
    check(lambda x: lax.pshuffle(x, "i", [3, 2, 1, 0]), X[::-1])
    check(lambda x: x * lax.axis_index("i"), X * np.arange(4)[:, None])
    check(
        lambda x: lax.psum(x[None] * jnp.arange(4)[:, None], "i").sum(0), everywhere * 6 * X.sum(0)
    )
    check(
        lambda x: lax.psum_scatter(x[:, None] * jnp.ones(4), "i", scatter_dimension=1),
        everywhere * X.sum(0),
    )
    check(lambda x: x / lax.psum(1, "i") / lax.axis_size("i"), X / 16)


def test_trees_booleans_and_shared_values():
    out = lanes(lambda x: lax.psum({"a": x, "b": (x > 0, 2)}, "i"), X)
    np.testing.assert_allclose(out["a"][2], X.sum(0), rtol=1e-5)
    np.testing.assert_array_equal(out["b"][0][1], (X > 0).sum(0))
    assert out["b"][1].tolist() == [8] * 4
    shared = fxad.vmap(lambda x, y: lax.psum(y, "i"), (0, None), axis_name="i")(X, jnp.ones(2))
    assert shared.tolist() == [[4.0, 4.0]] * 4
    assert fxad.vmap(lambda x: lax.psum(x, "i"), axis_name="i", out_axes=None)(X).shape == (3,)


def test_two_names():
    y = np.arange(12.0, dtype=np.float32).reshape(3, 4)

    def both(f):
        return fxad.vmap(fxad.vmap(f, axis_name="j"), axis_name="i")(y)

    np.testing.assert_allclose(both(lambda v: lax.psum(v, ("i", "j"))), np.full((3, 4), y.sum()))
    np.testing.assert_allclose(both(lambda v: lax.psum(v, "i")), np.tile(y.sum(0), (3, 1)))
    np.testing.assert_allclose(both(lambda v: lax.pmax(v, "j")), np.tile(y.max(1), (4, 1)).T)
    assert (
        both(lambda v: lax.axis_index(("i", "j"))).tolist() == np.arange(12).reshape(3, 4).tolist()
    )
    gathered = both(lambda v: lax.all_gather(v, "i"))
    np.testing.assert_array_equal(gathered, np.broadcast_to(y.T, (3, 4, 3)))
    again = fxad.vmap(lambda v: lanes(lambda u: lax.psum(u, "i"), v))(y)
    np.testing.assert_allclose(again, np.tile(y.sum(1)[:, None], (1, 4)))


def normalise(x):
    centred = x - lax.pmean(x, "i")
    return centred / jnp.sqrt(lax.pmean(centred**2, "i") + 1e-2)


@pytest.mark.parametrize(
    "f",
    [
        normalise,
        lambda x: lax.psum(jnp.sin(x), "i") * x,
        lambda x: lax.all_gather(x, "i")[1:3] * x,
        lambda x: lax.pmax(x, "i") * x,
        lambda x: lax.ppermute(x, "i", [(0, 3), (3, 1)]) * x,
        lambda x: lax.psum_scatter(x * jnp.arange(4.0)[:, None], "i") * x,
    ],
)
def test_derivatives(f):
    with fxad.enable_x64():
        x = X.astype(np.float64)
        fxad.check_grads(lambda x: lanes(f, x), (x,), order=2)
        fxad.check_grads(fxad.jit(lambda x: lanes(f, x)), (x,), order=1)


def test_inside_loops_branches_and_inner_jit():
    inner = fxad.jit(lambda x: x - lax.pmean(x, "i"))
    np.testing.assert_allclose(lanes(inner, X), X - X.mean(0), atol=1e-6)
    np.testing.assert_allclose(lanes(inner, X[:2]), X[:2] - X[:2].mean(0), atol=1e-6)

    def looped(x):
        return lax.fori_loop(0, 3, lambda _, v: v + lax.pmean(v, "i"), x)

    np.testing.assert_allclose(lanes(looped, X), X + 7 * X.mean(0), rtol=1e-4, atol=1e-5)
    grads = fxad.jit(fxad.grad(lambda x: (lanes(looped, x) ** 2).sum()))(X)
    step = np.eye(4) + 7 / 4 * np.ones((4, 4))
    np.testing.assert_allclose(grads, 2 * step.T @ (step @ X), rtol=1e-4)

    def chosen(x, flag):
        return lax.cond(flag, lambda x: lax.psum(x, "i"), lambda x: x, x)

    for flag in (True, False):
        out = fxad.vmap(chosen, (0, None), axis_name="i")(X, flag)
        np.testing.assert_allclose(out, np.ones((4, 1)) * X.sum(0) if flag else X, rtol=1e-5)
    spread = fxad.vmap(chosen, axis_name="i")(X, np.array([True, False, True, False]))
    np.testing.assert_allclose(spread[:2], [X.sum(0), X[1]], rtol=1e-5)


def test_errors():
    with pytest.raises(UnboundAxisError, match=r"axis_name='i' \(known: none\)"):
        lax.psum(X, "i")
    with pytest.raises(BadArgument, match="known: 'i'"):
        lanes(lambda x: lax.axis_index("k"), X)
    with pytest.raises(BadArgument, match="pairs of different lanes"):
        lanes(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]), X)
    with pytest.raises(ShapeError, match="for 4 lanes"):
        lanes(lambda x: lax.psum_scatter(x, "i"), X)

    def alone(x, n):
        return lax.switch(
            n, [lambda x: lax.fori_loop(0, 2, lambda _, v: lax.psum(v, "i"), x), jnp.sin], x
        )

    with pytest.raises(TypeMismatch, match="run one after another"):
        fxad.vmap(alone, axis_name="i")(X, np.array([0, 1, 0, 1]))


def exchanged(x, split, join, tiled):
    """all_to_all of lanes x[0], x[1]...: what lane i gets, by NumPy."""
    count = len(x)
    parts = [np.split(lane, count, axis=split) for lane in x]
    if tiled:
        rows = [
            np.concatenate([parts[j][i] for j in range(count)], axis=join) for i in range(count)
        ]
    else:
        rows = [
            np.stack([parts[j][i].squeeze(split) for j in range(count)], axis=join)
            for i in range(count)
        ]
    return np.stack(rows)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize("join", [0, 1])
def test_all_to_all(split, join, tiled):
    x = np.arange(3 * 6 * 6.0).reshape(3, 6, 6)[:, : 6 if tiled else 3, : 6 if tiled else 3]
    send = lambda v: lax.all_to_all(v, "i", split, join, tiled=tiled)  # noqa: E731
    run = fxad.vmap(send, axis_name="i")
    np.testing.assert_array_equal(run(x), exchanged(x, split, join, tiled))
    np.testing.assert_array_equal(fxad.jit(run)(x), exchanged(x, split, join, tiled))
    fxad.check_grads(run, (x,), order=1)


def test_exchanges_over_two_names():
    x = np.arange(2 * 3 * 6.0).reshape(2, 3, 6)

    def over(f):
        return fxad.vmap(fxad.vmap(f, axis_name="j"), axis_name="i")

    names = ("i", "j")
    gathered = over(lambda v: lax.all_gather(v, names))(x)
    np.testing.assert_array_equal(gathered[1, 2], x.reshape(6, 6))
    swapped = over(lambda v: lax.pswapaxes(v, names, 0))(x)
    np.testing.assert_array_equal(swapped.reshape(6, 6), x.reshape(6, 6).T)
    summed = over(lambda v: lax.psum_scatter(v, names))(x)
    np.testing.assert_array_equal(summed.reshape(6), x.sum((0, 1)))


def test_psum_scatter_in_parts():
    x = np.arange(2 * 4 * 3.0).reshape(2, 4, 3)
    run = fxad.vmap(lambda v: lax.psum_scatter(v, "i", tiled=True), axis_name="i")
    np.testing.assert_array_equal(run(x), x.sum(0).reshape(2, 2, 3))


def test_axes_that_do_not_go_round():
    x = np.ones((2, 3))
    for send in (
        lambda v: lax.all_to_all(v, "i", 0, 0),
        lambda v: lax.all_to_all(v, "i", 0, 0, tiled=True),
        lambda v: lax.psum_scatter(v, "i", tiled=True),
    ):
        with pytest.raises(ShapeError, match=r"axis 0 of f32\[3\].* for 2 lanes|cannot be cut"):
            fxad.vmap(send, axis_name="i")(x)
