"""Decoding with a cache: the logits and tokens of the whole forward pass, drawn within limits."""

from dataclasses import replace

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.cache import init_cache
from fxad_nn.errors import ConfigError, DataError
from fxad_nn.generate import cast, generate, next_token
from fxad_nn.precision import in_precision, products_of
from fxad_nn.sampling import draw
from fxad_nn.spec import init_params


def model(name, **changes):
    """A small model whose parameters are large enough to tell its tokens apart."""
    config = models.preset(name, **changes)
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    return config, fxad.tree.map(lambda p: p * 8 if p.ndim == 2 else p, params)


def tokens_of(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 65, shape).astype(np.int32)


FAMILIES = [("tiny", {}), ("llama-tiny", {}), ("llama-tiny", {"tied": True, "groups": 4})]


@pytest.mark.parametrize(
    ("name", "changes", "pieces"),
    [
        *((*family, [5, 1, 1, 4, 1]) for family in FAMILIES),
        (*FAMILIES[0], [12]),
        (*FAMILIES[1], [1] * 12),
    ],
)
def test_logits_are_those_without_a_cache(name, changes, pieces):
    config, params = model(name, **changes)
    tokens, found, position = tokens_of((2, 12)), [], 0
    cache = init_cache(config, batch=2, length=14)
    for size in pieces:
        part = tokens[:, position : position + size]
        logits, cache = models.decode(params, cache, part, position, config)
        found.append(np.asarray(logits))
        position += size
    expected = np.asarray(models.family(config).forward(params, tokens, config))
    assert np.abs(expected).max() > 0.5
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=3e-5)


@pytest.mark.parametrize("precision", ["f32", "bf16", "fp16", "mixed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("name", "changes"), FAMILIES[:2])
def test_a_cache_holds_what_products_in_any_precision_give(name, changes, dtype, precision):
    """A narrow model whose products have another precision is sampled while it is tuned."""
    config, params = model(name, **changes)
    params, config = cast(params, config, dtype)
    config = in_precision(replace(config, products=products_of(precision)), precision)
    tokens, cache = tokens_of((2, 6)), init_cache(config, batch=2, length=8)
    found, position = [], 0
    for size in (4, 1, 1):
        part = tokens[:, position : position + size]
        logits, cache = models.decode(params, cache, part, position, config)
        found.append(np.asarray(logits, np.float32))
        position += size
    expected = np.asarray(models.family(config).forward(params, tokens, config), np.float32)
    # Logits up to about 4, through two blocks of numbers with 8 bits.
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=0.1)


@pytest.mark.parametrize(("name", "changes"), FAMILIES)
def test_a_compiled_step_writes_the_cache_in_place(name, changes):
    config, params = model(name, **changes)
    step = next_token(config, config.vocab)
    cache, key = init_cache(config, 1, 16), fxad.random.key(0)
    limits = {"temperature": np.float32(1), "top_k": np.int32(5)}
    args = (params, cache, np.zeros((1, 1), np.int32), np.int32(3), np.int32(0), key, limits, 8)
    copies = fxad.debug.explain_copies(step)(*args)
    assert all(copy.nbytes <= 4 for copy in copies), copies  # scalars that loops start from
    plan = step.lower(*args).plan
    assert len(plan.donated) == 2 * config.layers
    addresses = [leaf.data.ctypes.data for leaf in fxad.tree.leaves(cache)]
    _, after = step(*args)
    assert [leaf.data.ctypes.data for leaf in fxad.tree.leaves(after)] == addresses
    rows = np.abs(np.asarray(after[0]["keys"])).sum((0, 1, 3))
    assert np.flatnonzero(rows).tolist() == [3]


def greedy(params, config, prompt, count):
    """The likeliest tokens, by the whole forward pass each time: over as many tokens as fit, since
    none sees those after it."""
    tokens = list(prompt)
    for _ in range(count):
        whole = np.zeros((1, config.context), np.int32)
        whole[0, : len(tokens)] = tokens
        logits = np.asarray(models.family(config).forward(params, whole, config))
        tokens.append(int(np.argmax(logits[0, len(tokens) - 1])))
    return tokens[len(prompt) :]


@pytest.mark.parametrize(("name", "changes"), FAMILIES)
@pytest.mark.parametrize("prompt", [1, 5])
def test_greedy_tokens_are_those_without_a_cache(name, changes, prompt):
    config, params = model(name, **changes)
    prompt = [int(t) for t in tokens_of(prompt, seed=3)]
    found = list(generate(params, config, prompt, 10, temperature=0.0))
    assert found == greedy(params, config, prompt, 10)


def test_generation_stops_before_an_end_of_the_text():
    config, params = model("llama-tiny")
    whole = list(generate(params, config, [1, 2], 12, temperature=0.0))
    end = next(token for token in whole[3:] if token not in whole[:3])
    ended = replace(config, ends=(64, end))
    found = list(generate(params, ended, [1, end], 12, temperature=0.0))  # a prompt may hold one
    assert end not in found
    found = list(generate(params, ended, [1, 2], 12, temperature=0.0))
    assert found == whole[: whole.index(end)]


def test_a_full_window_goes_on_with_its_later_half():
    config, params = model("llama-tiny")
    prompt = [int(t) for t in tokens_of(11, seed=4)]
    found = list(generate(params, config, prompt, 12, temperature=0.0, window=8))
    read, expected = prompt[-8:], []
    for _ in range(12):
        read = read[-4:] if len(read) > 8 else read
        expected += greedy(params, config, read, 1)
        read = [*read, expected[-1]]
    assert found == expected
    assert len(list(generate(params, config, prompt, 3, window=1))) == 3


def test_bfloat16_follows_float32():
    config, params = model("llama-tiny")
    half, small = cast(params, config, "bfloat16")
    assert cast(params, config, jnp.bfloat16)[1] == cast(params, config, "bf16")[1] == small
    for wrong in (
        "int8",
        np.int32,
        "mixed",
        None,
        float,
        b"float32",
        jnp.zeros(1),
        np.zeros(1, "f4"),
    ):
        with pytest.raises(ConfigError, match="parameters cannot be .*; choose from [^;]*16$"):
            cast(params, config, wrong)
    assert small.dtype == "bfloat16" and half["norm"]["scale"].dtype == jnp.bfloat16
    tokens, cache = tokens_of((1, 6)), init_cache(small, 1, 8)
    assert cache[0]["keys"].dtype == jnp.bfloat16
    found = []
    for position in range(6):
        part = tokens[:, position : position + 1]
        logits, cache = models.decode(half, cache, part, position, small)
        found.append(np.asarray(logits.astype(jnp.float32)))
    expected = np.asarray(models.family(config).forward(params, tokens, config))
    # Eight bits of precision through two layers.
    np.testing.assert_allclose(np.concatenate(found, 1), expected, atol=0.05 * abs(expected).max())
    assert len(list(generate(half, small, [1, 2], 4))) == 4


def test_a_model_of_its_first_blocks():
    """By parameters alone: what is computed follows them, not the configuration."""
    for preset in ("tiny", "llama-tiny"):
        config, params = model(preset)
        fewer = params | {"blocks": params["blocks"][:1]}
        tokens, cache = tokens_of((1, 5)), init_cache(config, 1, 8)[:1]
        logits, cache = models.decode(fewer, cache, tokens, 0, config)
        expected = models.family(config).forward(fewer, tokens, config)
        np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)
        assert len(cache) == 1


