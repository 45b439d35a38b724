"""Fine-tuning as a function: a model's directory and conversations in, a model that loads out.

    options = finetune_recipe(model=Path("Llama-3.2-1B"), data=Path("chat.jsonl"), lora=16)
    tuned = finetune(options)
    print(tuned.result.val_loss, tuned.saved)       # [runs/.../adapter, runs/.../merged]

A run is one of `fxad_nn.train` whose task is `fxad_nn.tuning`: it is resumed exactly, keeps its
best checkpoint, and its checkpoints hold what is trained. What is saved in the end loads in
transformers and in PEFT.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import fxad
from fxad.core.schema import canonical, read, read_bytes
from fxad_nn import chat_template, hf, models, store
from fxad_nn.adapters import save_adapters
from fxad_nn.chat_data import read_conversations
from fxad_nn.chat_examples import Counts, Encoder, Example, Pair, encoded
from fxad_nn.errors import CheckpointError, ConfigError, DataError
from fxad_nn.files import replacing, written
from fxad_nn.finetune_recipe import LONGEST, FinetuneOptions
from fxad_nn.listener import Listener
from fxad_nn.lora import (
    Rounding,
    adapter_specs,
    adapters_of,
    add_lora,
    merge_lora,
    trainable,
    with_adapters,
    without_adapters,
)
from fxad_nn.model import Model, load
from fxad_nn.model import save as save_model
from fxad_nn.optim import averaged
from fxad_nn.precision import products_of
from fxad_nn.quantized import is_quantized
from fxad_nn.recipe import optimizer_of, require_options
from fxad_nn.run import BEST, Run, fitted, new_directory, resumed
from fxad_nn.samples import Prompt
from fxad_nn.subwords import Subwords
from fxad_nn.token_rows import add_rows, resized, row_specs, rows_of, with_rows
from fxad_nn.tokenizer import TOKENIZER, Tokenizer, from_directory
from fxad_nn.tokenizer_config import SETTINGS, TOKENIZER_CONFIG
from fxad_nn.train import Result, carry_out
from fxad_nn.tuning import Corpus, Tuning, asked, split

MOST_PROMPTS = 1 << 20
"""Bytes of a file of prompts."""

ADAPTER, MERGED = "adapter", "merged"
"""What is saved in a run's directory in the end."""


@dataclass(frozen=True)
class Tuned:
    """What fine-tuning left: directories with what was saved, and what merging adapters cost."""

    result: Result
    saved: list[Path]
    rounding: Rounding | None


def finetune(options: FinetuneOptions, listener: Listener | None = None) -> Tuned:
    """Fine-tune, evaluate and save as `options` say; stopped early, nothing but a checkpoint.

    Raises as `fxad_nn.train.train`, and DataError, with file and line, for conversations that
    cannot be read or encoded.
    """
    require_options(options, FinetuneOptions, "finetune_recipe")
    if options.threads is not None:
        fxad.set_num_threads(options.threads)
    result = carry_out(resume(options) if options.resume else begin(options), listener)
    if result.interrupted:
        return Tuned(result, [], None)
    return Tuned(result, *save_tuned(result.run))


# What a run begins with -------------------------------------------------------------------------


def begin(options: FinetuneOptions) -> Run:
    """A run at step 0."""
    base = _required(options.model, "model")
    if not (base / hf.CONFIG).is_file() and (base / MERGED / hf.CONFIG).is_file():
        raise ConfigError(f"{base} is a run: the model that it made is {base / MERGED}")
    directory = new_directory(options.out, base.name or "tuned")
    if options.dtype is None and hf.read_config(base).dtype == "float16":
        options = replace(options, dtype="float16")  # whose gradients need a scaled loss
    model, trained, frozen = _parts(options)
    digests = _digests(base)
    task = _task(options, model.config, frozen, _reference(options, trained, frozen), digests)
    steps = options.steps or max(round(task.steps_per_epoch * options.epochs), 1)
    warmup = steps // 20 if options.warmup < 0 else options.warmup
    options = replace(options, steps=steps, warmup=warmup)
    state = optimizer_of(options).init(trained)
    return fitted(Run(options, model.config, task, directory, trained, state))


def resume(options: FinetuneOptions) -> Run:
    """The run in the checkpoint `options.resume`, to go on as `options` say."""
    directory = _required(options.resume, "resume")
    saved = store.load(directory, optimizer_of(options), partial(_saved_spec, options))
    model, trained, frozen = _parts(options)
    if model.config != replace(saved.config, recompute=False):
        raise CheckpointError(f"{saved.path} is of another model than {options.model}")
    base = _required(options.model, "model")
    digests = _digests(base)
    _require_unchanged(saved, options, digests)
    task = _task(options, model.config, frozen, _reference(options, trained, frozen), digests)
    if _contents(task.source) != _contents(saved.state["source"]):
        raise DataError(
            f"{saved.path} was trained on {saved.state['source']}; now that is {task.source}"
        )
    return resumed(options, saved, task, options.data)


