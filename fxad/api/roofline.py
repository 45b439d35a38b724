"""The roofline plot of a profile: speed over operations per byte, beneath what the machine can do.

draw([Dot("exp_sum", 0.25, 12.0, 0.9)], {"float32": 80.0}, 20.0, Path("roofline.svg"))

After Williams, Waterman and Patterson, "Roofline" (CACM 52(4), 2009).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fxad.core.errors import BadArgument
from fxad.core.record import record

LABELLED = 8  # kernels that the legend names
SEEN_FROM = 1e-3  # share of the time below which a kernel is left out
LARGEST = 600.0  # area in points^2 of a kernel that takes all the time
SUFFIXES = (".pdf", ".png", ".svg")


@record
class Dot:
    """A kernel: operations per byte, GFLOP/s, and its share of the time."""

    name: str
    intensity: float
    gflops: float
    share: float


def draw(dots: Sequence[Dot], peaks: Mapping[str, float], transfer: float, path: Path) -> None:
    """One dot per kernel that takes a thousandth of the time or more, its area the share.

    peaks: GFLOP/s by unit; transfer: GB/s. Raises BadArgument without matplotlib, or for a path
    that ends in none of SUFFIXES.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BadArgument("the roofline plot needs matplotlib: pip install 'fxad[plots]'") from None
    if path.suffix not in SUFFIXES:
        raise BadArgument(f"to_roofline: {path.name!r} should end in {', '.join(SUFFIXES)}")
    shown = [dot for dot in dots if dot.share >= SEEN_FROM]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    for number, dot in enumerate(shown):
        named = number < LABELLED
        axes.scatter(
            dot.intensity,
            dot.gflops,
            12 + LARGEST * dot.share,
            color=f"C{number}" if named else "lightgray",
            alpha=0.7,
            label=f"{dot.share:.0%} {dot.name}" if named else None,
        )
    compute = max(peaks.values())
    ridge = compute / transfer
    at = [dot.intensity for dot in shown]
    low, high = min([ridge / 8, *at]) / 2, max([ridge * 8, *at]) * 2
    axes.plot([low, ridge, high], [low * transfer, compute, compute], color="black", linewidth=1)
    for unit, peak in peaks.items():
        axes.plot([peak / transfer, high], [peak, peak], color="black", linewidth=1)
        axes.annotate(f"{unit} {peak:.0f} GFLOP/s", (high, peak), (-4, 4), ha="right", **_LABEL)
    axes.annotate(f"{transfer:.1f} GB/s", (low, low * transfer), (4, 8), **_LABEL)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")
    axes.grid(alpha=0.3)
    if shown:
        axes.legend(fontsize=7, loc="lower right", markerscale=0.5)
    figure.savefig(path)


_LABEL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
