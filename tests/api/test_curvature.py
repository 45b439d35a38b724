"""Products with second-order matrices and their diagonals, against the dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import BadArgument, ShapeError, TreeError

R = np.random.default_rng(4)
X, V = R.normal(size=7), R.normal(size=7)


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def coupled(x):
    return jnp.sum(jnp.sin(x)) ** 2 + jnp.prod(x)


def chain(x):
    return jnp.sum((x[1:] - x[:-1] ** 2) ** 2)


def apart(x):
    return jnp.sum(jnp.exp(x) * x)


@pytest.mark.parametrize("f", [coupled, chain, apart])
@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_products_and_diagonals_are_those_of_the_hessian(f, wrap) -> None:
    h = np.asarray(fxad.hessian(f)(X))
    np.testing.assert_allclose(wrap(lambda x: fxad.hvp(f, (x,), (V,)))(X), h @ V, rtol=1e-10)
    np.testing.assert_allclose(wrap(fxad.hessian_diag(f))(X), np.diag(h), rtol=1e-10)
    h_of_jit = fxad.hessian_diag(fxad.jit(f))(X)
    np.testing.assert_allclose(h_of_jit, np.diag(h), rtol=1e-10)


def test_diagonals_of_trees_and_of_more_elements_than_fit_a_pass() -> None:
    p = {"a": R.normal(size=(10, 9)), "b": R.normal()}

    def f(scale, p):
        return jnp.sum(jnp.sin(p["a"])) ** 2 * scale + p["b"] ** 3

    found = fxad.hessian_diag(f, argnums=1)(2.0, p)
    a = p["a"]
    wanted = 4 * np.cos(a) ** 2 - 4 * np.sin(a).sum() * np.sin(a)
    np.testing.assert_allclose(found["a"], wanted, rtol=1e-10)
    np.testing.assert_allclose(found["b"], 6 * p["b"], rtol=1e-12)
    with pytest.raises(BadArgument, match="argnums"):
        fxad.hessian_diag(f, argnums=2)(2.0, p)


def test_one_product_suffices_where_nothing_is_coupled() -> None:
    calls = []

    @fxad.custom_jvp
    def counted(x):
        return jnp.exp(x)

    @counted.defjvp
    def rule(primals, tangents):
        calls.append(primals[0].shape)
        return counted(primals[0]), jnp.exp(primals[0]) * tangents[0]

    big = np.linspace(0, 1, 500)
    found = fxad.hessian_diag(lambda x: jnp.sum(counted(x)))(big)
    np.testing.assert_allclose(found, np.exp(big), rtol=1e-10)
    assert len(calls) < 20


def model(p, x):
    return jnp.tanh(x @ p["w"]) * p["s"]


def loss(z):
    return jnp.sum(jnp.logaddexp(z, 0.0)) + jnp.sum(z**4)


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_gauss_newton_products(wrap) -> None:
    p = {"w": R.normal(size=(3, 2)), "s": R.normal(size=2)}
    v = {"w": R.normal(size=(3, 2)), "s": R.normal(size=2)}
    x = R.normal(size=(4, 3))
    found = wrap(lambda p, v: fxad.gnvp(lambda p: model(p, x), loss, (p,), (v,)))(p, v)
    jac = fxad.jacrev(lambda p: model(p, x).ravel())(p)
    j = np.concatenate([np.asarray(jac["s"]), np.asarray(jac["w"]).reshape(8, 6)], axis=1)
    h = np.asarray(fxad.hessian(lambda z: loss(z.reshape(4, 2)))(np.asarray(model(p, x)).ravel()))
    wanted = j.T @ h @ j @ np.concatenate([v["s"], v["w"].ravel()])
    got = np.concatenate([np.asarray(found["s"]), np.asarray(found["w"]).ravel()])
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_gauss_newton_of_two_arguments_and_wrong_tangents() -> None:
    def f(a, b):
        return a * b

    a, b = X, V
    found = fxad.gnvp(f, lambda z: jnp.sum(z**2) / 2, (a, b), (b, a))
    moved = b * b + a * a
    np.testing.assert_allclose(found[0], b * moved, rtol=1e-12)
    np.testing.assert_allclose(found[1], a * moved, rtol=1e-12)
    with pytest.raises(TreeError, match="structure"):
        fxad.gnvp(f, jnp.sum, (a, b), (a,))
    with pytest.raises(ShapeError, match="tangent"):
        fxad.gnvp(f, jnp.sum, (a, b), (a, b[:2]))


def test_per_example_gradients() -> None:
    x, y = R.normal(size=(5, 7)), R.normal(size=5)

    def squared(w, x, y):
        return (x @ w - y) ** 2

    rows = fxad.vmap(fxad.grad(squared), in_axes=(None, 0, 0))(V, x, y)
    np.testing.assert_allclose(rows, 2 * (x @ V - y)[:, None] * x, rtol=1e-12)
