"""How a bf16 product is blocked for AMX: blocks of K, and units of rows x columns.

    uses_amx(problem, target)      # bf16 x bf16 -> f32, large enough, on a machine with AMX
    blocking = TileBlocking.of(problem, tuning)
    blocking.units

Nothing here changes a result: an element sums its K in steps of 32 whichever unit it falls into.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Amx
from fxad.backend.llvm.contract.amx_tiles import DEPTH, LINES, TILE_BYTES
from fxad.backend.llvm.contract.problem import Problem
from fxad.core.record import valued
from fxad.ir.kernel import Kernel
from fxad.ir.orders import TILE_DEPTH, TILES_WORK


def uses_amx(problem: Problem, target: Target) -> bool:
    """Whether AMX computes it. Depends on what `Contract` says, on types, K and the amount of work
    alone: views that move axes between rows and the grid must not change the order of sums. With
    few rows packing the other operand takes longer than reading it in place."""
    (rows, columns, k), stage = problem.size, problem.stage
    return (
        "amx_bf16" in target.features
        and problem.dtype == np.float32
        and all(x.dtype.name == "bfloat16" for x in (stage.a, stage.b))
        and k >= TILE_DEPTH
        and not stage.skinny
        and problem.kernel.points * rows * columns * k >= TILES_WORK
    )


def rounds_factors(kernel: Kernel, target: Target) -> bool:
    """Whether one factor of a product may be float32, to be rounded as it is packed into tiles:
    the one that is packed in any case, once for all rows."""
    problem = Problem.of(kernel)
    dtypes = problem.a.buffer.dtype.name, problem.b.buffer.dtype.name
    once = problem.size[0] <= target.tuning.amx.unit_blocks * 2 * LINES
    return dtypes == ("bfloat16", "float32") and once and uses_amx(problem, target)


def quotient(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def _b_stationary_unit(
    blocks: tuple[int, int], kept: int, wanted: int, rows: int
) -> tuple[int, int]:
    """(rows, columns) of a unit, in blocks: up to `rows` and `kept` columns; what is packed is
    least."""
    found = []
    for row_units in range(quotient(blocks[0], rows), 2 * quotient(blocks[0], rows) + 1):
        units = row_units * max(quotient(blocks[1], kept), quotient(wanted, row_units))
        units = quotient(units, wanted) * wanted  # as many for every thread
        column_units = min(quotient(units, row_units), blocks[1])
        unit = quotient(blocks[0], row_units), quotient(blocks[1], column_units)
        found.append((row_units * blocks[1] + column_units * blocks[0], unit))
    return min(found)[1]


@valued
class TileBlocking:
    """Blocks of high x wide tiles of sums; blocks of `l1_block` tiles of K for the first-level
    cache, `l2_block` of those for the second; units of `unit_rows` blocks x `unit_columns` blocks.
    Units are numbered along the columns fastest, then along the rows, then along the batch.
    b_stationary: whether a unit keeps an L2 block of its columns packed, and takes its rows one
    after the other, rather than the other way round.
    """

    size: tuple[int, int, int]
    batch: int
    high: int
    wide: int
    l1_block: int
    l2_block: int
    unit_rows: int
    unit_columns: int
    b_stationary: bool

    @staticmethod
    def of(problem: Problem, tuning: Amx, b_bytes: int = 0) -> TileBlocking:
        """b_bytes: of a panel of B in an L1 block; 0: the model's."""
        rows, columns, k = problem.size
        batch = problem.kernel.points
        high, wide = min(2, quotient(rows, LINES)), min(2, quotient(columns, LINES))
        tiles = quotient(k, DEPTH)
        l1_block = quotient(tiles, quotient(tiles, b_bytes // (2 * TILE_BYTES) or tuning.l1_tiles))
        blocks = quotient(rows, LINES * high), quotient(columns, LINES * wide)
        l1_blocks = quotient(tiles, l1_block)
        worth = int(problem.flops * batch / tuning.flops_per_ns / tuning.unit_ns)

        def blocking(l2_block: int, unit: tuple[int, int], b_stationary: bool) -> TileBlocking:
            k_blocks = l1_block, l2_block
            return TileBlocking(problem.size, batch, high, wide, *k_blocks, *unit, b_stationary)

        if blocks[0] >= (
            tuning.b_stationary_rows_from if problem.b.outer == 1 else tuning.b_stationary_from
        ):
            l2_block = quotient(l1_blocks, quotient(l1_blocks, quotient(tuning.l2_tiles, l1_block)))
            kept = max(1, tuning.l2_b_bytes // (wide * l2_block * l1_block * TILE_BYTES))
            wanted = quotient(max(1, min(tuning.b_stationary_units, worth)), batch)
            unit = _b_stationary_unit(blocks, kept, wanted, tuning.unit_blocks)
            return blocking(l2_block, unit, b_stationary=True)
        enough, many = (
            quotient(max(1, min(x, worth)), batch)
            for x in (tuning.b_stationary_units, tuning.units)
        )

        def l2_blocks(unit_rows: int) -> int:
            most = max(1, tuning.l2_a_bytes // (unit_rows * high * l1_block * TILE_BYTES))
            return quotient(l1_blocks, most)

        def units_for(unit_rows: int) -> int:
            """Of one L2 block a thread packs rows once, of several every unit packs them anew."""
            return enough if l2_blocks(unit_rows) > 1 else many

        def cost(unit: tuple[int, int]) -> float:
            """What is packed, more where threads find no work."""
            row_units, column_units = (quotient(b, u) for b, u in zip(blocks, unit, strict=True))
            packed = row_units * columns + rows * (column_units if l2_blocks(unit[0]) > 1 else 1)
            return packed * (2 if row_units * column_units < units_for(unit[0]) else 1)

        found = []
        for unit_rows in sorted({quotient(blocks[0], n) for n in range(1, blocks[0] + 1)}):
            row_units = quotient(blocks[0], unit_rows)
            column_units = min(blocks[1], quotient(units_for(unit_rows), row_units))
            found.append((unit_rows, quotient(blocks[1], column_units)))
        unit = min(found, key=cost)
        l2_block = quotient(l1_blocks, l2_blocks(unit[0]))
        return blocking(l2_block, unit, b_stationary=False)

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
    def l1_blocks(self) -> int:
        return quotient(self.tiles, self.l1_block)

    @property
    def l2_blocks(self) -> int:
        return quotient(self.l1_blocks, self.l2_block)

    @property
    def row_blocks(self) -> int:
        return quotient(self.size[0], self.block_rows)

    @property
    def column_blocks(self) -> int:
        return quotient(self.size[1], self.block_columns)

    @property
    def row_units(self) -> int:
        return quotient(self.row_blocks, self.unit_rows)

    @property
    def column_units(self) -> int:
        return quotient(self.column_blocks, self.unit_columns)

    @property
    def units(self) -> int:
        return self.batch * self.row_units * self.column_units
