"""Adapters: where they stand, how they start, that nothing is done for what is frozen, merging."""

import json
import re

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
import fxad_nn
from fxad_nn import models, optim
from fxad_nn.adapters import load_adapters, save_adapters
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.layers import linear
from fxad_nn.lora import (
    Lora,
    adapters_of,
    add_lora,
    merge_lora,
    targeted,
    trainable,
    with_dropout,
    without_adapters,
)
from fxad_nn.loss import IGNORE
from fxad_nn.objective import Answers, Preferences
from fxad_nn.spec import init_params, named_leaves
from fxad_nn.step import tuning_step
from fxad_nn.tensors import stored, write_tree

LLAMA = models.preset("llama-tiny")
GPT2 = models.preset("tiny")
TOKENS = np.random.default_rng(0).integers(0, 65, (2, 12)).astype(np.int32)


def made(config, seed=0):
    return init_params(models.family(config).spec(config), fxad.random.key(seed))


def adapted(config, targets="all-linear", rank=3, alpha=6.0, seed=1):
    """A model with adapters whose b is not zero any more."""
    params = add_lora(made(config), config, rank, alpha, targets, fxad.random.key(seed))
    rng = np.random.default_rng(seed)

    def moved(path, leaf):
        if [step.key for step in path[-2:]] != ["lora", "b"]:
            return leaf
        return jnp.asarray(rng.normal(0, 0.1, leaf.shape), "float32")

    return fxad.tree.map_with_path(moved, params)


def logits(params, config, tokens=TOKENS):
    return np.asarray(models.family(config).forward(params, tokens, config))


# Where adapters stand


def test_targets_are_published_names():
    assert targeted(LLAMA, ("q_proj",)) == ["blocks.0.attention.q", "blocks.1.attention.q"]
    assert targeted(LLAMA, ("layers.1.mlp.up_proj", "lm_head")) == ["blocks.1.mlp.up", "head"]
    assert len(targeted(LLAMA, "all-linear")) == 14
    assert "head" not in targeted(LLAMA, "all-linear")
    whole = [*targeted(LLAMA, "all-linear"), "head"]
    assert set(targeted(LLAMA, ("all-linear", "lm_head"))) == set(whole)
    assert targeted(GPT2, ("c_attn",))[0] == "blocks.0.attention.qkv"
    experts = models.preset("mixtral-8x7b")
    assert {name.split(".")[2] for name in targeted(experts, "all-linear")} == {"attention"}
    tied = models.preset("llama-tiny", tied=True)
    with pytest.raises(ConfigError, match="called 'lm_head': its head is the table that embeds"):
        targeted(tied, "lm_head")
    with pytest.raises(ConfigError, match="called 'q_porj'; did you mean 'q_proj'"):
        targeted(LLAMA, ("q_porj",))


@pytest.mark.parametrize(
    ("given", "saying"),
    [
        ({"rank": 0}, "rank of an adapter must be at least 1"),
        ({"alpha": float("nan")}, "alpha must be a positive number"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"targets": ()}, "needs targets"),
    ],
)
def test_numbers_that_cannot_be_are_refused(given, saying):
    with pytest.raises(ConfigError, match=saying):
        Lora(**{"rank": 2, "alpha": 4.0, **given})


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_a_fresh_adapter_changes_nothing_and_starts_as_in_peft(config):
    base = made(config)
    params = add_lora(base, config, 4, 8.0, "all-linear", fxad.random.key(1))
    np.testing.assert_array_equal(logits(params, config), logits(base, config))
    for leaves in adapters_of(params).values():
        assert not np.asarray(leaves["b"]).any()
        assert float(leaves["scale"]) == 2.0
        a, bound = np.asarray(leaves["a"]), 1 / np.sqrt(leaves["a"].shape[1])
        assert np.abs(a).max() <= bound
        assert a.std() == pytest.approx(bound / np.sqrt(3), rel=0.35)
    assert without_adapters(params).keys() == base.keys()
    assert not adapters_of(without_adapters(params))
    assert Lora(16, 8.0, rslora=True).scale == 2.0


# Nothing is done for what is frozen


