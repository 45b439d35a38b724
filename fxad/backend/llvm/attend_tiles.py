"""What attention's two kernels share: packed keys, small matrix products, passes over score rows.

A grid point works through blocks of query rows. A block's scores lie in this thread's scratch,
one row of `pitch` elements per query, the column being the key's number; they never reach memory
that other cores see. Products use the micro-kernels of matrix multiplication.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm import contract_pack as packing
from fxad.backend.llvm import prims
from fxad.backend.llvm.contract_grid import address, arguments, go_to
from fxad.backend.llvm.contract_lanes import Lanes
from fxad.backend.llvm.contract_micro import PARAMS, Tile, emit_micro
from fxad.backend.llvm.contract_plan import matrix
from fxad.backend.llvm.formats import kind_of
from fxad.backend.llvm.schedule import Target
from fxad.backend.llvm.text import Function
from fxad.backend.llvm.values import Copy
from fxad.backend.llvm.vector import Vec
from fxad.core.errors import CheckError
from fxad.core.record import valued
from fxad.ir.kernel import Attend, Axis, Kernel, Operand

ABI = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
K_BLOCK = 768
_UNROLL = 4
_LINE = 64
# (rows, vectors) of the register tile; every height divides both numbers of rows in a block.
_TILES = {"avx512": (8, 3), "avx2": (6, 2), "neon": (8, 3), "generic": (4, 2)}
_LONG = 4096  # keys from which a block has fewer rows, so that its scores stay in the L2 cache


@valued
class Place:
    """An operand at the current grid point: its address and element strides (row, column)."""

    pointer: str
    row: int
    column: int = 1


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to


class Tiles:
    """One function under construction."""

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        self.kernel, self.stage, self.name, self.target = kernel, stage, name, target
        self.dtype: np.dtype = stage.score.dtype
        self.kind, self.size = kind_of(self.dtype), self.dtype.itemsize
        self.lanes = Lanes(self.dtype, target.lanes(self.dtype))
        self.height, self.vectors = _TILES[target.isa]
        self.panel = self.vectors * self.lanes.width  # keys computed side by side
        self.queries, self.keys = stage.rows.extent, stage.keys.extent
        self.depth, self.width = stage.depth.extent, stage.width.extent
        self.rows = 48 if self.keys <= _LONG else 24  # queries in a block
        self.blocks = -(-self.queries // self.rows)
        self.pitch = _round_up(self.keys, self.panel)
        self.helpers: dict[str, str] = {}
        self.micros: dict[Tile, str] = {}
        self.scratch_bytes = 0
        self.f = Function(name, "void", ABI)
        self.memory = arguments(kernel, self.f, target, scalars=True)
        self.code = self.memory.code

    @property
    def declarations(self) -> frozenset[str]:
        return frozenset(self.lanes.declarations | self.code.declarations)

    @property
    def text(self) -> str:
        return "\n".join([*self.helpers.values(), str(self.f)])

    def scratch(self, elements: int) -> str:
        """The address of so many elements of this thread's scratch."""
        pointer = self.f.offset("%scratch", self.scratch_bytes)
        self.scratch_bytes += _round_up(elements * self.size, _LINE)
        return pointer

    # ------------------------------------------------------------ addresses and numbers

    def place(self, operand: Operand, row: Axis, column: Axis | None = None) -> Place:
        """An operand's matrix at the current grid point."""
        inner = column or Axis("", 1)
        found = matrix(operand.buffer, operand.index, row, inner)
        if found is None or (column is not None and column.extent > 1 and found.inner != 1):
            raise CheckError(f"{self.name}: {operand.buffer.name} is not contiguous along its rows")
        return Place(address(self.memory, operand.buffer, found.base), found.outer)

    def at(self, place: Place, row: str | int, column: int = 0) -> str:
        """The address of an element."""
        f = self.f
        step = f.mul(row, place.row * self.size)
        return f.offset(place.pointer, f.add(step, column * self.size))

    def seen(self, row: str) -> tuple[str, str]:
        """The keys low <= j < high that a query sees, within 0 ... keys."""
        self.memory.scopes.append({})
        self.memory.env[self.stage.rows] = row
        low, high = (self.memory.scalar_index(i) for i in (self.stage.lower, self.stage.upper))
        self.memory.scopes.pop()
        low = self.f.least(self.f.most(low, 0), self.keys)
        return low, self.f.most(self.f.least(high, self.keys), low)

    def span(self, first: str, count: str) -> tuple[str, str]:
        """The keys that rows first ... first + count - 1 see, in whole panels."""
        f = self.f
        low, _ = self.seen(first)
        _, high = self.seen(f.op(f"sub i64 {f.add(first, count)}, 1"))
        low = f.mul(f.op(f"udiv i64 {low}, {self.panel}"), self.panel)
        panels = f.op(f"udiv i64 {f.add(high, self.panel - 1)}, {self.panel}")
        return low, f.mul(panels, self.panel)

    def go_to(self, point: str) -> None:
        go_to(self.memory, self.kernel, point)

    # ------------------------------------------------------------ products

    def pack(self, source: Place, depth: int, packed: str, low: str, high: str) -> None:
        """Rows low ... high - 1 of a matrix [keys, depth] into panels of `panel` rows, turned."""
        f = self.f

        def one(panel: str, columns: int) -> None:
            name = f"{self.name}.pack{columns}_{source.row}_{depth}"
            if name not in self.helpers:
                layout = packing.Source(source.row, 1, self.dtype)
                self.helpers[name] = packing.emit_pack_b(name, layout, columns, self.lanes)
            at = self.at(source, f.mul(panel, self.panel))
            to = f.offset(packed, f.mul(panel, self.panel * depth * self.size))
            f.line(f"call void @{name}(ptr {at}, ptr {to}, i64 {depth})")

        self.each_panel(low, high, one)

    def each_panel(self, low: str, high: str, body: Callable[[str, int], None]) -> None:
        """body(number, keys in it) for panels of the keys low ... high; the last may be short."""
        f = self.f
        whole, rest = divmod(self.keys, self.panel)
        first = f.op(f"udiv i64 {low}, {self.panel}")
        last = f.op(f"udiv i64 {high}, {self.panel}")
        f.loop(first, self.f.least(last, whole), 1, lambda p, _: body(p, self.panel))
        if rest:
            self.f.when(f.op(f"icmp sgt i64 {last}, {whole}"), lambda: body(str(whole), rest))

    def scores(
        self, a: Place, depth: int, packed: str, to: str, count: str, low: str, high: str
    ) -> None:
        """to[i, j] = sum over c of a[i, c] * packed[j, c] for `count` rows, keys low ... high."""
        f = self.f

        def panel(number: str, columns: int) -> None:
            columns = _round_up(columns, self.lanes.width)
            b = f.offset(packed, f.mul(number, self.panel * depth * self.size))
            c = f.offset(to, f.mul(number, self.panel * self.size))

            def block(height: int, row: str) -> None:
                tile = self.tile(height, columns, (a.row, 1), columns, self.pitch, True)
                c_at = f.offset(c, f.mul(row, self.pitch * self.size))
                self.micro(tile, str(depth), self.at(a, row), b, c_at, "0")

            self.each_block(count, self.queries % self.height, block)

        self.each_panel(low, high, panel)

    def product(
        self,
        rows: tuple[str, int],
        a: Place,
        b: Place,
        c: Place,
        columns: int,
        depth: str,
        more: str,
    ) -> None:
        """c = a b (c += a b where `more` is 1): rows x depth times depth x columns.

        rows: (their number, what may be left over of it after whole tiles).
        """
        f, lanes = self.f, self.lanes
        vectors = -(-columns // lanes.width)
        wide = -(-vectors // -(-vectors // self.vectors)) * lanes.width
        for start in range(0, columns, wide):
            count = min(wide, columns - start)

            def block(height: int, row: str, start: int = start, count: int = count) -> None:
                tile = self.tile(height, count, (a.row, a.column), b.row, c.row, False)
                b_at, c_at = f.offset(b.pointer, start * self.size), self.at(c, row, start)
                self.micro(tile, depth, self.at(a, row), b_at, c_at, more)

            self.each_block(*rows, block)

    def each_block(self, rows: str, left: int, body: Callable[[int, str], None]) -> None:
        """body(height, first row) for whole tiles of rows, then for the `left` ones, if any."""
        f = self.f
        full = f.op(f"udiv i64 {rows}, {self.height}")
        f.loop(0, full, 1, lambda i, _: body(self.height, f.mul(i, self.height)))
        if left:
            whole = f.mul(full, self.height)
            self.f.when(f.op(f"icmp slt i64 {whole}, {rows}"), lambda: body(left, whole))

    def tile(
        self, height: int, columns: int, a: tuple[int, int], b: int, c: int, packed: bool
    ) -> Tile:
        return Tile(
            height=height,
            columns=columns,
            a_row=a[0],
            a_k=a[1],
            b_stride=b,
            c_stride=c,
            b_dtype=self.dtype,
            unroll=_UNROLL if height == self.height else 1,
            aligned=packed,
            packs=False,
            some_rest=True,
            no_steps=True,
        )

    def micro(self, tile: Tile, depth: str, a: str, b: str, c: str, more: str) -> None:
        f = self.f
        name = self.micros.get(tile)
        if name is None:
            name = self.micros[tile] = f"{self.name}.m{len(self.micros)}"
            self.helpers[name] = emit_micro(name, tile, self.lanes)
        if depth.isdigit():
            steps, rest = (str(n) for n in divmod(int(depth), tile.unroll))
        else:
            steps = f.op(f"udiv i64 {depth}, {tile.unroll}")
            rest = f.op(f"urem i64 {depth}, {tile.unroll}")
        values = {"steps": steps, "rest": rest, "a": a, "b": b, "c": c, "mode": more}
        unused = {"ptr": "null", "i64": "0"}
        listed = ", ".join(f"{t} {values.get(n, unused[t])}" for t, n in PARAMS)
        f.line(f"call void @{name}({listed})")

    def key_blocks(self, low: str, high: str, body: Callable[[str, str, str], None]) -> None:
        """body(first key, number of keys, 1 but for the first) for blocks of K_BLOCK keys.

        Without keys there is one block of none, so that the result is set.
        """
        f = self.f

        def block(start: str, _: list[str]) -> None:
            more = f.op(f"zext i1 {f.op(f'icmp ne i64 {start}, {low}')} to i64")
            body(start, self.f.least(f.op(f"sub i64 {high}, {start}"), K_BLOCK), more)

        f.loop(low, high, K_BLOCK, block, at_least_once=True)

    # ------------------------------------------------------------ rows of scores

    def vec(self, text: str) -> Vec:
        return Vec(self.code, self.kind, self.lanes.width, text)

    def scalar(self, text: str) -> Vec:
        return Vec(self.code, self.kind, 1, text)

    def load(self, pointer: str) -> Vec:
        return self.vec(self.lanes.load(self.f, pointer, self.dtype, self.lanes.width))

    def store(self, value: Vec, pointer: str) -> None:
        self.lanes.store(self.f, value.text, pointer, self.lanes.width)

    def load_scalar(self, pointer: str) -> Vec:
        return self.scalar(self.f.op(f"load {self.kind}, ptr {pointer}, align {self.size}"))

    def store_scalar(self, value: Vec, pointer: str) -> None:
        self.f.line(f"store {self.kind} {value.text}, ptr {pointer}, align {self.size}")

    def apply(self, name: str, value: Vec) -> Vec:
        found = prims.apply(name, [value], self.dtype, self.dtype)
        assert isinstance(found, Vec)
        return found

    def over_row(
        self,
        row: str,
        span: tuple[str, str],
        seen: tuple[str, str],
        pointers: list[str],
        body: Callable[[int, Vec, list[str]], Vec | None],
        combine: str = "",
    ) -> Vec | None:
        """Walk the columns of a score row, a panel at a time.

        pointers: rows of scores; body(vector number, lanes of seen keys, where the vector lies in
        each row). What it returns is combined ("add" or "max") over the whole row.
        """
        f, memory, width = self.f, self.memory, self.lanes.width
        seen_count = self.f.op(f"sub i64 {seen[1]}, {seen[0]}")
        limit = Vec(self.code, "i64", 1, seen_count).convert("trunc", "i32").splat(width)
        start = {"": [], "add": [self.zero()], "max": [self.lowest()]}[combine] * self.vectors

        def panel(j: str, values: list[str]) -> list[str]:
            memory.scopes.append({})
            memory.env[self.stage.rows], memory.env[self.stage.keys] = row, j
            memory.lanes_along(self.stage.keys, width)
            memory.varying_cells.add(self.stage.score)
            offset = Vec(self.code, "i64", 1, f.op(f"sub i64 {j}, {seen[0]}"))
            base = offset.convert("trunc", "i32").splat(width)
            at = [f.offset(p, f.mul(j, self.size)) for p in pointers]
            copies, masks = [], []
            for u in range(self.vectors):
                lanes = self.code.iota("i32", width, u * width)
                masks.append((base + lanes).compare("ult", limit))
                copies.append(Copy(u, j, u * width, masks[-1]))
            memory.copies = copies
            memory.cells[self.stage.score] = {}
            following: list[str] = []
            for u, _copy in enumerate(memory.each_copy()):
                found = body(u, masks[u], [f.offset(p, u * width * self.size) for p in at])
                if found is not None:
                    following.append(self._combined(combine, self.vec(values[u]), found).text)
            memory.lanes_along(None, 1)
            memory.scopes.pop()
            return following

        totals = f.loop(*span, self.panel, panel, [(v.type, v.text) for v in start])
        if not combine:
            return None
        total = self.vec(totals[0])
        for text in totals[1:]:
            total = self._combined(combine, total, self.vec(text))
        while total.width > 1:
            half = total.width // 2
            low, high = total.shuffle(range(half)), total.shuffle(range(half, 2 * half))
            total = self._combined(combine, low, high)
        return total

    @staticmethod
    def _combined(combine: str, a: Vec, b: Vec) -> Vec:
        return a + b if combine == "add" else a.at_least(b)

    def logit(self, number: int, score: Vec) -> Vec:
        """The logit of the current vector's scores."""
        self.memory.cells[self.stage.score][number] = score
        found = self.memory.value(self.stage.logit)
        assert isinstance(found, Vec)
        return found.splat(self.lanes.width)

    def weight(self, mask: Vec, x: Vec) -> Vec:
        """exp(x) in the lanes of the mask, 0 in others and where it is no normal number.

        Without numbers that underflow: computing with them takes processors a hundred cycles.
        """
        lowest = -87.0 if self.size == 4 else -708.0
        kept = mask & ~(x < lowest)
        return kept.where(self.apply("exp", kept.where(x, self.zero())), self.zero())

    def zero(self) -> Vec:
        return self.code.const(self.kind, 0, self.lanes.width)

    def lowest(self) -> Vec:
        return self.code.const(self.kind, -float("inf"), self.lanes.width)
