"""What is shown of a run while it goes on: in place on a terminal, as plain lines elsewhere.

view = View(console, steps=2000, done=0)
view.start()
view.report(progress)           # a bar, and below it loss, gradient's norm, speed, memory
view.stop()                     # the last state stays; the cursor is back

train ━━━━━━━╸━━━━━━━━━━━  21%  time left 01:12
step 430/2000  loss 2.314  █▇▆▅▄▃▃▂▁
validation loss 2.402, best 2.391  gradient norm 0.83  rate 9.4e-04
12,345 tok/s  48.0% of float32 peak  memory 412 MiB of 460 MiB predicted

A narrow terminal shows fewer pairs of a name and a value; none is ever broken over two lines. A
report only stores what it says: words are made where the terminal is drawn, `PER_SECOND` at most.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.control import Control
from rich.live import Live
from rich.progress import Progress
from rich.progress_bar import ProgressBar
from rich.segment import ControlType
from rich.text import Text

from fxad_nn import listener
from fxad_nn.memory_choice import shown

BARS = "▁▂▃▄▅▆▇█"
LOSSES = 24
"""How many of the last losses are drawn."""

PERIOD = 600.0
"""Seconds of reports by which the time that is left is estimated: steps may take minutes."""

PER_SECOND = 4
"""How often a terminal is drawn anew at most."""

BAR, SHORT_BAR = 40, 5
"""Columns of the bar at most, and at least: where there are fewer it is left out."""


class Pair(NamedTuple):
    """A name with its value, in forms from the longest to the shortest. Where a line is too narrow
    the pair of the highest rank is shortened first, and then left out."""

    rank: int
    forms: tuple[str, ...]


class View(RenderHook):
    """A bar, and what the last report said. Other lines printed to the console stand above it.

    validation, training: the losses of earlier starts of the run, each with its step.
    """

    def __init__(
        self,
        console: Console,
        steps: int,
        done: int,
        validation: Sequence[Sequence[float]] = (),
        training: Sequence[Sequence[float]] = (),
    ) -> None:
        self._console, self._steps, self._done = console, steps, done
        self._losses: deque[float] = deque((loss for _, loss in training), maxlen=LOSSES)
        self._validation = [loss for _, loss in validation]
        # Only its estimate of the time that is left is used: it knows no width to keep to.
        self._bar = Progress(console=console, speed_estimate_period=PERIOD)
        self._task = self._bar.add_task("train", total=steps, completed=done)
        if done >= steps:
            self._bar.update(self._task)  # or it would estimate the time that is left
        self._last: listener.Progress | None = None
        self._widths: list[int] = []
        self._draws = _can_say(console, BARS)
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                self,
                console=console,
                refresh_per_second=PER_SECOND,
                # Warnings stand above the view; those that go to a file stay there.
                redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
            )

    def start(self) -> None:
        """Begin to draw, where there is a terminal."""
        if self._live is not None:
            # Before Live adds its own hook: that is the one it takes away when it stops.
            self._console.push_render_hook(self)
            self._live.start()

    def stop(self) -> None:
        """Draw the last state, and give the cursor back."""
        if self._live is not None and self._live.is_started:
            self._live.stop()
            self._console.pop_render_hook()

    def report(self, progress: listener.Progress) -> None:
        """Show what a report says; where there is no terminal, print it as one line."""
        if self._live is None:
            line = "  ".join([f"step {progress.step}/{self._steps}", *said(progress)])
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        self._losses.append(progress.loss)
        self._last = progress
        self._bar.update(self._task, completed=progress.step)

    def validated(self, loss: float) -> None:
        """Show a validation loss beside the best one so far."""
        self._validation.append(loss)

    def lines(self, width: int) -> list[str]:
        """What stands below the bar, in lines of at most so many columns."""
        if self._last is not None:
            pairs = self._pairs(self._last)
        elif self._done >= self._steps:
            pairs = self._finished()
        else:
            pairs = [[Pair(0, ("compiling",))]]
        return [row for row in (fitted(row, width) for row in pairs) if row]

    def _finished(self) -> list[list[Pair]]:
        said = finished(self._done, self._losses)
        return [
            [*(Pair(rank, (words,)) for rank, words in enumerate(said)), *self._drawn_losses()],
            [Pair(0, _best_of(self._validation))],
        ]

    def _drawn_losses(self) -> list[Pair]:
        line = sparkline(self._losses) if self._draws else ""
        return [Pair(2, tuple(line[-n:] for n in (LOSSES, LOSSES // 2) if line))]

    def _pairs(self, last: listener.Progress) -> list[list[Pair]]:
        words = learned(last)
        return [
            [
                Pair(1, (f"step {last.step}/{self._steps}",)),
                Pair(0, (words["loss"],)),
                *self._drawn_losses(),
            ],
            [
                Pair(0, _best_of(self._validation)),
                Pair(1, (words.get("norm", ""),)),
                Pair(2, (words["rate"],)),
            ],
            [
                Pair(0, (speed(last),)),
                Pair(2, utilisation(last)),
                Pair(1, memory(last)),
            ],
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        try:
            drawn = list(self._drawn(console, options))
        except Exception as error:  # the training that is shown matters more than its picture
            drawn = [Text(f"the view cannot be drawn: {error!r}")]
        yield from drawn

    def _drawn(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One column less than there are: a full line is wrapped early by some terminals.
        width = max(1, options.max_width - 1)
        lines = self.lines(width)[: max(0, console.height - 2)]
        task = self._bar.tasks[0]
        left = _clock(task.time_remaining)
        pairs = [Pair(0, (f"{task.percentage:3.0f}%",)), Pair(1, (f"time left {left}", left))]
        name = "train "
        beside = len(name) + len("  ")
        told = fitted(pairs, width - beside - SHORT_BAR)
        room = min(BAR, width - beside - len(told)) if told else 0
        told = told or fitted(pairs, width)
        self._widths = [len(told), *map(len, lines)]
        if room:
            self._widths[0] += beside + room
            yield Text(name, end="")
            bar = ProgressBar(total=self._steps, completed=task.completed, width=room)
            yield from console.render(bar, options)
            yield Text("  ", end="")
        yield Text(told)
        for line in lines:
            yield Text(line)

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Rich goes up as many rows as were drawn; a terminal that became narrower has broken
        them into more, which are erased here."""
        more = broken(self._widths, self._console.width)
        if not more or not _reflows(os.environ):
            return renderables
        steps = ((ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)) * more
        return [Control(*steps), *renderables]


