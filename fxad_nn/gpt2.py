"""GPT-2 as a pure function over a tree of parameters (Radford et al., 2019).

config = PRESETS["tiny"]
params = init_params(spec(config), fxad.random.key(0))
logits = forward(params, tokens, config)            # [batch, time] -> [batch, time, vocab]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad.core.schema import shown
from fxad_nn.cache import Attend, Cache, cached_attention, check_fits, uncached
from fxad_nn.dropout import kept
from fxad_nn.errors import ConfigError, did_you_mean
from fxad_nn.layers import (
    ACTIVATIONS,
    causal_attention,
    checkpointed,
    conv1d,
    conv1d_spec,
    document_positions,
    embedding,
    embedding_spec,
    head_logits,
    head_of,
    layer_norm,
    linear_spec,
    norm_spec,
    stored,
)
from fxad_nn.loss import IGNORE, NONE, Penalties, chunked_cross_entropy, cross_entropy
from fxad_nn.spec import MOST_LAYERS
from fxad_nn.vocabulary import require_tokens


@dataclass(frozen=True)
class Config:
    """The shape of a GPT-2. `position_std` is 0.01 in OpenAI's code, 0.02 in nanoGPT.

    dtype: of parameters. products: what factors of matrix products are rounded to, if given.
    activations: what is stored between the parts of a model, if not what these give.
    start, ends, pad: ids of special tokens; generation ends at any of `ends`.
    """

    vocab: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    hidden: int = 3072
    bias: bool = True
    norm_epsilon: float = 1e-5
    position_std: float = 0.01
    dtype: str = "float32"
    products: str | None = None
    activations: str | None = None
    recompute: bool = False
    """Of each block the gradient keeps its input alone and computes the rest again (Chen et al.,
    2016)."""
    offload: bool = False
    """What blocks keep for their gradient is on the disk until it is needed."""
    family: str = "gpt2"
    activation: str = "gelu_tanh"
    tied: bool = True
    scaled: bool = True
    """Scores are divided by sqrt(head_dim)."""
    scaled_by_layer: bool = False
    """Scores of layer i, counted from 0, are divided by i + 1."""
    start: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.vocab, self.context, self.layers, self.heads, self.width, self.hidden)
        if min(sizes) < 1:
            raise ConfigError(f"every size of a GPT-2 must be at least 1, got {sizes}")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{self.layers} layers are more than {MOST_LAYERS}")
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} is not a multiple of heads {self.heads}")
        if self.activation not in ACTIVATIONS:
            hint = did_you_mean(self.activation, ACTIVATIONS)
            raise ConfigError(f"unknown activation {shown(self.activation)}{hint}")

    @property
    def rounding(self) -> tuple[str | None, str | None]:
        """What linear layers round: the factors of their products, and their results."""
        return self.products, self.activations

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.width // self.heads

    @property
    def groups(self) -> int:
        """The number of key and value heads: every head has its own."""
        return self.heads


def _sized(layers: int, heads: int, width: int, **more: Any) -> Config:
    return Config(layers=layers, heads=heads, width=width, hidden=4 * width, **more)


PRESETS = {
    "gpt2": _sized(12, 12, 768),
    "gpt2-medium": _sized(24, 16, 1024),
    "gpt2-large": _sized(36, 20, 1280),
    "gpt2-xl": _sized(48, 25, 1600),
    "nano": _sized(4, 4, 128, vocab=65, context=64, bias=False, position_std=0.02),
    "tiny": _sized(2, 2, 16, vocab=65, context=16),
}


def spec(config: Config) -> dict[str, Any]:
    """The tree of leaves, with OpenAI's initialisation.

    Matrices are normal(0.02), those that write into the residual stream divided by
    sqrt(2 layers) so that its variance does not grow with depth. A tied head is the token table.
    """
    c = config
    residual = 0.02 / math.sqrt(2 * c.layers)

    def dense(size: tuple[int, int], axes: tuple[str, str], std: float) -> dict[str, Any]:
        return conv1d_spec(size, axes, std, c.bias, c.dtype)

    def block() -> dict[str, Any]:
        return {
            "norm1": norm_spec(c.width, c.bias, c.dtype),
            "attention": {
                "qkv": dense((c.width, 3 * c.width), ("width", "qkv"), 0.02),
                "out": dense((c.width, c.width), ("heads", "width"), residual),
            },
            "norm2": norm_spec(c.width, c.bias, c.dtype),
            "mlp": {
                "up": dense((c.width, c.hidden), ("width", "hidden"), 0.02),
                "down": dense((c.hidden, c.width), ("hidden", "width"), residual),
            },
        }

    tree: dict[str, Any] = {
        "embed": {
            "token": embedding_spec((c.vocab, c.width), ("vocab", "width"), 0.02, c.dtype),
            "position": embedding_spec(
                (c.context, c.width), ("context", "width"), c.position_std, c.dtype
            ),
        },
        "blocks": [block() for _ in range(c.layers)],
        "norm": norm_spec(c.width, c.bias, c.dtype),
    }
    if not c.tied:
        tree["head"] = linear_spec((c.width, c.vocab), ("width", "vocab"), 0.02, False, c.dtype)
    return tree


def attention(
    p: dict[str, Any], x: Any, config: Config, attend: Callable[..., Any]
) -> tuple[Any, Any]:
    """Self-attention of x [batch, time, width], and its cache: both by attend(q, k, v)."""
    batch, time, _ = x.shape
    heads = (batch, time, config.heads, config.head_dim)
    qkv = conv1d(p["qkv"], x, *config.rounding)
    q, k, v = (part.reshape(heads) for part in jnp.split(qkv, 3, axis=-1))
    mixed, held = attend(q, k, v)
    return conv1d(p["out"], mixed, *config.rounding), held


def mlp(p: dict[str, Any], x: Any, config: Config) -> Any:
    """Two linear layers with an activation between them, GELU in its tanh form as published.

    The gradient computes it again: cheaper than to keep it, four times as large as x.
    """
    activation = ACTIVATIONS[config.activation]

    def down(hidden: Any) -> Any:
        return conv1d(p["down"], activation(hidden), *config.rounding)

    return fxad.checkpoint(down)(conv1d(p["up"], x, *config.rounding))


def _blocks(
    params: dict[str, Any],
    x: Any,
    config: Config,
    attend: Attend,
    cache: Cache,
    keeping: Callable[..., Any] = lambda block: block,
) -> tuple[Any, Cache]:
    """Every block and the last norm, and the cache after them."""

    def block(scale: float | None, p: dict[str, Any], held: Any, x: Any) -> tuple[Any, Any]:
        normed = layer_norm(p["norm1"], x, config.norm_epsilon)
        mix = partial(attend, held, scale=scale)
        mixed, held = attention(p["attention"], normed, config, mix)
        x = x + kept(p, "attention", mixed)
        normed = layer_norm(p["norm2"], x, config.norm_epsilon)
        return x + kept(p, "mlp", mlp(p["mlp"], normed, config)), held

    @fxad.outline
    def layer(scale: float | None, p: dict[str, Any], held: Any, x: Any) -> Any:
        return keeping(partial(block, scale))(p, held, x)

    after = []
    for i, (p, held) in enumerate(zip(params["blocks"], cache, strict=True)):
        x, held = layer(_score_scale(config, i), p, held, x)
        after.append(held)
    return layer_norm(params["norm"], x, config.norm_epsilon), after


def _score_scale(config: Config, layer: int) -> float | None:
    """What scores of a layer are multiplied by; None for 1 / sqrt(head_dim)."""
    if config.scaled and not config.scaled_by_layer:
        return None
    scale = 1 / math.sqrt(config.head_dim) if config.scaled else 1.0
    return scale / (layer + 1) if config.scaled_by_layer else scale


def features(params: dict[str, Any], tokens: Any, config: Config, segments: Any = None) -> Any:
    """tokens [batch, time] int, time <= context -> what the head sees, [batch, time, width].

    segments: int [batch, time], the documents that share a row, one after another: each is as it
    would be alone.
    """
    require_tokens(tokens)
    time = tokens.shape[1]
    if time > config.context:
        raise ConfigError(f"{time} tokens do not fit GPT-2's context of {config.context}")
    embed = params["embed"]
    places = slice(time) if segments is None else document_positions(segments)
    x = kept(embed, "embedded", embedding(embed, tokens) + embed["position"][places])
    x = stored(x, config.activations)
    attend = uncached(partial(causal_attention, segments=segments))
    x, _ = _blocks(params, x, config, attend, [None] * len(params["blocks"]), checkpointed(config))
    return x


def shares_rows(config: Config, time: int) -> bool:
    """Whether documents in a row of so many tokens are as they would be alone: always."""
    return True


def extend(
    params: dict[str, Any],
    cache: Cache,
    tokens: Any,
    position: Any,
    config: Config,
    seen: int | None = None,
) -> tuple[Any, Cache]:
    """`features` of tokens that follow those in the cache, and the cache with them.

    tokens [batch, time] stand at position ... position + time - 1 of a text whose earlier
    positions the cache holds. seen: how many positions of the cache attention reads (default all).
    """
    require_tokens(tokens)
    time = tokens.shape[1]
    seen, embed = check_fits(cache, len(params["blocks"]), time, position, seen), params["embed"]
    places = fxad.lax.dynamic_slice_in_dim(embed["position"], position, time)
    x = embedding(embed, tokens) + places
    return _blocks(params, x, config, partial(cached_attention, position, seen), cache)


def head(params: dict[str, Any], x: Any, config: Config) -> Any:
    """features [..., width] -> logits [..., vocab]."""
    return head_logits(head_of(params, config.tied), x, config.products)


def forward(params: dict[str, Any], tokens: Any, config: Config, segments: Any = None) -> Any:
    """tokens [batch, time] int, time <= context -> logits [batch, time, vocab].

    segments: as in `features`.
    """
    return head(params, features(params, tokens, config, segments), config)


def loss(
    params: dict[str, Any],
    batch: tuple[Any, Any],
    config: Config,
    segments: Any = None,
    penalties: Penalties = NONE,
    skip_ignored: bool = False,
) -> Any:
    """The mean cross-entropy of (tokens, targets), both [batch, time] int, as a float32 scalar.

    segments: as in `features`. skip_ignored: the head's product beside a frozen table is computed
    of positions that have a target alone. Where an adapter stands beside the head all logits are in
    memory. With penalties, or rows beside the head, some of them are, and the head's product is
    computed twice.
    """
    tokens, targets = batch
    x, p = features(params, tokens, config, segments), head_of(params, config.tied)
    if "lora" in p:
        # In chunks the dropout of an adapter would leave out the same places of each.
        return cross_entropy(head(params, x, config), targets, penalties)
    if penalties != NONE or "rows" in p:
        logits_of = partial(head, params, config=config)
        return chunked_cross_entropy(logits_of, x, targets, penalties)
    return fxad.nn.linear_cross_entropy(
        x,
        p["weight"].astype(x.dtype),
        targets,
        ignore=IGNORE,
        dtype=config.products,
        skip_ignored=skip_ignored,
    )
