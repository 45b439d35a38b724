"""The command line: `python -m fxad_nn train` and `python -m fxad_nn sample`.

python -m fxad_nn train --preset nano --data input.txt
python -m fxad_nn sample runs/nano-1 --prompt "To be"
"""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fxad_nn import models, store
from fxad_nn.errors import ConfigError, UserError, did_you_mean
from fxad_nn.generate import cast, generate
from fxad_nn.hf import load_hf
from fxad_nn.options import add_options, option, parse
from fxad_nn.plot import draw_losses
from fxad_nn.recipe import TrainOptions, recipe
from fxad_nn.run import Run, resumed_options
from fxad_nn.tokenizer import Tokenizer, from_directory
from fxad_nn.train import Listener, Progress, Result, train

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class SampleOptions:
    """How to continue a prompt."""

    prompt: str | None = option(None, "text to continue (default: a line break)")
    tokens: int = option(300, "how many tokens to add")
    temperature: float = option(0.8, "0 takes the likeliest token, 1 samples as trained")
    top_k: int = option(200, "sample from so many of the likeliest tokens")
    seed: int = option(0, "seed of the sampling")
    window: int = option(1024, "see at most so many of the last tokens")
    top_p: float | None = option(None, "sample from the likeliest tokens of this probability")
    dtype: str | None = option(None, "of the parameters (default: as saved)", DTYPES)


SMALLER = "try smaller sizes: --batch, --context and --eval-batch to train, --window to sample"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the process's exit status: 0, 2 for bad input, 130 for Ctrl-C."""
    parser = _parser()
    given = vars(parse(parser, arguments))
    command = given.pop("command")
    console = Console()
    try:
        if command == "train":
            return _train(given, console)
        _sample(given, console)
    except (UserError, OSError) as error:
        print(f"fxad_nn: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"fxad_nn: {error}\n{SMALLER}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fxad_nn: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fxad_nn", description="Train GPT-2 and Llama models, and let them continue texts."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="train|sample")
    training = commands.add_parser(
        "train",
        help="train a model",
        description="Train a model. Presets: " + ", ".join(models.PRESETS),
        allow_abbrev=False,
    )
    add_options(training, TrainOptions)
    sampling = commands.add_parser("sample", help="continue a text", allow_abbrev=False)
    sampling.add_argument("model", type=Path, help="run, checkpoint or Hugging Face directory")
    add_options(sampling, SampleOptions)
    return parser


def _train(given: dict[str, Any], console: Console) -> int:
    """Train and report; returns the exit status, 130 where Ctrl-C stopped the run early."""
    if "resume" in given:
        options = resumed_options(given.pop("resume"), **given)
    else:
        options = recipe(given.pop("preset", "nano"), **given)
    with Screen(console) as screen:
        result = train(options, screen)
    if result.interrupted:
        run = result.run
        console.print(f"stopped after step {run.step} of {run.options.steps}", highlight=False)
        command = f"python -m fxad_nn train --resume {shlex.quote(str(run.directory))}"
        console.print(f"continue with: {command}", markup=False, highlight=False, soft_wrap=True)
        return 130
    _conclude(result, console)
    return 0


def _conclude(result: Result, console: Console) -> None:
    """The whole validation loss, a sample, and where everything lies."""
    run = result.run
    loss = f"validation loss over the whole split: [bold]{result.val_loss:.4f}[/]"
    console.print(loss, highlight=False)
    console.rule("sample")
    _write(run.params, run.config, run.data.tokenizer, SampleOptions(window=run.context), console)
    console.rule()
    _print_path(console, "checkpoint", result.checkpoint)
    curve = run.directory / "loss.png"
    try:
        draw_losses(run.history, curve)
        _print_path(console, "loss curve", curve)
    except UserError as error:
        console.print(str(error))


def _print_path(console: Console, what: str, path: Path) -> None:
    console.print(f"{what}: {path}", markup=False, highlight=False, soft_wrap=True)


def _sample(given: dict[str, Any], console: Console) -> None:
    directory = given.pop("model")
    options = SampleOptions(**given)
    if options.dtype not in (None, *DTYPES):
        hint = did_you_mean(options.dtype, DTYPES)
        raise ConfigError(f"--dtype must be one of {', '.join(DTYPES)}, got {options.dtype}{hint}")
    if (directory / "config.json").is_file():
        config, params = load_hf(directory)
        _write(params, config, from_directory(directory), options, console)
    else:
        found = store.load(directory, with_optimizer=False)
        _write(found.params, found.config, found.tokenizer, options, console)


def _write(
    params: Any, config: models.Config, tokenizer: Tokenizer, o: SampleOptions, console: Console
) -> None:
    """Print the prompt and its continuation as it is drawn."""
    tokens, vocab = _prompt(tokenizer, o.prompt), tokenizer.size
    if o.dtype not in (None, config.dtype):
        params, config = cast(params, config, o.dtype)
    limits = (o.temperature, o.top_k, o.seed, vocab, o.window, o.top_p)
    drawn = generate(params, config, tokens, o.tokens, *limits)
    shown = tokenizer.decode(tokens)
    if o.prompt is not None:
        _show(console, shown)
    for token in drawn:
        tokens.append(token)
        text = tokenizer.decode(tokens)
        if not text.endswith("\ufffd"):  # a character may be split over several tokens
            shown += _show(console, text[len(shown) :])
    console.out("")


def _show(console: Console, text: str) -> str:
    console.out(text, end="", highlight=False)
    return text


def _prompt(tokenizer: Tokenizer, prompt: str | None) -> list[int]:
    """The ids to start from; without a prompt a line break, or id 0 where there is none."""
    try:
        ids = [int(token) for token in tokenizer.encode("\n" if prompt is None else prompt)]
    except UserError:
        if prompt is not None:
            raise
        ids = []
    return ids or [0]


class Screen(Listener):
    """A live progress bar with loss, learning rate, speed and utilisation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[report]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task: Any = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:  # stopping a bar that never started prints an empty line
            self._bar.stop()

    def started(self, run: Run, parameters: int, peak: float) -> None:
        tokens = sum(map(len, run.data.train)), sum(map(len, run.data.val))
        name = run.options.preset if run.options.weights is None else run.options.weights
        self._print(f"model: {name}, {parameters:,} parameters, vocabulary {run.config.vocab}")
        self._print(f"data: {run.data.source}")
        self._print(f"tokens: {tokens[0]:,} to train, {tokens[1]:,} to validate")
        self._print(f"run: {run.directory}, peak {peak / 1e9:.0f} GFLOP/s")
        steps = run.options.steps
        self._bar.start()
        self._task = self._bar.add_task(
            "train", total=steps, completed=run.step, report="compiling"
        )

    def progressed(self, progress: Progress) -> None:
        p = progress
        report = (
            f"loss {p.loss:.3f}  lr {p.learning_rate:.1e}  "
            f"{p.tokens_per_second:,.0f} tok/s  MFU {p.utilisation:.1%}"
        )
        self._bar.update(self._task, completed=p.step, report=report)

    def evaluated(self, step: int, loss: float) -> None:
        self._print(f"step {step}: validation loss {loss:.4f} (sample)")

    def saved(self, path: Path) -> None:
        self._print(f"saved {path}")

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
