"""What `memory()` says of tapes of unknown length, against what runs then take."""

from __future__ import annotations

import numpy as np
import pytest
from high_water import measured

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument

X = np.ones((2048, 512), np.float32)  # small arenas do not come from the allocator
W = np.eye(512, dtype=np.float32) / 2


def alone(x, n):
    return lax.fori_loop(0, n, lambda i, x: jnp.sin(x @ W), x)


def twice(x, n):
    return lax.fori_loop(0, n, lambda i, x: alone(x, n - i), x)


def in_scan(x, n):
    return lax.scan(lambda x, _: (alone(x, n), None), x, None, length=4)[0]


def branching(x, n):
    step = lambda i, x: lax.cond(i >= 0, lambda x: jnp.sin(x @ W), jnp.cos, x)  # noqa: E731
    return lax.fori_loop(0, n, step, x)


def gradient(f):
    return fxad.jit(fxad.grad(lambda x, n: jnp.sum(f(x, n))))


@pytest.mark.slow
@pytest.mark.parametrize("form", [alone, in_scan, branching])
@pytest.mark.parametrize("n", [0, 1, 4, 5, 13])
def test_known_trips_give_the_bytes_that_are_taken(form, n):
    step = gradient(form)
    lowered = step.lower(X, n)
    predicted = lowered.memory(trips=n)
    seen = measured(step, X, n) + lowered.executable.stats()["tape_bytes"]
    # What a run before took at most is what later ones may take.
    assert lowered.memory()["tape_bytes"] == lowered.executable.stats()["tape_bytes"]
    if n >= 5:
        assert predicted["tape_bytes"] > 3 * X.nbytes
        assert seen == pytest.approx(predicted["predicted_bytes"], rel=0.1)
        assert seen == pytest.approx(lowered.memory()["predicted_bytes"], rel=0.1)


def test_the_bytes_of_a_fresh_run_are_exact():
    for n in (0, 1, 4, 5, 12, 13):
        step = gradient(lambda x, n: alone(x * 2, n))
        lowered = step.lower(X, n)
        before = lowered.executable.tape_bytes
        step(X, n)
        taken = lowered.executable.stats()["tape_bytes"]
        assert taken == max(before, lowered.memory(trips=n)["tape_bytes"])
    assert lowered.memory()["trip_bytes"] == X.nbytes


def test_loops_in_loops_take_a_number_for_each_depth():
    step = gradient(twice)
    lowered = step.lower(X, 4)
    step(X, 4)  # 4, 3, 2, 1 trips in 4
    taken = lowered.executable.stats()["tape_bytes"]
    assert taken == lowered.memory(trips=(4, 4))["tape_bytes"]
    assert lowered.memory(trips=4)["tape_bytes"] == taken
    assert lowered.memory(trips=(4, 40))["tape_bytes"] > 5 * taken
    assert lowered.memory(trips=(8, 4))["tape_bytes"] > 1.9 * taken


def test_lanes_are_bounded_by_the_longest():
    step = fxad.jit(fxad.vmap(fxad.grad(lambda x, n: jnp.sum(alone(x, n)))))
    xs, ns = np.stack([X] * 3), np.array([1, 2, 5], np.int32)
    step(xs, ns)
    lowered = step.lower(xs, ns)
    taken, bound = lowered.memory()["tape_bytes"], lowered.memory(trips=5)["tape_bytes"]
    assert 0 < taken <= bound
    step(xs, np.array([5, 5, 5], np.int32))
    assert lowered.memory()["tape_bytes"] == bound


def test_without_such_loops_there_is_nothing():
    lowered = fxad.jit(fxad.grad(lambda x: jnp.sum(jnp.sin(x)))).lower(X)
    assert lowered.memory(trips=10**6)["tape_bytes"] == lowered.memory()["trip_bytes"] == 0
    for wrong in (-1, 2.5, (), (3, "many")):
        with pytest.raises(BadArgument, match="trips is a number, or one for each depth"):
            lowered.memory(trips=wrong)
