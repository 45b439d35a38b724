"""What can be chosen about a training run, and the choices each preset comes with.

options = recipe("gpt2", steps=100, data=Path("input.txt"))
options = recipe(resume=Path("runs/gpt2-1"), steps=200)         # the others as they were
"""

# ruff: noqa: RUF009 - option() makes dataclass fields, not shared default objects
from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import fxad
from fxad.core.sizes import parse_bytes
from fxad_nn import models
from fxad_nn.data import TOKENIZERS
from fxad_nn.errors import ConfigError
from fxad_nn.loss import Penalties
from fxad_nn.loss_scale import with_loss_scale
from fxad_nn.optim import (
    OPTIMIZERS,
    SCHEDULES,
    Optimizer,
    adamw,
    muon,
    schedule,
    skip_outliers,
    with_average,
)
from fxad_nn.options import build, option, require_types
from fxad_nn.precision import PRECISIONS, is_scaled
from fxad_nn.saved_options import changed_options

MOST = 1 << 53
"""Beyond any run there is; larger numbers are not all float64."""

FIXED = (
    *("preset", "bias", "tokenizer", "vocabulary", "weights"),
    *("optimizer", "average", "skip_outliers", "memory", "micro_batches"),
)
"""Options that say what a checkpoint holds, and so cannot change when its run goes on."""

MOST_THREADS = 1024
"""What `fxad.set_num_threads` takes."""


