"""Attention's products on vector registers, by the micro-kernels of matrix multiplication.

products = VectorProducts(code)
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.attention.code import Code, View
from fxad.backend.llvm.attention.problem import BLOCK_ROWS, MOST_TILE_ROWS, Problem, round_up
from fxad.backend.llvm.attention.products import ColumnGroup, RightOperand, Steps
from fxad.backend.llvm.attention.window import Block, Range, Window, rows_of_keys
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.micro_kernel import PARAMS, MicroKernel, emit_micro_kernel
from fxad.core.record import record
from fxad.ir.orders import ATTENTION_DEPTH


@record
class VectorProducts:
    """`Products` of a function."""

    code: Code

    def take_panels(self, keys: int, depth: int) -> str:
        return self.code.take(keys * depth * self.code.problem.size)

    def key_bytes(self, depth: int) -> int:
        return depth * self.code.problem.size

    def pack_panels(self, source: View, depth: int, panels: str, low: str, high: str) -> None:
        code, f = self.code, self.code.f
        problem = code.problem

        def panel(number: str, columns: int) -> None:
            name = f"{problem.name}.pack{columns}_{source.row_stride}_{depth}"
            _packer(code, name, packing.Source(source.row_stride, 1, problem.dtype), columns)
            at = code.element(source, f.mul(number, problem.panel))
            to = f.offset(panels, f.mul(number, problem.panel * depth * problem.size))
            f.line(f"call void @{name}(ptr {at}, ptr {to}, i64 {depth})")

        _each_panel(code, low, high, panel)

    def take_rows(self, rows: int, depth: int) -> str:
        problem = self.code.problem
        return self.code.take(rows * copied_row_stride(problem, depth) * problem.size)

    def copy_rows(self, source: View, depth: int, to: str, count: str) -> View:
        code = self.code
        stride = copied_row_stride(code.problem, depth)
        name = f"{code.problem.name}.rows{depth}_{source.row_stride}"
        code.helper(name, lambda: _emit_copy_rows(code, name, source.row_stride, depth, stride))
        code.f.line(f"call void @{name}(ptr {source.pointer}, ptr {to}, i64 {count})")
        return View(to, stride)

    def take_columns(self, rows: int, columns: int) -> RightOperand:
        problem = self.code.problem
        room = self.code.take(rows * round_up(columns, problem.lane_width) * problem.size)
        return RightOperand(room, rows, *_column_groups(problem, columns, BLOCK_ROWS))

    def pack_columns(self, source: View, to: RightOperand, low: str, count: str) -> None:
        code = self.code
        for group in to.groups:
            name = f"{code.problem.name}.copy{group.count}_{source.row_stride}"
            layout = packing.Source(1, source.row_stride, code.problem.dtype)
            _packer(code, name, layout, group.count)
            at = code.element(source, low, group.start)
            into = _group_row(code, to, group, low)
            code.f.line(f"call void @{name}(ptr {at}, ptr {into}, i64 {count})")

    def scores(
        self, window: Window, a: View, depth: int, panels: str, to: str, rows: Block, keys: Range
    ) -> None:
        code, f, problem = self.code, self.code.f, self.code.problem
        size, stride = problem.size, code.block.stride
        blocks = max(1, -(-depth // ATTENTION_DEPTH))  # of depth, each summed from 0
        steps = -(-depth // blocks)

        def panel(number: str, columns: int) -> None:
            columns = round_up(columns, problem.lane_width)
            b = f.offset(panels, f.mul(number, problem.panel * depth * size))
            key = f.mul(number, problem.panel)
            c = f.offset(to, f.mul(key, size))
            diagonal = _along_diagonal(code, window, key, columns, rows)
            for start in range(0, max(1, depth), max(1, steps)):
                b_at = f.offset(b, start * columns * size)
                for visible, first, end in diagonal:

                    def tile(
                        height: int,
                        row: str,
                        start: int = start,
                        b_at: str = b_at,
                        visible: int = visible,
                    ) -> None:
                        c_at = f.offset(c, f.mul(row, stride * size))
                        count, adds = str(min(steps, depth - start)), str(int(start > 0))
                        kernel = _micro_kernel(problem, height, visible, a, columns, stride)
                        a_at = code.element(a, row, start)
                        self._call(kernel, count, a_at, b_at, c_at, adds)

                    left = problem.queries % problem.tile_rows if visible == columns else 0
                    _each_tile(code, problem.tile_rows, left, (first, end), rows.count, tile)

        _each_panel(code, *keys, panel)

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
        code, f, problem = self.code, self.code.f, self.code.problem
        for group in b.groups:
            stride = group.stride if b.row_stride is None else b.row_stride
            columns = group.stride if padded else group.count

            def tile(
                height: int,
                row: str,
                group: ColumnGroup = group,
                stride: int = stride,
                columns: int = columns,
            ) -> None:
                low, count = steps(row, height)
                kernel = _micro_kernel(problem, height, columns, a, stride, c.row_stride, b)
                a_at = f.offset(code.element(a, row), f.mul(low, a.column_stride * problem.size))
                b_at = _group_row(code, b, group, low)
                c_at = code.element(c, row, group.start)
                self._call(kernel, count, a_at, b_at, c_at, adds, b.following)

            left = rows[1] % b.tile_rows
            _each_tile(code, b.tile_rows, left, ("0", rows[0]), rows[0], tile)

    def _call(
        self,
        kernel: MicroKernel,
        steps: str,
        a: str,
        b: str,
        c: str,
        adds: str,
        following: str = "null",
    ) -> None:
        code, f = self.code, self.code.f
        name = code.micro_kernels.get(kernel)
        if name is None:
            name = f"{code.problem.name}.m{len(code.micro_kernels)}"
            code.micro_kernels[kernel] = name
            code.helpers[name] = emit_micro_kernel(name, kernel, code.lanes)
        if steps.isdigit():
            iterations, rest = (str(n) for n in divmod(int(steps), kernel.unroll))
        else:
            iterations = f.op(f"udiv i64 {steps}, {kernel.unroll}")
            rest = f.op(f"urem i64 {steps}, {kernel.unroll}")
        given = {"iterations": iterations, "rest": rest, "a": a, "b": b, "c": c, "mode": adds}
        given["next"] = following
        unused = {"ptr": "null", "i64": "0"}
        listed = ", ".join(f"{t} {given.get(n, unused[t])}" for t, n in PARAMS)
        f.line(f"call void @{name}({listed})")


def whole_rows(
    problem: Problem,
    view: View,
    rows: int,
    columns: int,
    unit: int = BLOCK_ROWS,
    prefetch_rows: int = 0,
) -> RightOperand:
    """A right operand of products on vectors that is read by whole rows, in place or copied. unit:
    a tile's height divides it."""
    groups, tile_rows = _column_groups(problem, columns, unit)
    return RightOperand(view.pointer, rows, groups, tile_rows, view.row_stride, prefetch_rows)


