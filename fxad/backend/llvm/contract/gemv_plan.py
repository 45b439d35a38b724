"""What is decided of a product of few rows (GEMV) before its code is written.

uses_gemv(problem, target)            # up to 8 rows and a large B
plan = GemvPlan.of(problem, "matmul0", target)
plan.layout                           # RowsOfB or ColumnsOfB: what lies side by side in memory
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Gemv
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.contract.unpack import Staging
from fxad.core.aligned import LINE
from fxad.core.record import record
from fxad.ir.orders import k_block

# Where a step of k takes fewer bytes of B than this, sums wait for each other, not for memory.
CHAIN_BYTES = 32
WAY_BYTES, WAYS = 1 << 12, 8  # of a first-level cache: places so far apart share a set of so many


def uses_gemv(problem: Problem, target: Target) -> bool:
    """Whether a float product has few rows and a large B with neighbours in memory."""
    (rows, columns, k), b, tuning = problem.size, problem.b, target.tuning.gemv
    lanes = target.lanes(problem.dtype)
    far = _bytes_of_b(problem) >= tuning.far_bytes
    return (
        rows <= tuning.most_rows
        and problem.dtype.name in ("float32", "float64")
        and (far or (rows <= tuning.fewest_rows and _packs_in_vain(problem, tuning)))
        and (
            (b.outer == 1 and columns >= lanes and problem.packed is None)
            or (b.inner == 1 and k >= lanes)
        )
    )


def _packs_in_vain(problem: Problem, tuning: Gemv) -> bool:
    """Whether very few rows do not repay a packed copy of a B that caches may keep."""
    points, b, size = problem.kernel.points, problem.b, _bytes_of_b(problem)
    if points > 1 and size >= tuning.element_bytes and points * size >= tuning.batch_bytes:
        return True
    return b.outer == 1 and b.buffer.dtype != problem.dtype and size >= tuning.widened_bytes


def _bytes_of_b(problem: Problem) -> int:
    """Of B, in one element of the batch."""
    _, columns, k = problem.size
    return columns * k * problem.b.buffer.dtype.itemsize


@record
class RowsOfB:
    """Columns side by side in memory: rows of B, each times one element of A, are added up.

    vectors: of sums for a line of B. group: rows of B that go by together. prefetch_bytes: from a
    load to what it prefetches; row_prefetch_bytes: the same within a row, 0: not there.
    """

    vectors: int
    group: int
    prefetch_bytes: int
    row_prefetch_bytes: int


@record
class ColumnsOfB:
    """k side by side in memory: squares of B are transposed in registers.

    column_bytes: of all of K; tile_bytes: of each column in a tile, which are prefetched in the
    order of memory; k_prefetch_bytes: from a load to what it prefetches in the same column, 0:
    tile by tile instead. chains: sums of each column that are added up in turns; of one, squares
    of columns may be. depth: elements of k in a square, or in half of one where there are turns.
    """

    column_bytes: int
    tile_bytes: int
    k_prefetch_bytes: int
    chains: int
    depth: int


@record
class GemvPlan:
    """step: columns that are computed and finished together. parts: batch elements of a unit, which
    are parts of the same columns of B. A unit has up to `chunk` columns; there are `chunks`. pitch:
    bytes between rows of B, or between columns where k is side by side. staging: the scratch that
    columns of a B in few bits are unpacked into, for a block of K."""

    problem: Problem
    name: str
    tuning: Gemv
    lanes: int
    step: int
    parts: int
    chunk: int
    chunks: int
    pitch: int
    layout: RowsOfB | ColumnsOfB
    staging: Staging | None

    @staticmethod
    def of(problem: Problem, name: str, target: Target) -> GemvPlan:
        plan = _plan_of_rows if problem.b.outer == 1 else _plan_of_columns
        return plan(problem, name, target)

    @property
    def size(self) -> int:
        """Bytes of an accumulator."""
        return self.problem.dtype.itemsize

    @property
    def source(self) -> np.dtype:
        """Of what is loaded of B: where it is unpacked, rounded to its dtype, of the sums'."""
        return self.staging.dtype if self.staging else self.problem.b.buffer.dtype

    @property
    def per_lane(self) -> int:
        """Elements of B in a lane."""
        return _per_lane(self.source, self.problem.dtype)

    @property
    def sum_block(self) -> int:
        """Steps of k that are summed from 0."""
        return k_block(self.problem.size[2])

    @property
    def sum_blocks(self) -> int:
        return -(-self.problem.size[2] // self.sum_block)

    @property
    def packs_a(self) -> bool:
        """Whether A is converted once, into scratch."""
        return self.problem.a.buffer.dtype != self.problem.dtype


def _per_lane(source: np.dtype, accumulator: np.dtype) -> int:
    return 2 if (source.name, accumulator.name) == ("bfloat16", "float32") else 1


def _chunks(problem: Problem, tuning: Gemv, step: int, parts: int, most: int) -> tuple[int, int]:
    """(columns of a chunk, chunks): at most so many units, an even number where there are
    several."""
    _, columns, k = problem.size
    whole = columns * k * parts * problem.b.buffer.dtype.itemsize
    count = max(1, min(most, tuning.most_units, whole // tuning.unit_bytes))
    steps = -(-columns // step)
    chunk = -(-steps // max(1, count & ~1)) * step
    return chunk, -(-columns // chunk)


def _plan_of_rows(problem: Problem, name: str, target: Target) -> GemvPlan:
    tuning, lanes = target.tuning.gemv, target.lanes(problem.dtype)
    source, (rows, columns, _) = problem.b.buffer.dtype, problem.size
    step, line = 4 * lanes, LINE // (lanes * source.itemsize)
    row_bytes = columns * source.itemsize
    units = min(tuning.units, row_bytes // tuning.least_row_bytes)
    units = max(row_bytes // tuning.unit_row_bytes, units)
    chunk, chunks = _chunks(problem, tuning, step, 1, units)
    group = max(2, min(tuning.rows_at_once, 16 // rows))
    pitch, chunk_bytes = problem.b.inner * source.itemsize, chunk * source.itemsize
    layout = RowsOfB(
        vectors=max(_per_lane(source, problem.dtype), min(4, line)),
        group=group,
        prefetch_bytes=group * -(-tuning.prefetch_bytes // (group * chunk_bytes)) * pitch,
        row_prefetch_bytes=min(tuning.row_prefetch_bytes, chunk_bytes),
    )
    return GemvPlan(problem, name, tuning, lanes, step, 1, chunk, chunks, pitch, layout, None)


def _plan_of_columns(problem: Problem, name: str, target: Target) -> GemvPlan:
    tuning, lanes = target.tuning.gemv, target.lanes(problem.dtype)
    source, k = problem.b.buffer.dtype, problem.size[2]
    # Sixteen columns at once; of more the processor's own prefetchers lose track.
    parts = batch_parts(problem, tuning.far_bytes)
    chains, squares = turns_of(problem, lanes, parts, tuning)
    step = lanes * squares
    chunk, chunks = _chunks(problem, tuning, step, parts, tuning.most_units)
    column_bytes = parts * k * source.itemsize
    pitch, staging = problem.b.outer * source.itemsize, None
    if (operand := problem.packed) and operand.packed:
        staging = Staging.of(operand.packed, problem.dtype, step, k_block(k), target)
        pitch = staging.pitch
    loaded = staging.dtype if staging else source
    layout = ColumnsOfB(
        column_bytes=column_bytes,
        tile_bytes=_tile_bytes(column_bytes, lanes, tuning),
        k_prefetch_bytes=min(tuning.k_prefetch_bytes, column_bytes),
        chains=chains,
        depth=lanes * _per_lane(loaded, problem.dtype) // min(chains * squares, 2),
    )
    sizes = step, parts, chunk, chunks, pitch
    return GemvPlan(problem, name, tuning, lanes, *sizes, layout, staging)


def turns_of(problem: Problem, lanes: int, parts: int, tuning: Gemv) -> tuple[int, int]:
    """How many sums of a column, and of how many squares of columns, to add up in turns.

    The sums are those of blocks of K or of its parts; of one block squares of columns take turns.
    One set of the first-level cache must hold what all columns read of it. Even turns are best.
    """
    (rows, _, k), size = problem.size, problem.b.buffer.dtype.itemsize
    if problem.packed or lanes * size >= CHAIN_BYTES:
        return 1, 1
    block, pitch = k_block(k), problem.b.outer * size
    count, apart = (parts, k * size) if parts > 1 else (-(-k // block), block * size)

    def fits(chains: int, columns: int) -> bool:
        places = [i * pitch + j * apart for i in range(columns) for j in range(chains)]
        sets = [place % WAY_BYTES // LINE for place in places]
        return max(map(sets.count, sets)) <= WAYS

    most = -(-tuning.chains // rows)  # the sums of several rows of A do not wait for each other
    if count == 1:
        return 1, next((n for n in range(most, 1, -1) if fits(1, n * lanes)), 1)
    fitting = [n for n in range(min(most, count), 1, -1) if fits(n, lanes)] or [1]
    return next((n for n in fitting if count % n == 0), fitting[0]), 1


def _tile_bytes(column_bytes: int, step: int, tuning: Gemv) -> int:
    """Bytes of each column in a tile: all, or an even part where all are too many."""
    if step * column_bytes <= tuning.tile_bytes or column_bytes % LINE:
        return column_bytes
    lines = column_bytes // LINE
    counts = range(tuning.tile_part_lines, tuning.tile_part_bytes // (step * LINE) + 1)
    return LINE * max((n for n in counts if lines % n == 0), default=lines)


def batch_parts(problem: Problem, far: int) -> int:
    """How many batch elements that follow each other are parts of the same columns of a B that is
    far: those of a long K that is summed in parts."""
    axis, b = problem.kernel.grid[-1] if problem.kernel.grid else None, problem.b
    _, columns, k = problem.size
    if axis is None or b.inner != 1 or b.base.coefficient(axis) != k:
        return 1
    is_far = axis.extent * columns * k * b.buffer.dtype.itemsize >= far
    return axis.extent if is_far and b.outer == axis.extent * k else 1
