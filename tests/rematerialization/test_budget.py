"""Memory budgets: plans that fit, the same bits, predictions that hold, errors that name values."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from attempts import fit, plan
from budgets import WS, R, X, layer, leaves, loss
from high_water import measured

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.compiler import simplified
from fxad.core.errors import BadArgument, SizeError
from fxad.ir.cost import peak_bytes
from fxad.rematerialization import budget

pytestmark = pytest.mark.usefixtures("no_idle_session")

GRAD = fxad.value_and_grad(loss, argnums=(0, 1))
PLAIN = fxad.jit(GRAD)
HELD = 2 * (X.nbytes + sum(w.nbytes for w in WS)) + 4  # arguments and results


def unlimited() -> int:
    return PLAIN.lower(X, WS).memory()["predicted_bytes"]


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_gradients_fit_and_are_the_same_bits(share):
    budget = int(HELD + (unlimited() - HELD) * share)
    step = fxad.jit(GRAD, memory_budget=budget)
    memory = step.lower(X, WS).memory()
    assert memory["predicted_bytes"] <= budget
    for got, want in zip(leaves(step(X, WS)), leaves(PLAIN(X, WS)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_without_need_nothing_changes():
    step = fxad.jit(GRAD, memory_budget="1GiB")
    assert str(step.lower(X, WS).program) == str(PLAIN.lower(X, WS).program)


def test_recomputing_alone_and_with_the_disk():
    program = simplified(PLAIN.lower(X, WS).traced)
    whole = peak_bytes(plan(program), program)
    budget = int(HELD + (whole - HELD) * 0.4)
    computed, _ = fit(program, budget)
    stored, _ = fit(program, budget, ways=("disk",))
    assert not any(e.op.name == "put" for e in computed.eqns)
    assert peak_bytes(plan(stored), stored) <= budget

    # What cannot be recomputed can still be put on disk.
    def opaque(x, w):
        for _ in range(5):
            noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
            x = jnp.sin(x @ w * noise)
        return jnp.sum(x)

    traced = simplified(fxad.jit(fxad.grad(opaque)).lower(X, WS[0]).traced)
    budget = int(peak_bytes(plan(traced), traced) * 0.65)
    with pytest.raises(SizeError):
        fit(traced, budget)
    fitted, _ = fit(traced, budget, ways=("disk",))
    assert any(e.op.name == "put" for e in fitted.eqns)
    got = fxad.jit(fxad.grad(opaque), memory_budget=budget)(X, WS[0])
    np.testing.assert_array_equal(got, fxad.jit(fxad.grad(opaque))(X, WS[0]))


@pytest.fixture
def set_threads():
    before = fxad.get_num_threads()
    yield fxad.set_num_threads
    fxad.set_num_threads(before)


def attention(q, k, v):
    return jnp.sum(fxad.nn.dot_product_attention(q, k, v, is_causal=True) ** 2)


def convolution(x, w):
    return jnp.sum(jnp.tanh(lax.conv(x, w, (1, 1), "SAME")) ** 2)


def recurrence(x, w):
    def step(c, row):
        c = jnp.tanh(c @ w + row)
        return c, jnp.sin(c)

    return jnp.sum(lax.scan(step, jnp.zeros_like(x[0]), x)[1])


def settled(x, w):
    return lax.while_loop(lambda y: jnp.sum(y * y) > 1, lambda y: jnp.tanh(y @ w) * 0.5, x)


def normalised(x, w):
    return jnp.sum(jnp.log(jnp.linalg.norm(jnp.sort(x @ w, axis=1), axis=0)))


def normal(*shape):
    return R.standard_normal(shape).astype(np.float32)


PROGRAMS = {
    "attention": (fxad.grad(attention, (0, 1, 2)), [normal(2, 512, 8, 64)] * 3),
    "convolution": (fxad.grad(convolution, (0, 1)), [normal(4, 8, 96, 96), normal(16, 8, 5, 5)]),
    "recurrence": (fxad.grad(recurrence, (0, 1)), [normal(64, 64, 128), normal(128, 128) / 20]),
    "settled": (settled, [normal(2048, 512), normal(512, 512) / 50]),
    "normalised": (fxad.value_and_grad(normalised), [normal(1024, 512), normal(512, 512)]),
    "layers": (GRAD, [normal(1024, 512), [normal(512, 512) / 30 for _ in range(6)]]),
    "offloaded": (
        fxad.grad(lambda x, ws: loss_of(fxad.checkpoint(layer, offload="disk"), x, ws)),
        [normal(1024, 512), [normal(512, 512) / 30 for _ in range(6)]],
    ),
}


def loss_of(layer, x, ws):
    for w in ws:
        x = layer(x, w)
    return jnp.sum(x * x)


@pytest.mark.parametrize(
    ("name", "threads"), [*((name, 3) for name in PROGRAMS), ("attention", 1), ("layers", 1)]
)
def test_the_prediction_is_the_allocators_high_water_mark(name, threads, set_threads):
    set_threads(threads)  # every thread has scratch of its own
    function, args = PROGRAMS[name]
    step = fxad.jit(function)
    memory = step.lower(*args).memory()
    assert memory["predicted_bytes"] > 5_000_000  # far above what the allocator does not see
    assert measured(step, *args) == pytest.approx(memory["predicted_bytes"], rel=0.1)
    assert step.lower(*args).memory()["resident_bytes"] > memory["predicted_bytes"]


def test_within_a_budget_the_prediction_holds_and_counts_scratch(set_threads):
    set_threads(3)
    x, ws = PROGRAMS["layers"][1]
    budget = 34_000_000
    step = fxad.jit(GRAD, memory_budget=budget)
    memory = step.lower(x, ws).memory()
    assert memory["scratch_bytes"] > 0
    assert memory["predicted_bytes"] <= budget
    seen = measured(step, x, ws)
    assert seen == pytest.approx(memory["predicted_bytes"], rel=0.1)
    assert seen <= 1.1 * budget


def test_more_threads_bring_more_scratch_into_the_budget(set_threads):
    x, ws = PROGRAMS["layers"][1]
    set_threads(1)
    budget = fxad.jit(GRAD).lower(x, ws).memory()["predicted_bytes"]
    for threads in (1, 16):
        set_threads(threads)
        step = fxad.jit(GRAD, memory_budget=budget)
        assert step.lower(x, ws).memory()["predicted_bytes"] <= budget


def test_a_budget_that_cannot_be_met_names_what_prevents_it():
    ws = WS[:2]
    held = 2 * (X.nbytes + sum(w.nbytes for w in ws)) + 4
    step = fxad.jit(GRAD, memory_budget=held + 100_000)
    with pytest.raises(SizeError, match=r"does not fit a memory budget of .*B: the least") as info:
        step(X, ws)
    assert "f32[256,64] (budgets.py:" in str(info.value)
    with pytest.raises(SizeError, match="arguments and results take"):
        fxad.jit(lambda x: x + 1, memory_budget=100)(X)
    for wrong in ("lots", 0, -5, 1.5):
        with pytest.raises(BadArgument, match="memory_budget must be"):
            fxad.jit(loss, memory_budget=wrong)


@functools.cache
def two_layers():
    """A gradient's program and the most it takes."""
    program = simplified(PLAIN.lower(X, WS[:2]).traced)
    return program, peak_bytes(plan(program), program)


