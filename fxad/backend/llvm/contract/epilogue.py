"""The epilogue of a matrix product: its stores, evaluated on a tile of finished sums.

    finish = Finish(problem, "matmul0", target, lanes, stride)
    f.line(finish.call(batch, sums, row, column, height=8, columns=48))

One internal function per panel width, a loop over the rows of the tile, which is still in the
first-level cache. What does not change from row to row (a bias) is loaded before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import Asked
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.grid import arguments, go_to, run_stores
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.plan import Problem
from fxad.backend.llvm.contract.touch import operands_below
from fxad.backend.llvm.elements.access import Memory
from fxad.backend.llvm.elements.values import Copy, Need, roots_with_guards
from fxad.ir.kernel import Index

PARAMS = (
    ("ptr", "args"),
    ("i64", "batch"),
    ("ptr", "sums"),
    ("i64", "row"),
    ("i64", "rows"),
    ("i64", "column"),
)


UNIT = 0  # stands for the columns of a whole unit


class Finish:
    """The epilogue functions of one kernel; sums lie `stride` elements apart from row to row.

    in_place: they lie in the first store's buffer, where what is just the sum need not be stored.
    """

    def __init__(
        self,
        problem: Problem,
        name: str,
        target: Target,
        lanes: Lanes,
        stride: int,
        in_place: bool = False,
    ) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.lanes, self.stride = lanes, stride
        first, *others = problem.stage.stores
        self.stores = others if in_place and problem.is_identity(first) else [first, *others]
        self.declarations: set[str] = set()
        self._texts: dict[int, str] = {}

    def texts(self) -> list[str]:
        return list(self._texts.values())

    def call(
        self, batch: str, sums: str, row: str, column: str, height: int | str, columns: int
    ) -> str:
        """The call for the tile at (row, column) of one batch element."""
        if columns not in self._texts:
            self._texts[columns] = self._emit(columns)
        return (
            f"call void @{self.name}.finish{columns}(ptr %args, i64 {batch}, ptr {sums}, "
            f"i64 {row}, i64 {height}, i64 {column})"
        )

    def call_unit(
        self, batch: str, sums: str, row: str, rows: str, column: str, columns: str
    ) -> str:
        """The call for all rows of a unit, whose columns from `column` on are done in one go."""
        if UNIT not in self._texts:
            self._texts[UNIT] = self._emit_unit()
        return (
            f"call void @{self.name}.finish(ptr %args, i64 {batch}, ptr {sums}, "
            f"i64 {row}, i64 {rows}, i64 {column}, i64 {columns})"
        )

    def _emit(self, columns: int) -> str:
        """The function for tiles of so many columns."""
        f = Function(f"{self.name}.finish{columns}", "void", PARAMS, "internal", "#1")
        lanes, memory = self.lanes, self._memory(f)
        memory.env[self.problem.columns] = "%column"
        counts = [min(lanes.width, columns - at) for at in range(0, columns, lanes.width)]
        memory.copies = [
            Copy(i, "%column", i * lanes.width, self._mask(memory, count))
            for i, count in enumerate(counts)
        ]
        memory.copy = memory.copies[0]
        self._hoist(memory, {self.problem.rows})

        def one_row(i: str, pointers: list[str]) -> list[str]:
            memory.scopes.append({})
            memory.env[self.problem.rows] = f.add("%row", i)
            self._point(memory, pointers[0], counts)
            memory.scopes.pop()
            return [f.offset(pointers[0], self.stride * lanes.bytes)]

        f.loop(0, "%rows", 1, one_row, [("ptr", "%sums")], at_least_once=True)
        return self._finished(f, memory)

    def _asked(self) -> Iterator[Asked]:
        """The next rows of what the epilogue reads."""
        along, extent = self.problem.columns, self.problem.size[1]
        for buffer, index in operands_below(self.problem):
            row = Index(index.const, tuple([(a, c) for a, c in index.terms if a is not along]))
            yield Asked(buffer, row, along, extent)

    def _emit_unit(self) -> str:
        """The function for the rows of a unit: each from end to end, as a loop of its own would
        go, while the next one is asked for."""
        f = Function(f"{self.name}.finish", "void", (*PARAMS, ("i64", "columns")), "internal", "#1")
        problem, lanes, memory = self.problem, self.lanes, self._memory(f)
        width = lanes.width
        memory.asked = {id(problem.stage): tuple(self._asked())}
        end = f.add("%column", "%columns")
        whole = f.op(f"sub i64 {end}, {f.op(f'urem i64 %columns, {width}')}")
        self._hoist(memory, {problem.rows, problem.columns})

        def vector(at: str, sums: str, left: str) -> None:
            memory.scopes.append({})
            memory.env[problem.columns] = at
            mask = memory.code.first_lanes(width, left) if left else None
            memory.copies = [Copy(0, at, 0, mask)]
            memory.copy = memory.copies[0]
            if not left:
                memory.ask(problem.stage)
            place = f.offset(sums, f.mul(f.op(f"sub i64 {at}, %column"), lanes.bytes))
            self._point(memory, place, [width])
            memory.scopes.pop()

        def one_row(i: str, pointers: list[str]) -> list[str]:
            memory.scopes.append({})
            memory.env[problem.rows] = f.add("%row", i)
            self._hoist(memory, {problem.columns})
            (sums,) = pointers
            f.loop("%column", whole, width, lambda at, _: vector(at, sums, ""))
            some = f.op(f"icmp slt i64 {whole}, {end}")
            f.when(some, lambda: vector(whole, sums, f.op(f"sub i64 {end}, {whole}")))
            memory.scopes.pop()
            return [f.offset(sums, self.stride * lanes.bytes)]

        f.loop(0, "%rows", 1, one_row, [("ptr", "%sums")], at_least_once=True)
        return self._finished(f, memory)

    def _memory(self, f: Function) -> Memory:
        """The arguments of `f`, at the element %batch, with lanes along the columns."""
        problem = self.problem
        memory = arguments(problem.kernel, f, self.target, scalars=True)
        go_to(memory, problem.kernel, "%batch")
        memory.lanes_along(problem.columns, self.lanes.width)
        memory.varying_cells.add(problem.stage.cell)
        return memory

    def _hoist(self, memory: Memory, axes: set[Need]) -> None:
        """Compute here what changes along none of the axes."""
        stage = self.problem.stage
        blocked: frozenset[Need] = frozenset({*axes, stage.cell, *(s.buffer for s in stage.stores)})
        memory.hoist(roots_with_guards(stage.stores), blocked, self.lanes.width)
        for store in stage.stores:
            memory.hoist_index(store.buffer, store.index, blocked)
        memory.hoist_asked(stage, blocked)

    def _point(self, memory: Memory, sums: str, counts: Sequence[int]) -> None:
        """The stores of one row, in vectors of so many columns whose sums begin at `sums`."""
        lanes, cell = self.lanes, self.problem.stage.cell
        kind = kind_of(self.problem.dtype)
        memory.cells[cell] = {}
        for copy, count in zip(memory.copies, counts, strict=True):
            at = memory.f.offset(sums, copy.offset * lanes.bytes)
            value = lanes.load(memory.f, at, lanes.dtype, count)
            memory.cells[cell][copy.number] = Vec(memory.code, kind, lanes.width, value)
        for _ in memory.each_copy():
            run_stores(memory, self.stores)

    def _finished(self, f: Function, memory: Memory) -> str:
        f.ret()
        self.declarations |= memory.code.declarations
        return str(f)

    def _mask(self, memory: Memory, count: int) -> Vec | None:
        width = self.lanes.width
        return (
            None if count == width else memory.code.consts("i1", [i < count for i in range(width)])
        )
