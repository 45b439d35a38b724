"""Matrix products: Contract kernels -> LLVM IR.

    emitted = emit_contract(kernel, "matmul0", target)
    emitted.units                          # independent pieces: panels of columns x chunks of rows

For every block of K, panel of columns and piece of the block: bring that part of B into the
first-level cache (packed side by side unless one block of rows reads it only once), then sweep the
rows with the micro-kernel, which reads A where it lies, or a copy of it in blocks of a tile's rows.
The epilogue runs on a tile as soon as its sums are done; one that reads much from memory (an
update of Adam's moments) runs over the rows of a whole unit, whose sums wait in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.backend.llvm.base.schedule import ABI, Emitted, Target, emit_nothing
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.amx import emit_tiles
from fxad.backend.llvm.contract.amx_plan import takes_tiles
from fxad.backend.llvm.contract.epilogue import Finish
from fxad.backend.llvm.contract.grid import address, arguments, go_to
from fxad.backend.llvm.contract.lanes import supports
from fxad.backend.llvm.contract.micro import Mode
from fxad.backend.llvm.contract.pairs import emit_pack_a_pairs
from fxad.backend.llvm.contract.piece import Piece, Sweep
from fxad.backend.llvm.contract.plan import FLOPS_PER_NS, Problem
from fxad.backend.llvm.contract.product import Product
from fxad.backend.llvm.contract.rows import emit_rows, takes_rows
from fxad.backend.llvm.contract.scalar import emit_scalar_contract
from fxad.core.aligned import LINE
from fxad.core.errors import CheckError
from fxad.ir.kernel import Kernel


def emit_contract(kernel: Kernel, name: str, target: Target) -> Emitted:
    """LLVM IR of a kernel whose body is one Contract stage, for any sizes and strides.

    Raises CheckError where an operand is not affine in the stage's axes.
    """
    problem = Problem.of(kernel)
    return _form(problem, target)(problem, name, target)


def has_choices(problem: Problem, target: Target) -> bool:
    """Whether how the product is cut is a matter of `choices`."""
    return problem.size[2] > 0 and _form(problem, target) in (emit_tiles, _emit_blocks)


def _form(problem: Problem, target: Target) -> Callable[[Problem, str, Target], Emitted]:
    """What emits the product."""
    if not (problem.kernel.points and problem.size[0] and problem.size[1]):
        return _emit_nothing
    operands = (problem.a.buffer.dtype, problem.b.buffer.dtype)
    if not all(supports(problem.dtype, dtype) for dtype in operands):
        return emit_scalar_contract
    if takes_tiles(problem, target):
        return emit_tiles
    if any(x.rounded for x in (problem.stage.a, problem.stage.b)):
        raise CheckError(f"{problem.kernel.name}: only products on tiles round their factors")
    return emit_rows if takes_rows(problem, target) else _emit_blocks


def _emit_nothing(problem: Problem, name: str, target: Target) -> Emitted:
    return emit_nothing(name)


def _emit_blocks(problem: Problem, name: str, target: Target) -> Emitted:
    return _Emission(problem, name, target).emit()


class _Emission(Product):
    """Emits the function, then its helpers."""

    # ------------------------------------------------------------ the function

    def emit(self) -> Emitted:
        f = Function(self.name, "void", ABI)
        self.start(f, arguments(self.problem.kernel, f, self.target))
        if self.cut.joins:
            self.joined_units()
        else:
            f.loop("%begin", "%end", 1, self.unit)
        if self.past:  # before others are told of it
            self.lanes.declarations.add("declare void @llvm.x86.sse.sfence()")
            f.line("call void @llvm.x86.sse.sfence()")
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
            self.scratch_bytes,
            max(cost, 100.0),
        )

    def unit(self, unit: str, _: list[str]) -> None:
        cut = self.cut
        self.is_first = self.f.op(f"icmp eq i64 {unit}, %begin")
        group, rest = self.split(unit, cut.panel_groups)
        self.panels_of(rest, *self.span(group, cut.unit_panels, cut.all_panels))

    def joined_units(self) -> None:
        """Units side by side as one, so that all their panels share what is in cache of A."""
        f, cut, groups = self.f, self.cut, self.cut.panel_groups
        low = f.op(f"udiv i64 %begin, {groups}")
        high = f.op(f"udiv i64 {f.add('%end', groups - 1)}, {groups}")

        def row(rest: str, _: list[str]) -> None:
            self.is_first = f.op(f"icmp eq i64 {rest}, {low}")
            start = f.mul(rest, groups)
            first = f.most(f.op(f"sub i64 %begin, {start}"), 0)
            last = f.least(f.op(f"sub i64 %end, {start}"), groups)
            end = f.least(f.mul(last, cut.unit_panels), cut.all_panels)
            self.panels_of(rest, f.mul(first, cut.unit_panels), end)

        f.loop(low, high, 1, row)

    def panels_of(self, rest: str, first_panel: str, end_panel: str) -> None:
        """Some panels of one chunk of rows and one batch group."""
        cut = self.cut
        chunk, batch_group = self.split(rest, cut.chunks)
        blocks = self.span(chunk, cut.unit_blocks, cut.blocks)
        first_batch, end_batch = self.span(batch_group, cut.unit_batch, cut.batch)

        def element(batch: str, _: list[str]) -> None:
            self.element(batch, blocks, first_panel, end_panel)

        self.f.loop(first_batch, end_batch, 1, element, at_least_once=True)

    # ------------------------------------------------------------ one batch element

    def element(self, batch: str, blocks: tuple[str, str], first: str, end: str) -> None:
        """The panels first..end of one batch element, for a chunk of row blocks."""
        problem = self.problem
        self.batch = batch
        self.blocks = blocks
        go_to(self.memory, problem.kernel, batch)
        self.a = address(self.memory, problem.a.buffer, problem.a.base)
        self.b = address(self.memory, problem.b.buffer, problem.b.base)
        result = self.result
        self.c = address(self.memory, result.buffer, result.base) if result else ""
        self.fresh = self.fresh_mode()
        self.first_row = self.row(blocks[0])
        self.unit_panels = first, end
        if self.ahead and problem.b_bytes >= self.tuning.far_a_bytes:
            self.f.when(self.is_first, lambda: self.ask_for_first(first))
        if self.pieces.blocks == 1:
            self.depth_block("0", [])
        else:
            self.f.loop(0, self.pieces.blocks, 1, self.depth_block, at_least_once=True)
        if self.finish and self.swept:
            self.sweep(self.finish)

    def fresh_mode(self) -> str:
        """FRESH, or PAST where that may be and the result begins at a line."""
        f = self.f
        if not self.past:
            return str(int(Mode.FRESH))
        inside = f.op(f"and i64 {f.op(f'ptrtoint ptr {self.c} to i64')}, {LINE - 1}")
        begins = f.op(f"icmp eq i64 {inside}, 0")
        return f.op(f"select i1 {begins}, i64 {int(Mode.PAST)}, i64 {int(Mode.FRESH)}")

    def ask_for_first(self, panel: str) -> None:
        """Ask for the first part of B: no unit of this call came before and did so."""
        b = self.problem.b
        apart = self.cut.width * b.outer * b.buffer.dtype.itemsize
        if self.ahead:
            self.ahead.all(self.f, self.f.offset(self.b, self.f.mul(panel, apart)), self.lanes)

    def sweep(self, finish: Finish) -> None:
        """The epilogue of a unit's rows."""
        f, (first, end), width = self.f, self.unit_panels, self.cut.width
        rows = f.op(f"sub i64 {self.row(self.blocks[1])}, {self.first_row}")
        column = f.mul(first, width)
        last = f.least(f.mul(end, width), self.problem.size[1])
        columns = f.op(f"sub i64 {last}, {column}")
        f.line(finish.call_unit(self.batch, self.sums, self.first_row, rows, column, columns))

    def depth_block(self, number: str, _: list[str]) -> None:
        """All panels of a unit, for one block of K: its part of A is read by every one of them."""
        f, cut = self.f, self.cut
        if self.packs_a:
            self.pack_a(number)
        first, end = self.unit_panels
        if cut.panels:
            last = self.f.least(end, cut.panels) if cut.tail else end
            f.loop(first, last, self.group, lambda p, _: self.panels(number, p, last))
        if cut.tail:
            with_tail = f.op(f"icmp sgt i64 {end}, {cut.panels}")
            f.when(with_tail, lambda: self.panels(number, str(cut.panels), "", cut.tail))

    def panels(self, block: str, first: str, most: str, tail: int = 0) -> None:
        """A group of panels from `first` on, piece by piece of a block of K; or the narrow one."""
        f, pieces, columns = self.f, self.pieces, tail or self.cut.width
        end = "" if tail or self.group == 1 else f.least(f.add(first, self.group), most)

        def piece(number: str, _: list[str]) -> None:
            now = Piece(self, number)
            if end:
                f.loop(first, end, 1, lambda p, _: Sweep(now, first, p, columns).emit(), (), True)
            else:
                Sweep(now, first, first, columns).emit()

        if pieces.in_block == 1:
            return piece(block, [])
        number = f.mul(block, pieces.in_block)
        last = f.least(f.add(number, pieces.in_block), pieces.count)
        f.loop(number, last, 1, piece, at_least_once=True)

    def pack_a(self, number: str) -> None:
        """A's rows of this unit, for one block of K."""
        f, a, problem, k_step = self.f, self.a_source, self.problem, self.k_step
        block, depth = self.pieces.block * k_step, str(problem.size[2])
        at = f.add(f.mul(self.first_row, a.outer), f.mul(number, block * a.k))
        if self.pieces.blocks > 1:
            depth = f.op(f"sub i64 {depth}, {f.mul(number, block)}")
            depth = f.least(depth, block)
        given = f"ptr {f.offset(self.a, f.mul(at, a.dtype.itemsize))}, ptr {self.packed_a}"
        name = f"{self.name}.pack_a"
        self.helpers[name] = self.a_packer(name)
        if self.in_blocks:
            tall, others = self.kinds_of_blocks()
            rows = f"i64 {tall}, i64 {others}"
        else:
            rows = f"i64 {f.op(f'sub i64 {self.row(self.blocks[1])}, {self.first_row}')}"
        f.line(f"call void @{name}({given}, i64 {depth}, {rows})")

    def a_packer(self, name: str) -> str:
        """The text of the function that packs A."""
        source, heights, stride = self.a_source, self.cut.heights, max(self.a_strides)
        if self.in_blocks:
            ends = heights[0], heights[-1]
            ahead = self.tuning.packed_ahead
            return packing.emit_pack_blocks(name, source, ends, self.block_bytes, self.lanes, ahead)
        if self.pairs:
            return emit_pack_a_pairs(name, source, stride, self.pairs, self.ends_odd)
        return packing.emit_pack_a(name, source, stride, self.lanes)

    def kinds_of_blocks(self) -> tuple[str, str]:
        """How many blocks of the unit have the greater height, and how many the other."""
        f, cut, (low, high) = self.f, self.cut, self.blocks
        if len(cut.heights) == 1:
            return f.op(f"sub i64 {high}, {low}"), "0"
        border = f.least(f.most(low, cut.long_blocks), high)
        return f.op(f"sub i64 {border}, {low}"), f.op(f"sub i64 {high}, {border}")
