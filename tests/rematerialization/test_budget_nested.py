"""Budgets in loops inside loops and in branches: the same bits, less memory, errors by name."""

from __future__ import annotations

import numpy as np
import pytest
from high_water import measured

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import SizeError

pytestmark = pytest.mark.usefixtures("no_idle_session")

R = np.random.default_rng(3)
X = R.standard_normal((128, 64)).astype(np.float32)
W = (R.standard_normal((64, 64)) / 8).astype(np.float32)
INNER, OUTER = 5, 4
KEPT = 4  # arrays of X's size that a step keeps, beside what it is given


def step(x, w):
    return jnp.tanh(x @ w) * jnp.sin(x) + 0.5 * jnp.cos(x)


def scan_in_scan(wrap, x, w, n):
    def inner(x, _):
        return wrap(step)(x, w), None

    def outer(x, scale):
        return lax.scan(inner, x * scale, None, length=INNER)[0], None

    return lax.scan(outer, x, jnp.linspace(0.9, 1.1, OUTER, dtype=x.dtype))[0]


def scan_in_while(wrap, x, w, n):
    def outer(i, x):
        return lax.scan(lambda x, _: (wrap(step)(x, w), None), x, None, length=INNER)[0]

    return lax.fori_loop(0, n, outer, x)


def while_in_scan(wrap, x, w, n):
    def outer(x, scale):
        return lax.fori_loop(0, n, lambda i, x: wrap(step)(x * scale, w), x), None

    return lax.scan(outer, x, jnp.linspace(0.9, 1.1, OUTER, dtype=x.dtype))[0]


def while_in_while(wrap, x, w, n):
    def outer(i, x):
        return lax.fori_loop(0, n + i, lambda i, x: wrap(step)(x, w), x)

    return lax.fori_loop(0, n, outer, x)


def branch_in_scan(wrap, x, w, n):
    def outer(x, i):
        some = wrap(step)
        ways = (lambda x: some(x, w), lambda x: x * 0.5, lambda x: some(jnp.exp(-x * x), w))
        return lax.switch((i + n) % 3, ways, x), None

    return lax.scan(outer, x, jnp.arange(2 * OUTER))[0]


def branch_in_while(wrap, x, w, n):
    def outer(i, x):
        return lax.cond((i + n) % 2 == 0, lambda x: wrap(step)(x, w), lambda x: x * 0.5, x)

    return lax.fori_loop(0, 2 * n, outer, x)


def loop_in_branch(wrap, x, w, n):
    def inner(x, _):
        return wrap(step)(x, w), None

    return lax.cond(n > 2, lambda x: lax.scan(inner, x, None, length=9)[0], jnp.sin, x)


def bare_branch(wrap, x, w, n):
    def some(x):
        for _ in range(5):
            x = step(x, w)
        return x

    return lax.cond(n > 2, wrap(some), jnp.sin, x)


FORMS = (
    scan_in_scan,
    scan_in_while,
    while_in_scan,
    while_in_while,
    branch_in_scan,
    branch_in_while,
    loop_in_branch,
    bare_branch,
)


def gradient(form, wrap):
    return fxad.jit(
        fxad.value_and_grad(lambda x, w, n: jnp.sum(form(wrap, x, w, n) ** 2), argnums=(0, 1))
    )


def leaves(tree):
    return [np.asarray(v) for v in fxad.tree.leaves(tree)]


def memory(step, *args):
    step(*args)
    lowered = step.lower(*args)
    return lowered.plan.arena_bytes + lowered.executable.stats()["tape_bytes"]