def _digests(base: Path) -> dict[str, str]:
    """SHA-256 of the files of a model that a checkpoint does not hold, by what they are called."""
    weights = [written(path).sha256 for path in hf.weight_files(base)]
    templates = canonical(chat_template.templates(base))
    return {
        "weights": hashlib.sha256(canonical(weights).encode()).hexdigest(),
        "chat template": hashlib.sha256(templates.encode()).hexdigest(),
    }


def _require_unchanged(
    saved: store.Checkpoint, options: FinetuneOptions, now: dict[str, str]
) -> None:
    """CheckpointError where the model that a run began from is not what it was."""
    base = _required(options.model, "model")
    before = saved.state.get("digests", {})
    changed = [name for name in now if name in before and before[name] != now[name]]
    if saved.tokenizer.to_json() != _tokenizer(options).to_json():
        changed.append("tokenizer")
    if changed:
        raise CheckpointError(
            f"{saved.path} cannot go on: the {' and the '.join(changed)} of {base} changed since "
            "it was saved; put back what was there, or begin a new run"
        )


def _required(path: Path | None, name: str) -> Path:
    if path is None:
        raise ConfigError(f"fine-tuning needs `{name}`")
    return path


def _tokenizer(options: FinetuneOptions) -> Subwords:
    """The tokenizer of the model's directory, with the new tokens."""
    directory = _required(options.model, "model")
    if options.new_tokens and not (directory / TOKENIZER).is_file():
        raise ConfigError(
            f"`new_tokens` needs a {TOKENIZER} in {directory}, which its tokenizer has in another "
            "form: transformers.AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) makes one"
        )
    found = from_directory(directory)
    return found.with_special(options.new_tokens) if options.new_tokens else found


def _token_ids(options: FinetuneOptions) -> list[int]:
    """The ids of the new tokens."""
    tokenizer = _tokenizer(options)
    return [i for token in options.new_tokens if (i := tokenizer.id_of(token)) is not None]


def _loaded(options: FinetuneOptions, mapped: bool = False, quantize: str | None = None) -> Model:
    """The model with rows for the new tokens: of those that its tokenizer knew they stay."""
    directory = _required(options.model, "model")
    model = load(directory, mapped=mapped, quantize=quantize)
    if not options.new_tokens:
        return model
    before, tokenizer = from_directory(directory), _tokenizer(options)
    fresh = [
        i
        for t, i in zip(options.new_tokens, _token_ids(options), strict=True)
        if before.id_of(t) is None
    ]
    known = min(before.size, model.config.vocab)
    return Model(*resized(model.params, model.config, tokenizer.size, known, fresh))


def _parts(options: FinetuneOptions) -> tuple[Model, Any, Any]:
    """A model, and its parameters in two trees: those that are trained and those that are not.

    Without adapters all are trained, in float32; products keep the precision that is stored.
    """
    model = _loaded(options, quantize=options.quantize)
    config = model.config
    if options.lora is not None:
        lora, key = options.adapters(), fxad.random.key(options.seed)
        where = lora.rank, lora.alpha, lora.targets
        params = add_lora(model.params, config, *where, key, lora.rslora)
        if options.new_tokens:
            params = add_rows(params, config, _token_ids(options))
        chosen: Any = trainable(params)
    else:
        params = fxad.tree.map(lambda leaf: leaf.astype("float32"), model.params)
        products = None if config.dtype == "float32" else config.dtype
        config, chosen = replace(config, dtype="float32", products=products), True
    if options.dtype is not None:
        config = replace(config, products=products_of(options.dtype))
    return Model(params, config), *fxad.tree.partition(params, chosen, is_leaf=is_quantized)


def _reference(options: FinetuneOptions, trained: Any, frozen: Any) -> Any:
    """The parameters before training, where the objective needs them."""
    if not options.dpo:
        return None
    if options.lora is not None:
        return without_adapters(frozen)
    return fxad.tree.map(lambda leaf: leaf.copy(), trained)


def _saved_spec(options: FinetuneOptions, config: models.Config) -> Any:
    """The leaves of a checkpoint: those that are trained."""
    spec = models.family(config).spec(config)
    if options.lora is None:
        return spec
    placed = with_adapters(spec, adapter_specs(config, options.adapters()))
    if options.new_tokens:
        placed = with_rows(placed, row_specs(config, len(options.new_tokens)))
    return fxad.tree.partition(placed, trainable(placed))[0]


