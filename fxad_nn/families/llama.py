"""Llama 1 to 3.x (Touvron et al., 2023; Grattafiori et al., 2024).

x = embed[tokens]                                       # [batch, time, width]
each layer:
    q, k, v = linear(rms_norm(x))                       # [batch, time, heads | groups, head_dim]
    x += linear(attention(rotary(q), rotary(k), v))     # [batch, time, width]
    x += down(silu(gate(rms_norm(x))) * up(rms_norm(x)))    # hidden inside
logits = head(rms_norm(x))                              # [batch, time, vocab]
"""

from __future__ import annotations

from typing import Any

from fxad.core.schema import boolean
from fxad_nn.decoder import Config
from fxad_nn.families.family import Family
from fxad_nn.families.fields import LAYER, OUTER, decoder_schema, read_decoder, write_decoder
from fxad_nn.rotary import RopeScaling


def _read(values: dict[str, Any], dtype: str) -> Config:
    bias = values.get("attention_bias", False)
    biases = {"qkv_bias": bias, "out_bias": bias, "mlp_bias": values.get("mlp_bias", False)}
    return read_decoder(values, dtype, family="llama", **biases)


def _write(config: Config) -> dict[str, Any]:
    return write_decoder(config, attention_bias=config.qkv_bias, mlp_bias=config.mlp_bias)


def _llama3(layers: int, heads: int, width: int, hidden: int, **more: Any) -> Config:
    shape = {"groups": 8, "head_dim": width // heads, "rope_theta": 500000.0, "context": 8192}
    return Config(
        vocab=128256, layers=layers, heads=heads, width=width, hidden=hidden, **(shape | more)
    )


_LONG = {"context": 131072, "tied": True, "rope_scaling": RopeScaling(factor=32.0)}
PRESETS = {
    "llama2-7b": Config(),
    "llama2-13b": Config(layers=40, heads=40, groups=40, width=5120, hidden=13824),
    "llama2-70b": Config(layers=80, heads=64, groups=8, width=8192, hidden=28672),
    "llama3-8b": _llama3(32, 32, 4096, 14336),
    "llama3-70b": _llama3(80, 64, 8192, 28672),
    "llama3.2-1b": _llama3(16, 32, 2048, 8192, **_LONG),
    "llama3.2-3b": _llama3(28, 24, 3072, 8192, **_LONG),
    "llama-110m": Config(
        context=1024, layers=12, heads=12, groups=4, width=768, head_dim=64, hidden=2560, tied=True
    ),
    "llama-tiny": Config(
        vocab=65, context=16, layers=2, heads=4, groups=2, width=16, head_dim=4, hidden=32
    ),
}

LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    schema=decoder_schema({"attention_bias": boolean, "mlp_bias": boolean}),
    read=_read,
    write=_write,
    blocks="model.layers",
    inner=LAYER,
    outer=OUTER,
    presets=PRESETS,
)
