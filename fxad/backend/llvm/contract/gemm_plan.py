"""What is decided of a matrix product on vectors before its code is written.

plan = GemmPlan.of(problem, "matmul0", target)
plan.k.cache_blocks       # blocks of K that a panel of B is brought into cache in
plan.a.layout             # whether the micro-kernels read A in place, or a packed copy
"""

from __future__ import annotations

from enum import Enum

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.traffic import STREAMING
from fxad.backend.llvm.base.tuning import Gemm
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.autotune import choice_of
from fxad.backend.llvm.contract.bf16_dot import reads_a_in_place, uses_bf16_dot
from fxad.backend.llvm.contract.blocking import (
    Blocking,
    KBlocking,
    b_fits_l1,
    packs_a_panels,
    panel_stays_in_l2,
)
from fxad.backend.llvm.contract.epilogue import runs_per_unit
from fxad.backend.llvm.contract.prefetch import PanelPrefetch, tile_operands
from fxad.backend.llvm.contract.problem import Matrix, Problem
from fxad.backend.llvm.contract.unpack import Staging
from fxad.core.aligned import LINE, to_line
from fxad.core.record import record
from fxad.ir.kernel import Operand
from fxad.ir.orders import k_block


class Layout(Enum):
    """Where the micro-kernels read A."""

    IN_PLACE = "in place"
    COPY = "a dense copy"
    PANELS = "panels of a tile's rows, side by side for every k"


@record
class OperandA:
    """A as the micro-kernels read it: element strides along rows and k, of elements of the
    accumulator. panel_bytes: from one packed panel to the next. copy_bytes: of scratch."""

    source: packing.Source
    layout: Layout
    row_stride: int
    k_stride: int
    panel_bytes: int = 0
    copy_bytes: int = 0

    @property
    def packed(self) -> bool:
        return self.layout != Layout.IN_PLACE


@record
class OperandB:
    """How B is brought into cache. in_place: it is not copied. fuses_packing: the first tile of
    rows copies a panel while it reads it. in_l2: a panel stays in the second level for a block of
    K. row_bytes: of a packed panel's row; panel_bytes: of scratch. prefetch: of the part of B that
    comes next. group: panels that go through a block of K together. staging: the scratch that a
    part of a B in few bits is unpacked into, to be packed from there."""

    in_place: bool
    fuses_packing: bool
    in_l2: bool
    row_bytes: int
    panel_bytes: int
    prefetch: PanelPrefetch | None
    group: int
    staging: Staging | None


@record
class Sums:
    """Where sums are added up. result: the matrix that holds them; None: scratch. stride: elements
    between rows there. keeps_unit: scratch holds those of a whole unit. spills: partial sums are
    spilled between cache blocks of K. streams: results are written by streaming stores. bytes,
    partial_bytes: of scratch."""

    result: Matrix | None
    stride: int
    keeps_unit: bool
    spills: bool
    streams: bool
    bytes: int
    partial_bytes: int


