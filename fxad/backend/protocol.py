"""What the compiler asks of a backend, and gets from one: `fxad.compiler` knows nothing else of it.

executable = backend.compile(plan)
results = executable.run([x, w])      # NumPy arrays in, NumPy arrays out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from fxad.core.types import ArrayType
from fxad.ir.kernel import Kernel, Stage
from fxad.ir.plan import Copy, Host, Plan, Run


class Executable(Protocol):
    """A Plan that can be run, by any number of threads at once."""

    @property
    def plan(self) -> Plan: ...

    def run(self, arrays: Sequence[np.ndarray], /) -> list[np.ndarray]:
        """The flat results for the flat arguments, which stay as they are but for donated ones."""


class Donation(Protocol):
    """Arguments whose memory a run takes over."""

    results: list[Any] | None  # set when they are whole

    def give_back(self) -> None:
        """Called where a run ends before it has overwritten any of it."""


Made = TypeVar("Made", bound=Executable, covariant=True)


class Backend(Protocol[Made]):
    """A way to run Plans.

    emits: the stages of kernels that it has code for; attention and `Unpack` are written with
    others for one that has no `Attention`.
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

    def unpacks(self, kernel: Kernel) -> bool:
        """Whether a product's code unpacks the operand that is packed as it reads it."""

    def scratch(self, plan: Plan) -> int:
        """Bytes that a run takes beside what the plan says."""

    def compile(self, plan: Plan) -> Made:
        """What runs it."""

    def identity(self) -> str | None:
        """What its code depends on beside the Plan, for keys of caches; None: it keeps none."""

    def recall(self, key: str) -> Made | None:
        """The Executable that is kept under a key, if there is one."""

    def keep(self, key: str, executable: Executable, seconds: float) -> None:
        """Keep one that `compile` made, if that took long."""


# ---------------------------------------------------------------- machine code


class Direct(Protocol):
    """A program as one native function of Arrays: see `llvm.direct.Direct`."""

    @property
    def makers(self) -> Sequence[Callable[[], np.ndarray]]: ...
    @property
    def parallel(self) -> bool: ...
    @property
    def call(self) -> Callable[..., bool]: ...
    def renew(self) -> bool: ...


class NativeExecutable(Executable, Protocol):
    """Machine code of a Plan: what it was made of, and the bytes it takes beside what the Plan
    says."""

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The steps that call Python."""

    @property
    def scratch_bytes(self) -> int:
        """Of all threads together."""

    @property
    def peak_bytes(self) -> int:
        """What a run needs beside its arguments: results, arena and scratch of every thread."""

    @property
    def tape_bytes(self) -> int:
        """The most that the tapes of one run have taken so far."""

    @property
    def llvm(self) -> str: ...
    @property
    def asm(self) -> str: ...

    def direct(self, types: Sequence[ArrayType], weak: Sequence[bool]) -> Direct | None:
        """The program as a function of Arrays of these types, if it can be one."""


class Timings(Protocol):
    """One run, step by step: results, when each step began and how long it took in seconds."""

    @property
    def results(self) -> list[np.ndarray]: ...
    @property
    def events(self) -> Sequence[tuple[Run | Copy | Host, float, float]]: ...
    @property
    def seconds(self) -> float: ...


class Profiler(Protocol):
    """Runs an Executable step by step."""

    def run(self, args: Sequence[np.ndarray], /) -> Timings: ...


class Tuned(Protocol):
    """How one class of products is cut best, and GFLOP/s before and after."""

    @property
    def key(self) -> str: ...
    @property
    def size(self) -> tuple[int, int, int]: ...
    @property
    def choice(self) -> object: ...
    @property
    def before(self) -> float: ...
    @property
    def after(self) -> float: ...


class Native(Backend[NativeExecutable], Protocol):
    """What machine code for this processor offers beside: what it takes, and what is measured.
    Answers and diagnoses are texts: their type is `object`."""

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

    def profiler(self, executable: NativeExecutable) -> Profiler:
        """What runs an Executable step by step and times each."""

    def unit_of(self, kernel: Kernel) -> str:
        """What of the processor computes a kernel."""

    def unit_for(self, dtype: str) -> str:
        """What of the processor computes large products of such factors."""

    def peak(self, unit: str, threads: int) -> float:
        """GFLOP/s of a unit on registers alone, measured."""

    def tune(
        self, kernels: Sequence[Kernel], seconds: float, again: bool
    ) -> tuple[tuple[Tuned, ...], int, Path | None]:
        """Measure how products are best cut: what was found, how many classes were known, and the
        file that keeps the answers."""

    def calibrate(self, seconds: float) -> tuple[tuple[object, ...], Path]:
        """Measure the processor: answers and the file they are in."""

    def diagnosis(self, measure: bool = True) -> object:
        """What was detected of this machine, and what was chosen for it."""
