"""Losses, gradients and updates of whole models are bit-identical for any thread count, fused or
not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import fxad
from fxad.api import compiled
from fxad_nn import models, optim, spec
from fxad_nn.step import train_step

MODELS = {
    "nano": {"layers": 2},
    "gpt2": {"layers": 1, "width": 192, "heads": 3, "hidden": 768, "vocab": 501},
    "llama-tiny": {},
}


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = fxad.get_num_threads()
    fxad.set_num_threads(count)
    try:
        yield
    finally:
        fxad.set_num_threads(before)


def _digest(results: Any) -> str:
    digest = hashlib.sha256()
    for leaf in fxad.tree.leaves(results):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def _started(name: str) -> tuple[models.Config, Any, tuple[np.ndarray, np.ndarray]]:
    """A model, its parameters, and a batch of tokens and targets."""
    config = models.preset(name, **MODELS[name])
    params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    length = min(33, config.context + 1)
    tokens = np.random.default_rng(0).integers(0, config.vocab, (3, length)).astype(np.int32)
    return config, params, (tokens[:, :-1].copy(), tokens[:, 1:].copy())


def _gradients(name: str, threads: int, fused: bool) -> str:
    config, params, batch = _started(name)
    loss = models.family(config).loss
    gradient = fxad.jit(fxad.value_and_grad(lambda p, batch: loss(p, batch, config)))
    with _threads(threads), compiled.fusion(fused):
        return _digest(gradient(params, batch))


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name: str) -> None:
    settings = [(1, True), (2, True), (3, True), (2, False)]
    assert len({_gradients(name, *s) for s in settings}) == 1


def _two_steps(name: str, dtype: str, clip: float | None, threads: int) -> str:
    """Parameters, moments and loss after two steps: the second's gradients are of new numbers."""
    config, params, batch = _started(name)
    optimizer = optim.adamw(1e-2)
    with _threads(threads):
        step = train_step(config, optimizer, clip=clip, dtype=dtype)
        params, state, _ = step(params, optimizer.init(params), *batch)
        return _digest(step(params, state, *batch))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "clip"),  # every pair of two of them
    [
        ("gpt2", "f32", None),
        ("gpt2", "bf16", 0.1),
        ("llama-tiny", "f32", 0.1),
        ("llama-tiny", "bf16", None),
    ],
)
def test_whole_training_steps_have_the_same_bits(name: str, dtype: str, clip: float | None) -> None:
    """Unclipped, updates are epilogues of their gradients' products; clipped they are kernels."""
    assert len({_two_steps(name, dtype, clip, threads) for threads in (1, 2, 3, 4)}) == 1
