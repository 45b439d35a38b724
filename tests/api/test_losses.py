"""linear_cross_entropy against the loss of whole logits, and its memory."""

from __future__ import annotations

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.nn import linear_cross_entropy
from fxad.nn.losses import CHUNK
from fxad.ops.fused.linear_cross_entropy import PART


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


def _logits_products(lowered):
    """The rows of every product with the vocabulary, in loops too."""
    found = []

    def walk(program):
        for eqn in program.eqns:
            if eqn.op.name == "dot" and 5000 in (eqn.outputs[0].type.shape):
                found.append(eqn.outputs[0].type.shape[0])
            for inner in eqn.params.values():
                if hasattr(inner, "eqns"):
                    walk(inner)

    walk(lowered.program)
    return found


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (PART,), (3, PART + 1)])
@pytest.mark.parametrize("wrap", [fxad.jit, lambda f: f], ids=["jit", "eager"])
def test_rows_without_targets_may_be_skipped(shape, share, wrap):
    x, table, targets = _draw(shape)
    targets = np.where(np.random.default_rng(1).random(shape) < share, abs(targets), -1)
    x[targets == -1] *= 1e30  # whose logits are never computed
    wide = np.where(targets[..., None] == -1, 0, x).astype(np.float64)

    def skipping(x):
        return linear_cross_entropy(x, table, targets, skip_ignored=True)

    loss, slope = wrap(fxad.value_and_grad(skipping))(x)
    assert slope.dtype == np.float32 and slope.shape == x.shape
    logits = wide @ table.T.astype(np.float64)
    soft = np.exp(logits - logits.max(-1, keepdims=True))
    soft /= soft.sum(-1, keepdims=True)
    counted = (targets != -1)[..., None]
    hot = (np.arange(len(table)) == targets[..., None]) * counted
    number = max(counted.sum(), 1)
    expected = -(np.log(soft) * hot).sum() / number
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_allclose(wrap(skipping)(x), expected, rtol=1e-5)
    np.testing.assert_allclose(slope, (soft - hot) * counted @ table / number, rtol=2e-5, atol=2e-6)


def test_skipping_bounds_the_rows_at_once_and_leaves_the_tables_gradient():
    x, table, targets = _draw((2 * CHUNK,), width=16, vocabulary=5000)

    def skipping(x, table):
        return linear_cross_entropy(x, table, targets, skip_ignored=True)

    lowered = fxad.jit(fxad.grad(skipping)).lower(x, table)
    assert _logits_products(lowered) == [PART]
    assert lowered.plan.arena_bytes < 1.5 * PART * 5000 * 4
    both = fxad.jit(fxad.grad(skipping, argnums=(0, 1)))(x, table)
    wanted = fxad.jit(fxad.grad(linear_cross_entropy, argnums=(0, 1)))(x, table, targets)
    for found, expected in zip(both, wanted, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_skipping_under_other_transformations():
    x, table, targets = _draw((3, 6))

    def loss(x, targets, skip):
        return linear_cross_entropy(x, table, targets, skip_ignored=skip)

    for of in (fxad.vmap, fxad.hessian, fxad.checkpoint):
        found, wanted = (of(lambda x, t, s=s: loss(x, t, s))(x, targets) for s in (True, False))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    tangent = np.ones_like(x)
    found, wanted = (
        fxad.jvp(lambda x, s=s: loss(x, targets, s), (x,), (tangent,)) for s in (True, False)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert loss(x[:0], targets[:0], True) == 0.0


def test_bad_operands_are_named():
    x, table, targets = _draw((4,))
    with pytest.raises(ShapeError, match="do not go together"):
        linear_cross_entropy(x, table.T, targets)
    with pytest.raises(TypeMismatch, match="targets must be integers"):
        linear_cross_entropy(x, table, targets.astype(np.float32))
