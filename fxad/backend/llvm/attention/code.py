"""A function of attention as it is written, and values in it.

    code = begin(problem, block)
    pointer = code.take(64 * 128 * 4)        # of this thread's scratch
    row = code.element(view, "%row")         # the address of a row's first element
    code.store(code.load(row) * 2.0, row)

Operands are copied to scratch before they are read many times: rows of a head lie far apart in
memory, often by a multiple of 4 KiB, where a first-level cache holds only a few of them.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.problem import Problem, ScoreBlock
from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import ABI, Emitted
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.arguments import address, load_arguments
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.micro_kernel import MicroKernel
from fxad.backend.llvm.contract.problem import matrix
from fxad.backend.llvm.elements import prims
from fxad.backend.llvm.elements.scope import Scope
from fxad.core.aligned import LINE
from fxad.core.errors import CheckError
from fxad.core.record import record, valued
from fxad.ir.kernel import Axis, Operand


@valued
class View:
    """A matrix in memory: the address of its first element, and strides in elements."""

    pointer: str
    row_stride: int
    column_stride: int = 1


@record
class Code:
    """The function. block: of scores. scope: at the function's start. lanes: vectors of the scores'
    dtype, `kind` in LLVM. helpers: texts of the functions that it calls, by name; micro_kernels:
    names of those among them."""

    problem: Problem
    block: ScoreBlock
    f: Function
    scope: Scope
    lanes: Lanes
    kind: str
    helpers: dict[str, str]
    micro_kernels: dict[MicroKernel, str]

    def take(self, nbytes: int) -> str:
        """The address of so many bytes of this thread's scratch."""
        return self.scope.context.scratch.take(nbytes)

    def helper(self, name: str, text: Callable[[], str]) -> str:
        """The name of a function that is called, whose text is written at its first use."""
        if name not in self.helpers:
            self.helpers[name] = text()
        return name

    def element(self, view: View, row: str | int, column: int = 0) -> str:
        """The address of an element."""
        f, size = self.f, self.problem.size
        return f.offset(view.pointer, f.add(f.mul(row, view.row_stride * size), column * size))

    def from_row(self, view: View, row: str) -> View:
        """The matrix without the rows before this one."""
        return View(self.element(view, row), view.row_stride)

    def vector(self, text: str) -> Vec:
        return Vec(self.scope.code, self.kind, self.problem.lane_width, text)

    def load(self, pointer: str, count: int | None = None) -> Vec:
        """A vector; the first `count` lanes of it, and 0 in others."""
        lanes = self.lanes
        text = lanes.load(self.f, pointer, lanes.dtype, lanes.width if count is None else count)
        return self.vector(text)

    def store(self, value: Vec, pointer: str, count: int | None = None) -> None:
        lanes = self.lanes
        lanes.store(self.f, value.text, pointer, lanes.width if count is None else count)

    def load_scalar(self, pointer: str) -> Vec:
        found = self.f.op(f"load {self.kind}, ptr {pointer}, align {self.problem.size}")
        return Vec(self.scope.code, self.kind, 1, found)

    def store_scalar(self, value: Vec, pointer: str) -> None:
        size = self.problem.size
        self.f.line(f"store {self.kind} {value.text}, ptr {pointer}, align {size}")

    def splat(self, number: float) -> Vec:
        """A number in every lane."""
        return self.scope.code.const(self.kind, number, self.problem.lane_width)

    def apply(self, name: str, value: Vec) -> Vec:
        """A scalar primitive of one argument."""
        dtype = self.problem.dtype
        found = prims.apply(name, [value], dtype, dtype)
        assert isinstance(found, Vec)
        return found


def begin(problem: Problem, block: ScoreBlock) -> Code:
    """The function at its start."""
    f = Function(problem.name, "void", ABI)
    scope = load_arguments(problem.kernel, f, problem.target, scalars=True)
    lanes = Lanes(problem.dtype, problem.lane_width)
    return Code(problem, block, f, scope, lanes, kind_of(problem.dtype), {}, {})


def finished(code: Code, units: int, cost: float) -> Emitted:
    """The function and those that it calls, at its end. cost: in nanoseconds."""
    code.f.ret()
    return Emitted(
        code.problem.name,
        "\n".join([*code.helpers.values(), str(code.f)]),
        frozenset(code.lanes.declarations | code.scope.code.declarations),
        units,
        code.scope.context.scratch.most,
        max(cost, 100.0),
    )


def operand_view(
    code: Code, scope: Scope, operand: Operand, row: Axis, column: Axis | None = None
) -> View:
    """An operand's matrix at the grid point of a scope; one column, if no axis is given."""
    inner = column or Axis("", 1)
    found = matrix(operand.buffer, operand.index, row, inner)
    if found is None or (column is not None and column.extent > 1 and found.inner != 1):
        name, buffer = code.problem.name, operand.buffer.name
        raise CheckError(f"{name}: {buffer} is not contiguous along its rows")
    return View(address(scope, operand.buffer, found.base), found.outer)


def prefetch_row(
    code: Code, view: View, row: str | int, columns: int, write: bool = False, level: int = 2
) -> None:
    """Prefetch a row, whose lines begin where the row does. level: 3 is the first-level cache."""
    for start in range(0, columns * code.problem.size, LINE):
        at = code.f.offset(code.element(view, row), start)
        prefetch_line(code.f, code.lanes.declarations, at, write, level)


def fill_rows(
    code: Code, to: View, rows: str | int, columns: int, value: Callable[[str, int], Vec]
) -> None:
    """to[row, c ...] = value(row, c) for all rows and every vector of columns."""
    width = code.lanes.width

    def row(j: str, _: list[str]) -> None:
        for start in range(0, columns, width):
            found = value(j, start)
            code.store(found, code.element(to, j, start), min(width, columns - start))

    code.f.loop(0, rows, 1, row)
