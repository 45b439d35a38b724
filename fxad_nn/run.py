"""A training run: begun from a preset or from weights, resumed from a checkpoint, saved to one.

run = begin(recipe("nano", data=Path("input.txt")))
save(run)                                               # runs/nano-1/step-00000000
run = resume(recipe(resume=Path("runs/nano-1"), steps=3000))
"""

from __future__ import annotations

import math
import platform
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

import fxad
from fxad_nn import models, store
from fxad_nn.data import Dataset, open_data, require_length
from fxad_nn.data_mixture import open_mixture, split_sources
from fxad_nn.errors import ConfigError, DataError, TrainingError
from fxad_nn.files import require_writable
from fxad_nn.losses import History, empty_history
from fxad_nn.memory_choice import choose
from fxad_nn.model import load
from fxad_nn.optim import Optimizer, averaged
from fxad_nn.pretraining import TEXT, Pretraining
from fxad_nn.recipe import RunOptions, TrainOptions, optimizer_of, resumed_options
from fxad_nn.saved_options import is_same, located, working_directory
from fxad_nn.spec import count_params, init_params, named_leaves
from fxad_nn.store import BEST
from fxad_nn.task import Task
from fxad_nn.tokenizer import Tokenizer, from_directory

GPT2_IDS = 50257
"""llm.c's shards hold GPT-2's ids."""


@dataclass
class Run:
    """A training run between two steps: everything that changes, and what it works on.

    sampled: the last step that samples were taken at. notes: what there is to say before the first
    step, beside what the task says. predicted: bytes the process takes, where `memory` chose.
    started_in: the working directory, which relative paths of the options are meant against.
    """

    options: RunOptions
    config: models.Config
    task: Task
    directory: Path
    params: Any
    state: Any
    step: int = 0
    sampled: int = 0
    history: History = field(default_factory=empty_history)
    checkpoint: Path | None = None
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    predicted: int | None = None
    started_in: str = field(default_factory=working_directory)

    def __repr__(self) -> str:
        """In a line: where it is, and not the numbers of all its parameters."""
        said = [f"step {self.step} of {self.options.steps}"]
        for kind in ("train", "val"):
            said += [f"{kind} loss {loss:.3f}" for _, loss in self.history[kind][-1:]]
        if self.params is not None:  # as during a step
            said.append(f"{count_params(self.params):,} parameters")
        return f"Run({', '.join(said)} in {self.directory})"

    @property
    def is_done(self) -> bool:
        """Whether no step of the run is left."""
        return self.step >= self.options.steps > 0

    @property
    def context(self) -> int:
        """Tokens per sequence."""
        return self.options.context or self.config.context

    @property
    def weights(self) -> Any:
        """The parameters to validate and sample: their average, where the run keeps one."""
        return averaged(self.state, self.params)


def begin(options: TrainOptions) -> Run:
    """A run at step 0, from a preset or from given weights."""
    name = options.preset if options.weights is None else options.weights.resolve().name
    directory = new_directory(options.out, name)
    if options.weights is not None:
        model = load(options.weights, "float32")  # the dtype of an optimizer's parameters
        config, params = model.config, model.params
        data = _open(options, config.vocab, from_directory(options.weights))
    else:
        config, data = _from_preset(options)
        spec = models.family(config).spec(config)
        params = fxad.jit(partial(init_params, spec))(fxad.random.key(options.seed))
    state = optimizer_of(options).init(params)
    _require_fitting(options, config, data)
    return fitted(
        Run(options, config, Pretraining(options, config, data), directory, params, state)
    )


def fitted(run: Run) -> Run:
    """The run with its steps done so that it keeps within `options.memory`, where that is given."""
    if run.options.memory is None:
        return run
    chosen = choose(run.options, run.task, run.params, run.state)
    task = run.task.changed(chosen.options)
    warnings = [*run.warnings, *chosen.warnings]
    return replace(
        run,
        options=chosen.options,
        task=task,
        notes=[chosen.line],
        predicted=chosen.predicted,
        warnings=warnings,
    )


def new_directory(out: Path | None, name: str) -> Path:
    """Where a new run saves: `out`, else the first free runs/NAME-N. ConfigError where a run is
    there already or nothing can be written."""
    directory = out or _free_directory(name)
    if store.holds_checkpoint(directory) or store.holds_checkpoint(directory / BEST):
        raise ConfigError(
            f"{directory} already holds a checkpoint: continue it with "
            f"`resume={str(directory)!r}`, or choose another `out`"
        )
    require_writable(directory)
    return directory


