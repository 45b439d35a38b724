"""Adapters on the disk, in the format of PEFT: adapter_config.json and adapter_model.safetensors.

    save_adapters(Path("out"), params, config, Lora(16, 32.0), base="Llama-3.2-1B")
    params, lora = load_adapters(Path("out"), params, config)   # beside the weights of `params`

What is saved loads with `peft.PeftModel.from_pretrained(model, "out")`, and what PEFT saved loads
here: LoRA of linear layers, with rows of tokens, and with modules that it trained and saved whole
(`modules_to_save`, and tables of tokens where the vocabulary was resized). Whatever else PEFT can
do is an error that names the field.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fxad.numpy as jnp
from fxad.core.schema import (
    Mismatch,
    anything,
    array,
    boolean,
    integer,
    mapping,
    nullable,
    number,
    one_of,
    read,
    record,
    shown,
    string,
)
from fxad_nn import gpt2, models
from fxad_nn.errors import CheckpointError, ConfigError
from fxad_nn.families import family_of
from fxad_nn.files import replacing
from fxad_nn.hf import CONFIG as MODEL_CONFIG
from fxad_nn.lora import (
    NO_HEAD,
    Lora,
    adapters_of,
    changed,
    linear_modules,
    merge_lora,
    with_adapters,
)
from fxad_nn.model import Model, load
from fxad_nn.spec import Leaf, named_leaves
from fxad_nn.tensors import Stored, stored, warn_if_not_finite, write_tree
from fxad_nn.token_rows import TABLES, resized, row_specs, rows_of, with_rows
from fxad_nn.tokenizer import TOKENIZER, from_directory

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the names of a causal language model's modules."""
ROWS = "token_adapter.trainable_tokens_delta"
"""What PEFT calls rows of token tables; they are whole rows, no differences."""
TIED_HEAD = "lm_head.weight"
"""What PEFT calls the head, also that of a model that has none of its own."""
BASE_LAYER = ".base_layer.weight"
"""How PEFT ends the name of a weight that an adapter stands beside: it saves such a table of tokens
whole, and takes it from there when it loads (`save_embedding_layers="auto"`)."""
FACTORS = {"lora_A": "a", "lora_B": "b"}
FLOATS = ("float32", "float16", "bfloat16", "float64")


def save_adapters(
    directory: str | Path, params: Any, config: models.Config, lora: Lora, base: str
) -> None:
    """Write the adapters in `params`; base: the name or directory of the model they belong to.

    Each file is wholly there or not there, the weights first. Raises CheckpointError where `params`
    holds no adapters and where the disk fails.
    """
    directory = Path(directory)
    adapters = adapters_of(params)
    if not adapters:
        raise CheckpointError(f"{directory}: this model has no adapters to save")
    published = {name: family_of(config).published(name) for name in adapters}
    tensors = {
        f"{PREFIX}{published[name]}.{theirs}.weight": leaves[ours]
        for name, leaves in adapters.items()
        for theirs, ours in FACTORS.items()
    }
    rows = rows_of(params)
    tables = {place: _table(place, config) for place in rows}
    tensors |= {f"{PREFIX}{name}.{ROWS}": rows[place]["values"] for place, name in tables.items()}
    values = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "lora_dropout": lora.dropout,
        "use_rslora": lora.rslora,
        "target_modules": sorted(_targets(published.values(), config)),
        "fan_in_fan_out": isinstance(config, gpt2.Config),
        "bias": "none",
        "inference_mode": True,
    }
    if rows:
        values["trainable_token_indices"] = {
            name.rpartition(".")[2]: np.asarray(rows[place]["ids"]).tolist()
            for place, name in tables.items()
        }
    try:
        with replacing(directory / WEIGHTS) as temporary:
            write_tree(temporary, tensors)
        with replacing(directory / CONFIG) as temporary:
            temporary.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
    except OSError as error:
        raise CheckpointError(f"could not save adapters in {directory}: {error}") from error


def _targets(modules: Any, config: models.Config) -> set[str]:
    """The last parts of the names of modules, where they mean just these; else whole names."""
    modules = set(modules)
    every = {family_of(config).published(name) for name in linear_modules(config)}
    ends = {name.rpartition(".")[2] for name in modules}
    return ends if {n for n in every if n.rpartition(".")[2] in ends} == modules else modules


