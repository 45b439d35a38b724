"""Open language models as pure functions over trees of parameters: loaded, trained, saved.

    import fxad_nn

    model = fxad_nn.load("Llama-3.2-1B")        # a directory from Hugging Face
    logits = model(tokens)                      # [batch, time] -> [batch, time, vocab]
    fxad_nn.save(model, "out")                  # loads in transformers

model       a model as one value: parameters and configuration
spec        one tree per model: shapes, dtypes, axes, initialisers
layers, rotary, mixture     linear, norms, attention, positions, experts
gpt2, decoder, models, loss the models, and how they are found by name
families    which published families the decoder can be, and how they name things
optim, step                 AdamW, Muon, schedules, one compiled training step
text, tokenizer, vocabulary         from text to ids, and which ids a model knows
subwords, byte_level, sentencepiece_file, tokenizer_config    tokenizers of published models
chat_template, answers      from messages to ids, and which of them are answers
template_process, template_worker    the process that renders a template, within limits
token_file, shards, token_cache, data    from files to batches
files, arrays, tensors, manifest, store, hf checkpoints, and directories of published models
cache, sampling, generate           tokens one by one, with keys and values of earlier ones
recipe, saved_options, run, task, train     a training run: how it goes, whatever it works at
pretraining, evaluate, flops        predicting texts
json_records, chat_data, chat_examples, packing, epochs    from conversations to batches
lora, adapters, objective           what is trained of a model, and towards what
quantized   frozen matrices in 4 or 8 bits
finetune_recipe, tuning, finetune   answering, and preferring one answer to another
listener, signals, directory, losses, keep, plot    what surrounds it: who listens, what it leaves
options, flags, screen, cli the command line
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxad_nn.model import Model, load, save
    from fxad_nn.tensors import read_tree, write_tree

__all__ = ["Model", "load", "read_tree", "save", "write_tree"]


def __getattr__(name: str) -> Any:
    """The names above, loaded when they are first asked for."""
    if name not in __all__:
        known = ", ".join(__all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; known: {known}")
    import importlib

    home = "tensors" if name.endswith("_tree") else "model"
    return getattr(importlib.import_module(f"fxad_nn.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
