"""Budgets of checkpoints: what is kept, in chains and in the trips of loops; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from budgets import WS, X, layer, leaves, loss

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, SizeError

pytestmark = pytest.mark.usefixtures("no_idle_session")


@pytest.mark.parametrize("share", [1.0, 0.5, 0.2, 0.01])
def test_a_checkpoints_budget_is_what_it_keeps(share):
    def block(x, w):
        for _ in range(3):
            x = layer(x, w)
        return x

    def total(wrap):
        def f(x, ws):
            for w in ws[:3]:
                x = wrap(block)(x, w)
            return jnp.sum(x * x)

        return fxad.value_and_grad(f, argnums=(0, 1))

    kept = 3 * 5 * X.nbytes  # per layer: product, tanh, sine, cosine, result
    budget = max(int(kept * share), 1)
    step = fxad.jit(total(lambda f: fxad.checkpoint(f, budget=budget)))
    plain = fxad.jit(total(lambda f: f))
    for got, want in zip(leaves(step(X, WS)), leaves(plain(X, WS)), strict=True):
        np.testing.assert_array_equal(got, want)
    arenas = [f.lower(X, WS).plan.arena_bytes for f in (step, plain)]
    assert "within" not in str(step.lower(X, WS).program)
    if share <= 0.2:  # three regions' kept values and one region's own
        assert arenas[0] < arenas[1] * 0.6
    smallest = fxad.jit(total(fxad.checkpoint)).lower(X, WS).plan.arena_bytes
    assert arenas[0] <= smallest + 3 * budget + X.nbytes


def test_dear_values_are_kept_first():
    def f(x, w):
        return jnp.sum(jnp.sin(jnp.tanh(x @ w)))

    step = fxad.jit(fxad.value_and_grad(fxad.checkpoint(f, budget=X.nbytes)))
    names = [e.op.name for e in step.lower(X, WS[0]).program.eqns]
    assert names.count("dot") == 2  # forward, and the one of the gradient
    assert (
        fxad.jit(fxad.value_and_grad(fxad.checkpoint(f))).lower(X, WS[0]).as_text().count("dot(")
        == 3
    )


def forced(**options):
    """A gradient whose checkpoint keeps what Python gave it: that cannot be recomputed."""

    def block(x, w):
        for _ in range(4):
            noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
            x = jnp.sin(x @ w * noise)
        return x

    wrapped = fxad.checkpoint(block, **options) if options else block
    return fxad.jit(fxad.value_and_grad(lambda x, w: jnp.sum(wrapped(x, w) ** 2)))


@pytest.mark.parametrize("place", [None, "disk", "host"])
def test_what_cannot_be_computed_again_goes_elsewhere(place):
    step = forced(budget=X.nbytes + 8192, offload=place)
    program = step.lower(X, WS[0]).program
    places = {e.params["place"] for e in program.eqns if e.op.name == "put"}
    assert places == {place or "disk"}
    for got, want in zip(leaves(step(X, WS[0])), leaves(forced()(X, WS[0])), strict=True):
        np.testing.assert_array_equal(got, want)


def test_rounding_is_chosen_where_allowed_and_cheapest():
    step = forced(budget=int(2.5 * X.nbytes), compress="bf16")
    program = step.lower(X, WS[0]).program
    halves = [
        e for e in program.eqns if e.op.name == "convert" and "bf16" in str(e.outputs[0].type)
    ]
    assert halves and not any(e.op.name == "put" for e in program.eqns)
    got, want = step(X, WS[0]), forced()(X, WS[0])
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=0.02, atol=0.02 * np.abs(want[1]).max())
    both = forced(budget=X.nbytes // 4, compress="bf16").lower(X, WS[0]).program
    assert any(e.op.name == "put" for e in both.eqns)  # halves would still be too much
    unasked = forced(budget=int(2.5 * X.nbytes)).lower(X, WS[0]).program
    assert "bf16" not in str(unasked)


def test_rounding_in_chains_keeps_results_close():
    x, ws = X.astype(np.float64), [w.astype(np.float64) for w in WS]
    with fxad.enable_x64():
        step = fxad.jit(
            fxad.value_and_grad(fxad.checkpoint(loss, budget=3 * x.nbytes, compress="bf16"))
        )
        got, want = step(x, ws), fxad.jit(fxad.value_and_grad(loss))(x, ws)
    np.testing.assert_allclose(got[1], want[1], atol=0.03 * np.abs(want[1]).max())


def test_options_reach_a_decorated_function():
    @fxad.checkpoint(budget="100KB")
    def block(x, w):
        return jnp.sin(jnp.tanh(x @ w))

    text = str(fxad.make_ir(fxad.grad(lambda x, w: jnp.sum(block(x, w))))(X, WS[0]))
    assert "budget=100000" in text


def test_a_checkpoints_budget_that_cannot_be_met_names_values():
    rows = X[:4]  # too small to be offloaded

    step = forced(budget=64)
    with pytest.raises(SizeError, match=r"checkpoint does not fit its budget of 64 bytes") as info:
        step(rows, WS[0])
    assert "host: f32[4,64] (test_budget_checkpoints.py:" in str(info.value)
    assert "has an effect" in str(info.value)


def scanned(wrap, reverse=False, layer=layer):
    def f(x, stacked, scale):
        def trip(x, w):
            y = layer(x, w) * scale
            return y, jnp.sum(y * w[0, 0])

        x, sums = lax.scan(wrap(trip), x, stacked, reverse=reverse)
        return jnp.sum(x * x) + jnp.sum(sums * sums)

    return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1, 2)))


STACKED, SCALE = np.stack(WS), np.float32(1.1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("share", [5, 3, 1, 0.01])
def test_budgets_of_a_scans_trips(share, reverse):
    budget = int(share * X.nbytes)
    step = scanned(lambda f: fxad.checkpoint(f, budget=budget), reverse)
    plain = scanned(lambda f: f, reverse)
    for got, want in zip(*(leaves(f(X, STACKED, SCALE)) for f in (step, plain)), strict=True):
        np.testing.assert_array_equal(got, want)
    arena, whole = (f.lower(X, STACKED, SCALE).plan.arena_bytes for f in (step, plain))
    assert "within" not in str(step.lower(X, STACKED, SCALE).program)
    state = X.nbytes  # what a trip is given is kept in any case
    assert arena <= len(WS) * (budget + state + 8192) + 13 * X.nbytes
    assert arena <= whole


def repeated(wrap):
    def f(x, w, n):
        trip = wrap(lambda x: layer(x, w) + 0.5 * x)
        return jnp.sum(lax.fori_loop(0, n, lambda i, x: trip(x), x) ** 2)

    return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)))


@pytest.mark.parametrize("share", [5, 3, 1, 0.01])
def test_budgets_of_the_trips_of_a_loop_of_unknown_length(share):
    step = repeated(lambda f: fxad.checkpoint(f, budget=int(share * X.nbytes)))
    plain = repeated(lambda f: f)
    for n in (0, 1, 12):
        for got, want in zip(*(leaves(f(X, WS[0], n)) for f in (step, plain)), strict=True):
            np.testing.assert_array_equal(got, want)
    lowered = step.lower(X, WS[0], 12)
    assert "within" not in str(lowered.program)
    used, whole = (f.lower(X, WS[0], 12).executable.stats()["tape_bytes"] for f in (step, plain))
    slots = 4 + 8  # slabs double
    assert used <= slots * (share + 1) * X.nbytes + slots * 8192
    assert used <= whole


@pytest.mark.parametrize(
    "options", [{"offload": "host"}, {"offload": "disk"}, {"compress": "bf16"}]
)
def test_budgets_of_such_trips_with_effects(options):
    def noisy(wrap):
        def trip(x, w):
            noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
            return jnp.sin(jnp.tanh(x @ w) * noise)

        def f(x, w, n):
            return jnp.sum(lax.fori_loop(0, n, lambda i, x: wrap(trip)(x, w), x))

        return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)))

    step = noisy(lambda f: fxad.checkpoint(f, budget=X.nbytes // 2 + 4096, **options))
    for got, want in zip(
        *(leaves(f(X, WS[0], 20)) for f in (step, noisy(lambda f: f))), strict=True
    ):
        if "compress" in options:
            np.testing.assert_allclose(got, want, atol=0.05 * np.abs(want).max())
        else:
            np.testing.assert_array_equal(got, want)
    text = str(step.lower(X, WS[0], 3).program)
    assert ("bf16[" if "compress" in options else "put(") in text


def test_budgets_of_trips_with_effects_go_elsewhere():
    def noisy(x, w):
        noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
        fxad.debug.callback(seen.append, 1)
        return jnp.sin(jnp.tanh(x @ w) * noise)

    seen: list[int] = []
    plain = scanned(lambda f: f, layer=noisy)(X, STACKED, SCALE)
    for options, mark in (
        ({}, "put("),
        ({"offload": "host"}, "put("),
        ({"compress": "bf16"}, "bf16["),
    ):
        seen.clear()
        budget = X.nbytes // 2 + 4096
        step = scanned(lambda f, o=options: fxad.checkpoint(f, budget=budget, **o), layer=noisy)
        got = step(X, STACKED, SCALE)
        assert len(seen) == len(WS)
        assert mark in str(step.lower(X, STACKED, SCALE).program)
        for one, two in zip(leaves(got), leaves(plain), strict=True):
            if "compress" in options:
                np.testing.assert_allclose(one, two, atol=0.05 * np.abs(two).max())
            else:
                np.testing.assert_array_equal(one, two)
    seen.clear()
    with pytest.raises(SizeError, match=r"host: f32\[4,64\].*has an effect"):
        scanned(lambda f: fxad.checkpoint(f, budget=64), layer=noisy)(X[:4], STACKED, SCALE)


def test_budgets_of_checkpoints_that_mean_nothing():
    with pytest.raises(BadArgument, match="checkpoint: budget must be a number of bytes"):
        fxad.checkpoint(loss, budget="plenty")
    with pytest.raises(BadArgument, match="offload must be one of"):
        fxad.checkpoint(loss, budget=100, offload="tape")
