"""Small matrix products inside loops: a row of the result at a time, one vector, written out.

    emitted = emit_small_product(problem, function, target)      # where `is_small(problem)`

For every row: sums = a[i, 0] * b[0, :], then + a[i, 1] * b[1, :] and so on by FMA, and the epilogue
on the vector of sums. Nothing is packed or touched ahead: operands lie on the caller's stack, and
what does not change in its loop the compiler takes out of it.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec, fma, type_of
from fxad.backend.llvm.contract.grid import address, arguments, go_to, run_stores
from fxad.backend.llvm.contract.plan import Matrix, Problem
from fxad.ir.kernel import Load, exprs_of, walk

OPERATIONS = 256  # most loads and FMAs of a product written out
COLUMNS = 16
_NS_PER_ROW = 5.0


def is_small(problem: Problem) -> bool:
    """Whether a product is best written out, in vectors along its columns: it is small, of f32 or
    f64 alone, and what its epilogue reads and writes is contiguous along them."""
    dtype, (_, columns, _) = problem.dtype, problem.size
    operands = (problem.a.buffer.dtype, problem.b.buffer.dtype)
    stage = problem.stage
    loads = [e for e in walk(*exprs_of(stage)) if isinstance(e, Load)]
    return (
        dtype in (np.float32, np.float64)
        and operands == (dtype, dtype)
        and 1 < columns <= COLUMNS
        and 0 < _operations(problem) <= OPERATIONS
        and all(s.guard is None and s.index.coefficient(problem.columns) == 1 for s in stage.stores)
        and all(e.guard is None and _steps(e, problem) in (0, 1) for e in loads)
    )


def _operations(problem: Problem) -> int:
    rows, columns, k = problem.size
    return problem.kernel.points * rows * k * (1 if problem.b.outer == 1 else columns)


def _steps(load: Load, problem: Problem) -> int | None:
    return load.index.coefficient(problem.columns)


def emit_small_product(problem: Problem, function: Function, target: Target) -> Emitted:
    """LLVM IR of a product that `is_small`, as the body of an empty function of a kernel's
    parameters."""
    rows = _Rows(problem, function, target)
    points = problem.kernel.points
    for point in range(points):
        go_to(rows.memory, problem.kernel, str(point))
        for row in range(problem.size[0]):
            rows.emit(row)
    function.ret()
    declarations = frozenset(rows.memory.code.declarations)
    cost = points * problem.size[0] * _NS_PER_ROW
    return Emitted(function.name, str(function), declarations, 1, 0, cost)


class _Rows:
    """Writes rows of the result at the grid point where `memory` is."""

    def __init__(self, problem: Problem, f: Function, target: Target) -> None:
        self.problem, self.f = problem, f
        self.memory = arguments(problem.kernel, f, target, scalars=True)

    def emit(self, row: int) -> None:
        memory, problem, stage = self.memory, self.problem, self.problem.stage
        memory.scopes.append({})
        memory.env |= {problem.rows: str(row), problem.columns: "0"}
        memory.lanes_along(problem.columns, problem.size[1])
        memory.varying_cells.add(stage.cell)
        memory.cells[stage.cell] = {memory.copy.number: self.sums(row)}
        run_stores(memory, stage.stores)
        memory.lanes_along(None, 1)
        memory.scopes.pop()

    def sums(self, row: int) -> Vec:
        a, b, columns = self.problem.a, self.problem.b, self.problem.size[1]
        left = self.start(a, row * a.outer)
        right = self.start(b, 0)
        total = self.memory.code.const(self.kind, 0, columns)
        for k in range(self.problem.size[2]):
            one = self.vector(a, left, k * a.inner, 1, 1).splat(columns)
            total = fma(one, self.vector(b, right, k * b.inner, b.outer, columns), total)
        return total

    @property
    def kind(self) -> str:
        return "float" if self.problem.dtype == np.float32 else "double"

    def start(self, matrix: Matrix, offset: int) -> str:
        """The address `offset` elements after a matrix's first of this grid point."""
        place = address(self.memory, matrix.buffer, matrix.base)
        return self.f.offset(place, offset * matrix.buffer.dtype.itemsize)

    def vector(self, matrix: Matrix, start: str, offset: int, stride: int, width: int) -> Vec:
        """`width` elements `stride` apart."""
        code, size = self.memory.code, matrix.buffer.dtype.itemsize
        if stride == 1 or width == 1:
            place = self.f.offset(start, offset * size)
            load = f"load {type_of(self.kind, width)}, ptr {place}, align {size}"
            return code.op(self.kind, width, load)
        found = code.const(self.kind, 0, width)
        for lane in range(width):
            one = self.vector(matrix, start, offset + lane * stride, 1, 1)
            found = found.with_lane(lane, one)
        return found
