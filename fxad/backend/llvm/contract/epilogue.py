"""The epilogue of a matrix product: its stores, evaluated on a tile of finished sums.

    epilogue = Epilogue(problem, "matmul0", target, lanes, stride)
    f.line(epilogue.call(batch, sums, row, column, height=8, columns=48))

One internal function per panel width, a loop over the rows of the tile, which is still in the
first-level cache. What does not change from row to row (a bias) is loaded before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import Place, RowPrefetch
from fxad.backend.llvm.base.tuning import Gemm
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.contract.arguments import at_grid_point, emit_stores, load_arguments
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.prefetch import is_plain
from fxad.backend.llvm.contract.problem import Problem, matrix
from fxad.backend.llvm.elements.scope import (
    SINGLE,
    Copy,
    Need,
    Scope,
    each_copy,
    inner,
    with_axes,
    with_cells,
)
from fxad.backend.llvm.elements.stores import hoist_prefetches, prefetch_rows
from fxad.backend.llvm.elements.values import hoist, hoist_index, roots_with_guards
from fxad.core.record import replace
from fxad.ir.kernel import Index, Load, Stage, exprs_of, walk

PARAMS = (
    ("ptr", "args"),
    ("i64", "batch"),
    ("ptr", "sums"),
    ("i64", "row"),
    ("i64", "rows"),
    ("i64", "column"),
)


UNIT = 0  # stands for the columns of a whole unit


def epilogue_operands(problem: Problem) -> list[Place]:
    """Where the epilogue's operands with an element for every one of the product lie, a row on."""
    found: dict[Place, None] = {}
    for load in (e for root in exprs_of(problem.stage) for e in walk(root) if type(e) is Load):
        m = matrix(load.buffer, load.index, problem.rows, problem.columns)
        if m is not None and m.inner == 1 and m.outer >= problem.size[1] and is_plain(m.base):
            found[load.buffer, Index(load.index.const + m.outer, load.index.terms)] = None
    return list(found)


def runs_per_unit(problem: Problem, tuning: Gemm) -> bool:
    """Whether the epilogue runs over all rows of a unit at its end: it reads so much that it comes
    from memory, where a tile's few lines in each of its rows are the slowest way to go."""
    rows, columns, _ = problem.size
    points = rows * columns * problem.kernel.points
    sizes = [points * buffer.dtype.itemsize for buffer, _ in epilogue_operands(problem)]
    if len(sizes) >= tuning.update_operands:
        return min(rows, columns) >= tuning.update_least and sum(sizes) >= tuning.update_bytes
    least = rows >= tuning.unit_epilogue_rows and columns >= tuning.unit_epilogue_columns
    return least and sum(sizes) >= tuning.unit_epilogue_bytes


