"""Phi-3, 3.5 and 4-mini (Abdin et al., 2024): Llama with fused matrices and longrope.

    q, k, v = split(linear(rms_norm(x)))        # one matrix [(heads + 2 groups) head_dim, width]
    gate, up = split(linear(rms_norm(x)))       # one matrix [2 hidden, width]

A part of every head may be rotated only.
"""

from __future__ import annotations

from typing import Any

from fxad.core.schema import nullable, one_of
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import (
    LAYER,
    OUTER,
    SIZE,
    decoder_schema,
    read_decoder,
    rope_table,
    write_decoder,
)

FIELDS = {
    "attention_bias": one_of(False),
    "full_attn_mod": one_of(1),
    "interpolate_factor": one_of(1),
    "lm_head_bias": one_of(False),
    "mlp_bias": one_of(False),
    "original_max_position_embeddings": SIZE,
    "sliding_window": nullable(SIZE),
}


def _read(values: dict[str, Any], dtype: str) -> Config:
    # What the file says beside the table is what counts here.
    original = values.get("original_max_position_embeddings", 4096)
    tables = {
        name: {**values[name], "original_max_position_embeddings": original}
        for name in ("rope_parameters", "rope_scaling")
        if values.get(name)
    }
    values = {"rms_norm_eps": 1e-5, **values, **tables}
    options = {"family": "phi3", "fused": True, "window": values.get("sliding_window")}
    return read_decoder(values, dtype, **options)


def _write(config: Config) -> dict[str, Any]:
    scaling = config.rope_scaling
    return write_decoder(
        config,
        sliding_window=config.window,
        partial_rotary_factor=(config.rotated or config.head_dim) / config.head_dim,
        original_max_position_embeddings=scaling.original_context if scaling else config.context,
    )


PHI3 = Family(
    name="phi3",
    architecture="Phi3ForCausalLM",
    schema=decoder_schema(FIELDS, rope=rope_table("su", "yarn")),
    read=_read,
    write=_write,
    blocks="model.layers",
    inner=LAYER,
    outer=OUTER,
    presets={
        "phi3-mini": Config(
            family="phi3",
            fused=True,
            vocab=32064,
            width=3072,
            head_dim=96,
            hidden=8192,
            window=2047,
        )
    },
)
