"""Fields of config.json that several families share, and the decoder's configuration from them.

    schema = decoder_schema({"attention_bias": boolean})
    config = read_decoder(values, "bfloat16", family="llama")
    values = write_decoder(config)

A field that is not listed here or by its family is an error: it may mean another model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    array,
    boolean,
    integer,
    nullable,
    number,
    one_of,
    record,
    shown,
)
from fxad_nn import decoder
from fxad_nn.errors import ConfigError
from fxad_nn.rotary import KINDS, RopeScaling
from fxad_nn.spec import MOST_LAYERS

SIZE, POSITIVE = integer(1, 1 << 31), number(above=0)
RATE = number(least=0, most=1)
LAYERS = integer(1, MOST_LAYERS)
STRETCH = number(above=0, most=1e6)

HARMLESS = dict.fromkeys(
    (
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "_experts_implementation",
        "_name_or_path",
        "_num_labels",
        "architectures",
        "attn_implementation",
        "auto_map",
        "chunk_size_feed_forward",
        "dtype",
        "experts_implementation",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "initializer_range",
        "is_llama_config",
        "label2id",
        "max_sequence_length",
        "n_special",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "output_router_logits",
        "predict_special_tokens",
        "prefix",
        "pretraining_tp",
        "problem_type",
        "return_dict",
        "task_specific_params",
        "tf_legacy_loss",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers.js_config",
        "transformers_version",
        "unsloth_fixed",
        "unsloth_version",
        "use_bfloat16",
        "use_cache",
    ),
    anything,
)
"""Fields that do not change what a model computes from tokens."""

OF_GENERATION = dict.fromkeys(
    (
        "assistant_confidence_threshold",
        "assistant_lookbehind",
        "bad_words_ids",
        "begin_suppress_tokens",
        "diversity_penalty",
        "do_sample",
        "early_stopping",
        "encoder_no_repeat_ngram_size",
        "encoder_repetition_penalty",
        "epsilon_cutoff",
        "eta_cutoff",
        "exponential_decay_length_penalty",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "length_penalty",
        "max_length",
        "max_new_tokens",
        "min_length",
        "no_repeat_ngram_size",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "num_beam_groups",
        "num_beams",
        "num_return_sequences",
        "output_scores",
        "remove_invalid_values",
        "repetition_penalty",
        "return_dict_in_generate",
        "suppress_tokens",
        "target_lookbehind",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    ),
    anything,
)
"""Settings of generation, which older versions of transformers kept in config.json."""


def _id(value: Any) -> int | None:
    """An id; null, and in some files -1, is none."""
    found = nullable(integer(-1, 1 << 31))(value)
    return None if found == -1 else found


IDS = {
    "bos_token_id": _id,
    "eos_token_id": lambda value: _ids(value),
    "pad_token_id": _id,
    "sep_token_id": _id,
    "unk_token_id": _id,
    "decoder_start_token_id": _id,
}
"""Ids of special tokens."""

ABSENT = {
    "add_cross_attention": one_of(False),
    "is_decoder": boolean,
    "is_encoder_decoder": one_of(False),
    "tie_encoder_decoder": one_of(False),
    "cross_attention_hidden_size": one_of(None),
    "quantization_config": one_of(None),
    "pruned_heads": lambda value: value if value in ({}, None) else _none_pruned(value),
}
"""Fields of what other models have."""

DROPOUTS = dict.fromkeys(("attention_dropout", "embd_pdrop", "resid_pdrop"), nullable(RATE))
"""Of training, which takes its own options here: published files hold rates that count no more."""

COMMON: dict[str, Schema] = {**HARMLESS, **OF_GENERATION, **IDS, **ABSENT, "model_type": anything}

PUBLISHED_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_sigmoid",
    "relu": "relu",
    "tanh": "tanh",
}
"""Our names of activations by the published ones."""

ACTIVATION = one_of(*PUBLISHED_ACTIVATIONS)


def _ids(value: Any) -> Any:
    """One id or a list of them."""
    return array(integer(0, 1 << 31), most=1000)(value) if type(value) is list else _id(value)


def _none_pruned(value: Any) -> Any:
    raise Mismatch(f"must be empty: pruned heads are not supported, got {shown(value)}")


def special_ids(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields start, ends and pad of a configuration."""
    ends = values.get("eos_token_id")
    ends = () if ends is None else tuple(ends) if type(ends) is list else (ends,)
    return {"start": values.get("bos_token_id"), "ends": ends, "pad": values.get("pad_token_id")}


def write_ids(config: Any) -> dict[str, Any]:
    """As the file has them; several ends are a list."""
    ends = config.ends[0] if len(config.ends) == 1 else list(config.ends) or None
    return {"bos_token_id": config.start, "eos_token_id": ends, "pad_token_id": config.pad}


