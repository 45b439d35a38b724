"""Training steps and generation of language models: two layers of their true width.

    Step("gpt2", batch=4, tokens=64).build().run()
    Token("llama3.2-1b", "bfloat16", vocabulary=32_064).build().run()

The vocabulary of a step is 4,096, so that a call stays under 80 ms; the weights of generation
exceed what the last-level cache holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from benchmarks.guard.case import Built, normal
from fxad_nn import flops, models, optim
from fxad_nn.cache import init_cache
from fxad_nn.generate import next_token
from fxad_nn.spec import count_params, from_named, named_leaves
from fxad_nn.step import train_step

LAYERS, VOCABULARY = 2, 4096
BEFORE, LENGTH = 64, 128  # tokens in the cache at first, and places in it


def parameters(config: models.Config) -> Any:
    """Random parameters, quickly: every leaf repeats the same million numbers."""
    pool = np.asarray(0.02 * normal(1_000_003, dtype=config.dtype))
    spec = models.family(config).spec(config)
    leaves = named_leaves(spec)
    return from_named(
        spec, {name: jnp.asarray(np.resize(pool, leaf.shape)) for name, leaf in leaves}
    )


@dataclass(frozen=True)
class Step:
    """A training step of a preset on (batch, tokens), products of a dtype."""

    preset: str
    batch: int
    tokens: int
    dtype: str = "f32"

    @property
    def config(self) -> models.Config:
        return replace(models.preset(self.preset), layers=LAYERS, vocab=VOCABULARY)

    @property
    def operations(self) -> float:
        """6 for each parameter of a product and token, and attention's causal half."""
        full = flops.training_flops_per_token(self.config, self.tokens)
        products = flops.training_flops_per_token(self.config, 0)
        return self.batch * self.tokens * (products + full) / 2

    def build(self) -> Built:
        optimiser = optim.adamw(optim.constant(3e-4), beta2=0.95, weight_decay=0.1)
        params = parameters(self.config)
        state = optimiser.init(params)
        step = train_step(self.config, optimiser, clip=None, dtype=self.dtype)
        held = [params, state]
        batch = self.drawn()

        def run() -> Any:
            held[0], held[1], loss = step(*held, *batch)
            return loss

        return Built(run, lambda: step.lower(*held, *batch))

    def drawn(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and targets."""
        shape = (2, self.batch, self.tokens)
        drawn = np.random.default_rng(0).integers(0, VOCABULARY, shape, np.int32)
        return drawn[0], drawn[1]


@dataclass(frozen=True)
class Token:
    """One token of generation, all weights read once; the next call decodes the same position."""

    preset: str
    dtype: str
    vocabulary: int

    @property
    def config(self) -> models.Config:
        return replace(
            models.preset(self.preset), layers=LAYERS, vocab=self.vocabulary, dtype=self.dtype
        )

    @property
    def bytes(self) -> float:
        """Of the parameters that every token reads: all but the rows of a table of positions."""
        spec = models.family(self.config).spec(self.config)
        unread = spec["embed"]["position"].size if "position" in spec["embed"] else 0
        return (count_params(spec) - unread) * (2.0 if self.dtype == "bfloat16" else 4.0)

    def build(self) -> Built:
        config, params = self.config, parameters(self.config)
        step, key = next_token(config, config.vocab), fxad.random.key(0)
        limits = {"temperature": np.float32(0.8), "top_k": np.int32(200)}
        held = [init_cache(config, 1, LENGTH)]
        given = (np.array([[1]], np.int32), np.int32(BEFORE), np.int32(0), key, limits)

        def run() -> Any:
            found, held[0] = step(params, held[0], *given, seen=LENGTH)
            return found

        return Built(run, lambda: step.lower(params, held[0], *given, seen=LENGTH))
