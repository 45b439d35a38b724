"""The decoder that Llama and the families after it share, as a pure function over a tree.

config = models.preset("llama-tiny")
params = init_params(spec(config), fxad.random.key(0))
logits = forward(params, tokens, config)            # [batch, time] -> [batch, time, vocab]

Rotary positions, RMS norms, grouped queries and a gated MLP (Touvron et al., 2023), and what other
families add to them, each an option of `Config`: `fxad_nn.families` says which family has which.
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
    document_positions,
    document_starts,
    embedding,
    embedding_spec,
    head_logits,
    head_of,
    linear,
    linear_spec,
    norm_spec,
    offset_rms_norm,
    rms_norm,
    stored,
)
from fxad_nn.loss import IGNORE, NONE, Penalties, chunked_cross_entropy, cross_entropy
from fxad_nn.mixture import balance_loss, experts_spec, mixture, route, z_loss
from fxad_nn.rotary import RopeScaling, rotary, rotary_tables
from fxad_nn.spec import MOST_LAYERS
from fxad_nn.vocabulary import require_tokens

Tables = tuple[Any, Any]
MOST_EXPERTS = 100_000
"""Beyond any model there is, all layers together."""


@dataclass(frozen=True)
class Config:
    """The shape of a decoder. `groups` is the number of key and value heads.

    dtype: of parameters. products: what factors of matrix products are rounded to, if given.
    activations: what is stored between the parts of a model, if not what these give.
    start, ends, pad: ids of special tokens; generation ends at any of `ends`.
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
    activations: str | None = None
    recompute: bool = False
    """Of each block the gradient keeps its input alone and computes the rest again (Chen et al.,
    2016)."""
    offload: bool = False
    """What blocks keep for their gradient is on the disk until it is needed."""
    family: str = "llama"
    activation: str = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    fused: bool = False
    """q, k, v are one matrix, and so are gate and up."""
    query_norms: str | None = None
    """Queries and keys go through an RMS norm before they are rotated: "head", each head by
    itself, or "whole", all heads together."""
    clip: float | None = None
    """Queries, keys and values are clipped to -clip ... clip."""
    norm_offset: bool = False
    """Norms multiply by 1 + scale."""
    post_norms: bool = False
    """What attention and MLP add is normalised once more."""
    embed_scaled: bool = False
    """Embeddings are multiplied by sqrt(width)."""
    rotated: int | None = None
    """How many elements of a head are rotated (default: all)."""
    score_scale: float | None = None
    """What scores are multiplied by (default: 1 / sqrt(head_dim))."""
    score_cap: float | None = None
    """Scores s become cap tanh(s / cap)."""
    logit_cap: float | None = None
    """Logits likewise."""
    window: int | None = None
    """How many positions a token sees at most, itself included, in layers that are `local`."""
    local: tuple[bool, ...] = ()
    """Which layers see the window only (empty: all, where there is one)."""
    local_theta: float | None = None
    """The rotary base of local layers, which is then not scaled (default: as the others)."""
    experts: int = 0
    """How many experts an MLP has; 0: it is dense."""
    chosen: int = 0
    """How many of them a token goes through."""
    renormalised: bool = True
    """The weights of a token's experts sum to 1."""
    router_losses: bool = False
    """`loss` adds the two losses of routers:"""
    balance_loss: float = 0.0
    """coefficient of the balance loss (Fedus et al., 2022)"""
    z_loss: float = 0.0
    """coefficient of the z loss (Zoph et al., 2022)"""
    start: int | None = None
    ends: tuple[int, ...] = ()
    pad: int | None = None

    def __post_init__(self) -> None:
        sizes = [self.vocab, self.context, self.layers, self.heads, self.groups, self.width]
        sizes += [self.head_dim, self.hidden]
        if min(sizes) < 1:
            raise ConfigError(f"every size of a decoder must be at least 1, got {sizes}")
        if self.layers > MOST_LAYERS:
            raise ConfigError(f"{self.layers} layers are more than {MOST_LAYERS}")
        if self.heads % self.groups:
            raise ConfigError(f"heads {self.heads} is not a multiple of groups {self.groups}")
        if self.head_dim % 2:
            raise ConfigError(f"rotary positions need an even head_dim, got {self.head_dim}")
        rotated = self.head_dim if self.rotated is None else self.rotated
        if not 2 <= rotated <= self.head_dim or rotated % 2:
            raise ConfigError(f"{rotated} of {self.head_dim} elements of a head cannot be rotated")
        kind = self.rope_scaling.kind if self.rope_scaling else None
        if (kind == "yarn" and not self.rope_theta > 1) or (kind == "dynamic" and rotated < 4):
            raise ConfigError(
                f"rotary scaling {kind} cannot stretch {rotated} elements of base {self.rope_theta}"
            )
        if self.activation not in ACTIVATIONS:
            hint = did_you_mean(self.activation, ACTIVATIONS)
            raise ConfigError(f"unknown activation {shown(self.activation)}{hint}")
        if self.local and (len(self.local) != self.layers or self.window is None):
            raise ConfigError(
                f"local layers need a window and one flag for each of {self.layers} layers, got "
                f"{len(self.local)} flags and the window {self.window}"
            )
        if self.query_norms not in (None, "head", "whole"):
            raise ConfigError(
                f'query_norms is "head", "whole" or None, not {shown(self.query_norms)}'
            )
        if not 0 <= self.chosen <= self.experts or (self.experts and not self.chosen):
            raise ConfigError(f"cannot choose {self.chosen} of {self.experts} experts")
        if self.layers * self.experts > MOST_EXPERTS:
            raise ConfigError(f"{self.experts} experts in {self.layers} layers are too many")
        if self.experts and (self.fused or self.mlp_bias):
            raise ConfigError("experts have no fused matrices and no biases")
        if self.window is not None and self.window < 1:
            raise ConfigError(f"a window must hold at least one token, got {self.window}")

    @property
    def rounding(self) -> tuple[str | None, str | None]:
        """What linear layers round: the factors of their products, and their results."""
        return self.products, self.activations

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees the window only."""
        return self.window is not None and (not self.local or self.local[layer])


def spec(config: Config) -> dict[str, Any]:
    """The tree of leaves; every matrix starts normal(0.02), every norm as the identity."""
    c = config
    queries, keys = c.heads * c.head_dim, c.groups * c.head_dim

    def dense(size: tuple[int, int], axes: tuple[str, str], bias: bool = False) -> dict[str, Any]:
        return linear_spec(size, axes, 0.02, bias, c.dtype)

    def norm(width: int = c.width) -> dict[str, Any]:
        return norm_spec(width, bias=False, dtype=c.dtype, offset=c.norm_offset)

    def block() -> dict[str, Any]:
        tree = {
            "norm1": norm(),
            "attention": {
                **projections(),
                "out": dense((queries, c.width), ("heads", "width"), c.out_bias),
            },
            "norm2": norm(),
            "mlp": experts() if c.experts else gated(),
        }
        if c.query_norms == "head":
            tree["attention"] |= {"q_norm": norm(c.head_dim), "k_norm": norm(c.head_dim)}
        elif c.query_norms == "whole":
            tree["attention"] |= {"q_norm": norm(queries), "k_norm": norm(keys)}
        if c.post_norms:
            tree |= {"post_norm1": norm(), "post_norm2": norm()}
        return tree

    def projections() -> dict[str, Any]:
        if c.fused:
            return {"qkv": dense((c.width, queries + 2 * keys), ("width", "qkv"), c.qkv_bias)}
        return {
            "q": dense((c.width, queries), ("width", "heads"), c.qkv_bias),
            "k": dense((c.width, keys), ("width", "groups"), c.qkv_bias),
            "v": dense((c.width, keys), ("width", "groups"), c.qkv_bias),
        }

    def gated() -> dict[str, Any]:
        down = {"down": dense((c.hidden, c.width), ("hidden", "width"), c.mlp_bias)}
        if c.fused:
            size, axes = (c.width, 2 * c.hidden), ("width", "gate_up")
            return {"gate_up": dense(size, axes, c.mlp_bias), **down}
        one = partial(dense, (c.width, c.hidden), ("width", "hidden"), c.mlp_bias)
        return {"gate": one(), "up": one(), **down}

    def experts() -> dict[str, Any]:
        router = dense((c.width, c.experts), ("width", "experts"))
        return {"router": router, "experts": experts_spec(c.experts, c.width, c.hidden, c.dtype)}

    tree: dict[str, Any] = {
        "embed": {"token": embedding_spec((c.vocab, c.width), ("vocab", "width"), 0.02, c.dtype)},
        "blocks": [block() for _ in range(c.layers)],
        "norm": norm(),
    }
    if not c.tied:
        tree["head"] = dense((c.width, c.vocab), ("width", "vocab"))
    return tree


def _norm(p: dict[str, Any], x: Any, config: Config) -> Any:
    layer = offset_rms_norm if config.norm_offset else rms_norm
    return layer(p, x, config.norm_epsilon)


def attention(
    p: dict[str, Any], x: Any, tables: Tables, config: Config, attend: Callable[..., Any]
) -> tuple[Any, Any]:
    """Grouped-query attention with rotary positions on x [batch, time, width], and its cache: both
    by attend(q, k, v).

    tables: cosines and sines of the positions, [time, rotated] or [batch, time, rotated].
    """
    batch, time, _ = x.shape
    q, k, v = _qkv(p, x, config)
    if config.query_norms == "whole":
        q, k = _norm(p["q_norm"], q, config), _norm(p["k_norm"], k, config)
    if config.clip is not None:
        q, k, v = (jnp.clip(part, -config.clip, config.clip) for part in (q, k, v))
    q, k, v = (part.reshape(batch, time, -1, config.head_dim) for part in (q, k, v))
    if config.query_norms == "head":
        q, k = _norm(p["q_norm"], q, config), _norm(p["k_norm"], k, config)
    turns = [jnp.asarray(table, q.dtype) for table in tables]  # one array for queries and keys
    mixed, held = attend(rotary(q, *turns), rotary(k, *turns), v)
    return linear(p["out"], mixed, *config.rounding), held


def _qkv(p: dict[str, Any], x: Any, config: Config) -> list[Any]:
    """Queries [batch, time, heads * head_dim], and keys and values of groups."""
    if not config.fused:
        return [linear(p[name], x, *config.rounding) for name in ("q", "k", "v")]
    queries, keys = config.heads * config.head_dim, config.groups * config.head_dim
    return jnp.split(linear(p["qkv"], x, *config.rounding), [queries, queries + keys], axis=-1)


def mlp(p: dict[str, Any], x: Any, config: Config) -> Any:
    """A gated MLP: down(activation(gate(x)) * up(x)) (Shazeer, 2020).

    The gradient computes the product of the two again: cheaper than to keep it.
    """
    activation = ACTIVATIONS[config.activation]

    def down(gate: Any, up: Any) -> Any:
        return linear(p["down"], activation(gate) * up, *config.rounding)

    if config.fused:
        parts = jnp.split(linear(p["gate_up"], x, *config.rounding), 2, axis=-1)
    else:
        parts = [linear(p[name], x, *config.rounding) for name in ("gate", "up")]
    return fxad.checkpoint(down)(*parts)


def _mlp(p: dict[str, Any], x: Any, config: Config) -> tuple[Any, Any]:
    """What the MLP adds, and the logits [tokens, experts] of its router where it has one."""
    if not config.experts:
        return mlp(p, x, config), None
    logits = linear(p["router"], x, config.products).reshape(-1, config.experts)
    weights, experts = route(logits, config.chosen, config.renormalised)
    activation = ACTIVATIONS[config.activation]
    rows = x.reshape(-1, config.width)
    y = mixture(p["experts"], rows, weights, experts, activation, config.products)
    return stored(y.reshape(x.shape), config.activations), logits


def _blocks(
    params: dict[str, Any],
    x: Any,
    tables: list[Tables],
    config: Config,
    attend: Attend,
    cache: Cache,
    keeping: Callable[..., Any] = lambda block: block,
) -> tuple[Any, Cache, list[Any]]:
    """Every block and the last norm, the cache after them, and the logits of every router."""

    def block(local: bool, p: dict[str, Any], held: Any, x: Any) -> tuple[Any, Any, Any]:
        window = config.window if local else None
        how = {"scale": config.score_scale, "window": window, "softcap": config.score_cap}
        turns = tables[-1] if local else tables[0]
        normed = _norm(p["norm1"], x, config)
        attending = partial(attend, held, **how)
        mixed, held = attention(p["attention"], normed, turns, config, attending)
        mixed = _norm(p["post_norm1"], mixed, config) if config.post_norms else mixed
        x = x + kept(p, "attention", mixed)
        added, logits = _mlp(p["mlp"], _norm(p["norm2"], x, config), config)
        added = _norm(p["post_norm2"], added, config) if config.post_norms else added
        return x + kept(p, "mlp", added), held, logits

    @fxad.outline
    def layer(local: bool, p: dict[str, Any], held: Any, x: Any) -> Any:
        return keeping(partial(block, local))(p, held, x)

    after, routed = [], []
    for i, (p, held) in enumerate(zip(params["blocks"], cache, strict=True)):
        x, held, logits = layer(config.is_local(i), p, held, x)
        after.append(held)
        routed.append(logits)
    return _norm(params["norm"], x, config), after, routed


def _tables(config: Config, time: int, length: int) -> list[Tables]:
    """The rotary tables [time, rotated], for texts of `length`: of all layers, or first of those
    that see everything, then of local ones."""
    rotated = config.rotated or config.head_dim
    tables = [rotary_tables(time, rotated, config.rope_theta, config.rope_scaling, length)]
    if config.local_theta is not None:
        tables.append(rotary_tables(time, rotated, config.local_theta))
    return tables


def _embedded(params: dict[str, Any], tokens: Any, config: Config) -> Any:
    x = embedding(params["embed"], tokens)
    x = x * jnp.asarray(math.sqrt(config.width), x.dtype) if config.embed_scaled else x
    return stored(kept(params["embed"], "embedded", x), config.activations)


def features(params: dict[str, Any], tokens: Any, config: Config, segments: Any = None) -> Any:
    """tokens [batch, time] int, time <= context -> what the head sees, [batch, time, width].

    segments: int [batch, time], the documents that share a row, one after another: each is as it
    would be alone. ConfigError where that depends on its length (see `shares_rows`).
    """
    return _features(params, tokens, config, segments)[0]


def _features(
    params: dict[str, Any], tokens: Any, config: Config, segments: Any
) -> tuple[Any, list[Any]]:
    """`features`, and the logits of every router."""
    require_tokens(tokens)
    time = tokens.shape[1]
    if time > config.context:
        raise ConfigError(f"{time} tokens do not fit the model's context of {config.context}")
    x, tables = _embedded(params, tokens, config), _tables(config, time, time)
    if segments is not None:
        if not shares_rows(config, time):
            raise ConfigError(
                f"documents cannot share rows of {time} tokens: the model's rotary scaling "
                f"depends on a text's length beyond {_original_context(config)}"
            )
        positions = document_positions(segments)
        tables = [(jnp.asarray(cos)[positions], jnp.asarray(sin)[positions]) for cos, sin in tables]
    attend = uncached(partial(causal_attention, segments=segments))
    x, _, routed = _blocks(
        params, x, tables, config, attend, [None] * len(params["blocks"]), checkpointed(config)
    )
    return x, routed


def shares_rows(config: Config, time: int) -> bool:
    """Whether documents in a row of so many tokens are as they would be alone: not where rotary
    scaling takes other frequencies for longer texts."""
    return time <= _original_context(config)


def _original_context(config: Config) -> int:
    """The longest text whose rotary frequencies are those of all shorter ones."""
    scaling = config.rope_scaling
    by_length = scaling is not None and scaling.kind in ("dynamic", "longrope")
    return scaling.original_context if scaling is not None and by_length else config.context


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
    Rotary scaling that depends on the length of the text takes the cache's.
    """
    require_tokens(tokens)
    time, length = tokens.shape[1], cache[0]["keys"].shape[2]
    seen = check_fits(cache, len(params["blocks"]), time, position, seen)
    rows = partial(fxad.lax.dynamic_slice_in_dim, start_index=position, slice_size=time)
    tables = [(rows(cos), rows(sin)) for cos, sin in _tables(config, seen, length)]
    attend = partial(cached_attention, position, seen)
    x, cache, _ = _blocks(params, _embedded(params, tokens, config), tables, config, attend, cache)
    return x, cache


