"""Cases that take a process of their own: import, compilation, recall from the disk, memory.

    samples = paired(WHOLE["import"], base, tree, pairs=6)

Each process prints one number. Those of the two sides run one after the other, in ABBA order.
"""

from __future__ import annotations

import math
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.guard.models import Step
from benchmarks.guard.sides import Failed, Side
from benchmarks.guard.verdicts import ENOUGH


@dataclass(frozen=True)
class Whole:
    """code: Python that prints a number, of `unit`."""

    code: str
    unit: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, side: Side) -> float:
        """The number. Raises Failed."""
        done = subprocess.run(
            side.command("-c", self.code),
            capture_output=True,
            text=True,
            cwd=side.folder,
            env={**side.environment, **self.environment},
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
            raise Failed(f"{side.name}: {last}")
        return float(done.stdout.split()[-1])


def compile_seconds() -> float:
    """Of a training step, from shapes to machine code, whether made or read from the disk."""
    built = Step("gpt2", 2, 64).build()
    assert built.lowered is not None
    start = time.perf_counter()
    _ = built.lowered().executable
    return time.perf_counter() - start


def peak_megabytes() -> float:
    """The most resident memory of a process that trains for three steps."""
    built = Step("gpt2", 2, 64).build()
    for _ in range(3):
        built.run()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _calling(name: str) -> str:
    return f"from benchmarks.guard import whole; print(whole.{name}())"


# With one thread of BLAS: its others spin while the rest is imported, and that counts.
WHOLE = {
    "import, CPU": Whole(
        "import time, fxad; print(time.process_time())", "s", {"OPENBLAS_NUM_THREADS": "1"}
    ),
    "compile a GPT-2 step, cold": Whole(_calling("compile_seconds"), "s", {"FXAD_CACHE": "0"}),
    "compile a GPT-2 step, from the disk": Whole(_calling("compile_seconds"), "s"),
    "peak memory of a GPT-2 step": Whole(_calling("peak_megabytes"), "MB"),
}


@dataclass
class Values:
    """The numbers of both sides, pair by pair."""

    base: list[float] = field(default_factory=list)
    tree: list[float] = field(default_factory=list)
    failed: str = ""

    @property
    def ratios(self) -> list[float]:
        return [math.log(b / a) for a, b in zip(self.base, self.tree, strict=True)]


def paired(
    case: Whole, base: Side, tree: Side, pairs: int = ENOUGH, say: Callable[[], None] = lambda: None
) -> Values:
    """So many pairs; before them each side once, which writes byte code and the cache."""
    found = Values()
    try:
        for side in (base, tree):
            case.run(side)
        for number in range(pairs):
            say()
            order = (base, tree) if number % 2 == 0 else (tree, base)
            for side in order:
                (found.base if side is base else found.tree).append(case.run(side))
    except Failed as error:
        return Values(failed=str(error))
    return found
