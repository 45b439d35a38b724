"""What lies between a function and its machine code: `jit(f).lower(*args)`.

>>> lowered = fxad.jit(f).lower(x)
>>> print(lowered.program)      # also .kernels, .plan, .llvm, .asm, .cost()
"""

from __future__ import annotations

import functools
from typing import Any

from fxad.api import compiled
from fxad.ir.cost import cost
from fxad.ir.kernel import Kernel
from fxad.ir.plan import Plan, Run, walk
from fxad.ir.program import Program
from fxad.passes.pipeline import optimise


class Lowered:
    """The stages of one traced signature; each is made when first asked for."""

    def __init__(self, program: Program, donate: frozenset[int]) -> None:
        self._traced = program
        self._donate = donate

    @property
    def traced(self) -> Program:
        """The program as it was recorded."""
        return self._traced

    @functools.cached_property
    def program(self) -> Program:
        """The program after the passes."""
        return optimise(self._traced)

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

    def compile(self) -> Lowered:
        """Compile now (for code ported from JAX); returns itself."""
        _ = self.executable
        return self

    def as_text(self) -> str:
        """The program's text."""
        return str(self.program)
