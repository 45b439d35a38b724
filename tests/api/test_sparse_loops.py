"""Sparse Jacobians and Hessians through loops, branches and jitted calls, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax

X = np.random.default_rng(2).uniform(0.5, 2.0, 12)
N = np.int32(3)


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def heat(u):
    padded = jnp.pad(u, 1)
    return u + 0.1 * (padded[2:] - 2 * u**2 + padded[:-2])


def until(limit, body, x):
    """Trips that depend on the argument."""
    return lax.while_loop(lambda s: s[0] < limit, lambda s: (s[0] + 1, body(s[1])), (0.0, x))[1]


def looped(x, n, body):
    return lax.fori_loop(0, jnp.asarray(n), body, x)


DIAGONAL, BAND, LOWER = 12, 12 + 11, 12 * 13 // 2

JACOBIANS = {
    # name: (function, entries)
    "while, elementwise": (lambda x: until(3 * x[0], lambda v: v * 1.5 + jnp.sin(v), x), 12),
    "while, of two": (lambda x: until(2 * jnp.sum(x), lambda v: v * x + jnp.roll(x, 1), x), 24),
    "while, one way": (lambda x: until(x[0], lambda v: v + jnp.cumsum(v), x), LOWER),
    "while, a shift": (lambda x: until(9.5 * x[0], lambda v: v + jnp.pad(v, 1)[:-2], x), LOWER),
    "while, spreading": (lambda x: until(3 * x[0], heat, x), 144),
    "known trips": (lambda x: looped(x, N, lambda i, v: heat(v)), 72),
    "known places": (lambda x: looped(x, 12, lambda i, v: v.at[i].multiply(x[i])), DIAGONAL),
    "while in scan": (
        lambda x: lax.scan(lambda c, v: (c, until(3 * v, lambda s: s * v, v)), 0.0, x)[1],
        DIAGONAL,
    ),
    "while in while": (
        lambda x: until(2 * x[0], lambda v: until(v[1], lambda w: w * v, v), x),
        DIAGONAL,
    ),
    "scan, carried once": (lambda x: lax.scan(lambda c, v: (v, c * v), 1.0, x)[1], BAND),
    "scan, summed": (lambda x: lax.scan(lambda c, v: (c + v * v,) * 2, 0.0, x)[1], LOWER),
    "scan backwards": (
        lambda x: lax.scan(lambda c, v: (v, c * v), 1.0, x, reverse=True)[1],
        BAND,
    ),
    "branches": (
        lambda x: lax.cond(x[0] > 1, lambda x: x**2, lambda x: x * jnp.roll(x, 1), x),
        24,
    ),
    "branches in a while": (
        lambda x: until(3 * x[0], lambda v: lax.cond(v[1] > 1, jnp.sin, lambda v: v * x, v), x),
        DIAGONAL,
    ),
    "a jitted call": (
        fxad.jit(lambda x: until(3 * x[0], fxad.jit(lambda v: v * 1.5), x)),
        DIAGONAL,
    ),
    "lanes": (fxad.vmap(lambda v: until(3 * v, lambda s: s * 1.5 + v, v)), DIAGONAL),
}

HESSIANS = {
    "while": (lambda x: jnp.sum(until(3 * x[0], lambda v: v * v * 0.5 + 1, x)), DIAGONAL),
    "known trips": (lambda x: jnp.sum(looped(x, N, lambda i, v: jnp.sin(v) * x)), DIAGONAL),
    "known trips, a stencil": (lambda x: jnp.sum(looped(x, N, lambda i, v: heat(v)) ** 2), 114),
    "kept states": (
        lambda x: jnp.sum(lax.fori_loop(0, 6, lambda i, v: jnp.sin(v), x, checkpoints=2)),
        DIAGONAL,
    ),
    "scan": (lambda x: jnp.sum(lax.scan(lambda c, v: (v, c * v * v), 1.0, x)[1]), 34),
    "recomputed scan": (
        lambda x: jnp.sum(lax.scan(fxad.checkpoint(lambda c, v: (v, c * v * v)), 1.0, x)[1]),
        34,
    ),
    "while in scan": (
        lambda x: lax.scan(lambda c, v: (c + until(2 * v, jnp.sin, v), None), 0.0, x)[0],
        DIAGONAL,
    ),
    "lanes": (
        lambda x: jnp.sum(fxad.vmap(lambda v: until(3 * v, lambda s: s * s + 0.5, v))(x)),
        DIAGONAL,
    ),
    "branches": (
        lambda x: lax.cond(x[0] > 1, lambda x: jnp.sum(x**3), lambda x: jnp.sum(jnp.sin(x)), x),
        DIAGONAL,
    ),
}


def check(found, dense, entries):
    dense = np.asarray(dense).reshape(found.shape)
    np.testing.assert_allclose(found.todense(), dense, rtol=1e-10, atol=1e-12)
    assert len(found.rows) == entries, found


@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians(name):
    f, entries = JACOBIANS[name]
    check(fxad.sparse_jacobian(f)(X), fxad.jacfwd(f)(X), entries)


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name):
    f, entries = HESSIANS[name]
    check(fxad.sparse_hessian(f)(X), fxad.hessian(f)(X), entries)


def test_patterns_of_whiles_hold_for_other_numbers_of_trips():
    def f(x):
        return until(jnp.abs(x[0]) * 3, lambda v: v + jnp.pad(jnp.tanh(v), 1)[:-2], x)

    pattern = fxad.sparse_jacobian(f).pattern(X)
    for seed in range(5):
        x = np.random.default_rng(seed).uniform(-3, 3, 12)
        found = fxad.sparse_jacobian(f, sparsity=pattern)(x)
        np.testing.assert_allclose(found.todense(), fxad.jacfwd(f)(x), rtol=1e-10, atol=1e-12)


def test_large_loops_take_few_passes():
    x = np.linspace(0.5, 2, 20_000)
    found = fxad.sparse_jacobian(lambda x: until(3 * x[0], lambda v: v * 1.5 + jnp.sin(v), x))(x)
    assert found.pattern.passes == 1


def test_chains_longer_than_what_is_followed_count_as_dense():
    found = fxad.sparse_jacobian(
        lambda x: until(x[0], lambda v: v + jnp.pad(v, 1)[:-2], x)
    ).pattern(np.linspace(1, 2, 200))
    assert len(found.rows) == 200 * 200