def copied_row_stride(problem: Problem, depth: int) -> int:
    """Elements between rows of copies: rows as far apart as a power of 2 would share few sets of a
    cache."""
    whole = round_up(depth, problem.lane_width)
    few_sets = whole * problem.size % problem.tuning.set_bytes == 0
    return whole + problem.lane_width if few_sets else whole


def _column_groups(
    problem: Problem, columns: int, unit: int
) -> tuple[tuple[ColumnGroup, ...], int]:
    """As few groups of columns as registers allow, all about as wide, and the tiles' height, which
    divides `unit`."""
    lanes = problem.lane_width
    vectors = max(1, -(-columns // lanes))
    each = -(-vectors // -(-vectors // problem.column_vectors))
    most = min(problem.tile_rows * problem.panel_vectors // each, MOST_TILE_ROWS)
    height = max(h for h in range(1, most + 1) if unit % h == 0)
    starts = range(0, columns, each * lanes)
    counts = [min(each * lanes, columns - start) for start in starts]
    groups = zip(starts, counts, strict=True)
    return tuple(ColumnGroup(start, round_up(n, lanes), n) for start, n in groups), height


def _packer(code: Code, name: str, source: packing.Source, columns: int) -> None:
    """The function of that name packs so many columns."""
    code.helper(name, lambda: packing.emit_pack_b(name, source, columns, code.lanes))


def _group_row(code: Code, b: RightOperand, group: ColumnGroup, row: str) -> str:
    """Where a row of a group of columns lies."""
    f, size = code.f, code.problem.size
    if b.row_stride is not None:
        return code.element(View(b.pointer, b.row_stride), row, group.start)
    start = f.offset(b.pointer, group.start * b.rows * size)
    return f.offset(start, f.mul(row, group.stride * size))


def _emit_copy_rows(code: Code, name: str, source: int, depth: int, copy: int) -> str:
    """A function of (source, copy, rows); source, copy: elements between rows."""
    params = ("ptr", "source"), ("ptr", "copy"), ("i64", "rows")
    f = Function(name, "void", params, "internal", "#1")
    lanes, size, dtype = code.lanes, code.problem.size, code.problem.dtype
    starts = range(0, depth, lanes.width)
    most = code.problem.tuning.loads_at_once  # loads wait for stores to like places of pages

    def line(_: str, places: list[str]) -> list[str]:
        at, to = places
        for some in (starts[n : n + most] for n in range(0, len(starts), most)):
            found = [
                lanes.load(f, f.offset(at, c * size), dtype, min(lanes.width, depth - c))
                for c in some
            ]
            for c, value in zip(some, found, strict=True):
                lanes.store(f, value, f.offset(to, c * size), lanes.width)
        return [f.offset(at, source * size), f.offset(to, copy * size)]

    f.loop(0, "%rows", 1, line, [("ptr", "%source"), ("ptr", "%copy")])
    f.ret()
    return str(f)


def _each_panel(code: Code, low: str, high: str, body: Callable[[str, int], None]) -> None:
    """body(number, keys in it) for panels of the keys low ... high; the last may be short."""
    f, panel = code.f, code.problem.panel
    whole, rest = divmod(code.problem.keys, panel)
    first = f.op(f"udiv i64 {low}, {panel}")
    last = f.op(f"udiv i64 {high}, {panel}")
    f.loop(first, f.least(last, whole), 1, lambda p, _: body(p, panel))
    if rest:
        f.when(f.op(f"icmp sgt i64 {last}, {whole}"), lambda: body(str(whole), rest))


def _each_tile(
    code: Code,
    height: int,
    left: int,
    rows: Range,
    count: str,
    body: Callable[[int, str], None],
) -> None:
    """body(height, first row) for whole tiles that have some of the rows, of `count` in all, then
    for the `left` rows that make no whole tile, if any."""
    f, (low, high) = code.f, rows
    whole = f.mul(f.op(f"udiv i64 {count}, {height}"), height)
    first = f.mul(f.op(f"udiv i64 {low}, {height}"), height)
    f.loop(first, f.least(high, whole), height, lambda row, _: body(height, row))
    if left:
        are_left = f.op(f"icmp slt i64 {whole}, {count}")
        are_wanted = f.op(f"icmp slt i64 {whole}, {high}")
        both = f.op(f"and i1 {are_left}, {are_wanted}")
        f.when(both, lambda: body(left, whole))


def _along_diagonal(
    code: Code, window: Window, key: str, columns: int, rows: Block
) -> list[tuple[int, str, str]]:
    """(columns, low, high): tiles of rows low ... high - 1 see so many columns of a panel.

    One entry, but where queries do not see what is after them: the first tiles that see a panel see
    a few vectors of it.
    """
    f, problem = code.f, code.problem
    width, height = problem.lane_width, problem.tile_rows
    low, high = rows_of_keys(code, window, key, problem.panel, rows)
    if not problem.stage.upper.coefficient(problem.stage.rows):
        return [(columns, low, high)]
    starts = [low]
    for skipped in range(width, columns, width):
        start, _ = rows_of_keys(code, window, f.add(key, skipped), problem.panel, rows)
        starts.append(f.mul(f.op(f"udiv i64 {start}, {height}"), height))
    counts = range(width, columns + 1, width)
    return list(zip(counts, starts, [*starts[1:], high], strict=True))


def _micro_kernel(
    problem: Problem,
    rows: int,
    columns: int,
    a: View,
    b_stride: int,
    c_stride: int,
    b: RightOperand | None = None,
) -> MicroKernel:
    """b: the right operand, if it is not packed panels."""
    packed = b is None or b.row_stride is None
    return MicroKernel(
        rows=rows,
        columns=columns,
        a_row=a.row_stride,
        a_k=a.column_stride,
        b_stride=b_stride,
        c_stride=c_stride,
        b_dtype=problem.dtype,
        unroll=problem.tuning.unroll,
        packed=packed,
        packs=False,
        has_rest=True,
        may_be_short=True,
        b_prefetch_steps=0 if b is None else b.prefetch_rows,
    )
