"""checkpoint: what each policy keeps, bits that do not change, effects that happen once."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument
from fxad.ir.program import subprograms

policies = fxad.checkpoint_policies
R = np.random.default_rng(0)
X = R.standard_normal((4, 5))
W = R.standard_normal((5, 5))
NAMED = policies.save_only_these_names("hidden")
POLICIES = {
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "plain_dots": policies.dots_with_no_batch_dims_saveable,
    "names": NAMED,
    "other_names": policies.save_any_names_but_these("other"),
    "unless_names": policies.save_anything_except_these_names("hidden"),
    "both": policies.save_from_both_policies(policies.dots_saveable, NAMED),
}


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def block(x, w):
    hidden = fxad.checkpoint_name(jnp.tanh(x @ w), "hidden")
    return jnp.sin(hidden @ w) * jnp.exp(-(x**2))


def ops(function, *args):
    """Names of all ops of the optimised program, sub-programs included."""

    def names(program):
        for eqn in program.eqns:
            yield eqn.op.name
            for _, inner in subprograms(eqn):
                yield from names(inner)

    return list(names(fxad.jit(function).lower(*args).program))


@pytest.mark.parametrize("policy", list(POLICIES))
def test_gradients_are_the_same_bits(policy):
    def loss(wrap):
        # x and w are read inside the regions and outside them.
        return lambda x, w: jnp.sum(wrap(block)(wrap(block)(x, w) + x, w) * x + w[0]) ** 2

    checkpointed = loss(lambda f: fxad.checkpoint(f, policy=POLICIES[policy]))
    want = fxad.jit(fxad.grad(loss(lambda f: f), argnums=(0, 1)))(X, W)
    got = fxad.jit(fxad.grad(checkpointed, argnums=(0, 1)))(X, W)
    eager = fxad.grad(checkpointed, argnums=(0, 1))(X, W)
    for g, e, w in zip(got, eager, want, strict=True):
        np.testing.assert_array_equal(g, w)
        np.testing.assert_allclose(e, w, rtol=1e-12)


@pytest.mark.parametrize(
    ("policy", "tanh", "dots"),
    # Without a checkpoint: one tanh; two products forward, four backward. The second product's
    # cosine needs the product, so recomputing costs one product more where it is not kept.
    [
        ("nothing", 2, 2 + 4 + 2),
        ("everything", 1, 2 + 4),
        ("dots", 2, 2 + 4),
        ("plain_dots", 2, 2 + 4),
        ("names", 1, 2 + 4 + 1),
        ("other_names", 1, 2 + 4 + 1),
        ("both", 1, 2 + 4),
    ],
)
def test_what_is_recomputed(policy, tanh, dots):
    f = fxad.checkpoint(lambda x, w: jnp.sum(block(x, w)), policy=POLICIES[policy])
    seen = ops(fxad.value_and_grad(f, argnums=(0, 1)), X, W)
    assert (seen.count("tanh"), seen.count("dot")) == (tanh, dots)


def test_batched_products_are_not_plain():
    def f(x):
        return jnp.sum(jnp.sin(jnp.einsum("bij,bjk->bik", x, x)))

    x = R.standard_normal((2, 3, 3))
    counts = {
        name: ops(fxad.value_and_grad(fxad.checkpoint(f, policy=POLICIES[name])), x).count("dot")
        for name in ("dots", "plain_dots")
    }
    assert counts["plain_dots"] == counts["dots"] + 1


def test_a_value_goes_by_its_name_before_and_after_naming():
    """exp's derivative reads the result itself, not the named copy of it."""

    def f(x):
        return jnp.sum(fxad.checkpoint_name(jnp.exp(jnp.sin(x)), "e") ** 2)

    for names, count in (("e", 1), ("other", 2)):
        policy = policies.save_only_these_names(names)
        assert ops(fxad.value_and_grad(fxad.checkpoint(f, policy=policy)), X).count("exp") == count


def test_policies_see_into_jitted_functions():
    inner = fxad.jit(lambda x: fxad.checkpoint_name(jnp.tanh(x), "t"))
    f = fxad.checkpoint(lambda x: inner(x).sum(), policy=policies.save_only_these_names("t"))
    assert ops(fxad.value_and_grad(f), X).count("tanh") == 1


def test_second_derivatives_and_lanes():
    def f(x):
        return jnp.sin(jnp.sin(x) * x)

    x = np.linspace(-1, 1, 5)
    want = fxad.vmap(fxad.grad(fxad.grad(f)))(x)
    for policy in ("nothing", "everything"):
        g = fxad.checkpoint(f, policy=POLICIES[policy])
        for h in (fxad.vmap(fxad.grad(fxad.grad(g))), fxad.jit(fxad.vmap(fxad.hessian(g)))):
            np.testing.assert_allclose(h(x), want, rtol=1e-12)


def test_memory_of_a_deep_chain_is_smaller():
    x = np.ones((128, 128), np.float32)

    def layer(x, _):
        for _ in range(4):
            x = jnp.sin(x) * jnp.cos(x)
        return x, None

    def arena(wrap):
        f = wrap(lambda x: layer(x, None)[0])

        def loss(x):
            for _ in range(6):
                x = f(x)
            return x.sum()

        return fxad.jit(fxad.grad(loss)).lower(x).plan.arena_bytes

    assert arena(fxad.checkpoint) < arena(lambda f: f) / 2
    scanned = fxad.grad(lambda x: lax.scan(fxad.checkpoint(layer), x, None, length=6)[0].sum())
    plain = fxad.grad(lambda x: lax.scan(layer, x, None, length=6)[0].sum())
    small, large = (fxad.jit(f).lower(x).plan.arena_bytes for f in (scanned, plain))
    assert small < large / 2


# ---------------------------------------------------------------- outside jit


