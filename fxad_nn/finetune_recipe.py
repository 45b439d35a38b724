"""What can be chosen about fine-tuning, and the choices that go with adapters or without.

options = finetune_recipe(model=Path("Llama-3.2-1B"), data=Path("chat.jsonl"), lora=16)
options = finetune_recipe(resume=Path("runs/Llama-3.2-1B-1"))       # all as it was
"""

# ruff: noqa: RUF009 - option() makes dataclass fields, not shared default objects
from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fxad_nn.chat_data import FORMATS
from fxad_nn.chat_examples import TOO_LONG
from fxad_nn.errors import ConfigError
from fxad_nn.hf import MAX_SHARD_SIZE
from fxad_nn.lora import ALL_LINEAR, Lora
from fxad_nn.options import build, option
from fxad_nn.precision import PRECISIONS
from fxad_nn.quantized import KINDS
from fxad_nn.recipe import RunOptions, is_size
from fxad_nn.saved_options import changed_options

SAVES = ("both", "merged", "adapter")
LONGEST = 2048
"""The context, where none is chosen: models of today allow more than fits in most memories."""

FIXED = (
    *("model", "lora", "alpha", "targets", "rslora", "quantize", "dpo", "new_tokens"),
    *("data", "eval_data", "eval_share", "eval_examples", "seed", "format"),
    *("context", "too_long", "pack"),
    *("optimizer", "average", "skip_outliers", "dtype", "epochs", "memory", "micro_batches"),
)
"""Options that say what a checkpoint holds or was trained on, and so cannot change when its run
goes on."""

MOVABLE = ("model", "data", "eval_data")
"""Of these the paths: a checkpoint has digests of what lies there."""


@dataclass(frozen=True)
class FinetuneOptions(RunOptions):
    """One fine-tuning run. With `resume` as `fxad_nn.recipe.TrainOptions`."""

    command: ClassVar[str] = "finetune"

    model: Path | None = option(None, "directory of a Hugging Face model")
    data: Path | None = option(None, "conversations: JSONL, or a JSON array")
    format: str = option("auto", "of the conversations (default: by the first one)", FORMATS)
    eval_data: Path | None = option(None, "conversations to validate on")
    eval_share: float = option(
        0.05, "share of --data to validate on, without --eval-data (0: none)"
    )
    eval_examples: int = option(256, "validate on at most so many examples")
    sample_prompts: Path | None = option(
        None, "text whose lines are asked every --sample-every steps (default: from the examples)"
    )
    too_long: str = option("truncate", "what becomes of examples beyond --context", TOO_LONG)
    pack: bool = option(True, "examples share rows; each sees only itself (not with --dpo)")
    lora: int | None = option(None, "rank of adapters (default: all parameters are trained)")
    alpha: float | None = option(None, "what adapters are scaled by (default: twice the rank)")
    new_tokens: tuple[str, ...] = option(
        (), "special tokens to add, with embeddings that are trained, such as '<|im_end|>'"
    )
    targets: str = option(ALL_LINEAR, "modules that get adapters, such as q_proj,v_proj")
    rslora: bool = option(False, "scale adapters by alpha / sqrt(rank) instead of alpha / rank")
    dropout: float = option(0.0, "of the adapters' inputs")
    residual_dropout: float = option(0.0, "of embedded tokens and of what each layer adds")
    quantize: str | None = option(
        None, "keep the frozen matrices in 4 or 8 bits (default: as stored)", KINDS
    )
    dpo: bool = option(False, "learn to prefer the chosen answer to the rejected one")
    beta: float = option(0.1, "DPO: how strongly the model is held to where it began")
    epochs: float = option(1.0, "how often the examples are gone over, without --steps")
    save: str = option("both", "what is saved in the end (default with --quantize: adapter)", SAVES)
    max_shard_size: str = option(MAX_SHARD_SIZE, "size of a file of merged weights at most")

    steps: int = option(0, "optimizer steps in all (0: as many as --epochs takes)")
    batch: int = option(4, "examples per batch (packed: on average)")
    context: int | None = option(None, f"tokens per example (default: at most {LONGEST})")
    dtype: str | None = option(
        None,
        "of the factors of products; mixed: bfloat16 activations, too (default: as stored)",
        PRECISIONS,
        also="--precision",
    )
    learning_rate: float = option(1e-5, "peak learning rate (default with --lora: 0.0002)")
    final_rate: float = option(0.0, "learning rate at the last step")
    warmup: int = option(-1, "steps over which it rises (-1: a twentieth of all)")
    beta2: float = option(0.999, "AdamW: decay of the gradient's square")
    weight_decay: float = option(0.0, "AdamW: decoupled decay of matrices")
    eval_every: int = option(100, "steps between validations (0: never)")
    best: bool = option(True, "keep the checkpoint of the lowest validation loss, and save that")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_at_least("eval_examples", 1)
        self._require("eval_share", 0 <= self.eval_share < 1, "0 or more, and below 1")
        self._require("max_shard_size", is_size(self.max_shard_size), "a size such as 5GB or 500MB")
        self._require("residual_dropout", 0 <= self.residual_dropout < 1, "in [0, 1)")
        for name in ("epochs", "beta"):
            self._require(name, getattr(self, name) > 0, "a positive number")
        distinct = len(set(self.new_tokens)) == len(self.new_tokens) and all(self.new_tokens)
        self._require("new_tokens", distinct, "different texts")
        if self.dpo:
            self._require("z_loss", not self.z_loss, "left out with `dpo`")
            smooth = "below 0.5 with `dpo`: the share of pairs whose labels are wrong"
            self._require("label_smoothing", self.label_smoothing < 0.5, smooth)
        if self.lora is None:
            for name in ("alpha", "rslora", "dropout"):
                self._require(name, not getattr(self, name), "left out without `lora`")
            self._require("targets", self.targets == ALL_LINEAR, "left out without `lora`")
            trained = "left out without `lora`: what is quantised is not trained"
            self._require("quantize", self.quantize is None, trained)
            self._require("save", self.save != "adapter", "merged without `lora`")
        else:
            self.adapters()  # whether its numbers can be

    def _counts(self) -> dict[str, int]:
        return {**super()._counts(), "steps": 0, "warmup": -1}

    def adapters(self) -> Lora:
        """The adapters to train. ConfigError without a rank."""
        if self.lora is None:
            raise ConfigError("adapters need a rank: `lora=16`")
        names = tuple(name.strip() for name in self.targets.split(",") if name.strip())
        targets = ALL_LINEAR if names == (ALL_LINEAR,) else names
        alpha = 2.0 * self.lora if self.alpha is None else self.alpha
        return Lora(self.lora, alpha, targets, self.rslora, self.dropout)


