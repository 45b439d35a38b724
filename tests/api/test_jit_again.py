"""jit, the second call: what is traced anew, what calls like the last one look at."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import DonatedError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Counted:
    """A function that counts how often it is traced."""

    def __init__(self, function):
        self.function, self.traces = function, 0
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        self.traces += 1
        return self.function(*args, **kwargs)


# ---------------------------------------------------------------- caching


def test_traced_once_per_signature():
    counted = Counted(lambda x: x * 2)
    f = fxad.jit(counted)
    for _ in range(3):
        np.testing.assert_array_equal(f(X), X * 2)
    f(jnp.asarray(X))
    assert counted.traces == 1
    f(X[:1])  # another shape
    f(X.astype(np.int32))  # another dtype
    assert counted.traces == 3
    assert f(2).dtype == np.int32
    assert f(jnp.asarray(np.int32(2))).dtype == np.int32  # a Python number is weakly typed
    assert counted.traces == 5
    with fxad.enable_x64():
        assert f(2).dtype == np.int64
    assert counted.traces == 6
    f.clear_cache()
    f(X)
    assert counted.traces == 7


def test_code_that_is_reloaded_is_traced_anew():
    """As `%autoreload` does it in a notebook: the function stays, its code is replaced."""

    def f(x):
        return x * 3

    def edited(x):
        return x * 30

    assert fxad.jit(f)(X)[0, 1] == fxad.jit(functools.partial(f))(X)[0, 1] == 3
    f.__code__ = edited.__code__
    assert fxad.jit(f)(X)[0, 1] == fxad.jit(functools.partial(f))(X)[0, 1] == 30


def test_weakness_survives_compilation():
    f = fxad.jit(lambda x: x + 1)
    assert (f(1.0) + jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
    assert (f(np.float32(1)) + jnp.ones(2, jnp.bfloat16)).dtype == np.float32


def test_equal_static_values_of_other_types_are_told_apart():
    f = fxad.jit(lambda x, n: x * n, static_argnums=1)
    assert f(np.int32(3), 2).dtype == np.int32
    assert f(np.int32(3), 2.0).dtype == np.float32
    assert f(np.int32(3), True).dtype == np.int32


def test_a_trace_that_captured_an_outer_tracer_is_not_reused():
    @fxad.jit
    def outer(y):
        inner = fxad.jit(lambda x: x * y)
        return inner(2.0) + inner(3.0)

    assert float(outer(2.0)) == 10.0
    assert float(outer(3.0)) == 15.0
    shared = []
    inner = fxad.jit(lambda x: x * shared[-1])

    def use(y):
        shared.append(y)
        return inner(1.0)

    assert float(fxad.grad(use)(2.0)) == 1.0
    assert float(fxad.grad(use)(5.0)) == 1.0


# ---------------------------------------------------------------- calls like the last one


def _thrice(f, *args):
    """Results of three calls: the first traces, later ones may take a shorter way."""
    return [f(*args) for _ in range(3)]


def test_a_call_like_the_last_one_looks_at_types_weakness_and_x64():
    counted = Counted(lambda x: x + 1)
    f = fxad.jit(counted)
    ints = jnp.asarray(np.arange(3, dtype=np.int32))
    _thrice(f, ints)
    assert f(ints.astype(np.float32)).dtype == np.float32
    assert f(ints[:2]).shape == (2,)
    strong, weak = jnp.asarray(np.float32(1)), jnp.asarray(1.0)
    assert [r.weak for r in _thrice(f, strong)] == [False] * 3
    assert [r.weak for r in _thrice(f, 1.0)] == [True] * 3
    assert [r.weak for r in _thrice(f, weak)] == [weak.weak] * 3
    assert _thrice(f, 2)[2].dtype == np.int32
    with fxad.enable_x64():
        assert _thrice(f, 2)[2].dtype == np.int64
    assert f(2).dtype == np.int32
    assert [f(v).dtype for v in (True, 1, 1.0, np.float16(1))] == [
        f(jnp.asarray(v)).dtype for v in (True, 1, 1.0, np.float16(1))
    ]
    f.clear_cache()
    before = counted.traces
    f(ints)
    assert counted.traces == before + 1


def test_a_call_like_the_last_one_looks_at_structure():
    counted = Counted(lambda tree, scale=1.0: {"sum": tree["a"] + tree["b"][0] * scale})
    f = fxad.jit(counted)
    tree = {"a": X, "b": [X]}
    for result in _thrice(f, tree):
        np.testing.assert_array_equal(result["sum"], 2 * X)
    np.testing.assert_array_equal(f(tree, 2.0)["sum"], 3 * X)
    np.testing.assert_array_equal(f(tree, scale=np.float32(3))["sum"], 4 * X)
    np.testing.assert_array_equal(f({"b": [X, X], "a": X})["sum"], 2 * X)
    np.testing.assert_array_equal(f({"a": X, "b": (X,)})["sum"], 2 * X)
    assert counted.traces == 5
    with pytest.raises(KeyError):
        f({"a": X})
    with pytest.raises(fxad.core.errors.TypeMismatch, match=r"\['a'\] is a str"):
        f({"a": "x", "b": [X]})


def test_a_call_like_the_last_one_with_tracers_is_part_of_their_trace():
    f = fxad.jit(lambda x: jnp.sin(x) * 2)
    x = jnp.asarray(X)
    _thrice(f, x)
    np.testing.assert_allclose(fxad.grad(lambda v: f(v).sum())(x), 2 * np.cos(X), rtol=1e-6)
    np.testing.assert_allclose(fxad.vmap(f)(x), 2 * np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(fxad.jit(lambda v: f(v) + f(x))(x), 4 * np.sin(X), rtol=1e-6)
    program = fxad.make_ir(lambda v: (f(v), f(x)))(x)
    assert [eqn.op.name for eqn in program.eqns] == ["call", "call"]


def test_static_arguments_of_calls_like_the_last_one():
    f = fxad.jit(lambda x, n: x * n, static_argnums=1)
    x = jnp.asarray(X)
    assert [_thrice(f, x, n)[2].dtype for n in (2, 2.0, True)] == [np.float32] * 3
    np.testing.assert_array_equal(f(x, 2), 2 * X)
    np.testing.assert_array_equal(f(x, 3), 3 * X)
    with pytest.raises(TypeError, match="hashable"):
        f(x, [2])


def test_static_arguments_left_to_their_defaults():
    """A call without them is no call like one that gave them."""

    class Held:
        @functools.partial(fxad.jit, static_argnums=(0, 2), static_argnames="n")
        def times(self, x, n=0):
            return x * (n + 1)

    held, x = Held(), jnp.asarray(X)
    by_number = fxad.jit(lambda x, n=0: x * (n + 1), static_argnums=1)
    for f in (by_number, fxad.jit(lambda x, n=0: x * (n + 1), static_argnames="n"), held.times):
        for given in ((), (1,), (), (1,), (), (), (1,), (1,), ()):
            named = {"n": given[0]} if given and f is not by_number else {}
            result = f(x, **named) if named else f(x, *given)
            np.testing.assert_array_equal(result, x * (1 + sum(given)))


def test_donated_arguments_of_calls_like_the_last_one():
    f = fxad.jit(lambda state, x: (state + x, state.sum()), donate_argnums=0)
    state = jnp.asarray(np.zeros(1000, np.float32))
    x = jnp.asarray(np.ones(1000, np.float32))
    for count in range(4):
        given = state
        state, total = f(state, x)
        assert total == 1000 * count
        with pytest.raises(DonatedError):
            f(given, x)
    with pytest.raises(DonatedError):
        f(state, state)


def test_captured_arrays_of_calls_like_the_last_one():
    held = np.ones(3, np.float32)
    f = fxad.jit(lambda x: x + held)
    results = _thrice(f, jnp.asarray(held))
    held[:] = 5  # what was captured was copied
    results.append(f(jnp.asarray(np.ones(3, np.float32))))
    for result in results:
        np.testing.assert_array_equal(result, [2, 2, 2])


def test_the_signature_is_the_functions():
    def f(x, /, scale=2.0, *, shift):
        return x * scale + shift

    compiled = fxad.jit(f, static_argnames="shift")
    for follow in (True, False):
        found = inspect.signature(compiled, follow_wrapped=follow)
        assert found == inspect.signature(f)
    assert str(inspect.signature(type(compiled))).startswith("(function")
    assert fxad.jit(dict.fromkeys) is not None  # Python's own may have no signature
