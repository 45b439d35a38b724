"""Where the micro-kernels read a product's operands: where they lie, or from packed copies.

a_goes_into_blocks(problem, 16, tuning)  # a copy of A, a tile's rows side by side for every k
b_is_near(problem, tuning)               # no copy of B
"""

from __future__ import annotations

from fxad.backend.llvm.base.tuning import Gemm
from fxad.backend.llvm.contract.pack import MOST_TRANSPOSED
from fxad.backend.llvm.contract.plan import Problem

COLLIDING = 4096  # bytes; lines so far apart share a place in first-level caches


def a_goes_into_blocks(problem: Problem, lanes: int, tuning: Gemm) -> bool:
    """Whether a copy of A in blocks of a tile's rows pays.

    Rows that lie side by side: in place every step of k is another line, and often another page, of
    which a tile takes a part; the copy pays where enough panels of columns share it, or where steps
    of k all fall into one place of the first-level cache. Rows that have k side by side: where more
    share it and the rows of a tile all fall into one place, and a square of `lanes` can be turned.
    """
    a, (rows, columns, k) = problem.a, problem.size
    apart = max(a.inner, a.outer) * a.buffer.dtype.itemsize
    collides = apart % COLLIDING == 0 and apart > 0
    if min(rows, k) < 64:
        return False
    if a.inner == 1:
        turns = a.outer > 1 and lanes <= MOST_TRANSPOSED
        return turns and collides and columns >= tuning.transposed_columns
    return a.outer == 1 and (collides or columns >= tuning.block_columns)


def b_is_near(problem: Problem, tuning: Gemm) -> bool:
    """Whether all of B, of one batch element, stays in the first-level cache where it lies."""
    b, k = problem.b, problem.size[2]
    same = b.buffer.dtype == problem.dtype
    size = b.inner * k * problem.dtype.itemsize
    return same and b.outer == 1 and 0 < size <= tuning.nearest_b_bytes
