"""The picture on the README's first screen, made from the guard's results: how many times PyTorch's
speed, by kind of work and of processor. `docs/generate.py` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).parent / "speed.svg"
FUNCTIONS = ("exp", "tanh", "erf", "log", "sin", "power")
WORK = {  # what the picture calls them: the guard's cases
    "training step, float32": ("step * f32",),
    "training step, bf16": ("step * bf16",),
    "generation, float32": ("token *float32",),
    "generation, bf16": ("token *bfloat16",),
    "products, float32": ("product *float32",),
    "attention, with backward": ("attention *backward",),
    "exp, tanh, log, sin, ...": tuple(f"{name}, float32" for name in FUNCTIONS),
}
COLOURS = ("#2f6fb0", "#79b4e0", "#e08a3c", "#7a9c3a")
TEXT = "#808080"  # reads on white and on black
LEFT, SCALE, BAR, GAP, TOP = 190, 72, 9, 10, 44  # SCALE: pixels of PyTorch's speed
MOST = 8.0  # times; longer bars end here and say how much


def svg(kinds: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """kinds: what a processor is called, and the rows of its newest run."""
    shown = {name: rows for name, rows in kinds.items() if any("torch" in _peers(r) for r in rows)}
    parts, y = [], TOP
    for work, patterns in WORK.items():
        parts.append(_text(LEFT - 8, y + len(shown) * BAR / 2 + 4, work, "end"))
        for (_, rows), colour in zip(shown.items(), COLOURS, strict=False):
            times = _times(rows, patterns)
            if times is not None:
                parts += _bar(y, times, colour)
            y += BAR
        y += GAP
    width, height = LEFT + int(MOST * SCALE) + 50, y + 8
    line = f'<line x1="{LEFT + SCALE}" x2="{LEFT + SCALE}" y1="{TOP - 8}" y2="{y}" stroke="{TEXT}" '
    parts.append(f'{line}stroke-dasharray="3 3"/>')
    parts.append(_text(LEFT + SCALE, TOP - 12, "PyTorch", "middle"))
    parts += _legend(list(shown))
    title = "How many times PyTorch's speed, two threads, by kind of work and processor"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    head += f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f"<title>{title}</title>", *parts, "</svg>", ""])


def _peers(row: Mapping[str, Any]) -> Mapping[str, float]:
    return row.get("peers", {})


def _times(rows: Sequence[Mapping[str, Any]], patterns: Sequence[str]) -> float | None:
    """The median of the cases' speedups over PyTorch."""
    found = [
        _peers(row)["torch"]
        for row in rows
        if "torch" in _peers(row) and any(fnmatch(row["case"], p) for p in patterns)
    ]
    return median(found) if found else None


def _bar(y: int, times: float, colour: str) -> list[str]:
    length = min(times, MOST) * SCALE
    bar = f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR - 1}" fill="{colour}"/>'
    return [bar, _text(LEFT + length + 4, y + BAR - 1, f"{times:.1f}", "start", 9)]


def _legend(names: Sequence[str]) -> list[str]:
    parts, x = [], LEFT
    for name, colour in zip(names, COLOURS, strict=False):
        parts.append(f'<rect x="{x}" y="6" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, 15, name, "start"))
        x += 30 + 7 * len(name)
    return parts


def _text(x: float, y: float, text: str, anchor: str, size: int = 12) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="{size}"'
    return f'<text {place} fill="{TEXT}">{text}</text>'
