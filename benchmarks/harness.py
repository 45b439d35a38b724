"""What all benchmarks share: alternating runs, medians, the machine's ceilings, tables, JSON.

Figures are medians over rounds; in every round each contender runs once, in turn, so that drift of
the machine's speed hits all alike.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
REST = 0.1  # seconds between contenders with several threads: see `alternate`


def alternate(
    contenders: dict[str, Callable[[], Any]],
    rounds: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
    woken: bool = True,
) -> dict[str, list[float]]:
    """Seconds per call of every contender, `rounds` times each, in turn.

    clock: time.process_time counts the processor's time, which other programs do not take from.
    pause: seconds before each call, in which the threads of the contender before fall asleep:
    OpenMP's and JAX's spin for up to 30 ms after their work, on cores that the next one needs.
    woken: after a pause, a call that is not counted wakes this one's own.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(warmup + rounds):
        for name, run in contenders.items():
            if pause:
                time.sleep(pause)
                if woken:
                    run()
            start = clock()
            run()
            if number >= warmup:
                times[name].append(clock() - start)
    return times


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, minimum and maximum in milliseconds."""
    scaled = [1e3 * s for s in seconds]
    return {"median": statistics.median(scaled), "min": min(scaled), "max": max(scaled)}


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over rounds of theirs / ours: above 1 means we are faster."""
    return statistics.median(t / o for o, t in zip(ours, theirs, strict=True))


def row(what: str, seconds: dict[str, list[float]], unit: str = "ms", calls: int = 1) -> Row:
    """One line of the summary: every contender's fastest time, `fxad` first.

    seconds: of runs of `calls` calls each. `ahead`: the fastest peer's time in ours.
    """
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit] / calls
    best = {name: scale * min(times) for name, times in seconds.items()}
    peers = [time for name, time in best.items() if name != "fxad"]
    made: Row = {"what": what, "unit": unit, **best}
    if "fxad" in best and peers:
        made["ahead"] = min(peers) / best["fxad"]
    return made


def beside(made: Row, name: str, time: float) -> Row:
    """A row with one more contender's fastest time, in the row's unit."""
    if "fxad" not in made:  # a benchmark that failed
        return made
    ahead = min(time / made["fxad"], made.get("ahead", float("inf")))
    return made | {name: time, "ahead": ahead}


def repeated(function: Callable[[], Any], calls: int) -> Callable[[], None]:
    """A run of several calls, for what is too short for the clock."""

    def run() -> None:
        for _ in range(calls):
            function()

    return run


def installed(peers: Sequence[str]) -> list[str]:
    """Those of the named packages (`torch-compile` is one of torch's ways) that this Python has."""
    packages = {name: name.partition("-")[0] for name in peers}
    return [name for name in peers if importlib.util.find_spec(packages[name]) is not None]


def command_ms(command: str) -> float:
    """Milliseconds per step that a command says: the last number it prints.

    Raises ValueError, with the end of what it said, if it fails or prints none.
    """
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or "nothing printed"
        raise ValueError(f"{command!r} ended with status {done.returncode}: {said[-200:]}")
    numbers = re.findall(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?", done.stdout)
    if not numbers:
        raise ValueError(f"{command!r} printed no number: {done.stdout[-200:]!r}")
    return float(numbers[-1])


def triad_ceiling(elements: int = 1 << 24, rounds: int = 5) -> float:
    """GB/s of a += b over arrays much larger than the caches (24 bytes moved per 2 elements)."""
    a, b = np.zeros(elements, np.float32), np.ones(elements, np.float32)
    times = alternate({"triad": lambda: np.add(a, b, out=a)}, rounds)["triad"]
    return 12 * elements / min(times) / 1e9


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says counts the process that started this one
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) / 1024
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


def table(rows: list[Row]) -> str:
    """Rows as a Markdown table; a row may lack columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.get(name, "") for name in columns]
        lines.append("| " + " | ".join(map(_shown, cells)) + " |")
    return "\n".join(lines)


def tables(rows: list[Row]) -> str:
    """A table for the rows of each benchmark: their columns differ."""
    parts: dict[str, list[Row]] = {}
    for each in rows:
        rest = {name: value for name, value in each.items() if name != "benchmark"}
        parts.setdefault(each.get("benchmark", ""), []).append(rest)
    return "\n".join(
        (f"\n{name}\n\n" if name else "") + table(part) for name, part in parts.items()
    )


def _shown(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def report(name: str, rows: list[dict[str, Any]], path: str | None = None) -> None:
    """Print the table with machine and command; write JSON where asked. name: the benchmark's
    module, "" for all of them."""
    about = machine()
    module = f"benchmarks.{name}" if name else "benchmarks"
    print(f"\n{module} - {about['processor']}, {about['cores']} cores, {about['date']}")
    print("command: python " + shlex.join(["-m", module, *sys.argv[1:]]))
    print(tables(rows))
    if path:
        Path(path).write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
