"""Kernels as Python source as a backend: "python" (interpreted), "cpu" and "cuda" (by numba)."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from fxad.backend.numba.available import check_available
from fxad.backend.numba.execute import Interpreter
from fxad.ir.kernel import Attention, AttentionGrad, Kernel, Stage, Unpack
from fxad.ir.plan import Plan

if TYPE_CHECKING:
    from fxad.backend.protocol import Executable


class Numba:
    """Oracles, and GPUs (see `fxad.backend.protocol.Backend`). Raises DeviceError where a target
    cannot run."""

    emits: frozenset[type[Stage]] = frozenset(get_args(Stage)) - {Attention, AttentionGrad, Unpack}
    threads = 1

    def __init__(self, target: str) -> None:
        check_available(target)
        self.name = target

    def rounds(self, kernel: Kernel) -> bool:
        return False

    def unpacks(self, kernel: Kernel) -> bool:
        return False

    def scratch(self, plan: Plan) -> int:
        return 0

    def compile(self, plan: Plan) -> Interpreter:
        return Interpreter(plan, self.name)

    def identity(self) -> None:
        """Nothing is kept."""

    def recall(self, key: str) -> None: ...
    def keep(self, key: str, executable: Executable, seconds: float) -> None: ...
