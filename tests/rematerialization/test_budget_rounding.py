"""Budgets that may round: met where nothing else is enough, results untouched, gradients close."""

from __future__ import annotations

import numpy as np
import pytest
from high_water import measured

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, SizeError
from fxad.ir.inspection.columns import listing

pytestmark = pytest.mark.usefixtures("no_idle_session")

R = np.random.default_rng(5)
X = R.standard_normal((256, 64)).astype(np.float32)
W = (R.standard_normal((64, 64)) / 8).astype(np.float32)


def opaque(x, w):
    """What Python gives cannot be computed again: it is kept, offloaded or rounded."""
    noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
    return jnp.sin(x @ w * noise)


def in_line(x, w):
    for _ in range(6):
        x = opaque(x, w)
    return x


def in_scan(x, w):
    return lax.scan(lambda x, _: (opaque(x, w), None), x, None, length=12)[0]


FORMS = {"line": (in_line, 0.6), "scan": (in_scan, 0.5)}


def gradient(form, **options):
    loss = lambda x, w: jnp.sum(form(x, w) ** 2)  # noqa: E731
    return fxad.jit(fxad.value_and_grad(loss, argnums=(0, 1)), **options)


@pytest.mark.parametrize("name", FORMS)
def test_with_permission_a_budget_is_met_that_is_not_met_without(name):
    form, share = FORMS[name]
    plain = gradient(form)
    budget = int(share * plain.lower(X, W).memory()["predicted_bytes"])
    with pytest.raises(SizeError, match=r"f32\[256,64\] \(test_budget_rounding.py:\d+") as info:
        gradient(form, memory_budget=budget, offload="none").lower(X, W).memory()
    assert str(info.value).endswith('not allowed so far: offload="disk" and compress="bf16"')

    step = gradient(form, memory_budget=budget, offload="none", compress="bf16")
    lowered = step.lower(X, W)
    assert lowered.memory()["predicted_bytes"] <= budget
    assert "bf16[" in str(lowered.program) and "put(" not in str(lowered.program)
    assert measured(step, X, W) <= 1.1 * budget
    (value, grads), (same, exact) = step(X, W), plain(X, W)
    np.testing.assert_array_equal(value, same)
    for got, want in zip(grads, exact, strict=True):
        np.testing.assert_allclose(got, want, atol=0.03 * np.abs(want).max())
    assert any(np.any(np.asarray(g) != np.asarray(w)) for g, w in zip(grads, exact, strict=True))


def test_permission_takes_nothing_away():
    """Every budget that is met without rounding is met where it is allowed."""
    whole = gradient(in_line).lower(X, W).memory()["predicted_bytes"]
    met = ((0.9, "none"), (0.9, "disk"), (0.65, "none"), (0.65, "disk"), (0.5, "disk"))
    for share, offload in met:
        options = {"memory_budget": int(share * whole), "offload": offload}
        gradient(in_line, **options).lower(X, W).memory()
        found = gradient(in_line, compress="bf16", **options).lower(X, W).memory()
        assert found["predicted_bytes"] <= share * whole


def test_what_is_read_outside_of_backward_passes_keeps_its_bits():
    """Values of the forward pass that come back as results after it, and an optimizer's."""

    def step(x, w, m):
        def loss(w):
            hs = [x]
            for _ in range(8):
                hs.append(opaque(hs[-1], w))
            return jnp.sum(hs[-1] ** 2), hs[1:]

        (value, hs), g = fxad.value_and_grad(loss, has_aux=True)(w)
        seen = sum(jnp.sum(jnp.exp(h) * jnp.cos(x)) for h in hs[::2])
        return value, seen, m * 0.9 + g, m * 0.9

    plain = fxad.jit(step)
    whole = plain.lower(X, W, W).memory()["predicted_bytes"]
    limited = fxad.jit(step, memory_budget=int(0.75 * whole), compress="bf16", offload="none")
    assert "bf16[" in str(limited.lower(X, W, W).program)
    got, want = limited(X, W, W), plain(X, W, W)
    for number in (0, 1, 3):
        np.testing.assert_array_equal(got[number], want[number])
    np.testing.assert_allclose(got[2], want[2], atol=0.03 * np.abs(want[2]).max())


def test_what_is_recomputed_is_marked_so():
    program = gradient(in_line, memory_budget=890_000, offload="none").lower(X, W).program
    text = listing(program, ["kept"])
    assert "recomputed" in text and "saved" in text


def test_rounded_values_of_checkpoints_take_half_the_memory():
    def block(x, w):
        for _ in range(8):
            x = jnp.sin(x @ w)
        return x

    def arena(wrap):
        step = fxad.jit(fxad.grad(lambda x, w: jnp.sum(wrap(block)(x, w) ** 2), argnums=(0, 1)))
        return step.lower(X, W).plan.arena_bytes

    def keep(**options):
        return lambda f: fxad.checkpoint(f, **options)

    whole, half = arena(keep(policy="everything_saveable")), arena(keep(compress="bf16"))
    assert half < 0.7 * whole
    few = arena(keep(policy="dots_saveable"))
    assert arena(keep(policy="dots_saveable", compress="bf16")) < 0.8 * few


def test_a_checkpoint_whose_result_is_read_later_rounds_no_result():
    def f(x, w):
        y, pull = fxad.vjp(fxad.checkpoint(opaque, budget=X.nbytes, compress="bf16"), x, w)
        return jnp.tanh(y), pull(y)

    def g(x, w):
        y, pull = fxad.vjp(opaque, x, w)
        return jnp.tanh(y), pull(y)

    np.testing.assert_array_equal(fxad.jit(f)(X, W)[0], fxad.jit(g)(X, W)[0])


def test_a_checkpoint_may_be_kept_off_the_disk():
    def step(**options):
        wrapped = fxad.checkpoint(in_line, budget=X.nbytes, **options)
        return fxad.jit(fxad.grad(lambda x, w: jnp.sum(wrapped(x, w) ** 2)))

    assert "put(" in str(step().lower(X, W).program)
    with pytest.raises(SizeError, match=r"host: f32\[256,64\]"):
        step(offload="none").lower(X, W).memory()


def test_options_that_mean_nothing():
    for wrong in ({"compress": "zip"}, {"offload": "tape"}):
        with pytest.raises(BadArgument, match="jit: (compress|offload) must be one of"):
            fxad.jit(in_line, memory_budget="1GB", **wrong)
    for idle in ({"compress": "bf16"}, {"offload": "disk"}):
        with pytest.raises(BadArgument, match="say what memory_budget= may do: give a budget"):
            fxad.jit(in_line, **idle)
    with pytest.raises(BadArgument, match="memory_budget limits the host's memory"):
        fxad.jit(in_line, memory_budget="1GB", offload="host")
