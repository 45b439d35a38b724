"""Calls that go straight to native code: whose, with what results, and what they leave behind."""

from __future__ import annotations

import gc
import signal
import sys
import threading

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api.compiled import fusion
from fxad.backend.llvm.direct import MOST_BYTES
from fxad.backend.llvm.native.direct import fixed_words
from fxad.backend.llvm.native.direct_code import CallWord
from fxad.core.errors import DonatedError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def _direct(f, *args, **kwargs):
    """The function's native caller for these arguments, once it is there."""
    for _ in range(3):
        f(*args, **kwargs)
    assert f._direct is not None
    return f._direct


def test_results_of_any_number_and_structure():
    many = [jnp.asarray(X + i) for i in range(40)]
    cases = [
        (lambda x: x + 1, (jnp.asarray(X),), lambda x: x + 1),
        (lambda *xs: [x * 2 for x in xs], (*many,), lambda *xs: [x * 2 for x in xs]),
        (lambda t: {"a": t[0] - t[1], "b": ()}, ((X, X[::-1].copy()),), None),
    ]
    for function, args, reference in cases:
        f, reference = fxad.jit(function), reference or function
        _direct(f, *args)
        plain = fxad.tree.map(np.asarray, args)
        want = fxad.tree.leaves(reference(*plain))
        for got, expected in zip(fxad.tree.leaves(f(*args)), want, strict=True):
            np.testing.assert_array_equal(got, expected)
            assert got.dtype == np.float32 and got.weak is False
        assert fxad.tree.structure(f(*args)) == fxad.tree.structure(reference(*plain))


def test_captured_arrays_keywords_and_weakness():
    captured = jnp.asarray(X)
    f = fxad.jit(lambda x, *, scale: (captured * x, scale + 1))
    _direct(f, captured, scale=jnp.asarray(2.0))
    product, scale = f(captured, scale=jnp.asarray(2.0))
    np.testing.assert_array_equal(product, X * X)
    assert scale.weak == f(captured, scale=2.0)[1].weak == jnp.asarray(2.0).weak
    assert f(captured, scale=np.float32(2))[1].weak is False


@pytest.mark.parametrize("view", ["strided", "transposed", "unaligned", "swapped"])
def test_arrays_that_cannot_be_read_in_place(view):
    data = {
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "transposed": np.ascontiguousarray(X.T).T,
        "unaligned": np.frombuffer(b"\0" + X.tobytes(), np.float32, offset=1).reshape(X.shape),
        "swapped": X.astype(X.dtype.newbyteorder()),
    }[view]
    f = fxad.jit(lambda x: x * 3)
    call = _direct(f, jnp.asarray(X))
    np.testing.assert_array_equal(f(data), X * 3)
    np.testing.assert_array_equal(f(jnp.asarray(X)), X * 3)
    assert f._direct is call


def test_other_types_are_not_taken_for_the_last_ones():
    f = fxad.jit(lambda x: x + 1)
    _direct(f, jnp.asarray(X))
    assert f(jnp.asarray(X.astype(np.float64))).dtype == np.float32
    assert f(jnp.asarray(X.astype(np.int32))).dtype == np.int32
    _direct(f, jnp.asarray(X))
    assert f(X[:2]).shape == (2, 4)
    with fxad.enable_x64():
        assert f(X.astype(np.float64)).dtype == np.float64
        assert f(jnp.asarray(X)).dtype == np.float32
    with pytest.raises(fxad.core.errors.TypeMismatch):
        f("text")
    given = jnp.asarray(X)
    given.delete()
    with pytest.raises(DonatedError):
        f(given)


