"""What a tile touches beside A and B: its part of the results, and what its epilogue reads.

    touched(problem)        # the result, a residual, moments of Adam: lanes lie side by side

A tile reaches a few lines in every one of its rows, which lie far apart: no hardware prefetcher
follows that. So the micro-kernel asks for the lines of its tile, one or two per step of its loop,
early enough that they are there when the sums are done.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import Place
from fxad.backend.llvm.base.tuning import Gemm
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.plan import Matrix, Problem, matrix
from fxad.core.aligned import LINE
from fxad.core.record import valued
from fxad.ir.kernel import Axis, Index, Load, exprs_of, walk

_UPDATE = 3  # operands, as Adam's, whose lines are so many that far fewer bytes suffice


@valued
class Touch:
    """Lines of one matrix under a tile: `lines` in each of `rows`, which are `row_bytes` apart.

    when: the parameter that says in which pieces of K; "" in all of them.
    """

    rows: int
    row_bytes: int
    lines: int
    write: bool
    when: str

    @property
    def count(self) -> int:
        return self.rows * self.lines


def operands_below(problem: Problem) -> list[Place]:
    """Where the epilogue's operands with an element for every one of the product lie, a row on."""
    found: dict[Place, None] = {}
    for load in (e for root in exprs_of(problem.stage) for e in walk(root) if type(e) is Load):
        m = matrix(load.buffer, load.index, problem.rows, problem.columns)
        if m is not None and m.inner == 1 and m.outer >= problem.size[1] and _is_plain(m.base):
            found[load.buffer, Index(load.index.const + m.outer, load.index.terms)] = None
    return list(found)


def is_swept(problem: Problem, tuning: Gemm) -> bool:
    """Whether the epilogue runs over all rows of a unit at its end: it reads so much that it comes
    from memory, where a tile's few lines in each of its rows are the slowest way to go."""
    rows, columns, _ = problem.size
    points = rows * columns * problem.kernel.points
    sizes = [points * buffer.dtype.itemsize for buffer, _ in operands_below(problem)]
    if len(sizes) >= _UPDATE:
        return min(rows, columns) >= tuning.updates_least and sum(sizes) >= tuning.updates_from
    least = rows >= tuning.swept_least_rows and columns >= tuning.swept_least_columns
    return least and sum(sizes) >= tuning.swept_from


def touched(problem: Problem) -> list[tuple[Matrix, bool]]:
    """(matrix, whether it is written) of every result and every operand of the epilogue."""
    stage = problem.stage
    places: dict[tuple, tuple[Matrix, bool]] = {}
    loads = [e for root in exprs_of(stage) for e in walk(root) if type(e) is Load]
    writes = [(s.buffer, s.index, True) for s in stage.stores]
    for buffer, index, write in [*writes, *((e.buffer, e.index, False) for e in loads)]:
        found = matrix(buffer, index, problem.rows, problem.columns)
        if found is None or found.inner != 1 or not found.outer or not _is_plain(found.base):
            continue
        places.setdefault((buffer, found.base.const, found.base.terms, found.outer), (found, write))
    return list(places.values())


def _is_plain(base: Index) -> bool:
    return all(isinstance(atom, Axis) for atom, _ in base.terms)


def touch_of(found: Matrix, write: bool, tile: tuple[int, int], sums: bool) -> Touch:
    """For tiles of (rows, columns). sums: blocks of K are added up in the matrix, so that every
    one of them touches it; otherwise the last piece of K does."""
    rows, columns = tile
    size = found.buffer.dtype.itemsize
    row = found.outer * size
    return Touch(rows, row, lines_of(columns * size, row), write, "ends" if sums else "last")


def lines_of(length: int, row_bytes: int) -> int:
    """Cache lines in `length` bytes of a row, which may begin inside one if rows are not whole."""
    return -(-length // LINE) + (row_bytes % LINE != 0)


class Toucher:
    """Emits the prefetches of one micro-kernel whose loop takes `steps` turns.

    Its parameters are %last and %ends (all ones in the last piece of K and at the end of a block,
    else 0), then the first line of every Touch: %touch0, %touch1, ... room: prefetches in a turn.
    """

    def __init__(self, f: Function, touches: Sequence[Touch], steps: int, room: int) -> None:
        self.f = f
        self.touches: list[tuple[int, Touch, int]] = []
        for number, touch in enumerate(touches):
            each = -(-touch.count // max(steps, 1))
            if each <= room:
                room -= each
                self.touches.append((number, touch, each))
        turns = [-(-touch.count // each) for _, touch, each in self.touches]
        # Not long before they are needed, or the panel of B drives them out again.
        early = f.op(f"sub i64 %steps, {2 * max(turns, default=0)}")
        self.wait = _limited(f, "smax", early, 0)

    def step(self, turn: str, lanes: Lanes) -> None:
        """The prefetches of the loop's turn number `turn`."""
        if not self.touches:
            return
        f, known = self.f, {}
        now = _limited(f, "smax", f.op(f"sub i64 {turn}, {self.wait}"), 0)
        for number, touch, each in self.touches:
            for i in range(each):
                key = touch.rows, touch.row_bytes, touch.lines, i, each, touch.when
                if key not in known:
                    known[key] = self._place(now, touch, i, each)
                at = f.offset(f"%touch{number}", known[key])
                level = 3 if touch.write else 2
                prefetch(f, lanes.declarations, at, touch.write, level)
        lanes.declarations |= {f"declare i64 @llvm.{m}.i64(i64, i64)" for m in ("smax", "umin")}

    def _place(self, turn: str, touch: Touch, i: int, each: int) -> str:
        """Offset of the line: down the rows first, then the next line of every row."""
        f = self.f
        number = f.add(f.mul(turn, each), i)
        number = _limited(f, "umin", number, touch.count - 1)
        row = f.mul(f.op(f"urem i64 {number}, {touch.rows}"), touch.row_bytes)
        line = f.mul(f.op(f"udiv i64 {number}, {touch.rows}"), LINE)
        place = f.add(row, line)
        return f.op(f"and i64 {place}, %{touch.when}") if touch.when else place


def _limited(f: Function, by: str, value: str, bound: int) -> str:
    return f.op(f"call i64 @llvm.{by}.i64(i64 {value}, i64 {bound})")
