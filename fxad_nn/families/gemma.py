"""Gemma 2 and the text part of Gemma 3 (Gemma Team, 2024 and 2025).

    x = embed[tokens] * sqrt(width)                         # [batch, time, width]
    each layer:                                             # norms multiply by 1 + scale
        x += norm(linear(attention(rotary(q), rotary(k), v)))   # of norm(x)
        x += norm(down(gelu(gate(norm(x))) * up(norm(x))))      # [batch, time, hidden] inside
    logits = norm(x) @ embed.T

Local layers see a window. Gemma 2 alternates them with others, and caps scores and logits:
c tanh(s / c). Gemma 3 has five of them in a row, with a rotary base of their own, and normalises
query and key heads instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    boolean,
    integer,
    nullable,
    one_of,
    record,
    shown,
)
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import (
    ACTIVATION,
    LAYER,
    OUTER,
    POSITIVE,
    PUBLISHED_ACTIVATIONS,
    WINDOWED,
    decoder_schema,
    read_decoder,
    read_windows,
    rope_table,
    write_decoder,
    write_windows,
)

FIELDS: dict[str, Schema] = {
    **WINDOWED,
    "attention_bias": boolean,
    "cache_implementation": anything,
    "final_logit_softcapping": nullable(POSITIVE),
    "hidden_activation": nullable(ACTIVATION),
    "query_pre_attn_scalar": POSITIVE,
    "use_bidirectional_attention": one_of(None, False),
}
INNER = {
    **LAYER,
    "post_norm1": "post_attention_layernorm",
    "norm2": "pre_feedforward_layernorm",
    "post_norm2": "post_feedforward_layernorm",
}
SHAPE: dict[str, Any] = {
    "norm_offset": True,
    "post_norms": True,
    "embed_scaled": True,
    "activation": "gelu_tanh",
    "norm_epsilon": 1e-6,
    "tied": True,
}


def _read(values: dict[str, Any], dtype: str, local: tuple[bool, ...], **options: Any) -> Config:
    """What both have; `local`: which layers see the window where the file does not list them."""
    values = {"head_dim": 256, "tie_word_embeddings": True, **values}
    bias = values.get("attention_bias", False)
    fields = SHAPE | {
        "tied": values["tie_word_embeddings"],
        "norm_epsilon": float(values.get("rms_norm_eps", 1e-6)),
        "activation": PUBLISHED_ACTIVATIONS[values.get("hidden_activation") or "gelu_new"],
        "qkv_bias": bias,
        "out_bias": bias,
        "score_scale": float(values.get("query_pre_attn_scalar", 256)) ** -0.5,
        **read_windows(values, values.get("sliding_window", 4096), local),
    }
    return read_decoder(values, dtype, **(fields | options))


def _write(config: Config, **fields: Any) -> dict[str, Any]:
    values = write_decoder(
        config,
        attention_bias=config.qkv_bias,
        query_pre_attn_scalar=_whole((config.score_scale or config.head_dim**-0.5) ** -2),
        sliding_window=config.window,
        layer_types=write_windows(config),
        final_logit_softcapping=config.logit_cap,
        **fields,
    )
    return values | {"hidden_activation": values.pop("hidden_act")}


def _whole(value: float) -> float | int:
    """The integer that a number was before it was made a power; else the number."""
    return round(value) if abs(value - round(value)) < 1e-6 * value else value


def _read2(values: dict[str, Any], dtype: str) -> Config:
    layers = range(values["num_hidden_layers"])
    return _read(
        values,
        dtype,
        tuple(layer % 2 == 0 for layer in layers),
        family="gemma2",
        score_cap=values.get("attn_logit_softcapping", 50.0),
        logit_cap=values.get("final_logit_softcapping", 30.0),
    )


def _rope3(value: Any) -> dict[str, Any]:
    """A table for each of the two kinds of layers: transformers takes no other one for both."""
    kinds = dict.fromkeys(("full_attention", "sliding_attention"), nullable(rope_table()))
    tables = {name: table or {} for name, table in record({}, kinds)(value).items()}
    kind = tables.get("sliding_attention", {}).get("rope_type", "default")
    if kind != "default":
        raise Mismatch(f"scales the rotary table of local layers ({shown(kind)}): not supported")
    return tables


def _scaling3(value: Any) -> dict[str, Any]:
    """What older files have for the layers that see everything."""
    if type(value) is dict and value and "rope_type" not in value:
        raise Mismatch("must name its kind in rope_type: transformers reads no other key here")
    return rope_table()(value)


def _read3(values: dict[str, Any], dtype: str) -> Config:
    layers = range(values["num_hidden_layers"])
    every = values.get("sliding_window_pattern", 6)
    rope = values.get("rope_parameters") or {}
    local_theta = rope.get("sliding_attention", {}).get("rope_theta")
    # Of other families the second replaces the first.
    full = rope.get("full_attention", {}) | (values.get("rope_scaling") or {})
    return _read(
        {"rope_theta": 1e6, **values, "rope_parameters": full, "rope_scaling": None},
        dtype,
        tuple((layer + 1) % every != 0 for layer in layers),
        family="gemma3_text",
        query_norms="head",
        local_theta=float(local_theta or values.get("rope_local_base_freq") or 1e4),
        logit_cap=values.get("final_logit_softcapping"),
    )


def _write3(config: Config) -> dict[str, Any]:
    return _write(config, rope_local_base_freq=config.local_theta)


_GEMMA2 = Config(
    family="gemma2", vocab=256000, context=8192, head_dim=256, score_scale=256**-0.5,
    score_cap=50.0, logit_cap=30.0, window=4096, **SHAPE,
    layers=26, local=(True, False) * 13, heads=8, groups=4, width=2304, hidden=9216,
)  # fmt: skip
_GEMMA3 = Config(
    family="gemma3_text", vocab=262144, context=32768, head_dim=256, score_scale=256**-0.5,
    query_norms="head", rope_theta=1e6, local_theta=1e4, window=512, **SHAPE,
    layers=26, local=tuple((layer + 1) % 6 != 0 for layer in range(26)),
    heads=4, groups=1, width=1152, hidden=6912,
)  # fmt: skip

GEMMA2 = Family(
    name="gemma2",
    architecture="Gemma2ForCausalLM",
    schema=decoder_schema({**FIELDS, "attn_logit_softcapping": nullable(POSITIVE)}),
    read=_read2,
    write=lambda config: _write(config, attn_logit_softcapping=config.score_cap),
    blocks="model.layers",
    inner=INNER,
    outer=OUTER,
    presets={"gemma2-2b": _GEMMA2},
)
GEMMA3 = Family(
    name="gemma3_text",
    architecture="Gemma3ForCausalLM",
    schema=decoder_schema(
        {
            **FIELDS,
            "attn_logit_softcapping": one_of(None),
            "rope_parameters": nullable(_rope3),
            "rope_scaling": nullable(_scaling3),
            "rope_local_base_freq": POSITIVE,
            "sliding_window_pattern": integer(1, 1 << 16),
            "_sliding_window_pattern": anything,
        }
    ),
    read=_read3,
    write=_write3,
    blocks="model.layers",
    inner=INNER,
    outer=OUTER,
    presets={
        "gemma3-270m": replace(
            _GEMMA3, layers=18, local=_GEMMA3.local[:18], width=640, hidden=2048
        ),
        "gemma3-1b": _GEMMA3,
    },
)