def head(params: dict[str, Any], x: Any, config: Config) -> Any:
    """features [..., width] -> logits [..., vocab]."""
    logits = head_logits(head_of(params, config.tied), x, config.products)
    if config.logit_cap is None:
        return logits
    return config.logit_cap * jnp.tanh(logits / config.logit_cap)


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
    """The mean cross-entropy of (tokens, targets), both [batch, time] int, as a float32 scalar,
    and with `router_losses` those of routers, over the positions that a target depends on.

    segments: as in `features`. skip_ignored: the head's product beside a frozen table is computed
    of positions that have a target alone. Where there is a `logit_cap`, or an adapter beside the
    head, all logits are in memory. With penalties or rows beside the head, and no such adapter,
    some of them are, and the head's product is computed twice.
    """
    tokens, targets = batch
    x, routed = _features(params, tokens, config, segments)
    p = head_of(params, config.tied)
    if "lora" in p or (penalties == NONE and config.logit_cap is not None):
        # In chunks the dropout of an adapter would leave out the same places of each.
        value = cross_entropy(head(params, x, config), targets, penalties)
    elif penalties != NONE or "rows" in p:
        logits_of = partial(head, params, config=config)
        value = chunked_cross_entropy(logits_of, x, targets, penalties)
    else:
        value = fxad.nn.linear_cross_entropy(
            x,
            p["weight"].astype(x.dtype),
            targets,
            ignore=IGNORE,
            dtype=config.products,
            skip_ignored=skip_ignored,
        )
    if not config.router_losses:
        return value
    logits = jnp.concatenate(routed)
    counted = jnp.tile(_counted(targets, segments).reshape(-1), len(routed))
    balance = config.balance_loss * balance_loss(logits, config.chosen, counted)
    return value + balance + config.z_loss * z_loss(logits, counted)


def _counted(targets: Any, segments: Any) -> Any:
    """Which positions a target of their document depends on, bool [batch, time]: all up to the last
    one that has a target. What comes after that, padding above all, trains no router."""
    time = targets.shape[1]
    places = jnp.arange(time, dtype=jnp.int32)
    following = fxad.lax.cummin(jnp.where(targets != IGNORE, places, time), axis=1, reverse=True)
    if segments is None:
        return following < time
    # The next position that has a target is of the same document.
    starts = document_starts(segments)
    there = jnp.take_along_axis(starts, jnp.minimum(following, time - 1), axis=1)
    return (following < time) & (there == starts)
