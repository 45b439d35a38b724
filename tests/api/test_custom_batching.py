"""Rules for many examples: custom_vmap and sequential_vmap, alone and under derivatives."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import MissingRule, TreeError, TypeMismatch
from fxad.custom_batching import custom_vmap, sequential_vmap

X = np.linspace(-1, 1, 3, dtype=np.float32)
T = np.array([1.0, 2.0, 4.0], np.float32)


def marked():
    """sin, whose lanes are cosines: results say who computed them. `seen`: what the rule saw."""
    seen = []
    f = custom_vmap(lambda x: jnp.sin(x))

    @f.def_vmap
    def rule(size, in_batched, x):
        seen.append((size, in_batched))
        return jnp.cos(x), in_batched[0]

    return f, seen


def test_the_rule_computes_the_lanes():
    f, seen = marked()
    assert float(f(0.5)) == float(fxad.jit(f)(0.5)) == pytest.approx(np.sin(0.5))
    for g in (fxad.vmap(f), fxad.jit(fxad.vmap(f)), fxad.vmap(fxad.jit(f))):
        np.testing.assert_allclose(g(X), np.cos(X), rtol=1e-6)
    assert seen == [(3, [True])] * 3
    both = fxad.vmap(fxad.vmap(f))(np.ones((2, 3), np.float32))
    np.testing.assert_allclose(both, np.full((2, 3), np.cos(1)), rtol=1e-6)


def test_trees_and_shared_arguments():
    @custom_vmap
    def f(tree, y):
        return {"sum": tree["a"] + y, "y": y}

    @f.def_vmap
    def rule(size, in_batched, tree, y):
        assert in_batched == [{"a": True, "b": False}, False]
        return {"sum": tree["a"] - y, "y": y}, {"sum": True, "y": False}

    in_axes = ({"a": 0, "b": None}, None)
    out = fxad.vmap(f, in_axes, {"sum": 0, "y": None})({"a": X, "b": T}, 2.0)
    np.testing.assert_allclose(out["sum"], X - 2)
    assert float(out["y"]) == 2.0


def test_derivatives_are_of_the_rule():
    f, seen = marked()
    along = lambda x, t: fxad.jvp(f, (x,), (t,))  # noqa: E731
    wanted = np.cos(X), -np.sin(X) * T
    for out in (fxad.vmap(along)(X, T), fxad.jvp(fxad.vmap(f), (X,), (T,))):
        np.testing.assert_allclose(out, wanted, rtol=1e-6)
    assert [float(v) for v in along(0.5, 2.0)] == pytest.approx([np.sin(0.5), 2 * np.cos(0.5)])
    seen.clear()
    value, tangents = fxad.vmap(along, (None, 0), (None, 0))(np.float32(0.5), T)
    assert float(value) == pytest.approx(np.cos(0.5)) and seen == [(3, [False])]
    np.testing.assert_allclose(tangents, -np.sin(0.5) * T, rtol=1e-6)
    values, tangents = fxad.vmap(along, (0, None))(X, np.float32(2))
    np.testing.assert_allclose((values, tangents), (np.cos(X), -np.sin(X) * 2), rtol=1e-6)
    np.testing.assert_allclose(fxad.jacfwd(f)(X), -np.diag(np.sin(X)), rtol=1e-6)


def test_lanes_of_some_arguments():
    f = custom_vmap(lambda x, y: x * y**2)
    f.def_vmap(lambda size, batched, x, y: (x * y**2, any(batched)))
    along = lambda x, y, s, t: fxad.jvp(f, (x, y), (s, t))  # noqa: E731
    y, s, t = np.float32(3), T, np.float32(0.5)
    out = fxad.vmap(along, (0, None, 0, None))(X, y, s, t)
    np.testing.assert_allclose(out, (X * 9, s * 9 + X * 6 * 0.5), rtol=1e-6)


def test_reverse_mode():
    f, _ = marked()
    for g in (fxad.grad(f), fxad.jit(fxad.grad(f)), fxad.grad(fxad.jit(f))):
        assert float(g(0.5)) == pytest.approx(np.cos(0.5))
    total = fxad.grad(lambda x: fxad.vmap(f)(x).sum())(X)
    np.testing.assert_allclose(total, -np.sin(X), rtol=1e-6)
    (back,) = fxad.linear_transpose(custom_vmap_of_double(), 1.0)(5.0)
    assert float(back) == 10.0


def custom_vmap_of_double():
    f = custom_vmap(lambda x: 2 * x)
    f.def_vmap(lambda size, batched, x: (2 * x, batched[0]))
    return f


def test_with_a_backward_rule():
    f = fxad.custom_vjp(custom_vmap(lambda x: jnp.sin(x)))
    f.def_vmap(lambda size, batched, x: (jnp.cos(x), True))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * ct,))
    np.testing.assert_allclose(fxad.vmap(f)(X), np.cos(X), rtol=1e-6)
    assert float(fxad.grad(f)(1.0)) == 10.0


def test_one_after_the_other():
    f = sequential_vmap(lambda x, y: fxad.lax.while_loop(lambda v: v < y, lambda v: 2 * v, x))
    x, y = np.array([1.0, 3.0, 5.0], np.float32), np.float32(9)
    for g in (fxad.vmap(f, (0, None)), fxad.jit(fxad.vmap(f, (0, None)))):
        assert g(x, y).tolist() == [16.0, 12.0, 10.0]


def test_mistakes():
    with pytest.raises(MissingRule, match="def_vmap"):
        custom_vmap(lambda x: x)(1.0)
    for answer, error, said in (
        (lambda x, b: x, TypeMismatch, "must return"),
        (lambda x, b: ([x], b), TreeError, "the function gives"),
        (lambda x, b: (x, [True, False]), TreeError, "but out_batched has"),
    ):
        f = custom_vmap(lambda x: x)
        f.def_vmap(lambda size, batched, x, answer=answer: answer(x, batched))
        with pytest.raises(error, match=said):
            fxad.vmap(f)(X)

    def closed(y):
        f = custom_vmap(lambda x: x + y)
        f.def_vmap(lambda size, batched, x: (x, batched[0]))
        return f(1.0)

    with pytest.raises(TypeMismatch, match="make it an argument"):
        fxad.vmap(closed)(X)
