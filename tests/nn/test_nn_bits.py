"""Losses and gradients of whole models are bit-identical for any thread count, fused or not."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import fxad
from fxad.api import compiled
from fxad_nn import models, spec

MODELS = {
    "nano": {"layers": 2},
    "gpt2": {"layers": 1, "width": 192, "heads": 3, "hidden": 768, "vocab": 501},
    "llama-tiny": {},
}


def _digest(name: str, changes: dict, threads: int, fused: bool) -> str:
    config = models.preset(name, **changes)
    family = models.family(config)
    params = spec.init_params(family.spec(config), fxad.random.key(0))
    gradient = fxad.jit(fxad.value_and_grad(lambda p, batch: family.loss(p, batch, config)))
    length = min(33, config.context + 1)
    tokens = np.random.default_rng(0).integers(0, config.vocab, (3, length)).astype(np.int32)
    before = fxad.get_num_threads()
    fxad.set_num_threads(threads)
    try:
        with compiled.fusion(fused):
            results = gradient(params, (tokens[:, :-1].copy(), tokens[:, 1:].copy()))
    finally:
        fxad.set_num_threads(before)
    digest = hashlib.sha256()
    for leaf in fxad.tree.leaves(results):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name: str) -> None:
    settings = [(1, True), (2, True), (3, True), (2, False)]
    assert len({_digest(name, MODELS[name], *s) for s in settings}) == 1
