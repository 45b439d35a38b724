"""linear_cross_entropy against the loss of whole logits, and its memory."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.nn import linear_cross_entropy
from fxad.nn.losses import CHUNK


@pytest.fixture(autouse=True)
def _chunks_of_short_rows(monkeypatch):
    monkeypatch.setattr("fxad.ops.fused.linear_cross_entropy.SHORT", 0)


def _plain(x, table, targets):
    logits = x @ table.T
    picked = jnp.take_along_axis(logits, jnp.maximum(targets, 0)[..., None], -1)[..., 0]
    losses = fxad.nn.logsumexp(logits, axis=-1) - picked
    counted = (targets != -1).astype(jnp.float32)
    return jnp.sum(losses * counted) / jnp.maximum(jnp.sum(counted), 1.0)


def _draw(shape, width=8, vocabulary=37):
    r = np.random.default_rng(0)
    x = r.standard_normal((*shape, width)).astype(np.float32)
    table = r.standard_normal((vocabulary, width)).astype(np.float32)
    return x, table, r.integers(-1, vocabulary, shape).astype(np.int32)


@pytest.mark.parametrize("shape", [(7,), (2, 5), (2 * CHUNK + 3,), (3, CHUNK - 1)])
@pytest.mark.parametrize("wrap", [fxad.jit, lambda f: f], ids=["jit", "eager"])
def test_loss_and_gradients_are_those_of_whole_logits(shape, wrap):
    x, table, targets = _draw(shape)
    found, wanted = (
        wrap(fxad.value_and_grad(f, argnums=(0, 1)))(x, table, targets)
        for f in (linear_cross_entropy, _plain)
    )
    for a, b in zip(fxad.tree.leaves(found), fxad.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_forward_mode_lanes_and_no_targets():
    x, table, targets = _draw((2, 6))
    tangent = np.ones_like(table)
    found, wanted = (
        fxad.jvp(lambda t, f=f: f(x, t, targets), (table,), (tangent,))[1]
        for f in (linear_cross_entropy, _plain)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    lanes = fxad.vmap(linear_cross_entropy, in_axes=(0, None, 0))(x, table, targets)
    for i in range(2):
        alone = linear_cross_entropy(x[i], table, targets[i])
        np.testing.assert_allclose(lanes[i], alone, rtol=1e-6)
    assert float(linear_cross_entropy(x, table, np.full_like(targets, -1))) == 0.0
    empty = fxad.grad(linear_cross_entropy)(x[:0], table, targets[:0])
    assert empty.shape == (0, 6, 8)


def test_logits_of_all_rows_never_exist():
    x, table, targets = _draw((4 * CHUNK,), width=16, vocabulary=5000)
    step = fxad.jit(fxad.grad(linear_cross_entropy, argnums=(0, 1)))
    chunk = CHUNK * 5000 * 4
    assert step.lower(x, table, targets).plan.arena_bytes < 1.2 * chunk


def test_the_tables_gradient_does_not_lie_beside_all_logits():
    """Of few rows all logits are there at once; the product of their cotangents waits for its
    reader, the sum with the lookup's gradient, though it reads more than it makes."""
    width, layers, vocabulary = 256, 12, 5000
    rows, mix = CHUNK + width, jnp.eye(width)
    _, table, targets = _draw((rows,), width, vocabulary)

    def loss(table, tokens):
        x = table[tokens]
        for _ in range(layers):
            x = jnp.tanh(x @ mix)
        return linear_cross_entropy(x, table, targets)

    step = fxad.jit(lambda table, tokens: table - fxad.grad(loss)(table, tokens))
    lowered = step.lower(table, abs(targets))
    assert [e.op.name for e in lowered.program.eqns].count("dot") == 3 + 2 * layers
    logits, waiting = 4 * rows * vocabulary, 4 * rows * width * (layers + 2)
    assert waiting > table.nbytes
    assert lowered.plan.arena_bytes < logits + waiting


def test_bad_operands_are_named():
    x, table, targets = _draw((4,))
    with pytest.raises(ShapeError, match="do not go together"):
        linear_cross_entropy(x, table.T, targets)
    with pytest.raises(TypeMismatch, match="targets must be integers"):
        linear_cross_entropy(x, table, targets.astype(np.float32))
