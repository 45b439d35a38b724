"""The models: published sizes, causality, initialisation, the loss, and their arithmetic."""

import json

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import decoder, flops, gpt2, models
from fxad_nn.errors import ConfigError
from fxad_nn.layers import causal_attention
from fxad_nn.loss import IGNORE, cross_entropy
from fxad_nn.rotary import rotary, rotary_tables
from fxad_nn.spec import Leaf, count_params, from_named, init_params, named_leaves, normal, zeros

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "nano": 804_096,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "gemma2-2b": 2_614_341_888,
    "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952,
    "phi3-mini": 3_821_079_552,
    "mixtral-8x7b": 46_702_792_704,
    "olmoe-1b-7b": 6_919_161_856,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_the_published_number_of_parameters(name):
    config = models.preset(name)
    assert count_params(models.family(config).spec(config)) == PUBLISHED[name]


def test_configurations_survive_json_and_refuse_unknown_keys():
    for config in models.PRESETS.values():
        again = models.from_dict(json.loads(json.dumps(models.to_dict(config))), "c.json")
        assert again == config
    values = models.to_dict(models.preset("llama3.2-1b"))
    with pytest.raises(ConfigError, match=r"c\.json: unknown key 'widht'; did you mean 'width'"):
        models.from_dict({**values, "widht": 3}, "c.json")
    with pytest.raises(ConfigError, match="layers must be int, got 'four'"):
        models.from_dict({**values, "layers": "four"}, "c.json")
    with pytest.raises(ConfigError, match="did you mean 'factor'"):
        models.from_dict({**values, "rope_scaling": {"facto": 1.0}}, "c.json")
    with pytest.raises(ConfigError, match="family must be .* got 'gpt3'; did you mean 'gpt2'"):
        models.from_dict({**values, "family": "gpt3"}, "c.json")
    with pytest.raises(ConfigError, match="did you mean 'gpt2-xl'"):
        models.preset("gpt2-xxl")
    with pytest.raises(ConfigError, match="no field 'bias'"):
        models.preset("llama-tiny", bias=False)


def test_impossible_shapes_are_refused():
    with pytest.raises(ConfigError, match="not a multiple of heads"):
        gpt2.Config(width=10, heads=3)
    with pytest.raises(ConfigError, match="not a multiple of groups"):
        decoder.Config(heads=4, groups=3)
    with pytest.raises(ConfigError, match="even head_dim"):
        decoder.Config(head_dim=5)
    with pytest.raises(ConfigError, match="at least 1"):
        gpt2.Config(layers=0)
    with pytest.raises(ConfigError, match="more than 10000"):
        decoder.Config(layers=10**9)
    with pytest.raises(ConfigError, match="would hold"):
        gpt2.spec(gpt2.Config(vocab=10**12))
    with pytest.raises(ConfigError, match="names"):
        Leaf((2, 3), "float32", ("in",), zeros)


def test_initialisation_has_openais_scales():
    config = models.preset("nano", bias=True, vocab=2000, context=512)
    spec = gpt2.spec(config)
    params = dict(named_leaves(init_params(spec, fxad.random.key(0))))
    for name, leaf in named_leaves(spec):
        assert (params[name].shape, str(params[name].dtype)) == (leaf.shape, leaf.dtype)

    def std(name):
        return float(np.std(np.asarray(params[name])))

    residual = 0.02 / np.sqrt(8)  # four layers write twice each; 16k samples: 1% is 1.8 sigma
    assert std("embed.token") == pytest.approx(0.02, rel=0.03)
    assert std("embed.position") == pytest.approx(0.02, rel=0.03)
    assert std("blocks.3.attention.qkv.weight") == pytest.approx(0.02, rel=0.03)
    assert std("blocks.0.attention.out.weight") == pytest.approx(residual, rel=0.03)
    assert std("blocks.2.mlp.down.weight") == pytest.approx(residual, rel=0.03)
    assert gpt2.PRESETS["gpt2"].position_std == 0.01
    np.testing.assert_array_equal(params["blocks.1.mlp.up.bias"], 0.0)
    np.testing.assert_array_equal(params["norm.scale"], 1.0)
    first, second = params["blocks.0.mlp.up.weight"], params["blocks.1.mlp.up.weight"]
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("name", ["tiny", "llama-tiny"])
def test_a_model_is_causal_and_starts_near_a_uniform_guess(name):
    config = models.preset(name)
    model = models.family(config)
    params = init_params(model.spec(config), fxad.random.key(0))
    tokens = np.random.default_rng(0).integers(0, config.vocab, (2, 16)).astype(np.int32)
    changed = tokens.copy()
    changed[:, 9] = (changed[:, 9] + 1) % config.vocab
    before = np.asarray(model.forward(params, tokens, config))
    after = np.asarray(model.forward(params, changed, config))
    assert before.shape == (2, 16, config.vocab)
    np.testing.assert_array_equal(before[:, :9], after[:, :9])
    assert np.all(np.any(before[:, 9:] != after[:, 9:], axis=-1))
    guess = float(model.loss(params, (tokens, tokens), config))
    assert guess == pytest.approx(np.log(config.vocab), abs=0.3)
    with pytest.raises(ConfigError, match="17 tokens do not fit"):
        model.forward(params, np.zeros((1, 17), np.int32), config)


