"""The loss curve of a run as a PNG.

draw_losses(run.history, Path("loss.png"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fxad_nn.errors import UserError
from fxad_nn.files import replacing
from fxad_nn.losses import History

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    Figure = FigureCanvasAgg = None  # type: ignore[assignment, misc]


def draw_losses(history: History, path: Path) -> None:
    """Training and validation loss over steps; UserError where matplotlib is not installed."""
    if Figure is None:
        raise UserError("the loss curve needs matplotlib: pip install 'fxad[nn]'")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    _line(axes, history["train"], "training", linewidth=1)
    _line(axes, history["val"], "validation", marker="o", markersize=4)
    axes.set(xlabel="step", ylabel="loss (nats per token)")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend()
    with replacing(path) as temporary:
        FigureCanvasAgg(figure).print_png(str(temporary))


def _line(axes: Any, points: list[list[float]], label: str, **style: Any) -> None:
    if points:
        steps, losses = zip(*points, strict=True)
        axes.plot(steps, losses, label=label, **style)