def test_frozen_leaves_have_no_gradient_no_state_and_no_product():
    """A weight's gradient would be a product of the weight's shape."""
    params = add_lora(made(LLAMA), LLAMA, 3, 6.0, "all-linear", fxad.random.key(1))
    trained, frozen = fxad.tree.partition(params, trainable(params))
    assert {name.split(".")[-1] for name, _ in named_leaves(trained)} == {"a", "b"}
    state = optim.adamw(1e-3).init(trained)
    assert len(list(named_leaves(state))) == 1 + 2 * len(list(named_leaves(trained)))

    def loss(trained, frozen, batch):
        return models.family(LLAMA).loss(fxad.tree.combine(trained, frozen), batch, LLAMA)

    batch = (TOKENS, TOKENS)
    step = fxad.value_and_grad(loss)
    assert fxad.tree.structure(step(trained, frozen, batch)[1]) == fxad.tree.structure(trained)
    text = str(fxad.make_ir(step)(trained, frozen, batch))
    weights = {tuple(leaf.shape) for name, leaf in named_leaves(frozen) if leaf.ndim == 2}
    made_by_products = re.findall(r": f32\[([\d,]+)\] = dot\(", text)
    assert made_by_products
    assert not weights & {tuple(map(int, shape.split(","))) for shape in made_by_products}
    nothing = fxad.tree.map(lambda leaf: None, params)
    whole = str(fxad.make_ir(step)(params, nothing, batch))
    products = re.findall(r": f32\[([\d,]+)\] = dot\(", whole)
    assert weights & {tuple(map(int, shape.split(","))) for shape in products}  # the test can fail


# The step


def batches(rng, accumulate, rows=4, time=12, share=0.5):
    tokens = rng.integers(0, 65, (accumulate, rows, time)).astype(np.int32)
    targets = rng.integers(0, 65, (accumulate, rows, time)).astype(np.int32)
    targets[rng.random(targets.shape) > share] = IGNORE
    return tokens, targets


@pytest.mark.slow
def test_micro_batches_weigh_by_their_answers():
    """One with two answers and one with dozens are together what one large batch is."""
    rng = np.random.default_rng(3)
    tokens, targets = batches(rng, 3)
    targets[0] = IGNORE
    targets[0, 0, :2] = 5
    targets[2] = IGNORE  # padding only
    params = adapted(LLAMA)
    step = tuning_step(Answers(LLAMA), optim.adamw(1e-2), clip=None)

    def stepped(tokens, targets):
        trained, frozen = fxad.tree.partition(params, trainable(params))
        trained = fxad.tree.map(lambda leaf: leaf.copy(), trained)
        state = optim.adamw(1e-2).init(trained)
        return step(trained, state, frozen, None, tokens, targets, np.int32(0))

    many = stepped(tokens, targets)
    one = stepped(tokens.reshape(1, -1, 12), targets.reshape(1, -1, 12))
    np.testing.assert_allclose(many[2], one[2], rtol=1e-6)
    # The gradients' mean, since AdamW itself divides by their size.
    for left, right in zip(
        fxad.tree.leaves(many[1]["mean"]), fxad.tree.leaves(one[1]["mean"]), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-8)


def test_dropout_is_reproducible_and_changes_only_the_adapters_part():
    params, key = adapted(LLAMA), fxad.random.key(5)
    dropped = logits(with_dropout(params, 0.5, key), LLAMA)
    np.testing.assert_array_equal(dropped, logits(with_dropout(params, 0.5, key), LLAMA))
    assert not np.array_equal(dropped, logits(params, LLAMA))
    other = logits(with_dropout(params, 0.5, fxad.random.key(6)), LLAMA)
    assert not np.array_equal(dropped, other)
    assert with_dropout(params, 0.0, key) is params
    fresh = add_lora(made(LLAMA), LLAMA, 3, 6.0, "all-linear", key)
    base = logits(made(LLAMA), LLAMA)
    np.testing.assert_array_equal(logits(with_dropout(fresh, 0.5, key), LLAMA), base)


