"""Matrix products: Contract kernels -> LLVM IR.

    emitted = emit_contract(kernel, "matmul0", target)
    emitted.units                          # independent pieces: panels of columns x chunks of rows

For every panel of columns and block of K: bring the panel of B into cache (packed side by side
unless one block of rows reads it only once), then sweep the rows with the micro-kernel, which
reads A where it lies. The epilogue runs on a tile as soon as its last K block is added.
"""

from __future__ import annotations

from fxad.backend.llvm import contract_pack as packing
from fxad.backend.llvm.contract_epilogue import Finish
from fxad.backend.llvm.contract_grid import address, arguments, go_to
from fxad.backend.llvm.contract_lanes import Lanes, supports
from fxad.backend.llvm.contract_micro import Tile, emit_micro, params_of
from fxad.backend.llvm.contract_plan import FLOPS_PER_NS, Cut, Problem
from fxad.backend.llvm.contract_scalar import emit_scalar_contract
from fxad.backend.llvm.contract_touch import LINE, touch_of, touched
from fxad.backend.llvm.schedule import Emitted, Target
from fxad.backend.llvm.text import Function
from fxad.ir.kernel import Kernel

ABI = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
_UNROLL = 4


def emit_contract(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Contract stage, for any sizes and strides.

    Raises CheckError where an operand is not affine in the stage's axes.
    """
    problem = Problem.of(kernel)
    if not (kernel.points and problem.size[0] and problem.size[1]):
        f = Function(name, "void", ABI)
        f.ret()
        return Emitted(name, str(f), frozenset(), 0, 0, 0.0)
    operands = (problem.a.buffer.dtype, problem.b.buffer.dtype)
    if not all(supports(problem.dtype, dtype) for dtype in operands):
        return emit_scalar_contract(problem, name, target)
    return _Product(problem, name, target).emit()


class _Product:
    """State of emitting one kernel."""

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.packs_a = problem.a.buffer.dtype != problem.dtype
        self.cut = cut = Cut.of(problem, target, self.packs_a)
        self.lanes = Lanes(problem.dtype, cut.lanes)
        self.size = problem.dtype.itemsize
        self.k_blocks = cut.k_blocks(problem.size[2])
        self.result = problem.plain_result()
        self.touched = touched(problem)
        self.helpers: dict[str, str] = {}
        stores = problem.stage.stores
        plain = self.result is not None and len(stores) == 1 and problem.is_identity(stores[0])
        self.finish = None if plain else Finish(problem, name, target, self.lanes, self.sum_stride)
        self.panel_bytes = _round_up(max(cut.k_size, 1) * cut.width * self.size)
        # Where the micro-kernels read A, as strides (row, k): in place, or in a packed copy.
        a, self.a_bytes = problem.a, 0
        self.a_source = packing.Source(a.outer, a.inner, a.buffer.dtype)
        self.a_strides = a.outer, a.inner
        if self.packs_a:
            turned = packing.a_is_turned(self.a_source)
            self.a_strides = (1, cut.chunk_rows) if turned else (problem.size[2], 1)
            self.a_bytes = _round_up(cut.chunk_rows * problem.size[2] * self.size)
        self.sums_bytes = 0
        if self.result is None:
            rows = cut.chunk_rows if self.k_blocks > 1 else max(cut.heights)
            self.sums_bytes = _round_up(rows * cut.width * self.size)

    @property
    def sum_stride(self) -> int:
        """Elements between rows of the place where sums are gathered."""
        return self.cut.width if self.result is None else self.result.outer

    # ------------------------------------------------------------ the function

    def emit(self) -> Emitted:
        self.f = f = Function(self.name, "void", ABI)
        self.memory = arguments(self.problem.kernel, f, self.target)
        self.packed_panel = "%scratch"
        self.packed_a = f.offset("%scratch", self.panel_bytes)
        self.sums = f.offset("%scratch", self.panel_bytes + self.a_bytes)
        f.loop("%begin", "%end", 1, self.unit)
        f.ret()
        texts = [*self.helpers.values()]
        declarations = self.lanes.declarations | self.memory.code.declarations
        if self.finish:
            texts += self.finish.texts()
            declarations |= self.finish.declarations
        cost = self.problem.flops * self.cut.batch / FLOPS_PER_NS
        return Emitted(
            self.name,
            "\n".join([*texts, str(f)]),
            frozenset(declarations),
            self.cut.units,
            self.panel_bytes + self.a_bytes + self.sums_bytes,
            max(cost, 100.0),
        )

    def unit(self, unit: str, _: list[str]) -> None:
        cut = self.cut
        group, rest = self.split(unit, cut.panel_groups)
        chunk, batch_group = self.split(rest, cut.chunks)
        first_panel, end_panel = self.span(group, cut.unit_panels, cut.all_panels)
        blocks = self.span(chunk, cut.unit_blocks, cut.blocks)
        first_batch, end_batch = self.span(batch_group, cut.unit_batch, cut.batch)

        def element(batch: str, _: list[str]) -> None:
            self.element(batch, blocks, first_panel, end_panel)

        self.f.loop(first_batch, end_batch, 1, element, at_least_once=True)

    def split(self, number: str, count: int) -> tuple[str, str]:
        """(number mod count, number div count)."""
        if count == 1:
            return "0", number
        return self.f.op(f"urem i64 {number}, {count}"), self.f.op(f"udiv i64 {number}, {count}")

    def span(self, part: str, size: int, total: int) -> tuple[str, str]:
        """[part * size, min((part + 1) * size, total))."""
        if size >= total:
            return "0", str(total)
        low = self.f.mul(part, size)
        return low, self.least(self.f.add(low, size), total)

    def least(self, a: str, b: str | int) -> str:
        return self.f.op(f"select i1 {self.f.op(f'icmp slt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    def most(self, a: str, b: str | int) -> str:
        return self.f.op(f"select i1 {self.f.op(f'icmp sgt i64 {a}, {b}')}, i64 {a}, i64 {b}")

    # ------------------------------------------------------------ one batch element

    def element(self, batch: str, blocks: tuple[str, str], first: str, end: str) -> None:
        """The panels first..end of one batch element, for a chunk of row blocks."""
        f, cut, problem = self.f, self.cut, self.problem
        self.batch = batch
        self.blocks = blocks
        go_to(self.memory, problem.kernel, batch)
        self.a = address(self.memory, problem.a.buffer, problem.a.base)
        self.b = address(self.memory, problem.b.buffer, problem.b.base)
        result = self.result
        self.c = address(self.memory, result.buffer, result.base) if result else ""
        self.first_row = self.row(blocks[0])
        if self.packs_a:
            self.pack_a()
        if cut.panels:
            last = self.least(end, cut.panels) if cut.tail else end
            f.loop(first, last, 1, lambda p, _: self.panel(p, cut.width))
        if cut.tail:
            with_tail, done = f.new_label("tail"), f.new_label("done")
            f.branch(f.op(f"icmp sgt i64 {end}, {cut.panels}"), with_tail, done)
            f.label(with_tail)
            self.panel(str(cut.panels), cut.tail)
            f.jump(done)
            f.label(done)

    def row(self, block: str) -> str:
        """First row of a block."""
        long = self.least(block, self.cut.long_blocks) if self.cut.long_blocks else "0"
        return self.f.add(self.f.mul(block, self.cut.height), long)

    def pack_a(self) -> None:
        f, a = self.f, self.problem.a
        name = f"{self.name}.pack_a"
        source, depth = self.a_source, self.problem.size[2]
        stride = max(self.a_strides)
        self.helpers[name] = packing.emit_pack_a(name, source, depth, stride, self.lanes)
        at = f.offset(self.a, f.mul(self.first_row, a.outer * a.buffer.dtype.itemsize))
        rows = f.op(f"sub i64 {self.row(self.blocks[1])}, {self.first_row}")
        f.line(f"call void @{name}(ptr {at}, ptr {self.packed_a}, i64 {rows})")

    def panel(self, number: str, columns: int) -> None:
        """All K blocks of one panel."""
        f, b, cut = self.f, self.problem.b, self.cut
        size = b.buffer.dtype.itemsize
        column = f.mul(number, cut.width)
        source = f.offset(self.b, f.mul(column, b.outer * size))
        following = f.offset(source, cut.width * b.outer * size)
        result = f.offset(self.c, f.mul(column, self.size)) if self.result else self.sums

        def k_block(kb: str, _: list[str]) -> None:
            _KBlock(self, kb, source, following, result, column, columns).emit()

        if self.k_blocks == 1:
            k_block("0", [])
        else:
            f.loop(0, self.k_blocks, 1, k_block, at_least_once=True)


class _KBlock:
    """One panel's sweep over the rows of a unit, for one block of K."""

    def __init__(
        self,
        product: _Product,
        kb: str,
        source: str,
        following: str,
        result: str,
        column: str,
        columns: int,
    ) -> None:
        self.p, self.f, self.cut, self.lanes = product, product.f, product.cut, product.lanes
        self.kb, self.result, self.column, self.columns = kb, result, column, columns
        f, b, k = self.f, product.problem.b, product.problem.size[2]
        self.b_bytes = b.buffer.dtype.itemsize
        step = self.cut.k_size * b.inner * self.b_bytes
        self.source = f.offset(source, f.mul(kb, step))
        last_depth = k - (product.k_blocks - 1) * self.cut.k_size
        self.depths = {last_depth} | ({self.cut.k_size} if product.k_blocks > 1 else set())
        self.is_last, self.depth, self.following = "", str(last_depth), following
        if product.k_blocks > 1:
            self.is_last = f.op(f"icmp eq i64 {kb}, {product.k_blocks - 1}")
            self.depth = self.pick(self.is_last, "i64", last_depth, self.cut.k_size)
            more = f.offset(self.source, step)
            self.following = self.pick(self.is_last, "ptr", following, more)

    def pick(self, condition: str, type: str, yes: str | int, no: str | int) -> str:
        return self.f.op(f"select i1 {condition}, {type} {yes}, {type} {no}")

    def emit(self) -> None:
        f, cut, b = self.f, self.cut, self.p.problem.b
        if self.p.k_blocks == 1:
            depth = int(self.depth)
            self.steps, self.rest = str(depth // _UNROLL), str(depth % _UNROLL)
        else:
            self.steps = f.op(f"udiv i64 {self.depth}, {_UNROLL}")
            self.rest = f.op(f"urem i64 {self.depth}, {_UNROLL}")
        self.more = "0"
        if self.p.k_blocks > 1:
            self.more = f.op(f"zext i1 {f.op(f'icmp ne i64 {self.kb}, 0')} to i64")
        direct = b.outer == 1 and cut.unit_blocks == 1
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
            text = packing.emit_pack_b(name, source, self.columns, self.lanes)
            self.p.helpers[name] = text
        self.f.line(
            f"call void @{name}(ptr {self.source}, ptr {self.p.packed_panel}, i64 {self.depth})"
        )

    def sweep(self, direct: bool, fuses: bool) -> None:
        """Call the micro-kernel on every block of rows: the long ones, then the others."""
        f, cut, p = self.f, self.cut, self.p
        low, high = p.blocks
        if fuses:
            self.block(low, max(cut.heights), packs=True, direct=True)
            low = f.add(low, 1)
        if cut.long_blocks:
            end = high if cut.long_blocks == cut.blocks else p.least(high, cut.long_blocks)
            f.loop(low, end, 1, lambda i, _: self.block(i, cut.height + 1, False, direct))
        if cut.long_blocks < cut.blocks:
            start = p.most(low, cut.long_blocks) if cut.long_blocks else low
            f.loop(start, high, 1, lambda i, _: self.block(i, cut.height, False, direct))

    def block(self, number: str, height: int, packs: bool, direct: bool) -> None:
        """One row block: the micro-kernel, then the epilogue if its sums are complete."""
        f, p, cut = self.f, self.p, self.cut
        whole = self.columns == cut.width or not cut.panels
        row = f.mul(number, height)
        if height == cut.height:
            row = f.add(row, cut.long_blocks)
        inside = row
        if p.packs_a or (p.result is None and p.k_blocks > 1):
            inside = f.op(f"sub i64 {row}, {p.first_row}")
        sums = self.result
        if p.result is not None or p.k_blocks > 1:
            sums = f.offset(sums, f.mul(inside if not p.result else row, p.sum_stride * p.size))
        # Only the tile that does most of the work is worth the size of an unrolled loop.
        unroll = _UNROLL if height == cut.main_height and whole and not packs else 1
        following, stride = self.prefetched(number) if unroll > 1 else ("null", "0")
        tile = self.tile(height, packs, direct, unroll)
        arguments = [
            self.steps if unroll > 1 else self.depth,
            self.rest if unroll > 1 else "0",
            self.a_address(row, inside),
            self.source if direct else p.packed_panel,
            sums,
            self.more,
            p.packed_panel,
            following,
            stride,
        ]
        if tile.touches:
            arguments += self.corners(row)
        name = f"{p.name}.{height}x{self.columns}{'p' if packs else ''}"
        if name not in p.helpers:
            p.helpers[name] = emit_micro(name, tile, self.lanes)
        types = [type for type, _ in params_of(tile)]
        listed = ", ".join(f"{t} {a}" for t, a in zip(types, arguments, strict=True))
        f.line(f"call void @{name}({listed})")
        if p.finish:
            self.epilogue(p.finish.call(p.batch, sums, row, self.column, height, self.columns))

    def corners(self, row: str) -> list[str]:
        """%touch, then where the tile starts in everything that it touches."""
        f, p = self.f, self.p
        found = [f.op(f"sext i1 {self.is_last} to i64") if self.is_last else "-1"]
        for matrix, _ in p.touched:
            size = matrix.buffer.dtype.itemsize
            start = address(p.memory, matrix.buffer, matrix.base)
            at = f.add(f.mul(row, matrix.outer * size), f.mul(self.column, size))
            found.append(f.offset(start, at))
        return found

    def epilogue(self, call: str) -> None:
        """The epilogue's call, where this is the last block of K."""
        f = self.f
        if not self.is_last:
            f.line(call)
            return
        finish, done = f.new_label("finish"), f.new_label("done")
        f.branch(self.is_last, finish, done)
        f.label(finish)
        f.line(call)
        f.jump(done)
        f.label(done)

    def a_address(self, row: str, inside: str) -> str:
        f, p = self.f, self.p
        by_row, by_k = p.a_strides
        start, row = (p.packed_a, inside) if p.packs_a else (p.a, row)
        skip = f.mul(self.kb, self.cut.k_size * by_k * p.size)
        return f.offset(start, f.add(f.mul(row, by_row * p.size), skip))

    def prefetched(self, block: str) -> tuple[str, str]:
        """(first line, stride) that this row block prefetches of the panel to come.

        Consecutive blocks take consecutive lines of a row, then the next `steps` rows of k.
        """
        if not self.prefetches:
            return "null", "0"
        f, b = self.f, self.p.problem.b
        lines = -(-self.columns * self.b_bytes // LINE)
        lines += (
            b.inner * self.b_bytes % LINE != 0
        )  # a row that starts inside a line ends in one more
        number = f.op(f"sub i64 {block}, {self.p.blocks[0]}")
        rows = f.mul(f.op(f"udiv i64 {number}, {lines}"), self.steps)
        line = f.mul(f.op(f"urem i64 {number}, {lines}"), LINE)
        inside = f.op(f"icmp slt i64 {rows}, {self.depth}")
        at = f.offset(self.following, f.add(f.mul(rows, b.inner * self.b_bytes), line))
        stride = self.pick(inside, "i64", b.inner * self.b_bytes, 0)
        return self.pick(inside, "ptr", at, self.source), stride

    @property
    def prefetches(self) -> bool:
        cut = self.cut
        return self.p.problem.b.outer == 1 and cut.unit_blocks > 1 and self.columns == cut.width

    def tile(self, height: int, packs: bool, direct: bool, unroll: int) -> Tile:
        p, b = self.p, self.p.problem.b
        touches = [
            touch_of(m, write, self.columns, p.result is not None and m.buffer is p.result.buffer)
            for m, write in (p.touched if unroll > 1 else ())
        ]
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
            prefetches=self.prefetches and unroll > 1,
            some_rest=any(depth % unroll for depth in self.depths),
            no_steps=min(self.depths) < unroll,
            touches=tuple(touches),
            turns=max(self.depths) // unroll,
        )


def _round_up(size: int) -> int:
    return -(-size // LINE) * LINE
