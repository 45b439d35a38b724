"""Loops that run as one native function: their bits are those of the interpreted plan."""

from __future__ import annotations

import _thread
import threading
import time

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.backend.llvm import executable as module
from fxad.backend.llvm.executable import Executable

R = np.random.default_rng(0)
F32, I32 = np.float32, np.int32


def both(monkeypatch, function, *args):
    """Results of the plan with sequences and without, and how many sequences there are."""
    jitted = fxad.jit(function)
    plan = jitted.lower(*args).plan
    leaves, trace = jitted.trace_for(args, {})
    flat = [np.asarray(a) for a in (*trace.captured, *leaves)]
    whole = Executable(plan)
    monkeypatch.setattr(module, "sequences_of", lambda plan, tuning: [])
    stepwise = Executable(plan)
    monkeypatch.undo()
    assert not stepwise.sequences
    given = [np.array(a) for a in flat], [np.array(a) for a in flat]
    return whole.run(given[0]), stepwise.run(given[1]), len(whole.sequences)


def counter(c, n):
    return lax.scan(lambda c, _: (jnp.sin(c) * 0.9 + 0.1, None), c, None, length=n)[0]


def stacked(c, xs):
    def step(c, x):
        c = jnp.tanh(c * x[0] + x[1])
        return c, (c, x.sum())

    return lax.scan(step, c, xs)


def backwards(c, xs):
    return lax.scan(lambda c, x: (c * 0.5 + x, c - x), c, xs, reverse=True)


def exchanged(s, n):
    def step(s, _):
        x, y, m = s
        return (y, x * 1.5 - y, m @ m.T * 0.1 + x), m.sum()

    return lax.scan(step, s, None, length=n)


def filtered(A, P, zs):
    def step(state, z):
        m, P = state
        P = A @ P @ A.T + 0.01 * jnp.eye(3)
        return (A @ m + P @ z, P / (1 + P.sum())), jnp.linalg.norm(m)

    return lax.scan(step, (zs[0], P), zs)


def nested(x, n):
    def outer(c, i):
        def inner(c, j):
            return jnp.cos(c) + i * j, c

        c, ys = lax.scan(inner, c, jnp.arange(3, dtype=F32))
        return c + ys.sum(), ys

    return lax.scan(outer, x, jnp.arange(n, dtype=F32))


def choosing(x, n):
    def step(c, i):
        c = lax.cond(c > 0.5, lambda c: c * 0.3, lambda c: c + 0.4, c)
        c = lax.switch(i % 3, [jnp.sin, jnp.cos, lambda c: c], c)
        return c, c

    return lax.scan(step, x, jnp.arange(n))


def newton(x):
    def far(s):
        return (jnp.abs(s[1] * s[1] - x) > 1e-6) & (s[0] < 5000)

    return lax.while_loop(far, lambda s: (s[0] + 1, 0.5 * (s[1] + x / s[1])), (0, x))


def long_while(x, n):
    return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, jnp.sin(s[1] + x)), (0, x))[1]


def while_in_scan(x, xs):
    def step(c, n):
        c = lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.9 + x), (0, c))[1]
        return c, c * c

    return lax.scan(step, x, xs)


def updated(x, n):
    def step(x, i):
        return x.at[i % 5].set(x[(i + 2) % 5] * 0.5 + x.sum()), x[i % 5]

    return lax.scan(step, x, jnp.arange(n))


def summed(f):
    def total(x, *rest):
        found = fxad.tree.leaves(f(x, *rest))
        return sum(jnp.sum(y) for y in found if jnp.issubdtype(y.dtype, jnp.floating))

    return total


def first_of_many(f):
    return lambda x, *rest: fxad.vmap(lambda x: f(x, *rest))(jnp.stack([x, x * 0.5, x + 1]))


