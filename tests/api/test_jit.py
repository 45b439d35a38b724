"""jit: traces and caches, static and donated arguments, inputs of every layout, threads, stages."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
import weakref
from typing import NamedTuple

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.core.config import config
from fxad.core.errors import DonatedError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


# ---------------------------------------------------------------- arguments and results


class Point(NamedTuple):
    x: object
    y: object


def test_pytrees_keywords_and_defaults():
    @fxad.jit
    def f(p, scale=2.0, *, shift, rest=()):
        total = p["a"].x * scale + shift + sum(rest)
        return {"out": [total, None, (p["a"].y,)], "p": p["a"]}

    out = f({"a": Point(X, 1)}, shift=1.0, rest=(1.0, 2.0))
    np.testing.assert_array_equal(out["out"][0], X * 2 + 4)
    assert out["out"][1] is None
    assert isinstance(out["p"], Point)
    assert int(out["out"][2][0]) == 1
    np.testing.assert_array_equal(f({"a": Point(X, 1)}, 3.0, shift=X)["out"][0], X * 4)


def test_static_arguments():
    @functools.partial(fxad.jit, static_argnums=(1, 2))
    def f(x, axis, flip=False):
        return jnp.sum(x, axis) * (-1 if flip else 1)

    np.testing.assert_array_equal(f(X, 0), X.sum(0))
    np.testing.assert_array_equal(f(X, axis=1), X.sum(1))
    np.testing.assert_array_equal(f(X, 1, True), -X.sum(1))
    np.testing.assert_array_equal(f(X, 1, flip=True), -X.sum(1))
    both = fxad.jit(lambda x, n: isinstance(n, int), static_argnums=1, static_argnames=())
    assert bool(both(X, 1)) and not bool(both(X, n=1))  # given both, neither follows the other
    last = fxad.jit(lambda x, n: x[:n], static_argnums=-1)
    assert last(X, 1).shape == (1, 3)


def test_methods():
    class Layer:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(fxad.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    np.testing.assert_array_equal(Layer(2.0)(X), X * 2)
    np.testing.assert_array_equal(Layer(3.0)(X), X * 3)


def test_closures_over_arrays():
    table = np.array([1.0, 2.0, 3.0], np.float32)
    f = fxad.jit(lambda x: x * table)
    np.testing.assert_array_equal(f(X), X * [1, 2, 3])
    table[:] = 100.0  # what a trace keeps is a copy
    np.testing.assert_array_equal(f(X), X * [1, 2, 3])


def test_arguments_are_borrowed_and_never_kept():
    x = X.copy()
    kept = [jnp.asarray(x), jnp.reshape(x, (3, 2)), jnp.transpose(x), fxad.jit(lambda v: v)(x)]
    _, pull = fxad.vjp(lambda v: v * v, x)
    _, push = fxad.linearize(lambda v: v * v, x)
    x[:] = 100.0
    for array, want in zip(kept, (X, X.reshape(3, 2), X.T, X), strict=True):
        np.testing.assert_array_equal(array, want)
    ones = np.ones_like(X)
    np.testing.assert_array_equal(pull(ones)[0], 2 * X)
    np.testing.assert_array_equal(push(ones), 2 * X)


def test_inputs_of_every_layout():
    wide = np.arange(48, dtype=np.float32).reshape(4, 12)
    readonly = wide.copy()
    readonly.flags.writeable = False
    misaligned = np.frombuffer(b"\0" + wide.tobytes(), np.uint8)[1:].view(np.float32)
    cases = {
        "strided": wide[::2, 1::3],
        "transposed": wide.T,
        "negative": wide[::-1, ::-2],
        "swapped": wide.astype(">f4"),
        "readonly": readonly,
        "misaligned": misaligned,
        "broadcast": np.broadcast_to(wide[0], (3, 12)),
        "empty": wide[:0],
        "scalar": wide[1, 1],
        "zero-d": np.array(3.0, np.float32),
        "fortran": np.asfortranarray(wide),
    }
    before = {name: np.array(value) for name, value in cases.items()}
    f = fxad.jit(lambda x: (jnp.exp(x * 0.01), jnp.sum(x), x))
    for name, value in cases.items():
        exp, total, same = f(value)
        assert exp.dtype == np.float32, name
        np.testing.assert_allclose(exp, np.exp(before[name] * np.float32(0.01)), rtol=3e-7)
        assert float(total) == before[name].sum(), name  # small integers: exact in any order
        np.testing.assert_array_equal(same, before[name])
        np.testing.assert_array_equal(value, before[name])


def test_results_do_not_share_memory():
    x = jnp.asarray(X)
    same, view = fxad.jit(lambda v: (v, v[0]))(x)
    arrays = [np.asarray(a) for a in (x, same, view)]
    for i, a in enumerate(arrays):
        for b in arrays[i + 1 :]:
            assert not np.shares_memory(a, b)


# ---------------------------------------------------------------- donation


def test_donation_reuses_memory_and_forbids_further_use():
    f = fxad.jit(lambda x, y: x + y, donate_argnums=0)
    x = jnp.zeros((256, 256))
    address = x.data.ctypes.data
    out = f(x, 1.0)
    assert out.data.ctypes.data == address
    for use in (lambda: x + 1, lambda: np.asarray(x), lambda: float(x[0, 0]), lambda: f(x, 1.0)):
        with pytest.raises(DonatedError, match=r"donate_argnums.*test_jit\.py"):
            use()
    assert "donated" in repr(x)
    assert float(out[0, 0]) == 1.0


def test_memory_that_others_see_is_copied_before_donation():
    f = fxad.jit(lambda x: x * 2, donate_argnums=0)
    source = jnp.arange(6.0)
    f(source.reshape(2, 3))  # may be a view of `source`
    np.testing.assert_array_equal(source, np.arange(6.0))
    x = jnp.arange(6.0)
    exported = np.asarray(x)
    f(x)
    np.testing.assert_array_equal(exported, np.arange(6.0))
    mine = np.arange(6, dtype=np.float32)
    f(mine[1:4])
    f(mine)
    np.testing.assert_array_equal(mine, np.arange(6))


def test_donated_pytrees():
    step = fxad.jit(lambda state, g: {k: v - g for k, v in state.items()}, donate_argnames="state")
    state = {"a": jnp.zeros(1000), "b": jnp.ones(1000)}
    for _ in range(3):
        state = step(state=state, g=0.5)
    assert float(state["a"][0]) == -1.5
    assert float(state["b"][999]) == -0.5
    with pytest.raises(ValueError, match="donate_argnums has 3"):
        fxad.jit(lambda x: x, donate_argnums=3)


def test_the_same_array_donated_twice():
    f = fxad.jit(lambda a, b: (a + 1, b + 2), donate_argnums=(0, 1))
    x = jnp.zeros(100)
    with pytest.raises((DonatedError, ValueError)):
        f(x, x)


# ---------------------------------------------------------------- determinism


def _busy(x, w):
    for _ in range(2):
        x = jnp.tanh(x @ w + jnp.mean(x, -1, keepdims=True))
        x = x - jnp.max(x, 0)
    return jnp.sum(jnp.exp(x)), x, jnp.cumsum(x, 1)


def _bits(tree):
    return [np.asarray(v).tobytes() for v in fxad.tree.leaves(tree)]


def test_bits_do_not_depend_on_threads_or_fusion():
    r = np.random.default_rng(0)
    args = r.standard_normal((300, 96)).astype(np.float32), r.standard_normal((96, 96)) * 0.1
    both = fxad.value_and_grad(lambda x, w: _busy(x, w)[0], argnums=(0, 1))
    before = fxad.get_num_threads()
    seen = []
    try:
        for threads in (1, 2, 3):
            fxad.set_num_threads(threads)
            assert fxad.get_num_threads() == threads
            seen.append(_bits([fxad.jit(_busy)(*args), fxad.jit(both)(*args)]))
    finally:
        fxad.set_num_threads(before)
    with compiled.fusion(False):
        seen.append(_bits([fxad.jit(_busy)(*args), fxad.jit(both)(*args)]))
    assert all(bits == seen[0] for bits in seen)


def test_two_threads_may_call_one_function():
    f = fxad.jit(lambda x, w: _busy(x, w)[1])
    r = np.random.default_rng(1)
    w = (r.standard_normal((64, 64)) * 0.1).astype(np.float32)
    inputs = [r.standard_normal((80, 64)).astype(np.float32) for _ in range(4)]
    want = [np.asarray(f(x, w)) for x in inputs]
    f.clear_cache()
    wrong: list[object] = []

    def work(start: int) -> None:
        try:
            for i in range(20):
                k = (start + i) % 4
                if not np.array_equal(f(inputs[k], w), want[k]):
                    wrong.append(k)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_disable_jit_interprets():
    seen = []

    @fxad.jit
    def f(x):
        seen.append(float(x))
        return x * 2 if x > 0 else -x

    with fxad.disable_jit():
        assert float(f(3.0)) == 6.0
        assert float(f(-3.0)) == 3.0
    assert seen == [3.0, -3.0]


# ---------------------------------------------------------------- stages and settings


def test_stages():
    f = fxad.jit(lambda a, b: jnp.sum(jnp.exp(a @ b) + 1))
    shape = fxad.ShapeDtypeStruct((8, 16), jnp.float32)
    lowered = f.lower(shape, np.ones((16, 4), np.float32))
    assert [e.op.name for e in lowered.program.eqns][:2] == ["dot", "exp"]
    assert "test_jit.py" in str(lowered.program)
    assert "contract(" in str(lowered.kernels[0])
    assert str(lowered.plan).startswith("plan  arena ")
    assert "define" in lowered.llvm
    assert lowered.asm.strip()
    cost = lowered.cost()
    assert cost["flops"] == 2 * 8 * 16 * 4 + 3 * 8 * 4  # product; exp, + 1, sum
    assert cost["argument_bytes"] == 4 * (8 * 16 + 16 * 4)
    assert cost["result_bytes"] == 4
    assert cost["bytes"] >= cost["argument_bytes"]
    assert cost["arena_bytes"] == lowered.plan.arena_bytes
    loop = fxad.jit(lambda x: fxad.lax.fori_loop(0, 10, lambda i, c: c * 1.5 + 1.0, x))
    assert loop.lower(np.float32(1)).cost()["flops"] >= 20


def test_eval_shape_of_shapes():
    given = fxad.ShapeDtypeStruct((2, 3), np.float32)
    weak = fxad.ShapeDtypeStruct((), np.float32, weak_type=True)
    out = fxad.eval_shape(lambda x: {"x": x, "given": given, "weak": weak}, np.ones(4, np.int32))
    assert out["given"] == given
    assert out["x"].dtype == np.int32
    assert out["weak"].weak_type


def test_eval_shape_computes_nothing():
    ran = []
    out = fxad.eval_shape(
        lambda x: (ran.append(1), jnp.zeros((x.shape[0], 2**40)) @ jnp.ones((2**40, 3)))[1],
        fxad.ShapeDtypeStruct((4,), jnp.float32),
    )
    assert out == fxad.ShapeDtypeStruct((4, 3), jnp.float32)


def test_traces_release_what_they_captured():
    def make():
        big = jnp.zeros(10)
        f = fxad.jit(lambda x: x + big)
        f(1.0)
        return f, weakref.ref(big)

    f, alive = make()
    assert alive() is not None
    del f
    assert alive() is None


def _run(code: str, **environment: str) -> subprocess.CompletedProcess:
    root = os.path.dirname(os.path.dirname(fxad.__file__))
    env = {**os.environ, "PYTHONPATH": root, **environment}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )


CODE = """
import fxad, fxad.numpy as jnp
print(float(fxad.jit(lambda x: jnp.sum(jnp.exp(x) * 1.0 + 0.0))(jnp.zeros(3))))
"""


def test_environment_variables():
    shown = _run(CODE, FXAD_SHOW="traced,cse", FXAD_CHECK="1", FXAD_FUEL="0")
    assert shown.stdout == "3.0\n", shown.stderr
    assert "--- traced" in shown.stderr
    assert "exp(" in shown.stderr
    assert "mul(" in shown.stderr.split("--- cse")[1]  # no fuel: nothing was simplified
    misspelt = _run(CODE, FXAD_SHOW="optimise,kernels,plan", FXAD_SHWO="1")
    assert misspelt.stdout == "3.0\n", misspelt.stderr
    planned = misspelt.stderr
    assert "FXAD_SHOW: optimise: no such stage; there are algebra, " in planned
    assert "did you mean FXAD_SHOW" in planned
    assert "kernel(" in planned.split("plan  arena ")[0]
    assert "run sum" in planned.split("plan  arena ")[1]


def test_fuel_stops_rewriting():
    def f(x):
        return (x * 1.0 + 0.0) * 1.0

    fxad.jit(f)(X)
    with config.override(fuel=2):  # one for `inline`, one for a rewrite
        lowered = fxad.jit(lambda x: f(x)).lower(X)
        left = len(lowered.program.eqns)
    assert 0 < left < 3


@contextlib.contextmanager
def ctrl_c(seconds: float):
    """Another process sends SIGINT after some seconds, which ends the block with an error."""
    kill = f"import os, time; time.sleep({seconds}); os.kill({os.getpid()}, 2)"
    sender = subprocess.Popen([sys.executable, "-S", "-c", kill])
    with pytest.raises(KeyboardInterrupt):
        yield
        time.sleep(60)
    sender.wait()


def test_ctrl_c_loses_no_donated_array():
    """It comes when the result has been assigned."""
    step = fxad.jit(lambda w: w + jnp.tanh(w @ w @ w @ w), donate_argnums=0)
    w = step(jnp.zeros((900, 900)))
    for _ in range(3):
        with ctrl_c(0.1):
            for _ in range(10_000):
                w = step(w)
        assert not w.is_deleted()


def spin(n):
    return fxad.lax.fori_loop(0, n, lambda _, c: jnp.sin(c) + 1e-7, jnp.ones(4))[0]


def test_ctrl_c_ends_a_call_that_has_overwritten_nothing():
    spun = fxad.jit(lambda w, n: w + spin(n), donate_argnums=0)
    w = spun(jnp.ones(5), 2)
    before = np.asarray(w).copy()
    with ctrl_c(0.2):
        spun(w, 2_000_000_000)
    assert np.array_equal(w, before) and not spun(w, 1).is_deleted()


@pytest.mark.parametrize("early", [True, False])
def test_what_a_callback_interrupts_is_whole_or_gone(early):
    """Before anything is overwritten the array is what it was; after that it is donated."""
    inner = fxad.jit(spin)
    inner(2)

    def callback(x):
        if long:
            inner(2_000_000_000)
        return np.asarray(x)

    def f(w):
        read = w.sum() if early else (w + 1).sum()
        seen = fxad.pure_callback(callback, fxad.ShapeDtypeStruct((), np.float32), read)
        return (w + seen, seen) if early else (w + 1, seen)

    long, step = False, fxad.jit(f, donate_argnums=0)
    w, _ = step(jnp.zeros(4))
    before, long = np.asarray(w).copy(), True
    with ctrl_c(0.2):
        step(w)
    assert w.is_deleted() or np.array_equal(w, before)
    assert not early or not w.is_deleted()


def test_an_array_that_is_donated_and_read_stays():
    add = fxad.jit(lambda a, b: a + b, donate_argnums=0)
    w = jnp.ones(3)
    with pytest.raises(DonatedError, match="passed twice"):
        add(w, w)
    assert add(w, w + 1).tolist() == [3, 3, 3]