@record
class GemmPlan:
    """A product's plan. k_step: steps of k that one instruction takes. bf16_dot: whether operands
    are pairs of bf16; a_pairs_in_place: whether those of A are read where they lie. has_epilogue:
    whether something is computed of the sums, epilogue_per_unit: for a whole unit rather than for a
    tile. prefetches_next_a: whether a tile prefetches the next tile's part of A. tile_operands: the
    matrices that a tile prefetches its part of, and whether it writes them."""

    problem: Problem
    name: str
    tuning: Gemm
    blocking: Blocking
    k: KBlocking
    k_step: int
    bf16_dot: bool
    a_pairs_in_place: bool
    a: OperandA
    b: OperandB
    sums: Sums
    has_epilogue: bool
    epilogue_per_unit: bool
    prefetches_next_a: bool
    tile_operands: list[tuple[Matrix, bool]]

    @staticmethod
    def of(problem: Problem, name: str, target: Target) -> GemmPlan:
        tuning = target.tuning.gemm
        bf16_dot = uses_bf16_dot(problem, target)
        k_step = 2 if bf16_dot else 1
        pairs_in_place = bf16_dot and reads_a_in_place(problem, target)
        layout = _layout_of_a(problem, target, pairs_in_place)
        per_unit = runs_per_unit(problem, tuning)
        choice = choice_of(problem, target)
        packed = 0 if layout == Layout.IN_PLACE else k_block(problem.size[2])
        blocking = Blocking.of(problem, target, packed, per_unit, choice, k_step)
        k, b = _blocks_of_b(problem, blocking, target, choice.b_bytes, bf16_dot, k_step)
        result = None if per_unit else problem.plain_result()
        stores = problem.stage.stores
        plain = result is not None and len(stores) == 1 and problem.is_identity(stores[0])
        streams = (
            plain and problem.stage.streaming and _may_stream(problem, result, blocking, k, target)
        )
        a = _operand_a(problem, layout, blocking, k, k_step)
        return GemmPlan(
            problem=problem,
            name=name,
            tuning=tuning,
            blocking=blocking,
            k=k,
            k_step=k_step,
            bf16_dot=bf16_dot,
            a_pairs_in_place=pairs_in_place,
            a=a,
            b=b,
            sums=_sums(problem, blocking, k, b, result, per_unit, streams),
            has_epilogue=not plain,
            epilogue_per_unit=per_unit,
            prefetches_next_a=_prefetches_next_a(problem, blocking, a, tuning),
            tile_operands=[] if per_unit or streams else tile_operands(problem),
        )

    @property
    def ends_odd(self) -> bool:
        """Whether the last step of the micro-kernels is one of fewer steps of k."""
        return self.problem.size[2] % self.k_step > 0

    @property
    def scratch_bytes(self) -> int:
        sums, staging = self.sums, self.b.staging
        own = self.b.panel_bytes + self.a.copy_bytes + sums.bytes + sums.partial_bytes
        return own + (staging.bytes if staging else 0)


def _layout_of_a(problem: Problem, target: Target, pairs_in_place: bool) -> Layout:
    same = problem.a.buffer.dtype == problem.dtype
    if pairs_in_place:
        return Layout.IN_PLACE
    if same and packs_a_panels(problem, target.lanes(problem.dtype), target.tuning.gemm):
        return Layout.PANELS
    return Layout.IN_PLACE if same else Layout.COPY


