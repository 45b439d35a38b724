"""A run as a picture: its losses, the norms of its gradients, and what it said last.

draw(run.history, Path("loss.png"), latest(Path("runs/nano-1")))
"""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fxad_nn.errors import UserError
from fxad_nn.files import replacing
from fxad_nn.losses import History
from fxad_nn.samples import Sample

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    Figure = FigureCanvasAgg = None  # type: ignore[assignment, misc]


WIDTH, MOST = 44, 320
"""Of a sample in the picture: letters of a line, and of the whole."""

WIDE = 20
"""By how many times norms differ that are drawn on a logarithmic scale."""


def draw(history: History, path: str | Path, samples: Sequence[Sample] = ()) -> None:
    """Training and validation loss over steps; below them the norm of the gradient, where the
    history has it; beside them samples.

    Raises UserError where matplotlib is not installed, OSError where the disk fails.
    """
    path = Path(path)
    if Figure is None:
        raise UserError("the loss curve needs matplotlib: pip install 'fxad[nn]'")
    rows, columns = 2 if history.get("norm") else 1, 2 if samples else 1
    figure = Figure(figsize=(7 + 4 * (columns - 1), 2.5 + 1.5 * rows), layout="constrained")
    grid = figure.add_gridspec(
        rows, columns, height_ratios=[2.5, 1.5][:rows], width_ratios=[7, 4][:columns]
    )
    axes = figure.add_subplot(grid[0, 0])
    _line(axes, history["train"], "training", linewidth=1)
    _line(axes, history["val"], "validation", marker="o", markersize=4)
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    if rows == 2:
        below = figure.add_subplot(grid[1, 0], sharex=axes)
        _line(below, history["norm"], "gradient norm", linewidth=1, color="tab:gray")
        norms = [norm for _, norm in history["norm"] if norm > 0]
        wide = bool(norms) and max(norms) > WIDE * min(norms)
        below.set(xlabel="step", ylabel="gradient norm", yscale="log" if wide else "linear")
        below.grid(alpha=0.3)
    if samples:
        beside = figure.add_subplot(grid[:, 1])
        beside.axis("off")
        style: dict[str, Any] = {
            "va": "top",
            "family": "monospace",
            "fontsize": 7,
            "parse_math": False,
        }
        beside.text(0, 1, _text(samples), **style)
    with replacing(path) as temporary, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font does not have
        FigureCanvasAgg(figure).print_png(str(temporary))


def _text(samples: Sequence[Sample]) -> str:
    """Samples one below the other: the end of the prompt, and what follows."""
    parts = []
    for sample in samples:
        said = f"{sample.prompt[-WIDTH:]} ▸ {sample.text}"[:MOST]
        visible = "".join(c if c.isprintable() else " " for c in said)
        parts.append("\n".join(textwrap.wrap(visible, WIDTH)))
    return "\n\n".join(parts)


def _line(axes: Any, points: list[list[float]], label: str, **style: Any) -> None:
    if points:
        steps, losses = zip(*points, strict=True)
        axes.plot(steps, losses, label=label, **style)
