"""The stages of a kernel as plain loops: one grid point's work, in order.

code = Stages(kernel)
code.stage(kernel.body[0])
print("\\n".join(code.lines))
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from fxad.backend.numba import formats
from fxad.backend.numba.code import Code
from fxad.backend.numba.monoids import ARG, FAR, combine, identity
from fxad.core import dtypes
from fxad.ir.kernel import (
    Axis,
    Cell,
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


class Stages(Code):
    """Emits every stage sequentially. `local` makes small arrays: `local(64, dtype)`."""

    def __init__(self, kernel: Kernel, local: str = "np.empty") -> None:
        super().__init__(kernel)
        self.local = local
        self.scratch: list[tuple[str, np.dtype, int]] = [
            (self.names[b], formats.storage(b.dtype), b.size) for b in kernel.scratch
        ]
        self._copy: str | None = None

    def offset_scratch(self, number: str) -> None:
        """Scratch arrays hold one copy for every value of `number`: use that one."""
        self._copy = number
        for buffer in self.kernel.scratch:
            offset = self.fresh("q")
            self.header.append(f"{offset} = {number} * {buffer.size}")
            self.offsets[buffer] = offset

    def stage(self, stage: Stage) -> None:
        match stage:
            case Map():
                self.map(stage)
            case Reduce():
                self.reduce(stage)
            case Scan():
                self.scan(stage)
            case Scatter():
                self.scatter(stage)
            case Sort():
                self.sort(stage)
            case Contract():
                self.contract(stage)
            case _:
                raise TypeError(f"not a stage: {stage!r}")

    def map(self, stage: Map) -> None:
        with self.loops(stage.axes):
            self.store_all(stage.stores)

    # ------------------------------------------------------------ reductions

    def reduce(self, stage: Reduce) -> None:
        if stage.order == "lanes" and stage.over:
            self.reduce_lanes(stage)
        elif stage.order in ("lanes", "serial"):
            self.reduce_serial(stage)
        else:
            raise ValueError(f"unknown order of a reduction: {stage.order!r}")

    def reduce_serial(self, stage: Reduce) -> None:
        totals = [self.define(v, "p") for v in self.identities(stage)]
        with self.loops(stage.over):
            self.take_point(stage, totals)
        self.name_cells(stage.cells, totals)

    def reduce_lanes(self, stage: Reduce) -> None:
        partials = self.lane_arrays(stage.cells, self.local)
        lane = self.fresh("l")
        with self.block(f"for {lane} in range({PARTIALS}):"):
            for name, value in zip(partials, self.identities(stage), strict=True):
                self.line(f"{name}[{lane}] = {value}")
        with self.loops(stage.over):
            self.line(f"{lane} = {self.names[stage.over[-1]]} % {PARTIALS}")
            self.take_point(stage, [f"{p}[{lane}]" for p in partials])
        half = self.define(str(PARTIALS // 2), "h")
        with self.block(f"while {half} > 0:"):
            with self.block(f"for {lane} in range({half}):"):
                self.fold(stage, partials, lane, half)
            self.line(f"{half} = {half} // 2")
        self.name_cells(stage.cells, [f"{p}[0]" for p in partials])

    def lane_arrays(self, cells: Sequence[Cell], make: str) -> list[str]:
        """Declare one array of 64 per cell at the kernel's top."""
        arrays = []
        for cell in cells:
            arrays.append(self.fresh("a"))
            # One declaration a line: CUDA's simulator tells shared arrays apart by their line.
            self.header.append(f"{arrays[-1]} = {make}({PARTIALS}, {array_type(cell.dtype)})")
        return arrays

    def identities(self, stage: Reduce) -> list[str]:
        values = [identity(stage.monoid, c.dtype) for c in stage.cells]
        if stage.monoid in ARG:
            empty = any(a.extent == 0 for a in stage.over)
            values[1] = f"i64({0 if empty else FAR})"
        return values

    def name_cells(self, cells: Sequence[Cell], totals: Sequence[str]) -> None:
        """Cells hold the accumulated totals, rounded to their dtypes."""
        for cell, total in zip(cells, totals, strict=True):
            self.names[cell] = self.define(formats.rounded(total, cell.dtype), "c")

    def take_point(self, stage: Reduce, targets: Sequence[str]) -> None:
        """Combine the values at the current point of `over` into the targets."""
        if stage.monoid in ARG:
            cell = stage.cells[0]
            value = self.define(self.converted(stage.values[0], cell.dtype))
            self.accumulate(stage, targets, [value, f"i64({self.position(stage.over)})"])
            return
        pairs = zip(stage.values, stage.cells, strict=True)
        self.accumulate(stage, targets, [self.converted(v, c.dtype) for v, c in pairs])

    def fold(self, stage: Reduce, partials: Sequence[str], lane: str, half: str) -> None:
        targets = [f"{p}[{lane}]" for p in partials]
        self.accumulate(stage, targets, [f"{p}[{lane} + {half}]" for p in partials])

    def accumulate(self, stage: Reduce, targets: Sequence[str], values: Sequence[str]) -> None:
        if stage.monoid in ARG:
            (best, at), (value, position) = targets, values
            test = f"outranks({ARG[stage.monoid]}, {value}, {position}, {best}, {at})"
            with self.block(f"if {test}:"):
                self.line(f"{best} = {value}")
                self.line(f"{at} = {position}")
            return
        for target, value, cell in zip(targets, values, stage.cells, strict=True):
            self.line(f"{target} = {combine(stage.monoid, target, value, cell.dtype)}")

    def position(self, axes: Sequence[Axis]) -> str:
        """Row-major position of the current point of `axes`."""
        text = "0"
        for axis in axes:
            text = f"({text}) * {axis.extent} + {self.names[axis]}"
        return text

    # ------------------------------------------------------------ scan, scatter, sort

    def scan(self, stage: Scan) -> None:
        cell, extent = stage.cell, stage.axis.extent
        total = self.define(identity(stage.monoid, cell.dtype), "p")
        steps = f"range({extent - 1}, -1, -1)" if stage.reverse else f"range({extent})"
        axis = self.names[stage.axis] = self.fresh("i")
        with self.block(f"for {axis} in {steps}:"):
            with self.scope():
                value = self.converted(stage.value, cell.dtype)
                self.line(f"{total} = {combine(stage.monoid, total, value, cell.dtype)}")
            with self.scope():
                self.name_cells((cell,), (total,))
                self.store_all(stage.stores)

    def scatter(self, stage: Scatter) -> None:
        store, dtype = stage.store, stage.store.buffer.dtype
        with self.loops(stage.over), ExitStack() as stack:
            value = self.converted(store.value, dtype)
            element = self.element(store.buffer, store.index)
            if store.guard is not None:
                stack.enter_context(self.block(f"if {self.value(store.guard)}:"))
            if stage.monoid != "set":
                old = self.define(formats.load(element, dtype))
                new = combine(stage.monoid, old, self.define(value), dtype)
                value = formats.rounded(new, dtype)
            self.line(f"{element} = {formats.store(value, dtype)}")

    def sort(self, stage: Sort) -> None:
        """Bottom-up merge sort of positions: stable, no recursion."""
        extent = stage.axis.extent
        operands = [self.work_array(extent, formats.carrier(e.dtype)) for e in stage.operands]
        order, spare = (self.work_array(extent, np.dtype("int64")) for _ in range(2))
        with self.loops((stage.axis,)):
            axis = self.names[stage.axis]
            for array, operand in zip(operands, stage.operands, strict=True):
                self.line(f"{array.format(axis)} = {self.value(operand)}")
            self.line(f"{order.format(axis)} = {axis}")
        width = self.define("1", "w")
        with self.block(f"while {width} < {extent}:"):
            self.merge_pass(stage, operands, order, spare, width)
            self.line(f"{width} = {width} * 2")
        with self.loops((stage.stored,)):
            source = self.define(order.format(self.names[stage.stored]))
            for cell, array in zip(stage.cells, operands, strict=False):
                self.names[cell] = self.define(array.format(source), "c")
            if stage.largest is not None:
                self.names[stage.cells[-1]] = self.define(f"np.int32({source})", "c")
            self.store_all(stage.stores)

    def merge_pass(
        self, stage: Sort, operands: Sequence[str], order: str, spare: str, width: str
    ) -> None:
        """Merge neighbouring runs of `width` positions."""
        extent, begin = stage.axis.extent, self.fresh("m")
        with self.block(f"for {begin} in range(0, {extent}, 2 * {width}):"):
            middle = self.define(f"min({begin} + {width}, {extent})", "m")
            end = self.define(f"min({begin} + 2 * {width}, {extent})", "m")
            left, right = self.define(begin, "m"), self.define(middle, "m")
            place = self.fresh("m")
            with self.block(f"for {place} in range({begin}, {end}):"):
                take = self.define(f"{right} < {end}")
                with self.block(f"if {take} and {left} < {middle}:"):
                    a, b = self.define(order.format(right)), self.define(order.format(left))
                    keys = zip(operands[: stage.keys], stage.operands, strict=False)
                    if stage.largest is not None:
                        a, b = b, a
                    pairs = [(o.format(a), o.format(b), e.dtype) for o, e in keys]
                    self.line(f"{take} = {_precedes(pairs)}")
                with self.block(f"if {take}:"):
                    self.line(f"{spare.format(place)} = {order.format(right)}")
                    self.line(f"{right} = {right} + 1")
                with self.block("else:"):
                    self.line(f"{spare.format(place)} = {order.format(left)}")
                    self.line(f"{left} = {left} + 1")
        with self.block(f"for {begin} in range({extent}):"):
            self.line(f"{order.format(begin)} = {spare.format(begin)}")

    def work_array(self, extent: int, dtype: np.dtype) -> str:
        """Bring an array of scratch; returns an element's text with {} for the position."""
        name = self.fresh("t")
        self.scratch.append((name, dtype, extent))
        if self._copy is None:
            return f"{name}[{{}}]"
        offset = self.fresh("q")
        self.header.append(f"{offset} = {self._copy} * {extent}")
        return f"{name}[{offset} + {{}}]"

    # ------------------------------------------------------------ matrix products

    def contract(self, stage: Contract) -> None:
        with self.loops((stage.m, stage.n)):
            total = self.fresh("c")
            self.line(f"{total} = {zero(stage.cell)}")
            step, extent = max(k_block(stage.k.extent), 1), stage.k.extent
            start, part = self.fresh("k"), self.fresh("p")
            with self.block(f"for {start} in range(0, {extent}, {step}):"):
                self.line(f"{part} = {zero(stage.cell)}")
                axis = self.names[stage.k] = self.fresh("i")
                stop = f"min({start} + {step}, {extent})"
                with self.block(f"for {axis} in range({start}, {stop}):"):
                    a, b = self.operand(stage.a, stage.cell), self.operand(stage.b, stage.cell)
                    self.line(f"{part} = {multiply_add(a, b, part, stage.cell)}")
                self.add_block(stage.cell, total, part, start)
            self.names[stage.cell] = total
            self.store_all(stage.stores)

    def operand(self, operand: Operand, cell: Cell) -> str:
        """An element of a matrix as the accumulator's dtype."""
        value = self.read(operand.buffer, operand.index)
        value = formats.cast(value, operand.buffer.dtype, operand.dtype)
        return formats.cast(value, operand.dtype, cell.dtype)

    def add_block(self, cell: Cell, total: str, part: str, start: str) -> None:
        """The first block is the total so far: adding it to 0 could lose the sign of a zero."""
        both = combine("add", total, part, cell.dtype)
        self.line(f"{total} = {part} if {start} == 0 else {both}")


