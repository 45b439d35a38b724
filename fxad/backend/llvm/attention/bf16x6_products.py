"""Attention's products of float32 on AMX, as six products of bf16 (see split.py).

products = Bf16x6Products(code)

A tile multiplies so fast that six of its products take less than half the time of one multiply-add
of vectors; sums of tiles are float32, as on every path.

Only with FXAD_ISA=amx: a virtual machine whose neighbour shares the core's tiles has half their
rate, and vectors are faster.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.code import Code, View
from fxad.backend.llvm.attention.problem import round_up
from fxad.backend.llvm.attention.products import ColumnGroup, RightOperand, Steps
from fxad.backend.llvm.attention.split import (
    KERNEL_ROWS,
    NUMBER_BYTES,
    STEP_BYTES,
    TERM_BYTES,
    TILES,
)
from fxad.backend.llvm.attention.split_pack import (
    Packer,
    emit_packer,
    pack_pairs,
    pack_rows,
    pack_transposed,
)
from fxad.backend.llvm.attention.weights import term_matrix_bytes
from fxad.backend.llvm.attention.window import Block, Range, Window, rows_of_keys
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract.amx_tiles import (
    DECLARATIONS,
    DEPTH,
    LINE_BYTES,
    LINES,
    TILE_BYTES,
    configure_tiles,
)
from fxad.core.record import record, valued

_A, _B = 4, 6  # numbers of the tiles of operands; sums are 0 to 3
# (term of A, term of B), small products first: four pairs of tiles are loaded, rather than six.
_ORDER = ((2, 0), (0, 0), (0, 2), (0, 1), (1, 1), (1, 0))
_PARAMS = (("i64", "steps"), ("ptr", "a"), ("ptr", "b"), ("ptr", "c"), ("i64", "more"))


@valued
class LeftStrides:
    """Where tiles of a left operand lie: bytes between lines, terms, steps of K and 16 rows."""

    line: int
    term: int
    step: int
    tile: int


def packed_strides(steps: int) -> LeftStrides:
    """Of a packed operand of so many steps of K."""
    return LeftStrides(LINE_BYTES, TILE_BYTES, STEP_BYTES, steps * STEP_BYTES)


@record
class Bf16x6Products:
    """`Products` of a function. Blocks have a multiple of 32 rows; steps that count are rounded to
    32, where operands must be 0."""

    code: Code

    def take_panels(self, keys: int, depth: int) -> str:
        return self.take_rows(keys, depth)

    def key_bytes(self, depth: int) -> int:
        return round_up(depth, DEPTH) * NUMBER_BYTES

    def pack_panels(self, source: View, depth: int, panels: str, low: str, high: str) -> None:
        code, f, problem = self.code, self.code.f, self.code.problem

        def body(packer: Packer) -> None:
            pack_transposed(packer, depth)

        name = packer_name(code, "transposed", source.row_stride, (depth,), body)

        def panel(key: str, _: list[str]) -> None:
            count = f.least(f.op(f"sub i64 {problem.keys}, {key}"), problem.panel)
            to = f.offset(panels, f.mul(key, self.key_bytes(depth)))
            f.line(f"call void @{name}(ptr {code.element(source, key)}, ptr {to}, i64 {count})")

        f.loop(low, f.least(high, problem.keys), problem.panel, panel)

    def take_rows(self, rows: int, depth: int) -> str:
        return self.code.take(round_up(rows, KERNEL_ROWS) * self.key_bytes(depth))

    def copy_rows(self, source: View, depth: int, to: str, count: str) -> View:
        def body(packer: Packer) -> None:
            pack_rows(packer, depth)

        name = packer_name(self.code, "rows", source.row_stride, (depth,), body)
        self.code.f.line(f"call void @{name}(ptr {source.pointer}, ptr {to}, i64 {count})")
        return View(to, depth)

    def take_columns(self, rows: int, columns: int) -> RightOperand:
        rows, wide = round_up(rows, DEPTH), TILES * LINES
        room = self.code.take(rows * round_up(columns, LINES) * NUMBER_BYTES)
        counts = [(start, min(wide, columns - start)) for start in range(0, columns, wide)]
        groups = [ColumnGroup(start, round_up(count, LINES), count) for start, count in counts]
        return RightOperand(room, rows, tuple(groups), KERNEL_ROWS)

    def pack_columns(self, source: View, to: RightOperand, low: str, count: str) -> None:
        code = self.code
        for group in to.groups:
            name = pairs_packer(code, source.row_stride, group.count)
            at = code.element(source, low, group.start)
            into = _group_row(code, to, group, low)
            code.f.line(f"call void @{name}(ptr {at}, ptr {into}, i64 {count})")

    def scores(
        self, window: Window, a: View, depth: int, panels: str, to: str, rows: Block, keys: Range
    ) -> None:
        code, f, problem = self.code, self.code.f, self.code.problem
        steps, stride = -(-depth // DEPTH), code.block.stride
        name = micro_kernel(code, packed_strides(steps), TILES, stride)

        def panel(key: str, _: list[str]) -> None:
            b = f.offset(panels, f.mul(key, self.key_bytes(depth)))
            c = f.offset(to, f.mul(key, problem.size))
            low, high = rows_of_keys(code, window, key, problem.panel, rows)

            def tiles(row: str, _: list[str]) -> None:
                a_at = f.offset(a.pointer, f.mul(row, self.key_bytes(depth)))
                c_at = f.offset(c, f.mul(row, stride * problem.size))
                f.line(f"call void @{name}(i64 {steps}, ptr {a_at}, ptr {b}, ptr {c_at}, i64 0)")

            f.loop(f.op(f"and i64 {low}, {-KERNEL_ROWS}"), high, KERNEL_ROWS, tiles)

        f.loop(*keys, problem.panel, panel)

    def product(
        self,
        a: View,
        b: RightOperand,
        c: View,
        rows: tuple[str, int],
        steps: Steps,
        adds: str,
        padded: bool = False,
    ) -> None:
        """a: the first term of split weights (see weights.py)."""
        code, f, line = self.code, self.code.f, a.row_stride * TERM_BYTES
        strides = LeftStrides(line, term_matrix_bytes(code), LINE_BYTES, LINES * line)
        for group in b.groups:
            name = micro_kernel(code, strides, group.stride // LINES, c.row_stride)

            def tiles(row: str, _: list[str], name: str = name, group: ColumnGroup = group) -> None:
                low, count = steps(row, KERNEL_ROWS)
                low, count = whole_steps(f, low, f.add(low, count))
                a_at = f.offset(a.pointer, f.add(f.mul(row, line), f.mul(low, TERM_BYTES)))
                b_at = _group_row(code, b, group, low)
                c_at = code.element(c, row, group.start)
                f.line(
                    f"call void @{name}(i64 {count}, ptr {a_at}, ptr {b_at}, ptr {c_at}, "
                    f"i64 {adds})"
                )

            f.loop(0, rows[0], KERNEL_ROWS, tiles)


def with_tiles(code: Code, body: Callable[[], object]) -> None:
    """body() with AMX's tiles in use, if products need them."""
    if not code.problem.bf16x6:
        body()
        return
    configure_tiles(code.f)
    body()
    code.f.line("call void @llvm.x86.tilerelease()")


