"""Keys and values of the tokens read so far, so that a new token computes only its own.

    cache = init_cache(config, batch=1, length=128)
    logits, cache = models.decode(params, cache, prompt, 0, config)          # all at once
    logits, cache = models.decode(params, cache, token, position, config)    # then one by one

A cache is a tree of arrays like parameters are; donate it, and a step writes its few rows in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError
from fxad_nn.layers import causal_attention, masked_attention


class Shape(Protocol):
    """What a cache needs to know of a configuration."""

    @property
    def layers(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def products(self) -> str | None: ...
    @property
    def activations(self) -> str | None: ...


Cache = Sequence[Any]
"""For each layer {"keys", "values"}, or None where nothing is kept."""

Attend = Callable[..., tuple[Any, Any]]
"""(a layer's part of the cache, q, k, v, scale=, ...) -> (what attention gives, that part after)"""


def uncached(attention: Callable[..., Any]) -> Attend:
    """Attention of whole texts, which keeps nothing."""
    return lambda held, *qkv, **how: (attention(*qkv, **how), held)


def init_cache(config: Shape, batch: int, length: int) -> list[dict[str, Any]]:
    """An empty cache of `length` positions: for each layer keys and values, in the dtype that the
    model's linear layers give: its own, or float32 where factors of products are rounded.

    Each is [batch, groups, length, head_dim]. Raises ConfigError where it exceeds the context.
    """
    if batch < 1 or not 1 <= length <= config.context:
        raise ConfigError(
            f"a cache needs batch >= 1 and a length within the context of {config.context}, "
            f"got batch {batch} and length {length}"
        )
    shape = (batch, config.groups, length, config.head_dim)
    dtype = config.activations or (config.dtype if config.products is None else "float32")
    return [
        {name: jnp.zeros(shape, dtype) for name in ("keys", "values")} for _ in range(config.layers)
    ]


def check_fits(cache: Cache, layers: int, time: int, position: Any, seen: int | None) -> int:
    """How many positions attention reads; ConfigError where `time` more tokens cannot fit, or the
    cache is of another number of layers.

    A position that is only known when the step runs cannot be checked here.
    """
    if len(cache) != layers:
        raise ConfigError(f"a cache of {len(cache)} layers does not fit a model of {layers}")
    length = cache[0]["keys"].shape[2]
    first = position if isinstance(position, int) else 0
    if first < 0 or first + time > length:
        raise ConfigError(f"{time} tokens at position {position} do not fit a cache of {length}")
    if seen is not None and not first + time <= seen <= length:
        raise ConfigError(
            f"seen must lie between {first + time} (these tokens) and {length} (the cache), "
            f"got {seen}"
        )
    return length if seen is None else seen


def cached_attention(
    position: Any,
    seen: int,
    held: dict[str, Any],
    q: Any,
    k: Any,
    v: Any,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Causal attention of new tokens to themselves and to those in the cache before `position`.

    q [batch, time, heads, dim]; k, v [batch, time, groups, dim]. Returns [batch, time, heads * dim]
    and a layer's part of the cache with k and v at position ... position + time - 1.
    Reads the first `seen` positions of the cache. Scores and softmax are float32. scale, window
    and softcap are those of `layers.causal_attention`.
    """
    at = (0, 0, position, 0)
    new = {"keys": k, "values": v}
    held = {
        name: fxad.lax.dynamic_update_slice(before, new[name].swapaxes(1, 2), at)
        for name, before in held.items()
    }
    if isinstance(position, int) and position == 0:
        return causal_attention(q, k, v, scale, window, softcap), held
    keys, values = held["keys"][:, :, :seen], held["values"][:, :, :seen]
    return masked_attention(q, keys, values, position, scale, window, softcap), held
