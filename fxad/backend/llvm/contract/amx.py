"""bf16 products on AMX: 16 x 16 tiles of sums, 32 steps of k in one instruction.

    emit_tiles(problem, "matmul0", target)       # what emit_contract answers, where takes_tiles

Both operands are packed into tiles; A is read in place where its rows lie along k and are whole. A
unit takes one piece of K after the other: it packs the piece of its rows, then sweeps them with one
panel of packed columns after the other, the next of which is packed, where it can be, as the
products run. Many rows go by a packed piece of all the unit's columns instead. Sums wait in scratch
memory between pieces.

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
from fxad.backend.llvm.contract.amx_micro import Coming, Tiled, TileMicro, Woven
from fxad.backend.llvm.contract.amx_pack import DEPTH, LINE_BYTES, LINES, TILE_BYTES, TilePacker
from fxad.backend.llvm.contract.amx_plan import TileCut, quotient
from fxad.backend.llvm.contract.choice import choice_of
from fxad.backend.llvm.contract.epilogue import Finish
from fxad.backend.llvm.contract.grid import address, arguments, go_to
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.pack import Source
from fxad.backend.llvm.contract.places import COLLIDING
from fxad.backend.llvm.contract.plan import Matrix, Problem
from fxad.backend.llvm.contract.touch import lines_of, touch_of, touched

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


def reads_in_place(a: Matrix, size: tuple[int, int, int]) -> bool:
    """Can tiles be loaded from A as it lies?"""
    rows, _, k = size
    row = a.outer * 2
    return (
        a.buffer.dtype.name == "bfloat16"
        and a.inner == 1
        and row % LINE_BYTES == 0
        and row % COLLIDING != 0
        and k % DEPTH == 0
        and (rows % (2 * LINES) == 0 or rows == LINES)
    )


def woven_pairs(problem: Problem, cut: TileCut, least: int) -> int:
    """Pairs of steps of k of the next panel that a step packs while its products run; 0 where
    panels are packed before: at edges, where columns do not lie side by side, or for fewer than
    `least` blocks of rows, whose products that would hold up."""
    b, (_, columns, k) = problem.b, problem.size
    if cut.keeps:
        return 0
    last = cut.row_blocks - (cut.chunks - 1) * cut.unit_rows  # blocks of rows of the least unit
    if b.outer != 1 or b.inner <= 0 or columns % (2 * LINES) or k % DEPTH or last < least:
        return 0
    return next(pairs for pairs in (1, 2, 4) if pairs * last >= LINES)


class _Emission:
    f: Function

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.packs_a = not reads_in_place(problem.a, problem.size)
        tuning, near = target.tuning.tiles, choice_of(problem, target).near
        self.cut = cut = TileCut.of(problem, self.packs_a, tuning, near)
        self.pitch = cut.piece * TILE_BYTES  # from one packed row (or column) of tiles to the next
        self.block = cut.high * cut.wide * TILE_BYTES  # of sums
        self.woven = woven_pairs(problem, cut, tuning.interleaved)
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
        panels = cut.unit_columns if cut.keeps else 2 if self.woven else 1
        sizes = {
            "b": panels * cut.wide * self.pitch,
            "a": cut.unit_rows * cut.high * self.pitch if self.packs_a else 0,
            "waiting": cut.unit_rows * cut.unit_columns * self.block if cut.pieces > 1 else 0,
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
        if cut.pieces == 1:
            self.piece("0", [])
        else:
            f.loop(0, cut.pieces, 1, self.piece, at_least_once=True)

    def piece(self, number: str, _: list[str]) -> None:
        f, cut = self.f, self.cut
        self.at = f.mul(number, cut.piece * DEPTH)
        self.depth, self.steps = str(self.problem.size[2]), str(cut.tiles)
        self.later = self.is_last = ""
        if cut.pieces > 1:
            left = f.op(f"sub i64 {self.depth}, {self.at}")
            self.depth = self.f.least(left, cut.piece * DEPTH)
            self.steps = f.op(f"udiv i64 {f.add(self.depth, DEPTH - 1)}, {DEPTH}")
            self.later = f.op(f"icmp ne i64 {number}, 0")
            self.is_last = f.op(f"icmp eq i64 {number}, {cut.pieces - 1}")
        if self.packs_a:
            self.pack("a", self.problem.a, self.a, self.rows, cut.block_rows, self.scratch["a"])
        first, end = self.columns
        tail = self.problem.size[1] % cut.block_columns
        whole = self.f.least(end, cut.column_blocks - 1) if tail else end

        def panels(sweep: Callable[[str, int], None]) -> None:
            f.loop(first, whole, 1, lambda n, _: sweep(n, cut.block_columns))
            if tail:
                f.loop(whole, end, 1, lambda n, _: sweep(n, tail))

        if cut.keeps:
            self.pack_b(first, end)
            f.loop(*self.rows, 1, lambda i, _: panels(lambda n, c: self.product(i, n, c)))
            return
        if self.woven:
            self.pack_b(first, f.add(first, 1))
        panels(self.sweep)

    def pack_b(self, first: str, end: str) -> None:
        """Pack some panels of columns."""
        width = self.cut.block_columns
        self.pack("b", self.problem.b, self.b, (first, end), width, self.panel(first))

    def panel(self, number: str) -> str:
        """Where a packed panel of columns lies: all of a unit, if they are kept; two take turns, if
        one is packed as the other is read."""
        f, start, size = self.f, self.scratch["b"], self.cut.wide * self.pitch
        if self.cut.keeps:
            return f.offset(start, f.mul(f.op(f"sub i64 {number}, {self.columns[0]}"), size))
        return f.offset(start, f.mul(f.op(f"and i64 {number}, 1"), size)) if self.woven else start

    def pack(
        self, side: str, m: Matrix, start: str, span: tuple[str, str], block: int, to: str
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
        high = self.f.least(f.mul(span[1], block), self.problem.size[side == "b"])
        count = f.op(f"sub i64 {high}, {low}")
        at = f.add(f.mul(low, m.outer * size), f.mul(self.at, m.inner * size))
        given = f"ptr {f.offset(start, at)}, ptr {to}, i64 {count}, i64 {self.depth}"
        f.line(f"call void @{name}({given})")

    # ------------------------------------------------------------ a panel of columns

    def sweep(self, number: str, columns: int) -> None:
        """One block of columns: packed, then multiplied by all rows of the unit."""
        f, after = self.f, self.f.add(number, 1)
        self.following = self.beside(after)
        if not self.woven:
            self.pack_b(number, after)
        f.loop(*self.rows, 1, lambda i, _: self.product(i, number, columns), at_least_once=True)

    def beside(self, after: str) -> str:
        """Where the panel to come starts in memory: the next one, after the last one of a unit the
        first one of the next piece, or itself where what comes is read and not only asked for."""
        f, b = self.f, self.problem.b
        size = b.buffer.dtype.itemsize
        if self.woven:
            after = f.least(after, f.op(f"sub i64 {self.columns[1]}, 1"))
            place = f.mul(after, self.cut.block_columns * size)
            return f.offset(self.b, f.add(place, f.mul(self.at, b.inner * size)))
        turns = f.op(f"icmp sge i64 {after}, {self.columns[1]}")
        panel = f.op(f"select i1 {turns}, i64 {self.columns[0]}, i64 {after}")
        step = f.op(f"select i1 {turns}, i64 {self.cut.piece * DEPTH}, i64 0")
        place = f.mul(panel, self.cut.block_columns * b.outer * size)
        return f.offset(self.b, f.add(place, f.mul(f.add(self.at, step), b.inner * size)))

    def fetched(self, inside: str, number: str) -> tuple[str, str]:
        """What the block of rows number `inside` of the unit fetches or packs of the panel to come,
        and where it packs that."""
        f, coming = self.f, self.coming
        if coming is None:
            return "null", "null"
        if isinstance(coming, Woven):
            first = f.mul(f.op(f"urem i64 {inside}, {LINES // coming.pairs}"), self.steps)
            first = f.mul(first, coming.pairs)
            to = f.offset(self.panel(f.add(number, 1)), f.mul(first, LINE_BYTES))
            return f.offset(self.following, f.mul(first, 2 * coming.row_bytes)), to
        part = f.op(f"urem i64 {inside}, {quotient(DEPTH, coming.rows)}")
        return f.offset(self.following, f.mul(part, coming.rows * coming.row_bytes)), "null"

    def corners(self, row: str, column: str) -> list[str]:
        """Where the block starts in everything that it touches."""
        f, found = self.f, []
        for matrix, _ in self.touched:
            size = matrix.buffer.dtype.itemsize
            start = address(self.memory, matrix.buffer, matrix.base)
            at = f.add(f.mul(row, matrix.outer * size), f.mul(column, size))
            found.append(f.offset(start, at))
        return found

    def product(self, i: str, number: str, columns: int) -> None:
        """The micro-kernel on one block of rows and panel of columns, then the epilogue."""
        f, cut, a = self.f, self.cut, self.problem.a
        inside = f.op(f"sub i64 {i}, {self.rows[0]}")
        row, column = f.mul(i, cut.block_rows), f.mul(number, cut.block_columns)
        if self.packs_a:
            at = f.offset(self.scratch["a"], f.mul(inside, cut.high * self.pitch))
        else:
            at = f.offset(self.a, f.mul(f.add(f.mul(row, a.outer), self.at), 2))
        begin, to, stride = self.sums(inside, number, row, column)
        last = f.op(f"sext i1 {self.is_last} to i64") if self.is_last else "-1"
        fetched = self.fetched(inside, number)
        given = [self.steps, at, self.panel(number), begin, to, stride, *fetched]
        given += [last, last, *self.corners(row, column)]
        if self.micro.name not in self.helpers:
            self.helpers[self.micro.name] = self.micro.emit(self.lanes)
        types = [type for type, _ in self.micro.params]
        listed = ", ".join(f"{t} {x}" for t, x in zip(types, given, strict=True))
        f.line(f"call void @{self.micro.name}({listed})")
        if self.finish:
            height = self.f.least(
                f.op(f"sub i64 {self.problem.size[0]}, {row}"), str(cut.block_rows)
            )
            self.epilogue(self.finish.call(self.batch, to, row, column, height, columns))

    def sums(self, inside: str, number: str, row: str, column: str) -> tuple[str, str, str]:
        """(where a block's sums wait or null, where they go, bytes between their rows there)."""
        f, cut = self.f, self.cut
        kept = str(cut.wide * LINE_BYTES)
        to, stride = self.scratch["sums"], kept
        if self.result:
            stride = str(self.result.outer * 4)
            to = f.offset(self.c, f.add(f.mul(row, stride), f.mul(column, 4)))
        if cut.pieces == 1:
            return "null", to, stride
        panel = f.mul(f.op(f"sub i64 {number}, {self.columns[0]}"), cut.unit_rows)
        waiting = f.offset(self.scratch["waiting"], f.mul(f.add(panel, inside), self.block))
        begin = f.op(f"select i1 {self.later}, ptr {waiting}, ptr null")
        to = f.op(f"select i1 {self.is_last}, ptr {to}, ptr {waiting}")
        return begin, to, f.op(f"select i1 {self.is_last}, i64 {stride}, i64 {kept}")

    def epilogue(self, call: str) -> None:
        """The epilogue's call, where this is the last piece of K."""
        f = self.f
        if not self.is_last:
            f.line(call)
            return
        f.when(self.is_last, lambda: f.line(call))

    @property
    def coming(self) -> Coming | Woven | None:
        """What a block of rows fetches of B in a step: it takes 32 rows, along k or along columns,
        to make the tiles of a step."""
        if self.cut.keeps:
            return None
        b, each = self.problem.b, quotient(DEPTH, self.cut.unit_rows)
        size = b.buffer.dtype.itemsize
        if self.woven:
            return Woven(self.woven, b.inner * size, self.pitch, size == 4)
        row = max(abs(b.outer), abs(b.inner)) * size
        return Coming(each, row, lines_of(DEPTH * size, row), DEPTH * b.inner * size)

    @functools.cached_property
    def micro(self) -> TileMicro:
        cut, row = self.cut, self.problem.a.outer * 2
        a = Tiled(row, LINE_BYTES, LINES * row)
        if self.packs_a:
            a = Tiled(LINE_BYTES, TILE_BYTES, self.pitch)
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