def test_inside_traces_and_blocks():
    f = fxad.jit(lambda x: jnp.sin(x) * 2)
    x = jnp.asarray(X)
    _direct(f, x)
    np.testing.assert_allclose(fxad.grad(lambda x: f(x).sum())(x), 2 * np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(fxad.vmap(f)(x), 2 * np.sin(X), rtol=1e-6)
    with fxad.disable_jit():
        np.testing.assert_allclose(f(x), 2 * np.sin(X), rtol=1e-6)
    assert "sin" in str(fxad.make_ir(f)(x))


def test_a_scoped_derivative_is_not_missed_and_not_kept():
    g = fxad.jit(fxad.grad(jnp.sin))
    assert [float(g(0.0)) for _ in range(4)] == [1.0] * 4
    with fxad.override("sin", jvp=lambda p, t: (jnp.sin(p[0]), 7.0 * t[0])):
        assert [float(g(0.0)) for _ in range(4)] == [7.0] * 4
    assert [float(g(0.0)) for _ in range(4)] == [1.0] * 4


def test_other_settings_are_not_taken_for_the_first_ones():
    f = fxad.jit(lambda x: jnp.sin(x) * 2 + jnp.cos(x))
    f(X)
    with fusion(False):
        native = _direct(f, X).__globals__["direct"]
        ready = f._recent._trace.ready
        assert native._keep[0] is ready.run.__self__._encoded  # the kernels that run the other way


def test_an_axis_with_a_name_is_not_missed_and_not_kept():
    f = fxad.jit(lambda x: x + fxad.lax.axis_index("i"))
    for _ in range(4):
        got = fxad.vmap(lambda _: f(jnp.asarray(X)), axis_name="i", axis_size=2, in_axes=None)(0)
        np.testing.assert_array_equal(got, X + np.arange(2, dtype=np.float32)[:, None, None])
    with pytest.raises(fxad.core.errors.BadArgument):
        f(jnp.asarray(X))


def test_references_are_given_back():
    f = fxad.jit(lambda x, y: (x + y, x * y))
    x, y = jnp.asarray(X), jnp.asarray(X)
    _direct(f, x, y)
    before = sys.getrefcount(x), sys.getrefcount(x._data)
    for _ in range(100):
        f(x, y)
        f(x, X[::-1])  # refused, and run the other way
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(x._data)) == before


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parallel_kernels_on_the_threads_of_now(threads):
    f = fxad.jit(lambda x, w: jnp.tanh(x @ w))
    r = np.random.default_rng(0)
    x, w = (jnp.asarray(r.standard_normal((96, 96)).astype(np.float32)) for _ in range(2))
    _direct(f, x, w)
    first = np.asarray(f(x, w))
    before = fxad.get_num_threads()
    fxad.set_num_threads(threads)
    try:
        for _ in range(3):
            np.testing.assert_array_equal(f(x, w), first)
    finally:
        fxad.set_num_threads(before)
    np.testing.assert_allclose(first, np.tanh(np.asarray(x) @ np.asarray(w)), atol=1e-4)


def test_programs_that_need_much_memory_take_no_results_in_vain():
    f = fxad.jit(lambda x: jnp.tanh(x @ x) @ (x @ x + 1))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32))
    for _ in range(4):
        got = f(x)
    assert f._direct is None
    plain = np.asarray(x, np.float64)
    want = np.tanh(plain @ plain) @ (plain @ plain + 1)
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-3)


def test_scratch_is_made_for_the_threads_that_use_it():
    f = fxad.jit(lambda x, w: jnp.tanh(x @ w))
    r = np.random.default_rng(0)
    x, w = (jnp.asarray(r.standard_normal((96, 96)).astype(np.float32)) for _ in range(2))
    native = _direct(f, x, w).__globals__["direct"]
    assert native.parallel
    first, wrong, before = np.asarray(f(x, w)), [], fxad.get_num_threads()

    def work():
        wrong.extend(1 for _ in range(100) if not np.array_equal(f(x, w), first))

    workers = [threading.Thread(target=work) for _ in range(2)]
    try:
        for worker in workers:
            worker.start()
        for threads in [1, 4, 2, 200, 3] * 4:
            fxad.set_num_threads(threads)
            np.testing.assert_array_equal(f(x, w), first)
    finally:
        for worker in workers:
            worker.join()
        fxad.set_num_threads(200)
        fits = native.renew()
        fxad.set_num_threads(before)
    assert not wrong
    assert fits == (native._record[CallWord.BYTES] <= MOST_BYTES) and not fits


def test_a_python_without_its_lock_runs_programs_the_other_way(monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    fixed_words.cache_clear()
    try:
        f = fxad.jit(lambda x: x * 5)
        for _ in range(4):
            np.testing.assert_array_equal(f(X), X * 5)
        assert f._direct is None
    finally:
        fixed_words.cache_clear()


def test_a_function_keeps_its_definition():
    f = fxad.jit(lambda x: x * 6)
    native = _direct(f, jnp.asarray(X)).__globals__["native"]
    assert {type(held).__name__ for held in gc.get_referents(native)} == {"_Definition", "ndarray"}


def test_many_python_threads_at_once():
    f = fxad.jit(lambda x: jnp.cumsum(x * 2, axis=1))
    _direct(f, jnp.asarray(X))
    wrong = []

    def work(number):
        x = jnp.asarray(X + number)
        want = np.asarray(fxad.jit(lambda x: jnp.cumsum(x * 2, axis=1))(x))
        wrong.extend(1 for _ in range(300) if not np.array_equal(f(x), want))

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_ends_a_long_program():
    class Enough(Exception):
        pass

    def enough(*_):
        raise Enough

    @fxad.jit
    def f(n):  # a pipeline of unknown length; sums of ones end at 2**24
        return fxad.lax.while_loop(lambda s: s < n, lambda s: s + 1, jnp.float32(0))

    few, endless = jnp.asarray(np.float32(3)), jnp.asarray(np.float32(2**30))
    _direct(f, few)
    before = signal.signal(signal.SIGALRM, enough)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Enough):
                f(endless)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert int(f(few)) == 3
