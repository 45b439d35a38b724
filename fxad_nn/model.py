"""A model as one value: its parameters and its configuration.

    model = fxad_nn.load("Llama-3.2-1B")        # a directory from Hugging Face
    logits = model(tokens)                      # [batch, time] -> [batch, time, vocab]
    fxad_nn.save(model, "out")                  # loads in transformers with equal logits

A `Model` is a pytree whose children are the parameters; its configuration is static and hashable,
so that it can be an argument of compiled and differentiated functions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import hf, models
from fxad_nn.errors import CheckpointError, ConfigError, DataError
from fxad_nn.quantized import is_quantized
from fxad_nn.vocabulary import require_ids, require_integers, require_tokens

ADAPTERS, STATE = "adapter_config.json", "state.json"
"""What is in directories of adapters, and of checkpoints of a run (`fxad_nn.store`)."""


@partial(fxad.tree.register_dataclass, data_fields=["params"], meta_fields=["config", "generation"])
@dataclass(frozen=True)
class Model:
    """Parameters, a tree of arrays, and the configuration they belong to.

    generation: the settings of generation_config.json, for `save` to write them again. To compiled
    functions and to `fxad.tree` those of all models are equal: of several models that they take or
    give, which one's settings a result has is not said. `Model(params, config)` has none.

    >>> import fxad_nn
    >>> from fxad_nn import models, spec
    >>> config = models.preset("llama-tiny", vocab=10)
    >>> params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    >>> fxad_nn.Model(params, config)([[1, 2, 3]]).shape
    (1, 3, 10)
    """

    params: Any
    config: models.Config
    generation: hf.Generation = hf.NO_SETTINGS

    def __post_init__(self) -> None:
        if not isinstance(self.config, models.Config):
            raise ConfigError(
                "the configuration of a model must be one, such as "
                f"fxad_nn.models.preset('tiny'); got {_named(self.config)}"
            )
        if not isinstance(self.generation, hf.Generation):
            raise ConfigError(
                "a model's settings of generation must be those of a model that was loaded, or "
                f"left out: Model(params, config); got {_named(self.generation)}"
            )

    def __call__(self, tokens: Any, segments: Any = None) -> Any:
        """Logits [batch, time, vocab] of tokens [batch, time] int, time <= context.

        segments: int [batch, time], the numbers of the documents that share a row, one after
        another: each is as it would be alone.

        Compiled at the first call for each shape. Raises ConfigError where tokens do not fit the
        context, or documents cannot share rows of this length, DataError for no tokens, for tokens
        or segments of another shape and, where they are known, for ids outside the vocabulary.
        """
        if isinstance(tokens, np.ndarray | list | tuple):
            require_ids(tokens, self.config.vocab, "tokens")
            tokens = np.asarray(tokens, np.int32)
        require_tokens(tokens)
        if 0 in tokens.shape:
            raise DataError(
                f"tokens {list(tokens.shape)} hold none: a text needs at least one token"
            )
        if isinstance(segments, np.ndarray | list | tuple):
            segments = _document_numbers(segments)
        if segments is not None:
            require_integers(segments, "segments", "numbers of documents")
        if segments is not None and segments.shape != tokens.shape:
            raise DataError(
                f"segments are numbers of documents, one for each token {list(tokens.shape)}, got "
                f"{list(segments.shape)}"
            )
        return _logits(self, tokens, segments)

    def __repr__(self) -> str:
        found = fxad.tree.leaves(self.params, is_leaf=is_quantized)
        leaves = [leaf for leaf in found if hasattr(leaf, "dtype")]
        count = sum(int(leaf.size) for leaf in leaves)
        kept = {str(leaf.format if is_quantized(leaf) else leaf.dtype) for leaf in leaves}
        dtypes = "/".join(sorted(kept))
        return f"Model({count:,} parameters, {dtypes}; {_brief(self.config)})"


def _document_numbers(segments: Any) -> np.ndarray:
    """Segments as an array of int32; DataError where they have no form, or are no such numbers."""
    try:
        found = np.asarray(segments)
    except ValueError as error:
        raise DataError("segments must be rows of one length, which these are not") from error
    require_integers(found, "segments", "numbers of documents")
    most = np.iinfo(np.int32).max
    if found.size and not 0 <= int(found.min()) <= int(found.max()) <= most:
        raise DataError(
            f"segments number documents from 0 to {most}, got {found.min()} to {found.max()}"
        )
    return found.astype(np.int32)


def _named(value: Any) -> str:
    """A value that is none of those it should be, in short."""
    return repr(value) if isinstance(value, str | None) else f"a {type(value).__name__}"


def _brief(config: models.Config) -> str:
    """The configuration's fields that are not as they are by default."""
    changed = [
        f"{field.name}={getattr(config, field.name)!r}"
        for field in fields(config)
        if getattr(config, field.name) != field.default
    ]
    return f"Config({', '.join(changed)})"