def load_adapters(directory: str | Path, params: Any, config: models.Config) -> tuple[Any, Lora]:
    """The parameters with the adapters of a directory beside their weights, and what these are.

    Factors become float32, and so do rows of tokens (`fxad_nn.token_rows`), whose ids must be below
    the vocabulary of `config`: `token_rows.resized` makes room for new ones. Modules that
    were saved whole take the place of those in `params`, in their dtype; the head of a model that
    has none of its own must be the table that embeds tokens. Raises CheckpointError naming the
    file, and the field or tensor, where one is missing, damaged, not supported, or of another
    model.
    """
    directory = Path(directory)
    path = directory / CONFIG
    values = read(path, SCHEMA, CheckpointError)
    try:
        lora = Lora(
            rank=values["r"],
            alpha=float(values.get("lora_alpha", 8)),
            targets=_target_names(values["target_modules"]),
            rslora=values.get("use_rslora", False),
            dropout=float(values.get("lora_dropout", 0.0)),
        )
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error
    ids = _row_ids(values, config, path)
    whole = _Whole(config, values.get("modules_to_save") or [], path)
    adapters, rows, saved = _read(directory / WEIGHTS, config, lora, ids, whole)
    if whole.tied and not _is_one_table(saved, whole, params["embed"]["token"]):
        raise CheckpointError(
            f"{directory / WEIGHTS}: {PREFIX}{TIED_HEAD} is not the table that embeds tokens, "
            "which this model's head is (PEFT keeps them one with ensure_weight_tying=True)"
        )
    return with_rows(with_adapters(_replaced(params, saved), adapters), rows), lora


def merged_with_base(directory: str | Path) -> tuple[Model, Path]:
    """The model that the adapters of a directory were made for, with them merged, and the directory
    of its tokenizer: theirs, where they brought one, else the model's.

    Raises CheckpointError where adapter_config.json names no model or one that is in no directory,
    and as `load_adapters`.
    """
    directory = Path(directory)
    named = read(directory / CONFIG, SCHEMA, CheckpointError).get("base_model_name_or_path")
    if type(named) is not str or not named:
        raise CheckpointError(
            f"{directory / CONFIG} does not say which model the adapters were made for "
            f"(base_model_name_or_path is {shown(named)}): give its directory there"
        )
    base = Path(named)
    if not (base / MODEL_CONFIG).is_file():
        raise CheckpointError(
            f"{directory} holds adapters alone, and the model that they were made for, "
            f"{shown(named)}, is in no directory here: put it there, or merge them into it where "
            "it is (fxad_nn.adapters.load_adapters, fxad_nn.lora.merge_lora, fxad_nn.save)"
        )
    model, home = load(base), base
    params, config = model.params, model.config
    if (directory / TOKENIZER).is_file():
        home = directory
        params, config = resized(params, config, from_directory(home).size, config.vocab)
    merged, _ = merge_lora(load_adapters(directory, params, config)[0], config)
    return Model(merged, config, model.generation), home


def _is_one_table(saved: dict[str, Any], whole: _Whole, table: Any) -> bool:
    """Whether the table that embeds tokens is the head's in a file, too, which it takes the place
    of in `saved`. A module of `modules_to_save` is a copy, apart from what it was tied to."""
    head = saved.pop(TIED_HEAD, None)
    if not whole.needed:  # either name means both
        if head is None or "embed.token" in saved:
            return head is None or _equal(head, saved["embed.token"])
        saved["embed.token"] = head
        return True
    return _equal(table if head is None else head, saved.get("embed.token", table))


def _equal(x: Any, y: Any) -> bool:
    return np.array_equal(np.asarray(x, np.float32), np.asarray(y, np.float32))


def _replaced(params: Any, leaves: dict[str, Any]) -> Any:
    """The parameters with other leaves, by their names, in the dtypes of those that were there."""
    modules: dict[str, dict[str, Any]] = {}
    for name, leaf in leaves.items():
        module, _, kind = name.rpartition(".")
        modules.setdefault(module, {})[kind] = leaf

    def change(name: str, module: Any) -> Any:
        return module | {k: leaf.astype(module[k].dtype) for k, leaf in modules[name].items()}

    return changed(params, change, set(modules), "")


