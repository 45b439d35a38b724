"""Where loops keep what their reverse reads: `tape=`, and the offload marks inside loops."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import BadArgument, StorageError
from fxad.runtime import session

R = np.random.default_rng(1)
X = R.standard_normal((16, 32)).astype(np.float32)
W = (R.standard_normal((32, 32)) / 6).astype(np.float32)
SMALL = R.standard_normal(5).astype(np.float32)
TAPE = lax.tape("disk", memory="1MB")


@pytest.fixture(autouse=True)
def _no_idle_session():
    session.trim()  # of a test of another module
    yield
    session.trim()


def trip(i, x, w):
    return jnp.tanh(x @ w) * jnp.sin(x) + 0.5 * x + 0.01 * i


def gradient(tape, **options):
    """Of a loop of n trips, n known only when it runs."""

    def f(x, w, n):
        return jnp.sum(
            lax.fori_loop(0, n, lambda i, x: trip(i, x, w), x, tape=tape, **options) ** 2
        )

    return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)))


def same(step, plain, *args):
    for got, want in zip(*(fxad.tree.leaves(f(*args)) for f in (step, plain)), strict=True):
        np.testing.assert_array_equal(got, want)


def placed(text: str) -> tuple[int, int]:
    return text.count("put("), text.count("take(")


ROWS = 12  # trips offloaded at once: 1 MB / 8 over five blocks of 2 kB


@pytest.mark.parametrize("place", ["disk", "host", "memory"])
def test_gradients_are_the_same_bits_for_any_number_of_trips(place):
    tape = lax.tape(place, memory="1MB") if place == "disk" else lax.tape(place)
    step, plain = gradient(tape), gradient(None)
    for n in (0, 1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS, 1000):
        same(step, plain, X, W, n)
    text = str(step.lower(X, W, 3).program)
    assert placed(text) == ((0, 0) if place == "memory" else (5, 5))
    assert place == "memory" or "tape_write" not in text


def test_the_tape_goes_to_disk_under_its_budget():
    step = gradient(TAPE)
    step(X, W, 2000)  # 20 MB
    (store,) = [s for run in session._idle for s in run.stores.values()]
    assert store.shelf.peak <= 1_000_000 < 15_000_000 < store.shelf._below.peak_bytes
    memory = step.lower(X, W, 2000).memory()
    assert memory["offload_bytes"] == 1_000_000
    assert step.lower(X, W, 2000).executable.stats()["tape_bytes"] == 0


def test_small_states_are_kept_in_rows():
    def f(tape):
        def loss(x, n):
            return jnp.sum(lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + 0.9 * x, x, tape=tape))

        return fxad.jit(fxad.grad(loss))

    step, plain = f(lax.tape("disk", memory="100kB")), f(None)
    for n in (3, 5000):
        same(step, plain, SMALL, n)
    assert placed(str(step.lower(SMALL, 3).program)) == (1, 1)


def test_values_that_are_no_floats_and_loops_until_a_condition():
    def f(tape):
        def loss(x, w):
            def far(s):
                return (s[0] < 40) & (jnp.sum(s[1] ** 2) > 1e-3)

            def step(s):
                i, y = s
                rows = jnp.argsort(y[:, 0])
                return i + 1, jnp.where(y > 0, 0.9, 0.8) * jnp.tanh(y[rows] @ w)

            return jnp.sum(lax.while_loop(far, step, (0, x), tape=tape)[1])

        return fxad.jit(fxad.value_and_grad(loss, argnums=(0, 1)))

    same(f(lax.tape("disk", memory="200kB")), f(None), X, W)


def test_one_large_value_a_trip():
    x = R.standard_normal((512, 512)).astype(np.float32)

    def f(tape):
        def loss(x, n):
            return jnp.sum(lax.fori_loop(0, n, lambda i, x: jnp.sin(x) * x, x, tape=tape))

        return fxad.jit(fxad.grad(loss))

    step = f(lax.tape("disk", memory="4MB"))
    same(step, f(None), x, 9)
    assert "dynamic_update" not in str(step.lower(x, 9).program)


@pytest.mark.parametrize("checkpoints", [1, 7])
def test_with_checkpoints_the_kept_states_go_there(checkpoints):
    step = gradient(lax.tape("disk", memory="300kB"), checkpoints=checkpoints)
    same(step, gradient(None, checkpoints=checkpoints), X, W, 500)
    assert "put(" in str(step.lower(X, W, 3).program)


def test_rounded_tapes():
    step, plain = gradient(lax.tape("disk", compress="bf16")), gradient(None)
    (value, grads), (wanted, exact) = step(X, W, 20), plain(X, W, 20)
    np.testing.assert_array_equal(value, wanted)
    for got, want in zip(grads, exact, strict=True):
        np.testing.assert_allclose(got, want, atol=0.05 * np.abs(want).max())
    assert "bf16[" in str(step.lower(X, W, 20).program)


@pytest.mark.parametrize("known", [True, False])
def test_scans_and_loops_inside_them(known):
    def f(tape):
        def loss(x, w, n):
            def outer(x, scale):
                trips = 30 if known else n
                y = lax.fori_loop(0, trips, lambda i, x: trip(i, x, w), x * scale, tape=tape)
                return jnp.tanh(y), jnp.sum(y)

            x, sums = lax.scan(outer, x, jnp.linspace(0.5, 1, 4), tape=tape)
            return jnp.sum(x) + jnp.sum(sums)

        return fxad.jit(fxad.value_and_grad(loss, argnums=(0, 1)))

    same(f(lax.tape("disk", memory="500kB")), f(None), X, W, 30)


def test_a_loop_inside_a_recomputed_loop():
    def f(tape):
        def loss(x, w, n):
            def inner(x):
                return lax.fori_loop(0, n, lambda i, x: trip(i, x, w), x, tape=tape)

            return jnp.sum(lax.fori_loop(0, 3, lambda i, x: fxad.checkpoint(inner)(x), x))

        return fxad.jit(fxad.value_and_grad(loss, argnums=(0, 1)))

    step = f(TAPE)
    same(step, f(None), X, W, 40)
    assert placed(str(step.lower(X, W, 40).program)) == (5, 5)


def test_lanes_and_second_derivatives():
    def f(tape):
        def loss(x, n):
            return jnp.sum(lax.fori_loop(0, n, lambda i, x: jnp.sin(x) * 1.1, x, tape=tape))

        return loss

    def twice(tape):
        return fxad.jit(fxad.grad(lambda x, n: jnp.sum(fxad.grad(f(tape))(x, n) ** 2)))

    same(twice(TAPE), twice(None), SMALL, 6)
    steps = [fxad.jit(fxad.vmap(fxad.grad(f(tape)), in_axes=(0, 0))) for tape in (TAPE, None)]
    same(*steps, X, np.arange(16))


def test_outside_jit_and_interpreted():
    want = fxad.grad(lambda x: jnp.sum(lax.fori_loop(0, x.size, lambda i, x: jnp.sin(x), x)))(SMALL)

    def loss(x):
        return jnp.sum(lax.fori_loop(0, x.size, lambda i, x: jnp.sin(x), x, tape=TAPE))

    np.testing.assert_array_equal(fxad.grad(loss)(SMALL), want)
    with fxad.disable_jit():
        np.testing.assert_allclose(fxad.grad(loss)(SMALL), want, rtol=1e-6)
    step = fxad.jit(fxad.grad(lambda x, n: loss(x) * n))
    np.testing.assert_allclose(step.on("python")(SMALL, 2.0), 2 * want, rtol=1e-6)
    many, trips = gradient(TAPE), ROWS + 1  # one more than are offloaded at once
    np.testing.assert_allclose(many.on("python")(X, W, trips)[0], many(X, W, trips)[0], rtol=1e-4)


def test_what_no_loop_can_take():
    with pytest.raises(BadArgument, match="place must be one of"):
        lax.tape("tape")
    with pytest.raises(BadArgument, match="on their way to the disk"):
        lax.tape("host", memory=100)
    with pytest.raises(BadArgument, match="compress must be one of"):
        lax.tape(compress="f8")
    with pytest.raises(BadArgument, match="a number of bytes"):
        lax.tape("disk", memory="much")
    for loop in (
        lambda: lax.while_loop(lambda x: x < 3, lambda x: x + 1, 0.0, tape="disk"),
        lambda: lax.fori_loop(0, 3, lambda i, x: x, 0.0, tape="disk"),
        lambda: lax.scan(lambda c, _: (c, None), 0.0, length=3, tape="disk"),
    ):
        with pytest.raises(BadArgument, match=r"made by lax\.tape"):
            loop()
    with pytest.raises(BadArgument, match="stay in memory"):
        lax.fori_loop(0, 3, lambda i, x: x, 0.0, checkpoints=lax.binomial(3), tape=TAPE)


def test_memory_too_small_for_one_value_says_so():
    x = R.standard_normal((512, 512)).astype(np.float32)

    @fxad.jit
    @fxad.grad
    def step(x, n):
        tape = lax.tape("disk", memory="100kB")
        return jnp.sum(lax.fori_loop(0, n, lambda i, x: jnp.sin(x) * x, x, tape=tape))

    with pytest.raises(StorageError, match=r"raise the budget \(test_loop_tapes.py:"):
        step(x, 5)


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path):
    code = """