@functools.cache
def refused(share):
    """What is said of a share of that which is too small; the programs planned on the way."""
    planned = []

    def noted(attempt):
        planned.append(attempt.program.key())
        return tried_of(attempt)

    tried_of = budget._Tried.of
    program, whole = two_layers()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SizeError) as info:
        patch.setattr(budget._Tried, "of", noted)
        fit(program, int(whole * share), ways=("disk",))
    return str(info.value), planned


@pytest.mark.slow
def test_the_least_is_the_least_whatever_was_asked_for():
    """And it is met when it is asked for."""
    program, _ = two_layers()
    least = {
        re.search("the least found is (.*?) kB, of which", refused(share)[0]).group(1)
        for share in (0.1, 0.5)
    }
    (named,) = least
    asked = (int(named) + 1) * 1000  # it is printed rounded
    smaller, fitted = fit(program, asked, ways=("disk",))
    assert peak_bytes(fitted, smaller) <= asked


def test_few_programs_are_planned_again():
    """A search tries the same programs for one target after another; their peaks are known."""
    _, planned = refused(0.1)
    again = len(planned) - len(set(planned))
    assert len(planned) > 20
    assert again <= len(planned) / 4


def test_loops_and_branches_are_kept_whole():
    def f(x):
        y = lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0]
        z = lax.cond(jnp.sum(x) > 0, jnp.sin, jnp.cos, y)
        for _ in range(12):
            z = jnp.tanh(z) * jnp.exp(-z)
        return jnp.sum(z * y)

    plain = fxad.jit(fxad.grad(f))
    whole = plain.lower(X).memory()["predicted_bytes"]
    step = fxad.jit(fxad.grad(f), memory_budget=int(whole * 0.85))
    np.testing.assert_array_equal(step(X), plain(X))
    assert step.lower(X).memory()["predicted_bytes"] <= whole * 0.85


