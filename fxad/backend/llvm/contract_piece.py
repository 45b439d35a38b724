"""One panel of B over one piece of K: brought into cache, then swept by all rows of a unit.

    piece = Piece(product, number)
    Sweep(piece, panel, 48).emit()

A piece begins with sums of 0 or with those that wait from the piece before it, and ends with sums
that wait for the next piece or, at the end of a block of K, that are added to the result.
"""

from __future__ import annotations

from fxad.backend.llvm import contract_pack as packing
from fxad.backend.llvm.contract_grid import address
from fxad.backend.llvm.contract_micro import Mode, Tile, emit_micro, params_of
from fxad.backend.llvm.contract_pairs import emit_pack_b_pairs
from fxad.backend.llvm.contract_product import Product
from fxad.backend.llvm.contract_touch import LINE, Touch, lines_of, touch_of

_UNROLL = 4
_MOST = 4  # rows of the next panel per turn of a loop, and lines of each
_AHEAD = 16  # steps of k; 12 x 32 from memory: 8 and 16 are twice as fast as none, 32 is slower


class Piece:
    """Where a piece lies in K and what becomes of its sums.

    at, depth, steps, rest: its place and length; mode: of the micro-kernels. ends: whether it ends
    a block of K; is_last: whether it is the last of all; both "" if it is the only one.
    """

    def __init__(self, product: Product, number: str) -> None:
        self.p, self.f, pieces = product, product.f, product.pieces
        self.is_last, self.ends, self.at, self.mode = "", "", "0", str(int(Mode.FRESH))
        self.skipped = "0"  # steps of its block before it
        if pieces.count > 1:
            self._place(number)
            self.steps = self.f.op(f"udiv i64 {self.depth}, {_UNROLL}")
            self.rest = self.f.op(f"urem i64 {self.depth}, {_UNROLL}")
        else:
            self.depth = str(pieces.size)
            self.steps, self.rest = str(pieces.size // _UNROLL), str(pieces.size % _UNROLL)

    def _place(self, number: str) -> None:
        f, pieces = self.f, self.p.pieces
        inside, block = "0", number
        if pieces.blocks == 1:
            inside, block = number, "0"
        elif self.p.splits:
            inside, block = self.p.split(number, pieces.in_block)
        self.skipped = skipped = f.mul(inside, pieces.piece)
        self.at = f.add(f.mul(block, pieces.block), skipped)
        self.is_last = f.op(f"icmp eq i64 {number}, {pieces.count - 1}")
        left, later = str(pieces.last_block), "false"
        if pieces.blocks > 1:
            in_last = f.op(f"icmp eq i64 {block}, {pieces.blocks - 1}")
            left = self.pick(in_last, "i64", pieces.last_block, pieces.block)
            later = f.op(f"icmp ne i64 {block}, 0")
        left = f.op(f"sub i64 {left}, {skipped}")
        self.depth = self.p.f.least(left, pieces.piece)
        self.mode = self.pick(later, "i64", int(Mode.ADDS), int(Mode.FRESH))
        if self.p.splits:
            self.ends = f.op(f"icmp sle i64 {left}, {pieces.piece}")
            mode = self.pick(self.ends, "i64", self.mode, int(Mode.WAITS))
            going = self.pick(f.op(f"icmp ne i64 {inside}, 0"), "i64", int(Mode.GOES_ON), 0)
            self.mode = f.op(f"or i64 {mode}, {going}")

    def pick(self, condition: str, type: str, yes: str | int, no: str | int) -> str:
        return self.f.op(f"select i1 {condition}, {type} {yes}, {type} {no}")


class Sweep:
    """One panel of `columns` columns within a piece, for all rows of a unit."""

    def __init__(self, piece: Piece, panel: str, columns: int) -> None:
        self.piece, self.p, self.f, self.cut = piece, piece.p, piece.f, piece.p.cut
        self.lanes, self.columns, self.panel = piece.p.lanes, columns, panel
        f, p, b = self.f, self.p, self.p.problem.b
        first, _ = p.unit_panels
        self.column = f.mul(panel, self.cut.width)
        self.b_bytes = b.buffer.dtype.itemsize
        across, down = b.outer * self.b_bytes, b.inner * self.b_bytes * p.k_step
        self.source = f.offset(p.b, f.add(f.mul(self.column, across), f.mul(piece.at, down)))
        self.following = self.what_follows(f.mul(piece.depth, down), f.mul(piece.skipped, down))
        self.waiting = p.waiting if p.splits else "null"
        if p.result:
            self.result = f.offset(p.c, f.mul(self.column, p.size))
        else:
            beside = f.mul(f.op(f"sub i64 {panel}, {first}"), p.panel_row)
            self.result = f.offset(p.sums, beside) if p.keeps_sums else p.sums

    def what_follows(self, length: str, skipped: str) -> str:
        """Where the next part of B lies: the next piece of the panel, after the last one of a block
        the panel beside it, after the last panel the first one in the next block."""
        f, p, piece = self.f, self.p, self.piece
        first, end = p.unit_panels
        beside = self.cut.width * p.problem.b.outer * self.b_bytes
        further = f.offset(self.source, length)
        found = f.offset(self.source, f.op(f"sub i64 {beside}, {skipped}"))
        if piece.is_last and p.pieces.blocks > 1:
            back = f.mul(f.op(f"sub i64 {first}, {self.panel}"), beside)
            turns = f.op(f"icmp eq i64 {f.add(self.panel, 1)}, {end}")
            found = piece.pick(turns, "ptr", f.offset(further, back), found)
        return piece.pick(piece.ends, "ptr", found, further) if piece.ends else found

    def emit(self) -> None:
        cut, b, direct = self.cut, self.p.problem.b, self.p.direct
        one_first = cut.long_blocks == 0 or cut.chunks == 1
        same = b.buffer.dtype == self.p.problem.dtype
        whole = self.columns == cut.width
        fuses = b.outer == 1 and not direct and same and one_first and whole
        if not direct and not fuses:
            self.pack()
        self.sweep(direct, fuses)

    def pack(self) -> None:
        b = self.p.problem.b
        name = f"{self.p.name}.pack{self.columns}"
        source = packing.Source(b.outer, b.inner, b.buffer.dtype)
        if name not in self.p.helpers:
            pairs, columns = self.p.pairs, self.columns
            self.p.helpers[name] = (
                emit_pack_b_pairs(name, source, columns, pairs)
                if pairs
                else packing.emit_pack_b(name, source, columns, self.lanes)
            )
        given = f"ptr {self.source}, ptr {self.p.packed_panel}, i64 {self.piece.depth}"
        self.f.line(f"call void @{name}({given})")

    def sweep(self, direct: bool, fuses: bool) -> None:
        """Call the micro-kernel on every block of rows: the long ones, then the others."""
        f, cut, p = self.f, self.cut, self.p
        low, high = p.blocks
        if fuses:
            self.block(low, max(cut.heights), packs=True, direct=True)
            low = f.add(low, 1)
        if cut.long_blocks:
            end = high if cut.long_blocks == cut.blocks else p.f.least(high, cut.long_blocks)
            f.loop(low, end, 1, lambda i, _: self.block(i, cut.height + 1, False, direct))
        if cut.long_blocks < cut.blocks:
            start = p.f.most(low, cut.long_blocks) if cut.long_blocks else low
            f.loop(start, high, 1, lambda i, _: self.block(i, cut.height, False, direct))

    def block(self, number: str, height: int, packs: bool, direct: bool) -> None:
        """One row block: the micro-kernel, then the epilogue if its sums are complete."""
        f, p, cut = self.f, self.p, self.cut
        whole = self.columns == cut.width or not cut.panels
        row = f.mul(number, height)
        if height == cut.height:
            row = f.add(row, cut.long_blocks)
        inside = row
        if p.packs_a or p.splits or p.keeps_sums:
            inside = f.op(f"sub i64 {row}, {p.first_row}")
        sums = self.result
        if p.result is not None or p.keeps_sums:
            sums = f.offset(sums, f.mul(inside if not p.result else row, p.sum_stride * p.size))
        # Only the tile that does most of the work is worth the size of an unrolled loop.
        unroll = _UNROLL if height == cut.main_height and whole and not packs else 1
        tile = self.tile(height, packs, direct, unroll)
        following, stride = "null", "0"
        if tile.ahead:
            following = self.following
        elif unroll > 1:
            following, stride = self.prefetched(number)
        arguments = [
            self.piece.steps if unroll > 1 else self.piece.depth,
            self.piece.rest if unroll > 1 else "0",
            self.a_address(row, inside, number),
            self.source if direct else p.packed_panel,
            sums,
            f.offset(self.waiting, f.mul(inside, p.panel_row)) if p.splits else "null",
            self.piece.mode,
            p.packed_panel,
            following,
            stride,
        ]
        if tile.touches:
            arguments += self.corners(row, inside, height)
        name = f"{p.name}.{height}x{self.columns}{'p' if packs else ''}"
        if name not in p.helpers:
            p.helpers[name] = emit_micro(name, tile, self.lanes)
        types = [type for type, _ in params_of(tile)]
        listed = ", ".join(f"{t} {a}" for t, a in zip(types, arguments, strict=True))
        f.line(f"call void @{name}({listed})")
        if p.finish and not p.swept:
            self.epilogue(p.finish.call(p.batch, sums, row, self.column, height, self.columns))

    def corners(self, row: str, inside: str, height: int) -> list[str]:
        """%last and %ends, then where the tile starts in everything that it touches."""
        f, p = self.f, self.p
        when = (self.piece.is_last, self.piece.ends)
        found = [f.op(f"sext i1 {flag} to i64") if flag else "-1" for flag in when]
        for matrix, _ in p.touched:
            size = matrix.buffer.dtype.itemsize
            start = address(p.memory, matrix.buffer, matrix.base)
            at = f.add(f.mul(row, matrix.outer * size), f.mul(self.column, size))
            found.append(f.offset(start, at))
        if p.reads_ahead:
            found.append(self.a_address(f.add(row, height), f.add(inside, height), ""))
        return found

    def epilogue(self, call: str) -> None:
        """The epilogue's call, where this is the last block of K."""
        f = self.f
        if not self.piece.is_last:
            f.line(call)
            return
        finish, done = f.new_label("finish"), f.new_label("done")
        f.branch(self.piece.is_last, finish, done)
        f.label(finish)
        f.line(call)
        f.jump(done)
        f.label(done)

    def a_address(self, row: str, inside: str, block: str) -> str:
        """Where a tile's part of A lies; block: its number, if A is packed in blocks."""
        f, p = self.f, self.p
        by_row, by_k = p.a_strides
        if p.in_blocks:
            number = f.op(f"sub i64 {block}, {p.blocks[0]}")
            skip = f.mul(self.piece.skipped, by_k * p.size)
            return f.offset(p.packed_a, f.add(f.mul(number, p.block_bytes), skip))
        skip = f.mul(self.piece.at, by_k * p.size)
        start, row = (p.packed_a, inside) if p.packs_a else (p.a, row)
        return f.offset(start, f.add(f.mul(row, by_row * p.size), skip))

    def prefetched(self, block: str) -> tuple[str, str]:
        """(first line, stride) that this row block prefetches of the panel to come.

        Consecutive blocks take consecutive lines of a row, then the next rows.
        """
        rows_each, lines_each = self.prefetches
        if not rows_each:
            return "null", "0"
        f, piece, (_, row, lines) = self.f, self.piece, self.coming
        rows = str(self.columns)
        if self.p.problem.b.outer == 1:
            rows = f.mul(piece.depth, self.p.k_step)
        number = f.op(f"sub i64 {block}, {self.p.blocks[0]}")
        group, turn = self.p.split(number, -(-lines // lines_each))
        first = f.mul(turn, f.mul(piece.steps, rows_each))
        inside = f.op(f"icmp slt i64 {first}, {rows}")
        at = f.offset(self.following, f.add(f.mul(first, row), f.mul(group, lines_each * LINE)))
        return piece.pick(inside, "ptr", at, self.source), piece.pick(inside, "i64", row, 0)

    @property
    def coming(self) -> tuple[int, int, int]:
        """(rows, bytes from one to the next, lines in each) of a panel in memory, the longest one.

        Its rows go along k or, where k has neighbours in memory, along its columns.
        """
        b, depth = self.p.problem.b, self.p.pieces.piece * self.p.k_step
        rows, row, length = depth, b.inner * self.b_bytes, self.columns
        if b.outer != 1:
            rows, row, length = length, b.outer * self.b_bytes, rows
        return rows, row, lines_of(length * self.b_bytes, row)

    @property
    def prefetches(self) -> tuple[int, int]:
        """(rows, lines of each) of the panel to come that a turn of a micro-kernel's loop fetches,
        so that the blocks of rows together fetch all of it."""
        cut, b = self.cut, self.p.problem.b
        if 1 not in (b.outer, b.inner) or cut.unit_blocks == 1 or self.columns != cut.width:
            return 0, 0
        rows, _, lines = self.coming
        lines_each = min(lines, _MOST) if b.outer == 1 else 1
        # The first block does not fetch where it packs.
        blocks = max((cut.unit_blocks - 1) // -(-lines // lines_each), 1)
        turns = blocks * max(self.p.pieces.piece // _UNROLL, 1)
        return min(-(-rows // turns), _MOST), lines_each

    def touches(self, height: int) -> tuple[Touch, ...]:
        p, size = self.p, (height, self.columns)
        found = [
            touch_of(m, write, size, p.result is not None and m.buffer == p.result.buffer)
            for m, write in p.touched
        ]
        if p.reads_ahead:
            row = p.a_strides[0] * p.size
            lines = lines_of(p.pieces.piece * p.size, row)
            found.append(Touch(height, row, lines, write=False, when=""))
        return tuple(found)

    def tile(self, height: int, packs: bool, direct: bool, unroll: int) -> Tile:
        p, b = self.p, self.p.problem.b
        panel = -(-self.columns // self.lanes.width) * self.lanes.width
        return Tile(
            height=height,
            columns=self.columns,
            a_row=p.a_strides[0],
            a_k=p.a_strides[1],
            b_stride=b.inner if direct else panel,
            c_stride=p.sum_stride,
            b_dtype=b.buffer.dtype if direct else p.problem.dtype,
            unroll=unroll,
            aligned=not direct,
            packs=packs,
            prefetches=self.prefetches if unroll > 1 else (0, 0),
            some_rest=any(depth % unroll for depth in p.pieces.depths),
            no_steps=min(p.pieces.depths) < unroll,
            waits=p.splits,
            touches=self.touches(height) if unroll > 1 else (),
            turns=max(p.pieces.depths) // unroll,
            ahead=_AHEAD if direct and p.pieces.piece > 2 * _AHEAD else 0,
        )
