"""What jit accepts and refuses, and what lowered and compiled functions say about themselves."""

from __future__ import annotations

import copy
import functools
import gc
import sys
import types
import weakref

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import (
    BadArgument,
    CallError,
    DeviceError,
    DonatedError,
    RetraceError,
    TypeMismatch,
)

X = np.arange(4, dtype=np.float32)


def test_what_is_no_function():
    def generator(x):
        yield x

    for bad, said in ((3, "expects a function"), (generator, "yields"), (staticmethod(abs), "sta")):
        with pytest.raises(TypeMismatch, match=said):
            fxad.jit(bad)


@pytest.mark.parametrize("kind", ["static", "donate"])
def test_arguments_that_are_not_there(kind):
    def plain(a, b, c): ...
    def more(a, /, b, *args, c=0, **kwargs): ...

    for function, options in (
        (plain, {"argnums": (0, -3)}),
        (plain, {"argnames": ("b", "c")}),
        (more, {"argnums": (0, 9)}),
        (more, {"argnums": -9}),
        (more, {"argnames": ("b", "c", "other")}),
    ):
        fxad.jit(function, **{f"{kind}_{k}": v for k, v in options.items()})
    for function, options in (
        (plain, {"argnums": 3}),
        (plain, {"argnums": -4}),
        (plain, {"argnames": "d"}),
        (more, {"argnames": "a"}),  # by position only
        (more, {"argnames": "args"}),
    ):
        with pytest.raises(BadArgument, match=f"jit: {kind}_"):
            fxad.jit(function, **{f"{kind}_{k}": v for k, v in options.items()})


def test_static_and_donated_at_once():
    with pytest.raises(BadArgument, match="both static and donated"):
        fxad.jit(lambda x: x, static_argnames="x", donate_argnums=0)


def test_options_of_other_compilers():
    options = {"inline": True, "keep_unused": True, "compiler_options": {"level": 3}}
    assert float(fxad.jit(lambda x: x + 1, **options)(1.0)) == 2.0
    with pytest.raises(TypeError, match="unexpected keyword argument 'inlined'"):
        fxad.jit(lambda x: x, inlined=True)


@pytest.mark.parametrize("option", ["device", "backend"])
def test_another_device_is_refused(option):
    """It ran on the CPU without a word."""
    for cpu in (None, "cpu", fxad.devices()[0]):
        assert float(fxad.jit(lambda x: x + 1, **{option: cpu})(1.0)) == 2.0
    for other in ("cuda", "gpu", "tpu", 1):
        with pytest.raises(BadArgument, match=rf"{option}={other!r} .*\.on\(\"cuda\"\)"):
            fxad.jit(lambda x: x + 1, **{option: other})


def test_running_on_a_gpu_that_is_not_there(monkeypatch):
    f = fxad.jit(lambda x: x + 1)
    fake = types.SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "numba.cuda", fake)
    monkeypatch.setattr("fxad.backend.numba.available.simulated", lambda: False)
    with pytest.raises(DeviceError, match=r"no NVIDIA GPU .*pip install 'fxad\[cuda\]'"):
        f.on("cuda")(1.0)
    monkeypatch.setitem(sys.modules, "numba.cuda", None)  # cannot be imported
    with pytest.raises(DeviceError, match=r"pip install 'fxad\[cuda\]'"):
        f.on("cuda")(1.0)
    with pytest.raises(BadArgument, match="'tpu' is not one of cuda, cpu, python"):
        f.on("tpu")
    with pytest.raises(BadArgument, match="transform first"):
        fxad.grad(f.on("python"))(1.0)


def test_static_values_that_cannot_be_looked_up():
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise NotImplementedError

    f = fxad.jit(lambda x, s: x, static_argnums=1)
    with pytest.raises(CallError, match="must be hashable"):
        f(1.0, [1])
    f(1.0, Odd())
    with pytest.raises(CallError, match="comparable by =="):
        f(1.0, Odd())


def test_no_tracing():
    f = fxad.jit(lambda x: x * 2)
    f(X)
    with fxad.no_tracing():
        assert f(X).shape == (4,)
        with pytest.raises(RetraceError, match="no_tracing"):
            f(X[:2])
    assert f(X[:2]).shape == (2,)
    assert f._cache_size() == 2


