"""Small matrix products inside loops: a row of the result at a time, one vector, written out.

    emitted = emit_small_product(problem, function, target)      # where `is_small`

For every row: sums = a[i, 0] * b[0, :], then + a[i, 1] * b[1, :] and so on by FMA, and the epilogue
on the vector of sums. Nothing is packed or prefetched: operands lie on the caller's stack, and
what does not change in its loop the compiler takes out of it.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.tuning import Sequences
from fxad.backend.llvm.base.vector import Vec, fma, type_of
from fxad.backend.llvm.contract.arguments import (
    address,
    at_grid_point,
    emit_stores,
    load_arguments,
)
from fxad.backend.llvm.contract.problem import Matrix, Problem
from fxad.backend.llvm.elements.scope import SINGLE, Scope, inner, with_axes, with_cells
from fxad.core.record import replace
from fxad.ir.kernel import Load, exprs_of, walk


def is_small(problem: Problem, tuning: Sequences) -> bool:
    """Whether a product is best written out, in vectors along its columns: it is small, of f32 or
    f64 alone, and what its epilogue reads and writes is contiguous along them."""
    dtype, (_, columns, _) = problem.dtype, problem.size
    operands = (problem.a.buffer.dtype, problem.b.buffer.dtype)
    stage = problem.stage
    loads = [e for e in walk(*exprs_of(stage)) if isinstance(e, Load)]
    return (
        dtype in (np.float32, np.float64)
        and operands == (dtype, dtype)
        and 1 < columns <= tuning.row_columns
        and 0 < _operations(problem) <= tuning.row_operations
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
    scope = load_arguments(problem.kernel, function, target, scalars=True)
    points = problem.kernel.points
    for point in range(points):
        here = at_grid_point(scope, problem.kernel, str(point))
        for row in range(problem.size[0]):
            _row(here, problem, row)
    function.ret()
    declarations = frozenset(scope.code.declarations)
    cost = points * problem.size[0] * target.tuning.sequences.row_ns
    return Emitted(function.name, str(function), declarations, 1, 0, cost)


def _row(scope: Scope, problem: Problem, row: int) -> None:
    """A row of the result at a grid point."""
    stage = problem.stage
    axes = with_axes(scope, {problem.rows: str(row), problem.columns: "0"})
    lanes = replace(SINGLE, axis=problem.columns, width=problem.size[1])
    here = inner(scope, axes=axes, lanes=lanes)
    sums = {here.copy.number: _sums(here, problem, row)}
    emit_stores(with_cells(here, {stage.cell: sums}), stage.stores)


def _sums(scope: Scope, problem: Problem, row: int) -> Vec:
    a, b, columns = problem.a, problem.b, problem.size[1]
    kind = kind_of(problem.dtype)
    left = _start(scope, a, row * a.outer)
    right = _start(scope, b, 0)
    total = scope.code.const(kind, 0, columns)
    for k in range(problem.size[2]):
        one = _vector(scope, a, left, k * a.inner, 1, 1).splat(columns)
        total = fma(one, _vector(scope, b, right, k * b.inner, b.outer, columns), total)
    return total


def _start(scope: Scope, matrix: Matrix, offset: int) -> str:
    """The address `offset` elements after a matrix's first of this grid point."""
    place = address(scope, matrix.buffer, matrix.base)
    return scope.f.offset(place, offset * matrix.buffer.dtype.itemsize)


def _vector(scope: Scope, matrix: Matrix, start: str, offset: int, stride: int, width: int) -> Vec:
    """`width` elements `stride` apart."""
    code, dtype = scope.code, matrix.buffer.dtype
    kind, size = kind_of(dtype), dtype.itemsize
    if stride == 1 or width == 1:
        place = scope.f.offset(start, offset * size)
        load = f"load {type_of(kind, width)}, ptr {place}, align {size}"
        return code.op(kind, width, load)
    found = code.const(kind, 0, width)
    for lane in range(width):
        one = _vector(scope, matrix, start, offset + lane * stride, 1, 1)
        found = found.with_lane(lane, one)
    return found
