"""The stages of a kernel by one CUDA block for each grid point.

    code = BlockStages(kernel, side=8)   # 64 threads: one for each lane of a reduction
    code.stage(stage)

Threads meet at a barrier after every stage, so what one stage stores the next one may load.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fxad.backend.numba.stages import (
    Stages,
    array_type,
    multiply_add,
    zero,
)
from fxad.ir.kernel import (
    Axis,
    Contract,
    Kernel,
    Map,
    Operand,
    Reduce,
    Scan,
    Scatter,
    Sort,
    Stage,
)
from fxad.ir.orders import PARTIALS, k_block


class BlockStages(Stages):
    """Emits stages for a block of side * side threads; `lane` is the thread's number in it.

    each: a thread computes each * each elements of a tile of a matrix product.
    """

    def __init__(self, kernel: Kernel, side: int, each: int = 1) -> None:
        super().__init__(kernel, local="cuda.local.array")
        self.side, self.each, self.edge = side, each, side * each
        self.threads = side * side

    def stage(self, stage: Stage) -> None:
        super().stage(stage)
        self.barrier()

    def barrier(self) -> None:
        self.line("cuda.syncthreads()")

    def map(self, stage: Map) -> None:
        """The points go round the threads."""
        points, point = math.prod(a.extent for a in stage.axes), self.fresh("p")
        with (
            self.block(f"for {point} in range(lane, {points}, {self.threads}):"),
            self.scope(),
        ):
            self.split(point, stage.axes)
            self.store_all(stage.stores)

    def scan(self, stage: Scan) -> None:
        self.alone(super().scan, stage)

    def scatter(self, stage: Scatter) -> None:
        self.alone(super().scatter, stage)

    def sort(self, stage: Sort) -> None:
        self.alone(super().sort, stage)

    def alone(self, emit: Callable[..., None], stage: Stage) -> None:
        """A sequential stage is one thread's."""
        with self.block("if lane == 0:"):
            emit(stage)

    # A serial reduction is done by every thread for itself (inherited): they all need its result.

    def reduce_lanes(self, stage: Reduce) -> None:
        """Thread l makes partial l; shared memory carries the halving."""
        shared = self.lane_arrays(stage.cells, "cuda.shared.array")
        with self.scope():
            partials = [self.define(v, "p") for v in self.identities(stage)]
            last = stage.over[-1]
            with self.loops(stage.over[:-1]):
                name = self.names[last] = self.fresh("i")
                with self.block(f"for {name} in range(lane, {last.extent}, {PARTIALS}):"):
                    self.take_point(stage, partials)
        for array, partial in zip(shared, partials, strict=True):
            self.line(f"{array}[lane] = {partial}")
        self.barrier()
        half = self.define(str(PARTIALS // 2), "h")
        with self.block(f"while {half} > 0:"):
            with self.block(f"if lane < {half}:"):
                self.fold(stage, shared, "lane", half)
            self.line(f"{half} = {half} // 2")
            self.barrier()
        self.name_cells(stage.cells, [f"{array}[0]" for array in shared])

    # ------------------------------------------------------------ matrix products

    def tiles(self, stage: Contract) -> int:
        """Number of edge x edge tiles of the product."""
        return -(-stage.m.extent // self.edge) * -(-stage.n.extent // self.edge)

    def contract(self, stage: Contract) -> None:
        tile = self.fresh("g")
        with self.block(f"for {tile} in range({self.tiles(stage)}):"):
            self.tile(stage, tile)

    def tile(self, stage: Contract, tile: str) -> None:
        """One tile: `side` steps of k of both operands at a time go through shared memory, from
        which a thread reads `each` elements of either for each * each multiply-adds in registers.
        Its rows and columns lie `side` apart, so that neighbours read neighbours."""
        side, cell = self.side, stage.cell
        # One line more than the edge: columns of squares begin in different banks of memory.
        pitch = self.edge + 1
        a, b = self.fresh("a"), self.fresh("a")
        for name in (a, b):
            kind = array_type(cell.dtype)
            self.header.append(f"{name} = cuda.shared.array({side * pitch}, {kind})")
        across = max(-(-stage.n.extent // self.edge), 1)
        row, column = self.define(f"lane // {side}"), self.define(f"lane % {side}")
        first_m = self.define(f"{tile} // {across} * {self.edge}", "i")
        first_n = self.define(f"{tile} % {across} * {self.edge}", "i")
        pairs = [(i, j) for i in range(self.each) for j in range(self.each)]
        totals = [self.define(zero(cell), "c") for _ in pairs]
        parts = [self.fresh("p") for _ in pairs]
        extent, step = stage.k.extent, max(k_block(stage.k.extent), 1)
        start, at = self.fresh("k"), self.fresh("k")
        with self.block(f"for {start} in range(0, {extent}, {step}):"):
            for part in parts:
                self.line(f"{part} = {zero(cell)}")
            stop = self.define(f"min({start} + {step}, {extent})", "k")
            with self.block(f"for {at} in range({start}, {stop}, {side}):"):
                self.fetch(stage, a, stage.a, (stage.m, first_m), (at, stop))
                self.fetch(stage, b, stage.b, (stage.n, first_n), (at, stop))
                self.barrier()
                inner = self.fresh("k")
                with self.block(f"for {inner} in range(min({side}, {stop} - {at})):"):
                    places = [f"{inner} * {pitch} + {side * i}" for i in range(self.each)]
                    left = [self.define(f"{a}[{p} + {row}]") for p in places]
                    right = [self.define(f"{b}[{p} + {column}]") for p in places]
                    for part, (i, j) in zip(parts, pairs, strict=True):
                        self.line(f"{part} = {multiply_add(left[i], right[j], part, cell)}")
                self.barrier()
            for total, part in zip(totals, parts, strict=True):
                self.add_block(cell, total, part, start)
        self.finish(stage, totals, (f"{first_m} + {row}", f"{first_n} + {column}"))

    def finish(self, stage: Contract, totals: list[str], place: tuple[str, str]) -> None:
        """The epilogue of a thread's elements, the first of which lies at this row and column."""
        if len(totals) == 1:
            self.store_element(stage, totals[0], place)
            return
        kept, element = self.fresh("a"), self.fresh("g")
        kind = array_type(stage.cell.dtype)
        self.header.append(f"{kept} = cuda.local.array({len(totals)}, {kind})")
        for i, total in enumerate(totals):
            self.line(f"{kept}[{i}] = {total}")
        with self.block(f"for {element} in range({len(totals)}):"):
            down, right = f"{element} // {self.each}", f"{element} % {self.each}"
            there = f"{place[0]} + {down} * {self.side}", f"{place[1]} + {right} * {self.side}"
            self.store_element(stage, f"{kept}[{element}]", there)

    def store_element(self, stage: Contract, total: str, place: tuple[str, str]) -> None:
        m = self.names[stage.m] = self.define(place[0], "i")
        n = self.names[stage.n] = self.define(place[1], "i")
        self.names[stage.cell] = self.define(total, "c")
        with (
            self.block(f"if {m} < {stage.m.extent} and {n} < {stage.n.extent}:"),
            self.scope(),
        ):
            self.store_all(stage.stores)

    def fetch(
        self,
        stage: Contract,
        shared: str,
        operand: Operand,
        rows: tuple[Axis, str],
        steps: tuple[str, str],
    ) -> None:
        """Steps of k, from the first up to the last, of an operand's rows from the first on, into
        shared memory, k by k. Out of range nothing is read and nothing read back. Threads that
        follow each other go along k where that is how the operand lies in memory."""
        (axis, first), (at, stop) = rows, steps
        along_k = operand.index.coefficient(stage.k) == 1
        length = self.side if along_k else self.edge
        element = self.fresh("g")
        with (
            self.block(f"for {element} in range(lane, {self.side * self.edge}, {self.threads}):"),
            self.scope(),
        ):
            fast = self.define(f"{element} % {length}", "i")
            slow = self.define(f"{element} // {length}", "i")
            step, row = (fast, slow) if along_k else (slow, fast)
            m = self.names[axis] = self.define(f"{first} + {row}", "i")
            k = self.names[stage.k] = self.define(f"{at} + {step}", "i")
            with self.block(f"if {m} < {axis.extent} and {k} < {stop}:"):
                value = self.operand(operand, stage.cell)
                self.line(f"{shared}[{step} * {self.edge + 1} + {row}] = {value}")