def published_activation(name: str) -> str:
    """The name by which any version of transformers knows one of our activations."""
    return {"gelu_tanh": "gelu_pytorch_tanh", "gelu_sigmoid": "quick_gelu"}.get(name, name)


# ---------------------------------------------------------------- rotary positions

_NUMBERS = nullable(STRETCH)
_FACTORS = nullable(array(STRETCH, least=1, most=1 << 16))
ROPE_FIELDS = {
    "attention_factor": _NUMBERS,
    "beta_fast": _NUMBERS,
    "beta_slow": _NUMBERS,
    "factor": _NUMBERS,
    "high_freq_factor": STRETCH,
    "long_factor": _FACTORS,
    "low_freq_factor": STRETCH,
    "mscale": nullable(number(least=0, most=1e6)),
    "mscale_all_dim": nullable(number(least=0, most=1e6)),
    "original_max_position_embeddings": nullable(SIZE),
    "partial_rotary_factor": number(above=0, most=1),
    "rope_theta": nullable(POSITIVE),
    "short_factor": _FACTORS,
    "truncate": boolean,
}
_NEEDED = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}


def rope_table(*aliases: str) -> Schema:
    """A table of rotary positions, whose kind decides what it must hold; aliases mean longrope."""
    kind = one_of(*dict.fromkeys(("default", *KINDS, *aliases)))
    fields = record({}, {**ROPE_FIELDS, "rope_type": kind, "type": kind})

    def checked(value: Any) -> dict[str, Any]:
        table = fields(value)
        if not table:
            return {}  # which counts as no table
        name = table.pop("type", "default")
        name = table["rope_type"] = table.get("rope_type", name)
        if name in aliases:
            name = table["rope_type"] = "longrope"
        missing = [field for field in _NEEDED[name] if table.get(field) is None]
        if missing:
            raise Mismatch(f"of type {name} does not hold {', '.join(missing)}")
        return table

    return checked


def read_rope(table: Mapping[str, Any], context: int) -> tuple[int, RopeScaling | None]:
    """The context and the scaling that a checked table describes.

    context: `max_position_embeddings`, which is the original context where nothing else is said.
    """
    kind = table.get("rope_type", "default")
    if kind == "default":
        return context, None
    factor: Any = table.get("factor")
    original = table.get("original_max_position_embeddings") or context
    if kind == "dynamic":
        original = context
    if kind in ("dynamic", "yarn"):
        context = max(context, int(factor * original))
    if factor is None:
        factor = context / original
    scaling = RopeScaling(
        kind=kind,
        factor=float(factor),
        original_context=original,
        low_frequency=float(table.get("low_freq_factor", 1.0)),
        high_frequency=float(table.get("high_freq_factor", 4.0)),
        beta_fast=float(table.get("beta_fast") or 32.0),
        beta_slow=float(table.get("beta_slow") or 1.0),
        truncate=table.get("truncate", True),
        short=tuple(map(float, table["short_factor"])) if kind == "longrope" else (),
        long=tuple(map(float, table["long_factor"])) if kind == "longrope" else (),
        attention_factor=_attention_factor(kind, table, float(factor), original),
    )
    return context, scaling


