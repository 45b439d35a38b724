"""How a matrix product is blocked: register tile, blocks of K, and units of parallel work.

    blocking = Blocking.of(problem, target)   # f32 256x2304x768 on AVX-512: tiles of 8 x 48
    blocking.units
    packs_a_panels(problem, 16, tuning)       # a copy of A, a tile's rows side by side for every k

In the words of the literature (Goto and van de Geijn, 2008; BLIS): a register tile is MR x NR =
`tile_rows` x `panel_columns`, a unit MC x NC = `unit_rows` x `unit_panels` panels, and a block of K
in cache, KC, `KBlocking.cache_block`.

Nothing here changes a result: each element sums K in the order that `ir.kernel.Contract` fixes,
whichever tile, unit or thread it falls into.
"""

from __future__ import annotations

import math

from fxad.backend.llvm.base.choices import MODEL, Choice
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Gemm
from fxad.backend.llvm.contract.pack import MOST_TRANSPOSED
from fxad.backend.llvm.contract.problem import Problem
from fxad.core.record import replace, valued
from fxad.ir.orders import k_block

# Lines so many bytes apart share a place in first-level caches. Not tuned: it is a page, which one
# way of such a cache holds, since caches are indexed before addresses are translated.
ALIAS_BYTES = 4096


def _quotient(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


@valued
class Blocking:
    """Tiles, panels and units of one problem.

    Rows come in `row_tiles`: the first `tall_tiles` of `tile_rows + 1` rows, the others of
    `tile_rows`. Columns come in `panels` of `tile_vectors` registers, then a narrower one of
    `tail_columns` (0: none). A unit is `unit_batch` batch elements x `unit_tiles` tiles of rows x
    `unit_panels` panels; units are numbered along the columns fastest, then along the rows, then
    along the batch.

    a_is_far: A is too large for a second-level cache, so that several panels should share a block
    of it. panel_group: panels of B that are brought into that cache together, block by block of K.
    joins_units: units side by side that a thread takes at once are done as one: no sums are kept in
    scratch for all their columns. So units may be narrow, and threads that differ in speed end
    together.
    """

    lanes: int
    tile_vectors: int
    panels: int
    tail_columns: int
    tile_rows: int
    row_tiles: int
    tall_tiles: int
    unit_batch: int
    unit_tiles: int
    unit_panels: int
    batch: int
    a_is_far: bool = False
    panel_group: int = 1
    joins_units: bool = False

    @staticmethod
    def of(
        problem: Problem,
        target: Target,
        packed: int = 0,
        epilogue_per_unit: bool = False,
        choice: Choice = MODEL,
        k_step: int = 1,
    ) -> Blocking:
        """packed: steps of k of A that are packed at once; 0: it is read in place.
        epilogue_per_unit: rather than per tile. choice: what was measured. k_step: steps of k that
        one instruction takes: of two, a row of A takes half the place, and packing a panel of B
        twice as long beside its products, so that twice the rows share one and half as many are a
        group.
        """
        rows, columns, k = problem.size
        lanes, tuning = target.lanes(problem.dtype), target.tuning.gemm
        tile_vectors, row_tiles = register_tile(rows, columns, lanes, target.registers)
        if choice.vectors:
            tile_vectors = min(choice.vectors, max(1, _quotient(columns, lanes)))
            row_tiles = max(1, _quotient(rows, choice.height))
        panels, tail_columns = divmod(columns, tile_vectors * lanes)
        tile_rows, tall_tiles = divmod(rows, row_tiles)
        batch = problem.kernel.points
        chunk, most = (
            choice.rows or _most_unit_rows(problem, tuning, k_step),
            tuning.epilogue_unit(k),
        )
        if packed:
            fitting = tuning.packed_a_bytes * k_step // (packed * problem.dtype.itemsize)
            chunk = max(min(fitting, chunk), tile_rows + 1)
        if epilogue_per_unit:
            chunk = max(min(chunk, most[0]), tile_rows + 1)
        in_l2 = panel_stays_in_l2(problem, tuning)
        deep = k_block(k) if in_l2 else k  # a block of K is all that panels share
        bytes_of_a = min(rows, chunk) * deep * problem.a.buffer.dtype.itemsize
        a_is_far = not packed and bytes_of_a > tuning.l2_a_bytes
        count = panels + (tail_columns > 0)
        grouped = problem.b.outer == 1 and row_tiles > 1 and not in_l2
        panel_group = max(1, min(tuning.most_panel_group // k_step, panels // 4)) if grouped else 1
        joins_units = not epilogue_per_unit and problem.plain_result() is not None
        sharing = panel_group
        if a_is_far and not joins_units:
            sharing = max(panel_group, min(tuning.panels_per_a, count // 2))
        shared = tuning.packed_panels // k_step if packed or epilogue_per_unit else 0
        wanted = tuning.units if shared else 0
        per_unit = _units(
            problem.flops, batch, rows, row_tiles, count, chunk, shared, sharing, wanted, tuning
        )
        tile = lanes, tile_vectors, panels, tail_columns, tile_rows, row_tiles, tall_tiles
        blocking = Blocking(*tile, *per_unit, batch, a_is_far, panel_group, joins_units)
        if epilogue_per_unit:
            groups = _quotient(blocking.unit_panels * blocking.panel_columns, most[1])
            blocking = replace(blocking, unit_panels=_quotient(blocking.unit_panels, groups))
        return blocking

    @property
    def panel_columns(self) -> int:
        """Columns of a full panel."""
        return self.tile_vectors * self.lanes

    @property
    def panel_count(self) -> int:
        return self.panels + (self.tail_columns > 0)

    @property
    def tile_heights(self) -> tuple[int, ...]:
        """Numbers of rows that tiles have, tallest first."""
        found = [self.tile_rows + 1] * (self.tall_tiles > 0)
        return (*found, *[self.tile_rows] * (self.tall_tiles < self.row_tiles))

    @property
    def main_tile_rows(self) -> int:
        """The more frequent number of rows."""
        return self.tile_rows + (2 * self.tall_tiles > self.row_tiles)

    @property
    def unit_rows(self) -> int:
        """Most rows of a unit."""
        return self.unit_tiles * max(self.tile_heights)

    @property
    def column_units(self) -> int:
        return -(-self.panel_count // self.unit_panels)

    @property
    def row_units(self) -> int:
        return -(-self.row_tiles // self.unit_tiles)

    @property
    def units(self) -> int:
        return -(-self.batch // self.unit_batch) * self.row_units * self.column_units


@valued
class KBlocking:
    """K in blocks of `sum_block` steps, which are summed alone and then added, and those in blocks
    of `cache_block` steps, which only say what lies in the first-level cache: a tile's partial sums
    are spilled in between.
    """

    steps: int
    sum_block: int
    cache_block: int

    @staticmethod
    def of(depth: int, row_bytes: int, whole: bool, b_bytes: int, step: int = 1) -> KBlocking:
        """row_bytes: of a panel of B; whole: a sum's blocks are not cut. All lengths are in steps:
        of one k, or of two that one instruction takes (the last perhaps of one). b_bytes: of B in a
        cache block."""
        steps, block = _quotient(depth, step), k_block(depth) // step
        count = 1 if whole else max(1, _quotient(block * row_bytes, b_bytes))
        return KBlocking(steps, block, max(_quotient(_quotient(block, count), 16) * 16, 1))

    @property
    def sum_blocks(self) -> int:
        """One empty block for K = 0."""
        return max(1, _quotient(self.steps, max(self.sum_block, 1)))

    @property
    def per_sum_block(self) -> int:
        """Cache blocks of a sum's block."""
        return max(1, _quotient(self.sum_block, self.cache_block))

    @property
    def last_sum_block(self) -> int:
        """Length of the last one."""
        return self.steps - (self.sum_blocks - 1) * self.sum_block

    @property
    def cache_blocks(self) -> int:
        """Their number in all of K."""
        last = max(1, _quotient(self.last_sum_block, self.cache_block))
        return (self.sum_blocks - 1) * self.per_sum_block + last

    @property
    def lengths(self) -> frozenset[int]:
        """All lengths that cache blocks have."""
        found, last = set(), self.last_sum_block
        for block in {self.sum_block, last} if self.sum_blocks > 1 else {last}:
            whole = (max(block, 1) - 1) // self.cache_block * self.cache_block
            found |= {min(self.cache_block, block), block - whole}
        return frozenset(found)


def panel_stays_in_l2(problem: Problem, tuning: Gemm) -> bool:
    """Whether a panel of B stays in the second-level cache for a whole block of K: enough rows
    share it, and its own rows do not all want the same few sets of that cache."""
    b, block = problem.b, k_block(problem.size[2])
    apart = math.gcd(b.inner * b.buffer.dtype.itemsize, tuning.l2_set_bytes)
    fits = block * apart <= tuning.l2_set_rows * tuning.l2_set_bytes
    return tuning.panels_in_l2 and fits and problem.size[0] >= tuning.l2_least_rows


def register_tile(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """(vectors per panel, tiles of rows): the cheapest tile whose accumulators stay in registers.

    A tile of h rows x v vectors needs h*v accumulators, v registers for B and one for A. Where
    tiles follow each other it also prefetches what comes next, and of 32 registers LLVM then wants
    one more: 9 x 3 spills in some of those.
    """
    best: tuple[float, int, int] | None = None
    needed = max(1, -(-columns // lanes))
    for tile_vectors in (3, 2, 4, 1, 6, 8):
        if tile_vectors > needed and tile_vectors > 1:
            continue
        most = (registers - 2 - tile_vectors) // tile_vectors
        if rows > most and registers == 32:
            most = (registers - 3 - tile_vectors) // tile_vectors
        for tile_rows in range(min(most, max(rows, 1)), 0, -1):
            if 2 * tile_rows * tile_vectors < registers - 2 and tile_rows < min(rows, most):
                break
            row_tiles = -(-rows // tile_rows)
            cost = _register_tile_cost(rows, row_tiles, needed, tile_vectors)
            if best is None or cost < best[0] * 0.999:
                best = cost, tile_vectors, row_tiles
    if best is None:
        return 1, max(rows, 1)
    return best[1], max(best[2], 1)


def _register_tile_cost(rows: int, row_tiles: int, needed: int, tile_vectors: int) -> float:
    """Cycles per step of k for all rows and columns, with two FMA and two loads a cycle."""
    tile_rows, tall_tiles = divmod(rows, max(row_tiles, 1))
    full, rest = divmod(needed, tile_vectors)
    cost = 0.0
    for wide, count in ((tile_vectors, full), (rest, 1 if rest else 0)):
        for high, times in ((tile_rows + 1, tall_tiles), (tile_rows, row_tiles - tall_tiles)):
            work = max(high * wide / 2, (high + wide) / 2, 4.0, 2.0 * wide)
            cost += count * times * (work + 0.1 * wide + 0.05 * high)
        if row_tiles > 1:
            cost += count * 0.5 * wide  # packing; an only block reads B where it lies
    # Two heights mean two copies of the micro-kernel to compile and to keep in cache.
    return cost * (1.01 if tall_tiles else 1.0)


def _most_unit_rows(problem: Problem, tuning: Gemm, k_step: int) -> int:
    """Rows of a unit: more where packing B takes longer, as it is transposed or comes from afar."""
    slow = problem.b.outer != 1 or panel_stays_in_l2(problem, tuning)
    rows = k_step * (tuning.slow_unit_rows if slow else tuning.unit_rows)
    row_bytes = k_block(problem.size[2]) * problem.a.buffer.dtype.itemsize
    return min(rows, max(tuning.unit_a_bytes // max(row_bytes, 1), 1))


def _units(
    flops: float,
    batch: int,
    rows: int,
    row_tiles: int,
    panels: int,
    unit_rows: int,
    shared: int,
    sharing: int,
    wanted: int,
    tuning: Gemm,
) -> tuple[int, int, int]:
    """(batch elements, tiles of rows, panels) per unit. shared: panels that should share what a
    unit packs of A, of which there are `wanted`; 0: it packs nothing."""
    time = max(flops / tuning.flops_per_ns, 100.0)
    if time <= tuning.unit_ns:
        return max(1, min(batch, int(tuning.unit_ns / time))), row_tiles, max(panels, 1)
    row_units = max(1, -(-rows // unit_rows))
    if not shared:
        # Few panels: cut the rows too, while a packed panel still serves enough of them.
        groups = batch * _quotient(panels, sharing)
        while (units := groups * row_units) < tuning.row_units:
            scarce = units < tuning.scarce_units
            if rows / (row_units + 1) < (tuning.scarce_rows if scarce else tuning.least_rows):
                break
            row_units += 1
    unit_tiles = -(-row_tiles // row_units)
    if shared:
        groups = min(_quotient(wanted, batch * row_units), max(panels // shared, 1))
        if batch * row_units * groups < wanted and batch * row_units % 2:
            groups = _quotient(groups, 2) * 2
        return 1, unit_tiles, _multiple(_quotient(max(panels, 1), groups), sharing)
    panel_time = time * unit_tiles / max(row_tiles, 1) / max(panels, 1)
    wanted = max(sharing, int(min(tuning.unit_ns / max(panel_time, 1.0), panels)))
    return 1, unit_tiles, max(1, min(panels, _multiple(wanted, sharing)))


def _multiple(count: int, of: int) -> int:
    return _quotient(count, of) * of


def packs_a_panels(problem: Problem, lanes: int, tuning: Gemm) -> bool:
    """Whether packing A into panels of a tile's rows pays.

    Rows that lie side by side: in place every step of k is another line, and often another page, of
    which a tile takes a part; the copy pays where enough panels of columns share it, or where steps
    of k all fall into one place of the first-level cache. Rows that have k side by side: where more
    share it and the rows of a tile all fall into one place, and a square of `lanes` can be
    transposed.
    """
    a, (rows, columns, k) = problem.a, problem.size
    apart = max(a.inner, a.outer) * a.buffer.dtype.itemsize
    collides = apart % ALIAS_BYTES == 0 and apart > 0
    if min(rows, k) < tuning.a_panel_least:
        return False
    if a.inner == 1:
        transposes = a.outer > 1 and lanes <= MOST_TRANSPOSED
        return transposes and collides and columns >= tuning.a_transposed_columns
    return a.outer == 1 and (collides or columns >= tuning.a_panel_columns)


def b_fits_l1(problem: Problem, tuning: Gemm) -> bool:
    """Whether all of B, of one batch element, stays in the first-level cache where it lies."""
    b, k = problem.b, problem.size[2]
    same = b.buffer.dtype == problem.dtype
    size = b.inner * k * problem.dtype.itemsize
    return same and b.outer == 1 and 0 < size <= tuning.l1_b_bytes