def broken(widths: Sequence[int], columns: int) -> int:
    """How many rows more than lines there are where the lines' widths are broken at `columns`.

    >>> broken([70, 30, 0], 40)
    1
    """
    return sum(max(0, -(-width // max(1, columns)) - 1) for width in widths)


def _reflows(environment: Mapping[str, str]) -> bool:
    """Whether the terminal breaks long lines anew when it becomes narrower, as nearly all do; the
    others cut them off."""
    if "TMUX" in environment:
        return True
    cuts = "XTERM_VERSION" in environment or "STY" in environment  # xterm and GNU screen
    return not cuts and environment.get("TERM") != "linux"


def fitted(pairs: Sequence[Pair], width: int) -> str:
    """The pairs as one line of at most `width` columns: an empty one where there are none.

    >>> fitted([Pair(0, ("loss 2.31",)), Pair(1, ("rate 1e-3",))], 15)
    'loss 2.31'
    """
    width = max(width, 0)
    left = [(rank, [form for form in forms if form]) for rank, forms in pairs]
    while len(line := "  ".join(forms[0] for _, forms in left if forms)) > width:
        max((rank, forms) for rank, forms in left if forms)[1].pop(0)
    return line


def said(p: listener.Progress) -> list[str]:
    """A report in words: what is learned, and what that takes."""
    forms = [(speed(p),), utilisation(p), memory(p)]
    return [*learned(p).values(), *(form[0] for form in forms if form)]


def finished(step: int, losses: Sequence[float]) -> list[str]:
    """What there is to say of a run without a step that is left.

    >>> finished(80, [2.5, 2.25])
    ['finished at step 80', 'loss 2.250']
    """
    return [f"finished at step {step}", *(f"loss {loss:.3f}" for loss in list(losses)[-1:])]


def learned(p: listener.Progress) -> dict[str, str]:
    """What a report says of the loss and of what changes it, in words."""
    words = {"loss": f"loss {p.loss:.3f}"}
    if math.isfinite(p.gradient_norm):
        words["norm"] = f"gradient norm {p.gradient_norm:.3g}"
    return words | {"rate": f"rate {p.learning_rate:.1e}"}


def speed(p: listener.Progress) -> str:
    """How many tokens go through the model in a second."""
    return f"{p.tokens_per_second:,.0f} tok/s"


def utilisation(p: listener.Progress) -> tuple[str, ...]:
    """The share of what the machine can do."""
    short = f"{p.utilisation:.1%} of peak"
    return (f"{p.utilisation:.1%} of {p.unit} peak", short) if p.unit else (short,)


def memory(p: listener.Progress) -> tuple[str, ...]:
    """What the process holds, and what was predicted of that; in forms that become shorter."""
    if not p.resident:
        return ()
    held = f"memory {shown(p.resident)}"
    if p.predicted is None:
        return (held,)
    whole = f"{held} of {shown(p.predicted)}"
    return f"{whole} predicted", whole, held


def _best_of(losses: Sequence[float]) -> tuple[str, ...]:
    if not losses:
        return ()
    last = f"validation loss {losses[-1]:.3f}"
    return f"{last}, best {min(losses):.3f}", last


def _clock(seconds: float | None) -> str:
    """Seconds as people read a clock: "01:12", "1:01:12"."""
    if seconds is None:
        return "--:--"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def sparkline(values: Sequence[float]) -> str:
    """Values as bars from the least to the greatest; spaces for those that are not finite.

    >>> sparkline([3.0, 2.0, 1.0, 1.5])
    '█▅▁▃'
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        BARS[round((value - low) * scale)] if math.isfinite(value) else " " for value in values
    )


def _can_say(console: Console, text: str) -> bool:
    try:
        text.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
