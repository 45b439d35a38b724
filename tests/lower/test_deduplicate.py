"""Equal computations share nodes and kernels; whatever differs in anything does not."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.api import compiled
from fxad.ir.kernel import kernel_text
from fxad.ir.plan import Run, walk
from fxad.lower import deduplicate

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
Y = np.cos(np.arange(64 * 64, dtype=np.float32)).reshape(64, 64)


def launches(function, *args):
    """Every launch of a program: its kernel and what it runs on."""
    program = fxad.jit(function).lower(*args).traced
    return [s for s in walk(compiled.planned(program).plan.steps) if isinstance(s, Run)]


def described(runs):
    places = [[(s.place, s.number, s.offset, s.type) for s in r.slots] for r in runs]
    what = [(kernel_text(r.kernel), r.kernel.name, r.kernel.where, r.scalars) for r in runs]
    return list(zip(what, places, strict=True))


def test_equal_layers_share_their_kernels():
    def model(x, *weights):
        for w in weights:
            y = jnp.tanh(x @ w)
            y = (y - jnp.mean(y, axis=1, keepdims=True)) * 0.5
            x = x + fxad.nn.softmax(y)
        return x

    weights = [Y + i for i in range(4)]
    runs = launches(model, X, *weights)
    one = launches(model, X, Y)
    assert len(runs) == 4 * len(one)
    assert len({id(r.kernel) for r in runs}) <= 2 * len(one)  # the first or last may differ
    with compiled.fusion(False):
        plain = fxad.jit(model)(X, *weights)
    assert np.array_equal(fxad.jit(model)(X, *weights), plain)


def test_gradients_of_layers_share_kernels_that_work_in_place():
    def step(params, x):
        def loss(params):
            y = x
            for w in params:
                y = jnp.tanh(y @ w)
            return jnp.sum(y)

        return [p - 0.1 * g for p, g in zip(params, fxad.grad(loss)(params), strict=True)]

    params = [Y + i for i in range(6)]
    lowered = fxad.jit(step, donate_argnums=0).lower(params, X)
    kernels = [s.kernel for s in walk(lowered.plan.steps) if isinstance(s, Run)]
    in_place = [k for k in kernels if any(b.role == "inout" for b in k.buffers)]
    assert len(in_place) >= 4
    assert len({id(k) for k in in_place}) <= 3


def doubled(x):
    return jnp.cumsum(jnp.concatenate([x, x]), axis=1)


# Two computations of one program, alike but for one thing.
PAIRS = {
    "equal": (lambda x, y: jnp.sin(x) @ y, lambda x, y: jnp.sin(x) @ y),
    "operands swapped": (lambda x, y: jnp.sin(x) - y, lambda x, y: jnp.sin(y) - x),
    "operands in another order": (lambda x, y: jnp.exp(x) - y, lambda x, y: y - jnp.exp(x)),
    "one operand twice": (lambda x, y: x @ y, lambda x, y: x @ x),
    "a number": (lambda x, y: jnp.sin(x) * 2.5, lambda x, y: jnp.sin(x) * 3.5),
    "a number that is a constant": (lambda x, y: x * 2.5 + 1, lambda x, y: x * 2.5 + 7),
    "sign of zero": (lambda x, y: jnp.maximum(x, 0.0), lambda x, y: jnp.maximum(x, -0.0)),
    "an op": (lambda x, y: jnp.sin(x) + y, lambda x, y: jnp.cos(x) + y),
    "an axis": (lambda x, y: jnp.sum(x * y, axis=0), lambda x, y: jnp.sum(x * y, axis=1)),
    "a monoid": (lambda x, y: jnp.max(x, axis=1), lambda x, y: jnp.min(x, axis=1)),
    "a permutation": (lambda x, y: jnp.exp(x.T) + y, lambda x, y: jnp.exp(x) + y),
    "where a slice starts": (lambda x, y: x[:32] @ y, lambda x, y: x[32:] @ y),
    "what a slice is of": (lambda x, y: x[:32] @ y, lambda x, y: doubled(x)[:32] @ y),
    "steps of a slice": (lambda x, y: jnp.exp(x[::2]), lambda x, y: jnp.exp(x[:32])),
    "a shape": (lambda x, y: x @ y[:, :48], lambda x, y: x @ y[:, :40]),
    "a dtype": (
        lambda x, y: jnp.sin(x) * y,
        lambda x, y: jnp.sin(x.astype(jnp.bfloat16)) * y.astype(jnp.bfloat16),
    ),
    "contracted axes": (lambda x, y: x @ y.T, lambda x, y: x.T @ y),
    "what follows a product": (lambda x, y: jnp.tanh(x @ y), lambda x, y: jnp.tanh(y + x @ y)),
    "what is stored": (
        lambda x, y: jnp.tanh(jnp.exp(x) @ y),
        lambda x, y: [z := jnp.exp(x) @ y, jnp.tanh(z)],
    ),
    "the order of parts": (
        lambda x, y: jnp.concatenate([x, y, x]),
        lambda x, y: jnp.concatenate([x, x, y]),
    ),
    "the axis of parts": (
        lambda x, y: jnp.concatenate([x, y], axis=0) * 2,
        lambda x, y: jnp.concatenate([x, y], axis=1) * 2,
    ),
    "a window": (
        lambda x, y: fxad.nn.dot_product_attention(*[x.reshape(1, 64, 2, 32)] * 3),
        lambda x, y: fxad.nn.dot_product_attention(*[x.reshape(1, 64, 2, 32)] * 3, is_causal=True),
    ),
    "a gather": (lambda x, y: x[jnp.arange(9)], lambda x, y: x[:, jnp.arange(9)]),
    "a running sum": (lambda x, y: jnp.cumsum(x, 0), lambda x, y: jnp.cumsum(x, 1)),
    "large sums": (
        lambda x, y: jnp.sum(jnp.tile(x, (40, 1)) * 2, axis=0),
        lambda x, y: jnp.sum(jnp.tile(x, (44, 1)) * 2, axis=0),
    ),
}


@pytest.mark.parametrize("what", PAIRS)
def test_sharing_changes_nothing(what, monkeypatch):
    first, second = PAIRS[what]

    def both(x, y):
        return [first(x, y), second(y, x), first(y, x), second(x, y)]

    shared = launches(both, X, Y)
    monkeypatch.setattr(
        deduplicate.UniqueNodes, "node", lambda self, definition, structure, awaited, build: build()
    )
    alone = launches(both, X, Y)
    assert described(shared) == described(alone)
    assert len({id(r.kernel) for r in alone}) == len(alone)
    if what == "equal":
        assert len({id(r.kernel) for r in shared}) < len(shared)


def test_kernels_keep_the_lines_they_came_from():
    def both(x, y):
        a = jnp.sin(x) @ y
        b = jnp.sin(y) @ x
        return a, b

    where = {k.where for k in (r.kernel for r in launches(both, X, Y))}
    assert len({w for places in where for w in places}) > len(
        {w.split(" @ ")[0] for places in where for w in places}
    )
