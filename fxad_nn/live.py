"""What is shown of a run while it goes on: in place on a terminal, as plain lines elsewhere.

view = View(console, steps=2000, done=0)
view.start()
view.report(progress)           # a bar, and below it loss, gradient's norm, speed, memory
view.stop()                     # the last state stays; the cursor is back

train ━━━━━━━╸━━━━━━━━━━━  21%  time left 01:12
step 430/2000  loss 2.314 █▇▆▅▄▃▃▂▁  gradient norm 0.83  rate 9.4e-04
12,345 tok/s  48.0% of peak  memory 0.4 GiB
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
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


class View:
    """A bar, and what the last report said. Other lines printed to the console stand above it."""

    def __init__(self, console: Console, steps: int, done: int) -> None:
        self._console, self._steps = console, steps
        self._losses: deque[float] = deque(maxlen=LOSSES)
        self._bar = Progress(
            TextColumn("train"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("time left"),
            TimeRemainingColumn(compact=True),
            console=console,
            speed_estimate_period=PERIOD,
        )
        self._task = self._bar.add_task("train", total=steps, completed=done)
        self._lines = [Text("compiling")]
        self._live: Live | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(
                self._drawn(),
                console=console,
                refresh_per_second=PER_SECOND,
                # Warnings stand above the view; those that go to a file stay there.
                redirect_stderr=sys.stderr is not None and sys.stderr.isatty(),
            )

    def start(self) -> None:
        """Begin to draw, where there is a terminal."""
        if self._live is not None:
            self._live.start()

    def stop(self) -> None:
        """Draw the last state, and give the cursor back."""
        if self._live is not None:
            self._live.stop()

    def report(self, progress: listener.Progress) -> None:
        """Show what a report says; where there is no terminal, print it as one line."""
        (loss, *others), second = said(progress)
        step = f"step {progress.step}/{self._steps}"
        if self._live is None:
            line = "  ".join([step, loss, *others, *second])
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            return
        self._losses.append(progress.loss)
        if _can_say(self._console, BARS):
            loss = f"{loss} {sparkline(self._losses)}"
        self._lines = [Text("  ".join([step, loss, *others])), Text("  ".join(second))]
        self._bar.update(self._task, completed=progress.step)
        self._live.update(self._drawn())

    def _drawn(self) -> Any:
        return Group(self._bar, *self._lines)


def said(p: listener.Progress) -> tuple[list[str], list[str]]:
    """A report in words: what is learned, and what that takes."""
    learned = [f"loss {p.loss:.3f}"]
    if math.isfinite(p.gradient_norm):
        learned.append(f"gradient norm {p.gradient_norm:.3g}")
    learned.append(f"rate {p.learning_rate:.1e}")
    taken = [f"{p.tokens_per_second:,.0f} tok/s", f"{p.utilisation:.1%} of peak"]
    if p.resident:
        of = "" if p.predicted is None else f" of {shown(p.predicted)}"
        taken.append(f"memory {shown(p.resident)}{of}")
    return learned, taken


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
