"""fxad.random: known answers of Threefry, moments of distributions, and JAX's very numbers."""

import math
from functools import partial

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import random
from fxad.core.errors import BadArgument, NumberOverflow, ShapeError, TypeMismatch

KEY = random.key(42)
COUNT = 20_000
EVEN = 5 / math.sqrt(COUNT)  # five standard errors of a mean of unit variance


def test_keys_of_seeds():
    assert random.key(5).tolist() == [0, 5]
    assert random.PRNGKey(-1).tolist() == [0, 2**32 - 1]
    # As in JAX: 32 bits of a seed count, 64 under enable_x64.
    assert random.key(2**40 + 3).tolist() == [0, 3]
    assert random.key(np.int64(2**40 + 3)).tolist() == [0, 3]
    assert fxad.jit(random.key)(np.int64(2**40 + 3)).tolist() == [0, 3]
    with fxad.enable_x64(True):
        assert random.key(2**40 + 3).tolist() == [256, 3]
        assert fxad.jit(random.key)(np.int64(2**40 + 3)).tolist() == [256, 3]
    assert fxad.jit(random.key)(np.int32(9)).tolist() == [0, 9]
    assert random.split(KEY).shape == (2, 2)
    assert random.split(KEY, (3, 4)).shape == (3, 4, 2)
    assert random.wrap_key_data(random.key_data(KEY)).tolist() == KEY.tolist()
    assert random.fold_in(KEY, np.int64(-1)).tolist() == random.fold_in(KEY, 2**32 - 1).tolist()
    for far in (-1, 2**32):
        with pytest.raises(OverflowError):
            random.fold_in(KEY, far)
    for wrong in (1.5, "seed"):
        with pytest.raises(TypeMismatch):
            random.key(wrong)
    with pytest.raises(TypeMismatch, match=r"a key is u32\[2\].*fxad.random.key\(seed\)"):
        random.normal(0, (3,))
    with pytest.raises(TypeMismatch, match=r"use fxad\.vmap"):
        random.normal(random.split(KEY), (3,))
    with pytest.raises(BadArgument, match="unknown generator"):
        random.key(0, impl="rbg")


def test_threefry_known_answer():
    """The vector published with the generator (Random123) for key 0 and counter 0."""
    zero = random.bits(np.zeros(2, np.uint32), (), "uint64")
    assert int(zero) == 0x6B20015999BA4EFE
    # Folding in i encrypts the counter i, and so does drawing element i.
    word = int(random.bits(KEY, (2,), "uint64")[1])
    assert [word >> 32, word & 0xFFFFFFFF] == random.fold_in(KEY, 1).tolist()


def test_streams_do_not_depend_on_jit_vmap_or_shape():
    keys = random.split(KEY, 3)
    drawn = np.stack([np.asarray(random.bits(k, (4,))) for k in keys])
    assert fxad.vmap(lambda k: random.bits(k, (4,)))(keys).tolist() == drawn.tolist()
    assert fxad.jit(lambda k: random.bits(k, (4,)))(keys[0]).tolist() == drawn[0].tolist()
    assert random.bits(keys[0], (2, 2)).reshape(-1).tolist() == drawn[0].tolist()
    folded = fxad.vmap(lambda i: random.fold_in(KEY, i))(jnp.arange(3))
    assert folded[2].tolist() == random.fold_in(KEY, 2).tolist()
    again = fxad.jit(lambda k: random.uniform(k, (100,)))(KEY)
    assert again.tolist() == random.uniform(KEY, (100,)).tolist()


def test_large_draws_are_the_same_numbers():
    """They run compiled: integers and uniform floats are equal, others up to rounding."""
    size = 10_000
    with fxad.disable_jit():
        slow = [f(KEY) for f in _draws(size)]
    for function, expected in zip(_draws(size), slow, strict=True):
        out = function(KEY)
        assert out.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(out), np.asarray(expected), rtol=2e-6, atol=1e-6)
    assert random.uniform(KEY, [size]).tolist() == slow[0].tolist()
    slope = fxad.grad(lambda s: random.lognormal(KEY, s, (size,)).mean())(np.float32(0.5))
    normals = np.asarray(random.normal(KEY, (size,)), np.float64)
    assert abs(slope - (normals * np.exp(0.5 * normals)).mean()) < 1e-4


