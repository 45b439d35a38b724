"""Typed random keys, as code for JAX uses them: what is done to `jax.random.key(0)` beside the same
done to the words of `jax.random.PRNGKey(0)`.

    python -m pytest -p fxad.as_jax tests/as_jax/typed_keys_unchanged.py

With JAX and without the plugin the same tests are of JAX (`test_typed_keys.py` runs both).
"""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

data = jax.random.key_data
KEY, WORDS = jax.random.key(7), jax.random.PRNGKey(7)
KEYS, ALL_WORDS = jax.random.split(KEY, 6), jax.random.split(WORDS, 6)


def same(keys, words):
    """Typed keys of these words."""
    assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    assert keys.shape == words.shape[:-1]
    np.testing.assert_array_equal(data(keys), words)


def test_what_a_key_is():
    assert (KEY.shape, KEY.ndim, KEY.size, KEYS.shape) == ((), 0, 1, (6,))
    assert isinstance(KEY, jax.Array)
    for kind in (jax.dtypes.prng_key, jax.dtypes.extended, np.generic):
        assert jnp.issubdtype(KEY.dtype, kind) == jax.dtypes.issubdtype(KEY.dtype, kind)
    assert jax.dtypes.issubdtype(KEY.dtype, jax.dtypes.extended)
    for keys in (
        KEY,
        KEYS[1:],
        jax.jit(lambda k: k.reshape(2, 3))(KEYS),
        jax.eval_shape(lambda: KEY),
    ):
        assert keys.dtype.type is jax.dtypes.prng_key
    assert pickle.loads(pickle.dumps(KEYS.dtype)) == KEY.dtype
    assert not jnp.issubdtype(KEY.dtype, jnp.number)
    assert not jnp.issubdtype(WORDS.dtype, jax.dtypes.prng_key)
    assert (WORDS.shape, WORDS.dtype) == ((2,), jnp.uint32)
    assert repr(KEY) == "Array((), dtype=key<fry>) overlaying:\n[0 7]"
    assert str(jax.typeof(KEYS)) == "key<fry>[6]"
    assert str(jax.eval_shape(jax.random.key, 0)) == "ShapeDtypeStruct(shape=(), dtype=key<fry>)"
    assert jax.random.key_impl(KEY) == jax.random.key_impl(KEYS)
    same(jax.random.wrap_key_data(ALL_WORDS), ALL_WORDS)
    assert jnp.result_type(KEY, KEYS) == KEY.dtype == jax.random.wrap_key_data(WORDS).dtype


def test_keys_are_close_where_they_are_equal():
    others = KEYS.at[2].set(KEY)
    for compiled in (False, True):
        wrap = jax.jit if compiled else lambda f: f
        assert wrap(jnp.isclose)(KEYS, others).tolist() == [i != 2 for i in range(6)]
        for ask in (jnp.allclose, jnp.array_equal, jnp.array_equiv):
            assert wrap(ask)(KEYS, KEYS) and wrap(ask)(KEY, KEY)
            assert not wrap(ask)(KEYS, others) and not wrap(ask)(KEYS, KEYS[0])
        assert jnp.array_equal(KEYS, KEYS, equal_nan=True)
    for other in (1.0, jnp.ones(6), ALL_WORDS[:, 0]):
        with pytest.raises(TypeError):
            jnp.allclose(KEYS, other)


