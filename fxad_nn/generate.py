"""Sampling text: temperature, top-k, one compiled function for any length.

for token in generate(params, config, prompt=[5, 3], count=100, seed=0):
    print(tokenizer.decode([token]), end="")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.errors import ConfigError


def next_token(config: models.Config, top_k: int | None, vocab: int) -> Callable[..., Any]:
    """A compiled (params, window [context], length, key, temperature) -> token, int scalar.

    Only the first `vocab` ids, and with `top_k` only the likeliest of them, can be drawn;
    temperature 0 takes the likeliest.
    """
    forward = models.family(config).forward

    @fxad.jit
    def draw(params: Any, window: Any, length: Any, key: Any, temperature: Any) -> Any:
        logits = forward(params, window[None], config)[0, length - 1, :vocab].astype(jnp.float32)
        best = jnp.argmax(logits)
        if top_k is not None:
            smallest = fxad.lax.top_k(logits, min(top_k, vocab))[0][-1]
            logits = jnp.where(logits < smallest, -jnp.inf, logits)
        warm = jnp.maximum(temperature, 1e-6)
        return jnp.where(temperature > 0, fxad.random.categorical(key, logits / warm), best)

    return draw


def generate(
    params: Any,
    config: models.Config,
    prompt: Sequence[int],
    count: int,
    temperature: float = 0.8,
    top_k: int | None = 200,
    seed: int = 0,
    vocab: int | None = None,
    window: int | None = None,
) -> Iterator[int]:
    """Yield `count` tokens that continue `prompt`, the same ones for the same seed.

    Every token recomputes the last `window` tokens (default: the model's context), or as many
    as there will be, in one compiled function. A prompt longer than that is cut at its front.
    """
    if not len(prompt):
        raise ConfigError("generation needs a prompt of at least one token")
    if count < 0:
        raise ConfigError(f"cannot add {count} tokens")
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ConfigError(f"need temperature >= 0, top_k >= 1; got {temperature} and {top_k}")
    size = min(window or config.context, config.context, len(prompt) + count)
    draw = next_token(config, top_k, min(vocab or config.vocab, config.vocab))
    key = fxad.random.key(seed)
    tokens = [int(token) for token in prompt]
    for index in range(count):
        recent = tokens[-size:]
        buffer = np.zeros(size, np.int32)
        buffer[: len(recent)] = recent
        step_key = fxad.random.fold_in(key, index)
        length, warmth = np.int32(len(recent)), np.float32(temperature)
        tokens.append(int(draw(params, buffer, length, step_key, warmth)))
        yield tokens[-1]
