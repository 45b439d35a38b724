"""What the compiler asks of a backend, and gets from one: `fxad.compiler` knows nothing else of it.

executable = backend.compile(plan)
results = executable.run([x, w])      # NumPy arrays in, NumPy arrays out
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fxad.ir.kernel import Kernel, Stage
from fxad.ir.plan import Plan


class Executable(Protocol):
    """A Plan that can be run, by any number of threads at once."""

    @property
    def plan(self) -> Plan: ...

    def run(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """The flat results for the flat arguments, which stay as they are but for donated ones."""


class Backend(Protocol):
    """A way to run Plans.

    emits: the stages of kernels that it has code for; attention is written with others for one
    that has no `Attention`.
    """

    @property
    def name(self) -> str: ...
    @property
    def emits(self) -> frozenset[type[Stage]]: ...

    @property
    def threads(self) -> int:
        """How many run one Plan together; each has scratch of its own."""

    def rounds(self, kernel: Kernel) -> bool:
        """Whether a product's code rounds factors to bf16 as it reads them."""

    def scratch(self, plan: Plan) -> int:
        """Bytes that a run takes beside what the plan says."""

    def compile(self, plan: Plan) -> Executable:
        """What runs it; llvm's has more to it than others'."""

    def identity(self) -> str | None:
        """What its code depends on beside the Plan, for keys of caches; None: it keeps none."""

    def recall(self, key: str) -> Executable | None:
        """The Executable that is kept under a key, if there is one."""

    def keep(self, key: str, executable: Any, seconds: float) -> None:
        """Keep one that `compile` made, if that took long."""


class Native(Backend, Protocol):
    """What machine code for this processor offers beside: what it takes, and what is measured."""

    def set_threads(self, count: int) -> None:
        """How many run one Plan together from now on."""

    def bits_depend_on(self) -> dict[str, str]:
        """Facts of machine and libraries that reach results, by name."""

    @property
    def high_water(self) -> int:
        """Bytes of arenas and large results in use, at most so far."""

    def trip_bytes(self, plan: Plan) -> int:
        """Of tapes, what a single trip of each loop of unknown length keeps."""

    def tape_bytes(self, plan: Plan, trips: Sequence[int]) -> int:
        """Of tapes, where loops make so many trips at each depth."""

    def profiler(self, executable: Any) -> Any:
        """What runs an Executable step by step and times each (`llvm.profiler.Profiler`)."""

    def unit_of(self, kernel: Kernel) -> str:
        """What of the processor computes a kernel."""

    def peak(self, unit: str, threads: int) -> float:
        """GFLOP/s of a unit on registers alone, measured."""

    def tune(
        self, kernels: Sequence[Kernel], seconds: float, again: bool
    ) -> tuple[tuple[Any, ...], int, Path | None]:
        """Measure how products are best cut: what was found (`llvm.search.Tuned`), how many classes
        were known, and the file that keeps the answers."""

    def calibrate(self, seconds: float) -> tuple[tuple[Any, ...], Path]:
        """Measure the processor: answers (`llvm.base.answers.Answer`) and the file they are in."""

    def diagnosis(self, measure: bool = True) -> Any:
        """What was detected of this machine, and what was chosen for it."""