MOVES = {
    "item": lambda k: k[2],
    "negative": lambda k: k[-1],
    "slice": lambda k: k[1:4],
    "steps": lambda k: k[::-2],
    "array": lambda k: k[jnp.array([4, 0, 0])],
    "mask": lambda k: k[np.array([True, False] * 3)],
    "new axis": lambda k: k[None, :, None],
    "set": lambda k: k.at[1].set(k[5]),
    "dynamic": lambda k: jax.lax.dynamic_index_in_dim(k, 3, 0, keepdims=False),
    "update": lambda k: jax.lax.dynamic_update_index_in_dim(k, k[0], 2, 0),
    "take": lambda k: jnp.take(k, jnp.array([5, 2, 9]), axis=0),
    "fill": lambda k: k.at[jnp.array([5, 7])].get(mode="fill"),
    "stack": lambda k: jnp.stack([k[1], k[0], k[3]]),
    "concatenate": lambda k: jnp.concatenate([k, k[:2]]),
    "repeat": lambda k: jnp.repeat(k, 2, axis=0),
    "roll": lambda k: jnp.roll(k, 1, axis=0),
    "flip": lambda k: jnp.flip(k, axis=0),
    "unstack": lambda k: jnp.stack(list(k)[::-1]),
    "scan": lambda k: jax.lax.scan(lambda c, x: (x, c), k[0], k)[1],
    "reverse scan": lambda k: jax.lax.scan(lambda c, x: (x, c), k[0], k, reverse=True)[1],
    "split": lambda k: jax.vmap(lambda k: jax.random.split(k, (2, 2)))(k),
    "fold": lambda k: jax.vmap(jax.random.fold_in)(k, jnp.arange(6)),
    "clone": lambda k: jax.random.clone(k[0]),
    "vmap": lambda k: jax.vmap(lambda k: k, out_axes=0)(k),
    "cond": lambda k: jax.lax.cond(k.shape[0] > 2, lambda k: k[1], lambda k: k[0], k),
    "lanes' cond": lambda k: jax.vmap(
        lambda p, k: jax.lax.cond(p, lambda k: jax.random.fold_in(k, 1), lambda k: k, k)
    )(jnp.arange(6) % 2 == 0, k),
    "fori": lambda k: jax.lax.fori_loop(0, 3, lambda i, k: jax.random.fold_in(k, i), k[0]),
    "while": lambda k: jax.lax.while_loop(
        lambda k: jax.random.uniform(k) < 0.7, lambda k: jax.random.split(k)[1], k[0]
    ),
    "lanes' while": lambda k: jax.vmap(
        lambda k: jax.lax.while_loop(
            lambda k: jax.random.uniform(k) < 0.7, lambda k: jax.random.split(k)[1], k
        )
    )(k),
    "switch": lambda k: jax.lax.switch(1, [lambda k: k[0], lambda k: k[3]], k),
    "jit": lambda k: jax.jit(lambda k: k)(k),
    "checkpoint": lambda k: jax.checkpoint(lambda k: jax.random.split(k[0]))(k),
    "tree": lambda k: jax.tree.map(lambda k: k[1:], {"a": k})["a"],
    "copy": lambda k: copy.deepcopy(k).copy(),
    "pickle": lambda k: pickle.loads(pickle.dumps(k)),
    "device": lambda k: jax.device_put(k).block_until_ready(),
    "got": lambda k: jax.device_get(k),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_moves(move, compiled):
    if compiled and move in ("copy", "pickle", "device", "got"):
        return
    f = jax.jit(MOVES[move]) if compiled else MOVES[move]
    same(f(KEYS), f(ALL_WORDS))


SHAPES = {
    "reshape": lambda k: k.reshape(2, 3),
    "transpose": lambda k: k.reshape(2, 3).T,
    "broadcast": lambda k: jnp.broadcast_to(k, (2, 6)),
    "ravel": lambda k: jnp.ravel(k.reshape(3, 2)),
    "squeeze": lambda k: jnp.squeeze(k[:1]),
    "expand": lambda k: jnp.expand_dims(k, 1),
    "swap": lambda k: jnp.swapaxes(k.reshape(2, 3), 0, 1),
    "where": lambda k: jnp.where(jnp.arange(6) < 3, k, k[0]),
    "select": lambda k: jax.lax.select(jnp.arange(6) < 3, k, jnp.flip(k)),
    "full": lambda k: jnp.full_like(k, k[2]),
    "last axis": lambda k: jax.vmap(lambda k: k, in_axes=-1, out_axes=-1)(k.reshape(2, 3)),
    "many": lambda k: jax.random.split(k[0], (2, 3)),
    "append": lambda k: jnp.append(k, k[0]),
    "vstack": lambda k: jnp.vstack([k, k]),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_words_have_no_axis(shape, compiled):
    """What is done to keys is done to their positions."""
    f = jax.jit(SHAPES[shape]) if compiled else SHAPES[shape]
    if shape == "many":
        return same(f(KEYS), f(ALL_WORDS))
    return same(f(KEYS), np.asarray(ALL_WORDS)[np.asarray(SHAPES[shape](jnp.arange(6)))])


DRAWS = {
    "bits": lambda k: jax.random.bits(k, (3,)),
    "uniform": lambda k: jax.random.uniform(k, (3,)),
    "normal": lambda k: jax.random.normal(k),
    "randint": lambda k: jax.random.randint(k, (4,), 0, 9),
    "permutation": lambda k: jax.random.permutation(k, 7),
    "choice": lambda k: jax.random.choice(k, 7, (3,), replace=False),
    "categorical": lambda k: jax.random.categorical(k, jnp.arange(4.0), shape=(5,)),
    "gamma": lambda k: jax.random.gamma(k, 2.0),
    "poisson": lambda k: jax.random.poisson(k, 3.0, (4,)),
    "dirichlet": lambda k: jax.random.dirichlet(k, jnp.ones(3)),
    "slope": lambda k: jax.grad(lambda x: jnp.sin(x * jax.random.normal(k)))(1.5),
    "scanned slope": lambda k: jax.grad(
        lambda x: jax.lax.scan(
            lambda c, k: (c * x + jax.random.uniform(k), None), 1.0, jax.random.split(k, 3)
        )[0]
    )(0.5),
    "recomputed": lambda k: jax.grad(
        jax.checkpoint(lambda x, k: jnp.sin(x) * jax.random.uniform(k))
    )(0.5, k),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_draws(draw):
    f = DRAWS[draw]
    np.testing.assert_array_equal(f(KEY), f(WORDS))
    np.testing.assert_array_equal(jax.jit(f)(KEY), jax.jit(f)(WORDS))
    np.testing.assert_array_equal(jax.jit(jax.vmap(f))(KEYS), jax.jit(jax.vmap(f))(ALL_WORDS))


def test_equality():
    first = [True] + [False] * 5
    for f in (lambda k: k == k[0], jax.jit(lambda k: k == k[0]), lambda k: ~(k != k[0])):
        assert f(KEYS).tolist() == first
    assert bool(jnp.array_equal(KEYS, KEYS.copy()))
    assert bool(jax.random.key(7) == KEY) and not bool(jax.random.key(8) == KEY)
    half = jax.random.wrap_key_data(jnp.array([0, 8], jnp.uint32))  # one word of two is the same
    assert bool(half != KEY)


def test_loops_that_carry_a_key():
    def drawn(key):
        def body(key, _):
            key, own = jax.random.split(key)
            return key, (own, jax.random.uniform(own))

        return jax.lax.scan(body, key, None, length=3)

    for f in (
        drawn,
        jax.jit(drawn),
        lambda k: jax.tree.map(lambda x: x[0], jax.vmap(drawn)(k[None])),
    ):
        (key, (keys, floats)), (words, (all_words, wanted)) = f(KEY), f(WORDS)
        same(key, words)
        same(keys, all_words)
        np.testing.assert_array_equal(floats, wanted)


def test_types_without_values():
    found = jax.eval_shape(lambda k: jax.random.split(k, 4), KEY)
    assert (found.shape, found.dtype) == ((4,), KEY.dtype)
    made = jax.jit(jax.random.split).lower(jax.ShapeDtypeStruct((), KEY.dtype)).compile()
    same(made(KEY), jax.random.split(WORDS))
    assert jax.make_jaxpr(data)(KEYS).jaxpr.invars[0].aval.shape == (6,)
    same(jax.vmap(jax.random.key)(jnp.arange(3)), jax.vmap(jax.random.PRNGKey)(jnp.arange(3)))
    same(jnp.zeros_like(KEYS), jnp.zeros_like(ALL_WORDS))
    given_away = jax.jit(lambda k: jax.random.split(k)[0], donate_argnums=0)(KEYS[0])
    same(given_away, jax.random.split(ALL_WORDS[0])[0])


@pytest.mark.parametrize(
    "use",
    [
        lambda k: k + 1,
        lambda k: k + k,
        lambda k: -k,
        lambda k: 2.0 * k,
        jnp.sin,
        lambda k: k < k,
        jnp.sort,
        jnp.cumsum,
        lambda k: k == 3,
        lambda k: jnp.asarray(k[0], jnp.uint32) + 1,
        np.asarray,
        lambda k: bool(k[0]),
        lambda k: int(k[0]),
        lambda k: jnp.stack([k[0], jnp.uint32(1)]),
        lambda k: jnp.where(True, k, 0),
        jax.random.normal,
        jax.random.split,
        lambda k: jax.grad(jax.random.normal)(k[0]),
        lambda k: jax.random.wrap_key_data(jnp.zeros(3, jnp.uint32)),
        lambda k: jax.random.normal(jnp.ones(2)),
    ],
)
def test_keys_are_no_numbers(use):
    with pytest.raises((TypeError, ValueError)):
        use(KEYS)
