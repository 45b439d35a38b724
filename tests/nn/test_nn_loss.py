"""Losses with label smoothing and z-loss: against PyTorch, in parts, and of whole models."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import loss as losses
from fxad_nn import models
from fxad_nn.errors import ConfigError
from fxad_nn.loss import IGNORE, Penalties, chunked_cross_entropy, cross_entropy
from fxad_nn.optim import adamw
from fxad_nn.spec import init_params
from fxad_nn.step import train_step

BOTH = Penalties(label_smoothing=0.1, z_loss=1e-2)


def example(rows=12, width=8, vocab=17):
    rng = np.random.default_rng(0)
    x, table = (rng.standard_normal((n, width)).astype(np.float32) for n in (rows, vocab))
    targets = rng.integers(0, vocab, rows).astype(np.int32)
    targets[1] = targets[-2] = IGNORE
    return x.reshape(2, -1, width), table, targets.reshape(2, -1)


@pytest.mark.peers
@pytest.mark.parametrize("penalties", [Penalties(0.1), Penalties(0.0, 1e-2), BOTH])
def test_penalties_are_those_of_pytorch(penalties):
    torch = pytest.importorskip("torch")
    x, table, targets = example()
    weight, inputs = torch.tensor(table, requires_grad=True), torch.from_numpy(x)
    logits = (inputs @ weight.T).flatten(0, 1)
    wanted = torch.from_numpy(targets).long().flatten()
    expected = torch.nn.functional.cross_entropy(
        logits, wanted, ignore_index=IGNORE, label_smoothing=penalties.label_smoothing
    )
    squares = torch.logsumexp(logits[wanted != IGNORE], dim=-1) ** 2
    expected = expected + penalties.z_loss * squares.mean()
    expected.backward()
    value_and_grad = fxad.value_and_grad(lambda t: cross_entropy(x @ t.T, targets, penalties))
    value, grad = value_and_grad(jnp.asarray(table))
    np.testing.assert_allclose(value, expected.detach(), rtol=1e-6)
    np.testing.assert_allclose(grad, weight.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [1, 5, 12, 512])
def test_logits_in_parts_give_the_same_loss_and_gradients(monkeypatch, size):
    monkeypatch.setattr(losses, "CHUNK", size)
    x, table, targets = map(jnp.asarray, example())

    def whole(x, table):
        return cross_entropy(x @ table.T, targets, BOTH)

    @fxad.jit
    def in_parts(x, table):
        return chunked_cross_entropy(lambda rows: rows @ table.T, x, targets, BOTH)

    value, grads = fxad.value_and_grad(whole, argnums=(0, 1))(x, table)
    same, others = fxad.value_and_grad(in_parts, argnums=(0, 1))(x, table)
    np.testing.assert_allclose(same, value, rtol=1e-6)
    for grad, other in zip(grads, others, strict=True):
        np.testing.assert_allclose(other, grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["tiny", "llama-tiny"])
def test_models_are_trained_with_penalties(name):
    config = models.preset(name, layers=1)
    family = models.family(config)
    params = init_params(family.spec(config), fxad.random.key(0))
    tokens = np.random.default_rng(0).integers(0, config.vocab, (2, 9)).astype(np.int32)
    batch = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    logits = family.forward(params, batch[0], config)
    for penalties in (Penalties(), BOTH):
        wanted = cross_entropy(logits, batch[1], penalties)
        assert float(family.loss(params, batch, config, penalties=penalties)) == pytest.approx(
            float(wanted), rel=1e-5
        )
    optimizer = adamw(1e-2)
    step = train_step(config, optimizer, clip=1.0, penalties=BOTH)
    state, history = optimizer.init(params), []
    for _ in range(10):
        params, state, value = step(params, state, *batch)
        history.append(float(value))
    assert history[0] == pytest.approx(float(wanted), rel=1e-4)
    assert history[-1] < 0.9 * history[0]


@pytest.mark.parametrize(("given", "saying"), [((1.0,), "smoothing"), ((0.0, -1.0), "z-loss")])
def test_penalties_that_cannot_be(given, saying):
    with pytest.raises(ConfigError, match=saying):
        Penalties(*given)
