"""Equations that transforms record again are copied where that is the same as binding them."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.ir.program import subprograms
from fxad.trace import tracer

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
ROW = np.arange(4, dtype=np.float32)


def _loss(x):
    hidden = jnp.tanh(x * ROW + 0.5)
    return jnp.sum(hidden @ np.ones((4, 2), np.float32))


def _scanned(x):
    return fxad.lax.scan(lambda s, r: (jnp.sin(s * r + ROW), s), x[0], x)[0].sum()


@fxad.custom_vjp
def _ruled(x):
    return jnp.sin(x)


_ruled.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (ct * jnp.cos(x) * ROW[1],))

FUNCTIONS = {
    "gradient": fxad.grad(_loss),
    "second derivative": fxad.grad(lambda x: jnp.sum(fxad.grad(_loss)(x) ** 2)),
    "captured by an inner trace": lambda x: fxad.grad(lambda y: jnp.sum(jnp.sin(y * x)))(x * 2),
    "a result that is an argument": lambda x: fxad.vjp(lambda y: (y, y * y), x)[1]((x, x)),
    "a constant result": lambda x: fxad.jvp(lambda y: (1.0, y * 0 + 2), (x,), (x,)),
    "scan": fxad.grad(_scanned),
    "checkpoint": fxad.grad(fxad.checkpoint(lambda x: jnp.sum(jnp.exp(x * ROW) * x))),
    "custom rule": fxad.grad(lambda x: jnp.sum(_ruled(x * ROW))),
    "lanes": fxad.vmap(fxad.grad(lambda r: jnp.sum(jnp.sin(r) * ROW))),
    "effect": fxad.grad(lambda x: jnp.sum(fxad.debug.print("{}", x[0]) or jnp.sin(x))),
}


def _recorded(function):
    """A new trace's text, and what it does not show: captured values, lines and parts."""
    program = fxad.jit(lambda x: function(x)).lower(X).traced
    found = []

    def visit(program):
        for eqn in program.eqns:
            found.append((eqn.op.name, eqn.where, eqn.tag))
            for _, inner in subprograms(eqn):
                visit(inner)

    visit(program)
    return str(program), found


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_copies_are_what_binding_records(name):
    copied = _recorded(FUNCTIONS[name])
    tracer.set_intercept(lambda op, args, params: NotImplemented)  # has everything bound
    try:
        bound = _recorded(FUNCTIONS[name])
    finally:
        tracer.set_intercept(None)
    assert copied == bound
