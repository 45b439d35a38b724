"""Kernels that are to be inlined where they are called: small ones as straight code.

    emit_inline(kernel, "k0", target)      # alwaysinline; no loops where a kernel is small

Where the points of a kernel are few, every loop is written out and all is scalar, so that arrays
become registers once the caller's memory is known. The bits are those of `emit`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.axes import axes_of_stage
from fxad.backend.llvm.base.schedule import ABI, Emitted, Target, choose, weight_of
from fxad.backend.llvm.base.text import Function, Values
from fxad.backend.llvm.base.tuning import Sequences
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.contract.scalar import emit_scalar_contract
from fxad.backend.llvm.contract.small import emit_small_product, is_small
from fxad.backend.llvm.emit import emit, emit_scheduled
from fxad.core.record import replace
from fxad.ir import kernel as ir

_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "udiv": operator.floordiv,
    "urem": operator.mod,
}
_CONSTANT = re.compile(r"(\w+) i64 (\d+), (\d+)")


class Straight(Function):
    """A function whose loops of known length are written out."""

    def __init__(self, name: str, units: int) -> None:
        super().__init__(name, "void", ABI, "internal", "alwaysinline #0")
        self.units = units

    def op(self, text: str) -> str:
        found = _CONSTANT.fullmatch(text)
        if found and found[1] in _FOLDED:
            return str(_FOLDED[found[1]](int(found[2]), int(found[3])))
        return super().op(text)

    def loop(
        self,
        low: str | int,
        high: str | int,
        step: int,
        body: Callable[[str, list[str]], Values | None],
        carried: Sequence[tuple[str, str]] = (),
        at_least_once: bool = False,
        reduce: bool = False,
    ) -> list[str]:
        low, high = (0, self.units) if low == "%begin" else (low, high)
        if not (str(low).isdigit() and str(high).isdigit()):
            return super().loop(low, high, step, body, carried, at_least_once, reduce)
        values = [value for _, value in carried]
        for index in range(int(low), int(high), step):
            values = list(body(str(index), values) or ())
        return values


def emit_inline(kernel: ir.Kernel, name: str, target: Target) -> Emitted:
    """The native function of a kernel, private to its module and inlined into callers."""
    stage = kernel.body[0] if kernel.body else None
    if isinstance(stage, ir.Contract):
        problem = Problem.of(kernel)
        if is_small(problem, target.tuning.sequences):
            return emit_small_product(problem, Straight(name, 1), target)
        size = kernel.points * math.prod(problem.size)
        if 0 < size <= target.tuning.sequences.written_products and _plain(stage):
            units = kernel.points * problem.size[0]
            return emit_scalar_contract(problem, name, target, Straight(name, units))
    elif _few_points(kernel, target.tuning.sequences):
        schedule = choose(kernel, target, scalar=True)
        return emit_scheduled(kernel, target, schedule, Straight(name, schedule.units))
    made = emit(kernel, name, target)
    head = rf"define *void @{re.escape(name)}\((.*)\) #0"
    inlined = rf"define internal void @{name}(\1) alwaysinline #0"
    return replace(made, text=re.sub(head, inlined, made.text))


def _plain(stage: ir.Contract) -> bool:
    """Whether a product's operands are of the dtype it is summed in."""
    dtype = stage.cell.dtype
    operands = (stage.a.buffer.dtype, stage.b.buffer.dtype)
    return dtype in (np.float32, np.float64) and operands == (dtype, dtype)


def _few_points(kernel: ir.Kernel, tuning: Sequences) -> bool:
    """Whether a kernel is small enough to be written out."""
    each = [math.prod(a.extent for a in axes_of_stage(stage)) for stage in kernel.body]
    weights = [n * weight_of(stage) for n, stage in zip(each, kernel.body, strict=True)]
    points, instructions = kernel.points * sum(each), kernel.points * sum(weights)
    few = 0 < points <= tuning.written_points
    return few and instructions <= tuning.written_instructions
