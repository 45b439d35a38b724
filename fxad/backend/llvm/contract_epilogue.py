"""The epilogue of a matrix product: its stores, evaluated on a tile of finished sums.

    finish = Finish(problem, "matmul0", target, lanes, stride)
    f.line(finish.call(batch, sums, row, column, height=8, columns=48))

One internal function per panel width, a loop over the rows of the tile, which is still in the
first-level cache. What does not change from row to row (a bias) is loaded before the loop.
"""

from __future__ import annotations

from fxad.backend.llvm.access import Memory
from fxad.backend.llvm.contract_grid import arguments, go_to, run_stores
from fxad.backend.llvm.contract_lanes import Lanes
from fxad.backend.llvm.contract_plan import Problem
from fxad.backend.llvm.formats import kind_of
from fxad.backend.llvm.schedule import Target
from fxad.backend.llvm.text import Function
from fxad.backend.llvm.values import Copy, Need, roots_with_guards
from fxad.backend.llvm.vector import Vec

PARAMS = (
    ("ptr", "args"),
    ("i64", "batch"),
    ("ptr", "sums"),
    ("i64", "row"),
    ("i64", "rows"),
    ("i64", "column"),
)


class Finish:
    """The epilogue functions of one kernel; sums lie `stride` elements apart from row to row."""

    def __init__(
        self, problem: Problem, name: str, target: Target, lanes: Lanes, stride: int
    ) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.lanes, self.stride = lanes, stride
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

    def _emit(self, columns: int) -> str:
        f = Function(f"{self.name}.finish{columns}", "void", PARAMS, "internal", "#1")
        problem, lanes, stage = self.problem, self.lanes, self.problem.stage
        memory = arguments(problem.kernel, f, self.target, scalars=True)
        go_to(memory, problem.kernel, "%batch")
        memory.env[problem.columns] = "%column"
        memory.lanes_along(problem.columns, lanes.width)
        memory.varying_cells.add(stage.cell)
        counts = [min(lanes.width, columns - at) for at in range(0, columns, lanes.width)]
        memory.copies = [
            Copy(i, "%column", i * lanes.width, self._mask(memory, count))
            for i, count in enumerate(counts)
        ]
        memory.copy = memory.copies[0]
        blocked: frozenset[Need] = frozenset(
            {problem.rows, stage.cell, *(s.buffer for s in stage.stores)}
        )
        memory.hoist(roots_with_guards(stage.stores), blocked, lanes.width)
        for store in stage.stores:
            memory.hoist_index(store.buffer, store.index, blocked)
        kind = kind_of(problem.dtype)

        def one_row(i: str, pointers: list[str]) -> list[str]:
            memory.scopes.append({})
            memory.env[problem.rows] = f.add("%row", i)
            memory.cells[stage.cell] = {}
            for copy, count in zip(memory.copies, counts, strict=True):
                at = f.offset(pointers[0], copy.offset * lanes.bytes)
                value = Vec(memory.code, kind, lanes.width, lanes.load(f, at, lanes.dtype, count))
                memory.cells[stage.cell][copy.number] = value
            for _ in memory.each_copy():
                run_stores(memory, stage.stores)
            memory.scopes.pop()
            return [f.offset(pointers[0], self.stride * lanes.bytes)]

        f.loop(0, "%rows", 1, one_row, [("ptr", "%sums")], at_least_once=True)
        f.ret()
        self.declarations |= memory.code.declarations
        return str(f)

    def _mask(self, memory: Memory, count: int) -> Vec | None:
        width = self.lanes.width
        return (
            None if count == width else memory.code.consts("i1", [i < count for i in range(width)])
        )
