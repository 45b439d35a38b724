"""checking_leaks: traced values found at the end of their trace, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad import lax
from fxad.core.errors import LeakedTracerError

X = np.arange(3, dtype=np.float32)


@pytest.mark.parametrize("wrap", [fxad.jit, fxad.vmap, lambda f: lambda x: lax.map(f, x)])
def test_what_is_kept_is_found(wrap):
    kept = []
    f = wrap(lambda x: kept.append(x) or x)
    with fxad.checking_leaks(), pytest.raises(LeakedTracerError, match=r"f32.*held by a list"):
        f(X)


def test_a_closure_that_is_kept_is_found():
    class Holder:
        pass

    holder = Holder()

    def f(x):
        holder.later = [lambda: x]
        return x

    with fxad.checking_leaks(), pytest.raises(LeakedTracerError, match="return it"):
        fxad.jit(f)(X)


def test_nested_traces():
    def f(x):
        kept = []
        return fxad.jit(lambda y: kept.append(y) or y)(x)

    with fxad.checking_leaks(), pytest.raises(LeakedTracerError):
        fxad.jit(f)(X)


def rules():
    f = fxad.custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * jnp.cos(x),))
    g = fxad.custom_jvp(lambda x: jnp.sin(x))
    g.defjvp(lambda p, t: (g(*p), jnp.cos(p[0]) * t[0]))
    h = fxad.custom_batching.custom_vmap(lambda x: x * 2)
    h.def_vmap(lambda size, batched, x: (x * 2, batched[0]))
    return lambda x: f(x) + g(x) + h(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: fxad.jit(lambda x: x)(X),
        lambda: fxad.vmap(fxad.jit(jnp.sin))(X),
        lambda: fxad.jit(fxad.grad(lambda x: jnp.sum(jnp.tanh(x))))(X),
        lambda: lax.scan(lambda c, x: (jnp.sin(c), x), 1.0, X),
        lambda: fxad.jit(fxad.vmap(fxad.grad(rules())))(X),
        lambda: fxad.jit(lambda x: fxad.vjp(fxad.checkpoint(rules()), x)[0])(X),
        lambda: fxad.jit(lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x))(X),
    ],
)
def test_nothing_is_found_where_nothing_is_kept(call):
    with fxad.checking_leaks():
        call()


def test_only_inside_the_block():
    kept = []
    with fxad.checking_leaks():
        pass
    fxad.jit(lambda x: kept.append(x) or x)(X)
