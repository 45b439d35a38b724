"""`python -m fxad doctor`: what was detected of this machine, what was chosen for it and why.

print(diagnosis(measure=False))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from fxad.backend.llvm import calibrate, ceilings, measured
from fxad.backend.llvm.base import answers, kinds
from fxad.backend.llvm.base import tuning as tables
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Tuning
from fxad.backend.llvm.native import engine, entries
from fxad.backend.llvm.numerics import bits_depend_on
from fxad.core import cores
from fxad.core.config import config
from fxad.core.record import valued

_TURNS = 7
Section = tuple[str, list[tuple[str, str]]]


@valued
class Diagnosis:
    """Sections of (name, what is said of it)."""

    sections: tuple[Section, ...]

    def __str__(self) -> str:
        lines: list[str] = []
        for title, rows in self.sections:
            lines += ["", title] if lines else [title]
            wide = max((len(name) for name, _ in rows), default=0)
            lines += [f"  {name.ljust(wide)}  {said}" for name, said in rows]
        return "\n".join(lines)


def diagnosis(measure: bool = True) -> Diagnosis:
    """What this process detected and chose. measure: also what the machine can do at most and how
    near compiled kernels come, in about a second, on one thread."""
    sections = [_machine(), _chosen(), _bits(), _disk()]
    if measure:
        sections.append(_ceilings())
    return Diagnosis(tuple(sections))


def _machine() -> Section:
    kind = engine.host_kind()
    sizes = [f"{size >> 10} KiB" if size else "not known" for size in (kind.l1, kind.l2)]
    return (
        "machine",
        [
            ("kind", kind.name),
            ("instruction set", f"{kind.isa} {' '.join(kind.extras)}".strip()),
            ("caches of a core", f"first level {sizes[0]}, second {sizes[1]}"),
            ("cores", f"{cores.default_threads()} of {cores.logical_cores()} logical ones"),
            ("name", f"{engine.host_cpu_name()}, which nothing is chosen by"),
            ("compiler", engine.llvm_version()),
        ],
    )


def _chosen() -> Section:
    target, kind = measured.target_of(config.isa), engine.host_kind()
    rows = [("record", _why(target, kinds.known(kind)))]
    rows.append(("instructions ordered for", target.tuning.cpu or "the instruction set's own"))
    plain = {name: value for name, value, _ in tables.DEFAULT.items()}
    for_this = kinds.for_cores(tables.DEFAULT, cores.default_threads())
    by_cores = {name for name, value, _ in for_this.items() if value != plain[name]}
    for name, value, where in target.tuning.items():
        if value != plain[name]:
            why = "as many as there are cores" if name in by_cores else where
            rows.append((name, f"{value} instead of {plain[name]}: {why}"))
    rows += [("calibration", str(answer)) for answer in measured.calibrated()]
    if (found := measured.calibration()) and found.unanswered:
        rows.append(("calibration", _unanswered(found)))
    tiles = target.choices.items()
    told = f"{len(tiles)} classes of products, by fxad.tune" if tiles else "fxad.tune measures them"
    return "chosen for it", [*rows, ("measured tiles", told)]


def _unanswered(found: answers.Calibration) -> str:
    left = f"{found.unanswered} questions unanswered, the machine was too busy"
    if found.tries >= answers.TRIES:
        return f"{left} on {found.tries} days; fxad.tune() asks again"
    return f"{left}; they are asked again on another day, or by fxad.tune()"


def _why(target: Target, record: Tuning | None) -> str:
    if config.isa:
        return f"{target.tuning.name}, for the instruction set {config.isa} that was asked for"
    if record is not None and target.tuning.name == record.name:
        return f"{record.name}: its features and caches are of that kind"
    if target.tuning.name == "calibrated":
        return "calibrated: measured on this machine, see below; the rest are safe choices"
    if config.cache and config.calibrate:
        return f"{target.tuning.name}: a kind that was never measured; calibrating changed nothing"
    return f"{target.tuning.name}: a kind that was never measured, and calibration is off"


def _bits() -> Section:
    return "what bits depend on", list(bits_depend_on(measured.target_of(config.isa)).items())


def _disk() -> Section:
    if not config.cache:
        return "compiled code", [("cache", "off (FXAD_CACHE=0)")]
    return "compiled code", [("cache", str(entries.directory()))]


def _ceilings() -> Section:
    target = measured.target_of(config.isa)
    multiply, flops = ceilings.fma()
    read, size = ceilings.reading(1 << 24)
    square, row = (
        calibrate.call_of(calibrate.product(*shape), target)
        for shape in ((256, 768, 768), (1, 4096, 4096))
    )
    times = _alternate([multiply, square, read, row])
    peak, reached = flops / times[0], 2 * 256 * 768 * 768 / times[1]
    fast, here = size / times[2], 4 * 4096 * 4096 / times[3]
    rows = [
        ("multiply-adds", f"{peak * 1e-9:.0f} GFLOP/s of float32 on registers"),
        *_of_bf16(target),
        ("a product", f"{reached * 1e-9:.0f} GFLOP/s, {reached / peak:.0%} of that"),
        ("reading", f"{fast * 1e-9:.1f} GB/s from memory"),
        ("a product of one row", f"{here * 1e-9:.1f} GB/s, {here / fast:.0%} of that"),
    ]
    return "one thread now (other programs take their part)", rows


def _of_bf16(target: Target) -> list[tuple[str, str]]:
    """The peak of the unit for products of bf16, if there is one of its own."""
    unit = ceilings.unit_for("bfloat16", target)
    if unit == "float32":
        return []
    return [(unit, f"{ceilings.peak(unit, target, 1):.0f} GFLOP/s of bf16 on registers")]


def _alternate(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of the fastest of some calls each, in turns."""
    best = [float("inf")] * len(calls)
    for turn in range(_TURNS + 1):
        for n, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            if turn:
                best[n] = min(best[n], time.perf_counter() - begin)
    return best
