"""A chain of layers whose gradients keep much, for tests of budgets."""

from __future__ import annotations

import numpy as np

import fxad
import fxad.numpy as jnp

R = np.random.default_rng(0)
X = R.standard_normal((256, 64)).astype(np.float32)
WS = [(R.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(8)]


def layer(x, w):
    return jnp.tanh(x @ w) * jnp.sin(x) + jnp.mean(x, axis=1, keepdims=True)


def loss(x, ws):
    for w in ws:
        x = layer(x, w)
    return jnp.sum(x * x)


def leaves(tree):
    return [np.asarray(v) for v in fxad.tree.leaves(tree)]
