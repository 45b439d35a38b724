"""GPT-2 (Radford et al., 2019), whose model is `fxad_nn.gpt2`.

x = tokens[ids] + positions[0 ... time - 1]             # [batch, time, width]
each layer:
    q, k, v = conv1d(layer_norm(x))                     # one matrix [width, 3 width]
    x += conv1d(attention(q, k, v))
    x += down(activation(up(layer_norm(x))))            # hidden = 4 width inside
logits = layer_norm(x) @ tokens.T                       # [batch, time, vocab]
"""

from __future__ import annotations

from typing import Any

from fxad.core.schema import anything, boolean, nullable, record
from fxad_nn import gpt2
from fxad_nn.errors import ConfigError
from fxad_nn.families.family import Family
from fxad_nn.families.fields import (
    ACTIVATION,
    COMMON,
    DROPOUTS,
    POSITIVE,
    PUBLISHED_ACTIVATIONS,
    RATE,
    SIZE,
    published_activation,
    special_ids,
    write_ids,
)

SIZES = ("vocab_size", "n_positions", "n_layer", "n_head", "n_embd")
SCHEMA = record(
    dict.fromkeys(SIZES, SIZE),
    {
        **COMMON,
        "activation_function": ACTIVATION,
        **DROPOUTS,
        "attn_pdrop": nullable(RATE),
        "layer_norm_epsilon": POSITIVE,
        "n_ctx": anything,
        "n_inner": nullable(SIZE),
        "reorder_and_upcast_attn": boolean,  # the same numbers by another order of steps
        "scale_attn_by_inverse_layer_idx": boolean,
        "scale_attn_weights": boolean,
        "summary_activation": anything,
        "summary_first_dropout": anything,
        "summary_proj_to_labels": anything,
        "summary_type": anything,
        "summary_use_proj": anything,
        "tie_word_embeddings": boolean,
    },
)


def _read(values: dict[str, Any], dtype: str) -> gpt2.Config:
    width = values["n_embd"]
    return gpt2.Config(
        vocab=values["vocab_size"],
        context=values["n_positions"],
        layers=values["n_layer"],
        heads=values["n_head"],
        width=width,
        hidden=values.get("n_inner") or 4 * width,
        norm_epsilon=float(values.get("layer_norm_epsilon", 1e-5)),
        activation=PUBLISHED_ACTIVATIONS[values.get("activation_function", "gelu_new")],
        scaled=values.get("scale_attn_weights", True),
        scaled_by_layer=values.get("scale_attn_by_inverse_layer_idx", False),
        tied=values.get("tie_word_embeddings", True),
        dtype=dtype,
        **special_ids(values),
    )


def _write(config: gpt2.Config) -> dict[str, Any]:
    c = config
    if not c.bias:
        raise ConfigError("GPT-2 is published with biases; a model without them has no such form")
    activation = "gelu_new" if c.activation == "gelu_tanh" else published_activation(c.activation)
    return {
        "vocab_size": c.vocab,
        "n_positions": c.context,
        "n_layer": c.layers,
        "n_head": c.heads,
        "n_embd": c.width,
        "n_inner": c.hidden,
        "layer_norm_epsilon": c.norm_epsilon,
        "activation_function": activation,
        "scale_attn_weights": c.scaled,
        "scale_attn_by_inverse_layer_idx": c.scaled_by_layer,
        "tie_word_embeddings": c.tied,
        **write_ids(c),
    }


GPT2 = Family(
    name="gpt2",
    architecture="GPT2LMHeadModel",
    schema=SCHEMA,
    read=_read,
    write=_write,
    blocks="transformer.h",
    inner={
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
    outer={
        "embed.token": "transformer.wte.weight",
        "embed.position": "transformer.wpe.weight",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    presets=gpt2.PRESETS,
)