def _from_preset(options: TrainOptions) -> tuple[models.Config, Dataset]:
    """The data and a model whose vocabulary holds it: for characters and bytes, just that."""
    wanted = {name: getattr(options, name) for name in ("context", "bias")}
    changes = {name: value for name, value in wanted.items() if value is not None}
    config = models.preset(options.preset, **changes)
    bound = 256 if options.tokenizer == "byte" else max(config.vocab, GPT2_IDS)
    data = _open(options, bound)
    least = 1 if options.tokenizer in ("char", "byte") else config.vocab
    return replace(config, vocab=max(data.tokenizer.size, least)), data


def saved_optimizer(directory: str | Path) -> Optimizer:
    """The optimizer whose state the newest checkpoint of a run holds; ConfigError where it
    averages no weights."""
    options = resumed_options(directory)
    if options.average is None:
        raise ConfigError(f"{directory} was not trained with `average`: it has no averaged weights")
    return optimizer_of(options)


def resume(options: TrainOptions) -> Run:
    """The run in the checkpoint `options.resume`, to go on as `options` say."""
    if options.resume is None:
        raise ConfigError("resuming needs the directory of a run")
    saved = store.load(options.resume, optimizer_of(options))
    # Runs from before there were digests read a mark before a text as a part of it.
    marked = TEXT not in saved.state.get("digests", {})
    data = _open(options, saved.config.vocab, saved.tokenizer, marked)
    _require_fitting(options, saved.config, data)
    return resumed(options, saved, Pretraining(options, saved.config, data), options.data)


def resumed(options: RunOptions, saved: store.Checkpoint, task: Task, data: Path | None) -> Run:
    """The run of a checkpoint, to go on as `options` say with the `task` it had; `data`: the file
    that the task was made from. DataError where that is not what it was."""
    then = saved.state["options"]["data"]
    same = is_same(data, None if then is None else located(Path(then), saved.state))
    mixed = getattr(options, "mixture", ())
    right = f"give the right text with `{'mixture' if mixed else 'data'}`"
    before, now = saved.state["data_size"], task.size
    if before != now and same:
        raise DataError(
            f"{saved.path} was trained on {saved.state['source']}, {before} tokens; now that is "
            f"{task.source}, {now} tokens: {right}"
        )
    digests = [found.get(TEXT) for found in (saved.state.get("digests", {}), task.digests)]
    if same and None not in digests and digests[0] != digests[1]:
        changed = (
            f"differs from what {saved.path} was trained on, {saved.state['source']}"
            if mixed
            else f"has changed since {saved.path} was saved"
        )
        raise DataError(f"{task.source} {changed}: {right}")
    directory = _resumed_directory(saved.path, options.out)
    require_writable(directory)
    run = Run(options, saved.config, task, directory, saved.params, saved.optimizer, saved.step)
    run.history = {**empty_history(), **saved.state["history"]}
    run.sampled = saved.state.get("sampled", 0)
    run.checkpoint = saved.path if directory == saved.path.parent else None
    if changed := _changes(saved.facts, _bits()):
        run.warnings.append(
            f"since {saved.path} was saved, {changed}: the run goes on, but its bits may not be "
            "those of an unbroken one"
        )
    return run


def _resumed_directory(checkpoint: Path, out: Path | None) -> Path:
    """Where a resumed run saves; ConfigError where that would cost a checkpoint of another."""
    home = checkpoint.parent
    if out is not None and out.resolve() != home.resolve():
        if store.holds_checkpoint(out) or store.holds_checkpoint(out / BEST):
            raise ConfigError(f"{out} already holds a checkpoint: choose another `out`")
        return out
    if home.name == BEST:
        raise ConfigError(
            f"{checkpoint} is the best of its run: give `out=DIR` to branch off from it, or "
            f"`resume={str(home.parent)!r}` to continue"
        )
    newest = None if store.checkpoints(home)[-1:] == [checkpoint] else store.last_whole(home)
    if newest not in (None, checkpoint):
        raise ConfigError(
            f"{checkpoint} is not the newest of its run, {newest} is: give `out=DIR` to branch off "
            f"from the older one, or `resume={str(home)!r}` to continue"
        )
    return home


def _bits() -> dict[str, str]:
    """What the bits of a step depend on besides the options and the data, by name."""
    return {"fxad": fxad_version(), **fxad.bits_depend_on()}


