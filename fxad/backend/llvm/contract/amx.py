"""bf16 products on AMX: 16 x 16 tiles of sums, 32 steps of k in one instruction.

    emit_tiles(problem, "matmul0", target)       # what emit_contract answers, where takes_tiles

Both operands are packed into tiles: where rows of A begin inside a cache line, as those of arrays
that others made may, tiles read from them in place take twice as many lines. K is cut into pieces,
so short that a block of one operand stays in the first-level cache beside what
the other streams past it. Which one stays depends on the rows:

- few: a unit's rows are packed once; a panel of columns, piece by piece, is packed and met by all
  of them, while the lines of its next piece are prefetched;
- many: panels of columns are packed, as many as the second-level cache keeps; each block of rows
  meets all of them, piece by piece.

Pieces make a slab: as much of K as finds room in the second-level cache. Sums wait in scratch
memory from piece to piece.

`tdpbf16ps` adds up 16 products of even k and 16 of odd k, each by FMA from 0, then adds both to the
sum; what is denormal counts as 0. So the order over k is one of steps of 32, whatever pieces K is
cut into: it depends on sizes and types alone, as on every path, but is not that of paths without
tiles. Errors are no larger: no product passes through more than 16 + K / 32 roundings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_micro import Coming, Tiled, TileMicro
from fxad.backend.llvm.contract.amx_pack import DEPTH, LINE_BYTES, LINES, TILE_BYTES, TilePacker
from fxad.backend.llvm.contract.amx_plan import TileCut, quotient
from fxad.backend.llvm.contract.choice import choice_of
from fxad.backend.llvm.contract.epilogue import Finish
from fxad.backend.llvm.contract.grid import address, arguments, go_to
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.pack import Source
from fxad.backend.llvm.contract.plan import Matrix, Problem
from fxad.backend.llvm.contract.touch import lines_of, touch_of, touched
from fxad.core.record import valued

DECLARATIONS = {
    "declare void @llvm.x86.ldtilecfg(ptr)",
    "declare void @llvm.x86.tilerelease()",
    "declare void @llvm.x86.tilezero(i8)",
    "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
    "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
    "declare void @llvm.x86.tdpbf16ps(i8, i8, i8)",
}


def emit_tiles(problem: Problem, name: str, target: Target) -> Emitted:
    """LLVM IR of a product that `takes_tiles`."""
    return _Emission(problem, name, target).emit()


@valued
class _Piece:
    """A piece of K: its first step, how many there are, and how many tiles. later, is_last: whether
    it is not the first and whether it is the last one of K, as bits; "" if there is only one."""

    at: str
    depth: str
    steps: str
    later: str
    is_last: str


class _Emission:
    f: Function

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        self.problem, self.name, self.target = problem, name, target
        tuning, near = target.tuning.tiles, choice_of(problem, target).near
        self.cut = cut = TileCut.of(problem, tuning, near)
        self.pitch = cut.piece * TILE_BYTES  # from one packed row (or column) of tiles to the next
        self.block = cut.high * cut.wide * TILE_BYTES  # of sums
        rows, columns, _ = problem.size
        whole = rows % cut.block_rows == 0 and columns % cut.block_columns == 0
        stores, result = problem.stage.stores, problem.plain_result()
        plain = len(stores) == 1 and problem.is_identity(stores[0])
        self.result = result if whole and plain else None
        self.lanes = lanes = Lanes(problem.dtype, LINES)
        self.finish = None
        if self.result is None:
            self.finish = Finish(problem, name, target, lanes, cut.block_columns)
        self.touched = touched(problem)
        self.helpers: dict[str, str] = {}
        self.declarations = set(DECLARATIONS)
        self.places = self._places()

    def _places(self) -> dict[str, tuple[int, int]]:
        """(start, bytes) in scratch of the packed operands and of sums."""
        cut = self.cut
        rows, panels, waiting = cut.unit_rows * cut.slab, 1, cut.unit_rows
        if cut.keeps:
            rows, panels, waiting = 1, cut.unit_columns * cut.slab, cut.unit_columns
        if cut.slabs > 1:
            waiting = cut.unit_rows * cut.unit_columns
        sizes = {
            "b": panels * cut.wide * self.pitch,
            "a": rows * cut.high * self.pitch,
            "waiting": waiting * self.block if cut.pieces > 1 else 0,
            "sums": self.block if self.finish else 0,
        }
        found, start = {}, 0
        for key, size in sizes.items():
            found[key] = start, size
            start += size
        return found

    def emit(self) -> Emitted:
        f = self.f = Function(self.name, "void", ABI)
        self.memory = arguments(self.problem.kernel, f, self.target)
        set_up_tiles(f)
        self.scratch = {k: f.offset("%scratch", at) for k, (at, _) in self.places.items()}
        f.loop("%begin", "%end", 1, self.unit)
        f.line("call void @llvm.x86.tilerelease()")
        f.ret()
        texts, lanes = [*self.helpers.values()], self.lanes.declarations
        declarations = self.declarations | self.memory.code.declarations | lanes
        if self.finish:
            texts += self.finish.texts()
            declarations |= self.finish.declarations
        return Emitted(
            self.name,
            "\n".join([*texts, str(f)]),
            frozenset(declarations),
            self.cut.units,
            sum(size for _, size in self.places.values()),
            self.cut.cost,
        )

    # ------------------------------------------------------------ a unit

    def unit(self, unit: str, _: list[str]) -> None:
        """Its rows and columns in blocks, and where its operands lie."""
        f, cut, problem = self.f, self.cut, self.problem
        group, rest = self.split(unit, cut.groups)
        chunk, self.batch = self.split(rest, cut.chunks)
        go_to(self.memory, problem.kernel, self.batch)
        self.rows = self.span(chunk, cut.unit_rows, cut.row_blocks)
        self.columns = self.span(group, cut.unit_columns, cut.column_blocks)
        self.a = address(self.memory, problem.a.buffer, problem.a.base)
        self.b = address(self.memory, problem.b.buffer, problem.b.base)
        if self.result:
            self.c = address(self.memory, self.result.buffer, self.result.base)
        # Units are numbered so that those of the same rows follow each other.
        starts = f.op(f"icmp eq i64 {unit}, %begin"), f.op(f"icmp eq i64 {group}, 0")
        self.has_new_rows = f.op(f"or i1 {starts[0]}, {starts[1]}")
        slab = self.rows_by_rows if cut.keeps else self.panel_by_panel
        if cut.slabs == 1:
            slab("0", str(cut.pieces))
            return

        def one_slab(number: str, _: list[str]) -> None:
            first = f.mul(number, cut.slab)
            slab(first, f.least(f.op(f"sub i64 {cut.pieces}, {first}"), cut.slab))

        f.loop(0, cut.slabs, 1, one_slab, at_least_once=True)

    def panel_by_panel(self, start: str, pieces: str) -> None:
        """A slab, for few rows: they are packed, then meet a piece of a panel after the other."""
        f, cut = self.f, self.cut

        def rows() -> None:
            f.loop(0, pieces, 1, lambda p, _: self.pack_a(self.piece(start, p), p, *self.rows))

        if cut.slabs == 1:
            f.when(self.has_new_rows, rows)
        else:
            rows()

        def sweep(n: str, columns: int) -> None:
            f.loop(0, pieces, 1, lambda p, _: meet(n, columns, p), at_least_once=True)

        def meet(n: str, columns: int, p: str) -> None:
            piece, panel = self.piece(start, p), self.scratch["b"]
            self.pack_b(piece, n, f.add(n, 1), panel)
            coming = self.beside(
                self.problem.b, cut.block_columns, self.columns[1], n, start, p, pieces
            )

            def product(i: str, _: list[str]) -> None:
                inside = f.op(f"sub i64 {i}, {self.rows[0]}")
                place = f.add(f.mul(p, cut.unit_rows), inside)
                at = f.offset(self.scratch["a"], f.mul(place, cut.high * self.pitch))
                fetched = self.fetched(inside, coming)
                self.product(piece, i, n, columns, at, panel, fetched)

            f.loop(*self.rows, 1, product, at_least_once=True)

        self.panels(sweep)

    def rows_by_rows(self, start: str, pieces: str) -> None:
        """A slab, for many rows: panels of columns are packed, then all of them meet a piece of a
        block of rows after the other."""
        f, cut, (first, end) = self.f, self.cut, self.columns

        def place(p: str, n: str) -> str:
            at = f.add(f.mul(p, cut.unit_columns), f.op(f"sub i64 {n}, {first}"))
            return f.offset(self.scratch["b"], f.mul(at, cut.wide * self.pitch))

        def pack(p: str, _: list[str]) -> None:
            self.pack_b(self.piece(start, p), first, end, place(p, first))

        def block(i: str, _: list[str]) -> None:
            f.loop(0, pieces, 1, lambda p, _: meet(i, p), at_least_once=True)

        def meet(i: str, p: str) -> None:
            piece, at = self.piece(start, p), self.scratch["a"]
            self.pack_a(piece, "0", i, f.add(i, 1))
            coming = self.beside(self.problem.a, cut.block_rows, self.rows[1], i, start, p, pieces)

            def product(n: str, columns: int) -> None:
                fetched = self.fetched(f.op(f"sub i64 {n}, {first}"), coming)
                self.product(piece, i, n, columns, at, place(p, n), fetched)

            self.panels(product)

        f.loop(0, pieces, 1, pack, at_least_once=True)
        f.loop(*self.rows, 1, block, at_least_once=True)

    def piece(self, start: str, p: str) -> _Piece:
        """Piece number p of the slab whose first one is number `start`."""
        f, cut, k = self.f, self.cut, self.problem.size[2]
        if cut.pieces == 1:
            return _Piece("0", str(k), str(cut.tiles), "", "")
        number = f.add(start, p)
        at, depth = f.mul(number, cut.piece * DEPTH), str(cut.piece * DEPTH)
        steps = str(cut.piece)
        if k % (cut.piece * DEPTH):
            depth = f.least(f.op(f"sub i64 {k}, {at}"), cut.piece * DEPTH)
            steps = f.op(f"udiv i64 {f.add(depth, DEPTH - 1)}, {DEPTH}")
        later = f.op(f"icmp ne i64 {number}, 0")
        return _Piece(at, depth, steps, later, f.op(f"icmp eq i64 {number}, {cut.pieces - 1}"))

    def panels(self, body: Callable[[str, int], None]) -> None:
        """body(number, columns) for every panel of the unit's columns."""
        f, cut, (first, end) = self.f, self.cut, self.columns
        tail = self.problem.size[1] % cut.block_columns
        whole = f.least(end, cut.column_blocks - 1) if tail else end
        f.loop(first, whole, 1, lambda n, _: body(n, cut.block_columns))
        if tail:
            f.loop(whole, end, 1, lambda n, _: body(n, tail))

    # ------------------------------------------------------------ packing

    def pack_a(self, piece: _Piece, number: str, first: str, end: str) -> None:
        """Pack the piece of some blocks of rows, as piece `number` of those that are kept."""
        place = self.f.mul(number, self.cut.unit_rows * self.cut.high * self.pitch)
        to = self.f.offset(self.scratch["a"], place)
        self.pack("a", self.problem.a, self.a, piece, (first, end), self.cut.block_rows, to)

    def pack_b(self, piece: _Piece, first: str, end: str, to: str) -> None:
        """Pack the piece of some panels of columns."""
        width = self.cut.block_columns
        self.pack("b", self.problem.b, self.b, piece, (first, end), width, to)

    def pack(
        self,
        side: str,
        m: Matrix,
        start: str,
        piece: _Piece,
        span: tuple[str, str],
        block: int,
        to: str,
    ) -> None:
        """Pack the piece of some blocks of rows or columns."""
        f = self.f
        name, size = f"{self.name}.pack_{side}", m.buffer.dtype.itemsize
        if name not in self.helpers:
            source = Source(m.outer, m.inner, m.buffer.dtype)
            packer = TilePacker(name, source, side == "b", self.pitch)
            self.helpers[name] = packer.emit()
            self.declarations |= packer.declarations
        low = f.mul(span[0], block)
        high = f.least(f.mul(span[1], block), self.problem.size[side == "b"])
        count = f.op(f"sub i64 {high}, {low}")
        at = f.add(f.mul(low, m.outer * size), f.mul(piece.at, m.inner * size))
        given = f"ptr {f.offset(start, at)}, ptr {to}, i64 {count}, i64 {piece.depth}"
        f.line(f"call void @{name}({given})")

    def beside(
        self, m: Matrix, block: int, end: str, n: str, start: str, p: str, pieces: str
    ) -> str:
        """Where what follows piece p of block n starts in memory: the next piece, the next block's
        first one, or after the last one of a unit that block's again."""
        f, size = self.f, m.buffer.dtype.itemsize
        after = f.add(p, 1)
        turns = f.op(f"icmp sge i64 {after}, {pieces}")
        number = f.add(n, f.op(f"zext i1 {turns} to i64"))
        ends = f.op(f"icmp sge i64 {number}, {end}")
        number = f.op(f"select i1 {ends}, i64 {n}, i64 {number}")
        after = f.op(f"select i1 {turns}, i64 0, i64 {after}")
        at = f.mul(f.add(start, after), self.cut.piece * DEPTH)
        place = f.mul(number, block * m.outer * size)
        memory = self.a if m is self.problem.a else self.b
        return f.offset(memory, f.add(place, f.mul(at, m.inner * size)))

    def fetched(self, inside: str, source: str) -> str:
        """What the product number `inside` of a piece prefetches of the block to come, which starts
        at `source`."""
        f, coming = self.f, self.coming
        part = f.op(f"urem i64 {inside}, {quotient(DEPTH, coming.rows)}")
        return f.offset(source, f.mul(part, coming.rows * coming.row_bytes))

    # ------------------------------------------------------------ a block

    def corners(self, row: str, column: str) -> list[str]:
        """Where the block starts in everything that it touches."""
        f, found = self.f, []
        for matrix, _ in self.touched:
            size = matrix.buffer.dtype.itemsize
            start = address(self.memory, matrix.buffer, matrix.base)
            at = f.add(f.mul(row, matrix.outer * size), f.mul(column, size))
            found.append(f.offset(start, at))
        return found

    def product(
        self,
        piece: _Piece,
        i: str,
        number: str,
        columns: int,
        at: str,
        panel: str,
        fetched: str,
    ) -> None:
        """The micro-kernel on a piece of one block of rows, packed at `at`, and panel of columns,
        then the epilogue."""
        f, cut = self.f, self.cut
        row, column = f.mul(i, cut.block_rows), f.mul(number, cut.block_columns)
        begin, to, stride = self.sums(piece, i, number)
        last = f.op(f"sext i1 {piece.is_last} to i64") if piece.is_last else "-1"
        given = [piece.steps, at, panel, begin, to, stride, fetched]
        given += [last, last, *self.corners(row, column)]
        if self.micro.name not in self.helpers:
            self.helpers[self.micro.name] = self.micro.emit(self.lanes)
        types = [type for type, _ in self.micro.params]
        listed = ", ".join(f"{t} {x}" for t, x in zip(types, given, strict=True))
        f.line(f"call void @{self.micro.name}({listed})")
        if not self.finish:
            return
        height = f.least(f.op(f"sub i64 {self.problem.size[0]}, {row}"), str(cut.block_rows))
        call = self.finish.call(self.batch, to, row, column, height, columns)
        if piece.is_last:
            f.when(piece.is_last, lambda: f.line(call))
        else:
            f.line(call)

    def sums(self, piece: _Piece, i: str, number: str) -> tuple[str, str, str]:
        """(where a block's sums wait or null, where they go, bytes between their rows there)."""
        f, cut = self.f, self.cut
        kept = str(cut.wide * LINE_BYTES)
        to, stride = self.scratch["sums"], kept
        if self.result:
            stride = str(self.result.outer * 4)
            row, column = f.mul(i, cut.block_rows), f.mul(number, cut.block_columns)
            to = f.offset(self.c, f.add(f.mul(row, stride), f.mul(column, 4)))
        if cut.pieces == 1:
            return "null", to, stride
        row, panel = (
            f.op(f"sub i64 {x}, {first}")
            for x, first in ((i, self.rows[0]), (number, self.columns[0]))
        )
        place = panel if cut.keeps else row
        if cut.slabs > 1:
            place = f.add(f.mul(panel, cut.unit_rows), row)
        waiting = f.offset(self.scratch["waiting"], f.mul(place, self.block))
        begin = f.op(f"select i1 {piece.later}, ptr {waiting}, ptr null")
        to = f.op(f"select i1 {piece.is_last}, ptr {to}, ptr {waiting}")
        return begin, to, f.op(f"select i1 {piece.is_last}, i64 {stride}, i64 {kept}")

    @property
    def coming(self) -> Coming:
        """What a product prefetches in a step of the block to come of the operand that is packed as
        products go: it takes 32 rows, along k or across, to make the tiles of a step."""
        cut, m = self.cut, self.problem.b
        each = quotient(DEPTH, cut.unit_rows)
        if cut.keeps:
            m, each = self.problem.a, quotient(DEPTH, cut.unit_columns)
        size = m.buffer.dtype.itemsize
        row = max(abs(m.outer), abs(m.inner)) * size
        return Coming(each, row, lines_of(DEPTH * size, row), DEPTH * m.inner * size)

    @functools.cached_property
    def micro(self) -> TileMicro:
        cut, a = self.cut, Tiled(LINE_BYTES, TILE_BYTES, self.pitch)
        size = cut.block_rows, cut.block_columns
        touches = tuple(touch_of(m, write, size, sums=False) for m, write in self.touched)
        name = f"{self.name}.{cut.high}x{cut.wide}"
        waits, most = cut.pieces > 1, cut.piece
        sizes = name, cut.high, cut.wide, a, self.pitch, waits, most
        room = self.target.tuning.tiles.touches
        return TileMicro(*sizes, self.coming, touches, room)

    # ------------------------------------------------------------ index arithmetic

    def split(self, number: str, count: int) -> tuple[str, str]:
        """(number mod count, number div count)."""
        if count == 1:
            return "0", number
        return self.f.op(f"urem i64 {number}, {count}"), self.f.op(f"udiv i64 {number}, {count}")

    def span(self, part: str, size: int, total: int) -> tuple[str, str]:
        """[part * size, min((part + 1) * size, total))."""
        low = self.f.mul(part, size)
        return low, self.f.least(self.f.add(low, size), total)


def set_up_tiles(f: Function) -> None:
    """Eight tiles of 16 lines of 64 bytes, until tilerelease."""
    block = np.zeros(64, np.uint8)
    block[0] = 1
    block[16:32].view(np.uint16)[:] = LINE_BYTES
    block[48:56] = LINES
    shapes, numbers = f.op("alloca [64 x i8], align 64"), ", ".join(f"i8 {x}" for x in block)
    f.line(f"store <64 x i8> <{numbers}>, ptr {shapes}, align 64")
    f.line(f"call void @llvm.x86.ldtilecfg(ptr {shapes})")
