"""Documents that share a row: every family gives each of them what it would have alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import decoder, gpt2, models
from fxad_nn.chat_examples import Example
from fxad_nn.errors import ConfigError
from fxad_nn.loss import IGNORE
from fxad_nn.packing import packed, padded
from fxad_nn.rotary import RopeScaling
from fxad_nn.spec import init_params, named_leaves

SMALL = {"vocab": 50, "context": 64, "layers": 2, "heads": 4, "width": 16, "hidden": 24}
DECODER = decoder.Config(**SMALL, groups=2, head_dim=8)
LOCAL = {"window": 5, "local": (True, False)}
LONGROPE = RopeScaling(
    kind="longrope", original_context=48, short=(1.0, 1.1, 1.2, 1.3), long=(2.0, 3.0, 4.0, 5.0)
)
CONFIGS = {
    "gpt2": gpt2.Config(**SMALL),
    "gpt2, untied, scaled by layer": gpt2.Config(**SMALL, tied=False, scaled_by_layer=True),
    "llama": DECODER,
    "llama3": replace(DECODER, rope_scaling=RopeScaling(original_context=16)),
    "mistral": replace(DECODER, family="mistral", window=7),
    "qwen2": replace(DECODER, family="qwen2", qkv_bias=True, tied=True),
    "qwen3": replace(DECODER, family="qwen3", query_norms="head"),
    "gemma2": replace(
        DECODER,
        family="gemma2",
        **LOCAL,
        norm_offset=True,
        post_norms=True,
        embed_scaled=True,
        score_cap=5.0,
        logit_cap=3.0,
        tied=True,
    ),
    "gemma3": replace(DECODER, family="gemma3", **LOCAL, local_theta=100.0, query_norms="head"),
    "phi3": replace(DECODER, family="phi3", fused=True, rotated=8, rope_scaling=LONGROPE),
    "mixtral": replace(DECODER, family="mixtral", experts=3, chosen=2),
    "olmoe": replace(DECODER, family="olmoe", experts=4, chosen=2, query_norms="whole", clip=2.0),
}
LENGTHS = [[9, 1, 14, 6], [2, 3, 17]]  # of documents in rows of 36, the rest is padding


def _params(config, seed=0):
    """Parameters large enough that positions and neighbours make a difference."""
    params = init_params(models.family(config).spec(config), fxad.random.key(seed))
    return fxad.tree.map(lambda x: x * 6.0 if x.ndim > 1 else x, params)


def _documents(seed=1):
    r = np.random.default_rng(seed)
    sizes = [[n + 1 for n in row] for row in LENGTHS]
    return [
        [Example(r.integers(0, 50, n).astype(np.int32), r.random(n) < 0.7) for n in row]
        for row in sizes
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_each_document_alone(name):
    config, rows = CONFIGS[name], _documents()
    params, batch = _params(config), packed(rows, 36)
    family = models.family(config)

    @fxad.jit
    def logits(tokens, segments=None):
        return family.forward(params, tokens, config, segments)

    found = np.asarray(logits(batch.tokens, batch.segments))
    for r, row in enumerate(rows):
        for n, document in enumerate(row, 1):
            alone = logits(document.ids[None, :-1])[0]
            np.testing.assert_allclose(
                found[r, batch.segments[r] == n], alone, rtol=2e-5, atol=2e-5
            )
    # The test would fail if the documents saw each other.
    if max(map(max, LENGTHS)) > 1:
        together = np.asarray(logits(batch.tokens))
        assert np.abs(together - found)[0, 12:].max() > 1e-2


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_and_all_gradients_are_those_of_one_document_to_a_row(name):
    config, rows = CONFIGS[name], _documents()
    params, family = _params(config), models.family(config)

    def loss(params, batch, segments):
        return family.loss(params, (batch.tokens, batch.targets), config, segments)

    step = fxad.jit(fxad.value_and_grad(loss))
    together = packed(rows, 36)
    apart = padded([document for row in rows for document in row], 20)
    assert (together.targets != IGNORE).sum() == (apart.targets != IGNORE).sum()
    value, grads = step(params, together, together.segments)
    wanted, wanted_grads = step(params, apart, None)
    assert float(value) == pytest.approx(float(wanted), rel=2e-6)
    norm = np.sqrt(sum(float(jnp.sum(g**2)) for _, g in named_leaves(wanted_grads)))
    for (leaf, a), (_, b) in zip(named_leaves(grads), named_leaves(wanted_grads), strict=True):
        error = np.linalg.norm(np.asarray(a) - np.asarray(b))
        assert error <= 1e-5 * np.linalg.norm(b) + 1e-6 * norm, leaf


def test_scaling_by_the_length_of_a_text_keeps_documents_out_of_long_rows():
    config = CONFIGS["phi3"]
    tokens = np.zeros((1, 49), np.int32)
    assert decoder.shares_rows(config, 48)
    with pytest.raises(ConfigError, match="cannot share rows of 49 tokens: .* beyond 48"):
        decoder.forward(_params(config), tokens, config, tokens)
    assert decoder.shares_rows(CONFIGS["llama3"], 64)