# All, one or none of what a step keeps fits: one for every form, all and none in turn.
@pytest.mark.parametrize(
    ("form", "share"),
    [(form, share) for n, form in enumerate(FORMS) for share in (1, (KEPT, 0.01)[n // 2 % 2])],
)
def test_budgets_in_nested_loops_and_branches(form, share):
    limited = gradient(form, lambda f: fxad.checkpoint(f, budget=int(share * X.nbytes)))
    plain = gradient(form, lambda f: f)
    assert "within" not in str(limited.lower(X, W, 3).program)
    for n in (0, 1, 3):
        for got, want in zip(leaves(limited(X, W, n)), leaves(plain(X, W, n)), strict=True):
            np.testing.assert_array_equal(got, want)
    used, whole = (memory(f, X, W, 6) for f in (limited, plain))
    assert used <= whole * {KEPT: 0.87, 1: 0.55, 0.01: 0.61}[share]


def test_gradients_are_those_of_differences():
    with fxad.enable_x64():
        x, w = X[:3].astype(np.float64), W.astype(np.float64)
        for form in FORMS:
            limited = gradient(form, lambda f: fxad.checkpoint(f, budget=x.nbytes))
            d = R.standard_normal(x.shape)
            ends = [limited(x + h * d, w, 3)[0] for h in (1e-6, -1e-6)]
            found = np.sum(np.asarray(limited(x, w, 3)[1][0]) * d)
            np.testing.assert_allclose(found, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


def noisy(x, w):
    noise = fxad.debug.io_callback(np.cos, x, lax.stop_gradient(x))
    return jnp.sin(jnp.tanh(x @ w) * noise)


def test_what_does_not_fit_is_named_in_inner_loops():
    def inner(x, _):
        return fxad.checkpoint(noisy, budget=64)(x, W), None

    def f(x):
        outer = lambda x, _: (lax.scan(inner, x, None, length=3)[0], None)  # noqa: E731
        return jnp.sum(lax.scan(outer, x, None, length=2)[0])

    with pytest.raises(SizeError, match=r"host: f32\[4,64\].*test_budget_nested.*has an effect"):
        fxad.jit(fxad.grad(f))(X[:4])


# ---------------------------------------------------------------- jit's budget


def long_scan(wrap, x, w, n):
    return lax.scan(lambda x, _: (wrap(step)(x, w), None), x, None, length=30)[0]


def of_known_length(form, **options):
    """Trips are known: what a tape takes only the run knows, and no budget of a jit counts it."""

    def f(x, w):
        return jnp.sum(form(lambda f: f, x, w, 3) ** 2)

    return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)), **options)


def learning(**options):
    """A loop whose trips hold forward and backward: what is full is the body."""

    def trip(w, x):
        def loss(w):
            y = x
            for _ in range(6):
                y = step(y, w)
            return jnp.sum(y * y)

        return w - 1e-4 * fxad.grad(loss)(w), None

    return fxad.jit(lambda x, w: lax.scan(trip, w, jnp.stack([x] * 4))[0], **options)


STEPS = {
    "a scan": lambda **o: of_known_length(long_scan, **o),
    "scan in scan": lambda **o: of_known_length(scan_in_scan, **o),
    "branch in scan": lambda **o: of_known_length(branch_in_scan, **o),
    "scan in branch": lambda **o: of_known_length(loop_in_branch, **o),
    "branch": lambda **o: of_known_length(bare_branch, **o),
    "gradients in a scan": learning,
}


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 0.5) for name in STEPS), ("a scan", 0.7), ("branch", 0.7)]
)
def test_memory_budgets_reach_loops_and_branches(name, share):
    plain = STEPS[name]()
    whole = plain.lower(X, W).memory()["predicted_bytes"]
    limited = STEPS[name](memory_budget=int(share * whole))
    found = limited.lower(X, W).memory()["predicted_bytes"]
    assert found <= share * whole
    assert measured(limited, X, W) == pytest.approx(found, rel=0.1)
    for got, want in zip(leaves(limited(X, W)), leaves(plain(X, W)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_memory_budgets_put_aside_what_no_trip_can_compute_again():
    def f(x, w):
        return jnp.sum(lax.scan(lambda x, _: (noisy(x, w), None), x, None, length=20)[0])

    plain = fxad.jit(fxad.grad(f, (0, 1)))
    whole = plain.lower(X, W).memory()["predicted_bytes"]
    limited = fxad.jit(fxad.grad(f, (0, 1)), memory_budget=int(0.4 * whole))
    assert "put(" in str(limited.lower(X, W).program)
    assert measured(limited, X, W) <= 0.44 * whole
    for got, want in zip(leaves(limited(X, W)), leaves(plain(X, W)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_memory_budget_that_cannot_be_met_names_what_trips_keep():
    with pytest.raises(
        SizeError, match=r"does not fit .*: f32\[128,64\] \(test_budget_nested.py:\d+"
    ):
        of_known_length(long_scan, memory_budget=300_000).lower(X, W).memory()


# ---------------------------------------------------------------- offloaded


@pytest.mark.parametrize("form", FORMS)
def test_offloaded_values_of_nested_loops_and_branches_leave_memory(form):
    keep = fxad.checkpoint_policies.dots_saveable
    away = gradient(form, lambda f: fxad.checkpoint(f, policy=keep, offload="disk"))
    kept = gradient(form, lambda f: fxad.checkpoint(f, policy=keep))
    text = str(away.lower(X, W, 3).program)
    assert text.count("put(") >= 1 <= text.count("take(")
    for n in (0, 1, 3):
        for got, want in zip(leaves(away(X, W, n)), leaves(kept(X, W, n)), strict=True):
            np.testing.assert_array_equal(got, want)
    small, large = (memory(f, X, W, 6) for f in (away, kept))
    assert small <= large * (0.81 if form in (bare_branch, branch_in_scan) else 0.6)
