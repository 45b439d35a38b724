"""A model as one value: its parameters and its configuration.

    model = fxad_nn.load("Llama-3.2-1B")        # a directory from Hugging Face
    logits = model(tokens)                      # [batch, time] -> [batch, time, vocab]
    fxad_nn.save(model, "out")                  # loads in transformers with equal logits

A `Model` is a pytree whose children are the parameters; its configuration is static and hashable,
so that it can be an argument of compiled and differentiated functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import hf, models
from fxad_nn.vocabulary import require_ids


@partial(fxad.tree.register_dataclass, data_fields=["params"], meta_fields=["config"])
@dataclass(frozen=True)
class Model:
    """Parameters, a tree of arrays, and the configuration they belong to."""

    params: Any
    config: models.Config

    def __call__(self, tokens: Any) -> Any:
        """Logits [batch, time, vocab] of tokens [batch, time] int, time <= context.

        Compiled at the first call for each shape. Raises ConfigError where tokens do not fit the
        context, DataError for ids outside the vocabulary where they are known.
        """
        if isinstance(tokens, np.ndarray | list | tuple):
            require_ids(tokens, self.config.vocab, "tokens")
            tokens = np.asarray(tokens, np.int32)
        return _logits(self, tokens)


@fxad.jit
def _logits(model: Model, tokens: Any) -> Any:
    return models.family(model.config).forward(model.params, tokens, model.config)


def load(directory: str | Path, dtype: str | None = None) -> Model:
    """The model in a directory that Hugging Face, or `save`, wrote.

    Reads config.json, generation_config.json and safetensors, one file or several. Weights keep
    the dtype they are stored in; `dtype` ("float32", "bfloat16" or "float16") converts them.
    Leaves have the published layout. Raises CheckpointError naming the file, and the field or
    tensor, that is missing, damaged or not supported.
    """
    config, params = hf.read_model(Path(directory), dtype)
    return Model(params, config)


def save(model: Model, directory: str | Path) -> None:
    """Write config.json, generation_config.json and model.safetensors, as transformers reads them.

    The directory is made where it is missing; other files in it, such as a tokenizer's, stay.
    Raises CheckpointError where the model has no published form, holds parameters of no place in
    it, such as adapters, or where the disk fails.
    """
    hf.write_model(Path(directory), model.config, model.params)
