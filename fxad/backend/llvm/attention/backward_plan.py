"""What is decided of attention's backward pass before its code is written.

plan = BackwardPlan.of(problem, stage)
plan.chunk                 # keys that are packed, and whose cotangents are summed, at once
"""

from __future__ import annotations

import math

from fxad.backend.llvm.attention.problem import BLOCK_ROWS, Problem, ScoreBlock, round_up
from fxad.backend.llvm.attention.split import NUMBER_BYTES
from fxad.core.record import record
from fxad.ir.kernel import AttentionGrad
from fxad.ir.orders import (
    GRADIENT_BYTES,
    GRADIENT_PANELS,
    GRADIENT_ROWS,
    SPLIT_GRADIENT_ROWS,
)


@record
class BackwardPlan:
    """block: queries and keys whose scores stay in cache. chunk: keys that are packed at once.
    writes_directly: dk and dv are what one block of queries gives them, so they are not summed."""

    problem: Problem
    grad: AttentionGrad
    block: ScoreBlock
    chunk: int
    writes_directly: bool

    @staticmethod
    def of(problem: Problem, grad: AttentionGrad) -> BackwardPlan:
        split, panel = problem.bf16x6, problem.panel
        rows = SPLIT_GRADIENT_ROWS if split else GRADIENT_ROWS
        most = max(int(GRADIENT_BYTES / _bytes_of_key(problem)), 1)
        chunk = min(problem.padded_keys, round_up(most, math.lcm(BLOCK_ROWS, panel)))
        alone = 1 <= problem.queries <= rows and grad.group.extent == 1
        return BackwardPlan(
            problem=problem,
            grad=grad,
            block=problem.score_block(rows, min(chunk, GRADIENT_PANELS * panel)),
            chunk=chunk,
            writes_directly=alone and problem.mask is None and not split,
        )


def _bytes_of_key(problem: Problem) -> int:
    """Of a key in a chunk: what is packed and summed."""
    depth, width, size = problem.depth, problem.width, problem.size
    if problem.bf16x6:
        return (2 * depth + width) * NUMBER_BYTES + (depth + width) * size
    return (3 * depth + 2 * width) * size