@dataclass(frozen=True)
class RunOptions:
    """What every kind of training run can be told."""

    command: ClassVar[str]

    out: Path | None = option(None, "run directory (default: the first free runs/NAME-N)")
    resume: Path | None = option(None, "continue the run in this directory")
    seed: int = option(4, "seed of the initial parameters and of the batches")
    steps: int = option(2000, "optimizer steps in all")
    batch: int = option(12, "sequences per batch")
    accumulate: int = option(1, "batches per optimizer step, their gradients averaged")
    micro_batches: int = option(1, "parts that a batch is computed in, one after another")
    recompute: bool = option(
        False, "compute each block again for its gradient, to save memory (on with --quantize)"
    )
    offload: bool = option(False, "keep on the disk what blocks keep for their gradient")
    memory: str | int | None = option(
        None, "memory that the process may take, such as 8GiB: chooses the three above"
    )
    context: int | None = option(None, "tokens per sequence (default: the preset's context)")
    dtype: str | None = option(
        "float32",
        "of the factors of matrix products; mixed: bfloat16 activations, too",
        PRECISIONS,
        also="--precision",
    )
    learning_rate: float = option(1e-3, "peak learning rate")
    final_rate: float = option(1e-4, "learning rate at the last step")
    schedule: str = option("cosine", "shape of the learning rate after warm-up", SCHEDULES)
    warmup: int = option(100, "steps over which the learning rate rises")
    optimizer: str = option("adamw", "muon: for the matrices of blocks, AdamW else", OPTIMIZERS)
    average: float | None = option(None, "validate weights averaged with this decay, such as 0.999")
    skip_outliers: float | None = option(
        None, "skip steps whose gradient's norm is so many standard deviations above the usual"
    )
    beta1: float = option(0.9, "AdamW: decay of the gradient's mean")
    beta2: float = option(0.99, "AdamW: decay of the gradient's square")
    weight_decay: float = option(0.1, "AdamW: decoupled decay of matrices")
    clip: float = option(1.0, "largest global norm of the gradient")
    label_smoothing: float = option(0.0, "share of each target that all tokens have alike")
    z_loss: float = option(0.0, "penalty on the softmax's denominator, such as 0.0001")
    log_every: int = option(10, "steps between reports of the loss")
    eval_every: int = option(250, "steps between validations on a sample (0: never)")
    sample_every: int = option(0, "steps between samples of what the model says (0: never)")
    sample_tokens: int = option(64, "tokens of a sample at most")
    save_every: int = option(500, "steps between checkpoints (0: only at the end)")
    background_saves: bool = option(
        False, "write checkpoints while the training goes on, from a copy in memory"
    )
    keep: int = option(1, "newest checkpoints that stay in the run directory")
    best: bool = option(False, "keep the checkpoint of the lowest validation loss, in best")
    events: bool = option(False, "write event files for TensorBoard beside the checkpoints")
    threads: int | None = option(None, "threads (default: the cores this process may use)")
    peak: float | None = option(None, "the machine's peak in GFLOP/s (default: measured)")

    def __post_init__(self) -> None:
        require_types(self)
        for name, value in asdict(self).items():
            if isinstance(value, float):
                self._require(name, math.isfinite(value), "a finite number")
            elif isinstance(value, int):
                self._require(name, value <= MOST, f"at most {MOST}")
        for name, least in self._counts().items():
            self._require_at_least(name, least)
        for name in ("context", "threads"):
            self._require(name, getattr(self, name) is None or getattr(self, name) >= 1, "positive")
        for name in _NOT_NEGATIVE:
            self._require(name, getattr(self, name) >= 0, "0 or more")
        for name in ("learning_rate", "clip"):
            self._require(name, getattr(self, name) > 0, "a positive number")
        for name in ("beta1", "beta2", "average"):
            value = getattr(self, name)
            self._require(name, value is None or 0 <= value < 1, "in [0, 1)")
        self._require("label_smoothing", 0 <= self.label_smoothing < 1, "in [0, 1)")
        parts = f"a divisor of `batch={self.batch}`"
        self._require("micro_batches", self.batch % self.micro_batches == 0, parts)
        self._require("offload", not (self.offload and self.recompute), "left out with `recompute`")
        if self.memory is not None:
            self._require("memory", is_size(self.memory), "a size such as 8GiB or 500MB")
        outliers = self.skip_outliers
        self._require("skip_outliers", outliers is None or outliers > 0, "positive")
        threads = self.threads is None or self.threads <= MOST_THREADS
        self._require("threads", threads, f"at most {MOST_THREADS}")
        self._require("peak", self.peak is None or self.peak > 0, "positive")

    @property
    def penalties(self) -> Penalties:
        """What the loss of a step adds to cross-entropy; validation losses are without."""
        return Penalties(self.label_smoothing, self.z_loss)

    def _counts(self) -> dict[str, int]:
        """The least that may be given for what is counted."""
        return {
            **dict.fromkeys(_COUNTS, 1),
            "warmup": 0,
        }

    def _require_at_least(self, name: str, least: int) -> None:
        self._require(name, getattr(self, name) >= least, f"at least {least}")

    def _require(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise ConfigError(f"`{name}` must be {wanted}, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainOptions(RunOptions):
    """One training run. The defaults are nanoGPT's published recipe for a CPU.

    With `resume` these are all options of the run that goes on; `recipe` takes those that it is not
    given from the checkpoint.
    """

    command: ClassVar[str] = "train"

    preset: str = option("nano", "model preset, such as nano, gpt2 or llama3.2-1b")
    data: Path | None = option(None, "text file, or llm.c .bin token shards (a file or directory)")
    mixture: tuple[str, ...] = option(
        (), "several such sources, each PATH:WEIGHT, in the proportion of the weights"
    )
    tokenizer: str = option("char", "how text becomes tokens", TOKENIZERS)
    vocabulary: Path | None = option(None, "a model's directory with the tokenizer to use")
    weights: Path | None = option(None, "start from a Hugging Face directory instead of a preset")
    bias: bool | None = option(None, "biases in linear layers and norms (default: the preset's)")
    eval_windows: int = option(240, "windows in the sample of a validation")
    eval_batch: int = option(48, "windows evaluated at a time")

    def __post_init__(self) -> None:
        super().__post_init__()
        mixed = "left out beside `data`: name that among its sources"
        self._require("mixture", not (self.mixture and self.data), mixed)
        self._require_at_least("eval_windows", 1)
        self._require_at_least("eval_batch", 1)


def is_size(size: str | int) -> bool:
    """Whether this is a number of bytes, such as 8GiB; a file of options may hold a plain one."""
    try:
        return parse_bytes(size) > 0
    except fxad.errors.BadArgument:
        return False


_COUNTS = ("steps", "batch", "accumulate", "micro_batches", "log_every", "keep", "sample_tokens")

_NOT_NEGATIVE: tuple[str, ...] = ("eval_every", "save_every", "sample_every", "seed")
_NOT_NEGATIVE += ("weight_decay", "final_rate", "z_loss")

_LARGE = {
    "tokenizer": "gpt2",
    "batch": 4,
    "learning_rate": 6e-4,
    "final_rate": 6e-5,
    "warmup": 700,
    "beta2": 0.95,
    "eval_windows": 16,
    "eval_batch": 4,
}
_TINY = {"steps": 50, "warmup": 5, "eval_every": 25, "batch": 8}


def require_options(given: Any, wanted: type[RunOptions], maker: str) -> None:
    """ConfigError for what are no options of a command, such as the name of a preset."""
    if isinstance(given, wanted):
        return
    said, example = f"a {type(given).__name__}", f"{maker}(...)"
    if isinstance(given, str):
        said = repr(given)
        example = f"{maker}({said})" if maker == "recipe" else example
    raise ConfigError(
        f"{wanted.command} takes the options that {maker} makes, {wanted.command}({example}); "
        f"got {said}"
    )


def optimizer_of(o: RunOptions) -> Optimizer:
    """The optimizer that the options describe."""
    rate = schedule(o.schedule, o.learning_rate, o.final_rate, o.warmup, o.steps)
    made = adamw(rate, o.beta1, o.beta2, weight_decay=o.weight_decay)
    if o.optimizer == "muon":
        made = muon(rate, weight_decay=o.weight_decay, match_adamw=True, others=made)
    if o.average is not None:
        made = with_average(made, o.average)
    if o.skip_outliers is not None:
        made = skip_outliers(made, o.skip_outliers)
    return with_loss_scale(made) if is_scaled(o.dtype) else made


_WITH_MODEL = ("preset", "bias", "tokenizer", "vocabulary")
"""Options that say what a directory of weights says itself."""


def recipe(preset: str | None = None, **given: Any) -> TrainOptions:
    """The options for a preset (nano unless given), or for weights: what was given, else the
    preset's habits, else the defaults.

    Two defaults follow from others: the warm-up takes a tenth of the steps at most, and the last
    learning rate is a tenth of one that was given. With `resume` the options are those of the run
    in that directory, with what was given changed. Raises ConfigError for options that contradict
    each other, and for a change that the checkpoint does not allow.
    """
    if preset is not None:
        given["preset"] = preset
    if given.get("resume") is not None:
        return resumed_options(given.pop("resume"), **given)
    _require_consistent(given)
    small = {"nano": {}, "tiny": _TINY, "llama-tiny": _TINY}
    habits = _LARGE if given.get("weights") else small.get(given.get("preset", "nano"), _LARGE)
    made = build(TrainOptions, {**habits, **given}, "options")
    models.preset(made.preset)  # ConfigError where there is none of that name
    if given.get("vocabulary") and made.tokenizer not in ("gpt2", "ids"):
        raise ConfigError(
            "`vocabulary` is for `tokenizer='gpt2'` or ids, not for "
            f"{made.tokenizer}: leave one out"
        )
    following: dict[str, Any] = {"warmup": min(made.warmup, made.steps // 10)}
    if "learning_rate" in given:
        following["final_rate"] = made.learning_rate / 10
    return replace(made, **{n: value for n, value in following.items() if n not in given})


def resumed_options(directory: str | Path, **changes: Any) -> TrainOptions:
    """The options a run was saved with, some of them changed; those of `FIXED` stay."""
    return changed_options(directory, TrainOptions, FIXED, changes)


def _require_consistent(given: dict[str, Any]) -> None:
    if given.get("weights"):
        for name in _WITH_MODEL:
            if given.get(name) is not None:
                raise ConfigError(
                    f"`{name}` has no meaning beside `weights`, which brings its model and "
                    "tokenizer: leave one of them out"
                )
    if given.get("schedule") == "constant" and "final_rate" in given:
        raise ConfigError("`final_rate` has no meaning beside `schedule='constant'`: leave one out")
