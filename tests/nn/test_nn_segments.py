"""Documents that share a row: every family gives each of them what it would have alone."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import decoder, gpt2, models
from fxad_nn.chat_examples import Counts, Example, Pair
from fxad_nn.errors import ConfigError
from fxad_nn.finetune_recipe import finetune_recipe
from fxad_nn.loss import IGNORE
from fxad_nn.packing import packed
from fxad_nn.rotary import RopeScaling
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.tokenizer import Bytes
from fxad_nn.tuning import Corpus, Tuning

# Two layers where they differ, and in one model of each kind.
SMALL = {"vocab": 50, "context": 64, "layers": 1, "heads": 4, "width": 16, "hidden": 24}
DECODER = decoder.Config(**SMALL, groups=2, head_dim=8)
LOCAL = {"layers": 2, "window": 5, "local": (True, False)}
LONGROPE = RopeScaling(
    kind="longrope", original_context=48, short=(1.0, 1.1, 1.2, 1.3), long=(2.0, 3.0, 4.0, 5.0)
)
CONFIGS = {
    "gpt2": gpt2.Config(**SMALL),
    "gpt2, untied, scaled by layer": gpt2.Config(
        **{**SMALL, "layers": 2}, tied=False, scaled_by_layer=True
    ),
    "llama": replace(DECODER, layers=2),
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
    "mixtral with losses of routers": replace(
        DECODER,
        family="mixtral",
        experts=3,
        chosen=2,
        router_losses=True,
        balance_loss=0.3,
        z_loss=0.1,
    ),
    "olmoe": replace(DECODER, family="olmoe", experts=4, chosen=2, query_norms="whole", clip=2.0),
}
# Of families whose backward passes differ only in what no segment reaches, one: Llama's is below.
DIFFERING = ("gpt2", "llama3", "mistral", "gemma2", "gemma3", "phi3", "olmoe")
DIFFERING += ("mixtral with losses of routers",)
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


# The losses of routers change no logits.
@pytest.mark.parametrize("name", [name for name in CONFIGS if "losses" not in name])
def test_logits_are_those_of_each_document_alone(name):
    config, rows = CONFIGS[name], _documents()
    # Each alone stands at the start of a row, where padding comes after all that it sees; rows of
    # padding make as many of the others, so that those without segments take one program.
    apart = packed([[document] for row in rows for document in row], 36)
    batch = packed([*rows, *[()] * (len(apart.tokens) - len(rows))], 36)
    params = _params(config)
    family = models.family(config)

    @fxad.jit
    def logits(tokens, segments=None):
        return family.forward(params, tokens, config, segments)

    found = np.asarray(logits(batch.tokens, batch.segments))
    alone = iter(np.asarray(logits(apart.tokens)))
    for r, row in enumerate(rows):
        for n, document in enumerate(row, 1):
            inside = found[r, batch.segments[r] == n]
            wanted = next(alone)[: len(document.ids) - 1]
            np.testing.assert_allclose(inside, wanted, rtol=2e-5, atol=2e-5)
    # The test would fail if the documents saw each other.
    if max(map(max, LENGTHS)) > 1:
        together = np.asarray(logits(batch.tokens))
        assert np.abs(together - found)[0, 12:].max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERING)
def test_losses_and_all_gradients_are_those_of_one_document_to_a_row(name):
    config, rows = CONFIGS[name], _documents()
    params, family = _params(config), models.family(config)

    def loss(params, batch, segments):
        return family.loss(params, (batch.tokens, batch.targets), config, segments)

    step = fxad.jit(fxad.value_and_grad(loss))
    together = packed(rows, 36)
    apart = packed([[document] for row in rows for document in row], 20)
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


# Fine-tuning


def _task(config=DECODER, examples=60, longest=30, **more):
    r = np.random.default_rng(5)

    def drawn(count):
        sizes = np.minimum(2 + r.geometric(0.15, count), longest)
        sizes[0] = longest
        return [
            Example(r.integers(0, 50, n).astype(np.int32), np.arange(n) >= n // 2) for n in sizes
        ]

    train, val = drawn(examples), drawn(9)
    if more.get("dpo"):
        train, val = ([Pair(x, y) for x, y in pairwise(s)] for s in (train, val))
    corpus = Corpus(train, val, Bytes(), "drawn", Counts(), {}, [])
    options = finetune_recipe(**{"batch": 6, "accumulate": 2, "seed": 3, **more})
    params = _params(config)
    return Tuning(options, config, fxad.tree.map(lambda x: None, params), corpus), params, corpus


def _texts(batch):
    """The documents of a batch, as sorted tuples of tokens and targets."""
    tokens, targets, segments = (x.reshape(-1, x.shape[-1]) for x in batch[:3])
    found = []
    for row in range(len(tokens)):
        for n in range(1, segments[row].max() + 1):
            inside = segments[row] == n
            found.append((tuple(tokens[row, inside]), tuple(targets[row, inside])))
    return found


def test_an_epoch_of_packed_rows_holds_every_example_once():
    task, _, corpus = _task()
    batches = [task.batch(step) for step in range(task.steps_per_epoch)]
    texts = [text for batch in batches for text in _texts(batch)]
    wanted = [tuple(example.ids[:-1]) for example in corpus.train]
    assert sorted(tokens for tokens, _ in texts) == sorted(wanted)
    trained = sum(int(example.trained[1:].sum()) for example in corpus.train)
    assert sum(int((batch[1] != IGNORE).sum()) for batch in batches) == trained
    # About as many examples to a step as without packing, 12, in whole rows of about 5.
    assert 9 <= 60 / len(batches) <= 17
    assert all(batch[0].shape[:2] == (2, 1) for batch in batches)
    again, *_ = _task()
    for a, b in zip(again.batch(1), task.batch(1), strict=True):
        np.testing.assert_array_equal(a, b)


def test_counts_of_documents_and_how_full_rows_are_are_printed():
    task, _, corpus = _task()
    (line,) = [line for line in task.lines() if line.startswith("packing")]
    found = re.search(r"60 documents in (\d+) rows of (\d+) tokens, (.+)% filled", line)
    rows, width, filled = map(float, found.groups())
    tokens = sum(map(len, corpus.train))
    assert filled == pytest.approx(100 * tokens / (rows * width), abs=0.1)
    assert filled > 90
    assert width % 16 == 0 and width >= max(30, 6 * tokens / 60 - 1)
    apart, *_ = _task(pack=False)
    assert not any(line.startswith("packing") for line in apart.lines())


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_packing_changes_neither_the_validation_loss_nor_a_step_over_all_examples(name):
    """All examples in one step: the same loss and the same new parameters but for rounding."""
    config, found = CONFIGS[name], []
    for pack in (True, False):
        task, params, corpus = _task(config, pack=pack, batch=60, accumulate=1)
        frozen = fxad.tree.map(lambda x: None, params)
        assert len(corpus.train) == 60
        value = task.evaluate(params, True)
        assert task.frozen == frozen
        (tokens, targets, *rest, _) = task.batch(0)
        segments = rest[0][0] if rest else None
        loss = models.family(config).loss
        step = fxad.jit(
            fxad.value_and_grad(
                lambda p, *a, loss=loss, config=config: loss(p, a[:2], config, *a[2:])
            )
        )
        arrays = (tokens[0], targets[0]) + ((segments,) if pack else ())
        found.append((value, *step(params, *arrays)))
    (val, loss, grads), (wanted_val, wanted_loss, wanted_grads) = found
    assert val == pytest.approx(wanted_val, rel=2e-6)
    assert float(loss) == pytest.approx(float(wanted_loss), rel=2e-6)
    norm = np.sqrt(sum(float(jnp.sum(g**2)) for _, g in named_leaves(wanted_grads)))
    for (leaf, a), (_, b) in zip(named_leaves(grads), named_leaves(wanted_grads), strict=True):
        assert np.linalg.norm(np.asarray(a) - np.asarray(b)) <= 1e-5 * norm, leaf


def test_rows_of_one_document_are_as_wide_as_the_longest_of_a_batch_needs():
    """And a validation over rows of several widths gives what one over rows of one width does."""
    task, params, _ = _task(pack=False, batch=2, accumulate=1)
    batches = [task.batch(step) for step in range(task.steps_per_epoch)]
    assert {batch[0].shape[-1] for batch in batches} == {16, 32}
    for tokens, targets, _ in batches:
        assert tokens.shape == targets.shape
        assert tokens.shape[-1] == 16 or (targets[..., 15:] != IGNORE).any()
    whole, *_ = _task(pack=False, batch=60, accumulate=1)
    assert task.evaluate(params, True) == pytest.approx(whole.evaluate(params, True), rel=2e-6)


def test_what_cannot_share_rows_does_not():
    pairs, *_ = _task(dpo=True, batch=2)
    assert len(pairs.batch(0)) == 3 and pairs.batch(0)[0].shape[:3] == (2, 2, 2)
    assert not any(line.startswith("packing") for line in pairs.lines())
    with pytest.raises(ConfigError, match="`pack` has no meaning beside `dpo`"):
        finetune_recipe(pack=True, dpo=True)
    long, *_ = _task(CONFIGS["phi3"], longest=60)
    (line,) = [line for line in long.lines() if line.startswith("packing")]
    assert line.startswith("packing: none, since the model's rotary scaling")
    assert len(long.batch(0)) == 3
