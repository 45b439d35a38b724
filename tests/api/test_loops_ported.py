"""Loops and branches in ported code: values handed on, float bounds, linearize, errors."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, ConcretizationError, ShapeError

W = jnp.arange(4.0).reshape(2, 2)
XS = jnp.arange(6.0).reshape(3, 2)


def squares(x):
    return lax.while_loop(lambda x: x[0] < 100.0, lambda x: x * x, x)


@pytest.mark.parametrize("compiled", [False, True])
def test_linearize_through_a_while_loop(compiled):
    x, v = np.array([1.5, 1.1, 0.5]), np.array([1.0, 2.0, -3.0])
    with fxad.enable_x64():
        loop = fxad.jit(squares) if compiled else squares
        y, push = fxad.linearize(loop, x)
        np.testing.assert_allclose(y, x**16, rtol=1e-14)
        np.testing.assert_allclose(push(v), 16 * x**15 * v, rtol=1e-14)
        np.testing.assert_allclose(fxad.jit(push)(v), 16 * x**15 * v, rtol=1e-14)
        pulled = fxad.linear_transpose(push, x)(v)[0]
        np.testing.assert_allclose(pulled, 16 * x**15 * v, rtol=1e-14)


def test_linearize_lanes_of_different_lengths():
    rows = jnp.array([[1.5, 2.0], [3.0, 0.5], [200.0, 7.0]])
    trips = np.array([16.0, 8.0, 1.0])[:, None]
    _, push = fxad.linearize(fxad.vmap(squares), rows)
    expected = trips * np.asarray(rows) ** (trips - 1)
    np.testing.assert_allclose(push(jnp.ones((3, 2))), expected, rtol=1e-5)


def test_parts_of_a_carry_that_are_handed_on_stay_unbatched():
    def by_while(w, x, limit):
        state = (0, x, w)
        test = lambda s: s[0] < limit  # noqa: E731
        return lax.while_loop(test, lambda s: (s[0] + 1, s[1] @ s[2], s[2]), state)[1:]

    out, w = fxad.vmap(by_while, in_axes=(None, 0, 0), out_axes=(0, None))(W, XS, jnp.arange(3))
    assert w is W
    for row, x, trips in zip(out, XS, range(3), strict=True):
        expected = np.asarray(x) @ np.linalg.matrix_power(np.asarray(W), trips)
        np.testing.assert_allclose(row, expected)

    def by_scan(w, x):
        return lax.scan(lambda c, _: ((c[0], c[1] @ c[0]), None), (w, x), length=2)[0]

    assert fxad.vmap(by_scan, in_axes=(None, 0), out_axes=(None, 0))(W, XS)[0] is W

    def by_cond(x, w):
        return lax.cond(x[0] < 2, lambda x, w: (2 * x, w), lambda x, w: (3 * x, w), x, w)

    out, w = fxad.vmap(by_cond, in_axes=(0, None), out_axes=(0, None))(XS, W)
    assert w is W
    np.testing.assert_allclose(out, np.asarray(XS) * np.array([[2.0], [3.0], [3.0]]))


def test_derivatives_of_values_handed_on():
    def loss(w, x):
        (w2, y), _ = lax.scan(lambda c, _: ((c[0], jnp.sin(c[1] @ c[0])), None), (w, x), length=3)
        w3, z = lax.cond(y[0] > 0, lambda w, y: (w, y), lambda w, y: (w, -y), w2, y)
        _, w4 = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1]), (0, w3))
        return jnp.sum(w4**2 * z)

    with fxad.enable_x64():
        w, x = np.array([[0.3, 0.1], [0.2, 0.5]]), np.array([0.5, 0.7])
        fxad.check_grads(loss, (w, x), order=2)
        fxad.check_grads(fxad.jit(loss), (w, x), order=1)


def test_branches_that_only_hand_on_keep_their_effects():
    seen = []

    def noting(x):
        fxad.debug.callback(lambda v: seen.append(float(v)), x)
        return x

    run = fxad.jit(lambda p, x: lax.cond(p, noting, lambda x: x, x))
    assert float(run(True, 2.0)) == 2.0
    assert float(run(False, 3.0)) == 3.0
    assert seen == [2.0]


def test_a_weak_operand_stays_weak():
    out = lax.cond(True, lambda x: x, lambda x: x, 1.0)
    assert (out + jnp.ones(2, jnp.float16)).dtype == jnp.float16


def test_float_bounds():
    body = lambda i, total: total + i  # noqa: E731
    assert float(lax.fori_loop(0.5, 3.0, body, 0.0)) == 0.5 + 1.5 + 2.5
    assert float(fxad.grad(lambda x: lax.fori_loop(x, x + 2.0, body, x))(1.0)) == 3.0
    with pytest.raises(TypeError, match="one integer or float"):
        lax.fori_loop(False, True, body, 0.0)


def test_platform_dependent():
    x = np.arange(3.0, dtype=np.float32)
    run = lambda **named: lax.platform_dependent(x, **named)  # noqa: E731
    np.testing.assert_allclose(run(cpu=jnp.sin, default=jnp.cos), np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(run(cuda=jnp.sin, default=jnp.cos), np.cos(x), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="not found for platform cpu"):
        run(tpu=jnp.sin)


def test_disable_jit_takes_a_flag():
    kinds = []
    body = lambda x: kinds.append(type(x).__name__) or x + 1  # noqa: E731
    for flag in (False, True):
        with fxad.disable_jit(flag):
            assert int(lax.while_loop(lambda x: x < 2, body, 1)) == 2
    assert kinds[0] == "CarryTracer"
    assert kinds[-1] == "Array"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: lax.fori_loop(0, 1, 42, 0), "lax.fori_loop: body_fun.*callable, got 42"),
        (lambda: lax.while_loop(42, 42, 0), "lax.while_loop: cond_fun.*callable"),
        (lambda: lax.switch(0, [42]), "lax.switch: branch 0.*callable"),
        (lambda: lax.cond(0, 42, 42), "lax.cond: true_fun.*callable"),
        (lambda: lax.scan(42, 0, 1), "lax.scan: f.*callable"),
        (lambda: lax.associative_scan(42, 0), "lax.associative_scan: fn.*callable"),
        (lambda: lax.cond(None, abs, abs, 1), "cond predicate is None"),
    ],
)
def test_errors_name_the_argument(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_lengths_and_unroll():
    step = lambda c, x: (c, x)  # noqa: E731
    with pytest.raises(ShapeError, match=r"`length` argument of 5 which disagrees .* \[10\]"):
        lax.scan(step, 0, jnp.arange(10), length=5)
    with pytest.raises(BadArgument, match="`unroll` must be"):
        lax.scan(step, 0, jnp.arange(5), unroll=-1)
    with pytest.raises(ConcretizationError, match="`length` argument to `scan` expects a concrete"):
        fxad.jit(lambda n: lax.scan(step, 0.0, (), n))(3)
    with pytest.raises(ConcretizationError, match="`unroll` argument to `scan` expects a concrete"):
        fxad.jit(lambda n: lax.scan(step, 0.0, (), 3, unroll=n))(3)
    with pytest.raises(BadArgument, match="Can only use `unroll`"):
        fxad.jit(lambda n: lax.fori_loop(0, n, lambda i, c: c, 0, unroll=2))(3)
    assert float(lax.fori_loop(0, 4, lambda i, c: c + i, 0, unroll=2)) == 6


HANDED_ON = {
    "scan": lambda x: lax.scan(lambda c, _: (c, None), x, None, length=2)[0],
    "while": lambda x: lax.while_loop(lambda c: c[1] < 2, lambda c: (c[0], c[1] + 1), (x, 0))[0],
    "cond": lambda x: lax.cond(True, lambda x: x, lambda x: x, x),
    "vmap": lambda x: fxad.vmap(lambda x: x)(x),
    "vjp": lambda x: fxad.vjp(lambda x: x, x)[0],
    "pullback": lambda x: fxad.vjp(lambda x: x, np.zeros(3, np.float32))[1](x)[0],
    "jvp": lambda x: fxad.jvp(lambda x: x, (np.zeros(3, np.float32),), (x,))[1],
    "pushforward": lambda x: fxad.linearize(lambda x: x, np.zeros(3, np.float32))[1](x),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_results_do_not_change_with_numpys_memory(name):
    x = np.ones(3, np.float32)
    out = HANDED_ON[name](x)
    x[:] = 5.0
    assert out.tolist() == [1.0, 1.0, 1.0]
