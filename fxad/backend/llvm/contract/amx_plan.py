"""How a bf16 product is cut for AMX: pieces of K, and units of rows x columns.

    takes_tiles(problem, target)      # bf16 x bf16 -> f32, large enough, on a machine with AMX
    cut = TileCut.of(problem)
    cut.units

Nothing here changes a result: an element sums its K in steps of 32 whichever unit it falls into.
"""

from __future__ import annotations

import math

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Tiles
from fxad.backend.llvm.contract.amx_pack import DEPTH, LINES, TILE_BYTES
from fxad.backend.llvm.contract.plan import Problem
from fxad.core.record import valued
from fxad.ir.kernel import Kernel
from fxad.ir.orders import TILE_DEPTH, TILES_WORK

FLOPS_PER_NS = 1000.0
_UNIT_NS = 8_000.0


def takes_tiles(problem: Problem, target: Target) -> bool:
    """Whether AMX computes it. Depends on what `Contract` says, on types, K and the amount of work
    alone: views that move axes between rows and the grid must not change the order of sums. With
    few rows packing the other operand takes longer than reading it in place."""
    (rows, columns, k), stage = problem.size, problem.stage
    return (
        "amx_bf16" in target.features
        and problem.dtype == np.float32
        and all(x.dtype.name == "bfloat16" for x in (stage.a, stage.b))
        and k >= TILE_DEPTH
        and not stage.few
        and problem.kernel.points * rows * columns * k >= TILES_WORK
    )


def rounds_factors(kernel: Kernel, target: Target) -> bool:
    """Whether one factor of a product may be float32, to be rounded as it is packed into tiles:
    the one that is packed in any case, once for all rows."""
    problem = Problem.of(kernel)
    dtypes = problem.a.buffer.dtype.name, problem.b.buffer.dtype.name
    once = problem.size[0] <= target.tuning.tiles.rows * 2 * LINES
    return dtypes == ("bfloat16", "float32") and once and takes_tiles(problem, target)


def quotient(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def _keeping(blocks: tuple[int, int], kept: int, wanted: int, rows: int) -> tuple[int, int]:
    """(rows, columns) of a unit, in blocks: up to `rows` and `kept` columns; what is packed is
    least."""
    found = []
    for chunks in range(quotient(blocks[0], rows), 2 * quotient(blocks[0], rows) + 1):
        units = chunks * max(quotient(blocks[1], kept), quotient(wanted, chunks))
        units = quotient(units, wanted) * wanted  # as many for every thread
        groups = min(quotient(units, chunks), blocks[1])
        unit = quotient(blocks[0], chunks), quotient(blocks[1], groups)
        found.append((chunks * blocks[1] + groups * blocks[0], unit))
    return min(found)[1]


@valued
class TileCut:
    """Blocks of high x wide tiles, pieces of `piece` tiles of K, slabs of `slab` pieces, units of
    `unit_rows` blocks x `unit_columns` blocks. Units number the groups of columns fastest, then
    rows, then the batch. keeps: whether a unit keeps a slab of its columns packed, and takes its
    rows one after the other, rather than the other way round.
    """

    size: tuple[int, int, int]
    batch: int
    high: int
    wide: int
    piece: int
    slab: int
    unit_rows: int
    unit_columns: int
    keeps: bool

    @staticmethod
    def of(problem: Problem, tuning: Tiles, near: int = 0) -> TileCut:
        """near: bytes of a panel of B in a piece; 0: the model's."""
        rows, columns, k = problem.size
        batch = problem.kernel.points
        high, wide = min(2, quotient(rows, LINES)), min(2, quotient(columns, LINES))
        tiles = quotient(k, DEPTH)
        piece = quotient(tiles, quotient(tiles, near // (2 * TILE_BYTES) or tuning.piece))
        blocks = quotient(rows, LINES * high), quotient(columns, LINES * wide)
        pieces, worth = quotient(tiles, piece), int(problem.flops * batch / FLOPS_PER_NS / _UNIT_NS)

        def cut(slab: int, unit: tuple[int, int], keeps: bool) -> TileCut:
            return TileCut(problem.size, batch, high, wide, piece, slab, *unit, keeps)

        if blocks[0] >= (tuning.many_across if problem.b.outer == 1 else tuning.many):
            slab = quotient(pieces, quotient(pieces, quotient(tuning.slab, piece)))
            kept = max(1, tuning.kept_bytes // (wide * slab * piece * TILE_BYTES))
            wanted = quotient(max(1, min(tuning.few_units, worth)), batch)
            return cut(slab, _keeping(blocks, kept, wanted, tuning.rows), True)
        wanted = quotient(max(1, min(tuning.units, worth)), batch)

        def cost(unit: tuple[int, int]) -> float:
            """What is packed, more where threads find no work."""
            chunks, groups = (quotient(b, u) for b, u in zip(blocks, unit, strict=True))
            return (chunks * columns + rows) * (2 if chunks * groups < wanted else 1)

        found = []
        for unit_rows in sorted({quotient(blocks[0], n) for n in range(1, blocks[0] + 1)}):
            groups = min(blocks[1], quotient(wanted, quotient(blocks[0], unit_rows)))
            found.append((unit_rows, quotient(blocks[1], groups)))
        unit_rows, unit_columns = min(found, key=cost)
        most = max(1, tuning.near_bytes // (unit_rows * high * piece * TILE_BYTES))
        return cut(quotient(pieces, quotient(pieces, most)), (unit_rows, unit_columns), False)

    @property
    def block_rows(self) -> int:
        return self.high * LINES

    @property
    def block_columns(self) -> int:
        return self.wide * LINES

    @property
    def tiles(self) -> int:
        """Of K."""
        return quotient(self.size[2], DEPTH)

    @property
    def pieces(self) -> int:
        return quotient(self.tiles, self.piece)

    @property
    def slabs(self) -> int:
        return quotient(self.pieces, self.slab)

    @property
    def row_blocks(self) -> int:
        return quotient(self.size[0], self.block_rows)

    @property
    def column_blocks(self) -> int:
        return quotient(self.size[1], self.block_columns)

    @property
    def chunks(self) -> int:
        return quotient(self.row_blocks, self.unit_rows)

    @property
    def groups(self) -> int:
        return quotient(self.column_blocks, self.unit_columns)

    @property
    def units(self) -> int:
        return self.batch * self.chunks * self.groups

    @property
    def cost(self) -> float:
        """Rough nanoseconds."""
        return max(2.0 * math.prod(self.size) * self.batch / FLOPS_PER_NS, 100.0)
