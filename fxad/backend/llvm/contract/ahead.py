"""The part of B that comes next: which of its lines a micro-kernel asks for while it works.

    ahead = Ahead.of(b, cut, pieces, k_step=1, packs=True)   # None if nothing in B has neighbours
    ahead.step(f, "%next", "%turn", turn, lanes)             # in each turn of the loop

A core waits for 16 lines of its own asking at most, too few to read a weight from memory as fast as
it is used, and then what else misses the first level waits as well. The processor's prefetcher can
wait for three times as many, but goes only along rows. So panels that lie side by side come in
groups, and during a piece of one the next is asked for row by row, from the first line to the last.
"""

from __future__ import annotations

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.plan import UNROLL, Cut, Matrix, Pieces
from fxad.backend.llvm.contract.touch import lines_of
from fxad.core.aligned import LINE
from fxad.core.record import valued

_BITS = 32  # after the point, of lines per turn


@valued
class Ahead:
    """`rows` in memory, `row_bytes` apart, of `lines`, asked for by `calls` of the micro-kernel.

    Each call asks for `pace` lines in each of `turns` turns of its loop, the last turn of the last
    call for the last ones: what lies behind them would drive out of the cache what came. They are
    the next piece of a group of panels or, if `whole`, all of the next panel.
    """

    whole: bool
    rows: int
    row_bytes: int
    lines: int
    calls: int
    turns: int

    @staticmethod
    def of(b: Matrix, cut: Cut, pieces: Pieces, k_step: int, packs: bool) -> Ahead | None:
        """packs: whether the first call of a sweep has a copy to write and asks for nothing."""
        turns, size = pieces.piece // UNROLL, b.buffer.dtype.itemsize
        calls = cut.unit_blocks - packs
        if 1 not in (b.outer, b.inner) or not (turns and calls > 0 and cut.panels):
            return None
        # Panels whose rows go on along k, in another block, would bring that along too early.
        whole = b.outer != 1 and pieces.blocks == 1
        across, along, row = cut.group * cut.width, pieces.piece * k_step, b.inner
        calls *= pieces.in_block if whole else cut.group
        if whole:
            along = pieces.block * k_step
        rows, length = along, across
        if b.outer != 1:
            rows, length, row = across, along, b.outer
        lines = lines_of(length * size, row * size)
        return Ahead(whole, rows, row * size, lines, calls, turns)

    @property
    def pace(self) -> int:
        """Lines per turn."""
        return -(-self.rows * self.lines // (self.calls * self.turns))

    @property
    def _is_even(self) -> bool:
        """Whether no turn asks for a line that another one asks for."""
        return self.rows * self.lines == self.calls * self.turns * self.pace

    def step(self, f: Function, start: str, first: str, turn: str, lanes: Lanes) -> None:
        """Ask for the lines of one turn; first: number of the call's first turn among all turns."""
        number = self.line_of(f, f.add(first, turn))
        at = f.offset(start, self._place(f, number))
        for i in range(self.pace):
            if i and not (self._is_even and self.lines % self.pace == 0):
                at = f.offset(start, self._place(f, f.add(number, i)))
            elif i:
                at = f.offset(at, LINE)
            prefetch(f, lanes.declarations, at, write=False, level=2)

    def all(self, f: Function, start: str, lanes: Lanes) -> None:
        """Ask for all lines at once, where nothing was there to do it before."""

        def row(_: str, at: list[str]) -> list[str]:
            for line in range(self.lines):
                prefetch(f, lanes.declarations, f.offset(at[0], line * LINE), False, level=2)
            return [f.offset(at[0], self.row_bytes)]

        f.loop(0, self.rows, 1, row, [("ptr", start)], at_least_once=True)

    def line_of(self, f: Function, turn: str) -> str:
        """Number of the first line that a turn asks for: never more than `pace` after the last
        turn's, so that none is left out."""
        if self._is_even:
            return f.mul(turn, self.pace)
        scaled = f.mul(turn, -(-(self.rows * self.lines << _BITS) // (self.calls * self.turns)))
        return f.op(f"lshr i64 {scaled}, {_BITS}")

    def _place(self, f: Function, number: str) -> str:
        """Bytes from the start to a line; a few that rounding asks for lie beyond, without harm."""
        row = f.op(f"udiv i64 {number}, {self.lines}")
        line = f.op(f"urem i64 {number}, {self.lines}")
        return f.add(f.mul(row, self.row_bytes), f.mul(line, LINE))