def test_dropout_keeps_the_mean_of_the_adapters_input():
    p = {"weight": jnp.zeros((1, 4096)), "lora": {"a": jnp.ones((1, 4096)) / 4096}}
    p["lora"] |= {"b": jnp.ones((1, 1)), "scale": jnp.float32(1.0)}
    p["lora"]["dropout"] = {"key": fxad.random.key(0), "rate": jnp.float32(0.25)}
    mean = float(linear(p, jnp.ones((1, 4096)))[0, 0])
    deviation = np.sqrt(0.25 / 0.75 / 4096)
    assert 0 < abs(mean - 1) < 5 * deviation


def test_a_preference_is_learned_and_its_loss_starts_at_log_2():
    rng = np.random.default_rng(0)
    tokens, targets = batches(rng, 1, rows=4)
    tokens, targets = (part.reshape(1, 2, 2, 12) for part in (tokens, targets))
    params = add_lora(made(LLAMA), LLAMA, 3, 6.0, "all-linear", fxad.random.key(1))
    trained, frozen = fxad.tree.partition(params, trainable(params))
    objective = Preferences(LLAMA, beta=2.0)
    assert float(objective.count((tokens[0], targets[0]))) == 2
    optimizer = optim.adamw(1e-2, weight_decay=0.0)
    step, state, losses = tuning_step(objective, optimizer, clip=1.0), optimizer.init(trained), []
    reference = without_adapters(frozen)
    for _ in range(20):
        trained, state, loss = step(trained, state, frozen, reference, tokens, targets, np.int32(0))
        losses.append(float(loss))
    assert losses[0] == pytest.approx(np.log(2), rel=1e-5)
    assert losses[-1] < 0.5 * losses[0]


def test_smoothed_preferences_are_conservative_dpo():
    """Beside the formula of the paper in float64, from log-probabilities of the logits."""
    tokens, targets = batches(np.random.default_rng(0), 1, rows=4)
    batch = tuple(part.reshape(2, 2, 12) for part in (tokens, targets))
    reference, params = made(LLAMA), adapted(LLAMA)

    def log_probabilities(params):
        found = np.asarray(logits(params, LLAMA, batch[0].reshape(4, 12)), np.float64)
        found -= np.log(np.exp(found).sum(-1, keepdims=True))
        wanted = batch[1].reshape(4, 12)
        picked = np.take_along_axis(found, np.maximum(wanted, 0)[..., None], -1)[..., 0]
        return np.where(wanted < 0, 0.0, picked).sum(-1).reshape(2, 2)

    raised = log_probabilities(params) - log_probabilities(reference)
    margin = 2.0 * (raised[:, 0] - raised[:, 1])
    assert np.abs(margin).min() > 0.01
    for share in (0.0, 0.1, 0.4):
        objective = Preferences(LLAMA, beta=2.0, label_smoothing=share)
        right, wrong = (np.log(1 / (1 + np.exp(-m))) for m in (margin, -margin))
        loss = -((1 - share) * right + share * wrong).sum()
        assert float(objective.total(params, reference, batch)) == pytest.approx(loss, rel=1e-4)
    for share in (0.5, -0.1, float("nan")):
        with pytest.raises(ConfigError, match=r"preferences must be in \[0, 0.5\)"):
            Preferences(LLAMA, label_smoothing=share)


# Merging, and PEFT's files


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_merged_weights_compute_what_the_adapters_did(config):
    params = adapted(config)
    merged, rounding = merge_lora(params, config)
    assert not adapters_of(merged)
    # Both sum over at most 64 products in float32, in another order.
    np.testing.assert_allclose(logits(merged, config), logits(params, config), atol=2e-5)
    assert rounding.largest == 0.0  # float32 weights hold the float32 sum


def test_merging_into_bfloat16_reports_its_largest_rounding():
    params = adapted(LLAMA)
    params["blocks"][0]["mlp"]["up"]["weight"] = params["blocks"][0]["mlp"]["up"]["weight"].astype(
        "bfloat16"
    )
    merged, rounding = merge_lora(params, LLAMA)
    assert rounding.name == "blocks.0.mlp.up"
    tree = params["blocks"][0]["mlp"]["up"]
    exact = np.asarray(tree["weight"], np.float32) + np.asarray(tree["lora"]["scale"]) * (
        np.asarray(tree["lora"]["b"]) @ np.asarray(tree["lora"]["a"])
    )
    stored = np.asarray(merged["blocks"][0]["mlp"]["up"]["weight"])
    assert str(stored.dtype) == "bfloat16"
    assert rounding.largest == np.abs(stored.astype(np.float32) - exact).max() > 0
    assert rounding.largest <= np.abs(exact).max() * 2**-8