XS = R.normal(size=(33, 2)).astype(F32)
PROGRAMS = [
    ("scan", lambda c: counter(c, 100), (F32(0.3),)),
    ("odd", lambda c: counter(c, 101), (F32(0.3),)),
    ("stacked", stacked, (F32(0.3), XS)),
    ("backwards", backwards, (R.normal(size=3).astype(F32), R.normal(size=(17, 3)).astype(F32))),
    ("exchanged", lambda x, m: exchanged((x, x * 2, m), 21), (F32(0.5), np.eye(3, dtype=F32))),
    (
        "matrices",
        filtered,
        (
            R.normal(size=(3, 3)).astype(F32),
            np.eye(3, dtype=F32),
            R.normal(size=(30, 3)).astype(F32),
        ),
    ),
    ("nested", lambda x: nested(x, 20), (F32(0.3),)),
    ("branches", lambda x: choosing(x, 40), (F32(0.3),)),
    ("while", newton, (F32(7.0),)),
    ("long while", lambda x: long_while(x, 12_345), (F32(0.3),)),
    ("while in scan", lambda x: while_in_scan(x, jnp.arange(20)), (F32(0.3),)),
    ("updates", lambda x: updated(x, 30), (R.normal(size=5).astype(F32),)),
    ("wide", lambda x: counter(x, 20), (R.normal(size=300).astype(F32),)),
]


DERIVED = [(p, d) for p in PROGRAMS for d in ("value", "grad", "vmap")]
# Of the longer two, each program has one; both have those whose lanes take ways of their own.
DERIVED += [(p, ("second", "vmap grad")[n % 2]) for n, p in enumerate(PROGRAMS)]
APART = [p for p in PROGRAMS if p[0] in ("while", "branches")]
DERIVED += [(p, d) for p in APART for d in ("second", "vmap grad") if (p, d) not in DERIVED]


@pytest.mark.parametrize(("program", "derived"), DERIVED, ids=[f"{d}-{p[0]}" for p, d in DERIVED])
def test_the_bits_are_those_of_the_interpreter(monkeypatch, program, derived):
    _, function, args = program
    derive = {
        "value": lambda f: f,
        "grad": lambda f: fxad.grad(summed(f)),
        "second": lambda f: fxad.grad(summed(fxad.grad(summed(f)))),
        "vmap": first_of_many,
        "vmap grad": lambda f: first_of_many(fxad.grad(summed(f))),
    }
    whole, stepwise, count = both(monkeypatch, derive[derived](function), *args)
    assert count or derived != "value"
    for got, want in zip(whole, stepwise, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "complex64", "int8", "uint32"])
def test_dtypes(monkeypatch, dtype):
    with fxad.enable_x64():
        x = jnp.asarray(np.arange(1, 6)).astype(dtype)

        def run(x):
            def step(c, x):
                c = (c + x) * jnp.asarray(3, dtype) - x * x
                return c, jnp.stack([c, x, c])

            return lax.scan(step, x[0], jnp.concatenate([x] * 5))

        whole, stepwise, count = both(monkeypatch, run, x)
    assert count == 1
    for got, want in zip(whole, stepwise, strict=True):
        np.testing.assert_array_equal(got, want)


SIZES = [(1, 8, 8), (3, 3, 3), (4, 4, 4), (2, 5, 7), (7, 2, 16), (1, 3, 5), (5, 4, 1), (16, 16, 16)]


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(s, F32) for s in SIZES] + [(s, np.float64) for s in SIZES[::2]],
    ids=lambda x: getattr(x, "__name__", str(x)),
)
def test_products(monkeypatch, size, dtype):
    """Of any orientation, with an epilogue that functions take part in."""
    m, k, n = size
    a, b = R.normal(size=(m, k)).astype(dtype), R.normal(size=(k, n)).astype(dtype)

    def run(a, b, bt):
        def step(c, _):
            x = jnp.tanh(c @ b) * 0.5 + 1
            y = (bt @ c.T).T - x
            z = jnp.exp(-x) @ b.T + a
            return jnp.sin(z) * 0.3 + 0.1 * (y @ bt), (x.T, y)

        return lax.scan(step, a, None, length=17)

    with fxad.enable_x64():
        whole, stepwise, count = both(monkeypatch, run, a, b, np.ascontiguousarray(b.T))
    assert count == 1
    for got, want in zip(whole, stepwise, strict=True):
        np.testing.assert_array_equal(got, want)


