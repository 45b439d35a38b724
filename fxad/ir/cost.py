"""What a Plan costs to run, counted from its kernels.

cost(plan)["flops"]     # a product of n x n matrices counts 2 n^3
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from fxad.core import dtypes as dt
from fxad.ir.kernel import (
    Attention,
    AttentionGrad,
    Buffer,
    Contract,
    Kernel,
    Load,
    Prim,
    Reduce,
    Scan,
    Sort,
    Stage,
    bound_axes,
    exprs_of,
    stores_of,
    walk,
)
from fxad.ir.offload_ops import staging
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Step, Taping, While
from fxad.ir.plan import walk as walk_steps
from fxad.ir.program import Program


def cost(plan: Plan) -> dict[str, int]:
    """flops: floating-point operations (a call of exp counts one). bytes: read and written by
    kernels and copies, every element of a kernel once: of a gather's table, as many as it takes.
    arena_bytes, argument_bytes, result_bytes:
    memory. kernels: kernel runs.

    The body of a while loop counts once, since nobody knows how often it runs; of a branch the
    dearest alternative counts.
    """
    kernels = dict.fromkeys(s.kernel for s in walk_steps(plan.steps) if isinstance(s, Run))
    each = {kernel: (_kernel_flops(kernel), _kernel_bytes(kernel)) for kernel in kernels}
    flops, moved, runs = _steps(plan.steps, each)
    return {
        "flops": flops,
        "bytes": moved,
        "arena_bytes": plan.arena_bytes,
        "argument_bytes": argument_bytes(plan),
        "result_bytes": sum(s.type.nbytes for s in plan.results),
        "kernels": runs,
    }


def argument_bytes(plan: Plan) -> int:
    """Bytes of all arguments."""
    return sum(s.type.nbytes for s in plan.slots if s.place == "argument")


def peak_bytes(plan: Plan, program: Program) -> int:
    """Bytes of arena, arguments, results, and of memory for what goes to disk."""
    counts = cost(plan)
    donated = sum(program.out_types[result].nbytes for result in plan.donated)
    named = ("arena_bytes", "argument_bytes", "result_bytes")
    return sum(counts[name] for name in named) - donated + staging(program)


Each = Mapping[Kernel, tuple[int, int]]  # operations and bytes of one run


def _steps(steps: Sequence[Step], each: Each) -> tuple[int, int, int]:
    """Operations, bytes and kernel runs of a sequence of steps."""
    totals = [_step(step, each) for step in steps]
    flops, moved, runs = zip(*totals, strict=True) if totals else ((), (), ())
    return sum(flops), sum(moved), sum(runs)


def _step(step: Step, each: Each) -> tuple[int, int, int]:
    match step:
        case Run():
            return *each[step.kernel], 1
        case Copy():
            return 0, 2 * step.src.type.nbytes, 0
        case Loop():
            flops, moved, runs = _steps(step.body, each)
            return step.trips * flops, step.trips * moved, step.trips * runs
        case While():
            return _steps([*step.cond, *step.body], each)
        case Branch():
            return max(_steps(branch, each) for branch in step.branches)
        case Host() | Taping():
            return 0, sum(s.type.nbytes for s in (*step.inputs, *step.outputs)), 0
    raise TypeError(f"cost: unknown step {type(step).__name__}")


def _kernel_bytes(kernel: Kernel) -> int:
    accesses = _accesses(kernel)
    return sum(
        min(b.size, accesses.get(b, b.size)) * b.dtype.itemsize * (2 if b.role == "inout" else 1)
        for b in kernel.buffers
        if b.role != "scratch"
    )


def _accesses(kernel: Kernel) -> Counter[Buffer]:
    """How often a kernel's expressions read, or its stores write, each buffer: the more of both.

    Operands of products and attention, which are no expressions, are not among them.
    """
    reads: Counter[Buffer] = Counter()
    writes: Counter[Buffer] = Counter()
    for stage in kernel.body:
        points = kernel.points * _points(stage)
        reads.update({e.buffer: points for e in walk(*exprs_of(stage)) if isinstance(e, Load)})
        writes.update({s.buffer: points for s in stores_of(stage)})
    return reads | writes


def _points(stage: Stage) -> int:
    """How often a stage evaluates its expressions at one point of the grid."""
    match stage:
        case Contract():
            return stage.m.extent * stage.n.extent
        case Attention():
            return stage.rows.extent * stage.keys.extent
        case AttentionGrad():
            return stage.group.extent * stage.forward.rows.extent * stage.forward.keys.extent
        case Sort():
            return stage.axis.extent
    return math.prod(a.extent for a in bound_axes(stage))


def _kernel_flops(kernel: Kernel) -> int:
    return kernel.points * sum(map(_stage_flops, kernel.body))


def _stage_flops(stage: Stage) -> int:
    scalar = sum(
        isinstance(e, Prim) and dt.is_inexact(e.args[0].dtype if e.args else e.dtype)
        for e in walk(*exprs_of(stage))
    )
    match stage:
        case Attention() | AttentionGrad():
            return _attention_flops(stage)
        case Contract():
            scalar += 2 * stage.k.extent
        case Reduce():
            scalar += len(stage.values)
        case Scan() | Sort():
            scalar += 1
    return _points(stage) * scalar


def _attention_flops(stage: Attention | AttentionGrad) -> int:
    """Products over the keys that rows see, counting whole rows of keys where that varies, and all
    keys where bounds are read from arrays."""
    forward = stage if isinstance(stage, Attention) else stage.forward
    rows, keys = forward.rows.extent, forward.keys.extent
    low, high = forward.lower.bounds()[0], min(forward.upper.bounds()[1], keys)
    causal = forward.upper.coefficient(forward.rows) == 1
    pairs = rows * (high - max(low, 0)) // (2 if causal else 1)
    depth, width = forward.depth.extent, forward.width.extent
    if isinstance(stage, Attention):
        return 2 * pairs * (depth + width)
    return 2 * pairs * stage.group.extent * (3 * depth + 2 * width)
