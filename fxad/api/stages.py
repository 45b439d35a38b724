"""What lies between a function and its machine code: `jit(f).lower(*args)`.

>>> lowered = fxad.jit(f).lower(x)
>>> print(lowered.program)      # also .kernels, .plan, .llvm, .asm, .cost()
"""

from __future__ import annotations

import functools
import importlib
import resource
import sys
from collections.abc import Callable
from typing import Any

from fxad.api import compiled
from fxad.ir.cost import cost
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.program import Program
from fxad.passes.aside import staging


class Lowered:
    """The stages of one traced signature; each is made when first asked for."""

    def __init__(
        self, program: Program, donate: frozenset[int], function: Callable[..., Any]
    ) -> None:
        self._traced = program
        self._donate = donate
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result: `jit(f).lower(x).compile()` is called like `jit(f)`."""
        return self._function(*args, **kwargs)

    @property
    def traced(self) -> Program:
        """The program as it was recorded."""
        return self._traced

    @functools.cached_property
    def program(self) -> Program:
        """The program after the passes, within its memory budget if it has one."""
        return compiled.prepared(self._traced, self._donate)[0]

    @property
    def executable(self) -> Any:
        """The compiled program."""
        return compiled.executable(self._traced, self._donate)

    @property
    def plan(self) -> Plan:
        """What runs when, and where every byte lives."""
        return self.executable.plan

    @property
    def kernels(self) -> list[Kernel]:
        """The loop nests, each once, in order of first use."""
        return list(dict.fromkeys(s.kernel for s in walk(self.plan.steps) if isinstance(s, Run)))

    @property
    def llvm(self) -> str:
        """LLVM IR of all kernels."""
        return self.executable.llvm

    @property
    def asm(self) -> str:
        """Machine code of all kernels, as assembly text."""
        return self.executable.asm

    def cost(self) -> dict[str, int]:
        """Floating-point operations, bytes moved, bytes of the arena (see `fxad.ir.cost`)."""
        return cost(self.plan)

    def memory(self) -> dict[str, int]:
        """Bytes a run needs, known before it: of arguments, results and the arena, of the memory
        in which values wait on their way to the disk, and all of these together (predicted).
        Beside them what this process has seen so far: the most its allocator has had in use for
        arenas and large results (allocated), and its largest resident memory (resident)."""
        budget = importlib.import_module("fxad.plan.budget")
        blocks = importlib.import_module("fxad.backend.llvm.memory").blocks
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        counts = self.cost()
        return {
            **{n: counts[n] for n in ("argument_bytes", "result_bytes", "arena_bytes")},
            "waiting_bytes": staging(self.program),
            "predicted_bytes": budget.peak_bytes(self.plan, self.program),
            "allocated_bytes": blocks.high_water,
            "resident_bytes": resident * (1 if sys.platform == "darwin" else 1024),
        }

    def compile(self) -> Lowered:
        """Compile now (for code ported from JAX); returns itself."""
        _ = self.executable
        return self

    def as_text(self) -> str:
        """The program's text."""
        return str(self.program)
