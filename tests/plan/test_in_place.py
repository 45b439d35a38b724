"""Updates of a few elements of a large array in loops cost the update, forward and backward."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.ir.plan import Copy, Loop, Run, While, walk

TRIPS, SMALL, LARGE = 7, 100, 100_000


def one_element(i, x, v):
    return x.at[i].set(jnp.sin(v * x[i]) + i)


def added(i, x, v):
    return x.at[i].add(x[i + 1] * v)


def window(i, x, v):
    return lax.dynamic_update_slice(x, v * lax.dynamic_slice(x, (i,), (3,)), (i + 1,))


def two_updates(i, x, v):
    x = x.at[i].set(v * x[i + 2])
    return x.at[i + 1].mul(v)


def by_fori(step, trips):
    return lambda x, v: lax.fori_loop(0, trips, lambda i, x: step(i, x, v), x)


def by_while(step, trips):
    def run(x, v):
        body = lambda s: (s[0] + 1, step(s[0], s[1], v))  # noqa: E731
        return lax.while_loop(lambda s: s[0] < trips + v.astype(int), body, (0, x))[1]

    return run


def largest_in_loops(f, *args) -> int:
    """The most elements that a step inside a loop touches."""
    found = [0]
    for step in walk(fxad.jit(f).lower(*args).plan.steps):
        if isinstance(step, Loop | While):
            for inner in walk(step.body):
                if isinstance(inner, Copy):
                    found.append(inner.dst.type.size)
                elif isinstance(inner, Run):
                    found.append(inner.kernel.points)
    return max(found)


@pytest.mark.parametrize("loop", [by_fori, by_while])
@pytest.mark.parametrize("step", [one_element, added, window, two_updates])
def test_growth(loop, step) -> None:
    v = np.float32(0.3)

    def last(x, v):
        return loop(step, TRIPS)(x, v)[3] * 2.0

    for f in (loop(step, TRIPS), fxad.grad(last), fxad.grad(last, (0, 1))):
        sizes = {largest_in_loops(f, np.ones(n, np.float32), v) for n in (SMALL, LARGE)}
        assert max(sizes) <= 4, f"a trip touches {sizes} elements of arrays {SMALL} and {LARGE}"


@pytest.mark.parametrize("loop", [by_fori, by_while])
@pytest.mark.parametrize("step", [one_element, added, window, two_updates])
def test_numbers(loop, step) -> None:
    """Against NumPy forward, against differences backward."""
    with fxad.enable_x64():
        x, v = np.random.default_rng(0).uniform(0.5, 1.5, 12), np.asarray(0.3)

        def total(x, v):
            return (loop(step, TRIPS)(x, v) * jnp.arange(1.0, 13.0)).sum()

        with fxad.disable_jit():
            wanted = np.asarray(loop(step, TRIPS)(x, v))
        np.testing.assert_allclose(fxad.jit(loop(step, TRIPS))(x, v), wanted, rtol=1e-12)
        for run in (fxad.grad(total, (0, 1)), fxad.jit(fxad.grad(total, (0, 1)))):
            dx, dv = run(x, v)
            for k in range(12):
                e = 1e-6 * (np.arange(12) == k)
                slope = (total(x + e, v) - total(x - e, v)) / 2e-6
                np.testing.assert_allclose(dx[k], slope, rtol=1e-6, atol=1e-7)
            slope = (total(x, v + 1e-6) - total(x, v - 1e-6)) / 2e-6
            np.testing.assert_allclose(dv, slope, rtol=1e-6)


PLACES = np.array([3, 2, 0, 3])
UPDATES = {
    "add": lambda t: t.at[PLACES].add(t[PLACES[::-1]]),
    "max": lambda t: t.at[PLACES].max(2 * t[PLACES[::-1]]),
    "set": lambda t: t.at[PLACES[:3]].set(2 * t[PLACES[2::-1]]),
    "chain": lambda t: t.at[1].set(7.0).at[PLACES].add(t[PLACES[::-1]]),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_result_is_not_updated_where_the_update_still_reads_it(name, donated) -> None:
    """Updates of most elements are computed in the kernel that stores them: t, whose last use that
    is, must not lie where the result does."""

    def step(x):
        return UPDATES[name](jnp.sin(x))

    x = np.linspace(0.1, 1.5, 5, dtype=np.float32)
    want = step(jnp.asarray(x))  # op by op
    got = fxad.jit(step, donate_argnums=donated)(jnp.asarray(x))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_gradient_of_an_update_by_the_same_elements() -> None:
    """One plus what the moved elements add, -sin(x[j]) for each; the ones are updated in place."""

    def total(x):
        return x.at[PLACES].add(jnp.cos(x[PLACES[::-1]])).sum()

    x = np.linspace(0.1, 1.5, 5, dtype=np.float32)
    want = np.ones(5, np.float32)
    np.subtract.at(want, PLACES, np.sin(x[PLACES]))
    np.testing.assert_allclose(fxad.jit(fxad.grad(total))(x), want, rtol=1e-6)
