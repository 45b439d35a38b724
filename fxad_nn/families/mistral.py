"""Mistral (Jiang et al., 2023): Llama whose layers may all see a window of the last tokens only.

x += linear(attention(rotary(q), rotary(k), v, window))     # position t sees t - window + 1 ... t
"""

from __future__ import annotations

from typing import Any

from fxad.core.schema import nullable
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import LAYER, OUTER, SIZE, decoder_schema, read_decoder, write_decoder


def _read(values: dict[str, Any], dtype: str) -> Config:
    return read_decoder(values, dtype, family="mistral", window=values.get("sliding_window", 4096))


_7B: dict[str, Any] = {"groups": 8, "hidden": 14336, "context": 32768, "family": "mistral"}
MISTRAL = Family(
    name="mistral",
    architecture="MistralForCausalLM",
    schema=decoder_schema({"sliding_window": nullable(SIZE)}),
    read=_read,
    write=lambda config: write_decoder(config, sliding_window=config.window),
    blocks="model.layers",
    inner=LAYER,
    outer=OUTER,
    presets={
        "mistral-7b": Config(**_7B, window=4096),
        "mistral-7b-v0.3": Config(**_7B, vocab=32768, rope_theta=1e6),
    },
)
