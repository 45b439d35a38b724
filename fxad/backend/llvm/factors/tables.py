"""Small matrices side by side: a vector for every element, a matrix in every lane.

    lot = lot_of(code, number, count)           # matrices number * lanes, ... of an array
    w = table(lot, "%scratch", rows, columns)
    w.read(a, columns); w.get(w.place(i, j)); w.write(a, rows, columns)

Lanes past the last matrix do the last one's work again and are not stored. The operations on each
matrix are the same in any lane, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Vec, type_of
from fxad.backend.llvm.factors.code import Code
from fxad.core.record import record


@record
class Lot:
    """Which matrices of arrays are in the lanes: the numbers of `matrices`, where `present`."""

    code: Code
    matrices: Vec
    present: Vec


def lot_of(code: Code, number: str, count: str) -> Lot:
    """The lot of that number, of `count` matrices."""
    f, values, width = code.f, code.values, code.width
    first = f.mul(number, width)
    left = f.op(f"sub i64 {count}, {first}")
    present = values.first_lanes(width, left)
    last = Vec(values, "i64", 1, f.add(left, -1)).splat(width)
    here = values.iota("i64", width)
    start = Vec(values, "i64", 1, first)
    return Lot(code, (here > last).where(last, here) + start.splat(width), present)


@record
class Table:
    """rows x columns vectors in scratch, `line` bytes from row to row."""

    lot: Lot
    base: str
    rows: str
    columns: str
    line: str

    @property
    def code(self) -> Code:
        return self.lot.code

    @property
    def f(self) -> Function:
        return self.lot.code.f

    def place(self, i: str, j: str) -> str:
        """The address of element i, j."""
        offset = self.f.add(self.f.mul(i, self.line), self.f.mul(j, self.code.step))
        return self.f.offset(self.base, offset)

    def get(self, at: str) -> Vec:
        return self.code.load(at)

    def put(self, at: str, value: Vec) -> None:
        self.code.put(at, value)

    def read(self, array: str, k: str, column: str = "0") -> None:
        """Matrices of as many rows and k columns into the table."""
        code, values = self.code, self.code.values
        every, type = values.const("i1", True, code.width), type_of(code.kind, code.width)
        name = f"llvm.masked.gather.{code.splat(0.0).suffix}.v{code.width}p0"

        def element(where: Vec, at: str) -> None:
            values.declarations.add(
                f"declare {type} @{name}({where.type}, i32, {every.type}, {type})"
            )
            given = f"{where.type} {where.text}, i32 {code.size}, {every.type} {every.text}"
            text = f"call {type} @{name}({given}, {type} poison)"
            self.put(at, values.op(code.kind, code.width, text))

        _each_element(self, array, self.rows, k, column, element)

    def write(self, array: str, rows: str, k: str, column: str = "0") -> None:
        """The first rows and k columns of the table, to matrices in memory."""
        code, present = self.code, self.lot.present

        def element(where: Vec, at: str) -> None:
            value = self.get(at)
            types = (value.type, where.type, "i32", present.type)
            given = (value.text, where.text, str(code.size), present.text)
            name = f"llvm.masked.scatter.{value.suffix}.v{code.width}p0"
            code.values.call_void(name, types, given)

        _each_element(self, array, rows, k, column, element)


def table(lot: Lot, base: str, rows: str, columns: str) -> Table:
    """A table that begins at an address."""
    return Table(lot, base, rows, columns, lot.code.f.mul(columns, lot.code.step))


def _each_element(
    work: Table, array: str, rows: str, k: str, column: str, body: Callable[[Vec, str], None]
) -> None:
    """body(addresses in memory, address in scratch) for all elements of an array of rows x k
    matrices, which begin at a column of the work."""
    f, code, values = work.f, work.code, work.code.values
    nbytes = f.mul(f.mul(rows, k), code.size)
    offsets = work.lot.matrices * Vec(values, "i64", 1, nbytes).splat(code.width)
    text = f"getelementptr i8, ptr {array}, {offsets.type} {offsets.text}"
    first = values.op("ptr", code.width, text)

    def element(i: str, j: str) -> None:
        offset = f.mul(f.add(f.mul(i, k), j), code.size)
        text = f"getelementptr i8, {first.type} {first.text}, i64 {offset}"
        body(values.op("ptr", code.width, text), work.place(i, f.add(j, column)))

    f.loop(0, rows, 1, lambda i, _: f.loop(0, k, 1, lambda j, _: element(i, j)) and None)
