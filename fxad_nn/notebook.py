"""A curve of a run in a notebook, drawn anew while the run goes on.

    from fxad_nn.notebook import Curve
    from fxad_nn.train import train

    train(options, Curve())         # or finetune(options, Curve())

The picture is an SVG inside the notebook's own page: it needs no file, and stays when the run ends.
"""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from typing import Any

from fxad_nn.errors import UserError
from fxad_nn.listener import Listener, Progress
from fxad_nn.live import finished, said
from fxad_nn.run import Run

WIDTH, HEIGHT, MARGIN = 640, 240, 44
EVERY = 0.5
"""Seconds between two pictures at least."""

Point = tuple[float, float]
"""A step, and a loss."""


class Curve(Listener):
    """Training and validation losses over steps, with the last report above and messages below.

    Raises UserError where no notebook or IPython shows it.
    """

    def __init__(self) -> None:
        self._display = _display()
        self._train: list[Point] = []
        self._val: list[Point] = []
        self._title, self._notes = "compiling", list[str]()
        self._steps, self._drawn = 0, 0.0
        self._handle: Any = None

    def started(self, run: Run, parameters: int, peak: float) -> None:
        self._steps = run.options.steps
        self._train = [(step, loss) for step, loss in run.history["train"]]
        self._val = [(step, loss) for step, loss in run.history["val"]]
        if run.is_done:
            self._title = "  ".join(finished(run.step, [loss for _, loss in self._train]))
        self._handle = self._display(self, display_id=True)

    def progressed(self, progress: Progress) -> None:
        self._title = "  ".join([f"step {progress.step}/{self._steps}", *said(progress)])
        self._train.append((progress.step, progress.loss))
        self._draw(at_once=progress.step >= self._steps)

    def evaluated(self, step: int, loss: float) -> None:
        self._val.append((step, loss))
        self._draw(at_once=True)

    def saved(self, path: Any) -> None:
        self._notes = [note for note in self._notes if not note.startswith("saved ")]
        self._notes.append(f"saved {path}")
        self._draw(at_once=True)

    def warned(self, message: str) -> None:
        self._notes.append(f"warning: {message}")
        self._draw(at_once=True)

    def _draw(self, at_once: bool) -> None:
        now = time.monotonic()
        if self._handle is not None and (at_once or now - self._drawn >= EVERY):
            self._drawn = now
            self._handle.update(self)

    def _repr_html_(self) -> str:
        notes = "".join(f"<br>{html.escape(note)}" for note in self._notes)
        picture = svg(self._train, self._val, self._steps)
        return f"<div><code>{html.escape(self._title)}</code><br>{picture}{notes}</div>"


def svg(train: Sequence[Point], val: Sequence[Point], steps: int) -> str:
    """Losses over steps as an SVG: a line for training, a line with dots for validation."""
    losses = [loss for _, loss in [*train, *val] if loss == loss]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    pad = 0.05 * (high - low) or 0.5
    low, high = low - pad, high + pad
    last = max(steps, *(int(step) for step, _ in [*train, *val]), 1)
    across, up = WIDTH - 2 * MARGIN, HEIGHT - MARGIN

    def place(point: Point) -> str:
        x = MARGIN + across * point[0] / last
        return f"{x:.1f},{8 + (up - 8) * (high - point[1]) / (high - low):.1f}"

    parts = []
    for i in range(5):
        value = low + (high - low) * i / 4
        y = place((0, value)).split(",")[1]
        parts.append(
            f'<line x1="{MARGIN}" y1="{y}" x2="{MARGIN + across}" y2="{y}" stroke="#8884"/>'
            f'<text x="{MARGIN - 6}" y="{y}" text-anchor="end" dy="4">{value:.2f}</text>'
        )
    for step in sorted({0, last // 2, last}):
        x = place((step, low)).split(",")[0]
        parts.append(f'<text x="{x}" y="{up + 18}" text-anchor="middle">{step}</text>')
    for points, colour, name in ((train, "#1f77b4", "training"), (val, "#d95f02", "validation")):
        whole = [place(point) for point in points if point[1] == point[1]]
        if whole:
            parts.append(f'<polyline points="{" ".join(whole)}" fill="none" stroke="{colour}"/>')
        if points is val:
            parts += [
                f'<circle cx="{at.split(",")[0]}" cy="{at.split(",")[1]}" r="3" fill="{colour}"/>'
                for at in whole
            ]
        left = WIDTH - MARGIN - (160 if points is train else 80)
        parts.append(f'<text x="{left}" y="{HEIGHT - 6}" fill="{colour}">{name}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'font-family="sans-serif" font-size="11" fill="currentColor" role="img" '
        f'aria-label="losses over steps">{"".join(parts)}</svg>'
    )


def _display() -> Any:
    """What shows an object in this notebook and returns a handle to show another in its place."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError as error:
        raise UserError(
            "a curve is shown in a notebook, and IPython is not installed here; train and finetune "
            "without it print nothing, `python -m fxad_nn train` draws on the terminal"
        ) from error
    if get_ipython() is None:
        raise UserError("a curve is shown in a notebook; this is none: leave the listener out")
    return display
