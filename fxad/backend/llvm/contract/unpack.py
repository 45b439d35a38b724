"""Unpacking a part of a packed matrix into scratch, as rows of elements side by side.

    part = PackedPart.at(scope, operand)              # where a grid point's part of it begins
    text, declarations = emit_unpack("@name.unpack", staging, target)
    at = part.unpacked(f, "name.unpack", staging, row, column, rows, count, scratch)

A vector of elements takes a vector of bytes, whose halves of 4 bits choose among 16 levels that
stay in registers: one permutation on AVX-512, two on AVX2. Vectors begin at multiples of their
length, so that each lies in one block and has one scale.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import memory_kind, rounded, to_memory
from fxad.backend.llvm.base.schedule import ABI, Emitted, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code, Vec, type_of
from fxad.backend.llvm.contract.arguments import load_arguments
from fxad.backend.llvm.contract.pack import Source
from fxad.backend.llvm.elements.scope import Scope
from fxad.backend.llvm.elements.values import scalar_index
from fxad.backend.llvm.math.lookup import lookup_16
from fxad.core.aligned import LINE, to_line
from fxad.core.record import record, valued
from fxad.ir.kernel import Kernel, Operand, Packed, Unpack
from fxad.ir.packed import BLOCK, NF4_LEVELS, PER_BLOCK, blocks_of

F32 = np.dtype(np.float32)
PARAMS = (
    ("ptr", "codes"),  # of the first row
    ("ptr", "scales"),
    ("ptr", "to"),
    ("i64", "column"),
    ("i64", "rows"),
    ("i64", "count"),
)
ROWS_OF_UNIT = 16
"""Rows that a thread takes at once of a matrix that is unpacked as a whole."""


@valued
class Staging:
    """The scratch that a part is unpacked into: up to `rows` rows of up to `columns`, `pitch` bytes
    apart, of elements of `dtype`, which hold numbers rounded to the matrix's own. width: elements
    of a vector."""

    packed: Packed
    dtype: np.dtype
    rows: int
    columns: int
    pitch: int
    width: int

    @staticmethod
    def of(packed: Packed, dtype: np.dtype, rows: int, columns: int, target: Target) -> Staging:
        """For parts of at most so many rows and columns, which may begin within a vector."""
        width = target.lanes(F32)
        pitch = to_line((columns + 2 * width) * dtype.itemsize) | LINE
        return Staging(packed, dtype, rows, columns, pitch, width)

    @property
    def bytes(self) -> int:
        return to_line(self.rows * self.pitch)

    def source(self, along_rows: bool) -> Source:
        """What packs the part from there: k runs along rows, or the other axis does."""
        step = self.pitch // self.dtype.itemsize
        return Source(step, 1, self.dtype) if along_rows else Source(1, step, self.dtype)


@record
class PackedPart:
    """The part of a packed matrix that a grid point reads: its arrays, and where it begins."""

    codes: str
    scales: str
    row: str
    column: str

    @staticmethod
    def at(scope: Scope, operand: Operand) -> PackedPart:
        packed = operand.packed
        assert packed is not None
        f, pointers = scope.f, scope.context.pointers
        start = scalar_index(scope, operand.index)
        row, column = "0", "0"
        if start != "0":
            row = f.op(f"udiv i64 {start}, {packed.columns}")
            column = f.op(f"urem i64 {start}, {packed.columns}")
        return PackedPart(pointers[operand.buffer], pointers[packed.scales], row, column)

    def unpacked(
        self,
        f: Function,
        name: str,
        staging: Staging,
        place: tuple[str, str],
        size: tuple[str, str],
        to: str,
    ) -> str:
        """Unpack rows and columns of this size from a place on; the address of the first one."""
        row, column = f.add(self.row, place[0]), f.add(self.column, place[1])
        codes, scales = _rows_at(f, staging.packed, self.codes, self.scales, row)
        rows, count = size
        f.line(
            f"call void @{name}(ptr {codes}, ptr {scales}, ptr {to}, i64 {column}, i64 {rows}, "
            f"i64 {count})"
        )
        skipped = f.op(f"and i64 {column}, {staging.width - 1}")
        return f.offset(to, f.mul(skipped, staging.dtype.itemsize))


def _rows_at(f: Function, packed: Packed, codes: str, scales: str, row: str) -> tuple[str, str]:
    """Where the codes and the scales of a row begin."""
    blocks = blocks_of(packed.columns)
    return (
        f.offset(codes, f.mul(row, blocks * PER_BLOCK[packed.format])),
        f.offset(scales, f.mul(row, blocks * F32.itemsize)),
    )


def emit_unpack(name: str, staging: Staging, target: Target) -> tuple[str, set[str]]:
    """An internal function that unpacks `count` columns of `rows` rows, from `column` on, and what
    lies before it in a vector: `to` is where that vector goes."""
    f = Function(name, "void", PARAMS, "internal", "#1")
    values = _Values(Code(f, target), staging.packed, staging.width)
    start = f.op(f"and i64 %column, {-staging.width}")
    end = f.add("%column", "%count")
    body = _long_rows if staging.columns > BLOCK else _short_rows
    body(values, staging, start, end)
    f.ret()
    return str(f), values.code.declarations


def _long_rows(values: _Values, staging: Staging, start: str, end: str) -> None:
    """Row by row: vectors up to a whole block, whole blocks, and the vectors that are left."""
    f, size = values.code.function, staging.dtype.itemsize
    first = f.least(f.op(f"and i64 {f.add(start, BLOCK - 1)}, {-BLOCK}"), end)
    last = f.add(first, f.op(f"and i64 {f.op(f'sub i64 {end}, {first}')}, {-BLOCK}"))

    def row(number: str, _: list[str]) -> None:
        codes, scales = _rows_at(f, staging.packed, "%codes", "%scales", number)
        to = f.offset("%to", f.mul(number, staging.pitch))

        def place(column: str) -> str:
            return f.offset(to, f.mul(f.op(f"sub i64 {column}, {start}"), size))

        def vector(column: str, _: list[str]) -> None:
            value = values.vector(codes, scales, values.place(column))
            _store(value, place(column), staging.dtype)

        def block(column: str, _: list[str]) -> None:
            at = place(column)
            for inside, value in values.block(codes, scales, column):
                _store(value, f.offset(at, inside * size), staging.dtype)

        f.loop(start, first, staging.width, vector)
        f.loop(first, last, BLOCK, block)
        f.loop(last, end, staging.width, vector)

    f.loop(0, "%rows", 1, row)


def _short_rows(values: _Values, staging: Staging, start: str, end: str) -> None:
    """A vector of all rows after the other: where it lies in a block is the same for all."""
    f, size = values.code.function, staging.dtype.itemsize

    def vector(column: str, _: list[str]) -> None:
        place = values.place(column)
        to = f.offset("%to", f.mul(f.op(f"sub i64 {column}, {start}"), size))

        def row(_: str, pointers: list[str]) -> list[str]:
            codes, scales, at = pointers
            _store(values.vector(codes, scales, place), at, staging.dtype)
            return [*_rows_at(f, staging.packed, codes, scales, "1"), f.offset(at, staging.pitch)]

        f.loop(0, "%rows", 1, row, [("ptr", x) for x in ("%codes", "%scales", to)])

    f.loop(start, end, staging.width, vector)


def emit_unpack_stage(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Unpack stage: all of a matrix, rows side by side."""
    (stage,) = kernel.body
    assert isinstance(stage, Unpack)
    packed = stage.source.packed
    assert packed is not None
    columns, dtype = packed.columns, packed.dtype
    rows = stage.out.buffer.size // max(columns, 1)
    units = -(-rows // ROWS_OF_UNIT) if columns else 0
    f, width = Function(name, "void", ABI), target.lanes(F32)
    scope = load_arguments(kernel, f, target)
    code, pointers = scope.code, scope.context.pointers
    values = _Values(code, packed, width)
    whole = columns // width * width
    first = f.mul("%begin", ROWS_OF_UNIT)
    end = f.least(f.mul("%end", ROWS_OF_UNIT), rows)

    def row(number: str, _: list[str]) -> None:
        source = pointers[stage.source.buffer], pointers[packed.scales]
        codes, scales = _rows_at(f, packed, *source, number)
        to = f.offset(pointers[stage.out.buffer], f.mul(number, columns * dtype.itemsize))

        def vector(column: str, _: list[str]) -> None:
            value = values.vector(codes, scales, values.place(column))
            _store(value, f.offset(to, f.mul(column, dtype.itemsize)), dtype)

        f.loop(0, whole, width, vector)
        if whole < columns:
            value = values.vector(codes, scales, values.place(str(whole)))
            for i in range(columns - whole):
                at = f.offset(to, (whole + i) * dtype.itemsize)
                _store(value.lane(i), at, dtype)

    f.loop(first, end, 1, row)
    f.ret()
    moved = sum(b.size * b.dtype.itemsize for b in kernel.buffers)
    cost = max(moved / target.tuning.gemv.bytes_per_ns, 100.0)
    return Emitted(name, str(f), frozenset(code.declarations), units, 0, cost)


@record
class _Place:
    """Where a vector lies in its row: its codes, its scale, and which bits of a byte are its code;
    all ready to be added to where a row begins."""

    codes: str
    scale: str
    shift: Vec | None


@record
class _Values:
    """Vectors of `width` elements of a packed matrix."""

    code: Code
    packed: Packed
    width: int

    def place(self, column: str) -> _Place:
        """Of a vector from a column on that is a multiple of its length."""
        f = self.code.function
        block = f.op(f"lshr i64 {column}, {BLOCK.bit_length() - 1}")
        scale = f.mul(block, F32.itemsize)
        if self.packed.format != "nf4":
            return _Place(column, scale, None)
        half = BLOCK // 2
        inside = f.op(f"and i64 {column}, {half - 1}")
        # Elements of the second half of a block are in the high halves of its bytes.
        shift = f.op(f"and i64 {f.op(f'lshr i64 {column}, 3')}, 4")
        shifts = Vec(self.code, "i64", 1, shift).convert("trunc", "i32").splat(self.width)
        return _Place(f.add(f.mul(block, half), inside), scale, shifts)

    def vector(self, codes: str, scales: str, place: _Place) -> Vec:
        """Of a row whose codes and scales begin there."""
        f = self.code.function
        numbers = self._numbers(f.offset(codes, place.codes))
        if place.shift is not None:
            numbers = numbers.binary("lshr", place.shift)
        return self._scaled(numbers, self._scale(f.offset(scales, place.scale)))

    def block(self, codes: str, scales: str, column: str) -> list[tuple[int, Vec]]:
        """All elements of a block of a row, as (place in the block, vector)."""
        f, place, found = self.code.function, self.place(column), []
        scale = self._scale(f.offset(scales, place.scale))
        for i in range(0, PER_BLOCK[self.packed.format], self.width):
            numbers = self._numbers(f.offset(codes, f.add(place.codes, i)))
            found.append((i, self._scaled(numbers, scale)))
            if self.packed.format == "nf4":
                high = numbers.binary("lshr", 4)
                found.append((BLOCK // 2 + i, self._scaled(high, scale)))
        return found

    def _numbers(self, at: str) -> Vec:
        """A vector of codes, or of bytes that hold two each."""
        extend = "zext" if self.packed.format == "nf4" else "sext"
        load = f"load {type_of('i8', self.width)}, ptr {at}, align 1"
        return self.code.op("i8", self.width, load).convert(extend, "i32")

    def _scale(self, at: str) -> Vec:
        return self.code.op("float", 1, f"load float, ptr {at}, align 4")

    def _scaled(self, numbers: Vec, scale: Vec) -> Vec:
        """The low bits of numbers may be a code, others mean nothing then."""
        if self.packed.format == "nf4":
            values = lookup_16(numbers, NF4_LEVELS)
        else:
            values = numbers.convert("sitofp", "float")
        return rounded(values * scale, self.packed.dtype)


def _store(value: Vec, at: str, dtype: np.dtype) -> None:
    """Store a float32 vector as elements of a dtype that holds them exactly."""
    value = to_memory(value, dtype)
    assert value.kind == memory_kind(dtype)
    f = value.code.function
    f.line(f"store {value.type} {value.text}, ptr {at}, align {dtype.itemsize}")