@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_adapters_come_back_bit_for_bit(tmp_path, config):
    params = adapted(config)
    saved = Lora(3, 6.0, dropout=0.1)
    save_adapters(tmp_path, params, config, saved, base="somewhere")
    found, lora = load_adapters(tmp_path, made(config), config)
    assert (lora.rank, lora.alpha, lora.dropout) == (3, 6.0, 0.1)
    assert targeted(config, lora.targets) == targeted(config, "all-linear")
    for (name, left), (_, right) in zip(named_leaves(params), named_leaves(found), strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_adapters_of_some_layers_are_named_whole(tmp_path):
    save_adapters(tmp_path, adapted(LLAMA, ("layers.1.mlp.up_proj",)), LLAMA, Lora(3, 6.0), "x")
    _, lora = load_adapters(tmp_path, made(LLAMA), LLAMA)
    assert lora.targets == ("model.layers.1.mlp.up_proj",)


def rewritten(directory, **changes):
    path = directory / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "saying"),
    [
        ({"peft_type": "IA3"}, 'peft_type must be "LORA"'),
        ({"use_dora": True}, "use_dora is not supported, got True"),
        ({"modules_to_save": ["score"]}, "this model has no module 'score'"),
        (
            {"modules_to_save": ["norm"]},
            r"does not hold .*norm.weight, which modules_to_save names",
        ),
        ({"bias": "all"}, 'bias must be "none"'),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern is not supported"),
        ({"r": 5}, r"this model and rank need \(5, \d+\)"),
        ({"lora_dropout": 2.0}, r"dropout must be in \[0, 1\)"),
    ],
)
def test_what_peft_can_do_and_we_cannot_names_the_field(tmp_path, changes, saying):
    save_adapters(tmp_path, adapted(LLAMA), LLAMA, Lora(3, 6.0), "x")
    rewritten(tmp_path, use_dora=False, loftq_config={}, megatron_config=None)
    load_adapters(tmp_path, made(LLAMA), LLAMA)
    rewritten(tmp_path, **changes)
    with pytest.raises(CheckpointError, match=saying):
        load_adapters(tmp_path, made(LLAMA), LLAMA)


def test_adapters_of_another_model_and_damaged_ones_are_refused(tmp_path):
    wide = models.preset("llama-tiny", width=32)
    save_adapters(tmp_path, adapted(wide), wide, Lora(3, 6.0), "x")
    with pytest.raises(CheckpointError, match="were the adapters trained on another model"):
        load_adapters(tmp_path, made(LLAMA), LLAMA)
    with pytest.raises(CheckpointError, match="has no place in this model"):
        load_adapters(tmp_path, made(GPT2), GPT2)
    path = tmp_path / "adapter_model.safetensors"
    tensors = {tensor.name: tensor.read() for tensor in stored([path])}
    gone = next(name for name in tensors if name.endswith("mlp.up_proj.lora_B.weight"))
    path.unlink()
    write_tree(path, {name: leaf for name, leaf in tensors.items() if name != gone})
    with pytest.raises(CheckpointError, match=r"does not hold blocks\.\d\.mlp\.up\.b"):
        load_adapters(tmp_path, made(wide), wide)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        load_adapters(tmp_path, made(wide), wide)
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        load_adapters(tmp_path, made(wide), wide)
    with pytest.raises(CheckpointError, match="no adapters to save"):
        save_adapters(tmp_path, made(wide), wide, Lora(3, 6.0), "x")


def test_a_model_with_adapters_is_not_saved_as_a_whole_one(tmp_path):
    with pytest.raises(CheckpointError, match="merge adapters before you save"):
        fxad_nn.save(fxad_nn.Model(adapted(LLAMA), LLAMA), tmp_path)
