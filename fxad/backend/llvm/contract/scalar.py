"""Matrix products of dtypes without a fast path (complex, bool): plain loops.

One unit is one row of the result. Complex products add a.re * b.re, then -a.im * b.im to the real
part and a.re * b.im, then a.im * b.re to the imaginary part, each by FMA; bool products are `and`,
bool sums are `or`.
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import Pair, Value, cast
from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.contract.arguments import (
    address,
    at_grid_point,
    emit_stores,
    load_arguments,
)
from fxad.backend.llvm.contract.problem import Matrix, Problem
from fxad.backend.llvm.elements.monoids import flatten, unflatten
from fxad.backend.llvm.elements.scope import Scope, inner, with_axes, with_cells
from fxad.backend.llvm.elements.values import constant, load
from fxad.ir.kernel import Index
from fxad.ir.orders import k_block


def emit_scalar_contract(
    problem: Problem, name: str, target: Target, function: Function | None = None
) -> Emitted:
    """LLVM IR of a Contract kernel with non-empty result, one element at a time.

    function: an empty one of the same ABI to write it into.
    """
    f = function or Function(name, "void", ABI)
    rows, columns, k = problem.size
    scope = load_arguments(problem.kernel, f, target, scalars=True)
    f.loop("%begin", "%end", 1, lambda unit, _: _row(scope, problem, unit))
    f.ret()
    units = problem.kernel.points * rows
    cost = units * columns * max(k, 1) * target.tuning.gemm.scalar_ns
    return Emitted(name, str(f), frozenset(scope.code.declarations), units, 0, cost)


def _row(scope: Scope, problem: Problem, unit: str) -> None:
    """A row of the result."""
    f, rows = scope.f, problem.rows.extent
    row = f.op(f"urem i64 {unit}, {rows}")
    point = at_grid_point(scope, problem.kernel, f.op(f"udiv i64 {unit}, {rows}"))
    here = inner(point, axes=with_axes(point, {problem.rows: row}))
    a = address(here, problem.a.buffer, problem.a.base)
    a = _moved(f, a, problem.a, row, problem.a.outer)
    b = address(here, problem.b.buffer, problem.b.base)

    def column(at: str, _: list[str]) -> None:
        _column(inner(here, axes=with_axes(here, {problem.columns: at})), problem, a, b, at)

    f.loop(0, problem.columns.extent, 1, column, at_least_once=True)


def _moved(f: Function, pointer: str, matrix: Matrix, steps: str, stride: int) -> str:
    return f.offset(pointer, f.mul(steps, stride * matrix.buffer.dtype.itemsize))


def _column(scope: Scope, problem: Problem, a: str, b: str, column: str) -> None:
    """An element of the result; a, b: where its row of A and B's column 0 begin."""
    stage = problem.stage
    b = _moved(scope.f, b, problem.b, column, problem.b.outer)
    total = {scope.copy.number: _total(scope, problem, a, b)}
    emit_stores(with_cells(scope, {stage.cell: total}), stage.stores)


def _total(scope: Scope, problem: Problem, a: str, b: str) -> Value:
    """The element's sum: blocks of K in order, each from 0."""
    f, code, k = scope.f, scope.code, problem.size[2]
    block_size = max(k_block(k), 1)
    zero = [constant(code, 0, problem.dtype)]
    start = [(part.type, part.text) for part in flatten(zero)]

    def step(at: str, sums: list[str]) -> list[str]:
        left = _element(scope, problem, problem.a, a, at)
        right = _element(scope, problem, problem.b, b, at)
        (total,) = unflatten(code, zero, sums)
        return [part.text for part in flatten([_multiply_add(left, right, total)])]

    def block(low: str, carried: list[str]) -> list[str]:
        end = f.add(low, block_size)
        inside = f.op(f"icmp slt i64 {end}, {k}")
        high = f.op(f"select i1 {inside}, i64 {end}, i64 {k}")
        sums = f.loop(low, high, 1, step, start)
        (new,), (old,) = (unflatten(code, zero, s) for s in (sums, carried))
        both = flatten([_add(old, new)])
        first = f.op(f"icmp eq i64 {low}, 0")
        return [
            f.op(f"select i1 {first}, {s.type} {one}, {s.type} {s.text}")
            for one, s in zip(sums, both, strict=True)
        ]

    result = f.loop(0, k, block_size, block, start)
    return unflatten(code, zero, result)[0]


def _element(scope: Scope, problem: Problem, matrix: Matrix, pointer: str, at: str) -> Value:
    """matrix[.., at], converted to the accumulator's dtype."""
    buffer = matrix.buffer
    here = inner(scope)
    place = _moved(scope.f, pointer, matrix, at, matrix.inner)
    here.remember(("part", buffer, Index()), (place, ()))
    return cast(load(here, buffer, Index(), None, None, wide=False), buffer.dtype, problem.dtype)


def _add(x: Value, y: Value) -> Value:
    if isinstance(x, Pair) and isinstance(y, Pair):
        return Pair(x.re + y.re, x.im + y.im)
    if isinstance(x, Vec) and isinstance(y, Vec):
        return x | y if x.kind == "i1" else x + y
    raise TypeError(f"cannot add a real and a complex value: {x!r}, {y!r}")


def _multiply_add(x: Value, y: Value, total: Value) -> Value:
    match x, y, total:
        case Pair(), Pair(), Pair():
            re = fma(-x.im, y.im, fma(x.re, y.re, total.re))
            return Pair(re, fma(x.im, y.re, fma(x.re, y.im, total.im)))
        case Vec(), Vec(), Vec():
            if x.kind == "i1":
                return total | (x & y)
            return fma(x, y, total) if x.kind in ("float", "double") else x * y + total
    raise TypeError(f"cannot multiply a real and a complex value: {x!r}, {y!r}, {total!r}")