def _row_ids(values: dict[str, Any], config: models.Config, path: Path) -> dict[str, list[int]]:
    """The ids that have rows of their own, by the published name of their table. PEFT calls a table
    by the end of its name; a list alone is of the one that embeds tokens."""
    found = values.get("trainable_token_indices") or {}
    specs = {_table(place, config): place for place in row_specs(config, 1)}
    if type(found) is list:
        found = {next(iter(specs)): found}
    named: dict[str, list[int]] = {}
    for name, ids in found.items():
        table = next((t for t in specs if f".{t}".endswith(f".{name}")), None)
        if table is None:
            raise CheckpointError(f"{path}: this model has no token table {shown(name)}")
        if max(ids) >= config.vocab:
            raise CheckpointError(
                f"{path} has a row for id {max(ids)}, the model a vocabulary of {config.vocab}: "
                "make room for it first (fxad_nn.token_rows.resized)"
            )
        named[table] = ids
    if named and named.keys() != specs.keys():
        missing = sorted(specs.keys() - named.keys())
        raise CheckpointError(f"{path} has rows of new tokens, but none of {missing[0]}")
    return named


def _table(place: str, config: models.Config) -> str:
    """The published name of a table of tokens."""
    return family_of(config).published(f"{place}.{TABLES[place]}").removesuffix(".weight")


def _target_names(value: str | list[str]) -> tuple[str, ...] | str:
    return value if isinstance(value, str) else tuple(sorted(value))


def _read(
    path: Path, config: models.Config, lora: Lora, ids: dict[str, list[int]], whole: _Whole
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]], dict[str, Any]]:
    """The adapters in a file, each with both of its factors, the rows of these ids, and leaves
    that were saved whole, by their names."""
    sizes = linear_modules(config)
    ours = {PREFIX + family_of(config).published(name): name for name in sizes}
    found: dict[str, Any] = {}
    tables = {f"{PREFIX}{_table(p, config)}.{ROWS}": p for p in row_specs(config, 1)}
    rows: dict[str, dict[str, Any]] = {}
    saved: dict[str, Any] = {}
    for tensor in stored([path]):
        if (place := tables.get(tensor.name)) and (chosen := ids.get(_table(place, config))):
            values = _factor(tensor, (len(chosen), config.width), path)
            rows[place] = {"ids": jnp.asarray(np.array(chosen, np.int32)), "values": values}
            continue
        if (leaf := whole.leaves.get(_without_base_layer(tensor.name))) is not None:
            saved[leaf.name] = _factor(tensor, leaf.shape(tensor, path), path)
            continue
        module, _, factor = tensor.name.removesuffix(".weight").rpartition(".")
        known = tensor.name.endswith(".weight") and factor in FACTORS and module in ours
        if not known:
            name = shown(tensor.name)
            of_head = whole.tied and tensor.name.startswith(PREFIX + "lm_head.")
            why = f": {NO_HEAD}" if of_head else ""
            raise CheckpointError(f"{path}: the tensor {name} has no place in this model{why}")
        name = ours[module]
        size_in, size_out = sizes[name]
        shape = (lora.rank, size_in) if factor == "lora_A" else (size_out, lora.rank)
        found[f"{name}.{FACTORS[factor]}"] = _factor(tensor, shape, path)
    modules = {name.rpartition(".")[0] for name in found}
    missing = [f"{m}.{f}" for m in sorted(modules) for f in FACTORS.values()]
    missing = [name for name in missing if name not in found]
    if missing or not modules:
        raise CheckpointError(f"{path} does not hold {missing[0] if missing else 'any adapter'}")
    if absent := [name for name, place in tables.items() if ids and place not in rows]:
        raise CheckpointError(f"{path} does not hold {absent[0]}")
    if absent := [name for name in whole.needed if whole.leaves[name].name not in saved]:
        raise CheckpointError(f"{path} does not hold {absent[0]}, which modules_to_save names")
    values = {f"{place}.rows": part["values"] for place, part in rows.items()}
    warn_if_not_finite({**found, **values, **saved}, str(path))
    scale = jnp.float32(lora.scale)
    adapters = {m: {"a": found[f"{m}.a"], "b": found[f"{m}.b"], "scale": scale} for m in modules}
    return adapters, rows, saved


def _without_base_layer(name: str) -> str:
    """The name of a weight that no adapter stands beside."""
    return f"{name.removesuffix(BASE_LAYER)}.weight" if name.endswith(BASE_LAYER) else name