def test_against_numpy():
    A, c = R.normal(size=(4, 4)) * 0.3, R.normal(size=4)
    with fxad.enable_x64():
        got, ys = fxad.jit(
            lambda A, c: lax.scan(lambda c, _: (jnp.tanh(A @ c + 1), c[1]), c, None, length=50)
        )(A, c)
    for y in ys:
        assert y == pytest.approx(c[1], rel=1e-12)
        c = np.tanh(A @ c + 1)
    np.testing.assert_allclose(got, c, rtol=1e-12)


def test_a_loop_inside_one_that_is_interpreted(monkeypatch):
    """Slots that an outer loop exchanges or moves are the inner one's operands."""
    big = R.normal(size=(6, 2000)).astype(F32)

    def run(x, rows):
        def outer(s, row):
            a, b = s
            a, ys = lax.scan(lambda c, i: (jnp.sin(c) + b[0], c * i), a, jnp.arange(17, dtype=F32))
            return (ys[3] * a, b[::-1] + row.sum()), (a, row * 2)

        return lax.scan(outer, (x, x * 2), rows)

    whole, stepwise, count = both(monkeypatch, run, np.ones(3, F32), big)
    assert count == 1
    for got, want in zip(whole, stepwise, strict=True):
        np.testing.assert_array_equal(got, want)


def test_donated_state(monkeypatch):
    x = R.normal(size=4).astype(F32)
    f = fxad.jit(lambda x: counter(x, 50), donate_argnums=0)
    want = fxad.jit(lambda x: counter(x, 50))(x.copy())
    np.testing.assert_array_equal(f(x.copy()), want)


def test_a_sequence_can_be_interrupted():
    """Python's other threads and signals are served while a loop of one function runs."""
    f = fxad.jit(lambda x: lax.while_loop(lambda x: x > -1, lambda x: jnp.sin(x), x))
    raised = threading.Event()

    def interrupt():
        time.sleep(0.5)
        raised.set()
        _thread.interrupt_main()

    lowered = f.lower(F32(0.5))
    assert lowered.executable.sequences
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        f(F32(0.5))
    assert raised.is_set()
    thread.join()


def test_what_is_no_sequence():
    """Calls of Python and large kernels stay with the interpreter."""

    def calls(x):
        def step(c, _):
            return fxad.pure_callback(lambda c: c, c, c), None

        return lax.scan(step, x, None, length=20)[0]

    def large(x):
        return counter(x, 20)

    for f, x in ((calls, F32(1)), (large, np.ones(100_000, F32))):
        assert not fxad.jit(f).lower(x).executable.sequences


@pytest.mark.parametrize(
    ("columns", "dtype"), [(5, F32), (9, F32), (13, F32), (3, float), (7, float)]
)
def test_rows_of_any_length_take_roots(columns, dtype, monkeypatch):
    """A small product's epilogue works on whole rows, a processor's estimates on powers of two."""
    w, v = (R.uniform(0.1, 1, shape).astype(dtype) for shape in ((10, columns), columns))

    def f(x):
        def step(c, _):
            y = (jnp.sqrt(v + x[0]) - 1) * (c @ w)
            return c + 1e-3 * jnp.sum(y), y

        return lax.scan(step, x, None, length=20)

    with fxad.enable_x64(dtype is float):
        ours, stepwise, count = both(monkeypatch, f, np.ones(10, dtype))
    assert count == 1 and ours[0].dtype == dtype
    for one, other in zip(ours, stepwise, strict=True):
        np.testing.assert_array_equal(one, other)