def _draws(size):
    return [
        lambda k: random.uniform(k, (size,)),
        lambda k: random.uniform(k, size, minval=np.float32(-1), maxval=2.0),
        lambda k: random.randint(k, (size,), -(2**31), 2**31),
        lambda k: random.normal(k, (size // 10, 10), "float32"),
        lambda k: random.bernoulli(k, 0.3, (size,)),
    ]


def test_distributions_have_their_moments():
    moments = {  # mean, standard deviation
        "normal": (0, 1),
        "uniform": (0.5, 12**-0.5),
        "exponential": (1, 1),
        "gumbel": (0.5772157, math.pi / 6**0.5),
        "laplace": (0, 2**0.5),
        "logistic": (0, math.pi / 3**0.5),
        "rademacher": (0, 1),
    }
    for name, (mean, deviation) in moments.items():
        drawn = np.asarray(getattr(random, name)(KEY, (COUNT,)), np.float64)
        assert abs(drawn.mean() - mean) < EVEN * deviation, name
        assert abs(drawn.std() / deviation - 1) < 2 * EVEN, name
    assert abs(np.median(random.cauchy(KEY, (COUNT,)))) < 2 * EVEN
    limited = np.asarray(random.truncated_normal(KEY, -0.5, 2.0, (COUNT,)))
    assert limited.min() > -0.5
    assert limited.max() < 2
    z = np.asarray(random.normal(KEY, (COUNT,), "complex64"))
    assert abs((abs(z) ** 2).mean() - 1) < EVEN
    assert abs(z.mean()) < EVEN
    assert random.normal(KEY, (3,), "bfloat16").dtype == fxad.numpy.bfloat16
    assert abs(np.asarray(random.bernoulli(KEY, 0.2, (COUNT,))).mean() - 0.2) < EVEN


def test_uniform_and_randint_stay_in_range():
    drawn = np.asarray(random.uniform(KEY, (COUNT,), minval=-3.0, maxval=5.0))
    assert drawn.min() >= -3
    assert drawn.max() < 5
    columns = np.asarray(random.uniform(KEY, (500, 2), minval=jnp.array([0.0, 10.0]), maxval=11.0))
    assert columns[:, 1].min() >= 10
    for low, high, dtype in ((-3, 4, "int8"), (0, 256, "uint8"), (-(2**31), 2**31, "int32")):
        numbers = np.asarray(random.randint(KEY, (COUNT,), low, high, dtype)).astype(np.int64)
        assert numbers.dtype == np.int64
        assert numbers.min() >= low
        assert numbers.max() < high
        if high - low < 300:
            assert len(np.unique(numbers)) == high - low
    assert random.randint(KEY, (3,), 5, 5).tolist() == [5, 5, 5]
    traced = fxad.jit(lambda k, n: random.randint(k, (9,), 0, n))(KEY, np.int32(100))
    assert traced.tolist() == random.randint(KEY, (9,), 0, 100).tolist()
    whole = random.randint(KEY, (9,), 0, 7).tolist()
    for low, high in ((0.5, 7.9), (False, np.float64(7)), (np.float32(0), jnp.float32(7.5))):
        assert random.randint(KEY, (9,), low, high).tolist() == whole
    with pytest.raises(ShapeError, match="do not fit"):
        random.randint(KEY, (3,), np.zeros(2, np.int32), 5)
    with pytest.raises(NumberOverflow, match="bound 2147483649 does not fit int32"):
        random.randint(KEY, (3,), 0, 2**31 + 1)
    for data in (-1.5, float("nan")):  # not the key of 0
        with pytest.raises(NumberOverflow):
            random.fold_in(KEY, data)
    with pytest.raises(NumberOverflow, match="must be finite, not inf"):
        random.randint(KEY, (3,), 0, float("inf"))
    with pytest.raises(TypeMismatch, match="must be real numbers, not c64"):
        random.randint(KEY, (3,), 0, 3j)
    with pytest.raises(TypeMismatch, match="must be a float"):
        random.uniform(KEY, (3,), "int32")


def test_categorical_permutation_and_choice():
    p = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    for drawn in (
        random.categorical(KEY, np.log(p), shape=(COUNT,)),
        random.choice(KEY, 4, (COUNT,), p=p),
    ):
        shares = np.bincount(np.asarray(drawn), minlength=4) / COUNT
        assert np.abs(shares - p).max() < EVEN
    logits = np.zeros((2, 3, 5), np.float32)
    assert random.categorical(KEY, logits, axis=1).shape == (2, 5)
    distinct = np.asarray(random.categorical(KEY, logits, axis=1, shape=(3, 2, 5), replace=False))
    assert (np.sort(distinct, axis=0) == np.arange(3)[:, None, None]).all()
    assert sorted(random.permutation(KEY, 100).tolist()) == list(range(100))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows = random.permutation(KEY, x)
    assert sorted(map(tuple, rows.tolist())) == [tuple(r) for r in x.tolist()]
    free = np.asarray(random.permutation(KEY, x, axis=1, independent=True))
    assert (np.sort(free, axis=1) == x).all()
    picked = random.choice(KEY, x, (2, 2), replace=False, axis=1)
    assert picked.shape == (3, 2, 2)
    assert len(set(picked[0].reshape(-1).tolist())) == 4
    assert random.choice(KEY, 5, (0,)).shape == (0,)
    with pytest.raises(BadArgument, match="need replace=True"):
        random.choice(KEY, 3, (4,), replace=False)
    with pytest.raises(ShapeError, match="there are 4 elements"):
        random.choice(KEY, 4, (2,), p=p[:3])
    with pytest.raises(ShapeError, match="must end with the batch shape"):
        random.categorical(KEY, logits, shape=(5,))


def test_gamma_family():
    shapes = np.array([0.3, 1.0, 5.0], np.float32)
    count = 4000
    drawn = np.asarray(random.gamma(KEY, shapes, (count, 3)))
    assert (drawn >= 0).all()
    assert (abs(drawn.mean(0) - shapes) < 5 * np.sqrt(shapes / count)).all()
    beta = np.asarray(random.beta(KEY, 2.0, 6.0, (count,)))
    assert abs(beta.mean() - 0.25) < 5 * 0.15 / math.sqrt(count)
    vectors = np.asarray(random.dirichlet(KEY, shapes, (count,)))
    np.testing.assert_allclose(vectors.sum(1), 1, rtol=1e-5)
    assert (abs(vectors.mean(0) - shapes / shapes.sum()) < 0.03).all()


def test_draws_of_the_gamma_family_follow_their_parameters():
    """Each keeps its quantile, P(a, x): differences of `igamma` say by how much it moves."""
    from fxad.lax import digamma, igamma, lgamma
    from fxad.scipy.special.incomplete import log_slope_of_draw

    with fxad.enable_x64():
        for a in (1e-3, 1.0, 250.0, 6e4):
            logs, moves = fxad.jvp(lambda a: random.loggamma(KEY, a, (40,)), (a,), (1.0,))
            x = jnp.exp(logs)
            step = 1e-5 * a
            in_a = (igamma(a + step, x) - igamma(a - step, x)) / (2 * step)
            in_log = jnp.exp(a * logs - x - lgamma(a))
            seen = jnp.isfinite(logs) & (x > 0)  # the others underflow: the next line
            np.testing.assert_allclose((moves * in_log)[seen], -in_a[seen], rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(moves[~seen], (digamma(a + 1) - logs[~seen]) / a)
            narrow = fxad.jvp(lambda a: random.loggamma(KEY, a, (40,)), (np.float32(a),), (1.0,))
            wide = log_slope_of_draw(a, np.float64(narrow[0]))
            np.testing.assert_allclose(narrow[1], wide, rtol=1e-5, atol=1e-5)
    for a in (200.0, 250.0, 500.0, 1e5):  # far from the mean, too
        x = a + np.array([-5, -3.5, 0, 3.5, 5]) * np.sqrt(a)
        with fxad.enable_x64():
            wanted = fxad.lax.random_gamma_grad(a, x)
        given = np.float32(a), np.float32(x)
        np.testing.assert_allclose(fxad.lax.random_gamma_grad(*given), wanted, rtol=3e-6)
    mean = lambda a: random.gamma(KEY, a, (10000,)).mean()  # noqa: E731
    assert abs(fxad.jit(fxad.grad(mean))(2.5) - 1) < 0.05
    half = fxad.grad(lambda a: random.gamma(KEY, a, (9,), "bfloat16").sum())(jnp.bfloat16(2))
    assert half.dtype == "bfloat16"
    with fxad.enable_x64():
        for a in (0.4, 1e5):  # the slope along the curves that draws follow
            draws = lambda a: random.loggamma(KEY, a, (20,))  # noqa: E731
            logs, moves = fxad.jvp(draws, (a,), (1.0,))
            _, second = fxad.jvp(lambda a: fxad.jvp(draws, (a,), (1.0,))[1], (a,), (1.0,))
            step = 1e-4 * a
            ends = [log_slope_of_draw(a + h, logs + h * moves) for h in (step, -step)]
            change = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(second, change, rtol=1e-5)
            twice = fxad.grad(fxad.grad(lambda a: draws(a).sum()))(a)
            np.testing.assert_allclose(twice, second.sum(), rtol=1e-9)


@pytest.mark.peers
def test_gradients_of_draws_are_those_of_jax():
    jax = pytest.importorskip("jax")
    alpha = np.array([0.3, 2.0, 5.0], np.float32)
    low, high = np.float32(-1), np.float32(2)
    for name, *parameters in (
        ("gamma", np.float32(2.5)), ("chisquare", np.float32(3)), ("t", np.float32(3)),
        ("beta", np.float32(0.7), np.float32(2)), ("f", np.float32(3), np.float32(5)),
        ("dirichlet", alpha), ("truncated_normal", low, high), ("pareto", high),
        ("weibull_min", high, np.float32(1.5)), ("wald", high), ("rayleigh", high),
    ):  # fmt: skip

        def loss(library, *at, name=name):
            draws = getattr(library.random, name)(library.random.key(3), *at, shape=(20,))
            return library.numpy.sin(draws).sum()

        numbers = tuple(range(len(parameters)))
        ours = fxad.grad(partial(loss, fxad), argnums=numbers)(*parameters)
        theirs = jax.grad(partial(loss, jax), argnums=numbers)(*parameters)
        for mine, yours in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, yours, rtol=2e-4, atol=1e-4, err_msg=name)


@pytest.mark.peers
def test_bits_and_integers_are_those_of_jax():
    jax = pytest.importorskip("jax")
    if not jax.config.jax_threefry_partitionable:
        pytest.skip("needs the partitionable form, JAX's default since 0.5")
    theirs, other = jax.random, jax.random.PRNGKey(42)

    def same(ours, peers):
        assert ours.dtype == peers.dtype
        assert ours.tolist() == peers.tolist()

    same(random.split(KEY, 5), theirs.split(other, 5))
    same(random.fold_in(KEY, 7), theirs.fold_in(other, 7))
    for data in (1.5, True, np.float32(3), jnp.float32(3)):
        same(random.fold_in(KEY, data), theirs.fold_in(other, np.asarray(data)))
    for bound in (1e6, 7.9, np.float32(9)):
        same(random.randint(KEY, (9,), 0, bound), theirs.randint(other, (9,), 0, bound))
    for dtype in ("uint8", "uint16", "uint32"):
        same(random.bits(KEY, (3, 5), dtype), theirs.bits(other, (3, 5), dtype))
    for dtype in ("float32", "float16"):
        same(random.uniform(KEY, (99,), dtype), theirs.uniform(other, (99,), dtype))
    for low, high, dtype in (
        (0, 10, "int32"),
        (-5, 2**31 - 1, "int32"),
        (0, 256, "uint8"),
        (-128, 200, "int8"),
        (-100, 100, "int16"),
        (0, 70000, "uint32"),
    ):
        expected = theirs.randint(other, (99,), low, high, dtype)
        same(random.randint(KEY, (99,), low, high, dtype), expected)
        arrays = np.array(low, np.int32), np.array(high, np.int32)
        same(random.randint(KEY, (99,), *arrays, dtype), expected)
    same(random.bernoulli(KEY, 0.3, (99,)), theirs.bernoulli(other, 0.3, (99,)))
    same(random.rademacher(KEY, (99,)), theirs.rademacher(other, (99,)))
    same(random.permutation(KEY, 99), theirs.permutation(other, 99))
    logits = np.random.default_rng(0).normal(size=(4, 7)).astype("f")
    same(random.permutation(KEY, logits, 1), theirs.permutation(other, logits, 1))
    same(random.categorical(KEY, logits), theirs.categorical(other, logits))
    for options in (
        {"axis": 0, "shape": (5, 7)},
        {"axis": -1, "shape": (3, 4), "replace": False},
    ):
        same(
            random.categorical(KEY, logits, **options), theirs.categorical(other, logits, **options)
        )
    p = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    for a, options in (
        (4, {"shape": (3, 2)}),
        (logits, {"shape": (2,), "replace": False}),
        (4, {"shape": (30,), "p": p}),
        (4, {"shape": (3,), "p": p, "replace": False}),
    ):
        same(random.choice(KEY, a, **options), theirs.choice(other, a, **options))


@pytest.mark.peers
def test_floats_are_those_of_jax_up_to_rounding():
    jax = pytest.importorskip("jax")
    if not jax.config.jax_threefry_partitionable:
        pytest.skip("needs the partitionable form, JAX's default since 0.5")
    other = jax.random.PRNGKey(42)
    for name in ("normal", "gumbel", "exponential", "laplace", "logistic", "cauchy"):
        ours = np.asarray(getattr(random, name)(KEY, (500,)))
        theirs = np.asarray(getattr(jax.random, name)(other, (500,)))
        # JAX's own log, tan and erf_inv are off by a few units in the last place.
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6, err_msg=name)
    for ours, theirs in (
        (
            random.truncated_normal(KEY, -1.0, 2.0, (500,)),
            jax.random.truncated_normal(other, -1.0, 2.0, (500,)),
        ),
        (random.gamma(KEY, 0.5, (50,)), jax.random.gamma(other, 0.5, (50,))),
        (random.beta(KEY, 0.5, 2.0, (50,)), jax.random.beta(other, 0.5, 2.0, (50,))),
    ):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, atol=2e-6)