import resource, sys, numpy as np, fxad, fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import StorageError
fxad.config.offload_directory = sys.argv[1]
tape = lax.tape("disk", memory="300kB")
@fxad.jit
@fxad.grad
def step(x, n):
    return jnp.sum(lax.fori_loop(0, n, lambda i, x: jnp.sin(x) * x, x, tape=tape))
x = np.ones(1000, np.float32)
step(x, 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
try:
    step(x, 1000)
except StorageError as error:
    print("StorageError", "File too large" in str(error))
print(step(x, 2).shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["StorageError", "True", "(1000,)"], done.stderr[-2000:]
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- lanes that stop apart

LANES = R.standard_normal((6, 600)).astype(np.float32)
TRIPS = np.array([3, 0, 40, 7, 1, 12], np.int32)


def until(tape):
    """Lanes stop when their own values say so."""

    def loss(x, n):
        def body(s):
            return s[0] + 1, jnp.sin(s[1]) * 1.1

        return jnp.sum(lax.while_loop(lambda s: s[0] < n, body, (0, x), tape=tape)[1])

    return loss


def ways(tape):
    one = until(tape)

    def inside(x, n):
        return jnp.sum(fxad.vmap(one)(x, n))

    lanes = fxad.vmap(fxad.grad(one))
    return {
        "lanes of gradients": lanes,
        "gradients of lanes": fxad.grad(inside),
        "the same trips": lambda x, n: fxad.vmap(fxad.grad(one), (0, None))(x, n[2]),
        "lanes of lanes": lambda x, n: fxad.vmap(lanes)(
            x.reshape(2, 3, -1), n.reshape(2, 3)
        ).reshape(x.shape),
        "in a scan": lambda x, n: lax.scan(lambda c, k: (lanes(c * 0.9, n + k), None), x, n)[0],
    }


@pytest.mark.parametrize("name", ways(None))
@pytest.mark.parametrize("width", [40, 600])
def test_tapes_of_lanes_that_stop_apart_leave_memory(name, width):
    tape = lax.tape("disk", memory="100kB")
    away, kept = (fxad.jit(ways(t)[name]) for t in (tape, None))
    x = LANES[:, :width]
    same(away, kept, x, TRIPS)
    assert "put(" in str(away.lower(x, TRIPS).program)
    used, whole = (f.lower(x, TRIPS).executable.stats()["tape_bytes"] for f in (away, kept))
    assert used <= whole * 0.45
    for trips in (TRIPS * 0, TRIPS + 1):
        same(away, kept, x, trips)


def test_gradients_of_lanes_are_those_of_each_alone():
    together = fxad.jit(fxad.vmap(fxad.grad(until(TAPE))))(LANES, TRIPS)
    alone = [fxad.grad(until(None))(x, n) for x, n in zip(LANES, TRIPS, strict=True)]
    np.testing.assert_allclose(together, np.stack(alone), rtol=2e-6)


def test_lanes_of_loops_that_count_down():
    def down(n, x):
        body = lambda s: (s[0] - 1, s[1] * x + s[0])  # noqa: E731
        return lax.while_loop(lambda s: s[0] >= 0, body, (n, x))

    starts, x = np.array([4, -3, 0, -1, 7], np.int32), LANES[:5, 0]
    for form in (fxad.vmap(down), fxad.jit(fxad.vmap(down))):
        found = form(starts, x)
        for lane in range(5):
            n, value = down(starts[lane], x[lane])
            assert (int(found[0][lane]), float(found[1][lane])) == (int(n), pytest.approx(value))
