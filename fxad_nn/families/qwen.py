"""Qwen 2, 2.5 and 3: Llama with biases of q, k and v, later with norms of their heads instead.

    q, k, v = linear(rms_norm(x))               # Qwen 2: + bias [heads | groups, head_dim]
    q, k = rms_norm(q), rms_norm(k)             # Qwen 3: over head_dim, one scale for all heads

(Yang et al., 2024 and 2025.) Layers from `max_window_layers` on may see a window only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fxad.core.schema import boolean, integer, one_of
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import (
    LAYER,
    OUTER,
    WINDOWED,
    decoder_schema,
    read_decoder,
    read_windows,
    write_decoder,
    write_windows,
)

FIELDS = {
    **WINDOWED,
    "max_window_layers": integer(),
    "use_mrope": one_of(False),
    "use_sliding_window": boolean,
}


def _windows(values: Mapping[str, Any]) -> dict[str, Any]:
    layers = range(values["num_hidden_layers"])
    first = values.get("max_window_layers", 28)
    used = values.get("use_sliding_window", False)
    window = values.get("sliding_window", 4096) if used else None
    return read_windows(values, window, tuple(layer >= first for layer in layers))


def _write(config: Config, **fields: Any) -> dict[str, Any]:
    return write_decoder(
        config,
        use_sliding_window=config.window is not None,
        sliding_window=config.window,
        layer_types=write_windows(config),
        **fields,
    )


def _read2(values: dict[str, Any], dtype: str) -> Config:
    return read_decoder(values, dtype, family="qwen2", qkv_bias=True, **_windows(values))


def _read3(values: dict[str, Any], dtype: str) -> Config:
    bias = values.get("attention_bias", False)
    options = {"query_norms": "head", "qkv_bias": bias, "out_bias": bias, **_windows(values)}
    return read_decoder({"head_dim": 128, **values}, dtype, family="qwen3", **options)


_QWEN = Config(
    vocab=151936, context=32768, head_dim=64, rope_theta=1e6, norm_epsilon=1e-6, tied=True
)
_QWEN2 = replace(_QWEN, family="qwen2", qkv_bias=True)
_QWEN3 = replace(_QWEN, family="qwen3", query_norms="head", head_dim=128, context=40960)
QWEN2 = Family(
    name="qwen2",
    architecture="Qwen2ForCausalLM",
    schema=decoder_schema(FIELDS),
    read=_read2,
    write=_write,
    blocks="model.layers",
    inner=LAYER,
    outer=OUTER,
    presets={
        "qwen2.5-0.5b": replace(_QWEN2, layers=24, heads=14, groups=2, width=896, hidden=4864),
        "qwen2.5-1.5b": replace(
            _QWEN2, layers=28, heads=12, groups=2, width=1536, head_dim=128, hidden=8960
        ),
    },
)
QWEN3 = Family(
    name="qwen3",
    architecture="Qwen3ForCausalLM",
    schema=decoder_schema({**FIELDS, "attention_bias": boolean}),
    read=_read3,
    write=lambda config: _write(config, attention_bias=config.qkv_bias),
    blocks="model.layers",
    inner=LAYER,
    outer=OUTER,
    presets={
        "qwen3-0.6b": replace(_QWEN3, layers=28, heads=16, groups=8, width=1024, hidden=3072),
        "qwen3-1.7b": replace(_QWEN3, layers=28, heads=16, groups=8, width=2048, hidden=6144),
    },
)
