"""What gradients compute, keep and carry: nothing for what has no influence on them."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax


@pytest.fixture(autouse=True)
def _x64():
    with fxad.enable_x64():
        yield


def _ops(function, *args):
    return [e.op.name for e in fxad.jit(function).lower(*args).program.eqns]


def test_nothing_is_computed_for_what_cannot_influence_the_gradient() -> None:
    def f(x, y):
        side = jnp.exp(y) @ jnp.exp(y)  # only a factor of the first gradient
        hidden = jnp.cosh(x)  # of no influence at all
        return jnp.sum(jnp.sin(x)) * side + 0 * jnp.sum(jnp.sign(hidden)) + jnp.sum(jnp.tan(y))

    x = np.linspace(0.1, 1, 4)
    for_x = _ops(fxad.grad(f), x, x)
    assert "cos" in for_x
    assert not {"cosh", "sin", "tan", "sign"} & set(for_x)
    assert for_x.count("exp") == 1
    for_y = _ops(fxad.grad(f, argnums=1), x, x)
    assert not {"cosh", "cos", "sign"} & set(for_y)


def test_nothing_is_stored_for_branches_of_a_tree_that_are_not_differentiated() -> None:
    def f(p, x):
        return jnp.sum(jnp.tanh(x @ p["a"]) @ gate(p["frozen"]))

    def gate(w):
        return jnp.exp(w) / (1 + jnp.exp(w))

    p = {"a": np.ones((3, 2)), "frozen": np.ones((2, 2))}
    x = np.ones((5, 3))

    def partial(a):
        return f({"a": a, "frozen": p["frozen"]}, x)

    text = fxad.make_ir(fxad.grad(partial))(p["a"]).text(["kept"])
    saved = [line for line in text.split("\n") if line.endswith("saved")]
    assert sum("exp(" in line for line in saved) == 0, text
    stopped = fxad.grad(lambda a: f({"a": a, "frozen": fxad.stop_gradient(a[:2])}, x))
    assert _ops(stopped, p["a"]).count("exp") == 1


def test_loops_carry_tangents_only_of_what_is_differentiated() -> None:
    def f(x):
        def body(state, v):
            count, total, noise = state
            return (count + 1, total * jnp.sin(v), jnp.cos(noise)), None

        return lax.scan(body, (0, 1.0, 0.5), x)[0][1]

    text = str(fxad.make_ir(fxad.grad(f))(np.ones(4)))
    assert text.count("cos(") == 1, "the derivative of sin; the noise is dropped"
