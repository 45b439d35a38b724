"""How a matrix product is cut: register tile, blocks of K, and units of parallel work.

    problem = Problem.of(kernel)              # sizes and strides, lanes along the stored unit axis
    cut = Cut.of(problem, target)             # f32 256x2304x768 on AVX-512: tiles of 8 x 48
    cut.units

Nothing here changes a result: each element sums K in the order that `ir.kernel.Contract` fixes,
whichever tile, unit or thread it falls into.
"""

from __future__ import annotations

import math

import numpy as np

from fxad.backend.llvm.base.choices import MODEL, Choice
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.tuning import Gemm
from fxad.core.errors import CheckError
from fxad.core.record import replace, valued
from fxad.ir.kernel import Axis, Buffer, Contract, Index, Kernel, Load, Store, exprs_of, walk
from fxad.ir.orders import k_block

FLOPS_PER_NS = 100.0
_UNIT_NS = 8_000.0  # below this, handing work to a thread costs more than it brings
_SETS_BYTES = 1 << 17  # lines so far apart share a set of second-level caches
UNROLL = 4  # steps of k in a turn of a micro-kernel's loop


def _quotient(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


@valued
class Matrix:
    """An operand or result as a matrix of elements: `base` over the grid, two strides.

    outer: stride along m for the left operand and results, along n for the right operand.
    inner: stride along k for operands, along n for results.
    """

    buffer: Buffer
    base: Index
    outer: int
    inner: int


def matrix(buffer: Buffer, index: Index, outer: Axis, inner: Axis) -> Matrix | None:
    """The matrix that `index` walks over outer and inner; None where it is not affine in them."""
    strides = index.coefficient(outer), index.coefficient(inner)
    if strides[0] is None or strides[1] is None:
        return None
    base = Index(index.const, tuple((a, c) for a, c in index.terms if a not in (outer, inner)))
    return Matrix(buffer, base, strides[0], strides[1])


@valued
class Problem:
    """A contract kernel with its rows and columns named so that columns are the lanes.

    `rows` and `columns` are the stage's m and n, or n and m where that makes the first store
    contiguous along the lanes: products commute, so the bits are the same.
    """

    kernel: Kernel
    stage: Contract
    rows: Axis
    columns: Axis
    a: Matrix
    b: Matrix

    @staticmethod
    def of(kernel: Kernel) -> Problem:
        """Raises CheckError where an operand is not affine in the stage's axes."""
        (stage,) = kernel.body
        if not isinstance(stage, Contract):
            raise CheckError(f"{kernel.name}: expected one Contract stage, got {type(stage)}")
        m, n = stage.m, stage.n
        left, right = stage.a, stage.b
        out = stage.stores[0].index
        if out.coefficient(m) == 1 and out.coefficient(n) != 1:
            m, n, left, right = n, m, right, left
        a = matrix(left.buffer, left.index, m, stage.k)
        b = matrix(right.buffer, right.index, n, stage.k)
        if a is None or b is None:
            raise CheckError(f"{kernel.name}: an operand is not affine in its matrix axes")
        if n.extent == 1:
            b = replace(b, outer=1)  # the stride of an only column says nothing
        return Problem(kernel, stage, m, n, a, b)

    @property
    def dtype(self) -> np.dtype:
        """The accumulator's dtype."""
        return self.stage.cell.dtype

    @property
    def size(self) -> tuple[int, int, int]:
        return self.rows.extent, self.columns.extent, self.stage.k.extent

    @property
    def flops(self) -> float:
        """Of one batch element."""
        return 2.0 * math.prod(self.size)

    @property
    def b_bytes(self) -> int:
        """Of one batch element of B."""
        return self.size[1] * self.size[2] * self.b.buffer.dtype.itemsize

    def plain_result(self) -> Matrix | None:
        """The first store's matrix, if partial sums can live in it.

        It must have the accumulator's dtype and a place of its own for every element, contiguous
        along the lanes; be unguarded; and be read by nothing.
        """
        store = self.stage.stores[0]
        found = matrix(store.buffer, store.index, self.rows, self.columns)
        others = [e.buffer for root in exprs_of(self.stage) for e in walk(root) if type(e) is Load]
        others += [other.buffer for other in self.stage.stores[1:]]
        rows, columns, _ = self.size
        if (
            found is None
            or store.guard is not None
            or store.buffer.dtype != self.dtype
            or store.buffer in others
            or (found.inner != 1 and columns > 1)
            or (abs(found.outer) < columns and rows > 1)
        ):
            return None
        return found

    def is_identity(self, store: Store) -> bool:
        """Does the store write the accumulated value as it is?"""
        return getattr(store.value, "cell", None) is self.stage.cell


@valued
class Cut:
    """Tiles, blocks and units of one problem.

    far: A is too large for a second-level cache, so that several panels should share a piece of it.
    group: panels of B that are brought into that cache together, piece by piece.
    joins: units side by side that a thread takes at once are done as one: no sums wait in scratch
    for all their columns. So units may be narrow, and threads that differ in speed end together.

    Rows come in `blocks`: the first `long_blocks` of `height + 1` rows, the others of `height`.
    Columns come in `panels` of `vectors` registers, then a narrower one of `tail` columns (0:
    none). A unit is `unit_batch` batch elements x `unit_blocks` row blocks x `unit_panels`
    panels; units number the panel groups fastest, then the row chunks, then the batch groups.
    """

    lanes: int
    vectors: int
    panels: int
    tail: int
    height: int
    blocks: int
    long_blocks: int
    unit_batch: int
    unit_blocks: int
    unit_panels: int
    batch: int
    far: bool = False
    group: int = 1
    joins: bool = False

    @staticmethod
    def of(
        problem: Problem,
        target: Target,
        packed: int = 0,
        swept: bool = False,
        choice: Choice = MODEL,
        k_step: int = 1,
    ) -> Cut:
        """packed: steps of k of A that are packed at once; 0: it is read in place. swept: the
        epilogue follows a whole unit. choice: what was measured. k_step: steps of k that one
        instruction takes: of two, a row of A takes half the place, and packing a panel of B twice
        as long beside its products, so that twice the rows share one and half as many are a group.
        """
        rows, columns, k = problem.size
        lanes, tuning = target.lanes(problem.dtype), target.tuning.gemm
        vectors, blocks = tile_of(rows, columns, lanes, target.registers)
        if choice.vectors:
            vectors = min(choice.vectors, max(1, _quotient(columns, lanes)))
            blocks = max(1, _quotient(rows, choice.height))
        panels, tail = divmod(columns, vectors * lanes)
        height, long_blocks = divmod(rows, blocks)
        batch = problem.kernel.points
        chunk, most = choice.rows or _chunk_rows(problem, tuning, k_step), tuning.swept(k)
        if packed:
            near = tuning.packed_a_bytes * k_step // (packed * problem.dtype.itemsize)
            chunk = max(min(near, chunk), height + 1)
        if swept:
            chunk = max(min(chunk, most[0]), height + 1)
        in_l2 = panels_in_l2(problem, tuning)
        deep = k_block(k) if in_l2 else k  # a block of K is all that panels share
        bytes_of_a = min(rows, chunk) * deep * problem.a.buffer.dtype.itemsize
        far = not packed and bytes_of_a > tuning.far_a_bytes
        count = panels + (tail > 0)
        grouped = problem.b.outer == 1 and blocks > 1 and not in_l2
        group = max(1, min(tuning.most_group // k_step, panels // 4)) if grouped else 1
        joins = not swept and problem.plain_result() is not None
        sharing = max(group, min(tuning.sharing, count // 2)) if far and not joins else group
        shared = tuning.packed_panels // k_step if packed or swept else 0
        wanted = tuning.units if shared else 0
        per_unit = _units(problem.flops, batch, rows, blocks, count, chunk, shared, sharing, wanted)
        tile = lanes, vectors, panels, tail, height, blocks, long_blocks
        cut = Cut(*tile, *per_unit, batch, far, group, joins)
        if swept:
            groups = _quotient(cut.unit_panels * cut.width, most[1])
            cut = replace(cut, unit_panels=_quotient(cut.unit_panels, groups))
        return cut

    @property
    def width(self) -> int:
        """Columns of a full panel."""
        return self.vectors * self.lanes

    @property
    def all_panels(self) -> int:
        return self.panels + (self.tail > 0)

    @property
    def heights(self) -> tuple[int, ...]:
        """Numbers of rows that blocks have, longest first."""
        found = [self.height + 1] * (self.long_blocks > 0)
        return (*found, *[self.height] * (self.long_blocks < self.blocks))

    @property
    def main_height(self) -> int:
        """The more frequent of the heights."""
        return self.height + (2 * self.long_blocks > self.blocks)

    @property
    def chunk_rows(self) -> int:
        """Most rows of a unit."""
        return self.unit_blocks * max(self.heights)

    @property
    def panel_groups(self) -> int:
        return -(-self.all_panels // self.unit_panels)

    @property
    def chunks(self) -> int:
        return -(-self.blocks // self.unit_blocks)

    @property
    def units(self) -> int:
        return -(-self.batch // self.unit_batch) * self.chunks * self.panel_groups


@valued
class Pieces:
    """K cut into blocks of `block`, which are summed alone and then added, and those into pieces
    of `piece`, which only say what lies in the first-level cache: a tile's sums wait in between.
    """

    size: int
    block: int
    piece: int

    @staticmethod
    def of(size: int, row_bytes: int, whole: bool, near: int, step: int = 1) -> Pieces:
        """row_bytes: of a panel of B; whole: K blocks are not cut. All lengths are in steps: of
        one k, or of two that one instruction takes (the last perhaps of one). near: bytes of B in
        a piece."""
        size, block = _quotient(size, step), k_block(size) // step
        count = 1 if whole else max(1, _quotient(block * row_bytes, near))
        return Pieces(size, block, max(_quotient(_quotient(block, count), 16) * 16, 1))

    @property
    def blocks(self) -> int:
        """One empty block for K = 0."""
        return max(1, _quotient(self.size, max(self.block, 1)))

    @property
    def in_block(self) -> int:
        return max(1, _quotient(self.block, self.piece))

    @property
    def last_block(self) -> int:
        """Length of the last block."""
        return self.size - (self.blocks - 1) * self.block

    @property
    def count(self) -> int:
        return (self.blocks - 1) * self.in_block + max(1, _quotient(self.last_block, self.piece))

    @property
    def depths(self) -> frozenset[int]:
        """All lengths that pieces have."""
        found = set()
        for block in {self.block, self.last_block} if self.blocks > 1 else {self.last_block}:
            found |= {
                min(self.piece, block),
                block - (max(block, 1) - 1) // self.piece * self.piece,
            }
        return frozenset(found)


def panels_in_l2(problem: Problem, tuning: Gemm) -> bool:
    """Whether a panel of B stays in the second-level cache for a whole block of K: enough rows
    share it, and its own rows do not all want the same few sets of that cache."""
    b, block = problem.b, k_block(problem.size[2])
    apart = math.gcd(b.inner * b.buffer.dtype.itemsize, _SETS_BYTES)
    fits = block * apart <= tuning.rows_in_set * _SETS_BYTES
    return tuning.panels_in_l2 and fits and problem.size[0] >= tuning.whole_rows


def tile_of(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int]:
    """(vectors per panel, row blocks): the cheapest tile whose accumulators stay in registers.

    A tile of h rows x v vectors needs h*v accumulators, v registers for B and one for A. Where
    blocks follow each other it also asks for what comes next, and of 32 registers LLVM then wants
    one more: 9 x 3 spills in some of those.
    """
    best: tuple[float, int, int] | None = None
    needed = max(1, -(-columns // lanes))
    for vectors in (3, 2, 4, 1, 6, 8):
        if vectors > needed and vectors > 1:
            continue
        most = (registers - 2 - vectors) // vectors
        if rows > most and registers == 32:
            most = (registers - 3 - vectors) // vectors
        for height in range(min(most, max(rows, 1)), 0, -1):
            if 2 * height * vectors < registers - 2 and height < min(rows, most):
                break
            blocks = -(-rows // height)
            cost = _sweep_cost(rows, blocks, needed, vectors)
            if best is None or cost < best[0] * 0.999:
                best = cost, vectors, blocks
    if best is None:
        return 1, max(rows, 1)
    return best[1], max(best[2], 1)


def _sweep_cost(rows: int, blocks: int, needed: int, vectors: int) -> float:
    """Cycles per step of k for all rows and columns, with two FMA and two loads a cycle."""
    height, long_blocks = divmod(rows, max(blocks, 1))
    full, rest = divmod(needed, vectors)
    cost = 0.0
    for wide, count in ((vectors, full), (rest, 1 if rest else 0)):
        for high, times in ((height + 1, long_blocks), (height, blocks - long_blocks)):
            work = max(high * wide / 2, (high + wide) / 2, 4.0, 2.0 * wide)
            cost += count * times * (work + 0.1 * wide + 0.05 * high)
        if blocks > 1:
            cost += count * 0.5 * wide  # packing; an only block reads B where it lies
    # Two heights mean two copies of the micro-kernel to compile and to keep in cache.
    return cost * (1.01 if long_blocks else 1.0)


def _chunk_rows(problem: Problem, tuning: Gemm, k_step: int) -> int:
    """Rows of a unit: more where packing B takes longer, as it is transposed or comes from afar."""
    slow = problem.b.outer != 1 or panels_in_l2(problem, tuning)
    rows = k_step * (tuning.far_chunk_rows if slow else tuning.chunk_rows)
    row_bytes = k_block(problem.size[2]) * problem.a.buffer.dtype.itemsize
    return min(rows, max(tuning.chunk_bytes // max(row_bytes, 1), 1))


def _units(
    flops: float,
    batch: int,
    rows: int,
    blocks: int,
    panels: int,
    chunk_rows: int,
    shared: int,
    sharing: int,
    wanted: int,
) -> tuple[int, int, int]:
    """(batch elements, row blocks, panels) per unit. shared: panels that should share what a unit
    packs of A, of which there are `wanted`; 0: it packs nothing."""
    time = max(flops / FLOPS_PER_NS, 100.0)
    if time <= _UNIT_NS:
        return max(1, min(batch, int(_UNIT_NS / time))), blocks, max(panels, 1)
    chunks = max(1, -(-rows // chunk_rows))
    if not shared:
        # Few panels: cut the rows too, while a packed panel still serves enough of them.
        groups = batch * _quotient(panels, sharing)
        while groups * chunks < 16 and rows / (chunks + 1) >= (96 if groups * chunks < 8 else 192):
            chunks += 1
    unit_blocks = -(-blocks // chunks)
    if shared:
        groups = min(_quotient(wanted, batch * chunks), max(panels // shared, 1))
        if batch * chunks * groups < wanted and batch * chunks % 2:
            groups = _quotient(groups, 2) * 2
        return 1, unit_blocks, _multiple(_quotient(max(panels, 1), groups), sharing)
    panel_time = time * unit_blocks / max(blocks, 1) / max(panels, 1)
    wanted = max(sharing, int(min(_UNIT_NS / max(panel_time, 1.0), panels)))
    return 1, unit_blocks, max(1, min(panels, _multiple(wanted, sharing)))


def _multiple(count: int, of: int) -> int:
    return _quotient(count, of) * of