class Epilogue:
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
        problem, lanes = self.problem, self.lanes
        counts = [min(lanes.width, columns - at) for at in range(0, columns, lanes.width)]
        start = load_arguments(problem.kernel, f, self.target, scalars=True)
        point = at_grid_point(start, problem.kernel, "%batch")
        copies = [
            Copy(i, "%column", i * lanes.width, self._mask(point, count))
            for i, count in enumerate(counts)
        ]
        tile = self._vectors(point, "%column", copies)
        self._hoist(tile, {problem.rows})

        def one_row(i: str, pointers: list[str]) -> list[str]:
            row = with_axes(tile, {problem.rows: f.add("%row", i)})
            self._point(inner(tile, axes=row), pointers[0], counts)
            return [f.offset(pointers[0], self.stride * lanes.bytes)]

        f.loop(0, "%rows", 1, one_row, [("ptr", "%sums")], at_least_once=True)
        return self._finished(start)

    def _next_rows(self) -> Iterator[RowPrefetch]:
        """The next rows of what the epilogue reads."""
        along, extent = self.problem.columns, self.problem.size[1]
        for buffer, index in epilogue_operands(self.problem):
            row = Index(index.const, tuple([(a, c) for a, c in index.terms if a is not along]))
            yield RowPrefetch(buffer, row, along, extent)

    def _emit_unit(self) -> str:
        """The function for the rows of a unit: each from end to end, as a loop of its own would
        go, while the next one is prefetched."""
        f = Function(f"{self.name}.finish", "void", (*PARAMS, ("i64", "columns")), "internal", "#1")
        problem, lanes, stage = self.problem, self.lanes, self.problem.stage
        width = lanes.width
        prefetches: dict[Stage, Sequence[RowPrefetch]] = {stage: tuple(self._next_rows())}
        start = load_arguments(problem.kernel, f, self.target, True, prefetches)
        point = at_grid_point(start, problem.kernel, "%batch")
        unit = inner(point, lanes=replace(SINGLE, axis=problem.columns, width=width))
        end = f.add("%column", "%columns")
        whole = f.op(f"sub i64 {end}, {f.op(f'urem i64 %columns, {width}')}")
        self._hoist(unit, {problem.rows, problem.columns})

        def vector(row: Scope, at: str, sums: str, left: str) -> None:
            mask = row.code.first_lanes(width, left) if left else None
            here = self._vectors(row, at, [Copy(0, at, 0, mask)])
            if not left:
                prefetch_rows(here, stage)
            place = f.offset(sums, f.mul(f.op(f"sub i64 {at}, %column"), lanes.bytes))
            self._point(here, place, [width])

        def one_row(i: str, pointers: list[str]) -> list[str]:
            row = inner(unit, axes=with_axes(unit, {problem.rows: f.add("%row", i)}))
            self._hoist(row, {problem.columns})
            (sums,) = pointers
            f.loop("%column", whole, width, lambda at, _: vector(row, at, sums, ""))
            some = f.op(f"icmp slt i64 {whole}, {end}")
            f.when(some, lambda: vector(row, whole, sums, f.op(f"sub i64 {end}, {whole}")))
            return [f.offset(sums, self.stride * lanes.bytes)]

        f.loop(0, "%rows", 1, one_row, [("ptr", "%sums")], at_least_once=True)
        return self._finished(start)

    def _vectors(self, scope: Scope, column: str, copies: Sequence[Copy]) -> Scope:
        """The scope of vectors along the columns, from `column` on."""
        columns = self.problem.columns
        lanes = replace(SINGLE, axis=columns, width=self.lanes.width, copies=tuple(copies))
        axes = with_axes(scope, {columns: column})
        return inner(scope, axes=axes, lanes=lanes, copy=copies[0])

    def _hoist(self, scope: Scope, axes: set[Need]) -> None:
        """Compute here what changes along none of the axes."""
        stage = self.problem.stage
        blocked: frozenset[Need] = frozenset({*axes, stage.cell, *(s.buffer for s in stage.stores)})
        hoist(scope, roots_with_guards(stage.stores), blocked, self.lanes.width)
        for store in stage.stores:
            hoist_index(scope, store.buffer, store.index, blocked)
        hoist_prefetches(scope, stage, blocked)

    def _point(self, scope: Scope, sums: str, counts: Sequence[int]) -> None:
        """The stores of one row, in vectors of so many columns whose sums begin at `sums`."""
        lanes, f = self.lanes, scope.f
        kind, found = kind_of(self.problem.dtype), {}
        for copy, count in zip(scope.lanes.copies, counts, strict=True):
            at = f.offset(sums, copy.offset * lanes.bytes)
            value = lanes.load(f, at, lanes.dtype, count)
            found[copy.number] = Vec(scope.code, kind, lanes.width, value)
        for here in each_copy(with_cells(scope, {self.problem.stage.cell: found})):
            emit_stores(here, self.stores)

    def _finished(self, scope: Scope) -> str:
        scope.f.ret()
        self.declarations |= scope.code.declarations
        return str(scope.f)

    def _mask(self, scope: Scope, count: int) -> Vec | None:
        width = self.lanes.width
        if count == width:
            return None
        return scope.code.consts("i1", [i < count for i in range(width)])