def test_grouped_attention_equals_repeated_heads():
    r = np.random.default_rng(1)
    q = r.normal(size=(2, 5, 6, 4)).astype(np.float32)
    k, v = r.normal(size=(2, 2, 5, 3, 4)).astype(np.float32)
    got = np.asarray(causal_attention(jnp.asarray(q), jnp.asarray(k), jnp.asarray(v)))
    expected = np.zeros((2, 5, 6, 4))
    for b, t, h in np.ndindex(2, 5, 6):
        scores = k[b, : t + 1, h // 2] @ q[b, t, h] / 2.0
        weights = np.exp(scores - scores.max())
        expected[b, t, h] = weights / weights.sum() @ v[b, : t + 1, h // 2]
    np.testing.assert_allclose(got, expected.reshape(2, 5, 24), rtol=1e-5, atol=1e-6)


def test_rotation_depends_on_distance_only():
    q, k = np.random.default_rng(2).normal(size=(2, 8)).astype(np.float32)
    tables = rotary_tables(12, 8, theta=10000.0)

    def rotated(x):
        return np.asarray(rotary(jnp.asarray(np.tile(x, (1, 12, 1, 1))), *tables))[0, :, 0]

    products = rotated(q) @ rotated(k).T
    for distance in range(-5, 6):
        diagonal = np.diagonal(products, distance)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(rotated(q), axis=1), np.linalg.norm(q), rtol=1e-5)


def test_cross_entropy_ignores_what_it_should():
    logits = np.random.default_rng(3).normal(size=(2, 4, 7)).astype(np.float32)
    targets = np.array([[1, 6, IGNORE, 0], [IGNORE, IGNORE, 3, 2]], np.int32)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    live = targets != IGNORE
    expected = -np.take_along_axis(log_p, np.where(live, targets, 0)[..., None], -1)[..., 0][live]
    got = float(cross_entropy(jnp.asarray(logits), jnp.asarray(targets)))
    assert got == pytest.approx(expected.mean(), rel=1e-6)
    assert float(cross_entropy(jnp.asarray(logits), jnp.full((2, 4), IGNORE))) == 0.0


def test_arithmetic_is_counted_as_in_palm():
    config = models.preset("gpt2")
    # 12 blocks of 12 width^2, and the head
    assert flops.product_params(config) == 12 * 12 * 768**2 + 50257 * 768
    assert flops.training_flops_per_token(config, 1024) == 6 * 123_532_032 + 12 * 12 * 768 * 1024
    untied, tied = models.preset("llama-tiny"), models.preset("llama-tiny", tied=True)
    assert flops.product_params(untied) == flops.product_params(tied)
    # Mixtral's 12.9B active parameters, but for the rows of its embedding and its norms.
    active = flops.product_params(models.preset("mixtral-8x7b"))
    assert active == 32 * (2 * 4096 * (4096 + 1024) + 8 * 4096 + 2 * 3 * 4096 * 14336) + 131072000
    assert 1e8 < flops.measured_peak() < 1e15


def test_names_and_trees_convert_both_ways():
    tree = {"b": [{"x": 1}, {"x": 2}], "a": {"y": 3}}
    assert list(named_leaves(tree)) == [("a.y", 3), ("b.0.x", 1), ("b.1.x", 2)]
    assert from_named(tree, dict(named_leaves(tree))) == tree
    with pytest.raises(KeyError, match=r"b\.1\.x"):
        from_named(tree, {"a.y": 1, "b.0.x": 2})
    assert count_params({"w": Leaf((3, 4), "float32", ("in", "out"), normal(1.0))}) == 12
