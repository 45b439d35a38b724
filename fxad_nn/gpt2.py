"""GPT-2 as a pure function over a tree of parameters (Radford et al., 2019).

config = PRESETS["tiny"]
params = init_params(spec(config), fxad.random.key(0))
logits = forward(params, tokens, config)            # [batch, time] -> [batch, time, vocab]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import fxad
import fxad.numpy as jnp
from fxad_nn.errors import ConfigError
from fxad_nn.layers import (
    causal_attention,
    embedding,
    embedding_spec,
    layer_norm,
    linear,
    linear_spec,
    norm_spec,
)
from fxad_nn.loss import IGNORE
from fxad_nn.spec import MOST_LAYERS


@dataclass(frozen=True)
class Config:
    """The shape of a GPT-2. `position_std` is 0.01 in OpenAI's code, 0.02 in nanoGPT."""

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

    def __post_init__(self) -> None:
        sizes = (self.vocab, self.context, self.layers, self.heads, self.width, self.hidden)
        if min(sizes) < 1:
            raise ConfigError(f"every size of a GPT-2 must be at least 1, got {self}")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{self.layers} layers are more than {MOST_LAYERS}")
        if self.width % self.heads:
            raise ConfigError(f"width {self.width} is not a multiple of heads {self.heads}")

    @property
    def head_dim(self) -> int:
        """The width of one attention head."""
        return self.width // self.heads


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
    sqrt(2 layers) so that its variance does not grow with depth. The head is the token table.
    """
    c = config
    residual = 0.02 / math.sqrt(2 * c.layers)

    def dense(size: tuple[int, int], axes: tuple[str, str], std: float) -> dict[str, Any]:
        return linear_spec(size, axes, std, c.bias, c.dtype)

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

    return {
        "embed": {
            "token": embedding_spec((c.vocab, c.width), ("vocab", "width"), 0.02, c.dtype),
            "position": embedding_spec(
                (c.context, c.width), ("context", "width"), c.position_std, c.dtype
            ),
        },
        "blocks": [block() for _ in range(c.layers)],
        "norm": norm_spec(c.width, c.bias, c.dtype),
    }


def attention(p: dict[str, Any], x: Any, config: Config) -> Any:
    """Causal self-attention: x [batch, time, width] -> [batch, time, width]."""
    batch, time, _ = x.shape
    heads = (batch, time, config.heads, config.head_dim)
    q, k, v = (part.reshape(heads) for part in jnp.split(linear(p["qkv"], x), 3, axis=-1))
    return linear(p["out"], causal_attention(q, k, v))


def mlp(p: dict[str, Any], x: Any) -> Any:
    """Two linear layers with the tanh form of GELU between them."""
    return linear(p["down"], fxad.nn.gelu(linear(p["up"], x), approximate=True))


def features(params: dict[str, Any], tokens: Any, config: Config) -> Any:
    """tokens [batch, time] int, time <= context -> what the head sees, [batch, time, width]."""
    time = tokens.shape[1]
    if time > config.context:
        raise ConfigError(f"{time} tokens do not fit GPT-2's context of {config.context}")
    embed = params["embed"]
    x = embedding(embed["token"], tokens) + embed["position"][:time]
    for p in params["blocks"]:
        x = x + attention(p["attention"], layer_norm(p["norm1"], x, config.norm_epsilon), config)
        x = x + mlp(p["mlp"], layer_norm(p["norm2"], x, config.norm_epsilon))
    return layer_norm(params["norm"], x, config.norm_epsilon)


def forward(params: dict[str, Any], tokens: Any, config: Config) -> Any:
    """tokens [batch, time] int, time <= context -> logits [batch, time, vocab]."""
    return features(params, tokens, config) @ params["embed"]["token"].T


def loss(params: dict[str, Any], batch: tuple[Any, Any], config: Config) -> Any:
    """The mean cross-entropy of (tokens, targets), both [batch, time] int, as a float32 scalar."""
    tokens, targets = batch
    return fxad.nn.linear_cross_entropy(
        features(params, tokens, config), params["embed"]["token"], targets, ignore=IGNORE
    )
