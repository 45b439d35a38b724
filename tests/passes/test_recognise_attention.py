"""Attention by plain ops becomes `flash_attention`, with the same results; near misses do not."""

from __future__ import annotations

import numpy as np
import pytest
from attention_forms import FOUND, B, N, R, S, T, bqhd, draw

import fxad
import fxad.numpy as jnp
from fxad import lax, nn
from fxad.ir.program import subprograms


def ops(program):
    """All equations of a program and the programs in it."""
    for eqn in program.eqns:
        yield eqn
        for _, inner in subprograms(eqn):
            yield from ops(inner)


def attends(function, *args):
    program = fxad.jit(function).lower(*args).program
    return [e for e in ops(program) if e.op.name == "flash_attention"]


def floats(args):
    return [i for i, a in enumerate(args) if np.asarray(a).dtype.kind == "f"]


@pytest.mark.parametrize("name", sorted(FOUND))
def test_attention_in_many_forms_is_found_and_is_what_numpy_computes(name):
    function, args, wanted = FOUND[name]
    with fxad.enable_x64():
        (eqn,) = attends(lambda *a: function(jnp, *a), *args)
        assert wanted.items() <= dict(eqn.params).items() or "scale" in wanted
        assert abs(eqn.params["scale"] - wanted.get("scale", eqn.params["scale"])) < 1e-12
        out = fxad.jit(lambda *a: function(jnp, *a))(*args)
        np.testing.assert_allclose(out, function(np, *args), rtol=1e-12, atol=1e-12)


def deep(x, w):
    """Many equations with products that no attention is made of."""
    for _ in range(30):
        x = jnp.tanh(jnp.sin(x @ w) * 2.0 + jnp.sqrt(x * x + 1.0)) - 0.5
    return x


@pytest.mark.parametrize("name", sorted(FOUND))
def test_attention_is_found_in_a_large_program(name):
    function, args, _ = FOUND[name]
    w = draw(5, 5)

    def large(w, *values):
        before = deep(w, w)[0, 0]
        values = [v + before if i in floats(args) else v for i, v in enumerate(values)]
        return deep(w * jnp.sum(function(jnp, *values)), w)

    with fxad.enable_x64():
        assert len(attends(large, w, *args)) == 1


@pytest.mark.parametrize("name", sorted(FOUND))
def test_gradients_of_what_was_found_are_finite_differences(name):
    function, args, _ = FOUND[name]
    chosen = floats(args)
    with fxad.enable_x64():

        def loss(np, *values):
            return (np.sin(function(np, *values))).sum()

        program = fxad.jit(fxad.grad(lambda *a: loss(jnp, *a), argnums=chosen))
        names = [e.op.name for e in ops(program.lower(*args).program)]
        assert "flash_attention_grad" in names or name == "slopes"
        ways = [R.standard_normal(np.shape(args[i])) for i in chosen]
        slope = sum(np.sum(np.asarray(g) * w) for g, w in zip(program(*args), ways, strict=True))

        def moved(step):
            values = list(args)
            for i, way in zip(chosen, ways, strict=True):
                values[i] = args[i] + step * way
            return loss(np, *values)

        h = 1e-3  # fourth order: an error of about h^4
        fine = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        assert abs(slope - fine) < 1e-6 * (1 + abs(fine))


# ---------------------------------------------------------------- what is left alone

Q, K, V = bqhd()


def weights(x):
    return nn.softmax(x, axis=-1)


def product(q, k):
    return jnp.einsum("bqhd,bkhd->bhqk", q, k)


def mixed(p, v):
    return jnp.einsum("bhqk,bkhd->bqhd", p, v)


CAUSAL = np.tril(np.ones((T, S), bool))
KEY = fxad.random.key(0)