# Examples ---------------------------------------------------------------------------------------


def _task(
    options: FinetuneOptions,
    config: models.Config,
    frozen: Any,
    reference: Any,
    digests: dict[str, str],
) -> Tuning:
    directory, data = _required(options.model, "model"), _required(options.data, "data")
    tokenizer, context = _tokenizer(options), _context(options, config)
    encoder, counts = _encoder(directory, tokenizer, config), Counts()

    def examples(path: Path) -> list[Example | Pair]:
        items = read_conversations(path, options.format)
        found = list(encoded(items, encoder, context, options.too_long, counts))
        for example in found[:1]:
            _require_kind(example, options, path)
        return found

    train, source = examples(data), _digest(data)
    if options.eval_data is None:
        train, val = split(train, options.eval_share, options.eval_examples, options.seed)
    else:
        val, source = examples(options.eval_data), f"{source} and {_digest(options.eval_data)}"
        val = val[:: -(-len(val) // options.eval_examples) or 1]
    validates = options.eval_data is not None or options.eval_share > 0
    if not train or (validates and not val):
        raise DataError(f"{source}: {counts}: {_too_few(train, val, options)}")
    prompts = []
    if options.sample_every:
        prompts = _prompts(options.sample_prompts, encoder) or asked(val or train, tokenizer)
    corpus = Corpus(train, val, tokenizer, source, counts, digests, prompts)
    return Tuning(options, config, frozen, corpus, reference)


def _too_few(train: Sequence[Any], val: Sequence[Any], options: FinetuneOptions) -> str:
    """Which part of the examples is empty, and what may help."""
    if not train and not val:
        return "there is nothing to train on"
    parts = f"{len(train)} of them to train and {len(val)} to validate on, and each needs one"
    if options.eval_data is not None:
        return f"{parts}: try another `{'data' if val else 'eval_data'}`"
    return (
        f"{parts}: try more data, `eval_data=FILE` to validate on others, or `eval_share=0` to "
        "train without validation"
    )


def _prompts(path: Path | None, encoder: Encoder) -> list[Prompt]:
    """What to ask while a run goes on: the lines of a text. DataError where there are none."""
    if path is None:
        return []
    try:
        text = read_bytes(path, DataError, MOST_PROMPTS).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no UTF-8 text (byte {error.start})") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise DataError(f"{path} holds no prompts: give one on each line")
    prompts = [Prompt(encoder.question(line)) for line in lines]
    if empty := [line for line, prompt in zip(lines, prompts, strict=True) if not prompt.ids]:
        raise DataError(f"{path}: {empty[0]!r} is a prompt of no tokens")
    return prompts


def _context(options: FinetuneOptions, config: models.Config) -> int:
    context = options.context or min(config.context, LONGEST)
    if context > config.context:
        raise ConfigError(f"`context={context}` exceeds the model's {config.context}")
    return context


def _encoder(directory: Path, tokenizer: Tokenizer, config: models.Config) -> Encoder:
    has_template = bool(chat_template.templates(directory))
    template = chat_template.from_directory(directory) if has_template else None
    return Encoder(tokenizer, template, config.vocab)


def _require_kind(example: Example | Pair, options: FinetuneOptions, path: Path) -> None:
    if isinstance(example, Pair) != options.dpo:
        hint = "give `dpo=True` to learn from" if isinstance(example, Pair) else "`dpo` needs"
        raise ConfigError(f"{path}: {hint} pairs of a chosen and a rejected answer")


def _digest(path: Path) -> str:
    """A file's name with what it holds, in short: a changed file is not the same source."""
    with open(path, "rb") as file:
        return f"{path} ({hashlib.file_digest(file, 'sha256').hexdigest()[:12]})"


def _contents(source: str) -> list[str]:
    """The digests in a source, wherever its files are."""
    return re.findall(r" \(([0-9a-f]{12})\)(?= and |$)", source)


def preview(options: FinetuneOptions, count: int) -> Iterator[list[tuple[str, bool]]]:
    """The first examples, each as pieces of text with whether they are trained. DataError where
    there are none."""
    if count < 0:
        raise ConfigError(f"preview: count must be 0 or more, got {count}")
    directory, data = _required(options.model, "model"), _required(options.data, "data")
    config = hf.read_config(directory)
    tokenizer, context = _tokenizer(options), _context(options, config)
    config = replace(config, vocab=max(config.vocab, tokenizer.size))
    encoder = _encoder(directory, tokenizer, config)
    items, counts = read_conversations(data, options.format), Counts()
    for example in islice(encoded(items, encoder, context, options.too_long, counts), count):
        answers = [example] if isinstance(example, Example) else [example.chosen, example.rejected]
        for answer in answers:
            yield _pieces(answer, tokenizer)
    if count and not counts.used:
        raise DataError(f"{data}: {counts}: there is nothing to train on")


def _pieces(example: Example, tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """Runs of tokens of one kind, as text: what was decoded so far shows where each one ends."""
    pieces, shown = [], ""
    changes = [
        i for i in range(1, len(example.ids)) if example.trained[i] != example.trained[i - 1]
    ]
    for start, end in zip([0, *changes], [*changes, len(example.ids)], strict=True):
        text = tokenizer.decode(example.ids[:end])
        pieces.append((text[len(shown) :], bool(example.trained[start])))
        shown = text
    return pieces


# What a run ends with ---------------------------------------------------------------------------


def save_tuned(run: Run) -> tuple[list[Path], Rounding | None]:
    """Save the adapters, the model with them merged, or both, as the options say, of the best
    checkpoint where there is one; the tokenizer's files are copied. Raises CheckpointError."""
    options, task = run.options, run.task
    assert isinstance(options, FinetuneOptions)
    assert isinstance(task, Tuning)
    base = _required(options.model, "model")
    params, saved, rounding = fxad.tree.combine(_best(run), task.frozen), [], None
    if options.lora is not None and options.save in ("both", "adapter"):
        saved.append(run.directory / ADAPTER)
        save_adapters(saved[-1], params, run.config, options.adapters(), str(base.absolute()))
        if options.new_tokens:
            save_tokenizer(base, _tokenizer(options), saved[-1])
    if options.save in ("both", "merged"):
        if options.quantize is not None:
            whole = with_adapters(_loaded(options, mapped=True).params, adapters_of(params))
            params = with_rows(whole, rows_of(params))
        if options.lora is not None:
            params, rounding = merge_lora(params, run.config)
        dtype = hf.read_config(base).dtype
        params = fxad.tree.map(lambda leaf: leaf.astype(dtype), params)
        saved.append(run.directory / MERGED)
        config = replace(run.config, dtype=dtype, products=None)
        model = Model(params, config, hf.read_generation(base))
        save_model(model, saved[-1], options.max_shard_size)
        if options.new_tokens:
            save_tokenizer(base, _tokenizer(options), saved[-1])
        else:
            copy_tokenizer(base, saved[-1])
    return saved, rounding


def _best(run: Run) -> Any:
    """The trained parameters with the lowest validation loss that are there."""
    best, options = run.directory / BEST, run.options
    if not options.best or not store.holds_checkpoint(best):
        return run.weights
    assert isinstance(options, FinetuneOptions)
    # The optimizer's state, twice the parameters, is read only for the average it may hold.
    optimizer = None if options.average is None else optimizer_of(options)
    found = store.load(best, optimizer, partial(_saved_spec, options))
    return found.params if optimizer is None else averaged(found.optimizer, found.params)


TOKENIZER_FILES = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.tiktoken",
    "chat_template*",
    "additional_chat_templates/*.jinja",
)


def copy_tokenizer(source: str | Path, target: str | Path) -> None:
    """Copy a model's tokenizer and chat templates; CheckpointError where the disk fails."""
    source, target = Path(source), Path(target)
    files = {path for pattern in TOKENIZER_FILES for path in source.glob(pattern)}
    try:
        for path in sorted(files):
            if path.is_file():
                with replacing(target / path.relative_to(source)) as temporary:
                    shutil.copyfile(path, temporary)
    except OSError as error:
        raise CheckpointError(
            f"could not copy {source}'s tokenizer to {target}: {error}"
        ) from error


def save_tokenizer(source: str | Path, tokenizer: Subwords, target: str | Path) -> None:
    """Write a tokenizer that was made from the one of the model `source`, with all that stands
    beside that, its chat templates too. CheckpointError where the disk fails."""
    source, target = Path(source), Path(target)
    copy_tokenizer(source, target)
    path = target / TOKENIZER_CONFIG
    try:
        with replacing(target / TOKENIZER) as temporary:
            temporary.write_text(tokenizer.describe(), "utf-8")
        settings = read(path, SETTINGS, DataError) if path.is_file() else {}
        if "added_tokens_decoder" in settings:  # or transformers would not call them special
            found = json.loads(path.read_text("utf-8"))
            found["added_tokens_decoder"] = tokenizer.added() | found["added_tokens_decoder"]
            with replacing(path) as temporary:
                temporary.write_text(json.dumps(found, indent=2, ensure_ascii=False), "utf-8")
    except OSError as error:
        raise CheckpointError(f"could not save the tokenizer in {target}: {error}") from error