def test_what_does_not_fit_is_refused():
    config, params = model("tiny")
    with pytest.raises(ConfigError, match="within the context of 16, got batch 1 and length 17"):
        init_cache(config, 1, 17)
    cache = init_cache(config, 1, 8)
    with pytest.raises(ConfigError, match="3 tokens at position 6 do not fit a cache of 8"):
        models.decode(params, cache, tokens_of((1, 3)), 6, config)
    with pytest.raises(ConfigError, match="seen must lie between 5 .* and 8"):
        models.decode(params, cache, tokens_of((1, 1)), 4, config, seen=4)
    fewer = params | {"blocks": params["blocks"][:1]}
    with pytest.raises(ConfigError, match="a cache of 2 layers does not fit a model of 1"):
        models.decode(fewer, cache, tokens_of((1, 1)), 0, config)
    with pytest.raises(ConfigError, match="top_p"):
        list(generate(params, config, [1], 3, top_p=0.0))
    with pytest.raises(ConfigError, match="window"):
        list(generate(params, config, [1], 3, window=0))


def frequencies(logits, count=4000, **limits):
    draws = fxad.jit(fxad.vmap(lambda key: draw(logits, key, **limits)))(
        fxad.random.split(fxad.random.key(0), count)
    )
    return np.bincount(np.asarray(draws), minlength=logits.size) / count


def test_draws_follow_the_distribution_within_its_limits():
    logits = np.array([0.5, -1.0, 2.0, -np.inf, 1.5, -3.0], np.float32)

    def softmax(temperature, kept):
        weights = np.exp(logits / temperature) * np.isin(np.arange(6), kept)
        return weights / weights.sum()

    # Standard error of a frequency from 4000 draws: at most 0.008.
    for expected, limits in [
        (softmax(1.0, [0, 1, 2, 4, 5]), {}),
        (softmax(2.0, [0, 1, 2, 4, 5]), {"temperature": 2.0}),
        (softmax(1.0, [0, 2, 4]), {"top_k": 3}),
        (softmax(1.0, [2, 4]), {"top_p": 0.7}),
        (softmax(1.0, [2]), {"top_p": 0.3}),
        (softmax(0.5, [0, 2, 4]), {"top_k": 3, "top_p": 1.0, "temperature": 0.5}),
    ]:
        np.testing.assert_allclose(frequencies(logits, **limits), expected, atol=0.03)
    for limits in [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-6}]:
        assert frequencies(logits, count=50, **limits)[2] == 1
    # Ids as likely as the last one kept stay too.
    equal = frequencies(np.array([1.0, -2.0, 1.0, 1.0], np.float32), top_k=2)
    assert equal[1] == 0 and equal[[0, 2, 3]].min() > 0.25


def test_top_k_keeps_the_likeliest_of_many():
    logits = np.random.default_rng(0).standard_normal(5000).astype(np.float32) * 3 - 2
    seen = np.flatnonzero(frequencies(logits, temperature=10.0, top_k=20))
    assert set(seen) == set(np.argsort(logits)[-20:])


@pytest.mark.parametrize("id", [-1, 65, -100, 1 << 40])
def test_ids_outside_the_vocabulary_are_refused_before_anything_is_computed(id):
    config = models.preset("tiny")
    saying = rf"the prompt holds id {id} at position 2, outside the vocabulary of 65 \(0 to 64\)"
    with pytest.raises(DataError, match=saying):
        generate(None, config, [1, 64, id], 3)
    with pytest.raises(DataError, match="must hold integers, .* got float64"):
        generate(None, config, [1.5], 3)
    with pytest.raises(DataError, match="prompt must .* got a text; a tokenizer's encode.text."):
        generate(None, config, "the ", 3)