NEAR = {
    "weights returned": lambda q, k, v: (p := weights(product(q, k)), mixed(p, v)),
    "scores returned": lambda q, k, v: (x := product(q, k), mixed(weights(x), v)),
    "weights used twice": lambda q, k, v: mixed(p := weights(product(q, k)), v) + mixed(p, k),
    "row sums returned": lambda q, k, v: (
        e := jnp.exp(product(q, k)),
        t := e.sum(-1, keepdims=True),
        mixed(e / t, v),
    )[1:],
    "dropout": lambda q, k, v: mixed(
        jnp.where(fxad.random.bernoulli(KEY, 0.5, (B, N, T, S)), weights(product(q, k)), 0) * 2, v
    ),
    "dropout of scores": lambda q, k, v: mixed(
        weights(jnp.where(fxad.random.bernoulli(KEY, 0.5, (B, N, T, S)), product(q, k), 0.0)), v
    ),
    "softmax over queries": lambda q, k, v: mixed(nn.softmax(product(q, k), axis=-2), v),
    "softmax over heads": lambda q, k, v: mixed(nn.softmax(product(q, k), axis=1), v),
    "softmax over all": lambda q, k, v: mixed(nn.softmax(product(q, k), axis=(-2, -1)), v),
    "small negative": lambda q, k, v: mixed(weights(jnp.where(CAUSAL, product(q, k), -10.0)), v),
    "positive fill": lambda q, k, v: mixed(weights(jnp.where(CAUSAL, product(q, k), 1e9)), v),
    "soft cap": lambda q, k, v: mixed(weights(jnp.tanh(product(q, k) / 30) * 30), v),
    "stopped weights": lambda q, k, v: mixed(lax.stop_gradient(weights(product(q, k))), v),
    "stopped sum": lambda q, k, v: mixed(
        (e := jnp.exp(product(q, k))) / lax.stop_gradient(e.sum(-1, keepdims=True)), v
    ),
    "wrong sum": lambda q, k, v: mixed((e := jnp.exp(product(q, k))) / e.sum(-2, keepdims=True), v),
    "sum of another": lambda q, k, v: mixed(
        jnp.exp(product(q, k)) / jnp.exp(product(k, q)).sum(-1, keepdims=True), v
    ),
    "sums turned": lambda q, k, v: mixed(
        (e := jnp.exp(product(q, k))) / e.sum(-1).swapaxes(0, 1).reshape(B, N, T)[..., None], v
    ),
    "mean": lambda q, k, v: mixed((e := jnp.exp(product(q, k))) / e.mean(-1, keepdims=True), v),
    "renormalised": lambda q, k, v: mixed(
        jnp.where(CAUSAL, p := weights(product(q, k)), 0.0) / p.sum(-1, keepdims=True), v
    ),
    "scores squared": lambda q, k, v: mixed(weights(product(q, k) ** 2), v),
    "scores of each head": lambda q, k, v: mixed(
        weights(product(q, k) * jnp.arange(1.0, 5.0, dtype=np.float32)[:, None, None]), v
    ),
    "heads mixed": lambda q, k, v: jnp.einsum("bhqk,bkgd->bqgd", weights(product(q, k)), v),
    "batches mixed": lambda q, k, v: jnp.einsum("bhqk,ckhd->bqhd", weights(product(q, k)), v),
    "two widths": lambda q, k, v: jnp.einsum(
        "bhqk,bkhde->bqhde", weights(product(q, k)), jnp.stack([v, v], -1)
    ),
    "halves": lambda q, k, v: mixed(
        weights(product(q.astype(jnp.bfloat16), k.astype(jnp.bfloat16)).astype(jnp.float32)), v
    ),
    "sigmoid": lambda q, k, v: mixed(nn.sigmoid(product(q, k)), v),
    "no product": lambda q, k, v: mixed(
        weights(jnp.ones((B, N, T, S), np.float32) * v[0, 0, 0, 0]), v
    ),
}


@pytest.mark.parametrize("name", sorted(NEAR))
def test_near_misses_are_left_alone(name):
    args = [a.astype(np.float32) for a in (Q, K, V)]
    assert not attends(NEAR[name], *args)


def test_one_product_in_two_roles_is_still_attention():
    q, k, v = (a.astype(np.float32) for a in (Q, K, V))

    def same(x):
        return mixed(weights(product(x, x)), x)

    def and_again(q, k, v):
        x = mixed(weights(product(q, k)), v)
        return mixed(weights(product(x, k)), v) + q

    assert len(attends(same, q)) == 1
    assert len(attends(and_again, q, k, v)) == 2
    for function, args in ((same, (q,)), (and_again, (q, k, v))):
        with fxad.config.override(recognise=False):
            wanted = fxad.jit(function)(*args)
        np.testing.assert_allclose(fxad.jit(function)(*args), wanted, rtol=1e-5, atol=1e-5)


def test_it_can_be_turned_off():
    with fxad.config.override(recognise=False):
        assert not attends(lambda q, k, v: mixed(weights(product(q, k)), v), Q, K, V)


# ---------------------------------------------------------------- special values

EMPTY = CAUSAL & (np.arange(T) != 2)[:, None]  # query 2 sees no key


def excluded(fill, function=weights):
    def run(q, k, v, mask):
        return mixed(function(jnp.where(mask, product(q, k), fill)), v)

    return run


