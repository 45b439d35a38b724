"""Directories of published models: config.json, generation_config.json and safetensors.

config, params = read_model(Path("Llama-3.2-1B"), dtype=None)
write_model(Path("out"), config, params, "5GB")     # what transformers loads

Nothing in a directory is executed: pickles are refused, code beside a model is not looked at.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import fxad.numpy as jnp
from fxad.core.schema import (
    Mismatch,
    anything,
    check,
    mapping,
    read,
    record,
    shown,
    string,
)
from fxad.core.sizes import parse_bytes
from fxad.errors import BadArgument
from fxad_nn import models
from fxad_nn.arrays import from_rows
from fxad_nn.errors import CheckpointError, ConfigError, DamageWarning
from fxad_nn.families import FAMILIES, Family, family_of
from fxad_nn.families.fields import IDS
from fxad_nn.files import abandoned, no_directory, replacing, withdrawn
from fxad_nn.lora import ALL_LINEAR, targeted
from fxad_nn.models import DTYPES
from fxad_nn.quantized import KINDS, PART, Quantized, is_quantized, quantized_by_rows, stacked
from fxad_nn.spec import from_named, named_leaves
from fxad_nn.tensors import (
    Stored,
    check_shape,
    map_file,
    require_all,
    stored,
    warn_if_not_finite,
    write_tree,
)

FLOATS = (*DTYPES, "float64")
CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"

KIND = record({"model_type": string()}, others=anything)
ENDS = record({}, IDS, others=anything)
SHARD = re.compile(r"model(?:-\d{1,9})?-\d{5}-of-\d{5}\.safetensors")
DERIVED = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)")
"""Tensors of older files that follow from the configuration: frequencies, causal masks."""


def read_model(
    directory: str | Path,
    dtype: Any = None,
    mapped: bool = False,
    quantize: str | None = None,
) -> tuple[models.Config, Any]:
    """The configuration and parameters in a directory.

    Weights become `dtype`, or keep the one they are stored in where it is None; of several dtypes,
    which a DamageWarning tells of, they become the one of config.json, else that of most bytes, as
    transformers has it. mapped: they borrow the memory of mapped files, and are not looked at for
    NaN. quantize: the format that matrices of linear layers and experts, but not the head's, are
    kept in; some rows of them are read at a time, mapped or not. Raises CheckpointError naming the
    file, and the field or tensor, that is missing, damaged or not supported, and for a dtype that
    weights cannot have.
    """
    directory = Path(directory)
    if quantize is not None and quantize not in KINDS:
        raise ConfigError(f"weights cannot be quantised to {quantize!r}; choose from {KINDS}")
    try:
        dtype = None if dtype is None else models.dtype_name(dtype)
    except ConfigError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    tensors, family, config = _described(directory, dtype)
    if dtype is None:
        _warn_of_several(tensors, config.dtype, str(directory))
    spec = models.family(config).spec(config)
    params = _read_params(tensors, family, config, spec, mapped, quantize, str(directory))
    return config, params


def read_config(directory: str | Path) -> models.Config:
    """The configuration alone, of the dtype that the weights are stored in; raises as
    `read_model`."""
    return _described(Path(directory), None)[2]


@dataclass(frozen=True)
class Generation:
    """The fields of a generation_config.json, for `write_model` to keep; none without such a file.

    All instances are equal: no computation depends on them, so that models with other settings are
    the same to compiled functions and have trees of one structure.
    """

    values: dict[str, Any] = field(default_factory=dict, compare=False)


NO_SETTINGS = Generation()


def read_generation(directory: str | Path) -> Generation:
    """The settings in a directory; CheckpointError where they are damaged."""
    path = _inside(Path(directory), GENERATION)
    return Generation(read(path, ENDS, CheckpointError)) if path.is_file() else NO_SETTINGS


def _described(directory: Path, dtype: str | None) -> tuple[list[Stored], Family, models.Config]:
    """The tensors of a directory's files, its family and its configuration, which has a spec."""
    family, values = _read_config(directory)
    tensors = list(stored(weight_files(directory)))
    try:
        said = values.get("dtype") or values.get("torch_dtype")
        config = family.read(values, dtype or _stored_dtype(tensors, said, str(directory)))
        models.family(config).spec(config)
    except ConfigError as error:
        raise CheckpointError(f"{directory / CONFIG}: {error}") from error
    if config.tied and _has_own_head(tensors, family, config.dtype):
        config = replace(config, tied=False)
    return tensors, family, config