def test_donated_arguments_count_once():
    def step(x, ws):
        value, grads = fxad.value_and_grad(loss, argnums=1)(x, ws)
        return value, [w - 0.1 * g for w, g in zip(ws, grads, strict=True)]

    donating = fxad.jit(step, donate_argnums=1).lower(X, WS).memory()["predicted_bytes"]
    copying = fxad.jit(step).lower(X, WS).memory()["predicted_bytes"]
    assert donating <= copying - sum(w.nbytes for w in WS) + 4096 * len(WS)


def test_memory_for_values_on_their_way_holds_the_largest():
    x, w = np.ones((512, 512), np.float32), np.eye(512, dtype=np.float32)

    def f(x, w):
        for _ in range(6):
            noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
            x = jnp.sin(x @ w * noise)
        return jnp.sum(x)

    plain = fxad.jit(fxad.grad(f))
    step = fxad.jit(fxad.grad(f), memory_budget=int(7.9 * x.nbytes))
    lowered = step.lower(x, w)
    sizes = [e.params["memory"] for e in lowered.program.eqns if e.op.name == "put"]
    assert sizes and min(sizes) >= x.nbytes
    assert lowered.memory()["offload_bytes"] >= x.nbytes
    np.testing.assert_array_equal(step(x, w), plain(x, w))


def test_a_training_step_is_relieved_where_it_is_fullest_as_it_runs():
    """Its updates come last in the program, where all gradients wait, but run early."""
    weights = [(R.standard_normal((256, 256)) / 16).astype(np.float32) for _ in range(12)]
    moments = [np.zeros_like(w) for w in weights]
    x = R.standard_normal((32, 256)).astype(np.float32)

    def loss(ws, x):
        for w in ws:
            x = x + jnp.tanh(x @ w) * jnp.cos(x @ w)
        return jnp.sum(x * x)

    def step(ws, moments, x):
        grads = fxad.grad(loss)(ws, x)
        moments = [0.9 * m + g for m, g in zip(moments, grads, strict=True)]
        return [w - 1e-3 * m for w, m in zip(ws, moments, strict=True)], moments

    donated = frozenset(range(24))
    program = simplified(fxad.jit(step).lower(weights, moments, x).traced)
    made = plan(program, donate=donated)
    budget = int(0.93 * peak_bytes(made, program))
    smaller, fitted = fit(program, budget, donate=donated)
    assert peak_bytes(fitted, smaller) <= budget
