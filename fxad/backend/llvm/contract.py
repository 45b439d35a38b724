"""Matrix products: Contract kernels -> LLVM IR.

    emitted = emit_contract(kernel, "matmul0", target)
    emitted.units                          # independent pieces: panels of columns x chunks of rows

For every panel of columns and piece of K: bring the panel of B into the first-level cache (packed
side by side unless one block of rows reads it only once), then sweep the rows with the
micro-kernel, which reads A where it lies. The epilogue runs on a tile as soon as its sums are done.
"""

from __future__ import annotations

from fxad.backend.llvm import contract_pack as packing
from fxad.backend.llvm.contract_amx import emit_tiles
from fxad.backend.llvm.contract_amx_plan import takes_tiles
from fxad.backend.llvm.contract_grid import address, arguments, go_to
from fxad.backend.llvm.contract_lanes import supports
from fxad.backend.llvm.contract_pairs import emit_pack_a_pairs
from fxad.backend.llvm.contract_piece import Piece, Sweep
from fxad.backend.llvm.contract_plan import FLOPS_PER_NS, Problem
from fxad.backend.llvm.contract_product import Product
from fxad.backend.llvm.contract_rows import emit_rows, takes_rows
from fxad.backend.llvm.contract_scalar import emit_scalar_contract
from fxad.backend.llvm.schedule import Emitted, Target
from fxad.backend.llvm.text import Function
from fxad.ir.kernel import Kernel

ABI = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))


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
    if takes_tiles(problem, target):
        return emit_tiles(problem, name, target)
    if takes_rows(problem, target):
        return emit_rows(problem, name, target)
    return _Emission(problem, name, target).emit()


class _Emission(Product):
    """Emits the function, then its helpers."""

    # ------------------------------------------------------------ the function

    def emit(self) -> Emitted:
        f = Function(self.name, "void", ABI)
        self.start(f, arguments(self.problem.kernel, f, self.target))
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
            self.scratch_bytes,
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
        self.first_row = self.row(blocks[0])
        if self.packs_a:
            self.pack_a()
        self.unit_panels = first, end
        if self.pieces.count == 1:
            self.piece("0", [])
        else:
            self.f.loop(0, self.pieces.count, 1, self.piece, at_least_once=True)

    def piece(self, number: str, _: list[str]) -> None:
        """All panels of a unit, for one piece of K: its part of A is read by every one of them."""
        f, cut = self.f, self.cut
        first, end = self.unit_panels
        piece = Piece(self, number)
        if cut.panels:
            last = self.f.least(end, cut.panels) if cut.tail else end
            f.loop(first, last, 1, lambda p, _: Sweep(piece, p, cut.width).emit())
        if cut.tail:
            with_tail, done = f.new_label("tail"), f.new_label("done")
            f.branch(f.op(f"icmp sgt i64 {end}, {cut.panels}"), with_tail, done)
            f.label(with_tail)
            Sweep(piece, str(cut.panels), cut.tail).emit()
            f.jump(done)
            f.label(done)

    def pack_a(self) -> None:
        f, a = self.f, self.problem.a
        name = f"{self.name}.pack_a"
        source, depth, pairs = self.a_source, self.pieces.size, self.pairs
        stride = max(self.a_strides)
        self.helpers[name] = (
            emit_pack_a_pairs(name, source, depth, stride, pairs)
            if pairs
            else packing.emit_pack_a(name, source, depth, stride, self.lanes)
        )
        at = f.offset(self.a, f.mul(self.first_row, a.outer * a.buffer.dtype.itemsize))
        rows = f.op(f"sub i64 {self.row(self.blocks[1])}, {self.first_row}")
        f.line(f"call void @{name}(ptr {at}, ptr {self.packed_a}, i64 {rows})")