def finetune_recipe(**given: Any) -> FinetuneOptions:
    """The options for a run: what was given, else what suits adapters, else the defaults.

    With `resume` they are those of the run in that directory, with what was given changed. Raises
    ConfigError for options that contradict each other, and for a change that the checkpoint does
    not allow.
    """
    if given.get("resume") is not None:
        return resumed_finetune(given.pop("resume"), **given)
    for name, other in (("epochs", "steps"), ("eval_share", "eval_data")):
        if name in given and given.get(other):
            raise ConfigError(f"`{name}` has no meaning beside `{other}`: leave one out")
    if given.get("sample_prompts") and not given.get("sample_every"):
        raise ConfigError("`sample_prompts` has no meaning without `sample_every`")
    if given.get("pack") and given.get("dpo"):
        raise ConfigError("`pack` has no meaning beside `dpo`: pairs are compared row by row")
    if "beta" in given and not given.get("dpo"):
        raise ConfigError("`beta` has no meaning without `dpo`")
    habits: dict[str, Any] = {"learning_rate": 2e-4} if given.get("lora") is not None else {}
    if given.get("quantize") is not None:
        # Merging takes the whole model's memory; what blocks keep would be most of what is left.
        habits |= {"save": "adapter", "recompute": not given.get("offload", False)}
    if given.get("dpo") and given.get("lora") is None:
        habits["learning_rate"] = 1e-6
    return build(FinetuneOptions, {**habits, **given}, "options")


def resumed_finetune(directory: str | Path, **changes: Any) -> FinetuneOptions:
    """The options that a run was saved with, with some changed. ConfigError where steps or warm-up
    would follow from the data again: they were settled when the run began."""
    for name, least in (("steps", 1), ("warmup", 0)):
        if changes.get(name, least) < least:
            raise ConfigError(f"`{name}` of a resumed run must be at least {least}")
    before = {"pack": False}
    return changed_options(directory, FinetuneOptions, FIXED, changes, before, MOVABLE)
