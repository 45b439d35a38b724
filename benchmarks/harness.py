"""What all benchmarks share: alternating runs, medians, the machine's ceilings, tables, JSON.

Figures are medians over rounds; in every round each contender runs once, in turn, so that drift of
the machine's speed hits all alike.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def alternate(
    contenders: dict[str, Callable[[], Any]], rounds: int, warmup: int = 1
) -> dict[str, list[float]]:
    """Seconds per call of every contender, `rounds` times each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warmup + rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if number >= warmup:
                times[name].append(time.perf_counter() - start)
    return times


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, minimum and maximum in milliseconds."""
    scaled = [1e3 * s for s in seconds]
    return {"median": statistics.median(scaled), "min": min(scaled), "max": max(scaled)}


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over rounds of theirs / ours: above 1 means we are faster."""
    return statistics.median(t / o for o, t in zip(ours, theirs, strict=True))


def matmul_ceiling(size: int = 1024, rounds: int = 5) -> float:
    """GFLOP/s of NumPy's float32 matrix product: a floor of the machine's peak, same threads."""
    a = np.random.default_rng(0).standard_normal((size, size), np.float32)
    out = np.empty_like(a)
    times = alternate({"product": lambda: np.matmul(a, a, out=out)}, rounds)["product"]
    return 2 * size**3 / min(times) / 1e9


def triad_ceiling(elements: int = 1 << 24, rounds: int = 5) -> float:
    """GB/s of a += b over arrays much larger than the caches (24 bytes moved per 2 elements)."""
    a, b = np.zeros(elements, np.float32), np.ones(elements, np.float32)
    times = alternate({"triad": lambda: np.add(a, b, out=a)}, rounds)["triad"]
    return 12 * elements / min(times) / 1e9


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def machine() -> dict[str, Any]:
    """Processor, cores this process may use, Python and NumPy."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as a Markdown table."""
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [f"{v:.1f}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def report(name: str, rows: list[dict[str, Any]], path: str | None = None) -> None:
    """Print the table with machine and command; write JSON where asked."""
    about = machine()
    print(f"\n{name} - {about['processor']}, {about['cores']} cores, {about['date']}")
    print("command: python " + " ".join(["-m", f"benchmarks.{name}", *sys.argv[1:]]))
    print(table(rows))
    if path:
        Path(path).write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
