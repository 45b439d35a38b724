"""GPT-2 124M from identical random weights: gradients and ten AdamW steps are PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.peers
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import fxad
from fxad_nn import models
from fxad_nn.model import load
from fxad_nn.optim import adamw
from fxad_nn.spec import named_leaves

STEPS, BATCH, TOKENS = 10, 2, 32


def _their_gradients(model, directory):
    """Their gradients under our names and layouts: saved in place of weights, then loaded."""
    holder = transformers.GPT2LMHeadModel(model.config)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    with torch.no_grad():
        for name, p in holder.named_parameters():
            p.copy_(gradients[name])
    holder.save_pretrained(directory)
    return dict(named_leaves(load(directory).params))


def _assert_close_leaf_by_leaf(ours, theirs):
    total = np.sqrt(sum(np.square(np.asarray(g, np.float64)).sum() for g in theirs.values()))
    for name, got in named_leaves(ours):
        wanted = np.asarray(theirs[name])
        gap = np.linalg.norm(np.asarray(got) - wanted)
        # The key bias's gradient is zero in exact arithmetic: an absolute floor for it.
        assert gap <= max(1e-4 * np.linalg.norm(wanted), 1e-6 * total), name


def test_ten_steps_of_gpt2_124m(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    theirs = transformers.GPT2LMHeadModel(config)
    theirs.save_pretrained(tmp_path / "weights")
    model = load(tmp_path / "weights")
    ours, params = model.config, model.params
    loss_of = models.family(ours).loss
    gradient = fxad.jit(fxad.value_and_grad(lambda p, batch: loss_of(p, batch, ours)))
    optimiser = adamw(3e-4, 0.9, 0.95, 1e-8, weight_decay=0.1)
    state, update = optimiser.init(params), fxad.jit(optimiser.update, donate_argnums=(1, 2))
    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    their_optimiser = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
    tokens = np.random.default_rng(1).integers(0, ours.vocab, (STEPS, BATCH, TOKENS + 1))
    for step, rows in enumerate(tokens):
        x, y = (np.ascontiguousarray(part, np.int32) for part in (rows[:, :-1], rows[:, 1:]))
        loss, grads = gradient(params, (x, y))
        logits = theirs(torch.from_numpy(x.astype(np.int64))).logits
        wanted = torch.from_numpy(y.astype(np.int64)).flatten()
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted)
        assert float(loss) == pytest.approx(expected.item(), rel=1e-3)
        their_optimiser.zero_grad()
        expected.backward()
        if step == 0:
            _assert_close_leaf_by_leaf(grads, _their_gradients(theirs, tmp_path / "gradients"))
        their_optimiser.step()
        params, state = update(grads, state, params)