def _attention_factor(kind: str, table: Mapping[str, Any], factor: float, original: int) -> float:
    """What cosines and sines are multiplied by: as given, or as the papers of yarn and longrope
    derive it from the factor."""

    def grown(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if kind not in ("yarn", "longrope"):
        return 1.0
    if given := table.get("attention_factor"):
        return float(given)
    if kind == "longrope":
        grows = factor > 1 and original > 1
        return math.sqrt(1 + math.log(factor) / math.log(original)) if grows else 1.0
    if table.get("mscale") and table.get("mscale_all_dim"):
        return grown(table["mscale"]) / grown(table["mscale_all_dim"])
    return grown(1.0)


def write_rope(scaling: RopeScaling | None) -> dict[str, Any] | None:
    """The table `rope_scaling` that `read_rope` reads; None for no scaling."""
    if scaling is None:
        return None
    s = scaling
    table: dict[str, Any] = {"rope_type": s.kind, "factor": s.factor}
    if s.kind in ("llama3", "yarn", "longrope"):
        table["original_max_position_embeddings"] = s.original_context
    if s.kind in ("yarn", "longrope"):
        table["attention_factor"] = s.attention_factor
    if s.kind == "llama3":
        table |= {"low_freq_factor": s.low_frequency, "high_freq_factor": s.high_frequency}
    if s.kind == "yarn":
        table |= {"beta_fast": s.beta_fast, "beta_slow": s.beta_slow, "truncate": s.truncate}
    if s.kind == "longrope":
        table |= {"short_factor": list(s.short), "long_factor": list(s.long)}
    return table


# ---------------------------------------------------------------- the decoder


def decoder_schema(extra: Mapping[str, Schema], rope: Schema | None = None) -> Schema:
    """What config.json of a decoder may hold; `extra` are the family's own fields."""
    sizes = (
        "vocab_size",
        "max_position_embeddings",
        "num_attention_heads",
        "hidden_size",
        "intermediate_size",
    )
    tables = nullable(rope or rope_table())
    optional = {
        **COMMON,
        **DROPOUTS,
        "head_dim": nullable(SIZE),
        "hidden_act": ACTIVATION,
        "num_key_value_heads": nullable(SIZE),
        "partial_rotary_factor": number(above=0, most=1),
        "rms_norm_eps": POSITIVE,
        "rope_interleaved": one_of(False),
        "rope_parameters": tables,
        "rope_scaling": tables,
        "rope_theta": nullable(POSITIVE),
        "tie_word_embeddings": nullable(boolean),
        **extra,
    }
    return record({**dict.fromkeys(sizes, SIZE), "num_hidden_layers": LAYERS}, optional)


PARTLY_ROTATED = {"phi3"}
"""Families that read partial_rotary_factor; models of others rotate whole heads whatever it is."""


def read_decoder(values: Mapping[str, Any], dtype: str, **options: Any) -> decoder.Config:
    """The configuration of what families have in common; `options` are the family's own, and win
    over what is read here. ConfigError for a table of rotary positions that no model computes."""
    heads, width = values["num_attention_heads"], values["hidden_size"]
    # One table in newer files, two keys in older ones. A key that a user adds to a newer file
    # replaces the whole table, its rope_theta included, as in transformers.
    rope = values.get("rope_scaling") or values.get("rope_parameters") or {}
    context, scaling = read_rope(rope, values["max_position_embeddings"])
    head_dim = values.get("head_dim") or width // heads
    part = rope.get("partial_rotary_factor") or values.get("partial_rotary_factor") or 1.0
    if options["family"] not in PARTLY_ROTATED:
        if scaling is not None and part != 1.0:
            raise ConfigError(
                f"partial_rotary_factor is {part} and rotary positions are scaled "
                f"({scaling.kind}): {options['family']} rotates whole heads, and transformers "
                "cannot run such a file either; take out one of the two"
            )
        part = 1.0
    fields = {
        "vocab": values["vocab_size"],
        "context": context,
        "layers": values["num_hidden_layers"],
        "heads": heads,
        "groups": values.get("num_key_value_heads") or heads,
        "width": width,
        "head_dim": head_dim,
        "hidden": values["intermediate_size"],
        "rope_theta": float(rope.get("rope_theta") or values.get("rope_theta") or 10000.0),
        "rope_scaling": scaling,
        "rotated": None if part == 1.0 else int(head_dim * part),
        "norm_epsilon": float(values.get("rms_norm_eps", 1e-6)),
        "tied": values.get("tie_word_embeddings") or False,
        "activation": PUBLISHED_ACTIVATIONS[values.get("hidden_act", "silu")],
        "dtype": dtype,
        **special_ids(values),
    }
    return decoder.Config(**(fields | options))


def write_decoder(config: decoder.Config, **fields: Any) -> dict[str, Any]:
    """The fields that `read_decoder` reads, and the family's own."""
    c = config
    scaling = c.rope_scaling
    original = scaling.original_context if scaling and scaling.kind == "dynamic" else c.context
    values = {
        "vocab_size": c.vocab,
        "max_position_embeddings": original,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.groups,
        "hidden_size": c.width,
        "head_dim": c.head_dim,
        "intermediate_size": c.hidden,
        "rope_theta": c.rope_theta,
        "rope_scaling": write_rope(scaling),
        "rms_norm_eps": c.norm_epsilon,
        "tie_word_embeddings": c.tied,
        "hidden_act": published_activation(c.activation),
        **write_ids(c),
    }
    return values | fields


WINDOWED = {
    "layer_types": nullable(array(one_of("full_attention", "sliding_attention"), most=1 << 16)),
    "sliding_window": nullable(SIZE),
}


def read_windows(
    values: Mapping[str, Any], window: int | None, local: tuple[bool, ...]
) -> dict[str, Any]:
    """The fields window and local; `local`: which layers are where the file does not list them."""
    if types := values.get("layer_types"):
        local = tuple(kind == "sliding_attention" for kind in types)
    if window is None or not any(local):
        return {}
    return {"window": window, "local": local}


def write_windows(config: decoder.Config) -> list[str]:
    """The list `layer_types`."""
    kinds = ("full_attention", "sliding_attention")
    return [kinds[config.is_local(layer)] for layer in range(config.layers)]


LAYER = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.qkv": "self_attn.qkv_proj",
    "attention.out": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.gate_up": "mlp.gate_up_proj",
    "mlp.down": "mlp.down_proj",
}
"""Modules of a decoder's layer: ours, and how nearly all families call them."""

OUTER = {"embed.token": "model.embed_tokens.weight", "norm": "model.norm", "head": "lm_head"}