class _WholeLeaf(NamedTuple):
    """A leaf that a file may hold whole: its name, what it has without the file, and whether it has
    a row for each token."""

    name: str
    spec: Leaf
    by_token: bool

    def shape(self, tensor: Stored, path: Path) -> tuple[int, ...]:
        """The leaf's shape; CheckpointError for a table of more tokens."""
        vocab = self.spec.shape[0]
        if self.by_token and tensor.shape[:1] > (vocab,):
            raise CheckpointError(
                f"{path}: {shown(tensor.name)} has rows for {tensor.shape[0]} tokens, the model a "
                f"vocabulary of {vocab}: make room for them first (fxad_nn.token_rows.resized)"
            )
        return self.spec.shape


class _Whole:
    """Leaves that a file may hold whole, by what PEFT calls their tensors: token tables, and those
    of modules that `modules_to_save` names by the ends of their names (any end, as in PEFT). A head
    that is tied is the table that embeds tokens, which PEFT saves under both names.

    needed: the tensors that `modules_to_save` promises. tied: whether the head is that table.
    """

    def __init__(self, config: models.Config, modules: list[str], path: Path) -> None:
        family = family_of(config)
        tables = {f"{place}.{TABLES[place]}" for place in row_specs(config, 1)}
        specs = dict(named_leaves(models.family(config).spec(config)))
        every = {
            PREFIX + tensors[0]: _WholeLeaf(name, leaf, name in tables)
            for name, leaf in specs.items()
            if len(tensors := family.tensors(name, leaf)) == 1
        }
        self.tied = PREFIX + TIED_HEAD not in every
        if self.tied:
            every[PREFIX + TIED_HEAD] = _WholeLeaf(TIED_HEAD, specs["embed.token"], by_token=True)
        self.needed: list[str] = []
        for module in modules:
            found = [name for name in every if _module(name).endswith(module)]
            if not found:
                raise CheckpointError(f"{path}: this model has no module {shown(module)}")
            self.needed += found
        allowed = {*self.needed, PREFIX + TIED_HEAD}
        self.leaves = {n: leaf for n, leaf in every.items() if leaf.name in tables or n in allowed}


def _module(name: str) -> str:
    return name.removeprefix(PREFIX).rpartition(".")[0]


def _factor(tensor: Stored, shape: tuple[int, ...], path: Path) -> Any:
    what = f"{path}: {shown(tensor.name)}"
    if tensor.shape != shape:
        raise CheckpointError(
            f"{what} has shape {tensor.shape}, this model and rank need {shape}: were the adapters "
            "trained on another model?"
        )
    if tensor.dtype not in FLOATS:
        raise CheckpointError(f"{what} is {tensor.dtype}; adapters are one of {FLOATS}")
    return jnp.asarray(tensor.read(), "float32")


def _off(value: Any) -> Any:
    """null, false, or an empty list or object: what is not used."""
    if value is not None and value is not False and value not in ([], {}):
        raise Mismatch(f"is not supported, got {shown(value)}")
    return value


NAME = string(most=1000)
ROW_IDS = array(integer(0, (1 << 31) - 1), 1)


def _indices(value: Any) -> Any:
    """`trainable_token_indices`: a list of ids, or one for each table."""
    return nullable(ROW_IDS if type(value) is list else mapping(ROW_IDS))(value)


SCHEMA = record(
    {
        "peft_type": one_of("LORA"),
        "r": integer(1, 1 << 20),
        "target_modules": lambda value: (NAME if type(value) is str else array(NAME, 1))(value),
    },
    {
        "lora_alpha": number(above=0),
        "lora_dropout": number(least=0),
        "use_rslora": boolean,
        "bias": one_of("none"),
        "ensure_weight_tying": boolean,
        "task_type": nullable(one_of("CAUSAL_LM")),
        "modules_to_save": nullable(array(NAME)),
        "trainable_token_indices": _indices,
        # About making adapters, not about those that are there.
        "auto_mapping": anything,
        "base_model_name_or_path": anything,
        "exclude_modules": anything,
        "fan_in_fan_out": boolean,
        "inference_mode": boolean,
        # Others (PiSSA, OLoRA, LoftQ, CorDA) begin by changing the base weights.
        "init_lora_weights": nullable(one_of(True, False, "gaussian", "eva", "orthogonal")),
        "layers_pattern": anything,
        "layers_to_transform": anything,
        "megatron_core": anything,
        "peft_version": anything,
        "qalora_group_size": anything,
        "revision": anything,
    },
    others=_off,
)
