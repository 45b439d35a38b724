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
from fxad.ir.kernel import Contract, Kernel, Map, Reduce, Scan, Scatter, Sort, Stage
from fxad.ir.orders import PARTIALS, k_block


class BlockStages(Stages):
    """Emits stages for a block of side * side threads; `lane` is the thread's number in it."""

    def __init__(self, kernel: Kernel, side: int) -> None:
        super().__init__(kernel, local="cuda.local.array")
        self.side = side
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
        """Number of side x side tiles of the product."""
        return -(-stage.m.extent // self.side) * -(-stage.n.extent // self.side)

    def contract(self, stage: Contract) -> None:
        tile = self.fresh("g")
        with self.block(f"for {tile} in range({self.tiles(stage)}):"):
            self.tile(stage, tile)

    def tile(self, stage: Contract, tile: str) -> None:
        """One tile: an element for each thread, operands shared through small squares."""
        side, cell = self.side, stage.cell
        across = max(-(-stage.n.extent // side), 1)
        a, b = self.fresh("a"), self.fresh("a")
        for name in (a, b):
            kind = array_type(cell.dtype)
            self.header.append(f"{name} = cuda.shared.array({side * side}, {kind})")
        row, column = self.define(f"lane // {side}"), self.define(f"lane % {side}")
        m = self.names[stage.m] = self.define(f"{tile} // {across} * {side} + {row}", "i")
        n = self.names[stage.n] = self.define(f"{tile} % {across} * {side} + {column}", "i")
        total = self.define(zero(cell), "c")
        extent, step = stage.k.extent, max(k_block(stage.k.extent), 1)
        start, part, at = self.fresh("k"), self.fresh("p"), self.fresh("k")
        with self.block(f"for {start} in range(0, {extent}, {step}):"):
            self.line(f"{part} = {zero(cell)}")
            stop = self.define(f"min({start} + {step}, {extent})", "k")
            with self.block(f"for {at} in range({start}, {stop}, {side}):"):
                self.fetch(stage, a, stage.a, f"{m} < {stage.m.extent}", f"{at} + {column}", stop)
                self.fetch(stage, b, stage.b, f"{n} < {stage.n.extent}", f"{at} + {row}", stop)
                self.barrier()
                inner = self.fresh("k")
                with self.block(f"for {inner} in range(min({side}, {stop} - {at})):"):
                    left, right = (
                        f"{a}[{row} * {side} + {inner}]",
                        f"{b}[{inner} * {side} + {column}]",
                    )
                    self.line(f"{part} = {multiply_add(left, right, part, cell)}")
                self.barrier()
            self.add_block(cell, total, part, start)
        self.names[cell] = total
        with (
            self.block(f"if {m} < {stage.m.extent} and {n} < {stage.n.extent}:"),
            self.scope(),
        ):
            self.store_all(stage.stores)

    def fetch(
        self, stage: Contract, square: str, operand, inside: str, position: str, stop: str
    ) -> None:
        """This thread's element of an operand's square; out of range is never read back."""
        k = self.names[stage.k] = self.define(position, "i")
        with self.block(f"if {inside} and {k} < {stop}:"):
            self.line(f"{square}[lane] = {self.operand(operand, stage.cell)}")