def _has_own_head(tensors: list[Stored], family: Family, dtype: str) -> bool:
    """Whether files hold a head other than the token table, which then counts, whatever the
    configuration says: as in transformers. Some hold the same numbers twice."""
    by_name = {tensor.name: tensor for tensor in tensors}
    table, head = family.published("embed.token"), by_name.get(family.published("head.weight"))
    one = by_name.get(table) or by_name.get(table.removeprefix(family.stem))
    if head is None or one is None:
        return False
    if len(one.shape) != 2 or head.shape != one.shape or not {head.dtype, one.dtype} <= set(FLOATS):
        return True  # an error later, which names it
    step = max(PART // max(math.prod(one.shape[1:]), 1), 1)
    readers = [_rows_of(tensor, dtype) for tensor in (one, head)]
    for start in range(0, one.shape[0], step):
        ours, theirs = (np.asarray(read(start, start + step)) for read in readers)
        if ours.tobytes() != theirs.tobytes():  # NaN too is equal to itself
            return True
    return False


def _read_config(directory: Path) -> tuple[Family, dict[str, Any]]:
    """The family and the checked fields of config.json, ends as generation uses them."""
    if not directory.is_dir():
        raise CheckpointError(
            f"{directory} {no_directory(directory)}; give the directory of a model"
        )
    path = _inside(directory, CONFIG)
    values = read(path, KIND, CheckpointError)
    _require_readable(values, str(path))
    family = FAMILIES[values["model_type"]]
    values = check(values, family.schema, str(path), CheckpointError)
    if (directory / GENERATION).is_file():
        generation = read(_inside(directory, GENERATION), ENDS, CheckpointError)
        if generation.get("eos_token_id") is not None:
            values["eos_token_id"] = generation["eos_token_id"]
    return family, values


def _require_readable(values: dict[str, Any], where: str) -> None:
    """CheckpointError for a family that is not known, and for weights that are quantised."""
    name, text = values["model_type"], values.get("text_config")
    if name not in FAMILIES:
        hint = f"; did you mean {name.lower()!r}?" if name.lower() in FAMILIES else ""
        if isinstance(text, dict):
            inner = text.get("model_type")
            part = f", a {inner}, which loads if it is saved alone" if inner in [*FAMILIES] else ""
            hint = f". Of a model of text and images, only the text part may be supported{part}"
        raise CheckpointError(
            f"{where}: the family {shown(name)} (model_type) is not supported; these are: "
            f"{', '.join(FAMILIES)}{hint}"
        )
    if found := values.get("quantization_config"):
        method = found.get("quant_method") if isinstance(found, dict) else found
        raise CheckpointError(
            f"{where} has a quantization_config ({shown(method)}): weights that other tools "
            "quantised are not read; take the model that they were made from, and quantise it "
            "here: fxad_nn.load(directory, quantize='nf4'), or in fine-tuning"
        )


def _inside(directory: Path, name: str) -> Path:
    """The path of a file of a directory; CheckpointError where a link leads out of it.

    The cache of huggingface_hub is no way out: there a model's files are links to blobs beside all
    its revisions (snapshots/REVISION/NAME to blobs/HASH).
    """
    path, home = directory / name, directory.resolve()
    target = path.resolve()
    if target.parent not in (home, home.parent.parent / "blobs"):
        raise CheckpointError(f"{path} is a link out of its directory, to {target}")
    return path


def _read_params(
    tensors: list[Stored],
    family: Family,
    config: models.Config,
    spec: Any,
    mapped: bool,
    quantize: str | None,
    where: str,
) -> Any:
    """The tree; nothing is allocated before every tensor is known to be there and to fit."""
    wanted = {
        name: (leaf, family.tensors(name, leaf), family.published(name))
        for name, leaf in named_leaves(spec)
    }
    places = {part: name for name, (_, parts, _) in wanted.items() for part in parts}
    stored_as = _matched(tensors, family, config, places, where)
    found: dict[str, Any] = {}
    for leaf, parts, published in wanted.values():
        shape = leaf.shape if parts == [published] else leaf.shape[:0:-1]
        for part in parts:
            _check(stored_as[part], shape, where)
    maps = {path: map_file(path) for path in {t.path for t in tensors}} if mapped else {}
    linear = {f"{name}.weight" for name in targeted(config, ALL_LINEAR)}
    for name, (leaf, parts, published) in wanted.items():
        tensor = stored_as[parts[0]]
        if quantize and (name in linear or parts != [published]):
            experts = len(parts) if parts != [published] else None
            found[name] = _quantised([stored_as[p] for p in parts], leaf.dtype, quantize, experts)
            continue
        if parts == [published] and tensor.path in maps and tensor.dtype == leaf.dtype:
            found[name] = jnp.asarray(tensor.within(maps[tensor.path]), copy=False)
            continue
        if parts == [published]:
            found[name] = _read(tensor, leaf.dtype)
            continue
        stacked = np.empty(leaf.shape, jnp.dtype(leaf.dtype))
        for number, part in enumerate(parts):
            stacked[number] = np.asarray(stored_as[part].read()).T
        found[name] = jnp.asarray(stacked, copy=False)
    if not mapped:
        scales = {name: leaf.scales for name, leaf in found.items() if is_quantized(leaf)}
        warn_if_not_finite({**found, **scales}, where)
    return from_named(spec, found)


LARGE = 1 << 26
"""Bytes of a tensor from which on it is read in parts: a vocabulary's table is half a gigabyte."""


def _read(tensor: Stored, dtype: str) -> Any:
    """A tensor of a file in this dtype."""
    if tensor.dtype == dtype or not tensor.shape or tensor.size <= LARGE:
        return jnp.asarray(tensor.read(), dtype)
    step = max(PART * tensor.shape[0] // math.prod(tensor.shape), 1)
    read = _rows_of(tensor, dtype)
    [whole] = from_rows(lambda start, stop: [read(start, stop)], tensor.shape[0], step)
    return whole


def _quantised(tensors: list[Stored], dtype: str, format: str, experts: int | None) -> Quantized:
    """A matrix of a file, or those of so many experts, in few bits."""
    rows, columns = tensors[0].shape

    def read(start: int, stop: int) -> Any:
        """Rows of the matrices, one below the other: also of two that meet there."""
        found = []
        while start < stop:
            which, first = divmod(start, rows)
            last = min(first + stop - start, rows)
            found.append(_rows_of(tensors[which], dtype)(first, last))
            start += last - first
        return found[0] if len(found) == 1 else jnp.concatenate(found)

    kept = quantized_by_rows(read, rows * len(tensors), columns, format)
    return kept if experts is None else stacked(kept, experts)


def _rows_of(tensor: Stored, dtype: str) -> Callable[[int, int], Any]:
    """What reads some rows of a tensor, which are gone with their last reader."""
    return lambda start, stop: jnp.asarray(tensor.read(start, stop), dtype)


def _matched(
    tensors: list[Stored],
    family: Family,
    config: models.Config,
    places: dict[str, str],
    where: str,
) -> dict[str, Stored]:
    """The stored tensors by their published names; CheckpointError unless each of `places` is
    there once, and nothing else."""
    found: dict[str, Stored] = {}
    table, head = family.published("embed.token"), family.published("head.weight")
    heads = [tensor for tensor in tensors if config.tied and tensor.name == head]
    for tensor in tensors:
        what = f"{where}: the tensor {shown(tensor.name)}"
        part = tensor.name if tensor.name in places else family.stem + tensor.name
        if part not in places:
            if DERIVED.fullmatch(tensor.name) or tensor in heads:
                continue
            raise CheckpointError(f"{what} has no place in this model")
        if part in found:
            raise CheckpointError(f"{what} is the second one for {part}; which one is meant?")
        found[part] = tensor
    for tensor in heads:
        found.setdefault(table, tensor)  # some files hold the one matrix under the head's name
    require_all(found, places, where)
    return found


def _check(tensor: Stored, shape: tuple[int, ...], where: str) -> None:
    """CheckpointError for a tensor that is not one of floats, or not of this shape."""
    what = f"{where}: the tensor {shown(tensor.name)}"
    if tensor.dtype not in FLOATS:
        raise CheckpointError(f"{what} is {tensor.dtype}; weights are one of {FLOATS}")
    check_shape(tensor.shape, shape, what)


def _dtypes(tensors: list[Stored]) -> dict[str, list[Stored]]:
    """The tensors that are weights by their dtypes, those of most bytes first."""
    found: dict[str, list[Stored]] = {}
    for tensor in tensors:
        if tensor.dtype in FLOATS and not DERIVED.fullmatch(tensor.name):
            found.setdefault(tensor.dtype, []).append(tensor)
    return dict(sorted(found.items(), key=lambda item: -sum(t.size for t in item[1])))


def _stored_dtype(tensors: list[Stored], said: Any, where: str) -> str:
    """The dtype of all tensors that are weights. Of several it is `said`, what the configuration
    says, where that is one of them, else the one of most bytes."""
    seen = _dtypes(tensors)
    if not seen:
        raise CheckpointError(f"{where} holds no tensors of {FLOATS}")
    [dtype, *_] = [name for name in (said, *seen) if name in list(seen)]  # said is anything
    if "float64" in seen:
        raise CheckpointError(f"{where} holds float64 weights; choose one of {DTYPES}")
    return dtype


def _warn_of_several(tensors: list[Stored], dtype: str, where: str) -> None:
    """A DamageWarning where weights have several dtypes, which become one."""
    if len(seen := _dtypes(tensors)) > 1:
        several = ", ".join(f"{shown(found[0].name)} {name}" for name, found in seen.items())
        warnings.warn(
            f"{where} holds weights of several dtypes: {several}; all become {dtype}, unless "
            "another dtype is asked for",
            DamageWarning,
            stacklevel=4,
        )


def _file_name(value: Any) -> str:
    """The name of a file in the same directory."""
    if type(value) is not str or not re.fullmatch(r"\w[\w.-]{,199}", value, re.ASCII):
        raise Mismatch(f"must name a file beside it, got {shown(value)}")
    return value


INDEX = record({"weight_map": mapping(_file_name)}, others=anything)


def weight_files(directory: str | Path) -> list[Path]:
    """The safetensors files of a directory, from its index where it is sharded. CheckpointError
    where there are none."""
    directory = Path(directory)
    single, index = _inside(directory, WEIGHTS), _inside(directory, INDEX_FILE)
    if single.is_file():
        return [single]
    if index.is_file():
        names = set(read(index, INDEX, CheckpointError)["weight_map"].values())
        if not names:
            raise CheckpointError(f"{index} names no files")
        return [_inside(directory, name) for name in sorted(names)]
    pickles = sorted(p.name for p in directory.glob("*") if p.suffix in (".bin", ".pt", ".pth"))
    if pickles:
        raise CheckpointError(
            f"{directory} has its weights in {pickles[0]}, a pickle, which can run any code when "
            "it is read; convert it where it comes from (save_pretrained writes safetensors)"
        )
    raise CheckpointError(f"{single} is missing")


MAX_SHARD_SIZE = "50GB"
"""As in transformers 5."""


def write_model(
    directory: str | Path,
    config: models.Config,
    params: Any,
    max_shard_size: int | str = MAX_SHARD_SIZE,
    generation: Generation = NO_SETTINGS,
) -> None:
    """Write config.json, generation_config.json and the weights, under published names.

    Weights of more than `max_shard_size` bytes are split over several files, with an index. A
    process that is killed leaves the model that was there or the new one; where configurations
    differ it may also leave weights without a config.json, but never with that of others. Other
    files of the directory stay. generation: what `read_generation` gave, with settings that a
    configuration does not have (temperature, top_p); none: those of the directory stay, but for
    what is ids of tokens. Raises ConfigError for a size that is none, CheckpointError where the
    tree is not the one of the configuration, where the family has no published form of it, and
    where the disk fails.
    """
    directory = Path(directory)
    family, most = family_of(config), shard_bytes(max_shard_size)
    try:
        values = _written_config(family, config, params)
        values[GENERATION] |= _kept_generation(directory, generation)
        _require_expressed(family, config, values[CONFIG], str(directory / CONFIG))
        tensors = dict(_published(family, config, params, str(directory)))
        texts = {name: json.dumps(content, indent=2) + "\n" for name, content in values.items()}
        for path in (p for name in texts for p in abandoned(directory, name)):
            path.unlink(missing_ok=True)
        before = _shards_there(directory)
        with ExitStack() as written:  # which get their names last: config.json after all others
            for name, text in texts.items():
                temporary = written.enter_context(replacing(directory / name))
                temporary.write_text(text, "utf-8")
            _write_weights(directory, _parts(tensors, most), before, _says(directory, texts))
        _remove(directory, before)
    except ConfigError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"could not save the model in {directory}: {error}") from error


def shard_bytes(size: int | str) -> int:
    """The bytes of "5GB" or "200 MiB"; ConfigError for what is no size."""
    try:
        return parse_bytes(size, "max_shard_size")
    except BadArgument as error:
        raise ConfigError(
            "max_shard_size must be a number of bytes (at least 1) or a text such as '5GB', "
            f"got {shown(size)}"
        ) from error


def _parts(tensors: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """The tensors of each file, in their order: a file is full where the next tensor would take it
    beyond `most` bytes; a larger one has a file of its own."""
    parts: list[dict[str, Any]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if parts[-1] and size + tensor.nbytes > most:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    return parts


def _says(directory: Path, texts: dict[str, str]) -> bool:
    """Whether these files of a directory hold these texts."""
    paths = {directory / name: text for name, text in texts.items()}
    return all(p.is_file() and p.read_bytes() == text.encode() for p, text in paths.items())


def _write_weights(
    directory: Path, parts: list[dict[str, Any]], before: set[str], same: bool
) -> None:
    """Write the weights beside those that are there, and then put them in their place at once.

    Shards get names that no file has (before: the shards that are there), until one change of names
    tells which weights are the directory's: of their index or, where readers prefer it to an index,
    of the single file. Unless the configuration stays the same it is withdrawn before that change.
    A process that is killed leaves files that the next save removes.
    """
    for path in abandoned(directory, "model*.safetensors*"):
        path.unlink(missing_ok=True)
    ready = nullcontext() if same else withdrawn(directory / CONFIG)
    if len(parts) == 1:
        with ExitStack() as changed, replacing(directory / WEIGHTS) as temporary:
            write_tree(temporary, parts[0], {"format": "pt"})
            changed.enter_context(ready)
        (directory / INDEX_FILE).unlink(missing_ok=True)
        return
    shards = dict(zip(_free_names(before, len(parts)), parts, strict=True))
    with ExitStack() as changed:
        try:
            for name, tensors in shards.items():
                with replacing(directory / name) as temporary:
                    write_tree(temporary, tensors, {"format": "pt"})
            with replacing(directory / INDEX_FILE) as temporary:
                temporary.write_text(json.dumps(_index(shards), indent=2) + "\n", "utf-8")
                changed.enter_context(ready)
        except BaseException:
            _remove(directory, shards.keys())
            raise
        _remove(directory, [WEIGHTS])


def _free_names(taken: set[str], count: int) -> list[str]:
    """Names for so many shards: those of transformers unless one is taken, else with a number."""
    for stem in itertools.chain(["model"], (f"model-{n}" for n in itertools.count(2))):
        names = [f"{stem}-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
        if not taken & set(names):
            return names
    raise AssertionError("there is always a free number")


def _index(shards: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the index of these shards says."""
    places = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    total = sum(x.nbytes for tensors in shards.values() for x in tensors.values())
    return {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}


def _remove(directory: Path, names: Iterable[str]) -> None:
    for name in names:
        (directory / name).unlink(missing_ok=True)


def _shards_there(directory: Path) -> set[str]:
    """The names of files that are parts of a model's weights."""
    found = {path.name for path in directory.glob("model-*.safetensors")}
    return {name for name in found if SHARD.fullmatch(name)}


def _written_config(
    family: Family, config: models.Config, params: Any
) -> dict[str, dict[str, Any]]:
    """The contents of config.json and generation_config.json."""
    dtype = str(params["embed"]["token"].dtype)
    head = {"model_type": family.name, "architectures": [family.architecture]}
    values = {**head, "torch_dtype": dtype, **family.write(config)}
    return {CONFIG: values, GENERATION: {name: values[name] for name in IDS if name in values}}


OF_TOKENS = ("_token_id", "_ids", "_tokens")
"""How settings end that are ids of tokens: bos_token_id, bad_words_ids, suppress_tokens."""


def _kept_generation(directory: Path, generation: Generation) -> dict[str, Any]:
    """The settings to keep beside the ids that the configuration says, or in their place: those
    that were read, but for ends, which are the configuration's `ends`. A model without any keeps
    those of the directory, but for tokens, which may be of another model's vocabulary."""
    if found := generation.values:
        return {name: value for name, value in found.items() if name != "eos_token_id"}
    with suppress(CheckpointError):  # what is damaged is written anew
        found = read_generation(directory).values
    return {name: value for name, value in found.items() if not name.endswith(OF_TOKENS)}


UNPUBLISHED = {"dtype", "products", "activations", "recompute", "offload", "position_std"}
"""Fields that a published configuration does not have: of the arrays, of products, of gradients, of
training."""


def _require_expressed(
    family: Family, config: models.Config, values: dict[str, Any], where: str
) -> None:
    """CheckpointError where a field of the configuration would not come back. Of scaled rotary
    positions a longer context may: it only says how long texts may be."""
    checked = check(values, family.schema, where, CheckpointError)
    again = family.read(checked, config.dtype)
    for name in [f.name for f in fields(config)]:
        wanted, found = getattr(config, name), getattr(again, name, None)
        longer = name == "context" and found is not None and found > wanted
        if name not in UNPUBLISHED and found != wanted and not longer:
            raise CheckpointError(
                f"{where}: a published {family.name} cannot say that {name} is "
                f"{shown(wanted)}; it would be read as {shown(found)}"
            )


def _published(
    family: Family, config: models.Config, params: Any, where: str
) -> Iterator[tuple[str, Any]]:
    """The leaves by their published names, each of the shape that its configuration says."""
    wanted = dict(named_leaves(models.family(config).spec(config)))
    found = dict(named_leaves(params))
    for name in found:
        if name not in wanted:
            hint = (
                "; merge adapters before you save" if ".lora." in name or ".rows." in name else ""
            )
            if name.endswith(".weight.codes"):
                hint = "; a quantised model has no published form: save its adapters"
            raise CheckpointError(f"{where}: {shown(name)} is no parameter of this model{hint}")
    require_all(found, wanted, where)
    for name, leaf in found.items():
        if str(leaf.dtype) not in FLOATS:
            raise CheckpointError(f"{where}: {name} is {leaf.dtype}; weights are one of {FLOATS}")
        check_shape(tuple(leaf.shape), wanted[name].shape, f"{where}: {name}")
        parts = family.tensors(name, wanted[name])
        if parts == [family.published(name)]:
            yield parts[0], leaf
            continue
        for number, part in enumerate(parts):
            yield part, np.asarray(leaf)[number].T
