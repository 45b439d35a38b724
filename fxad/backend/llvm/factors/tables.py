"""Small matrices side by side: a vector for every element, a matrix in every lane.

    lot = Lot(writer, code, number, count)      # matrices number * lanes, ... of an array
    w = Table(lot, "%scratch", rows, columns)
    w.read(a, columns); w.get(w.place(i, j)); w.write(a, rows, columns)

Lanes past the last matrix do the last one's work again and are not stored. The operations on each
matrix are the same in any lane, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.vector import Code, Vec, type_of
from fxad.backend.llvm.factors.writer import Writer


class Lot:
    """Which matrices of arrays are in the lanes: the numbers of `matrices`, where `there`."""

    def __init__(self, writer: Writer, code: Code, number: str, count: str) -> None:
        self.writer, self.code = writer, code
        f, width = code.function, writer.width
        first = f.mul(number, width)
        left = f.op(f"sub i64 {count}, {first}")
        self.there = code.first_lanes(width, left)
        last = Vec(code, "i64", 1, f.add(left, -1)).splat(width)
        here = code.iota("i64", width)
        start = Vec(code, "i64", 1, first)
        self.matrices = (here > last).where(last, here) + start.splat(width)


class Table:
    """rows x columns vectors in scratch."""

    def __init__(self, lot: Lot, base: str, rows: str, columns: str) -> None:
        self.lot, self.base, self.rows, self.columns = lot, base, rows, columns
        self.writer, self.code, self.f = lot.writer, lot.code, lot.code.function
        self.kind, self.width = lot.writer.kind, lot.writer.width
        self.step = self.width * lot.writer.size  # bytes from column to column
        self.line = self.f.mul(columns, self.step)

    def place(self, i: str, j: str) -> str:
        """The address of element i, j."""
        offset = self.f.add(self.f.mul(i, self.line), self.f.mul(j, self.step))
        return self.f.offset(self.base, offset)

    def get(self, place: str) -> Vec:
        return self.writer.load(self.code, place)

    def put(self, place: str, value: Vec) -> None:
        self.writer.put(self.code, place, value)

    def total(self, text: str) -> Vec:
        """A value that a loop carries."""
        return Vec(self.code, self.kind, self.width, text)

    def const(self, value: float) -> Vec:
        return self.code.const(self.kind, value, self.width)

    def each(
        self, array: str, rows: str, k: str, column: str, body: Callable[[Vec, str], None]
    ) -> None:
        """body(addresses in memory, address in scratch) for all elements of an array of rows x k
        matrices, which begin at a column of the table."""
        f, size = self.f, self.writer.size
        bytes = f.mul(f.mul(rows, k), size)
        offsets = self.lot.matrices * Vec(self.code, "i64", 1, bytes).splat(self.width)
        text = f"getelementptr i8, ptr {array}, {offsets.type} {offsets.text}"
        first = self.code.op("ptr", self.width, text)

        def element(i: str, j: str) -> None:
            offset = f.mul(f.add(f.mul(i, k), j), size)
            text = f"getelementptr i8, {first.type} {first.text}, i64 {offset}"
            body(self.code.op("ptr", self.width, text), self.place(i, f.add(j, column)))

        f.loop(0, rows, 1, lambda i, _: f.loop(0, k, 1, lambda j, _: element(i, j)) and None)

    def read(self, array: str, k: str, column: str = "0") -> None:
        """Matrices of as many rows and k columns into the table."""
        code, every = self.code, self.code.const("i1", True, self.width)
        vector = type_of(self.kind, self.width)
        name = f"llvm.masked.gather.{self.const(0.0).suffix}.v{self.width}p0"

        def element(where: Vec, place: str) -> None:
            code.declarations.add(
                f"declare {vector} @{name}({where.type}, i32, {every.type}, {vector})"
            )
            given = f"{where.type} {where.text}, i32 {self.writer.size}, {every.type} {every.text}"
            text = f"call {vector} @{name}({given}, {vector} poison)"
            self.put(place, code.op(self.kind, self.width, text))

        self.each(array, self.rows, k, column, element)

    def write(self, array: str, rows: str, k: str, column: str = "0") -> None:
        """The first rows and k columns of the table, to matrices in memory."""
        size, there = self.writer.size, self.lot.there

        def element(where: Vec, place: str) -> None:
            value = self.get(place)
            types = (value.type, where.type, "i32", there.type)
            given = (value.text, where.text, str(size), there.text)
            name = f"llvm.masked.scatter.{value.suffix}.v{self.width}p0"
            self.code.call_void(name, types, given)

        self.each(array, rows, k, column, element)
