"""What the command line shows: text on standard output, and a view of a run while it trains.

output = Output(sys.stdout)
with Screen(output) as screen:
    train(options, screen)
if output.error is not None: ...            # nobody reads any more
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fxad_nn.flags import in_flags
from fxad_nn.listener import Listener, Progress
from fxad_nn.live import View
from fxad_nn.run import Run
from fxad_nn.samples import Sample

SHOWN = 60
"""Characters of a sample's prompt, its last ones."""


class Output:
    """A text stream that falls silent when writing to it fails, and remembers why in `error`.

    A pipe that nobody reads any more (`| head`), a terminal that is gone or a full disk must not
    raise wherever something happens to be printed: who prints asks when it suits.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write what the stream's encoding can say, the rest as escapes."""
        if self.error is None:
            encoding = self._stream.encoding or "utf-8"
            shown = text.encode(encoding, "backslashreplace").decode(encoding)
            try:
                self._stream.write(shown)
            except OSError as error:
                self._failed(error)
        return len(text)

    def flush(self) -> None:
        """Send what was written on its way."""
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._failed(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _failed(self, error: OSError) -> None:
        """Send what is still buffered nowhere, or Python would fail on it once more at its end."""
        self.error = error
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())


def complain(text: str) -> None:
    """Print to standard error, where there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)


class Screen(Listener):
    """What a run says, above a view of its progress (`fxad_nn.live`).

    Where nobody can see it any more it asks to stop.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._console = console_on(output)
        self._view: View | None = None

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *error: object) -> None:
        if self._view is not None:
            self._view.stop()

    def started(self, run: Run, parameters: int, peak: float) -> None:
        for line in [*run.task.lines(), *run.notes]:
            self._print(line)
        self._print(f"trained: {parameters:,} parameters")
        self._print(f"run: {run.directory}, peak {peak / 1e9:.0f} GFLOP/s")
        losses = run.history["val"], run.history["train"]
        self._view = View(self._console, run.options.steps, run.step, *losses)
        self._view.start()

    def progressed(self, progress: Progress) -> None:
        if self._view is not None:
            self._view.report(progress)

    def evaluated(self, step: int, loss: float) -> None:
        if self._view is not None:
            self._view.validated(loss)  # before the line, which has the view drawn anew
        self._print(f"step {step}: validation loss {loss:.4f} (sample)")

    def sampled(self, step: int, samples: list[Sample]) -> None:
        for sample in samples:
            texts = sample.prompt, sample.text
            asked, said = (visible(json.dumps(text, ensure_ascii=False)) for text in texts)
            self._print(f"step {step}: {asked[-SHOWN:]} is continued by {said}")

    def saved(self, path: Path) -> None:
        self._print(f"saved {path}")

    def warned(self, message: str) -> None:
        complain(f"fxad_nn: warning: {in_flags(message)}")

    def should_stop(self) -> bool:
        return self._output.error is not None

    def _print(self, text: str) -> None:
        say(self._console, text)


class Bytes:
    """A progress bar of bytes that were read.

    with Bytes(console) as bar:
        bar.went_on(done, total)
    """

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
            TextColumn("reading"),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._task: Any = None

    def __enter__(self) -> Bytes:
        return self

    def __exit__(self, *error: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def went_on(self, done: int, total: int) -> None:
        """So many bytes of all were read."""
        if self._task is None:
            self._bar.start()
            self._task = self._bar.add_task("reading", total=total)
        self._bar.update(self._task, completed=done)


def console_on(output: Output) -> Console:
    """A console that writes to `output`.

    What a notebook's kernel starts (`!python -m fxad_nn train`) has a terminal of its own, but what
    it writes is shown in a page, where no cursor goes up: there it is no terminal.
    """
    terminal = False if "JPY_PARENT_PID" in os.environ else None  # None: as rich finds it
    return Console(file=output, force_terminal=terminal)  # type: ignore[arg-type]  # no more of a file


def write_text(output: Output, text: str) -> None:
    """Write what a model or a person said: as it is, but on a terminal, which may take control
    characters for commands, these `visible`."""
    output.write(visible(text) if output.isatty() else text)
    output.flush()


def visible(text: str) -> str:
    """A text with its control characters, but tabs and line breaks, as escapes."""

    def one(character: str) -> str:
        controls = unicodedata.category(character) == "Cc" and character not in "\n\t"
        return ascii(character)[1:-1] if controls else character

    return "".join(map(one, text))


def say(console: Console, text: str) -> None:
    """Print a line as it is, paths and brackets included."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