def _operand_a(
    problem: Problem, layout: Layout, blocking: Blocking, k: KBlocking, k_step: int
) -> OperandA:
    a, size = problem.a, problem.dtype.itemsize
    source = packing.Source(a.outer, a.inner, a.buffer.dtype)
    if layout == Layout.IN_PLACE:
        return OperandA(source, layout, a.outer // k_step, a.inner)
    if layout == Layout.PANELS:
        # An odd number of lines from one panel to the next, so that all of them find a place.
        tall = blocking.tile_heights[0]
        panel = to_line(k.sum_block * tall * size) | LINE
        return OperandA(source, layout, 1, tall, panel, blocking.unit_tiles * panel)
    column_major = packing.is_column_major(source)
    length, lines = k.sum_block, blocking.unit_rows
    if column_major:
        length, lines = lines, length
    pitch = to_line(length * size) | LINE
    strides = (1, pitch // size) if column_major else (pitch // size, 1)
    return OperandA(source, layout, *strides, copy_bytes=lines * pitch)


def _blocks_of_b(
    problem: Problem,
    blocking: Blocking,
    target: Target,
    b_bytes: int,
    bf16_dot: bool,
    k_step: int,
) -> tuple[KBlocking, OperandB]:
    """How K is blocked, which depends on how B is read. b_bytes: of B in a cache block, if that
    was measured; 0: the model's."""
    b, tuning, packed = problem.b, target.tuning.gemm, problem.packed
    # An only tile of rows reads B once, where it lies: nothing of it is kept. A small B is in the
    # first-level cache where it lies.
    once = b.outer == 1 and blocking.unit_tiles == 1
    in_place = (once or b_fits_l1(problem, tuning)) and not bf16_dot and not packed
    row_bytes = blocking.panel_columns * problem.dtype.itemsize
    # Sums are spilled only where B would otherwise come from the second level too slowly, or be
    # transposed on its way there.
    in_l2 = panel_stays_in_l2(problem, tuning)
    deep = in_l2 and (b.outer == 1 or tuning.transposed_in_l2) and not b_bytes
    b_bytes = b_bytes or tuning.l1_panel_bytes
    k = KBlocking.of(problem.size[2], row_bytes, in_place or deep, b_bytes, k_step)
    one_height_first = blocking.tall_tiles == 0 or blocking.row_units == 1
    same = b.buffer.dtype == problem.dtype
    fuses = b.outer == 1 and not in_place and same and one_height_first and not packed
    prefetch, staging = None, None
    if packed:
        staging = _staging(problem, packed, blocking.panel_columns, k.cache_block * k_step, target)
    elif not in_place:
        prefetch = PanelPrefetch.of(b, blocking, k, k_step, fuses, tuning.unroll)
    group = blocking.panel_group if prefetch else 1
    panel_bytes = to_line(k.cache_block * row_bytes)
    return k, OperandB(in_place, fuses, in_l2, row_bytes, panel_bytes, prefetch, group, staging)


def _staging(
    problem: Problem, operand: Operand, columns: int, steps: int, target: Target
) -> Staging:
    """Of a panel's columns for some steps of k. Pairs of k are packed from bf16; else numbers that
    are rounded to the matrix's dtype are left as what they are multiplied as."""
    assert operand.packed is not None
    dtype = operand.dtype if uses_bf16_dot(problem, target) else problem.dtype
    size = (columns, steps) if problem.b.inner == 1 else (steps, columns)
    return Staging.of(operand.packed, dtype, *size, target)


def _sums(
    problem: Problem,
    blocking: Blocking,
    k: KBlocking,
    b: OperandB,
    result: Matrix | None,
    per_unit: bool,
    streams: bool,
) -> Sums:
    size = problem.dtype.itemsize
    keeps_unit, spills = result is None and (per_unit or k.sum_blocks > 1), k.per_sum_block > 1
    stride = blocking.panel_columns
    if result is not None:
        stride = result.outer
    elif keeps_unit:
        # An odd number of lines, so that all rows of a tile find a place.
        stride = (blocking.unit_panels * b.row_bytes | LINE) // size
    bytes = 0
    if result is None:
        rows = blocking.unit_rows if keeps_unit else max(blocking.tile_heights)
        bytes = to_line(rows * stride * size)
    partial = to_line((blocking.unit_rows if spills else 0) * b.row_bytes * b.group)
    return Sums(result, stride, keeps_unit, spills, streams, bytes, partial)


def _may_stream(
    problem: Problem, result: Matrix | None, blocking: Blocking, k: KBlocking, target: Target
) -> bool:
    """Whether stores are much of the work, each sum's is one, and tiles write whole lines. In
    products of more steps of k streaming gains nothing, and who reads them finds them farther
    away."""
    assert result is not None
    size = problem.dtype.itemsize
    across = result.outer * size, blocking.panel_columns * size
    whole = all(length % LINE == 0 for length in across)
    few = problem.size[2] <= target.tuning.gemm.streaming_steps
    return whole and few and k.sum_blocks == 1 and target.isa in STREAMING


def _prefetches_next_a(problem: Problem, blocking: Blocking, a: OperandA, tuning: Gemm) -> bool:
    """Whether A is too large to stay in cache, or so few panels read it that fetching it for the
    first of them counts (256 x 1024 by 1024 x 256 in a training step 1.1 times as fast, 1024 x 768
    by 768 x 3072 0.97)."""
    rows, _, depth = problem.size
    large = rows * depth * problem.dtype.itemsize >= tuning.l2_a_bytes
    few = blocking.panel_count <= tuning.few_panels and large
    return (blocking.a_is_far or few) and a.k_stride == 1
