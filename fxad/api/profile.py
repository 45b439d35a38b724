"""`profile`: where a compiled function spends its time, kernel by kernel.

report = fxad.profile(step, w, x)
print(report)                     # a table, the dearest kernel first
report.to_chrome("trace.json")    # for chrome://tracing or Perfetto, with the table's columns
report.to_roofline("roof.svg")    # speed over operations per byte
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.analysis.unfused_updates import UnfusedUpdate, unfused_updates
from fxad.api import compiled
from fxad.api.jit import Jit, jit
from fxad.api.machine import get_num_threads
from fxad.api.roofline import Dot, draw
from fxad.compiler import native, simplified
from fxad.core.errors import BadArgument
from fxad.core.record import valued
from fxad.core.views import html_of
from fxad.ir.cost import cost
from fxad.ir.digest import kernel_key
from fxad.ir.plan import Host, Plan, Run, Step
from fxad.ir.program import OPS
from fxad.trace.array import Concrete
from fxad.trace.execute import concrete
from fxad.trace.tracer import Tracer, staging

if TYPE_CHECKING:
    from fxad.compiler import NativeExecutable


@valued
class KernelProfile:
    """What one kernel (or all copies, or one Python function) cost in one run of the program.

    Kernels of the same machine code are one: the twelve layers of a model have one row. seconds: of
    all its calls together, the median of the runs; flops, bytes: likewise of all calls. unit: what
    of the processor computes it: float32, float64, bf16 pairs or AMX. roofline: the larger of its
    shares of what that unit does on registers alone and of the memory ceiling, both measured; data
    in a cache can go beyond 1. where: equations and lines of all its calls, each once.
    """

    name: str
    calls: int
    seconds: float
    share: float
    flops: int
    bytes: int
    unit: str
    roofline: float
    where: tuple[str, ...]

    @property
    def gflops(self) -> float:
        """Billions of floating-point operations per second."""
        return _rate(self.flops, self.seconds)

    @property
    def gbytes(self) -> float:
        """Billions of bytes per second."""
        return _rate(self.bytes, self.seconds)


@valued
class Event:
    """One call in the last run: when it began, in seconds from the run's beginning, how long it
    took, its operations and bytes, the unit that did them, and the equations and lines it came
    from."""

    name: str
    start: float
    seconds: float
    flops: int
    bytes: int
    unit: str
    where: tuple[str, ...]


@valued
class Profile:
    """kernels, the dearest first; result: what the function returned; seconds: all kernels
    together; run_seconds: the program run as one native call; peaks: GFLOP/s of the units in use,
    measured by multiply-adds on registers alone, and transfer: GB/s of a large copy, both with the
    present number of threads; events: of the last run; notes: what keeps the program from running
    faster, as far as is known."""

    kernels: tuple[KernelProfile, ...]
    result: Any
    seconds: float
    run_seconds: float
    peaks: dict[str, float]
    transfer: float
    events: tuple[Event, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        head = (
            "time ms",
            "share",
            "calls",
            "GFLOP/s",
            "GB/s",
            "roofline",
            "unit",
            "kernel",
            "from",
        )
        rows = [head, *map(_row, self.kernels)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        lines = []
        for row in rows:
            numbers = [cell.rjust(w) for cell, w in zip(row[:6], widths, strict=False)]
            words = [row[6].ljust(widths[6]), row[7].ljust(widths[7])]
            lines.append("  ".join([*numbers, *words, row[8]]).rstrip())
        peaks = ", ".join(f"{unit} {peak:.0f} GFLOP/s" for unit, peak in self.peaks.items())
        lines.append(
            f"{self.seconds * 1e3:.3f} ms in {sum(k.calls for k in self.kernels)} calls; as one "
            f"native call {self.run_seconds * 1e3:.3f} ms; ceilings {peaks}, "
            f"{self.transfer:.1f} GB/s"
        )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    _repr_html_ = html_of("profile")

    def to_chrome(self, path: str | Path) -> None:
        """Write the last run's events as a Chrome trace (JSON, times in microseconds); a click on
        one shows its GFLOP/s, GB/s, share of the roofline, equations and lines."""
        events = [
            {"name": e.name, "ph": "X", "ts": e.start * 1e6, "dur": e.seconds * 1e6}
            | {"pid": 0, "tid": 0, "args": self._shown(e)}
            for e in self.events
        ]
        json = importlib.import_module("json")  # not worth its time in every `import fxad`
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))

    def _shown(self, event: Event) -> dict[str, Any]:
        flops, moved = _rate(event.flops, event.seconds), _rate(event.bytes, event.seconds)
        return {
            "GFLOP/s": round(flops, 1),
            "GB/s": round(moved, 1),
            "unit": event.unit,
            "roofline": f"{_share(flops, moved, self.peaks[event.unit], self.transfer):.0%}",
            "from": list(event.where),
        }

    def to_roofline(self, path: str | Path) -> None:
        """Draw the kernels beneath the machine's ceilings, as .svg, .png or .pdf (matplotlib).

        Raises BadArgument for another ending, or without matplotlib (`pip install 'fxad[plots]'`).
        """
        dots = [
            Dot(", ".join([k.name, *k.where[:1]]), k.flops / k.bytes, k.gflops, k.share)
            for k in self.kernels
            if k.flops and k.bytes
        ]
        draw(dots, self.peaks, self.transfer, Path(path))


def _row(kernel: KernelProfile) -> tuple[str, ...]:
    more = f" (+{len(kernel.where) - 1} more)" if len(kernel.where) > 1 else ""
    return (
        f"{kernel.seconds * 1e3:.3f}",
        f"{kernel.share:.0%}",
        str(kernel.calls),
        f"{kernel.gflops:.1f}",
        f"{kernel.gbytes:.1f}",
        f"{kernel.roofline:.0%}",
        kernel.unit,
        kernel.name,
        (kernel.where[0] if kernel.where else "") + more,
    )


def profile(function: Callable[..., Any], *args: Any, repeats: int = 5, **kwargs: Any) -> Profile:
    """Run `function(*args, **kwargs)` compiled, `repeats` times, kernel by kernel.

    The result has the bits of a normal run. A program that calls Python functions runs once, so
    that their effects happen once. Donated arguments are copied and stay usable. A call from
    Python adds a few microseconds to each kernel. Raises BadArgument inside another
    transformation.

    >>> found = fxad.profile(lambda x: x @ x, jnp.ones((64, 64)), repeats=2)
    >>> len(found.kernels)
    1
    """
    if repeats < 1:
        raise BadArgument(f"profile: repeats must be at least 1, not {repeats}")
    jitted = function if isinstance(function, Jit) else jit(function)
    leaves, trace = jitted.trace_for(args, kwargs)
    operands = [*trace.captured, *leaves]
    if staging() or any(isinstance(v, Tracer) for v in operands):
        raise BadArgument("profile measures a run, so it cannot be used inside jit, grad or vmap")
    arrays = [concrete(v) for v in operands]
    executable = compiled.executable(trace.program, trace.donate)
    profiler = native().profiler(executable)
    once = bool(executable.hosts)
    if not once:
        profiler.run(arrays)  # compiles the single steps and touches the memory
    runs = [profiler.run(arrays) for _ in range(1 if once else repeats)]
    whole = runs[0].seconds if once else _whole(executable, arrays, trace.donate, repeats)
    units: dict[Step, str] = {step: _unit(step) for run in runs for step, _, _ in run.events}
    peaks, transfer = _ceilings(["float32", *sorted({*units.values()})])
    names: dict[Step, str] = {
        step: _name(step, executable.hosts) for run in runs for step, _, _ in run.events
    }
    kernels = _kernels([run.events for run in runs], names, units, peaks, transfer)
    values = Concrete.of_all(runs[-1].results, trace.types, trace.weak)
    return Profile(
        kernels=kernels,
        result=trace.out_tree.unflatten(values),
        seconds=sum(k.seconds for k in kernels),
        run_seconds=whole,
        peaks=peaks,
        transfer=transfer,
        events=_events(runs[-1].events, names, units),
        notes=tuple(map(_note, unfused_updates(simplified(trace.program)))),
    )


def _note(update: UnfusedUpdate) -> str:
    return (
        f"{update.count} gradients ({update.nbytes / 1e6:,.1f} MB) are stored before their "
        f"updates, which {update.why} keeps from being done as the products are computed: it reads "
        "all of them first, as clipping by a global norm does"
    )


def _name(step: Step, by_python: Sequence[Host]) -> str:
    match step:
        case Run():
            return step.kernel.name
        case Host():
            return f"python {step.name}" if step in by_python else step.name
    return "copy"


def _unit(step: Step) -> str:
    """What of the processor computes a step."""
    return native().unit_of(step.kernel) if isinstance(step, Run) else "float32"


def _kernels(
    runs: Sequence[Sequence[tuple[Step, float, float]]],
    names: Mapping[Step, str],
    units: Mapping[Step, str],
    peaks: Mapping[str, float],
    transfer: float,
) -> tuple[KernelProfile, ...]:
    """Events of several runs by machine code; copies count as one kernel."""
    steps: dict[str, list[Step]] = {}
    times: dict[str, list[float]] = {}
    keys: dict[Step, str] = {}
    for number, events in enumerate(runs):
        for step, _, took in events:
            if step not in keys:
                code = kernel_key(step.kernel) if isinstance(step, Run) else ""
                keys[step] = f"{names[step]} {code}"
            key = keys[step]
            times.setdefault(key, [0.0] * len(runs))[number] += took
            if number == 0:
                steps.setdefault(key, []).append(step)
    seconds = {key: float(np.median(took)) for key, took in times.items()}
    total = sum(seconds.values()) or 1.0
    found = []
    for key, calls in steps.items():
        flops, moved = _work(*calls)
        took, unit = seconds[key], units[calls[0]]
        found.append(
            KernelProfile(
                name=names[calls[0]],
                calls=len(calls),
                seconds=took,
                share=took / total,
                flops=flops,
                bytes=moved,
                unit=unit,
                roofline=_share(_rate(flops, took), _rate(moved, took), peaks[unit], transfer),
                where=_where(calls),
            )
        )
    return tuple(sorted(found, key=lambda k: -k.seconds))


def _where(calls: Sequence[Step]) -> tuple[str, ...]:
    lines = [line for step in calls if isinstance(step, Run) for line in step.kernel.where]
    return tuple(dict.fromkeys(lines))


def _events(
    timed: Sequence[tuple[Step, float, float]],
    names: Mapping[Step, str],
    units: Mapping[Step, str],
) -> tuple[Event, ...]:
    work = {step: _work(step) for step, _, _ in timed}
    return tuple(
        [Event(names[s], at, took, *work[s], units[s], _where([s])) for s, at, took in timed]
    )


def _work(*steps: Step) -> tuple[int, int]:
    """Operations and bytes of some steps."""
    found = cost(Plan((), steps, (), (), 0, {}))
    return found["flops"], found["bytes"]


def _share(flops: float, moved: float, peak: float, transfer: float) -> float:
    """Of the roofline: the larger of two shares of what the machine does in a second."""
    return max(flops / peak, moved / transfer)


def _rate(amount: float, seconds: float) -> float:
    return amount / max(seconds, 1e-9) / 1e9


def _whole(
    executable: NativeExecutable, arrays: list[np.ndarray], donate: frozenset[int], repeats: int
) -> float:
    """Seconds of the program as one native call."""
    times = []
    for _ in range(repeats):
        given = [np.array(a, order="C") if i in donate else a for i, a in enumerate(arrays)]
        begin = time.perf_counter()
        executable.run(given)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


_seen: dict[tuple[str, int], float] = {}  # a busy machine shows less than it can do


def _ceilings(units: Sequence[str]) -> tuple[dict[str, float], float]:
    """GFLOP/s of units on registers alone, and GB/s of negating 64 MB: the best that any profile of
    this process has seen on so many threads."""
    threads = get_num_threads()
    long = np.ones(1 << 24, np.float32)
    found = {unit: native().peak(unit, threads) for unit in dict.fromkeys(units)}
    found["memory"] = 2 * long.nbytes / _best(_negation(), long) / 1e9
    for name, rate in found.items():
        found[name] = _seen[name, threads] = max(rate, _seen.get((name, threads), 0.0))
    transfer = found.pop("memory")
    return found, transfer


@functools.cache
def _negation() -> Jit:
    return jit(lambda x: OPS["neg"](x))


def _best(function: Callable[..., Any], *args: np.ndarray) -> float:
    """Seconds of the fastest of a few calls."""
    function(*args)
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - begin)
    return min(times)