def zero(cell: Cell) -> str:
    return formats.literal(0, cell.dtype)


def multiply_add(a: str, b: str, c: str, cell: Cell) -> str:
    """a * b + c in the accumulator's dtype: fused for floats, wrapping for integers."""
    register = formats.register(cell.dtype)
    if dtypes.is_bool(cell.dtype):
        return f"(({a} and {b}) or {c})"
    if dtypes.is_complex(cell.dtype):
        return f"{register}(cfma({a}, {b}, {c}))"
    if dtypes.is_integer(cell.dtype):
        return f"{register}({a} * {b} + {c})"
    return f"fma({a}, {b}, {c})"


def array_type(dtype: np.dtype) -> str:
    """Name of the dtype of an array of carriers."""
    return "np.bool_" if dtypes.is_bool(dtype) else formats.register(dtype)


def _precedes(pairs: Sequence[tuple[str, str, np.dtype]]) -> str:
    """Lexicographic order of the keys' (a, b) pairs."""
    a, b, dtype = pairs[0]
    before = "cbefore" if dtypes.is_complex(dtype) else "before"
    if len(pairs) == 1:
        return f"{before}({a}, {b})"
    return f"({before}({a}, {b}) or (not {before}({b}, {a}) and {_precedes(pairs[1:])}))"
