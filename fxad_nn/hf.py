"""Models from a Hugging Face directory: config.json and safetensors, never pickle.

config, params = load_hf(Path("gpt2"))              # GPT-2 or Llama, by config.json
logits = family(config).forward(params, tokens, config)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core.schema import (
    Mismatch,
    Schema,
    anything,
    boolean,
    check,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    read,
    record,
    shown,
)
from fxad_nn import gpt2, llama, models
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.layers import RopeScaling
from fxad_nn.models import DTYPES
from fxad_nn.spec import from_named, named_leaves
from fxad_nn.tensors import check_shape, require_all, stored, warn_if_not_finite

FLOATS = (*DTYPES, "float64")


def load_hf(directory: Path, dtype: str | None = "float32") -> tuple[models.Config, Any]:
    """The configuration and parameters of a GPT-2 or Llama directory.

    Weights become `dtype`, or keep the one they were stored in where it is None. A missing,
    truncated or unsupported file is a CheckpointError that says which.
    """
    path = directory / "config.json"
    values = read(path, record({"model_type": one_of(*READERS)}, others=anything), CheckpointError)
    schema, reader = READERS[values["model_type"]]
    values = check(values, schema, str(path), CheckpointError)
    files = _weight_files(directory)
    chosen = dtype or _stored_dtype(files)
    if chosen not in DTYPES:
        raise CheckpointError(f"{directory}: weights cannot be {chosen!r}; choose from {DTYPES}")
    try:
        config = reader(values, chosen)
        spec = models.family(config).spec(config)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return config, _read_params(files, config, spec, str(directory))


def _read_params(files: list[Path], config: models.Config, spec: Any, where: str) -> Any:
    wanted = dict(named_leaves(spec))
    rename, transposed = (
        (_gpt2_name, ()) if isinstance(config, gpt2.Config) else (_llama_name, ("weight",))
    )
    found: dict[str, Any] = {}
    for tensor in stored(files):
        ours, what = rename(tensor.name), f"{where}: the tensor {shown(tensor.name)}"
        if ours is None or (ours.startswith("head.") and "head.weight" not in wanted):
            continue
        if ours not in wanted:
            name = shown(tensor.name)
            raise CheckpointError(f"{where}: this model has no place for the tensor {name}")
        if ours in found:
            raise CheckpointError(f"{what} is the second one for {ours}; which one is meant?")
        if tensor.dtype not in FLOATS:
            raise CheckpointError(f"{what} is {tensor.dtype}; weights are one of {FLOATS}")
        turned = ours.rsplit(".", 1)[-1] in transposed
        check_shape(tensor.shape[::-1] if turned else tensor.shape, wanted[ours], what)
        array = np.ascontiguousarray(tensor.read().T) if turned else tensor.read()
        found[ours] = jnp.asarray(array, config.dtype)
    require_all(found, wanted, where)
    warn_if_not_finite(found, where)
    return from_named(spec, found)


_GPT2_NAMES = {
    "wte.weight": "embed.token",
    "wpe.weight": "embed.position",
    "h.": "blocks.",
    "ln_1.weight": "norm1.scale",
    "ln_2.weight": "norm2.scale",
    "ln_f.weight": "norm.scale",
    "ln_1.": "norm1.",
    "ln_2.": "norm2.",
    "ln_f.": "norm.",
    "attn.c_attn.": "attention.qkv.",
    "attn.c_proj.": "attention.out.",
    "mlp.c_fc.": "mlp.up.",
    "mlp.c_proj.": "mlp.down.",
}

_LLAMA_NAMES = {
    "embed_tokens.weight": "embed.token",
    "layers.": "blocks.",
    "input_layernorm.weight": "norm1.scale",
    "post_attention_layernorm.weight": "norm2.scale",
    "self_attn.q_proj.": "attention.q.",
    "self_attn.k_proj.": "attention.k.",
    "self_attn.v_proj.": "attention.v.",
    "self_attn.o_proj.": "attention.out.",
    "gate_proj.": "gate.",
    "up_proj.": "up.",
    "down_proj.": "down.",
    "lm_head.": "head.",
}


def _gpt2_name(name: str) -> str | None:
    """Our name for one of theirs; None for what is derived, such as the causal mask."""
    name = name.removeprefix("transformer.")
    if name == "lm_head.weight" or name.endswith((".attn.bias", ".attn.masked_bias")):
        return None
    for theirs, ours in _GPT2_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _llama_name(name: str) -> str | None:
    """As `_gpt2_name`; the rotary frequencies are derived."""
    name = name.removeprefix("model.")
    if name.endswith("rotary_emb.inv_freq"):
        return None
    if name == "norm.weight":
        return "norm.scale"
    for theirs, ours in _LLAMA_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _gpt2_config(values: dict[str, Any], dtype: str) -> gpt2.Config:
    width = values["n_embd"]
    return gpt2.Config(
        vocab=values["vocab_size"],
        context=values["n_positions"],
        layers=values["n_layer"],
        heads=values["n_head"],
        width=width,
        hidden=values.get("n_inner") or 4 * width,
        norm_epsilon=float(values.get("layer_norm_epsilon", 1e-5)),
        dtype=dtype,
    )


def _llama_config(values: dict[str, Any], dtype: str) -> llama.Config:
    heads, width = values["num_attention_heads"], values["hidden_size"]
    # One table in newer files, two keys in older ones.
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    return llama.Config(
        vocab=values["vocab_size"],
        context=values["max_position_embeddings"],
        layers=values["num_hidden_layers"],
        heads=heads,
        groups=values.get("num_key_value_heads") or heads,
        width=width,
        head_dim=values.get("head_dim") or width // heads,
        hidden=values["intermediate_size"],
        rope_theta=float(rope.get("rope_theta") or values.get("rope_theta") or 10000.0),
        rope_scaling=_rope_scaling(rope),
        norm_epsilon=float(values.get("rms_norm_eps", 1e-6)),
        tied=values.get("tie_word_embeddings") or False,
        dtype=dtype,
    )


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    if rope.get("rope_type", rope.get("type", "default")) == "default":
        return None
    return RopeScaling(
        factor=float(rope["factor"]),
        low_frequency=float(rope["low_freq_factor"]),
        high_frequency=float(rope["high_freq_factor"]),
        original_context=rope["original_max_position_embeddings"],
    )


SIZE, POSITIVE = integer(1, 1 << 31), number(above=0)

GPT2_CONFIG = record(
    dict.fromkeys(("vocab_size", "n_positions", "n_layer", "n_head", "n_embd"), SIZE),
    {
        "n_inner": nullable(SIZE),
        "layer_norm_epsilon": POSITIVE,
        "activation_function": one_of("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": one_of(True),
        "scale_attn_by_inverse_layer_idx": one_of(False),
        "tie_word_embeddings": one_of(True),
    },
    others=anything,
)

_THETA = {"rope_theta": POSITIVE}
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor")
_STRETCHED = {**dict.fromkeys(_LLAMA3, POSITIVE), "original_max_position_embeddings": SIZE}
_KINDS = {
    "default": record({}, _THETA, others=anything),
    "llama3": record(_STRETCHED, _THETA, others=anything),
}


def _rope(value: Any) -> dict[str, Any]:
    """The table of rotary positions, whose kind decides what it holds."""
    names = {"rope_type": one_of(*_KINDS), "type": one_of(*_KINDS)}
    table = record({}, names, others=anything)(value)
    return _KINDS[table.get("rope_type", table.get("type", "default"))](table)


LLAMA_CONFIG = record(
    dict.fromkeys(
        (
            "vocab_size",
            "max_position_embeddings",
            "num_hidden_layers",
            "num_attention_heads",
            "hidden_size",
            "intermediate_size",
        ),
        SIZE,
    ),
    {
        "num_key_value_heads": nullable(SIZE),
        "head_dim": nullable(SIZE),
        "rope_theta": nullable(POSITIVE),
        "rope_parameters": nullable(_rope),
        "rope_scaling": nullable(_rope),
        "rms_norm_eps": POSITIVE,
        "tie_word_embeddings": nullable(boolean),
        "hidden_act": one_of("silu", "swish"),
        "attention_bias": one_of(False),
        "mlp_bias": one_of(False),
    },
    others=anything,
)


def _file_name(value: Any) -> str:
    """The name of a file in the same directory."""
    if type(value) is not str or not re.fullmatch(r"\w[\w.-]{,199}", value, re.ASCII):
        raise Mismatch(f"must name a file beside it, got {shown(value)}")
    return value


INDEX = record({"weight_map": mapping(_file_name)}, others=anything)


def _weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a directory, from its index where it is sharded."""
    single, index = directory / "model.safetensors", directory / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if index.is_file():
        names = set(read(index, INDEX, CheckpointError)["weight_map"].values())
        if not names:
            raise CheckpointError(f"{index} names no files")
        return [directory / name for name in sorted(names)]
    pickles = sorted(p.name for p in directory.glob("*") if p.suffix in (".bin", ".pt", ".pth"))
    if pickles:
        raise CheckpointError(
            f"{directory} has its weights in {pickles[0]}, a pickle, which can run any code when "
            "it is read; convert it where it comes from (save_pretrained writes safetensors)"
        )
    raise CheckpointError(f"{single} is missing")


def _stored_dtype(files: list[Path]) -> str:
    for tensor in stored(files):
        if tensor.dtype in FLOATS:
            return tensor.dtype
    raise CheckpointError(f"{files[0]} holds no tensors of {FLOATS}")


READERS: dict[str, tuple[Schema, Callable[..., models.Config]]] = {
    "gpt2": (GPT2_CONFIG, _gpt2_config),
    "llama": (LLAMA_CONFIG, _llama_config),
}
