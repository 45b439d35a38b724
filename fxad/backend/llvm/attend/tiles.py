"""What attention's two kernels share: packed operands and small matrix products.

A grid point works through blocks of query rows. A block's scores lie in this thread's scratch,
one row of `pitch` elements per query; they never reach memory that other cores see. Operands are
copied to scratch before they are read many times: rows of a head lie far apart in memory, often by
a multiple of 4 KiB, where a first-level cache holds only a few of them. Products use the
micro-kernels of matrix multiplication.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.grid import address, arguments, go_to
from fxad.backend.llvm.contract.lanes import Lanes, prefetch
from fxad.backend.llvm.contract.micro import PARAMS, Tile, emit_micro
from fxad.backend.llvm.contract.plan import matrix
from fxad.core.aligned import LINE, to_line
from fxad.core.errors import CheckError
from fxad.core.record import valued
from fxad.ir.kernel import Attend, Axis, Index, Kernel, Operand

ABI = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
ROWS = 48  # every tile's height divides it
_UNROLL = 4
_TILES = {"avx512": (8, 3, 4), "avx2": (6, 2, 2), "neon": (8, 3, 4), "generic": (4, 2, 2)}
_HIGHEST = 12  # more rows to a tile wait for broadcasts
_DEPTH = 128  # of a score's products summed at a time: so much of a panel stays in the L1 cache


@valued
class Place:
    """An operand at the current grid point: its address and element strides (row, column)."""

    pointer: str
    row: int
    column: int = 1


@valued
class Columns:
    """The columns of a right operand in groups, each with a dense copy of its own.

    groups: (first column, elements of a row of the copy, columns). height: rows of a tile.
    """

    count: int
    groups: tuple[tuple[int, int, int], ...]
    height: int


@valued
class Packed:
    """Groups of columns of a matrix of so many rows in scratch, one group after the other."""

    pointer: str
    rows: int
    columns: Columns


def round_up(size: int, to: int) -> int:
    return -(-size // to) * to


class Tiles:
    """One function under construction."""

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        self.kernel, self.stage, self.name, self.target = kernel, stage, name, target
        self.dtype: np.dtype = stage.score.dtype
        self.kind, self.size = kind_of(self.dtype), self.dtype.itemsize
        self.lanes = Lanes(self.dtype, target.lanes(self.dtype))
        self.height, self.vectors, self.most_vectors = self.shape_of_tiles(target)
        self.panel = self.vectors * self.lanes.width  # keys computed side by side
        self.queries, self.keys = stage.rows.extent, stage.keys.extent
        self.depth, self.width = stage.depth.extent, stage.width.extent
        self.all_keys = round_up(self.keys, self.panel)
        self.rows, self.pitch = ROWS, self.all_keys  # queries in a block, keys in a row of scores
        self.limits: tuple[str, str] | None = None  # keys beyond which a mask excludes all
        self.helpers: dict[str, str] = {}
        self.micros: dict[Tile, str] = {}
        self.scratch_bytes = 0
        self.f = Function(name, "void", ABI)
        self.memory = arguments(kernel, self.f, target, scalars=True)
        self.code = self.memory.code

    def shape_of_tiles(self, target: Target) -> tuple[int, int, int]:
        """(rows, vectors) of the register tile of scores, vectors of that of other products."""
        return _TILES[target.isa]

    @property
    def declarations(self) -> frozenset[str]:
        return frozenset(self.lanes.declarations | self.code.declarations)

    @property
    def text(self) -> str:
        return "\n".join([*self.helpers.values(), str(self.f)])

    def scratch(self, elements: int) -> str:
        """The address of so many elements of this thread's scratch."""
        pointer = self.f.offset("%scratch", self.scratch_bytes)
        self.scratch_bytes += to_line(elements * self.size)
        return pointer

    def row_bytes(self, depth: int) -> int:
        """Bytes of a row in packed copies."""
        return depth * self.size

    def pitch_of(self, keys: int) -> int:
        """Elements from one row of so many scores to the next."""
        return keys

    def with_tiles(self, body: Callable[[], object]) -> None:
        """body(), with what the processor has for products set up."""
        body()

    def columns(self, count: int, rows: int = ROWS) -> Columns:
        """`count` columns in as few groups as registers allow, all about as wide.

        rows: a tile's height divides it.
        """
        vectors = -(-count // self.lanes.width)
        each = -(-vectors // -(-vectors // self.most_vectors))
        most = min(self.height * self.vectors // each, _HIGHEST)
        height = max(h for h in range(1, most + 1) if rows % h == 0)
        wide, found = each * self.lanes.width, []
        for start in range(0, count, wide):
            here = min(wide, count - start)
            found.append((start, round_up(here, self.lanes.width), here))
        return Columns(count, tuple(found), height)

    def turned_scratch(self, keys: int, depth: int) -> str:
        """Room for what `pack` makes of so many rows."""
        return self.scratch(keys * depth)

    def rows_scratch(self, rows: int, depth: int) -> str:
        """Room for what `copy_rows` makes of so many rows."""
        return self.scratch(rows * depth)

    def packed_scratch(self, rows: int, columns: Columns) -> Packed:
        """Room for columns of a matrix of at most so many rows."""
        room = self.scratch(rows * round_up(columns.count, self.lanes.width))
        return Packed(room, rows, columns)

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
        """The keys low <= j < high that a query sees, within 0 ... keys or what is limited to."""
        self.memory.scopes.append({})
        self.memory.env[self.stage.rows] = row
        low, high = (self.memory.scalar_index(i) for i in (self.stage.lower, self.stage.upper))
        self.memory.scopes.pop()
        first, end = self.limits or (0, self.keys)
        low = self.f.least(self.f.most(low, first), end)
        return low, self.f.most(self.f.least(high, end), low)

    def span(self, first: str, count: str) -> tuple[str, str]:
        """The keys that rows first ... first + count - 1 see, in whole panels."""
        f = self.f
        low, _ = self.seen(first)
        _, high = self.seen(f.op(f"sub i64 {f.add(first, count)}, 1"))
        low = f.mul(f.op(f"udiv i64 {low}, {self.panel}"), self.panel)
        panels = f.op(f"udiv i64 {f.add(high, self.panel - 1)}, {self.panel}")
        return low, f.mul(panels, self.panel)

    def seen_by(self, row: str, height: int) -> tuple[str, str]:
        """The keys that any of so many rows see."""
        last = self.f.least(self.f.add(row, height - 1), self.queries - 1)
        return self.seen(row)[0], self.seen(last)[1]

    def seeing(self, key: str, count: int, first: str, rows: str) -> tuple[str, str]:
        """Those of `rows` rows, counted from `first`, that see any of so many keys: low, high."""
        f, axis = self.f, self.stage.rows
        low, high = "0", rows
        if self.stage.upper.coefficient(axis):
            ahead = self.bound(self.stage.upper)
            low = f.most(f.op(f"sub i64 {f.add(key, 1)}, {f.add(first, ahead)}"), 0)
        if self.stage.lower.coefficient(axis):
            behind = self.bound(self.stage.lower)
            end = f.op(f"sub i64 {f.add(key, count)}, {f.add(first, behind)}")
            high = f.least(f.most(end, 0), rows)
        return f.least(low, high), high

    def bound(self, index: Index) -> str:
        """A bound of the keys that row 0 sees."""
        self.memory.scopes.append({})
        self.memory.env[self.stage.rows] = "0"
        found = self.memory.scalar_index(index)
        self.memory.scopes.pop()
        return found

    def go_to(self, point: str) -> None:
        go_to(self.memory, self.kernel, point)

    # ------------------------------------------------------------ copies

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

    def copy_columns(self, source: Place, to: Packed, low: str, count: str) -> None:
        """`count` rows of a matrix, from `low` on, into the copies of its groups of columns."""
        f = self.f
        for start, wide, here in to.columns.groups:
            name = f"{self.name}.copy{here}_{source.row}"
            if name not in self.helpers:
                layout = packing.Source(1, source.row, self.dtype)
                self.helpers[name] = packing.emit_pack_b(name, layout, here, self.lanes)
            at, into = self.at(source, low, start), self.group_at(to, start, wide, low)
            f.line(f"call void @{name}(ptr {at}, ptr {into}, i64 {count})")

    def group_at(self, packed: Packed, start: int, wide: int, row: str) -> str:
        """Where a row of the group of columns that begins with `start` lies."""
        f = self.f
        group = f.offset(packed.pointer, start * packed.rows * self.size)
        return f.offset(group, f.mul(row, wide * self.size))

    def copy_rows(self, source: Place, depth: int, to: str, count: str) -> Place:
        """`count` rows of a matrix [rows, depth], copied side by side."""
        name = f"{self.name}.rows{depth}_{source.row}"
        if name not in self.helpers:
            layout = packing.Source(source.row, 1, self.dtype)
            self.helpers[name] = packing.emit_pack_a(name, layout, depth, depth, self.lanes)
        self.f.line(f"call void @{name}(ptr {source.pointer}, ptr {to}, i64 {count})")
        return Place(to, depth)

    def fetch(self, place: Place, row: str, columns: int, write: bool = False) -> None:
        """Ask for a row that is needed soon."""
        for start in range(0, columns * self.size, LINE):
            at = self.f.offset(self.at(place, row), start)
            prefetch(self.f, self.lanes.declarations, at, write, level=2)

    def fetch_rows(self, place: Place, first: str, count: int, columns: int) -> None:
        """Ask for `count` rows from `first` on, or as many as there are keys."""
        f = self.f
        end = f.least(f.add(first, count), self.keys)
        f.loop(first, end, 1, lambda j, _: self.fetch(place, j, columns))

    def each_panel(self, low: str, high: str, body: Callable[[str, int], None]) -> None:
        """body(number, keys in it) for panels of the keys low ... high; the last may be short."""
        f = self.f
        whole, rest = divmod(self.keys, self.panel)
        first = f.op(f"udiv i64 {low}, {self.panel}")
        last = f.op(f"udiv i64 {high}, {self.panel}")
        f.loop(first, self.f.least(last, whole), 1, lambda p, _: body(p, self.panel))
        if rest:
            self.f.when(f.op(f"icmp sgt i64 {last}, {whole}"), lambda: body(str(whole), rest))

    # ------------------------------------------------------------ products

    def scores(
        self, a: Place, depth: int, packed: str, to: str, rows: tuple[str, str], low: str, high: str
    ) -> None:
        """to[i, j] = sum over c of a[i, c] * packed[j, c] for keys low ... high, where a tile has
        pairs that are seen.

        rows: (the first, their number).
        """
        f = self.f
        piece = -(-depth // -(-depth // _DEPTH))

        def panel(number: str, columns: int) -> None:
            columns = round_up(columns, self.lanes.width)
            b = f.offset(packed, f.mul(number, self.panel * depth * self.size))
            key = f.mul(number, self.panel)
            c = f.offset(to, f.mul(key, self.size))
            some = self.seeing(key, self.panel, *rows)
            for start in range(0, depth, piece):
                here = f.offset(b, start * columns * self.size)

                def block(height: int, row: str, start: int = start, here: str = here) -> None:
                    tile = self.tile(height, columns, (a.row, 1), columns, self.pitch)
                    c_at = f.offset(c, f.mul(row, self.pitch * self.size))
                    steps, more = str(min(piece, depth - start)), str(int(start > 0))
                    self.micro(tile, steps, self.at(a, row, start), here, c_at, more)

                left = self.queries % self.height
                self.each_block((*some, rows[1]), left, self.height, block)

        self.each_panel(low, high, panel)

    def product(
        self,
        rows: tuple[str, int],
        a: Place,
        b: Packed,
        c: Place,
        bounds: Callable[[str, int], tuple[str, str]],
        more: str,
        padded: bool = False,
    ) -> None:
        """c = a b (c += a b where `more` is 1): rows x depth times depth x columns.

        rows: (their number, the number of all such rows there are). bounds(first row, rows of the
        tile): the steps (from, how many) beyond which all of a is 0. padded: c has room for whole
        vectors.
        """
        f = self.f
        for start, wide, here in b.columns.groups:

            def block(
                height: int, row: str, start: int = start, wide: int = wide, here: int = here
            ) -> None:
                low, depth = bounds(row, height)
                stored = wide if padded else here
                tile = self.tile(height, stored, (a.row, a.column), wide, c.row)
                a_at = f.offset(self.at(a, row), f.mul(low, a.column * self.size))
                b_at = self.group_at(b, start, wide, low)
                self.micro(tile, depth, a_at, b_at, self.at(c, row, start), more)

            left = rows[1] % b.columns.height
            self.each_block(("0", rows[0], rows[0]), left, b.columns.height, block)

    def each_block(
        self, rows: tuple[str, str, str], left: int, height: int, body: Callable[[int, str], None]
    ) -> None:
        """body(height, first row) for whole tiles of rows, then for the `left` ones, if any.

        rows: (low, high, number of rows): tiles with rows low ... high - 1 of all.
        """
        f = self.f
        low, high, count = rows
        whole = f.mul(f.op(f"udiv i64 {count}, {height}"), height)
        first = f.mul(f.op(f"udiv i64 {low}, {height}"), height)
        f.loop(first, f.least(high, whole), height, lambda row, _: body(height, row))
        if left:
            rest = f.op(f"and i1 {f.op(f'icmp slt i64 {whole}, {count}')}, "
                        f"{f.op(f'icmp slt i64 {whole}, {high}')}")  # fmt: skip
            f.when(rest, lambda: body(left, whole))

    def tile(self, height: int, columns: int, a: tuple[int, int], b: int, c: int) -> Tile:
        return Tile(
            height=height,
            columns=columns,
            a_row=a[0],
            a_k=a[1],
            b_stride=b,
            c_stride=c,
            b_dtype=self.dtype,
            unroll=_UNROLL,
            aligned=True,
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
