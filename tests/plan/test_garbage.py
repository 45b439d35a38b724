"""Compiling leaves no cycles of objects: while it runs nothing collects them, so that each of its
passes would add to the memory that a program's first run begins with."""

from __future__ import annotations

import gc

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad.api import compiled


def layer(x, weights):
    """Rows, products, and q, k, v cut from one product: their gradients are parts of its."""
    wide, back = weights
    normed = (x - jnp.mean(x, axis=1, keepdims=True)) / (1 + jnp.std(x, axis=1, keepdims=True))
    q, k, v = jnp.split(jnp.tanh(normed @ wide), 3, axis=1)
    return x + fxad.nn.softmax(q * k) @ back + jnp.cumsum(v, axis=0)


def step(layers, x):
    def loss(layers):
        y = x
        for weights in layers:
            y = layer(y, weights)
        return jnp.sum(jnp.sort(y, axis=1)[:, :8]) + jnp.sum(y * y)

    value, gradients = fxad.value_and_grad(loss)(layers)
    return value, fxad.tree.map(lambda w, g: w - 0.1 * g, layers, gradients)


def looped(layers, x):
    stacked = fxad.tree.map(lambda *each: jnp.stack(each), *layers)

    def loss(stacked):
        last, _ = fxad.lax.scan(lambda y, w: (layer(y, w), None), x, stacked)
        return jnp.sum(last)

    return fxad.grad(loss)(stacked)


def garbage(program):
    """How many objects only a collector can free after a program was optimised and planned."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        compiled.planned(program)
        return gc.collect()
    finally:
        if was_on:
            gc.enable()


def test_planning_leaves_nothing_to_collect():
    x = np.linspace(-1, 1, 64 * 96, dtype=np.float32).reshape(64, 96)
    layers = [(np.ones((96, 288), np.float32), np.ones((96, 96), np.float32)) for _ in range(2)]
    for function in (step, looped):
        program = fxad.jit(function).lower(layers, x).traced
        compiled.planned(program)  # modules are loaded, caches filled
        # Other threads, such as those of tests before, may leave something in one of the runs.
        assert min(garbage(program) for _ in range(3)) == 0
