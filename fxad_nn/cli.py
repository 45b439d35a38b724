"""The command line: `python -m fxad_nn train`, `finetune`, `prepare`, `sample` and `plot`.

python -m fxad_nn prepare books.jsonl --out data --vocabulary gpt2
python -m fxad_nn train --preset nano --data input.txt
python -m fxad_nn finetune --model Llama-3.2-1B --data chat.jsonl --lora 16
python -m fxad_nn sample runs/nano-1 --prompt "To be"
python -m fxad_nn sample runs/Llama-3.2-1B-1 --chat
python -m fxad_nn plot runs/nano-1
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import fxad
from fxad.errors import FxadError
from fxad_nn import chat_template, models, store
from fxad_nn.adapters import CONFIG as ADAPTER_CONFIG
from fxad_nn.adapters import merged_with_base
from fxad_nn.chat import Chat, spelled
from fxad_nn.errors import ConfigError, DataError, UserError, did_you_mean
from fxad_nn.files import no_directory
from fxad_nn.finetune import ADAPTER, MERGED, Tuned, finetune, preview
from fxad_nn.finetune_recipe import FinetuneOptions, finetune_recipe
from fxad_nn.flags import in_flags
from fxad_nn.generate import cast, generate
from fxad_nn.hf import CONFIG as MODEL_CONFIG
from fxad_nn.losses import LOSSES, TABLE, read_losses, write_table
from fxad_nn.model import Model, load
from fxad_nn.optim import averaged
from fxad_nn.options import add_options, build, option, parse, path_of
from fxad_nn.plot import draw
from fxad_nn.prepare import PrepareOptions, prepare
from fxad_nn.recipe import MOST, TrainOptions, recipe
from fxad_nn.run import Run, fxad_version, saved_optimizer
from fxad_nn.run_file import joined, read_options
from fxad_nn.samples import latest
from fxad_nn.saved_options import command_of
from fxad_nn.screen import Bytes, Output, Screen, complain, console_on, say, visible, write_text
from fxad_nn.tokenizer import Tokenizer, from_directory, start_of
from fxad_nn.train import Result, train

CURVE = "loss.png"
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class SampleOptions:
    """How to continue a prompt."""

    prompt: str | None = option(None, "text to continue (default: a line break)")
    tokens: int = option(300, "how many tokens to add")
    temperature: float = option(0.8, "0 takes the likeliest token, 1 samples as trained")
    top_k: int = option(200, "sample from so many of the likeliest tokens")
    seed: int = option(0, "seed of the sampling")
    window: int = option(1024, "see at most so many of the last tokens (a chat: all that fit)")
    top_p: float | None = option(None, "sample from the likeliest tokens of this probability")
    dtype: str | None = option(None, "of the parameters (default: as saved)", DTYPES)
    averaged: bool = option(False, "the averaged weights of a run trained with --average")
    chat: bool = option(False, "answer as a chat model: --prompt, or each line that is typed")
    system: str | None = option(None, "with --chat: what the model is told first")


SMALLER = "try smaller sizes: --batch, --context and --eval-batch to train, --window to sample"


BROKEN_PIPE = 141
"""What a shell expects of a process whose reader went away: 128 and SIGPIPE's number."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the process's exit status.

    0, 1 for a bug, 2 for what cannot be done as asked, 128 and the number of the signal that ended
    it early: 130 for Ctrl-C, 141 where nobody reads its output any more.
    """
    given = vars(parse(_parser(), arguments))
    debug = given.pop("debug", False)
    with contextlib.ExitStack() as stack:
        nowhere = stack.enter_context(open(os.devnull, "w"))
        output = Output(sys.stdout or nowhere)
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = lambda message, *_: complain(f"fxad_nn: warning: {message}")
        try:
            return _run(given, output)
        except (UserError, FxadError, OSError, MemoryError) as error:
            if debug:
                complain(traceback.format_exc())
            complain(_message(error))
            return 2
        except KeyboardInterrupt as error:
            complain("\n".join(["fxad_nn: interrupted", *_notes(error)]))
            return 130
        except Exception:
            complain(f"{traceback.format_exc()}\n{_bug()}")
            return 1


def _run(given: dict[str, Any], output: Output) -> int:
    """Run the command that was parsed; returns its exit status."""
    command = given.pop("command")
    if command == "train":
        return _train(given, output)
    if command == "finetune":
        return _finetune(given, output)
    if command == "prepare":
        _prepare(given, console_on(output))
    elif command == "plot":
        _plot(given["run"], console_on(output))
    else:
        return _sample(given, output) or _output_status(output)
    return _output_status(output)


def _message(error: Exception) -> str:
    """An error in words, with what was noted on its way, and for too much memory a way out."""
    said = str(error) if isinstance(error, FxadError) else in_flags(str(error))
    lines = [f"fxad_nn: {said}", *_notes(error)]
    return "\n".join([*lines, SMALLER] if isinstance(error, MemoryError) else lines)


def _bug() -> str:
    return (
        "fxad_nn: this is a bug, not a fault of what it was given: please report the lines above "
        f"and the command (fxad {fxad_version()}, Python {platform.python_version()}, "
        f"{platform.platform()})"
    )


def _notes(error: BaseException) -> list[str]:
    return [in_flags(note) for note in getattr(error, "__notes__", [])]


def _output_status(output: Output) -> int:
    """0, or what it means that standard output failed."""
    if output.error is None:
        return 0
    return BROKEN_PIPE if isinstance(output.error, BrokenPipeError) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fxad_nn", description="Train and fine-tune models, and let them continue texts."
    )
    parser.add_argument("--version", action="version", version=f"fxad {fxad.__version__}")
    names = "train|finetune|prepare|sample|plot"
    commands = parser.add_subparsers(dest="command", required=True, metavar=names)
    training = commands.add_parser(
        "train",
        help="train a model",
        description="Train a model. Presets: " + ", ".join(models.PRESETS),
        allow_abbrev=False,
    )
    add_options(training, TrainOptions)
    tuning = commands.add_parser(
        "finetune",
        help="train a model's answers",
        description="Fine-tune a Hugging Face model on conversations, whole or by adapters.",
        allow_abbrev=False,
    )
    add_options(tuning, FinetuneOptions)
    tuning.add_argument(
        "--preview",
        type=int,
        metavar="INT",
        default=argparse.SUPPRESS,
        help="show so many examples, what is trained in green (or in ⟦ ⟧), and do nothing else",
    )
    preparing = commands.add_parser(
        "prepare",
        help="make token shards of texts",
        description="Make token shards of texts of any size, which train reads part by part.",
        allow_abbrev=False,
    )
    preparing.add_argument(
        "data", type=path_of, nargs="+", help="UTF-8 texts, or .jsonl of documents"
    )
    add_options(preparing, PrepareOptions)
    sampling = commands.add_parser("sample", help="continue a text", allow_abbrev=False)
    sampling.add_argument("model", type=path_of, help="run, checkpoint or Hugging Face directory")
    add_options(sampling, SampleOptions)
    plotting = commands.add_parser("plot", help="draw the losses of a run, even of one killed")
    plotting.add_argument("run", type=path_of, help="run directory")
    for command in (training, tuning):
        command.add_argument(
            "--config",
            type=path_of,
            metavar="PATH",
            default=argparse.SUPPRESS,
            help="TOML file with options by the names of their flags",
        )
    for command in (training, tuning, preparing, sampling, plotting):
        command.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="where an error stops the command, show which lines of the program led to it",
        )
    return parser


def _train(given: dict[str, Any], output: Output) -> int:
    """Train and report; returns the exit status."""
    given = _with_file(given, TrainOptions)
    options = recipe(**given)
    with Screen(output) as screen:
        result = train(options, screen)
    if not result.interrupted:
        _conclude(result, output)
    return _ended(result, "train", output)


def _finetune(given: dict[str, Any], output: Output) -> int:
    """Fine-tune and report, or show examples; returns the exit status."""
    count = given.pop("preview", 0)
    given = _with_file(given, FinetuneOptions)
    if count < 0:
        raise ConfigError(f"--preview must be 0 or more, got {count}")
    options = finetune_recipe(**given)
    if count:
        _preview(options, count, console_on(output))
        return _output_status(output)
    with Screen(output) as screen:
        tuned = finetune(options, screen)
    if not tuned.result.interrupted:
        _conclude_tuning(tuned, console_on(output))
    return _ended(tuned.result, "finetune", output)


def _prepare(given: dict[str, Any], console: Console) -> None:
    """Make shards, with a bar of the bytes that were read, and say what was made."""
    paths = given.pop("data")
    options = build(PrepareOptions, given, "options")
    with Bytes(console) as bar:
        made = prepare(paths, options, bar.went_on)
    for split, shards in (("train", made.train), ("validation", made.val)):
        count = len(shards)
        if count:
            say(console, f"{split}: {count} shard{'s' if count > 1 else ''}, {shards[0]} ...")
    counts = {"document": made.documents, "token": made.tokens}
    said = [f"{count:,} {what}{'' if count == 1 else 's'}" for what, count in counts.items()]
    say(console, f"{', '.join(said)} in {options.out}")
    if options.val_share and not made.val:
        say(console, "no document was drawn for validation: train takes the end of the last shard")


def _with_file(given: dict[str, Any], cls: type) -> dict[str, Any]:
    """The options of the command line with those of the file that it names, if it does."""
    path = given.pop("config", None)
    return given if path is None else joined(read_options(path, cls), given, path)


def _preview(options: FinetuneOptions, count: int, console: Console) -> None:
    """Examples as they are read, what is trained in green, or in ⟦ ⟧ where there are no colours."""
    plain = console.no_color or console.color_system is None
    for number, pieces in enumerate(preview(options, count), 1):
        console.rule(f"example {number}")
        text = Text()
        for piece, trained in pieces:
            piece = visible(piece)
            shown = f"⟦{piece}⟧" if trained and plain else piece
            text.append(shown, "bold green" if trained else "dim")
        console.print(text, soft_wrap=True)


def _conclude_tuning(tuned: Tuned, console: Console) -> None:
    """The validation loss, and what lies where."""
    if tuned.result.val_loss is not None:
        loss = f"validation loss over the whole split: [bold]{tuned.result.val_loss:.4f}[/]"
        console.print(loss, highlight=False)
    if tuned.rounding is not None:
        r = tuned.rounding
        largest = (
            f"the largest rounding is {r.largest:.3g}, in {r.name}" if r.largest else "exactly"
        )
        say(console, f"merged in float32, {largest}")
    for path in tuned.saved:
        say(console, f"saved: {path}")
    _draw(tuned.result.run, console)


def _ended(result: Result, command: str, output: Output) -> int:
    """Say how to go on where a run was stopped; the exit status."""
    how = _stopped(result, command)
    if result.interrupted and output.error is None:
        say(console_on(output), how)
    if output.error is not None:
        complain(f"fxad_nn: standard output failed: {output.error.strerror}; {how}")
    return result.stop.status or _output_status(output)


def _stopped(result: Result, command: str) -> str:
    """How far the run came, and how to go on."""
    run, cause = result.run, result.stop.signal
    if not result.interrupted:
        return f"the training is done, and saved in {result.checkpoint}"
    how = f" by {cause.name}" if cause else ""
    return (
        f"stopped after step {run.step} of {run.options.steps}{how}, saved in {result.checkpoint}\n"
        f"continue with: python -m fxad_nn {command} --resume {shlex.quote(str(run.directory))}"
    )


def _conclude(result: Result, output: Output) -> None:
    """The whole validation loss, a sample, and where everything lies."""
    run, console = result.run, console_on(output)
    loss = f"validation loss over the whole split: [bold]{result.val_loss:.4f}[/]"
    console.print(loss, highlight=False)
    console.rule("sample")
    _write(run.weights, run.config, run.task.tokenizer, SampleOptions(window=run.context), output)
    # Rich itself thinks of encodings without lines only where there is a title.
    console.rule(characters="-" if console.options.ascii_only else "─")
    say(console, f"checkpoint: {result.checkpoint}")
    _draw(run, console)


def _draw(run: Run, console: Console) -> None:
    """The losses as a table and a curve, where that is possible."""
    curve = run.directory / CURVE
    try:
        write_table(run.history, run.directory / TABLE)
        draw(run.history, curve, latest(run.directory))
        say(console, f"loss curve: {curve}")
    except (UserError, OSError) as error:
        say(console, f"no loss curve: {error}")


def _plot(directory: Path, console: Console) -> None:
    """The loss curve of a run from its log."""
    history = read_losses(directory / LOSSES)
    write_table(history, directory / TABLE)
    say(console, f"losses: {directory / TABLE}")
    draw(history, directory / CURVE, latest(directory))
    say(console, f"loss curve: {directory / CURVE}")


def _sample(given: dict[str, Any], output: Output) -> int:
    """Continue a text, or answer; returns the exit status."""
    directory = given.pop("model")
    directory = _tuned_in(directory) or directory
    options = SampleOptions(**given)
    if options.dtype not in (None, *DTYPES):
        hint = did_you_mean(options.dtype, DTYPES)
        raise ConfigError(f"--dtype must be one of {', '.join(DTYPES)}, got {options.dtype}{hint}")
    if options.seed < 0:
        raise ConfigError(f"--seed must be 0 or more, got {options.seed}")
    if options.seed > MOST:
        raise ConfigError(f"--seed must be at most {MOST}, got {options.seed}")
    if options.system is not None and not options.chat:
        raise ConfigError("--system is for a conversation: give --chat too")
    if not directory.is_dir():
        raise ConfigError(
            f"{directory} {no_directory(directory)}: give the directory of a run, a checkpoint or "
            "a model of Hugging Face"
        )
    is_model = (directory / MODEL_CONFIG).is_file()
    if is_model or (directory / ADAPTER_CONFIG).is_file():
        if options.averaged:
            raise ConfigError(
                f"--averaged is for a run of train: {directory} holds one set of weights, which "
                "are the averaged ones where finetune kept an average"
            )
        model, home = (load(directory), directory) if is_model else merged_with_base(directory)
        return _sample_published(model, home, options, output)
    if store.holds_checkpoint(directory):
        _require_sampled(directory, options)
    if options.chat:
        raise ConfigError(f"--chat needs the directory of a chat model, and {directory} is none")
    optimizer = saved_optimizer(directory) if options.averaged else None
    found = store.load(directory, optimizer)
    params = averaged(found.optimizer, found.params)
    _write(params, found.config, found.tokenizer, options, output)
    return 0


def _require_sampled(directory: Path, options: SampleOptions) -> None:
    """ConfigError for a checkpoint of finetune that cannot be sampled: it holds no chat template,
    and of adapters not what they are added to."""
    path, record = store.read_state(directory)
    trained = record["state"].get("options", {})
    if command_of(trained) != "finetune" or not (options.chat or trained["lora"] is not None):
        return
    run = store.run_of(path.parent)
    if tuned := _tuned_in(run):
        raise ConfigError(
            f"{path} is of a run of finetune, whose checkpoints are there to go on from: sample "
            f"what it made, {shlex.quote(str(tuned))}"
        )
    raise ConfigError(
        f"{path} is of a run that is not done: python -m fxad_nn finetune --resume "
        f"{shlex.quote(str(run))} ends it, and saves what can be sampled"
    )


def _tuned_in(run: Path) -> Path | None:
    """The model in the directory of a run, or the adapters, that fine-tuning made."""
    if (run / MERGED / MODEL_CONFIG).is_file():
        return run / MERGED
    return run / ADAPTER if (run / ADAPTER / ADAPTER_CONFIG).is_file() else None


def _sample_published(model: Model, home: Path, options: SampleOptions, output: Output) -> int:
    """As `_sample`, with a model and the directory of its tokenizer."""
    tokenizer = from_directory(home)
    template = chat_template.from_directory(home) if options.chat else None
    if template is not None:
        return _talk(model.params, model.config, tokenizer, template, options, output)
    _write(model.params, model.config, tokenizer, options, output)
    return 0


def _write(
    params: Any, config: models.Config, tokenizer: Tokenizer, o: SampleOptions, output: Output
) -> None:
    """Print the prompt and its continuation."""
    tokens = _prompt(tokenizer, o.prompt)
    params, config = _in_dtype(params, config, o)
    drawn = generate(params, config, tokens, o.tokens, vocab=tokenizer.size, **_limits(o))
    if o.prompt is not None:
        write_text(output, tokenizer.decode(tokens))
    _show(spelled(tokenizer, tokens, drawn), output)


def _talk(
    params: Any,
    config: models.Config,
    tokenizer: Tokenizer,
    template: chat_template.ChatTemplate,
    o: SampleOptions,
    output: Output,
) -> int:
    """Answer the prompt, or one question a line until there are no more; returns the exit status.
    A line that cannot be answered, such as one that is too long, is passed over."""
    params, config = _in_dtype(params, config, o)
    limits = {name: value for name, value in _limits(o).items() if name != "window"}
    chat = Chat(params, config, tokenizer, template, o.system, o.tokens, **limits)
    if o.prompt is not None:
        _show(chat.ask(o.prompt), output)
        return 0
    status = 0
    for question in _questions():
        try:
            _show(chat.ask(question), output)
        except DataError as error:
            complain(_message(error))
            status = 2
        if output.error is not None:
            break
    return status


def _questions() -> Iterator[str]:
    """Lines of the standard input that are not empty, asked for where somebody types them."""
    if sys.stdin is None:  # closed
        return
    while True:
        if sys.stdin.isatty():
            try:
                line = input("> ")
            except EOFError:
                return
        else:
            read = getattr(sys.stdin, "buffer", None)
            line = (
                sys.stdin.readline() if read is None else read.readline().decode(errors="replace")
            )
            if not line:
                return
        if line.strip():
            yield line.strip()


def _in_dtype(params: Any, config: models.Config, o: SampleOptions) -> tuple[Any, models.Config]:
    return (params, config) if o.dtype in (None, config.dtype) else cast(params, config, o.dtype)


def _limits(o: SampleOptions) -> dict[str, Any]:
    return {name: getattr(o, name) for name in ("temperature", "top_k", "seed", "window", "top_p")}


def _show(parts: Iterable[str], output: Output) -> None:
    """Print parts of a text as they come, for as long as somebody reads, and a line break."""
    for part in parts:
        write_text(output, part)
        if output.error is not None:
            return
    write_text(output, "\n")


def _prompt(tokenizer: Tokenizer, prompt: str | None) -> list[int]:
    """The ids to start from, after the start token where the tokenizer has one before texts;
    without a prompt that one alone, else a line break, or id 0 where there is none."""
    start = start_of(tokenizer)
    if start and prompt is None:
        return start
    try:
        ids = [int(token) for token in tokenizer.encode("\n" if prompt is None else prompt)]
    except UserError:
        if prompt is not None:
            raise
        ids = []
    return (ids if ids[:1] == start else start + ids) or [0]
