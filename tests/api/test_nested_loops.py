"""Loops of unknown length in reverse at any nesting: against differences and unrolled loops."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax


@pytest.fixture(autouse=True)
def _wide():
    with fxad.enable_x64():
        yield


def repeat(n, f, x):
    """f applied n times, where n is known only at run time."""
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]


def while_in_while(x, n):
    def outer(y):
        return repeat(n, lambda z: jnp.sin(z) * x + 0.3 * z, y) * jnp.cos(y)

    return repeat(n, outer, x)


def while_in_scan(x, n):
    def step(c, i):
        c = repeat(i, lambda z: jnp.sin(z) * x + 0.1 * i, c)
        return c, c * c

    c, ys = lax.scan(step, x, jnp.arange(4) + n)
    return c + ys.sum()


def scan_in_while(x, n):
    def body(y):
        return lax.scan(lambda c, _: (jnp.sin(c) * x + 0.2 * c, c), y, None, length=3)[1].sum()

    return repeat(n, body, x)


def while_in_cond(x, n):
    def long(x):
        return repeat(n, lambda z: jnp.sin(z) * x + 0.5 * z, x)

    return lax.cond(n > 2, long, lambda x: x * x, x)


def while_in_cond_in_while(x, n):
    def long(y):
        return repeat(n, lambda z: jnp.sin(z) * x + 0.1 * z, y)

    return repeat(n, lambda y: lax.cond(y > 0.5, long, lambda y: jnp.exp(y) * x, y), x)


def three_deep(x, n):
    def middle(a):
        return repeat(n, lambda b: repeat(2, lambda c: jnp.sin(c * x) + 0.1 * a, b) * 0.7, a)

    return repeat(n, middle, x)


def fori_in_fori(x, n):
    def outer(i, y):
        return lax.fori_loop(i, n + 1, lambda j, z: jnp.sin(z) * x + 0.1 * j * y, y)

    return lax.fori_loop(0, n, outer, x)


LOOPS = [
    while_in_while,
    while_in_scan,
    scan_in_while,
    while_in_cond,
    while_in_cond_in_while,
    three_deep,
    fori_in_fori,
]


def close(seen, wanted, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(seen), np.asarray(wanted), rtol=rtol, atol=1e-12)


def unrolled(function, *args):
    """The result with loops run as Python loops, so that none of their rules takes part."""
    with fxad.disable_jit():
        return function(*args)


@pytest.mark.parametrize("f", LOOPS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_gradient(f, n: int) -> None:
    g = fxad.grad(f)
    x, n, step = jnp.asarray(0.7), jnp.asarray(n), 1e-6
    wanted = unrolled(g, x, n)
    close(wanted, (f(x + step, n) - f(x - step, n)) / (2 * step), rtol=1e-6)
    close(g(x, n), wanted)
    close(fxad.jit(g)(x, n), wanted)


@pytest.mark.parametrize("f", LOOPS)
def test_second_order(f) -> None:
    x, n, step = jnp.asarray(0.7), jnp.asarray(3), 1e-6
    g = fxad.grad(f)
    wanted = unrolled(fxad.grad(g), x, n)
    close(wanted, (g(x + step, n) - g(x - step, n)) / (2 * step), rtol=1e-6)
    ways = [  # the last one outside of jit
        fxad.jit(fxad.grad(g)),
        fxad.jit(lambda x, n: fxad.jvp(lambda x: g(x, n), (x,), (jnp.ones_like(x),))[1]),
        fxad.grad(lambda x, n: fxad.jvp(lambda x: f(x, n), (x,), (jnp.ones_like(x),))[1]),
    ]
    for way in ways:
        close(way(x, n), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("f", LOOPS)
def test_lanes_that_stop_at_different_trips(f) -> None:
    g, xs, ns = fxad.grad(f), jnp.asarray([0.7, 0.2, -0.4]), jnp.asarray([3, 0, 4])
    wanted = [unrolled(g, x, n) for x, n in zip(xs, ns, strict=True)]
    close(fxad.jit(fxad.vmap(g))(xs, ns), wanted)
    # and outside of jit
    close(fxad.grad(lambda xs: fxad.vmap(f)(xs, ns).sum())(xs), wanted)
    close(fxad.vmap(g, (0, None))(xs, ns[0]), [unrolled(g, x, ns[0]) for x in xs])
    twice = [unrolled(fxad.grad(g), x, n) for x, n in zip(xs, ns, strict=True)]
    close(fxad.jit(fxad.vmap(fxad.grad(g)))(xs, ns), twice)


def test_lanes_of_lanes() -> None:
    xs, ns = jnp.asarray([[0.7, 0.2], [-0.4, 0.9]]), jnp.asarray([[3, 0], [4, 1]])
    g = fxad.grad(while_in_while)
    wanted = [
        [unrolled(g, x, n) for x, n in zip(*r, strict=True)] for r in zip(xs, ns, strict=True)
    ]
    close(fxad.jit(fxad.vmap(fxad.vmap(g)))(xs, ns), wanted)


def test_arrays_and_captured_weights() -> None:
    """Residuals of several shapes and dtypes, weights captured by both bodies."""
    r = np.random.default_rng(0)
    w, x = jnp.asarray(r.normal(size=(3, 3))), jnp.asarray(r.normal(size=3))

    def f(w, x, n):
        def inner(y):
            return jnp.tanh(w @ y) + jnp.where(y > 0, y, 0.1 * y)

        return repeat(n, lambda y: repeat(n, inner, y) @ w, x).sum()

    g = fxad.grad(f, (0, 1))
    for n in (0, 1, 3):
        for seen, wanted in zip(fxad.jit(g)(w, x, n), unrolled(g, w, x, n), strict=True):
            close(seen, wanted)


@pytest.mark.parametrize("loop", ["scan", "while"])
def test_an_op_of_several_results_leaves_a_loop_whole(loop):
    """Of `top_k` of a constant the rest needs the values, the loop itself the places."""
    weights = jnp.array([3.0, 1.0, 2.0])

    def step(c):
        top, at = lax.top_k(jnp.sin(weights), 2)
        return jnp.tanh(c * top) + 0.1 * at

    def loss(c):
        if loop == "scan":
            return lax.scan(lambda c, _: (step(c), None), c, None, length=3)[0].sum()
        return lax.while_loop(lambda t: t[1] < 3, lambda t: (step(t[0]), t[1] + 1), (c, 0))[0].sum()

    fxad.check_grads(loss, (np.array([0.5, -0.3]),), order=1)
    fxad.check_grads(fxad.jit(loss), (np.array([0.5, -0.3]),), order=1)