@pytest.mark.parametrize("fill", [-np.inf, -1e9])
def test_queries_that_see_nothing_give_what_plain_ops_give(fill):
    with fxad.enable_x64():
        run = excluded(fill)
        step = fxad.jit(fxad.value_and_grad(lambda *a: jnp.sum(run(*a) ** 2), argnums=(0, 1, 2)))
        assert attends(run, Q, K, V, EMPTY)
        assert attends(step, Q, K, V, EMPTY)
        out, (value, grads) = fxad.jit(run)(Q, K, V, EMPTY), step(Q, K, V, EMPTY)
        with fxad.config.override(recognise=False):
            wanted = fxad.jit(lambda *a: run(*a))(Q, K, V, EMPTY)
            again = fxad.value_and_grad(lambda *a: jnp.sum(run(*a) ** 2), argnums=(0, 1, 2))
            plain, slopes = fxad.jit(again)(Q, K, V, EMPTY)
        np.testing.assert_allclose(out, wanted, rtol=1e-12)
        assert np.isnan(out[:, 2]).all() == np.isinf(fill)
        np.testing.assert_allclose(value, plain, rtol=1e-12)
        for a, b in zip(map(np.asarray, grads), map(np.asarray, slopes), strict=True):
            if np.isfinite(fill):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
            else:  # NaN reaches keys and queries too, where plain ops give it to values only
                assert np.isnan(a[np.isnan(b)]).all()


def test_softmax_with_where_gives_zeros_to_queries_that_see_nothing():
    def run(q, k, v, mask):
        return mixed(nn.softmax(product(q, k), axis=-1, where=mask), v)

    with fxad.enable_x64():
        assert attends(run, Q, K, V, EMPTY)
        out = np.asarray(fxad.jit(run)(Q, K, V, EMPTY))
        assert (out[:, 2] == 0).all()
        with fxad.config.override(recognise=False):
            wanted = np.asarray(fxad.jit(lambda *a: run(*a))(Q, K, V, EMPTY))
        np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


def test_a_bias_of_minus_infinity_everywhere_gives_nan():
    def run(q, k, v, bias):
        return mixed(weights(product(q, k) + bias), v)

    bias = np.where(EMPTY, 0.0, -np.inf)
    with fxad.enable_x64():
        assert attends(run, Q, K, V, bias)
        out = np.asarray(fxad.jit(run)(Q, K, V, bias))
        assert np.isnan(out[:, 2]).all()
        assert np.isfinite(np.delete(out, 2, 1)).all()


# ---------------------------------------------------------------- inside transformations


def test_it_is_found_across_jitted_functions():
    scores = fxad.jit(lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.5)
    normal = fxad.jit(lambda x: fxad.jit(nn.softmax)(x))

    def run(q, k, v):
        return mixed(normal(scores(q, k)), v)

    q, k, v = (a.astype(np.float32) for a in (Q, K, V))
    assert attends(run, q, k, v)
    step = fxad.jit(fxad.grad(lambda *a: jnp.sum(run(*a) ** 2)))
    assert attends(step, q, k, v)
    np.testing.assert_allclose(fxad.jit(run)(q, k, v), run(q, k, v), rtol=1e-5, atol=1e-6)


def test_it_is_found_in_loops_calls_and_batches():
    q, k, v = (a.astype(np.float32) for a in (Q, K, V))
    tril = jnp.tril(jnp.ones((T, S)))

    def one(q, k, v):
        x = jnp.where(tril == 1, q @ k.T / 2, -jnp.inf)
        return weights(x) @ v

    def scanned(q, k, v):
        heads = fxad.vmap(fxad.jit(one), in_axes=1, out_axes=1)
        return lax.scan(lambda c, x: (c + 1, fxad.checkpoint(heads)(*x)), 0.0, (q, k, v))[1]

    wanted = {"right": 0, "mask": False}
    (eqn,) = attends(scanned, q, k, v)
    assert wanted.items() <= dict(eqn.params).items()
    (eqn,) = attends(fxad.vmap(fxad.vmap(one, 1, 1)), q, k, v)
    assert wanted.items() <= dict(eqn.params).items()

    def loss(*args):
        return jnp.sum(scanned(*args) ** 2)

    step = fxad.jit(fxad.grad(loss, argnums=(0, 1, 2)))
    assert attends(step, q, k, v)
    with fxad.config.override(recognise=False):
        plain = fxad.jit(fxad.grad(lambda *a: loss(*a), argnums=(0, 1, 2)))(q, k, v)
    for a, b in zip(step(q, k, v), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
