"""What the functions of one matrix product share: sizes, places in scratch, index arithmetic.

product = Product(problem, "matmul0", target)
product.pieces.count      # pieces of K that a panel of B is brought into cache in
"""

from __future__ import annotations

from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import STREAMING
from fxad.backend.llvm.contract import pack as packing
from fxad.backend.llvm.contract.ahead import Ahead
from fxad.backend.llvm.contract.choice import choice_of
from fxad.backend.llvm.contract.epilogue import Finish
from fxad.backend.llvm.contract.lanes import Lanes
from fxad.backend.llvm.contract.pairs import PairLanes, pairs_stay, takes_pairs
from fxad.backend.llvm.contract.places import a_goes_into_blocks, b_is_near
from fxad.backend.llvm.contract.plan import Cut, Pieces, Problem, panels_in_l2
from fxad.backend.llvm.contract.touch import is_swept, touched
from fxad.backend.llvm.elements.access import Memory
from fxad.core.aligned import LINE, to_line
from fxad.ir.orders import k_block


class Product:
    """State of emitting one kernel.

    While a unit of one batch element is emitted: its `batch` number, its `blocks` of rows, the
    first_row, is_first: whether it is the first of the call, the panels `unit_panels` =
    (first, end), the addresses of a, b and c, and `fresh`: the Mode of the first piece of K.
    """

    f: Function
    memory: Memory
    batch: str
    blocks: tuple[str, str]
    first_row: str
    unit_panels: tuple[str, str]
    is_first: str
    a: str
    b: str
    c: str
    fresh: str

    def __init__(self, problem: Problem, name: str, target: Target) -> None:
        self.problem, self.name, self.target = problem, name, target
        self.tuning = target.tuning.gemm
        blocks = a_goes_into_blocks(problem, target.lanes(problem.dtype), self.tuning)
        self.in_blocks = problem.a.buffer.dtype == problem.dtype and blocks
        in_pairs = takes_pairs(problem, target)
        stay = in_pairs and pairs_stay(problem, target)
        self.packs_a = (problem.a.buffer.dtype != problem.dtype or self.in_blocks) and not stay
        self.swept = is_swept(problem, self.tuning)
        packed = k_block(problem.size[2]) if self.packs_a else 0
        choice = choice_of(problem, target)
        self.k_step = 2 if in_pairs else 1  # of k in one step of the micro-kernel
        self.cut = Cut.of(problem, target, packed, self.swept, choice, self.k_step)
        self.pairs = PairLanes(problem.dtype, self.cut.lanes, stay) if in_pairs else None
        self.lanes = self.pairs or Lanes(problem.dtype, self.cut.lanes)
        self.size = problem.dtype.itemsize
        self._place_b(choice.near)
        self.result = None if self.swept else problem.plain_result()
        self.helpers: dict[str, str] = {}
        stores = problem.stage.stores
        plain = self.result is not None and len(stores) == 1 and problem.is_identity(stores[0])
        self.past = plain and problem.stage.past and self._may_go_past(target)
        self.touched = [] if self.swept or self.past else touched(problem)
        self.finish: Finish | None = None
        if not plain:
            in_place = self.result is not None
            self.finish = Finish(problem, name, target, self.lanes, self.sum_stride, in_place)
        self._place_a()
        self._place_sums()

    @property
    def ends_odd(self) -> bool:
        """Whether the last step of the micro-kernels is one of fewer steps of k."""
        return self.problem.size[2] % self.k_step > 0

    def _may_go_past(self, target: Target) -> bool:
        """Whether stores are much of the work, each sum's is one, and tiles write whole lines. In
        products of more steps of k streaming gains nothing, and who reads them finds them farther
        away."""
        assert self.result is not None
        across = self.result.outer * self.size, self.cut.width * self.size
        whole = all(length % LINE == 0 for length in across)
        few = self.problem.size[2] <= self.tuning.streaming_steps
        return whole and few and self.pieces.blocks == 1 and target.isa in STREAMING

    def _place_b(self, near: int) -> None:
        """In place or in packed panels, how much of K a panel has, and what is asked for ahead."""
        b, cut = self.problem.b, self.cut
        # An only block of rows reads B once, where it lies: nothing of it is kept. A small B is in
        # the first-level cache where it lies.
        once = b.outer == 1 and cut.unit_blocks == 1
        self.direct = (once or b_is_near(self.problem, self.tuning)) and not self.pairs
        self.panel_row = cut.width * self.size
        # Sums wait only where B would otherwise come from the second level too slowly, or be turned
        # on its way there.
        self.in_l2 = panels_in_l2(self.problem, self.tuning)
        deep = self.in_l2 and (b.outer == 1 or self.tuning.turned_in_l2) and not near
        whole, depth = self.direct or deep, self.problem.size[2]
        near = near or self.tuning.near_b_bytes
        self.pieces = Pieces.of(depth, self.panel_row, whole, near, self.k_step)
        self.splits = self.pieces.in_block > 1
        self.panel_bytes = to_line(self.pieces.piece * self.panel_row)
        self.ahead: Ahead | None = None
        if not self.direct:
            self.ahead = Ahead.of(b, cut, self.pieces, self.k_step, self.fuses)
        self.group = cut.group if self.ahead else 1

    def _place_a(self) -> None:
        """Where the micro-kernels read A, as strides (row, k): in place, or in a packed copy."""
        a, cut, self.a_bytes = self.problem.a, self.cut, 0
        self.a_source = packing.Source(a.outer, a.inner, a.buffer.dtype)
        self.a_strides = a.outer // self.k_step, a.inner
        if self.in_blocks:
            # An odd number of lines from one block to the next, so that all of them find a place.
            tall = cut.heights[0]
            self.block_bytes = to_line(self.pieces.block * tall * self.size) | LINE
            self.a_strides = 1, tall
            self.a_bytes = cut.unit_blocks * self.block_bytes
        elif self.packs_a:
            turned = packing.a_is_turned(self.a_source)
            length, lines = cut.chunk_rows, self.pieces.block
            if not turned:
                length, lines = lines, length
            pitch = to_line(length * self.size) | LINE
            apart = pitch // self.size
            self.a_strides = (1, apart) if turned else (apart, 1)
            self.a_bytes = lines * pitch

    def _place_sums(self) -> None:
        """Bytes of sums that no result holds, and of those between two pieces of a block."""
        cut, self.sums_bytes = self.cut, 0
        if self.result is None:
            rows = cut.chunk_rows if self.keeps_sums else max(cut.heights)
            self.sums_bytes = to_line(rows * self.sum_stride * self.size)
        rows = cut.chunk_rows if self.splits else 0
        self.waiting_bytes = to_line(rows * self.panel_row * self.group)

    @property
    def fuses(self) -> bool:
        """Whether the first block of rows copies a panel of B while it reads it."""
        cut, b = self.cut, self.problem.b
        one_first = cut.long_blocks == 0 or cut.chunks == 1
        same = b.buffer.dtype == self.problem.dtype
        return b.outer == 1 and not self.direct and same and one_first

    @property
    def reads_ahead(self) -> bool:
        """Whether a tile prefetches the next tile's part of A: it is too large to stay in cache, or
        so few panels read it that fetching it for the first of them counts (256 x 1024 by 1024 x
        256 in a training step 1.1 times as fast, 1024 x 768 by 768 x 3072 0.97)."""
        rows, _, depth = self.problem.size
        large = rows * depth * self.size >= self.tuning.far_a_bytes
        few = self.cut.all_panels <= self.tuning.few_panels and large
        return (self.cut.far or few) and self.a_strides[1] == 1

    @property
    def keeps_sums(self) -> bool:
        """Whether the sums of a whole unit lie in scratch."""
        return self.result is None and (self.swept or self.pieces.blocks > 1)

    @property
    def sum_stride(self) -> int:
        """Elements between rows of the place where sums are gathered."""
        if self.result is not None:
            return self.result.outer
        if not self.keeps_sums:
            return self.cut.width
        # An odd number of lines, so that all rows of a tile find a place.
        return (self.cut.unit_panels * self.panel_row | LINE) // self.size

    def start(self, f: Function, memory: Memory) -> None:
        """Say where in scratch everything lies; `f` is the kernel's function."""
        self.f, self.memory = f, memory
        self.packed_panel = "%scratch"
        self.packed_a = f.offset("%scratch", self.panel_bytes)
        self.sums = f.offset("%scratch", self.panel_bytes + self.a_bytes)
        self.waiting = f.offset("%scratch", self.panel_bytes + self.a_bytes + self.sums_bytes)

    @property
    def scratch_bytes(self) -> int:
        return self.panel_bytes + self.a_bytes + self.sums_bytes + self.waiting_bytes

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
        return low, self.f.least(self.f.add(low, size), total)

    def row(self, block: str) -> str:
        """First row of a block."""
        long = self.f.least(block, self.cut.long_blocks) if self.cut.long_blocks else "0"
        return self.f.add(self.f.mul(block, self.cut.height), long)