def _changes(before: dict[str, str], now: dict[str, str]) -> str:
    """Which of the facts that both know differ, in words."""
    differing = [name for name in sorted(before.keys() & now.keys()) if before[name] != now[name]]
    return ", ".join(f"{name} {before[name]!r} became {now[name]!r}" for name in differing)


def save(run: Run) -> Path:
    """Save the run as it is now, unless its newest checkpoint already holds this step.

    Raises CheckpointError where the disk refuses, TrainingError where a number is not finite: a
    checkpoint of such numbers must not take the place of a good one.
    """
    if run.checkpoint and is_saved(run):
        return run.checkpoint
    run.checkpoint = write(run, run.directory, run.options.keep)
    return run.checkpoint


def is_saved(run: Run) -> bool:
    """Whether the newest checkpoint of the run already holds its step."""
    newest = run.checkpoint
    return bool(newest and newest.name.startswith(f"step-{run.step:08d}") and newest.is_dir())


def best_loss(directory: str | Path) -> float:
    """The validation loss of the best checkpoint that a run's directory holds; infinity if none."""
    directory = Path(directory)
    if not store.holds_checkpoint(directory / BEST):
        return math.inf
    _, found = store.read_state(directory / BEST)
    history = found["state"].get("history", {}).get("val")
    return history[-1][1] if history else math.inf


def save_best(run: Run) -> Path:
    """Save the run as it is now as its best, beside its other checkpoints; raises as `save`."""
    return write(run, run.directory / BEST, keep=1)


def snapshot(run: Run) -> Run:
    """The run as it is now, in memory of its own: what it does next changes nothing of it."""

    def copied(tree: Any) -> Any:
        return fxad.tree.map(lambda leaf: np.array(leaf), tree)

    history = {kind: [list(point) for point in points] for kind, points in run.history.items()}
    return replace(run, params=copied(run.params), state=copied(run.state), history=history)


def write(run: Run, directory: Path, keep: int) -> Path:
    """Write a checkpoint of the run to a directory in which the newest `keep` stay; raises as
    `save`."""
    _require_finite(run)
    options = asdict(run.options)
    state = {
        "options": {k: str(v) if isinstance(v, Path) else v for k, v in options.items()},
        "started_in": run.started_in,
        "source": run.task.source,
        "data_size": run.task.size,
        "digests": run.task.digests,
        "sampler": {"seed": run.options.seed, "batches": run.step * run.options.accumulate},
        "sampled": run.sampled,
        "history": run.history,
    }
    return store.save(
        directory,
        run.step,
        run.params,
        run.state,
        run.config,
        run.task.tokenizer,
        state,
        keep=keep,
        facts={**_bits(), "python": platform.python_version()},
    )


def _require_finite(run: Run) -> None:
    if name := not_finite(run):
        raise TrainingError(
            f"after step {run.step} {name} holds numbers that are not finite, so it is not "
            "saved: try a lower `learning_rate` or a longer `warmup`"
        )


def not_finite(run: Run) -> str | None:
    """The first parameter or moment that holds NaN or infinity, if one does."""
    for name, leaf in (*named_leaves(run.params), *named_leaves(run.state)):
        if not np.isfinite(np.asarray(leaf)).all():
            return name
    return None


def _open(
    options: TrainOptions, vocab: int, known: Tokenizer | None = None, marked: bool = False
) -> Dataset:
    how = options.tokenizer, options.vocabulary, vocab, known, marked
    if options.mixture:
        return open_mixture(options.mixture, *how)
    return open_data(options.data, *how)


def _require_fitting(options: TrainOptions, config: models.Config, data: Dataset) -> None:
    """Prove that model, tokenizer, data and context fit each other."""
    ids, context = data.tokenizer.size, options.context or config.context
    if ids > config.vocab:
        raise DataError(f"the tokenizer has {ids} ids, the model a vocabulary of {config.vocab}")
    if context > config.context:
        raise ConfigError(f"`context={context}` exceeds the model's {config.context}")
    for tokens in split_sources(data.train, data.shares) if data.shares else [data.train]:
        require_length(tokens, context, f"the training part of {data.source}")
    require_length(data.val, 1, f"the validation part of {data.source}")


def _free_directory(name: str) -> Path:
    number = 1
    while (path := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return path


def fxad_version() -> str:
    """The version of the installed package, where it is installed."""
    try:
        return version("fxad")
    except PackageNotFoundError:
        return "unknown"
