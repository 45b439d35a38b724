"""Prefetches of a micro-kernel: what comes next of B, and what its tile reads and writes besides.

    prefetch = PanelPrefetch.of(b, blocking, k_blocking, k_step=1, packs=True, unroll=4)
    prefetch.emit(f, "%next", "%first", iteration, lanes)   # in each iteration of the loop
    tile_operands(problem)                                  # the result, a residual, Adam's moments

A core waits for 16 lines of its own prefetches at most, too few to read a weight from memory as
fast as it is used, and then what else misses the first level waits as well. The processor's
prefetcher can wait for three times as many, but goes only along rows. So panels that lie side by
side come in groups, and during a block of one the next is prefetched row by row, from the first
line to the last.

A tile reaches a few lines in every one of its rows of the result, which lie far apart: no hardware
prefetcher follows that. So the micro-kernel prefetches the lines of its tile, one or two per step
of its loop, early enough that they are there when the sums are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.blocking import Blocking, KBlocking
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.problem import Matrix, Problem, matrix
from fxad.core.aligned import LINE
from fxad.core.record import valued
from fxad.ir.kernel import Axis, Index, Load, exprs_of, walk

_FRACTION_BITS = 32  # of lines per iteration, a fixed-point number


@valued
class PanelPrefetch:
    """The part of B that comes next: `rows` in memory, `row_bytes` apart, of `lines`, which `calls`
    of the micro-kernel prefetch.

    Each call prefetches `pace` lines in each of `iterations` of its loop, the last iteration of the
    last call the last ones: what lies behind them would drive out of the cache what came. They are
    the next block of K of a group of panels or, if `next_panel`, all of the next panel.
    """

    next_panel: bool
    rows: int
    row_bytes: int
    lines: int
    calls: int
    iterations: int

    @staticmethod
    def of(
        b: Matrix, blocking: Blocking, k_blocking: KBlocking, k_step: int, packs: bool, unroll: int
    ) -> PanelPrefetch | None:
        """packs: whether a panel's first call has a copy to write and prefetches nothing;
        unroll: steps of k in an iteration."""
        iterations, size = k_blocking.cache_block // unroll, b.buffer.dtype.itemsize
        calls = blocking.unit_tiles - packs
        if 1 not in (b.outer, b.inner) or not (iterations and calls > 0 and blocking.panels):
            return None
        # Panels whose rows go on along k, in another block, would bring that along too early.
        next_panel = b.outer != 1 and k_blocking.sum_blocks == 1
        across, row = blocking.panel_group * blocking.panel_columns, b.inner
        along = k_blocking.cache_block * k_step
        calls *= k_blocking.per_sum_block if next_panel else blocking.panel_group
        if next_panel:
            along = k_blocking.sum_block * k_step
        rows, length = along, across
        if b.outer != 1:
            rows, length, row = across, along, b.outer
        lines = lines_of(length * size, row * size)
        return PanelPrefetch(next_panel, rows, row * size, lines, calls, iterations)

    @property
    def pace(self) -> int:
        """Lines per iteration."""
        return -(-self.rows * self.lines // (self.calls * self.iterations))

    @property
    def _is_even(self) -> bool:
        """Whether no iteration prefetches a line that another one does."""
        return self.rows * self.lines == self.calls * self.iterations * self.pace

    def emit(self, f: Function, start: str, first: str, iteration: str, lanes: Lanes) -> None:
        """Prefetch the lines of one iteration; first: number of the call's first among all."""
        number = self.line_of(f, f.add(first, iteration))
        at = f.offset(start, self._place(f, number))
        for i in range(self.pace):
            if i and not (self._is_even and self.lines % self.pace == 0):
                at = f.offset(start, self._place(f, f.add(number, i)))
            elif i:
                at = f.offset(at, LINE)
            prefetch_line(f, lanes.declarations, at, write=False, level=2)

    def emit_all(self, f: Function, start: str, lanes: Lanes) -> None:
        """Prefetch all lines at once, where nothing was there to do it before."""

        def row(_: str, at: list[str]) -> list[str]:
            for line in range(self.lines):
                prefetch_line(f, lanes.declarations, f.offset(at[0], line * LINE), False, level=2)
            return [f.offset(at[0], self.row_bytes)]

        f.loop(0, self.rows, 1, row, [("ptr", start)], at_least_once=True)

    def line_of(self, f: Function, iteration: str) -> str:
        """Number of the first line that an iteration prefetches: never more than `pace` after the
        last one's, so that none is left out."""
        if self._is_even:
            return f.mul(iteration, self.pace)
        scaled = f.mul(
            iteration,
            -(-(self.rows * self.lines << _FRACTION_BITS) // (self.calls * self.iterations)),
        )
        return f.op(f"lshr i64 {scaled}, {_FRACTION_BITS}")

    def _place(self, f: Function, number: str) -> str:
        """Bytes from the start to a line; a few that rounding adds lie beyond, without harm."""
        row = f.op(f"udiv i64 {number}, {self.lines}")
        line = f.op(f"urem i64 {number}, {self.lines}")
        return f.add(f.mul(row, self.row_bytes), f.mul(line, LINE))


@valued
class TileLines:
    """Lines of one matrix under a tile: `lines` in each of `rows`, which are `row_bytes` apart.

    when: the parameter that says in which blocks of K; "" in all of them.
    """

    rows: int
    row_bytes: int
    lines: int
    write: bool
    when: str

    @property
    def count(self) -> int:
        return self.rows * self.lines


def tile_operands(problem: Problem) -> list[tuple[Matrix, bool]]:
    """(matrix, whether it is written) of every result and every operand of the epilogue."""
    stage = problem.stage
    places: dict[tuple, tuple[Matrix, bool]] = {}
    loads = [e for root in exprs_of(stage) for e in walk(root) if type(e) is Load]
    writes = [(s.buffer, s.index, True) for s in stage.stores]
    for buffer, index, write in [*writes, *((e.buffer, e.index, False) for e in loads)]:
        found = matrix(buffer, index, problem.rows, problem.columns)
        if found is None or found.inner != 1 or not found.outer or not is_plain(found.base):
            continue
        places.setdefault((buffer, found.base.const, found.base.terms, found.outer), (found, write))
    return list(places.values())


def is_plain(base: Index) -> bool:
    return all(isinstance(atom, Axis) for atom, _ in base.terms)


def lines_under_tile(found: Matrix, write: bool, tile: tuple[int, int], sums: bool) -> TileLines:
    """For tiles of (rows, columns). sums: blocks of K are added up in the matrix, so that every
    one of them reads it; otherwise the last one does."""
    rows, columns = tile
    size = found.buffer.dtype.itemsize
    row = found.outer * size
    return TileLines(rows, row, lines_of(columns * size, row), write, "ends" if sums else "last")


def lines_of(length: int, row_bytes: int) -> int:
    """Cache lines in `length` bytes of a row, which may begin inside one if rows are not whole."""
    return -(-length // LINE) + (row_bytes % LINE != 0)


class TilePrefetcher:
    """Emits the prefetches of one micro-kernel whose loop takes so many iterations.

    Its parameters are %last and %ends (all ones in the last block of K and at the end of a sum's
    block, else 0), then the first line of every TileLines: %tile0, %tile1, ... most: prefetches in
    an iteration.
    """

    def __init__(
        self, f: Function, tile_lines: Sequence[TileLines], iterations: int, most: int
    ) -> None:
        self.f = f
        self._tile_lines: list[tuple[int, TileLines, int]] = []
        for number, lines in enumerate(tile_lines):
            each = -(-lines.count // max(iterations, 1))
            if each <= most:
                most -= each
                self._tile_lines.append((number, lines, each))
        needed = [-(-lines.count // each) for _, lines, each in self._tile_lines]
        # Not long before they are needed, or the panel of B drives them out again.
        early = f.op(f"sub i64 %iterations, {2 * max(needed, default=0)}")
        self._start = _limited(f, "smax", early, 0)

    def emit(self, iteration: str, lanes: Lanes) -> None:
        """The prefetches of one iteration of the loop."""
        if not self._tile_lines:
            return
        f, known = self.f, {}
        now = _limited(f, "smax", f.op(f"sub i64 {iteration}, {self._start}"), 0)
        for number, tile, each in self._tile_lines:
            for i in range(each):
                key = tile.rows, tile.row_bytes, tile.lines, i, each, tile.when
                if key not in known:
                    known[key] = self._place(now, tile, i, each)
                at = f.offset(f"%tile{number}", known[key])
                level = 3 if tile.write else 2
                prefetch_line(f, lanes.declarations, at, tile.write, level)
        lanes.declarations |= {f"declare i64 @llvm.{m}.i64(i64, i64)" for m in ("smax", "umin")}

    def _place(self, iteration: str, tile: TileLines, i: int, each: int) -> str:
        """Offset of the line: down the rows first, then the next line of every row."""
        f = self.f
        number = f.add(f.mul(iteration, each), i)
        number = _limited(f, "umin", number, tile.count - 1)
        row = f.mul(f.op(f"urem i64 {number}, {tile.rows}"), tile.row_bytes)
        line = f.mul(f.op(f"udiv i64 {number}, {tile.rows}"), LINE)
        place = f.add(row, line)
        return f.op(f"and i64 {place}, %{tile.when}") if tile.when else place


def _limited(f: Function, by: str, value: str, bound: int) -> str:
    return f.op(f"call i64 @llvm.{by}.i64(i64 {value}, i64 {bound})")
