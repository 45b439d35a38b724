"""Matrix products of dtypes without a fast path (complex, bool, 8-bit floats): plain loops.

One unit is one row of the result. Complex products add a.re * b.re, then -a.im * b.im to the real
part and a.re * b.im, then a.im * b.re to the imaginary part, each by FMA; bool products are `and`,
bool sums are `or`.
"""

from __future__ import annotations

from fxad.backend.llvm.base.formats import Pair, Value, cast
from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec, fma
from fxad.backend.llvm.contract.grid import address, arguments, go_to, run_stores
from fxad.backend.llvm.contract.plan import Matrix, Problem
from fxad.backend.llvm.elements.monoids import flatten, unflatten
from fxad.ir.kernel import Index
from fxad.ir.orders import k_block

_NS_PER_PRODUCT = 1.5


def emit_scalar_contract(
    problem: Problem, name: str, target: Target, function: Function | None = None
) -> Emitted:
    """LLVM IR of a Contract kernel with non-empty result, one element at a time.

    function: an empty one of the same ABI to write it into.
    """
    f = function or Function(name, "void", ABI)
    rows, columns, k = problem.size
    loops = _Loops(problem, f, target)
    f.loop("%begin", "%end", 1, loops.row)
    f.ret()
    units = problem.kernel.points * rows
    cost = units * columns * max(k, 1) * _NS_PER_PRODUCT
    return Emitted(name, str(f), frozenset(loops.memory.code.declarations), units, 0, cost)


class _Loops:
    """Rows, columns, K blocks, k: one function's nest."""

    def __init__(self, problem: Problem, f: Function, target: Target) -> None:
        self.problem, self.f = problem, f
        self.memory = arguments(problem.kernel, f, target, scalars=True)
        self.k_size = max(k_block(problem.size[2]), 1)

    def row(self, unit: str, _: list[str]) -> None:
        f, problem, memory = self.f, self.problem, self.memory
        rows, columns = problem.rows.extent, problem.columns.extent
        memory.scopes.append({})
        memory.env[problem.rows] = f.op(f"urem i64 {unit}, {rows}")
        go_to(memory, problem.kernel, f.op(f"udiv i64 {unit}, {rows}"))
        self.a = address(memory, problem.a.buffer, problem.a.base)
        self.a = self.moved(self.a, problem.a, memory.env[problem.rows], problem.a.outer)
        self.b = address(memory, problem.b.buffer, problem.b.base)
        f.loop(0, columns, 1, self.column, at_least_once=True)
        memory.scopes.pop()

    def moved(self, pointer: str, matrix: Matrix, steps: str, stride: int) -> str:
        return self.f.offset(pointer, self.f.mul(steps, stride * matrix.buffer.dtype.itemsize))

    def column(self, column: str, _: list[str]) -> None:
        problem, memory, stage = self.problem, self.memory, self.problem.stage
        memory.scopes.append({})
        memory.env[problem.columns] = column
        b = self.moved(self.b, problem.b, column, problem.b.outer)
        memory.cells[stage.cell] = {memory.copy.number: self.total(b)}
        run_stores(memory, stage.stores)
        memory.scopes.pop()

    def total(self, b: str) -> Value:
        """The element's sum: blocks of K in order, each from 0."""
        f, k = self.f, self.problem.size[2]
        zero = [self.memory.constant(0, self.problem.dtype)]
        start = [(part.type, part.text) for part in flatten(zero)]

        def block(low: str, carried: list[str]) -> list[str]:
            end = f.add(low, self.k_size)
            inside = f.op(f"icmp slt i64 {end}, {k}")
            high = f.op(f"select i1 {inside}, i64 {end}, i64 {k}")
            sums = f.loop(low, high, 1, lambda at, s: self.step(b, at, zero, s), start)
            (new,), (old,) = (unflatten(self.memory.code, zero, s) for s in (sums, carried))
            both = flatten([_add(old, new)])
            first = f.op(f"icmp eq i64 {low}, 0")
            return [
                f.op(f"select i1 {first}, {s.type} {one}, {s.type} {s.text}")
                for one, s in zip(sums, both, strict=True)
            ]

        result = f.loop(0, k, self.k_size, block, start)
        return unflatten(self.memory.code, zero, result)[0]

    def step(self, b: str, at: str, like: list[Value], sums: list[str]) -> list[str]:
        problem = self.problem
        left = self.element(self.a, problem.a, at)
        right = self.element(b, problem.b, at)
        (total,) = unflatten(self.memory.code, like, sums)
        return [part.text for part in flatten([_multiply_add(left, right, total)])]

    def element(self, pointer: str, matrix: Matrix, at: str) -> Value:
        """matrix[.., at], converted to the accumulator's dtype."""
        place = self.moved(pointer, matrix, at, matrix.inner)
        memory, buffer = self.memory, matrix.buffer
        before, memory.pointers = memory.pointers, {**memory.pointers, buffer: place}
        memory.scopes.append({("part", buffer, Index()): (place, ())})
        value = memory.load(buffer, Index(), None, None, wide=False)
        memory.scopes.pop()
        memory.pointers = before
        return cast(value, buffer.dtype, self.problem.dtype)


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