def test_traces_belong_to_the_function():
    traced = []

    def step(x, n=2):
        traced.append(n)
        return x * n

    for _ in range(3):
        assert fxad.jit(step)(X).tolist() == (2 * X).tolist()
    assert len(traced) == 1 and fxad.jit(step)._cache_size() == 1
    bound = functools.partial(step, n=3)
    for _ in range(2):
        fxad.jit(bound)(X)
        fxad.jit(step, static_argnames="n")(X, n=4)  # other options, other traces
        fxad.jit(step, donate_argnums=0)(jnp.asarray(X))
    assert traced == [2, 3, 4, 2]


def test_traces_are_freed_with_their_function():
    def used():
        @fxad.custom_vjp
        def double(x):
            return 2 * x

        double.defvjp(lambda x: (double(x), None), lambda _, d: (2 * d,))

        def loss(x):
            return fxad.jit(double)(x).sum()

        compiled = fxad.jit(fxad.grad(loss))
        for _ in range(3):
            compiled(X)
        fxad.jit(loss)(X)
        return [weakref.ref(f) for f in (loss, double)]

    seen = used()
    gc.collect()
    assert [ref() for ref in seen] == [None, None]


def test_methods_and_objects_have_traces_of_their_own():
    class Scale:
        def __init__(self, by):
            self.by = by

        def __call__(self, x):
            return x * self.by

    scale = Scale(2.0)
    assert fxad.jit(scale)(X).tolist() == (2 * X).tolist()
    scale.by = 3.0
    assert fxad.jit(scale)(X).tolist() == (3 * X).tolist()


def test_clearing_reaches_every_jit_of_a_function():
    factor = 2.0

    def scaled(x):
        return x * factor

    first, second = fxad.jit(scaled), fxad.jit(scaled)
    for _ in range(3):  # the short way is written at the third call
        first(X), second(X)
    factor = 3.0
    assert second(X).tolist() == (2 * X).tolist()
    first.clear_cache()
    assert second(X).tolist() == (3 * X).tolist()
    factor = 4.0
    fxad.clear_caches()
    assert first(X).tolist() == (4 * X).tolist()


def test_deleted_arrays():
    x = jnp.ones(3)
    x.delete()
    assert x.is_deleted() and "deleted" in repr(x)
    for use in (lambda: x + 1, lambda: fxad.device_put(x), lambda: np.asarray(x)):
        with pytest.raises(DonatedError):
            use()


def test_copies():
    x = jnp.ones(3)
    other = copy.deepcopy({"x": x})["x"]
    x.delete()
    assert other.tolist() == [1.0, 1.0, 1.0]
    traced = fxad.jit(lambda x: copy.deepcopy(x) + copy.copy(x))(X)
    np.testing.assert_array_equal(traced, 2 * X)


def test_masked_arrays_are_refused():
    with pytest.raises(BadArgument, match="masked arrays"):
        fxad.jit(lambda x: x)(np.ma.array([1, 2], mask=[True, False]))


def test_memory_goes_with_the_function():
    x = jnp.ones(10)
    f = fxad.jit((lambda x: lambda: x)(x))
    for _ in range(3):
        f()
    alive = weakref.ref(x)
    del x, f
    assert alive() is None


def test_lowered_arguments():
    f = fxad.jit(lambda tree, y: (tree["a"] + y, y), donate_argnames="y")
    lowered = f.lower({"a": X}, y=X)
    args, kwargs = lowered.args_info
    assert (args[0]["a"].shape, args[0]["a"].donated, kwargs["y"].donated) == ((4,), False, True)
    assert lowered.donate_argnums == (1,)
    assert lowered.in_tree == fxad.tree.structure((({"a": 0},), {"y": 0}))
    assert str(lowered.in_avals[1]["y"]) == "f32[4]"
    assert lowered.cost_analysis() == lowered.cost()


def test_compiled_functions_never_trace():
    f = fxad.jit(lambda x: x + 1)
    compiled = f.lower(fxad.ShapeDtypeStruct((4,), np.float32)).compile(compiler_options={})
    np.testing.assert_array_equal(compiled(X), X + 1)
    for bad, said in (
        (lambda: compiled([X]), "structure"),
        (lambda: compiled(X[:2]), r"f32\[4\], it is called with f32\[2\]"),
        (lambda: compiled(X.astype(np.int32)), "i32"),
        (lambda: fxad.vmap(compiled)(np.ones((2, 4), np.float32)), "cannot be transformed"),
        (lambda: fxad.jvp(compiled, (X,), (X,)), "cannot be transformed"),
    ):
        with pytest.raises(TypeMismatch, match=said):
            bad()
