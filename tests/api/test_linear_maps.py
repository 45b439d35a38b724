"""What vjp, linearize and linear_transpose return, and the tangents that they take and give."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import CallError, ShapeError, TangentError, TreeError, TypeMismatch

X = np.array([0.5, -1.0, 2.0], np.float32)
EMPTY = np.zeros((), fxad.float0)


def test_maps_pass_through_transformations():
    f = lambda x: jnp.sin(x) * x  # noqa: E731
    slope = np.cos(X) * X + np.sin(X)
    pull = fxad.jit(lambda x: fxad.vjp(f, x)[1])(X)
    push = fxad.jit(lambda x: fxad.linearize(f, x)[1])(X)
    back = fxad.jit(lambda x: fxad.linear_transpose(lambda y: x * y, x))(slope)
    for apply in (lambda m, v: m(v), fxad.jit(lambda m, v: m(v))):
        np.testing.assert_allclose(apply(pull, X)[0], slope * X, rtol=1e-6)
        np.testing.assert_allclose(apply(push, X), slope * X, rtol=1e-6)
        np.testing.assert_allclose(apply(back, X)[0], slope * X)
    np.testing.assert_allclose(
        fxad.vmap(pull)(np.eye(3, dtype=np.float32))[0], np.diag(slope), rtol=1e-6
    )
    doubled = fxad.tree.map(lambda residual: 2 * residual, back)
    np.testing.assert_allclose(doubled(X)[0], 2 * slope * X)
    lanes = fxad.vmap(lambda x: fxad.vjp(f, x)[1])(X)  # one map for each lane
    np.testing.assert_allclose(fxad.vmap(lambda m, v: m(v)[0])(lanes, X), slope * X, rtol=1e-6)
    assert repr(pull) == "Pullback(f)"


def test_a_map_may_be_a_residual_of_a_rule():
    f = fxad.custom_vjp(lambda x: x**3)
    f.defvjp(lambda x: fxad.vjp(lambda y: y**3, x), lambda pull, ct: pull(2 * ct))
    for g in (fxad.grad(f), fxad.jit(fxad.grad(f)), fxad.grad(fxad.jit(f))):
        assert float(g(2.0)) == 24.0


def test_integers_have_tangents_without_bytes():
    f = lambda x, i: (x[i] ** 2, i + 1)  # noqa: E731
    x, i = np.array([1.0, 3.0], np.float32), 1
    _, tangent = fxad.jvp(f, (x, i), (np.ones(2, np.float32), EMPTY))
    assert float(tangent[0]) == 6 and tangent[1].dtype == fxad.float0
    _, pull = fxad.vjp(f, x, i)
    for apply in (lambda m, v: m(v), fxad.jit(lambda m, v: m(v))):
        found, empty = apply(pull, (1.0, EMPTY))
        np.testing.assert_array_equal(found, [0, 6])
        assert empty.dtype == fxad.float0 and empty.shape == ()
    g = fxad.grad(lambda x, i: x[i], (0, 1), allow_int=True)
    for wrapped in (g, fxad.jit(g), fxad.jit(fxad.jit(g))):
        for _ in range(3):
            found, empty = wrapped(x, i)
            np.testing.assert_array_equal(found, [0, 1])
            assert empty.dtype == fxad.float0
    rows = fxad.jacrev(lambda x, i: x * i, (0, 1), allow_int=True)(x, np.arange(2))
    assert rows[1].shape == (2, 2) and rows[1].dtype == fxad.float0
    _, push = fxad.linearize(lambda n: n, np.arange(2))
    assert push(np.zeros(2, fxad.float0)).dtype == fxad.float0
    for add in (lambda: empty + jnp.zeros(()), lambda: fxad.lax.add(empty, jnp.zeros(()))):
        with pytest.raises(TypeError):
            add()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fxad.jvp(jnp.sin, (X,), (X[:2],)),
        lambda: fxad.jvp(jnp.sin, (X,), (1.0,)),
        lambda: fxad.jvp(jnp.sin, (np.float16(2),), (np.float32(2),)),
        lambda: fxad.jvp(jnp.sin, (1.0,), (1,)),
        lambda: fxad.jvp(lambda n: n, (np.arange(3),), (np.arange(3),)),
        lambda: fxad.vjp(jnp.sin, np.float32(1))[1](np.float16(1)),
        lambda: fxad.vjp(jnp.sin, X)[1](np.ones(4)),
        lambda: fxad.linearize(jnp.sin, X)[1](np.ones((3, 1))),
        lambda: fxad.linear_transpose(lambda x: x, 1.0)(1j),
        lambda: fxad.linear_transpose(lambda x: jnp.stack([x, x]), 1.0)(1.0),
    ],
)
def test_tangents_must_fit(call):
    with pytest.raises(TangentError, match="belongs to") as caught:
        call()
    assert isinstance(caught.value, ShapeError)  # which is a ValueError and a TypeError


def test_a_result_may_be_its_own_cotangent():
    (y, n), pull = fxad.vjp(lambda x: (x * x, jnp.arange(3)), X)
    np.testing.assert_allclose(pull((y, n))[0], 2 * np.asarray(X) ** 3, rtol=1e-6)
    with pytest.raises(TangentError, match="belongs to"):
        pull((y, n[:2]))


def test_structures_must_fit():
    with pytest.raises(TreeError, match="both be tuples or both lists"):
        fxad.jvp(jnp.sin, (X,), [X])
    with pytest.raises(TreeError, match="structure of the primals"):
        fxad.jvp(jnp.add, (X, X), (X,))
    with pytest.raises(TreeError, match="structure"):
        fxad.linear_transpose(lambda x: [x, x], 1.0)(1.0)
    with pytest.raises(TypeMismatch, match="all be integers, or all be floats"):
        fxad.linear_transpose(lambda x: 2.0 * x, 1)
    assert fxad.linear_transpose(lambda x: 2 * x, 1)(3)[0] == 6
    with pytest.raises(CallError, match="argnums has 0") as caught:
        fxad.grad(lambda x: x)(x=1.0)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, TypeError)


def test_gradients_of_python_numbers_are_weak():
    assert fxad.grad(lambda x: x * x)(3.0).weak_type
    assert fxad.jit(fxad.grad(lambda x: x * x))(3.0).weak_type
    assert not fxad.grad(lambda x: x * x)(np.float32(3)).weak_type


def test_grad_keeps_the_signature():
    @partial(fxad.jit, static_argnames=["double"])
    @fxad.grad
    def slope(x, double):
        return 2 * x if double else x

    assert (float(slope(1.0, True)), float(slope(1.0, False))) == (2.0, 1.0)
