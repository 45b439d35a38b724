"""What a Plan costs to run, counted from its kernels.

cost(plan)["flops"]     # a product of n x n matrices counts 2 n^3
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fxad.core import dtypes as dt
from fxad.ir.kernel import (
    Attend,
    AttendGrad,
    Contract,
    Kernel,
    Prim,
    Reduce,
    Scan,
    Sort,
    Stage,
    exprs_of,
    walk,
)
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Step, Taping, While


def cost(plan: Plan) -> dict[str, int]:
    """flops: floating-point operations (a call of exp counts one). bytes: read and written by
    kernels and copies, every buffer of a kernel once. arena_bytes, argument_bytes, result_bytes:
    memory. kernels: kernel runs.

    The body of a while loop counts once, since nobody knows how often it runs; of a branch the
    dearest alternative counts.
    """
    flops, moved, runs = _steps(plan.steps)
    arguments = [s for s in plan.slots if s.place == "argument"]
    return {
        "flops": flops,
        "bytes": moved,
        "arena_bytes": plan.arena_bytes,
        "argument_bytes": sum(s.type.nbytes for s in arguments),
        "result_bytes": sum(s.type.nbytes for s in plan.results),
        "kernels": runs,
    }


def _steps(steps: Sequence[Step]) -> tuple[int, int, int]:
    """Operations, bytes and kernel runs of a sequence of steps."""
    totals = [_step(step) for step in steps]
    flops, moved, runs = zip(*totals, strict=True) if totals else ((), (), ())
    return sum(flops), sum(moved), sum(runs)


def _step(step: Step) -> tuple[int, int, int]:
    match step:
        case Run():
            return _kernel_flops(step.kernel), _kernel_bytes(step.kernel), 1
        case Copy():
            return 0, 2 * step.src.type.nbytes, 0
        case Loop():
            flops, moved, runs = _steps(step.body)
            return step.trips * flops, step.trips * moved, step.trips * runs
        case While():
            return _steps([*step.cond, *step.body])
        case Branch():
            return max(map(_steps, step.branches))
        case Host() | Taping():
            return 0, sum(s.type.nbytes for s in (*step.inputs, *step.outputs)), 0
    raise TypeError(f"cost: unknown step {type(step).__name__}")


def _kernel_bytes(kernel: Kernel) -> int:
    return sum(
        b.size * b.dtype.itemsize * (2 if b.role == "inout" else 1)
        for b in kernel.buffers
        if b.role != "scratch"
    )


def _kernel_flops(kernel: Kernel) -> int:
    return kernel.points * sum(map(_stage_flops, kernel.body))


def _stage_flops(stage: Stage) -> int:
    scalar = sum(
        isinstance(e, Prim) and dt.is_inexact(e.args[0].dtype if e.args else e.dtype)
        for e in walk(*exprs_of(stage))
    )
    match stage:
        case Contract():
            outer = stage.m.extent * stage.n.extent
            return outer * (2 * stage.k.extent + scalar)
        case Reduce():
            return math.prod(a.extent for a in stage.over) * (scalar + len(stage.values))
        case Attend() | AttendGrad():
            return _attend_flops(stage)
        case Scan() | Sort():
            return stage.axis.extent * (scalar + 1)
        case _:
            axes = stage.axes if hasattr(stage, "axes") else stage.over
            return math.prod(a.extent for a in axes) * scalar


def _attend_flops(stage: Attend | AttendGrad) -> int:
    """Products over the keys that rows see, counting whole rows of keys where that varies."""
    attend = stage if isinstance(stage, Attend) else stage.attend
    rows, keys = attend.rows.extent, attend.keys.extent
    low, high = attend.lower.bounds()[0], min(attend.upper.bounds()[1], keys)
    causal = attend.upper.coefficient(attend.rows) == 1
    pairs = rows * (high - max(low, 0)) // (2 if causal else 1)
    depth, width = attend.depth.extent, attend.width.extent
    if isinstance(stage, Attend):
        return 2 * pairs * (depth + width)
    return 2 * pairs * stage.group.extent * (3 * depth + 2 * width)
