"""Prints, callbacks and the NaN finder under every transform."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import debug, lax
from fxad.core.errors import NumericsError, TypeMismatch

X = np.array([1.0, 2.0, 3.0], np.float32)


def _noted(x):
    debug.print("a {}", x)
    y = jnp.sin(x)
    debug.print("b")
    debug.print("c {y:.2f} {s}", y=y, s="text")
    return y * x


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_prints_once_and_in_order(wrap, capsys) -> None:
    expected = ["a 1.0", "b", "c 0.84 text"]
    for function in (_noted, fxad.grad(_noted), fxad.value_and_grad(_noted)):
        run = wrap(function)
        for _ in range(2):
            run(np.float32(1))
            assert capsys.readouterr().out.splitlines() == expected
    wrap(lambda x: fxad.jvp(_noted, (x,), (x,)))(jnp.float32(1))
    assert capsys.readouterr().out.splitlines() == expected
    fxad.grad(wrap(_noted))(np.float32(1))
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_vmap_prints_lane_by_lane(wrap, capsys) -> None:
    def f(x, y):
        debug.print("{} {}", x, y)
        return x * y

    wrap(fxad.vmap(fxad.vmap(f, (0, None)), (None, 0)))(X[:2], X[:2])
    out = capsys.readouterr().out.splitlines()
    assert out == ["1.0 1.0", "2.0 1.0", "1.0 2.0", "2.0 2.0"]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_loops_and_branches(wrap, capsys) -> None:
    def branch(x):
        def yes(v):
            debug.print("yes {}", v)
            return v * 2

        def no(v):
            debug.print("no {}", v)
            return v

        return lax.cond(x > 1, yes, no, x)

    def body(carry, x):
        debug.print("step {}", x)
        return carry + branch(x), x

    def loop(xs):
        return lax.scan(body, jnp.float32(0), xs)[0]

    def count(x):
        def step(v):
            debug.print("at {}", v)
            return v + 1

        return lax.while_loop(lambda v: v < 3, step, x)

    expected = ["step 1.0", "no 1.0", "step 2.0", "yes 2.0", "step 3.0", "yes 3.0"]
    assert wrap(loop)(X) == 11
    assert capsys.readouterr().out.splitlines() == expected
    np.testing.assert_array_equal(wrap(fxad.grad(loop))(X), [1, 2, 2])
    assert capsys.readouterr().out.splitlines() == expected
    assert wrap(count)(np.float32(1)) == 3
    assert capsys.readouterr().out.splitlines() == ["at 1.0", "at 2.0"]
    wrap(fxad.vmap(branch))(X)
    assert capsys.readouterr().out.splitlines() == ["no 1.0", "yes 2.0", "yes 3.0"]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
def test_callbacks(wrap) -> None:
    seen = []

    def f(x):
        debug.callback(lambda v, tag: seen.append((tag, float(v["sum"]))), {"sum": x.sum()}, "t")
        a = debug.pure_callback(np.cumsum, x, x)
        b = debug.io_callback(lambda v: {"n": v.sum()}, {"n": fxad.ShapeDtypeStruct((), "f4")}, a)
        return a + b["n"]

    expected = np.cumsum(X) + np.float32(10)
    np.testing.assert_array_equal(wrap(f)(X), expected)
    assert seen == [("t", 6.0)]
    rows = np.stack([X, X + 1])
    np.testing.assert_array_equal(wrap(fxad.vmap(f))(rows)[0], expected)
    assert seen == [("t", 6.0), ("t", 6.0), ("t", 9.0)]


def _misaligned(v: np.ndarray) -> np.ndarray:
    held = np.zeros(v.nbytes + 1, np.uint8)[1:].view(v.dtype).reshape(v.shape)
    held[...] = v
    assert not held.flags.aligned
    return held


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda v: np.repeat(v, 2, axis=1)[:, ::2], _misaligned]
)
def test_callbacks_may_return_any_layout(layout) -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = fxad.jit(lambda x: debug.pure_callback(layout, x, x) + 1)(x)
    np.testing.assert_array_equal(got, x + 1)


def test_errors_of_callbacks() -> None:
    with pytest.raises(TypeMismatch, match="declared"):
        fxad.jit(lambda x: debug.pure_callback(lambda v: v[:1], x, x))(X)
    with pytest.raises(TypeMismatch, match="custom_jvp"):
        fxad.grad(lambda x: debug.pure_callback(np.sin, x, x).sum())(X)
    with pytest.raises(ZeroDivisionError):
        fxad.jit(lambda x: debug.callback(lambda v: 1 // 0, x))(X)
    with pytest.raises(TypeMismatch, match="format"):
        debug.print(X)


def test_unneeded_pure_calls_go() -> None:
    seen = []

    def f(x):
        debug.pure_callback(lambda v: seen.append(1) or v, x, x)
        return x

    fxad.jit(f)(X)
    assert not seen


# ---------------------------------------------------------------- NaN


def _program(length: int, faulty: int, fault: str):
    """A function of `length` lines; line number `faulty` + 1 is `fault`."""
    steps = ["x = jnp.sin(x)", "x = x * 0.5 + 2.0", "x = jnp.exp(x)", "x = x / 10.0"]
    lines = [fault if i == faulty else steps[i % 4] for i in range(1, length + 1)]
    source = "def f(x):\n" + "".join(f"    {line}\n" for line in lines) + "    return x.sum()\n"
    space = {"jnp": jnp}
    exec(compile(source, "model.py", "exec"), space)
    return space["f"]


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit, fxad.grad], ids=["eager", "jit", "grad"])
def test_faults_are_found_where_they_are(wrap) -> None:
    with debug.nans():
        wrap(_program(200, 0, ""))(X)
    for line in range(1, 201):
        function = wrap(_program(200, line, "x = jnp.log(x - 100.0)"))
        with debug.nans(), pytest.raises(NumericsError, match=rf"log made .*model.py:{line + 1}\)"):
            function(X)
        # sqrt(0) is finite, its derivative is not.
    assert np.isnan(jnp.log(jnp.float32(-1)))


def test_faults_of_the_backward_pass() -> None:
    for line in range(1, 201, 3):
        function = _program(200, line, "x = jnp.sqrt(x * 0.0)")
        with debug.nans():
            function(X)
            with pytest.raises(NumericsError, match=rf"model.py:{line + 1}\)"):
                fxad.jit(fxad.grad(function))(X)


def test_numbers_and_numpy_arrays_compute_as_arrays() -> None:
    """Compiled code makes Arrays of its arguments, and so does the check of what it computes."""
    quotient = fxad.jit(lambda x, y, k: (x / (y - y), k, y), static_argnums=2)
    for x, y in ((X, np.float32(1)), (np.float32(1), X), (1.0, 2.0)):
        with debug.nans(), pytest.raises(NumericsError, match="div made"):
            quotient(x, y, "static")
    with fxad.disable_jit():
        results = fxad.jit(lambda x: {"x": x, "n": 2, "none": None})(X)
    assert isinstance(results["x"], fxad.Array) and isinstance(results["n"], fxad.Array)
    with fxad.disable_jit():
        zero = fxad.jit(fxad.grad(lambda n: n * 2.0, allow_int=True))(np.int32(3))
    assert zero.dtype == fxad.float0


def test_inside_loops_and_their_gradients() -> None:
    def f(x):
        def body(c, i):
            return jnp.log(c - i), c

        return lax.scan(body, x, jnp.arange(3.0))[0]

    with debug.nans(), pytest.raises(NumericsError, match="log made 1 NaN.*test_debug.py"):
        fxad.jit(f)(np.float32(1.5))
    with debug.nans(), pytest.raises(NumericsError, match="log made 1 NaN.*test_debug.py"):
        fxad.jit(fxad.grad(f))(np.float32(1.5))


def _divided(v):
    return v.at[0].add(1.0) / (v + 1.0)


BAD = np.array([-1.0, 2.0], np.float32)
CONTROL = {
    "cond": lambda x: lax.cond(True, _divided, lambda v: v, x),
    "a cond of trees": lambda x: lax.cond(True, lambda d: _divided(d["x"]), len, {"x": x}),
    "switch": lambda x: lax.switch(1, [lambda v: v, _divided], x),
    "a switch of one": lambda x: lax.switch(0, [_divided], x),
    "while": lambda x: lax.while_loop(lambda c: c[0] < 0, _divided, x),
    "fori": lambda x: lax.fori_loop(0, 2, lambda i, c: _divided(c), x),
    "scan": lambda x: lax.scan(lambda c, _: (_divided(c), None), x, length=1),
    "map": lambda x: lax.map(_divided, x[None]),
}


@pytest.mark.parametrize("wrap", [lambda f: f, fxad.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("control", CONTROL.values(), ids=CONTROL)
def test_bodies_given_numpy_arrays_are_looked_into(control, wrap) -> None:
    with debug.nans(), pytest.raises(NumericsError, match=r"div made 1 NaN.*test_debug.py"):
        wrap(control)(BAD)


def test_a_branch_called_by_python_gives_arrays() -> None:
    with debug.nans():
        assert isinstance(lax.cond(True, lambda x: x, lambda x: x, X), fxad.Array)
        assert isinstance(lax.switch(1, [lambda: 1.0, lambda: 2.0]), fxad.Array)


def test_masks_and_inputs_are_no_faults() -> None:
    with debug.nans():
        jnp.where(jnp.array([True, False]), X[:2], -jnp.inf)
        jnp.sin(jnp.array([np.nan], np.float32))
    with debug.nans(infinities=False):
        assert jnp.log(jnp.float32(0)) == -np.inf
    with debug.nans(), pytest.raises(NumericsError, match="1 infinite"):
        jnp.log(jnp.float32(0))
