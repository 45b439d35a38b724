"""Sampling text: the prompt in one pass, then one compiled step per token with a cache.

for token in generate(params, config, prompt=[5, 3], count=100, seed=0):
    print(tokenizer.decode([token]), end="")
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp
from fxad_nn import models
from fxad_nn.cache import init_cache
from fxad_nn.errors import ConfigError
from fxad_nn.sampling import draw
from fxad_nn.vocabulary import require_ids

_SHORTEST = 16  # tokens that a prompt is padded to
_NEAREST = 128  # positions of the cache that a step reads at least


@lru_cache(maxsize=8)
def next_token(config: models.Config, vocab: int) -> Callable[..., Any]:
    """A compiled step(params, cache, tokens, position, last, key, limits, seen=) -> (id, cache).

    Reads `tokens` [1, time] at `position` and draws what follows the one of number `last`; limits:
    {"temperature", "top_k", "top_p"} as `sampling.draw` takes them. Only the first `vocab` ids can
    be drawn. The cache is donated. `position` None: the tokens begin the text.
    """
    model = models.family(config)

    def step(
        params: Any,
        cache: Any,
        tokens: Any,
        position: Any,
        last: Any,
        key: Any,
        limits: dict[str, Any],
        seen: int,
    ) -> tuple[Any, Any]:
        at = 0 if position is None else position
        x, cache = model.extend(params, cache, tokens, at, config, seen)
        chosen = x[0] if x.shape[1] == 1 else fxad.lax.dynamic_slice_in_dim(x[0], last, 1)
        logits = model.head(params, chosen, config)[0, :vocab]
        return draw(logits, key, **limits), cache

    return fxad.jit(step, donate_argnums=(1,), static_argnames=("seen",))


def cast(params: Any, config: models.Config, dtype: Any) -> tuple[Any, models.Config]:
    """Parameters and configuration in another dtype, such as bfloat16: half the bytes to read.

    dtype: as `fxad_nn.load` takes it. Integers, such as ids of rows, stay. ConfigError for a dtype
    that parameters cannot have.
    """
    name = models.dtype_name(dtype)

    def narrowed(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return leaf.astype(name) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return fxad.tree.map(narrowed, params), replace(config, dtype=name)


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
    top_p: float | None = None,
    ends: Collection[int] = (),
) -> Iterator[int]:
    """An iterator of `count` tokens that continue `prompt`, the same ones for the same seed.

    It stops before one of `config.ends`, the tokens that end a text, or of `ends`.

    A cache holds keys and values of the last `window` tokens (default: the model's context). When
    it is full the later half of them is read again from the start of the context, and goes on
    filling up. A prompt longer than the window is cut at its front.

    Raises, before anything is computed, DataError for ids of the prompt outside the model's
    vocabulary and ConfigError for limits that allow nothing.
    """
    if not len(prompt):
        raise ConfigError("generation needs a prompt of at least one token")
    require_ids(prompt, config.vocab, "the prompt")
    if count < 0:
        raise ConfigError(f"cannot add {count} tokens")
    if window is not None and window < 1:
        raise ConfigError(f"the window must hold at least one token, got {window}")
    if vocab is not None and vocab < 1:
        raise ConfigError(f"need at least one id to draw from, got vocab {vocab}")
    limits = _limits(config, temperature, top_k, top_p)
    size = min(window or config.context, config.context, len(prompt) + count)
    step = next_token(config, min(vocab or config.vocab, config.vocab))

    def tokens_one_by_one() -> Iterator[int]:
        key, cache = fxad.random.key(seed), init_cache(config, 1, size)
        tokens, held = [int(token) for token in prompt], 0  # held: positions in the cache
        for index in range(count):
            drawn = fxad.random.fold_in(key, index)
            if 0 < held < size:
                new, position = np.array([tokens[-1:]], np.int32), np.int32(held)
                seen = _padded(held + 1, size, _NEAREST)
                held += 1
            else:
                recent = tokens[-(max(size // 2, 1) if held else size) :]
                held, position = len(recent), None
                seen = _padded(held, size, _SHORTEST)
                new = np.zeros((1, seen), np.int32)
                new[0, :held] = recent
            last = np.int32(min(held, new.shape[1]) - 1)
            token, cache = step(params, cache, new, position, last, drawn, limits, seen=seen)
            tokens.append(int(token))
            if tokens[-1] in config.ends or tokens[-1] in ends:
                return
            yield tokens[-1]

    return tokens_one_by_one()


def _limits(
    config: models.Config, temperature: float, top_k: int | None, top_p: float | None
) -> dict[str, np.generic]:
    """What a draw is limited to, as operands of the compiled step; raises ConfigError."""
    if not temperature >= 0 or (top_k is not None and top_k < 1):
        raise ConfigError(f"need temperature >= 0, top_k >= 1; got {temperature} and {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ConfigError(f"need 0 < top_p <= 1, got {top_p}")
    limits: dict[str, np.generic] = {"temperature": np.float32(temperature)}
    limits |= {} if top_k is None else {"top_k": np.int32(min(top_k, config.vocab))}
    limits |= {} if top_p is None else {"top_p": np.float32(top_p)}
    return limits


def _padded(count: int, most: int, least: int) -> int:
    """The smallest of least, 2 least, 4 least, ... that holds `count`, but at most `most`."""
    while least < count:
        least *= 2
    return min(least, most)