def counted():
    """A function of x whose inner value is computed by a callback that counts its calls."""
    calls = []

    def square(x):
        calls.append(1)
        return x * x

    def f(x):
        inner = fxad.debug.pure_callback(square, x, fxad.lax.stop_gradient(x))
        return jnp.sum(jnp.sin(x) * fxad.checkpoint_name(inner, "inner"))

    return f, calls


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(
    ("policy", "times"), [("nothing_saveable", 2), ("everything_saveable", 1), (None, 2)]
)
def test_gradients_recompute_inside_and_outside_jit(policy, times, staged):
    f, calls = counted()
    g = fxad.value_and_grad(fxad.checkpoint(f, policy=policy))
    x = np.arange(3.0)
    _, got = (fxad.jit(g) if staged else g)(x)
    np.testing.assert_allclose(got, np.cos(x) * x * x)
    assert len(calls) == times


def test_without_a_derivative_nothing_is_recomputed():
    f, calls = counted()
    fxad.checkpoint(f)(np.arange(3.0))
    assert len(calls) == 1


def test_captured_values_get_their_gradients_outside_jit():
    def loss(x, w):
        return fxad.checkpoint(lambda x: jnp.sum(jnp.sin(x @ w)))(x) + jnp.sum(w)

    want = X.T @ np.cos(X @ W) + 1
    np.testing.assert_allclose(fxad.grad(loss, argnums=1)(X, W), want)
    np.testing.assert_allclose(fxad.jit(fxad.grad(loss, argnums=1))(X, W), want)


@pytest.mark.parametrize("staged", [False, True])
def test_effects_happen_once(staged):
    seen = []

    def f(x):
        fxad.debug.callback(lambda v: seen.append(float(v)), x)
        y = fxad.debug.io_callback(lambda v: (seen.append("io"), v * 2)[1], x, x)
        return jnp.sin(x) * fxad.lax.stop_gradient(y)

    f = fxad.custom_jvp(f)
    f.defjvp(lambda p, t: (jnp.sin(p[0]), jnp.cos(p[0]) * t[0]))

    def g(x):
        fxad.debug.callback(lambda v: seen.append(float(v)), fxad.lax.stop_gradient(x))
        return jnp.sin(jnp.sin(x))

    h = fxad.grad(fxad.checkpoint(g))
    (fxad.jit(h) if staged else h)(0.5)
    assert seen == [0.5]


def test_functions_that_look_at_values_run_as_they_are():
    def f(x):
        return x * 2 if x > 0 else x * 3

    assert float(fxad.grad(fxad.checkpoint(f))(1.0)) == 2.0
    assert float(fxad.grad(fxad.checkpoint(f))(-1.0)) == 3.0
    with pytest.raises(TypeError, match="concrete"):
        fxad.jit(fxad.grad(fxad.checkpoint(f)))(1.0)


# ---------------------------------------------------------------- compression


def test_compressed_values_are_rounded_to_bfloat16():
    x = R.standard_normal((3, 4)).astype(np.float32)
    f = fxad.checkpoint(lambda x: jnp.sum(jnp.sin(x) ** 3), compress="bf16")
    g = fxad.jit(fxad.grad(f))
    exact = 3 * np.sin(x) ** 2 * np.cos(x)
    got = np.asarray(g(x))
    # Two factors, each rounded to 8 bits of mantissa.
    np.testing.assert_allclose(got, exact, rtol=2.1 * 2.0**-8, atol=1e-6)
    assert np.abs(got - exact).max() > 0
    assert ops(fxad.grad(f), x).count("convert") >= 2

    h = fxad.jit(fxad.grad(fxad.checkpoint(lambda x: jnp.sum(jnp.sin(x)), compress="bf16")))
    np.testing.assert_array_equal(
        h(x), np.asarray(fxad.jit(jnp.cos)(x)).astype(ml_dtypes.bfloat16).astype(np.float32)
    )


def test_results_are_not_rounded():
    x = R.standard_normal(7).astype(np.float32)
    f = fxad.checkpoint(jnp.exp, compress="bf16")
    value, pullback = fxad.vjp(f, x)
    np.testing.assert_allclose(value, np.exp(x), rtol=1e-6)
    rounded = np.exp(x).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(pullback(np.ones_like(x))[0], rounded, rtol=2.0**-8)


# ---------------------------------------------------------------- errors


def test_wrong_options():
    with pytest.raises(BadArgument, match="unknown policy 3"):
        fxad.checkpoint(jnp.sin, policy=3)
    with pytest.raises(BadArgument, match="compress must be one of 'bf16', not 'zip'"):
        fxad.checkpoint(jnp.sin, compress="zip")
    with pytest.raises(BadArgument, match="a name is a string, not int"):
        fxad.checkpoint_name(X, 3)
    with pytest.raises(BadArgument, match="names are strings, not int"):
        policies.save_only_these_names(1)
    with pytest.raises(BadArgument, match="in both lists"):
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["a"], names_which_can_be_offloaded=["a"]
        )
    with pytest.raises(BadArgument, match="'host' or 'disk', not 'moon'"):
        policies.offload_dot_with_no_batch_dims("device", "moon")


def test_a_call_at_once_is_of_arrays():
    seen = []

    def f(x, n, y=1.0):
        seen.append((isinstance(x, fxad.Array), n, isinstance(y, fxad.Array)))
        return {"sum": x + 1, "y": y}

    found = fxad.checkpoint(f, static_argnums=-1)(np.ones(2, np.float32), "static", y=2.0)
    assert seen == [(True, "static", True)]
    assert found["sum"].tolist() == [2.0, 2.0] and found["y"].weak_type
    assert isinstance(fxad.checkpoint(lambda x: x * 2)(1.0), fxad.Array)
