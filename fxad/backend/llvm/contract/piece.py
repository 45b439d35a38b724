"""One panel of B over one piece of K: brought into cache, then swept by all rows of a unit.

    piece = Piece(product, number)
    Sweep(piece, first_panel_of_group, panel, 48).emit()

A piece begins with sums of 0 or with those that wait from the piece before it, and ends with sums
that wait for the next piece or, at the end of a block of K, that are added to the result.
"""

from __future__ import annotations

from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.ahead import Ahead
from fxad.backend.llvm.contract.grid import address
from fxad.backend.llvm.contract.micro import Mode, Tile, emit_micro, params_of
from fxad.backend.llvm.contract.pairs import emit_pack_b_pairs
from fxad.backend.llvm.contract.plan import UNROLL
from fxad.backend.llvm.contract.product import Product
from fxad.backend.llvm.contract.touch import Touch, lines_of, touch_of


class Piece:
    """Where a piece lies in K and what becomes of its sums.

    at, depth, steps, rest: its place and length; mode: of the micro-kernels. ends: whether it ends
    a block of K; is_last: whether it is the last of all; both "" if it is the only one.
    """

    def __init__(self, product: Product, number: str) -> None:
        self.p, self.f, pieces = product, product.f, product.pieces
        self.is_last, self.ends, self.at, self.mode = "", "", "0", product.fresh
        self.inside = self.skipped = "0"  # pieces of its block before it, and their steps
        if pieces.count > 1:
            self._place(number)
            self.steps = self.f.op(f"udiv i64 {self.depth}, {UNROLL}")
            self.rest = self.f.op(f"urem i64 {self.depth}, {UNROLL}")
        else:
            self.depth = str(pieces.size)
            self.steps, self.rest = str(pieces.size // UNROLL), str(pieces.size % UNROLL)

    def _place(self, number: str) -> None:
        f, pieces = self.f, self.p.pieces
        inside, block = "0", number
        if pieces.blocks == 1:
            inside, block = number, "0"
        elif self.p.splits:
            inside, block = self.p.split(number, pieces.in_block)
        self.inside = inside
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
        self.mode = self.pick(later, "i64", int(Mode.ADDS), self.p.fresh)
        if self.p.splits:
            self.ends = f.op(f"icmp sle i64 {left}, {pieces.piece}")
            mode = self.pick(self.ends, "i64", self.mode, int(Mode.WAITS))
            going = self.pick(f.op(f"icmp ne i64 {inside}, 0"), "i64", int(Mode.GOES_ON), 0)
            self.mode = f.op(f"or i64 {mode}, {going}")

    @property
    def length(self) -> str:
        """Its steps of k: one or two of each step of the micro-kernels."""
        f, p = self.f, self.p
        found = f.mul(self.depth, p.k_step)
        if not p.ends_odd:
            return found
        lacking = f.op(f"zext i1 {self.is_last} to i64") if self.is_last else "1"
        return f.op(f"sub i64 {found}, {lacking}")

    def pick(self, condition: str, type: str, yes: str | int, no: str | int) -> str:
        return self.f.op(f"select i1 {condition}, {type} {yes}, {type} {no}")


class Sweep:
    """One panel of `columns` columns within a piece, for all rows of a unit."""

    def __init__(self, piece: Piece, group: str, panel: str, columns: int) -> None:
        self.piece, self.p, self.f, self.cut = piece, piece.p, piece.f, piece.p.cut
        self.lanes, self.columns, self.panel = piece.p.lanes, columns, panel
        f, p, b = self.f, self.p, self.p.problem.b
        first, _ = p.unit_panels
        self.column = f.mul(panel, self.cut.width)
        self.b_bytes = b.buffer.dtype.itemsize
        across, down = b.outer * self.b_bytes, b.inner * self.b_bytes * p.k_step
        self.source = f.offset(p.b, f.add(f.mul(self.column, across), f.mul(piece.at, down)))
        self.group = group
        self.in_group = "0" if panel == group else f.op(f"sub i64 {panel}, {group}")
        self.following = self.what_follows(across, down)
        self.waiting = "null"
        if p.splits:
            place = f.mul(self.in_group, self.cut.chunk_rows * p.panel_row)
            self.waiting = f.offset(p.waiting, place)
        if p.result:
            self.result = f.offset(p.c, f.mul(self.column, p.size))
        else:
            beside = f.mul(f.op(f"sub i64 {panel}, {first}"), p.panel_row)
            self.result = f.offset(p.sums, beside) if p.keeps_sums else p.sums

    def what_follows(self, across: int, down: int) -> str:
        """Where the next part of B begins: the next piece of these panels; after a block of K the
        panels beside them, after the last ones the first ones again, in the next block."""
        f, p, piece = self.f, self.p, self.piece
        first, end = p.unit_panels
        after = f.add(self.group, p.group)
        k = f.op(f"sub i64 {piece.at}, {piece.skipped}")
        if p.pieces.blocks > 1:
            below = f.add(k, p.pieces.block)
            more = f.op(f"icmp slt i64 {below}, {p.pieces.size}")
            turns = f.op(f"icmp sge i64 {after}, {end}")
            # After the last block the next unit begins with the first one.
            k = piece.pick(turns, "i64", piece.pick(more, "i64", below, 0), k)
            turns = f.op(f"and i1 {turns}, {more}")
            after = piece.pick(turns, "i64", first, after)
        if p.ahead and not p.ahead.whole and piece.ends:
            k = piece.pick(piece.ends, "i64", k, f.add(piece.at, piece.depth))
            after = piece.pick(piece.ends, "i64", after, self.group)
        return f.offset(p.b, f.add(f.mul(after, self.cut.width * across), f.mul(k, down)))

    def emit(self) -> None:
        fuses = self.p.fuses and self.columns == self.cut.width
        if not self.p.direct and not fuses:
            self.pack()
        self.sweep(self.p.direct, fuses)

    def pack(self) -> None:
        b = self.p.problem.b
        name = f"{self.p.name}.pack{self.columns}"
        source = packing.Source(b.outer, b.inner, b.buffer.dtype)
        if name not in self.p.helpers:
            p, pairs, columns = self.p, self.p.pairs, self.columns
            self.p.helpers[name] = (
                emit_pack_b_pairs(name, source, columns, pairs, p.ends_odd)
                if pairs
                else packing.emit_pack_b(name, source, columns, self.lanes)
            )
        given = f"ptr {self.source}, ptr {self.p.packed_panel}, i64 {self.piece.length}"
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
        unroll = UNROLL if height == cut.main_height and whole and not packs else 1
        tile = self.tile(height, packs, direct, unroll)
        following, turn = "null", "0"
        if tile.ahead:
            following = self.following
        elif tile.coming:
            following, turn = self.following, self.first_turn(tile.coming, number)
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
            turn,
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
        if not p.packs_a:
            at = f.add(f.mul(row, by_row * p.size), f.mul(self.piece.at, by_k * p.size))
            return f.offset(p.a, at)
        skip = f.mul(self.piece.skipped, by_k * p.size)
        if not p.in_blocks:
            return f.offset(p.packed_a, f.add(f.mul(inside, by_row * p.size), skip))
        number = f.op(f"sub i64 {block}, {p.blocks[0]}")
        return f.offset(p.packed_a, f.add(f.mul(number, p.block_bytes), skip))

    def first_turn(self, ahead: Ahead, block: str) -> str:
        """Number of a call's first turn among all that ask for the part of B to come."""
        f, p = self.f, self.p
        call = f.op(f"sub i64 {block}, {p.blocks[0]}")
        if p.fuses:
            call = f.op(f"sub i64 {call}, 1")
        sweeps = self.piece.inside if ahead.whole else self.in_group
        call = f.add(f.mul(sweeps, self.cut.unit_blocks - p.fuses), call)
        return f.mul(call, ahead.turns)

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

    def ahead(self, once: bool, packs: bool) -> int:
        """Steps of k ahead that a tile asks for what it reads of B in place; 0: others did so."""
        tuning = self.p.tuning
        if packs and self.p.in_l2:
            steps = tuning.copied_ahead
        else:
            steps = tuning.ahead if once else 0
        return steps if self.p.pieces.piece > 2 * steps else 0

    def tile(self, height: int, packs: bool, direct: bool, unroll: int) -> Tile:
        p, b = self.p, self.p.problem.b
        panel = -(-self.columns // self.lanes.width) * self.lanes.width
        once = direct and p.cut.unit_blocks == 1
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
            coming=p.ahead if unroll > 1 else None,
            some_rest=any(depth % unroll for depth in p.pieces.depths),
            no_steps=min(p.pieces.depths) < unroll,
            waits=p.splits,
            asks=p.tuning.waiting_ahead,
            touches=self.touches(height) if unroll > 1 else (),
            turns=max(p.pieces.depths) // unroll,
            past=p.past,
            ahead=self.ahead(once, packs),
            room=p.tuning.touches,
        )
