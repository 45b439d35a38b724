"""Native code as a backend: what `fxad.compiler` calls, in terms of this package's modules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from fxad.backend import llvm
from fxad.backend.llvm import disk, measured
from fxad.backend.llvm.executable import Executable
from fxad.backend.llvm.measured import target_of
from fxad.backend.llvm.native import memory, tape_bytes
from fxad.backend.llvm.numerics import bits_depend_on
from fxad.core import cores
from fxad.core.config import config
from fxad.ir.kernel import Kernel, Stage
from fxad.ir.plan import Plan

if TYPE_CHECKING:
    from fxad.backend import protocol
    from fxad.backend.llvm.base.answers import Answer
    from fxad.backend.llvm.doctor import Diagnosis
    from fxad.backend.llvm.profiler import Profiler
    from fxad.backend.llvm.search import Tuned


class LLVM:
    """Native code for this machine (see `fxad.backend.protocol.Backend`)."""

    name = "llvm"
    emits: frozenset[type[Stage]] = frozenset(get_args(Stage))

    @property
    def threads(self) -> int:
        return cores.get_num_threads()

    def set_threads(self, count: int) -> None:
        cores.set_num_threads(count)

    def rounds(self, kernel: Kernel) -> bool:
        return llvm.rounds_factors(kernel, target_of(config.isa))

    def unpacks(self, kernel: Kernel) -> bool:
        return llvm.unpacks_factors(kernel)

    def scratch(self, plan: Plan) -> int:
        """Seen by compiling it."""
        return Executable(plan).scratch_bytes

    def compile(self, plan: Plan) -> Executable:
        return Executable(plan)

    def identity(self) -> str | None:
        return disk.identity()

    def recall(self, key: str) -> Executable | None:
        return disk.recall(key)

    def keep(self, key: str, executable: protocol.Executable, seconds: float) -> None:
        assert isinstance(executable, Executable)  # what `compile` made
        disk.keep(key, executable, seconds)

    # ------------------------------------------------------------ see `protocol.Native`

    def bits_depend_on(self) -> dict[str, str]:
        return bits_depend_on(target_of(config.isa))

    @property
    def high_water(self) -> int:
        return memory.blocks.high_water

    def trip_bytes(self, plan: Plan) -> int:
        return tape_bytes.trip_bytes(plan)

    def tape_bytes(self, plan: Plan, trips: Sequence[int]) -> int:
        return tape_bytes.tape_bytes(plan, trips)

    def profiler(self, executable: protocol.NativeExecutable) -> Profiler:
        assert isinstance(executable, Executable)  # what `compile` made
        return llvm.Profiler(executable)

    def unit_of(self, kernel: Kernel) -> str:
        return llvm.unit_of(kernel, target_of(config.isa))

    def unit_for(self, dtype: str) -> str:
        return llvm.unit_for(dtype, target_of(config.isa))

    def peak(self, unit: str, threads: int) -> float:
        return llvm.peak(unit, target_of(config.isa), threads)

    def tune(
        self, kernels: Sequence[Kernel], seconds: float, again: bool
    ) -> tuple[tuple[Tuned, ...], int, Path | None]:
        target = target_of(config.isa)
        wanted = llvm.products(kernels, target)
        todo = [p.kernel for key, p in wanted.items() if again or key not in target.choices]
        found = tuple(llvm.tune(todo, target, seconds))
        path = measured.adopt({one.key: one.choice for one in found}) if found else measured.kept()
        return found, len(wanted) - len(todo), path

    def calibrate(self, seconds: float) -> tuple[tuple[Answer, ...], Path]:
        return measured.recalibrate(seconds), measured.calibration_file()

    def diagnosis(self, measure: bool = True) -> Diagnosis:
        return llvm.diagnosis(measure)