def whole_steps(f: Function, low: str, high: str) -> tuple[str, str]:
    """A multiple of 32 and steps of 32 from there: all of low ... high - 1."""
    low = f.op(f"and i64 {low}, {-DEPTH}")
    return low, f.op(f"ashr i64 {f.op(f'sub i64 {f.add(high, DEPTH - 1)}, {low}')}, 5")


def _group_row(code: Code, b: RightOperand, group: ColumnGroup, row: str) -> str:
    """Where a row of a group of columns lies."""
    f = code.f
    start = f.offset(b.pointer, group.start * b.rows * NUMBER_BYTES)
    return f.offset(start, f.mul(row, group.stride * NUMBER_BYTES))


# ---------------------------------------------------------------- functions that are called


def packer_name(
    code: Code, label: str, row_stride: int, sizes: tuple[int, ...], body: Callable[[Packer], None]
) -> str:
    """The name of a function that packs rows so many elements apart."""
    name = "_".join(str(x) for x in (f"{code.problem.name}.{label}", row_stride, *sizes))

    def text() -> str:
        written, declarations = emit_packer(name, code.problem.target, row_stride, body)
        code.scope.code.declarations.update(declarations)
        return written

    return code.helper(name, text)


def pairs_packer(code: Code, row_stride: int, columns: int) -> str:
    """The name of a function that packs a right operand of so many columns."""
    return packer_name(code, "pairs", row_stride, (columns,), lambda p: pack_pairs(p, columns))


def micro_kernel(code: Code, a: LeftStrides, tiles: int, c_stride: int) -> str:
    """The name of a micro-kernel: 32 rows and `tiles` tiles of columns of c = a b or c + a b."""
    name = f"{code.problem.name}.{tiles}x{a.line}_{a.tile}_{c_stride}"
    code.scope.code.declarations.update(DECLARATIONS)
    size = code.problem.size
    return code.helper(name, lambda: _emit_micro_kernel(name, a, tiles, c_stride * size))


def _emit_micro_kernel(name: str, a: LeftStrides, tiles: int, c_row: int) -> str:
    """c_row: bytes between rows of c."""
    f = Function(name, "void", _PARAMS, "internal", "#1")

    def sums(call: str) -> None:
        for i in range(TILES):
            for j in range(tiles):
                at = f.offset("%c", i * LINES * c_row + j * LINE_BYTES)
                f.line(f"call void @llvm.x86.{call}(i8 {i * tiles + j}, ptr {at}, i64 {c_row})")

    def load(tile: int, at: str, stride: int) -> None:
        f.line(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {at}, i64 {stride})")

    def step(_: str, pointers: list[str]) -> list[str]:
        at, to = pointers
        held: tuple[int | None, int | None] = None, None
        for pair in _ORDER:
            for i in range(TILES if pair[0] != held[0] else 0):
                load(_A + i, f.offset(at, i * a.tile + pair[0] * a.term), a.line)
            for j in range(tiles if pair[1] != held[1] else 0):
                load(_B + j, f.offset(to, (pair[1] * tiles + j) * TILE_BYTES), LINE_BYTES)
            held = pair
            for i in range(TILES):
                for j in range(tiles):
                    numbers = f"i8 {i * tiles + j}, i8 {_A + i}, i8 {_B + j}"
                    f.line(f"call void @llvm.x86.tdpbf16ps({numbers})")
        return [f.offset(at, a.step), f.offset(to, tiles * STEP_BYTES)]

    fresh, resume, start = (f.new_label(x) for x in ("fresh", "resume", "start"))
    f.branch(f.op("icmp eq i64 %more, 0"), fresh, resume)
    f.label(fresh)
    for number in range(TILES * tiles):
        f.line(f"call void @llvm.x86.tilezero(i8 {number})")
    f.jump(start)
    f.label(resume)
    sums("tileloadd64")
    f.jump(start)
    f.label(start)
    f.loop(0, "%steps", 1, step, [("ptr", "%a"), ("ptr", "%b")])
    sums("tilestored64")
    f.ret()
    return str(f)
