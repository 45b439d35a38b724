"""A chain of layers whose checkpoints may go elsewhere, for tests of offloading."""

from __future__ import annotations

import numpy as np

import fxad
import fxad.numpy as jnp

R = np.random.default_rng(0)
X = R.standard_normal((128, 96)).astype(np.float32)
WS = [(R.standard_normal((96, 96)) / 10).astype(np.float32) for _ in range(6)]


def layer(x, w):
    y = fxad.checkpoint_name(jnp.tanh(x @ w), "act")
    return y * jnp.sin(x)


def loss(**options):
    wrapped = fxad.checkpoint(layer, **options) if options else layer

    def f(x, ws):
        for w in ws:
            x = wrapped(x, w)
        return jnp.sum(x * x)

    return fxad.jit(fxad.value_and_grad(f, argnums=(0, 1)))


def puts(step) -> int:
    return sum(e.op.name == "put" for e in step.lower(X, WS).program.eqns)
