"""The summary table as pictures: how far ahead of the best peer, one PNG per benchmark.

draw(rows, Path("pictures"))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Row

try:
    from matplotlib.figure import Figure
except ImportError:
    Figure = None  # type: ignore[assignment, misc]


def draw(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Bars of every row's `ahead`, the rows of one benchmark in one picture; files written.

    Benchmarks that no peer took part in have none. Raises SystemExit without matplotlib.
    """
    if Figure is None:
        raise SystemExit("--plots needs matplotlib: pip install 'fxad[plots]'")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in dict.fromkeys(row["benchmark"] for row in rows):
        shown = [row for row in rows if row["benchmark"] == name and "ahead" in row]
        if shown:
            written.append(folder / f"{name}.png")
            _figure(name, shown).savefig(written[-1])
    return written


def _figure(name: str, rows: Sequence[Row]) -> Figure:
    figure = Figure(figsize=(8, 1 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    labels = [" ".join(str(row[key]) for key in ("what", "size") if key in row) for row in rows]
    ahead = [math.log2(row["ahead"]) for row in rows]
    bars = axes.barh(range(len(rows)), ahead, color=["C0" if a >= 0 else "C3" for a in ahead])
    axes.bar_label(bars, [f"{row['ahead']:.2f}" for row in rows], padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.axvline(0, color="black", linewidth=1)
    axes.xaxis.set_major_formatter(lambda x, _: f"{2**x:g}" if x == round(x) else "")
    axes.set(title=name, xlabel="times as fast as the best peer")
    return figure
