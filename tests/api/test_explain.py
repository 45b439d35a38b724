"""What the debugger's explanations say: retraces and their limit, copies, stops, every fault."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import NumericsError, RetraceError, TypeMismatch

X = np.linspace(0.1, 1, 6, dtype=np.float32)

# ---------------------------------------------------------------- retraces


def scaled():
    count = []

    def f(p, n=1, mode="a"):
        count.append(None)
        return p["w"] * n

    return fxad.jit(f, static_argnames=("mode",)), count


CALLS = [
    (({"w": X[:3]},), {}, "args[0]['w'] is f32[3], not f32[6]"),
    (({"w": X.astype(np.int32)},), {}, "args[0]['w'] is i32[6], not f32[6]"),
    (({"w": 2.0},), {}, "args[0]['w'] is f32[], not f32[6]"),
    (({"w": X, "b": X},), {}, "structure"),
    (({"w": X},), {"mode": "b"}, "static argument 'mode' is 'b', not 'a'"),
]


@pytest.mark.parametrize(("args", "kwargs", "said"), CALLS)
def test_the_reason_of_a_retrace(args, kwargs, said: str) -> None:
    f, count = scaled()
    explain = fxad.debug.explain_retrace(f)
    assert "not been traced" in explain({"w": X})
    f({"w": X}, mode="a")
    assert "has a trace" in explain({"w": X * 2}, mode="a")
    kwargs = {"mode": "a", **kwargs}
    assert said in explain(*args, **kwargs)
    assert len(count) == 1, "explaining traces nothing"
    f(*args, **kwargs)
    assert len(count) == 2


def test_python_numbers_and_arrays_of_their_type_differ() -> None:
    f = fxad.jit(lambda x, s: x * s)
    f(X, 2.0)
    assert "args[1] is an array f32[], not a Python number" in f.explain_retrace(X, np.float32(2))
    with fxad.enable_x64():
        assert "x64 is on now" in f.explain_retrace(X, 2.0)


def test_the_nearest_trace_is_compared() -> None:
    f = fxad.jit(lambda x, y: x.sum() + y.sum())
    f(X[:2], X[:2])
    f(X[:3], X[:3])
    f(X[:4], X[:4])
    said = f.explain_retrace(X[:3], X)
    assert "args[1] is f32[6], not f32[3]" in said
    assert "args[0]" not in said


def test_too_many_signatures_are_an_error_that_says_why() -> None:
    f = fxad.jit(lambda x: x * 2)
    with fxad.config.override(max_traces=3):
        for n in (1, 2, 3, 2, 1):
            f(X[:n])
        with pytest.raises(
            RetraceError, match=r"args\[0\] is f32\[4\], not f32\[1\].*max_traces = 3"
        ):
            f(X[:4])
        np.testing.assert_array_equal(f(X[:3]), X[:3] * 2)
    f(X[:4])


def test_only_jitted_functions_have_traces() -> None:
    with pytest.raises(TypeMismatch, match="made by fxad.jit"):
        fxad.debug.explain_retrace(lambda x: x)


# ---------------------------------------------------------------- copies


def copies(f, *args):
    return [(c.what, c.nbytes, c.why) for c in fxad.debug.explain_copies(f)(*args)]


def test_nothing_is_copied_without_reason() -> None:
    assert copies(lambda x, y: (x + y, (x * y).sum()), X, jnp.asarray(X)) == []
    assert str(fxad.debug.explain_copies(lambda x: x + 1)(X)) == "no copies"


def test_arguments_that_cannot_be_read_in_place() -> None:
    cases = [
        (np.ones((3, 4), np.float32).T, 48, "not contiguous"),
        (X[::2], 12, "not contiguous"),
        (X.astype(">f4"), 24, "other order"),
        (X.astype(np.float64), 24, "float64 becomes float32"),
    ]
    for x, nbytes, why in cases:
        [found] = copies(lambda p: p["x"] + 1, {"x": x})
        assert found[:2] == ("args[0]['x']", nbytes)
        assert why in found[2]


def test_donations_say_what_became_of_them() -> None:
    step = fxad.jit(lambda x, y: (x + 1, y.sum()), donate_argnums=(0, 1))
    mine, other = jnp.asarray(X) * 1, jnp.asarray(X) * 1
    [unused] = copies(step, mine, other)
    assert unused[0] == "args[1] (donated)"
    assert "not used" in unused[2]
    taken = fxad.jit(lambda x: x + 1, donate_argnums=0)
    [borrowed] = copies(taken, X)
    assert (borrowed[1], "pass an fxad.Array" in borrowed[2]) == (24, True)
    assert copies(taken, mine) == []


def test_results_that_are_arguments_and_states_of_loops() -> None:
    [same] = copies(lambda x, y: (y + 1, x), X, X)
    assert same == ("result 1", 24, "it is args[0] itself")
    found = copies(lambda x: (lax.fori_loop(0, 3, lambda i, v: jnp.roll(v, 1), x), x), X)
    assert any("loop or branch" in why for _, _, why in found)


# ---------------------------------------------------------------- breakpoint


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit])
def test_breakpoints_stop_with_the_values(wrap, monkeypatch) -> None:
    stops = []

    def hook():
        frame = sys._getframe(1)
        stops.append((frame.f_locals["args"], frame.f_locals["values"]))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x):
        y = jnp.sin(x)
        fxad.debug.breakpoint(x, y=y)
        return y.sum()

    wrap(fxad.grad(f))(X)
    [(args, values)] = stops
    np.testing.assert_array_equal(args[0], X)
    np.testing.assert_allclose(values["y"], np.sin(X), rtol=1e-6)


# ---------------------------------------------------------------- every fault of a long program

LENGTH = 200


def long_program(fault: int):
    """200 equations on lines of their own; number `fault` makes a NaN of a finite number."""
    lines = ["def f(x, bad):", "    v = x"]
    for number in range(LENGTH):
        kind = ("v * 1.0625", "jnp.sin(v)", "v + x", "jnp.tanh(v)")[number % 4]
        lines.append(f"    v = {'jnp.log(bad - v * v)' if number == fault else kind}")
    lines.append("    return jnp.sum(v)")
    namespace = {"jnp": jnp}
    exec(compile("\n".join(lines), "faulty.py", "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit, fxad.grad])
def test_the_first_nan_is_named_at_every_equation(wrap) -> None:
    step = 1 if wrap is fxad.jit else 7
    for fault in range(0, LENGTH, step):
        with pytest.raises(NumericsError) as caught, fxad.debug.nans():
            wrap(long_program(fault))(np.float32(0.5), np.float32(-1))
        said = str(caught.value)
        assert said.startswith("log made 1 NaN"), fault
        assert f"(faulty.py:{fault + 3})" in said, fault


def test_faults_of_the_backward_pass_at_every_equation() -> None:
    @fxad.custom_jvp
    def broken(x):
        return jnp.sin(x)

    @broken.defjvp
    def rule(primals, tangents):
        return jnp.sin(primals[0]), jnp.sqrt(primals[0] - 1e3) * tangents[0]

    for fault in range(0, 50, 5):

        def f(x, fault=fault):
            for number in range(50):
                x = broken(x) if number == fault else jnp.tanh(x) + 0.1
            return x

        with pytest.raises(NumericsError, match="sqrt made 1 NaN"), fxad.debug.nans():
            fxad.jit(fxad.grad(f))(np.float32(0.5))


def test_looking_for_nans_leaves_the_compiled_code_alone() -> None:
    f = fxad.jit(lambda x: jnp.sum(jnp.log(x) * 2))
    before = f.lower(X).llvm
    with fxad.debug.nans():
        f(X)
    assert f.lower(X).llvm == before
    assert fxad.jit(lambda x: jnp.sum(jnp.log(x) * 2)).lower(X).llvm == before
