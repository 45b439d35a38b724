"""What differentiated loops cost: time beside the loop's own, and bytes kept per trip."""

from __future__ import annotations

import time

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax

X, W = np.float32(0.3), np.float32(0.9)


def scan(n):
    def run(c, w):
        return lax.scan(lambda c, _: (jnp.sin(c) * w + 0.1 * c, None), c, None, length=n)[0]

    return run


def seconds(f, *args) -> float:
    """The least of several runs."""
    np.asarray(f(*args))
    found = []
    for _ in range(7):
        start = time.perf_counter()
        np.asarray(f(*args))
        found.append(time.perf_counter() - start)
    return min(found)


@pytest.fixture(scope="module")
def times() -> dict[int, tuple[float, float, float]]:
    """Forward, gradient and second derivative, by length."""
    found = {}
    for n in (10_000, 100_000):
        f = scan(n)
        orders = (f, fxad.grad(f), fxad.grad(fxad.grad(f)))
        found[n] = tuple(seconds(fxad.jit(g), X, W) for g in orders)
    return found


def test_a_gradient_of_a_scan_costs_at_most_six_times_its_forward(times) -> None:
    forward, gradient, second = times[100_000]
    assert gradient <= 6 * forward
    assert second <= 20 * forward


def test_times_are_linear_in_the_length(times) -> None:
    for short, long in zip(times[10_000], times[100_000], strict=True):
        assert long < 25 * short  # ten, but for noise and caches


def test_residuals_are_what_changes_from_trip_to_trip() -> None:
    """Per trip one number that depends on the carry; what depends on the weight alone, once."""
    n, size = 1_000, 64

    def f(c, w):
        def step(c, _):
            return jnp.sin(c) * jnp.exp(w), None

        return lax.scan(step, c, None, length=n)[0].sum()

    c, w = np.ones(size, np.float32), np.ones(size, np.float32)
    plan = fxad.jit(fxad.grad(f)).lower(c, w).plan
    assert plan.arena_bytes <= 4 * size * (n + 16)
    both = fxad.jit(fxad.grad(f, (0, 1))).lower(c, w).plan
    assert both.arena_bytes <= 4 * size * (2 * n + 16)


def test_a_weight_inside_a_loop_is_not_stacked() -> None:
    n, size = 100, 64
    weight = np.eye(size, dtype=np.float32)

    def f(c, weight):
        return lax.scan(lambda c, _: (jnp.tanh(weight @ c), None), c, None, length=n)[0].sum()

    plan = fxad.jit(fxad.grad(f, (0, 1))).lower(np.ones(size, np.float32), weight).plan
    assert plan.arena_bytes < 4 * size * (3 * n + 2 * size + 64)  # a stack would take 4 n size^2
