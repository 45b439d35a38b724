"""Dropout in the residual stream: where it is, how much, by which keys."""

import numpy as np
import pytest

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.dropout import dropped, with_residual_dropout
from fxad_nn.spec import init_params


def test_elements_are_dropped_by_their_rate_and_keep_their_mean():
    x = jnp.ones((200, 500), "bfloat16")
    got = np.asarray(dropped(x, fxad.random.key(3), jnp.float32(0.25))).astype(np.float32)
    assert set(np.unique(got)) == {0.0, np.float32(jnp.bfloat16(1 / 0.75))}
    # 100,000 draws: four standard deviations of their share.
    assert abs(np.mean(got == 0) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / got.size)


@pytest.mark.parametrize("name", ["tiny", "llama-tiny"])
def test_a_tree_with_keys_drops_and_one_without_does_not(name):
    config = models.preset(name)
    family = models.family(config)
    params = init_params(family.spec(config), fxad.random.key(0))
    tokens = np.arange(16, dtype=np.int32).reshape(2, 8)
    forward = fxad.jit(lambda params: family.forward(params, tokens, config))
    plain = np.asarray(forward(params))
    assert with_residual_dropout(params, 0.0, fxad.random.key(1)) is params
    one, again, other = (
        np.asarray(forward(with_residual_dropout(params, 0.3, fxad.random.key(key))))
        for key in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - plain).max() > 0.1 * np.abs(plain).max()
    assert np.abs(one - other).max() > 0.1 * np.abs(plain).max()


def test_every_place_has_a_key_of_its_own():
    config = models.preset("tiny")
    params = init_params(models.family(config).spec(config), fxad.random.key(0))
    found = with_residual_dropout(params, 0.3, fxad.random.key(1))
    rules = [found["embed"]["dropout"], *(block["dropout"] for block in found["blocks"])]
    keys = [np.asarray(fxad.random.key_data(k)) for r in rules for n, k in r.items() if n != "rate"]
    assert len({key.tobytes() for key in keys}) == len(keys) == 1 + 2 * config.layers
    assert "dropout" not in params["embed"]