@fxad.jit
def _logits(model: Model, tokens: Any, segments: Any) -> Any:
    return models.family(model.config).forward(model.params, tokens, model.config, segments)


def load(
    directory: str | Path,
    dtype: Any = None,
    mapped: bool = False,
    quantize: str | None = None,
) -> Model:
    """The model in a directory that Hugging Face, or `save`, wrote.

    Reads config.json, generation_config.json and safetensors, one file or several. Weights keep
    the dtype they are stored in; `dtype` ("float32", "bfloat16" or "float16", also as
    `fxad.numpy.bfloat16` or "bf16") converts them. Leaves have the published layout.

    mapped: weights of the stored dtype borrow the memory of their mapped files: nothing is read
    before it is used, and processes share it. Donated ones are copied first. The files must then
    stay as they are: one that is cut ends the process, and NaN is not warned of.

    quantize: "nf4" or "int8" keeps the matrices of linear layers and experts, but not the head's or
    a router's, in 4 or 8 bits, as `fxad_nn.quantized.Quantized`: frozen, for adapters and for
    generation. Some rows of a matrix at a time are read and quantised.

    Raises CheckpointError naming the file, and the field or tensor, that is missing, damaged or not
    supported, and for a dtype that weights cannot have.

    >>> import fxad_nn
    >>> fxad_nn.load("no-such-model")
    Traceback (most recent call last):
        ...
    fxad_nn.errors.CheckpointError: ...no-such-model...
    """
    directory = Path(directory)
    if directory.is_dir() and not (directory / hf.CONFIG).is_file():
        _refuse(directory)
    config, params = hf.read_model(directory, dtype, mapped, quantize)
    return Model(params, config, hf.read_generation(directory))


def _refuse(directory: Path) -> None:
    """CheckpointError for a directory without a model: what it holds instead, if that is known."""
    what = f"{directory / hf.CONFIG} is missing"
    if inside := sorted(directory.glob(f"*/{hf.CONFIG}")):
        raise CheckpointError(f"{what}; there is a model in {inside[0].parent}")
    if inside := [*directory.glob(ADAPTERS), *sorted(directory.glob(f"*/{ADAPTERS}"))]:
        raise CheckpointError(
            f"{what}; in {inside[0].parent} there are adapters, which "
            "fxad_nn.adapters.load_adapters puts beside the weights of their model"
        )
    if [*directory.glob(STATE), *directory.glob(f"*/{STATE}")]:
        name = repr(str(directory))
        raise CheckpointError(
            f"{what}; this is a run, which goes on with `resume={name}`, and of one of train "
            f"fxad_nn.store.load({name}, optimizer=None) reads the parameters"
        )


def save(
    model: Model, directory: str | Path, max_shard_size: int | str = hf.MAX_SHARD_SIZE
) -> None:
    """Write config.json, generation_config.json and model.safetensors, as transformers reads them.

    Weights of more than `max_shard_size`, bytes or a text such as "5GB", are split over several
    files with an index. Settings of generation stay as they were read, such as a temperature; for
    a model that has none, those of the directory stay, but for ids of tokens. The directory is made
    where it is missing; other files in it, such as a tokenizer's, stay.

    Raises ConfigError for what is no model or no size, CheckpointError where the model has no
    published form, holds integers, or parameters of no place in it, such as adapters, or the disk
    fails.

    >>> import fxad_nn, tempfile
    >>> from fxad_nn import models, spec
    >>> config = models.preset("llama-tiny", vocab=10)
    >>> params = spec.init_params(models.family(config).spec(config), fxad.random.key(0))
    >>> directory = tempfile.mkdtemp()
    >>> fxad_nn.save(fxad_nn.Model(params, config), directory)
    >>> again = fxad_nn.load(directory)
    >>> bool((again([[1, 2]]) == fxad_nn.Model(params, config)([[1, 2]])).all())
    True
    """
    if not isinstance(model, Model):
        raise ConfigError(
            "save takes a model and a directory, save(Model(params, config), 'out'); the model is "
            f"{_named(model)}"
        )
    what = model.config, model.params, max_shard_size, model.generation
    hf.write_model(Path(directory), *what)
