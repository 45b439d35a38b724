"""A function of attention's kernels: its operands, its scratch, and which keys a query sees.

Operands are copied to scratch before they are read many times: rows of a head lie far apart in
memory, often by a multiple of 4 KiB, where a first-level cache holds only a few of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.attention.cursor import Cursor
from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.schedule import ABI, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.arguments import address, load_arguments
from fxad.backend.llvm.contract.lanes import Lanes, prefetch_line
from fxad.backend.llvm.contract.problem import matrix
from fxad.core.aligned import LINE, to_line
from fxad.core.errors import CheckError
from fxad.core.record import valued
from fxad.ir.kernel import Attention as Attend
from fxad.ir.kernel import Axis, Index, Kernel, Operand
from fxad.ir.orders import ATTENTION_TILES

ROWS = 48  # every tile's height divides it
HIGHEST = 12  # more rows to a tile wait for broadcasts


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
    """Groups of columns of a matrix of so many rows in scratch, one group after the other.

    pitch: elements between rows, if they are whole instead: in place (an only row may have 0), or a
    copy of whole rows. following: what is read after rows in place, and prefetched.
    """

    pointer: str
    rows: int
    columns: Columns
    pitch: int | None = None
    following: str = "null"


def round_up(size: int, to: int) -> int:
    return -(-size // to) * to


class Operands:
    """One function under construction."""

    def __init__(self, kernel: Kernel, stage: Attend, name: str, target: Target) -> None:
        self.kernel, self.stage, self.name, self.target = kernel, stage, name, target
        self.tuning = target.tuning.attention
        self.flops_per_ns = target.tuning.gemm.flops_per_ns
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
        self.scratch_bytes = 0
        self.f = Function(name, "void", ABI)
        self.memory = Cursor(load_arguments(kernel, self.f, target, scalars=True))
        self.code = self.memory.code

    def shape_of_tiles(self, target: Target) -> tuple[int, int, int]:
        """(rows, vectors) of the register tile of scores, vectors of that of other products."""
        return ATTENTION_TILES[target.isa]

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
        vectors = max(1, -(-count // self.lanes.width))
        each = -(-vectors // -(-vectors // self.most_vectors))
        most = min(self.height * self.vectors // each, HIGHEST)
        height = max(h for h in range(1, most + 1) if rows % h == 0)
        wide, found = each * self.lanes.width, []
        for start in range(0, count, wide):
            here = min(wide, count - start)
            found.append((start, round_up(here, self.lanes.width), here))
        return Columns(count, tuple(found), height)

    def transposed_scratch(self, keys: int, depth: int) -> str:
        """Room for what `pack` makes of so many rows."""
        return self.scratch(keys * depth)

    def rows_scratch(self, rows: int, depth: int) -> str:
        """Room for what `copy_rows` makes of so many rows."""
        return self.scratch(rows * self.row_pitch(depth))

    def row_pitch(self, depth: int) -> int:
        """Elements between rows of copies: rows as far apart as a power of 2 would share few sets
        of a cache."""
        whole = round_up(depth, self.lanes.width)
        few_sets = whole * self.size % self.tuning.set_bytes == 0
        return whole + self.lanes.width if few_sets else whole

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
        return Place(address(self.memory.scope, operand.buffer, found.base), found.outer)

    def at(self, place: Place, row: str | int, column: int = 0) -> str:
        """The address of an element."""
        f = self.f
        step = f.mul(row, place.row * self.size)
        return f.offset(place.pointer, f.add(step, column * self.size))

    def visible(self, row: str) -> tuple[str, str]:
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
        low, _ = self.visible(first)
        _, high = self.visible(f.op(f"sub i64 {f.add(first, count)}, 1"))
        low = f.mul(f.op(f"udiv i64 {low}, {self.panel}"), self.panel)
        panels = f.op(f"udiv i64 {f.add(high, self.panel - 1)}, {self.panel}")
        return low, f.mul(panels, self.panel)

    def visible_to(self, row: str, height: int) -> tuple[str, str]:
        """The keys that any of so many rows see."""
        last = self.f.least(self.f.add(row, height - 1), self.queries - 1)
        return self.visible(row)[0], self.visible(last)[1]

    def rows_that_see(self, key: str, count: int, first: str, rows: str) -> tuple[str, str]:
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
        self.memory.go_to(self.kernel, point)

    # ------------------------------------------------------------ copies

    def pack(self, source: Place, depth: int, packed: str, low: str, high: str) -> None:
        """Rows low ... high - 1 of a matrix [keys, depth], into transposed panels."""
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
        if packed.pitch is not None:
            return self.at(Place(packed.pointer, packed.pitch), row, start)
        group = f.offset(packed.pointer, start * packed.rows * self.size)
        return f.offset(group, f.mul(row, wide * self.size))

    def copy_rows(self, source: Place, depth: int, to: str, count: str) -> Place:
        """`count` rows of a matrix [rows, depth], copied side by side, whole vectors of each."""
        name, pitch = f"{self.name}.rows{depth}_{source.row}", self.row_pitch(depth)
        if name not in self.helpers:
            self.helpers[name] = self.copier(name, source.row, depth, pitch)
        self.f.line(f"call void @{name}(ptr {source.pointer}, ptr {to}, i64 {count})")
        return Place(to, pitch)

    def copier(self, name: str, row: int, depth: int, pitch: int) -> str:
        """A function of (source, copy, rows) that copies rows `row` elements apart."""
        params = ("ptr", "source"), ("ptr", "copy"), ("i64", "rows")
        f = Function(name, "void", params, "internal", "#1")
        lanes, starts = self.lanes, range(0, depth, self.lanes.width)
        most = self.tuning.loads_at_once  # loads wait for stores to like places of pages

        def line(_: str, places: list[str]) -> list[str]:
            at, to = places
            for some in (starts[n : n + most] for n in range(0, len(starts), most)):
                found = [
                    lanes.load(
                        f, f.offset(at, c * self.size), self.dtype, min(lanes.width, depth - c)
                    )
                    for c in some
                ]
                for c, value in zip(some, found, strict=True):
                    lanes.store(f, value, f.offset(to, c * self.size), lanes.width)
            return [f.offset(at, row * self.size), f.offset(to, pitch * self.size)]

        f.loop(0, "%rows", 1, line, [("ptr", "%source"), ("ptr", "%copy")])
        f.ret()
        return str(f)

    def prefetch_row(self, place: Place, row: str, columns: int, write: bool = False) -> None:
        """Ask for a row that is needed soon."""
        for start in range(0, columns * self.size, LINE):
            at = self.f.offset(self.at(place, row), start)
            prefetch_line(self.f, self.lanes.declarations, at, write, level=2)

    def prefetch_rows(self, place: Place, first: str, count: int, columns: int) -> None:
        """Ask for `count` rows from `first` on, or as many as there are keys."""
        f = self.f
        end = f.least(f.add(first, count), self.keys)
        f.loop(first, end, 1, lambda j, _: self.prefetch_row(place, j, columns))

    def each_panel(self, low: str, high: str, body: Callable[[str, int], None]) -> None:
        """body(number, keys in it) for panels of the keys low ... high; the last may be short."""
        f = self.f
        whole, rest = divmod(self.keys, self.panel)
        first = f.op(f"udiv i64 {low}, {self.panel}")
        last = f.op(f"udiv i64 {high}, {self.panel}")
        f.loop(first, self.f.least(last, whole), 1, lambda p, _: body(p, self.panel))
        if rest:
            self.f.when(f.op(f"icmp sgt i64 {last}, {whole}"), lambda: body(str(whole), rest))
