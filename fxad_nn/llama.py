"""Llama 2 and 3 as a pure function over a tree of parameters (Touvron et al., 2023).

config = PRESETS["llama-tiny"]
params = init_params(spec(config), fxad.random.key(0))
logits = forward(params, tokens, config)            # [batch, time] -> [batch, time, vocab]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import fxad
from fxad_nn.cache import cached_attention, check_fits
from fxad_nn.errors import ConfigError
from fxad_nn.layers import (
    RopeScaling,
    causal_attention,
    embedding,
    embedding_spec,
    linear,
    linear_spec,
    norm_spec,
    rms_norm,
    rotary,
    rotary_tables,
)
from fxad_nn.loss import IGNORE
from fxad_nn.spec import MOST_LAYERS


@dataclass(frozen=True)
class Config:
    """The shape of a Llama. `groups` is the number of key and value heads.

    dtype: of parameters. products: what factors of matrix products are rounded to, if given.
    """

    vocab: int = 32000
    context: int = 4096
    layers: int = 32
    heads: int = 32
    groups: int = 32
    width: int = 4096
    head_dim: int = 128
    hidden: int = 11008
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: float = 1e-5
    tied: bool = False
    dtype: str = "float32"
    products: str | None = None

    def __post_init__(self) -> None:
        sizes = (self.vocab, self.context, self.layers, self.heads, self.groups, self.width)
        if min(*sizes, self.head_dim, self.hidden) < 1:
            raise ConfigError(f"every size of a Llama must be at least 1, got {self}")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{self.layers} layers are more than {MOST_LAYERS}")
        if self.heads % self.groups:
            raise ConfigError(f"heads {self.heads} is not a multiple of groups {self.groups}")
        if self.head_dim % 2:
            raise ConfigError(f"rotary positions need an even head_dim, got {self.head_dim}")


def _llama3(layers: int, heads: int, width: int, hidden: int, **more: Any) -> Config:
    shape = {"groups": 8, "head_dim": width // heads, "rope_theta": 500000.0, "context": 8192}
    return Config(
        vocab=128256, layers=layers, heads=heads, width=width, hidden=hidden, **(shape | more)
    )


PRESETS = {
    "llama2-7b": Config(),
    "llama2-13b": Config(layers=40, heads=40, groups=40, width=5120, hidden=13824),
    "llama2-70b": Config(layers=80, heads=64, groups=8, width=8192, hidden=28672),
    "llama3-8b": _llama3(32, 32, 4096, 14336),
    "llama3-70b": _llama3(80, 64, 8192, 28672),
    "llama3.2-1b": _llama3(
        16, 32, 2048, 8192, context=131072, tied=True, rope_scaling=RopeScaling(factor=32.0)
    ),
    "llama-110m": Config(
        context=1024, layers=12, heads=12, groups=4, width=768, head_dim=64, hidden=2560, tied=True
    ),
    "llama-tiny": Config(
        vocab=65, context=16, layers=2, heads=4, groups=2, width=16, head_dim=4, hidden=32
    ),
}


def spec(config: Config) -> dict[str, Any]:
    """The tree of leaves; every matrix starts normal(0.02), every norm at one."""
    c = config
    queries, keys = c.heads * c.head_dim, c.groups * c.head_dim

    def dense(size: tuple[int, int], axes: tuple[str, str]) -> dict[str, Any]:
        return linear_spec(size, axes, 0.02, bias=False, dtype=c.dtype)

    def block() -> dict[str, Any]:
        return {
            "norm1": norm_spec(c.width, bias=False, dtype=c.dtype),
            "attention": {
                "q": dense((c.width, queries), ("width", "heads")),
                "k": dense((c.width, keys), ("width", "groups")),
                "v": dense((c.width, keys), ("width", "groups")),
                "out": dense((queries, c.width), ("heads", "width")),
            },
            "norm2": norm_spec(c.width, bias=False, dtype=c.dtype),
            "mlp": {
                "gate": dense((c.width, c.hidden), ("width", "hidden")),
                "up": dense((c.width, c.hidden), ("width", "hidden")),
                "down": dense((c.hidden, c.width), ("hidden", "width")),
            },
        }

    tree: dict[str, Any] = {
        "embed": {"token": embedding_spec((c.vocab, c.width), ("vocab", "width"), 0.02, c.dtype)},
        "blocks": [block() for _ in range(c.layers)],
        "norm": norm_spec(c.width, bias=False, dtype=c.dtype),
    }
    if not c.tied:
        tree["head"] = dense((c.width, c.vocab), ("width", "vocab"))
    return tree


def attention(
    p: dict[str, Any],
    x: Any,
    tables: tuple[Any, Any],
    config: Config,
    attend: Callable[..., Any],
) -> Any:
    """Grouped-query attention by attend(q, k, v) with rotary positions, on x [batch, time, width].

    tables: cosines and sines [time, head_dim] of the positions.
    """
    batch, time, _ = x.shape
    q = linear(p["q"], x, config.products).reshape(batch, time, config.heads, config.head_dim)
    k = linear(p["k"], x, config.products).reshape(batch, time, config.groups, config.head_dim)
    v = linear(p["v"], x, config.products).reshape(batch, time, config.groups, config.head_dim)
    mixed = attend(rotary(q, *tables), rotary(k, *tables), v)
    return linear(p["out"], mixed, config.products)


def mlp(p: dict[str, Any], x: Any, config: Config) -> Any:
    """SwiGLU: down(silu(gate(x)) * up(x)) (Shazeer, 2020).

    The gradient computes the product of the two again: cheaper than to keep it.
    """

    def down(gate: Any, up: Any) -> Any:
        return linear(p["down"], fxad.nn.silu(gate) * up, config.products)

    return fxad.checkpoint(down)(*(linear(p[name], x, config.products) for name in ("gate", "up")))


def _blocks(
    params: dict[str, Any],
    x: Any,
    tables: tuple[Any, Any],
    config: Config,
    attend: Callable[..., Any],
) -> Any:
    """Every block and the last norm; attend(layer's number, q, k, v)."""
    for i, p in enumerate(params["blocks"]):
        normed = rms_norm(p["norm1"], x, config.norm_epsilon)
        x = x + attention(p["attention"], normed, tables, config, partial(attend, i))
        x = x + mlp(p["mlp"], rms_norm(p["norm2"], x, config.norm_epsilon), config)
    return rms_norm(params["norm"], x, config.norm_epsilon)


def features(params: dict[str, Any], tokens: Any, config: Config) -> Any:
    """tokens [batch, time] int, time <= context -> what the head sees, [batch, time, width]."""
    time = tokens.shape[1]
    if time > config.context:
        raise ConfigError(f"{time} tokens do not fit Llama's context of {config.context}")
    tables = rotary_tables(time, config.head_dim, config.rope_theta, config.rope_scaling)
    x = embedding(params["embed"]["token"], tokens)
    return _blocks(params, x, tables, config, lambda _, q, k, v: causal_attention(q, k, v))


def extend(
    params: dict[str, Any],
    cache: list[dict[str, Any]],
    tokens: Any,
    position: Any,
    config: Config,
    seen: int | None = None,
) -> tuple[Any, list[dict[str, Any]]]:
    """`features` of tokens that follow those in the cache, and the cache with them.

    tokens [batch, time] stand at position ... position + time - 1 of a text whose earlier
    positions the cache holds. seen: how many positions of the cache attention reads (default all).
    """
    time = tokens.shape[1]
    seen, cache = check_fits(cache, time, position, seen), list(cache)
    whole = rotary_tables(seen, config.head_dim, config.rope_theta, config.rope_scaling)
    cosines, sines = (fxad.lax.dynamic_slice_in_dim(table, position, time) for table in whole)
    attend = partial(cached_attention, cache, position, seen)
    x = embedding(params["embed"]["token"], tokens)
    return _blocks(params, x, (cosines, sines), config, attend), cache


def head(params: dict[str, Any], x: Any, config: Config) -> Any:
    """features [..., width] -> logits [..., vocab]."""
    p = {"weight": params["embed"]["token"].T} if config.tied else params["head"]
    return linear(p, x, config.products)


def forward(params: dict[str, Any], tokens: Any, config: Config) -> Any:
    """tokens [batch, time] int, time <= context -> logits [batch, time, vocab]."""
    return head(params, features(params, tokens, config), config)


def loss(params: dict[str, Any], batch: tuple[Any, Any], config: Config) -> Any:
    """The mean cross-entropy of (tokens, targets), both [batch, time] int, as a float32 scalar."""
    tokens, targets = batch
    table = params["embed"]["token"] if config.tied else params["head"]["weight"].T
    x = features(params, tokens, config)
    return fxad.nn.linear_cross_entropy(x, table, targets, ignore=IGNORE, dtype=config.products)
