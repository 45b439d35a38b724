"""What a kernel is compiled for, and how its grid is cut up.

    target = Target("avx512", frozenset({"bf16_pairs"}))
    target.lanes(np.dtype("float32")) == 16

A schedule decides which axis becomes vector lanes and how many grid points make one unit of
work. It never changes a result: the bits depend on the kernel alone.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fxad.backend.llvm.base.axes import (
    axes_of_stage,
    in_lanes,
    merged_extents,
)
from fxad.backend.llvm.base.choices import NONE, Choices
from fxad.backend.llvm.base.order_cost import order_cost
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.tuning import DEFAULT, Rows, Tuning
from fxad.core.record import record, replace, valued
from fxad.ir import kernel as ir
from fxad.ir.prims import PRIMS

ABI = (("ptr", "args"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch"))
# The same, to be called from Python; pointers are addresses.
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_BYTES = {"avx512": 64, "avx2": 32, "neon": 16, "generic": 16}
_REGISTERS = {"avx512": 32, "avx2": 16, "neon": 32, "generic": 16}


@valued
class Target:
    """An instruction set (avx512, avx2, neon or generic), capabilities such as bf16_pairs, what was
    measured of matrix products, and what suits the kind of processor."""

    isa: str
    features: frozenset[str] = frozenset()
    choices: Choices = NONE
    tuning: Tuning = DEFAULT

    @property
    def vector_bytes(self) -> int:
        """Width of one vector register."""
        return _BYTES[self.isa]

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return _REGISTERS[self.isa]

    def tuned(self, **tables: Mapping[str, Any]) -> Target:
        """The same with other numbers of tuning: target.tuned(gemv={"prefetch_level": 0})."""
        return replace(self, tuning=self.tuning.with_("changed", None, **tables))

    def lanes(self, dtype: np.dtype) -> int:
        """Elements of `dtype` in one vector register; half-width floats compute as float32."""
        size = 4 if dtype.name in ("float16", "bfloat16") else dtype.itemsize
        return max(1, self.vector_bytes // size)


@valued
class Emitted:
    """LLVM IR of one kernel, `void (ptr args, i64 begin, i64 end, ptr scratch)`: `ABI`.

    text: the function and its private helpers (named `<name>.*`), no declarations, no attribute
    groups. declarations: the `declare` lines it needs. units: independent pieces of work that a
    call can do any range of. scratch_bytes: private storage each calling thread brings, 64-byte
    aligned. cost: rough nanoseconds of the whole kernel on one core.
    """

    name: str
    text: str
    declarations: frozenset[str]
    units: int
    scratch_bytes: int
    cost: float


def emit_nothing(name: str) -> Emitted:
    """A kernel that has no points or no results: no units of work."""
    function = Function(name, "void", ABI)
    function.ret()
    return Emitted(name, str(function), frozenset(), 0, 0, 0.0)


# ---------------------------------------------------------------- choice


def power_of_two_at_least(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


@functools.cache
def register_size(dtype: np.dtype) -> int:
    """Bytes a lane takes in a register; bools and narrow floats differ from memory."""
    if dtype.kind == "c":
        return dtype.itemsize // 2
    if dtype.name in ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return 4
    return dtype.itemsize


@record
class Schedule:
    """How one kernel is laid out.

    extents: trips of axes that were merged (the outer of two merged axes has 1). lane_axis: the
    grid axis that is vectorised, None where single grid points are (then stages vectorise their
    own axes). outer: the other grid axes. width, unroll: of the lane axis. A unit is `rows` outer
    points, or where `blocks` > 1 one block of `block` positions of the lane axis.
    """

    target: Target
    extents: dict[ir.Axis, int]
    outer: tuple[ir.Axis, ...]
    lane_axis: ir.Axis | None = None
    inner: ir.Axis | None = None
    width: int = 1
    unroll: int = 1
    rows: int = 1
    block: int = 0
    blocks: int = 1
    units: int = 0
    cost: float = 0.0

    @property
    def tuning(self) -> Rows:
        """What suits the kind of processor."""
        return self.target.tuning.rows

    @property
    def lanes(self) -> ir.Axis:
        """The lane axis, of a schedule that has one."""
        assert self.lane_axis is not None
        return self.lane_axis

    def extent(self, axis: ir.Axis) -> int:
        return self.extents.get(axis, axis.extent)

    @property
    def inner_blocks(self) -> int:
        """Blocks of `inner_block` positions of the inner axis; they count as an outer axis."""
        block = self.target.tuning.loops.inner_block
        return 1 if self.inner is None else -(-self.extent(self.inner) // block)

    @property
    def outer_points(self) -> int:
        return math.prod(self.extent(a) for a in self.outer) * self.inner_blocks

    def own_axis(self, stage: ir.Stage) -> ir.Axis | None:
        """The only axis of a stage, along which it goes in vectors."""
        axes = [a for a in axes_of_stage(stage) if self.extent(a) != 1]
        return (
            axes[0] if len(axes) == 1 and (isinstance(stage, ir.Map) or in_lanes(stage)) else None
        )

    def lanes_of(self, stage: ir.Stage, axis: ir.Axis) -> tuple[int, int]:
        """(lanes, vectors per iteration) of a stage's own inner axis."""
        size = stage_size((stage,), axis)
        return lanes_for(size, (stage,), self.extent(axis), self.target)

    def reduce_width(self, stage: ir.Reduce, axis: ir.Axis) -> int:
        """Lanes of a vector of partials along an axis: a power of two up to 64."""
        extent = self.extent(axis)
        width = max(2, self.target.vector_bytes // stage_size((stage,), axis))
        return min(width, 64, power_of_two_at_least(extent))


def lanes_for(
    size: int, stages: Sequence[ir.Stage], extent: int, target: Target
) -> tuple[int, int]:
    """Lanes for elements of `size` bytes over an axis, and how many vectors are done at a time.

    Of light bodies four, so that the loop itself costs little. Of one with a function in it as many
    as registers allow: interleaved, they wait less for each other. Half as many more of a function
    that is a long chain: registers kept in memory cost less than waiting.
    """
    width = min(max(2, target.vector_bytes // size), power_of_two_at_least(extent))
    weight, tuning = sum(map(weight_of, stages)), target.tuning.loops
    unroll, least_trips = tuning.unroll, 1
    if weight > tuning.light:
        few = weight <= tuning.one_function
        unroll, least_trips = (target.registers // 8 if few else 1), tuning.least_trips
    if unroll > 1 and any(_has_chain(stage) for stage in stages):
        unroll += unroll // 2
    while unroll > 1 and width * unroll * least_trips > extent:
        unroll //= 2
    return width, unroll


def stage_size(stages: Iterable[ir.Stage], lanes: ir.Axis | None = None) -> int:
    """Bytes of the widest element that the stages compute with; lanes: in vectors along it."""
    size = 1
    for stage in stages:
        varying: set[int] = set()
        for e in ir.walk(*ir.exprs_of(stage)):
            if lanes is None or _varies(e, lanes, varying):
                varying.add(id(e))
                if not isinstance(e, ir.IndexValue | ir.Const):
                    size = max(size, register_size(e.dtype))
        for store in ir.stores_of(stage):
            size = max(size, register_size(store.buffer.dtype))
        if isinstance(stage, ir.Reduce):
            size = max(size, *(register_size(v.dtype) for v in stage.values))
    return size


def _varies(e: ir.Expr, lanes: ir.Axis, varying: set[int]) -> bool:
    """Whether lanes may differ, given which expressions below do so."""
    if isinstance(e, ir.Get) or any(id(child) in varying for child in ir.children(e)):
        return True
    return isinstance(e, ir.Load | ir.IndexValue) and e.index.coefficient(lanes) != 0


def weight_of(stage: ir.Stage) -> int:
    """Rough number of instructions at one point."""
    weight = 2 * len(ir.stores_of(stage))
    for e in ir.walk(*ir.exprs_of(stage)):
        if isinstance(e, ir.Prim):
            weight += PRIMS[e.name].instructions
        elif isinstance(e, ir.Load | ir.Cast | ir.IndexValue):
            weight += 2
    return weight


def has_function(stage: ir.Stage) -> bool:
    """Whether a function of many instructions is computed at each point, of what memory holds."""
    long = [e for e in _prims(stage) if PRIMS[e.name].instructions > 1]
    return any(isinstance(e, ir.Load) for one in long for e in ir.walk(*one.args))


def _has_chain(stage: ir.Stage) -> bool:
    return any(PRIMS[e.name].chain for e in _prims(stage))


def _prims(stage: ir.Stage) -> list[ir.Prim]:
    return [e for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Prim)]


def crosses(access: ir.Load | ir.Store, lanes: ir.Axis | None, axis: ir.Axis | None) -> bool:
    """Are neighbours along `axis` side by side in memory, and those along `lanes` apart?"""
    if lanes is None or axis is None or access.guard is not None:
        return False
    if access.buffer.dtype.kind == "c" or access.index.coefficient(axis) != 1:
        return False
    return access.index.coefficient(lanes) not in (None, 0, 1)


def _few(stage: ir.Reduce, target: Target) -> int:
    """Positions that are done one by one at a vector of grid points: where rows of them do not
    fill a vector, unless gathers cannot fetch such elements."""
    loads = [e for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)]
    narrow = any(load.buffer.dtype.itemsize < 4 for load in loads)
    few = target.tuning.loops.few
    return few if narrow else max(few, target.lanes(stage.cells[0].dtype) - 1)


def _sums_few(kernel: ir.Kernel, schedule: Schedule, target: Target) -> bool:
    """Whether all that a kernel does over axes of its own is to reduce a few positions."""
    return all(
        bool(stage.over)
        and 0 < schedule.extent(stage.over[-1]) <= _few(stage, target)
        and stage.monoid not in ("argmin", "argmax")
        and stage.cells[0].dtype.kind != "c"
        if isinstance(stage, ir.Reduce)
        else not axes_of_stage(stage)
        for stage in kernel.body
    )


def _accesses(stage: ir.Stage) -> list[ir.Index]:
    """Indices that touch memory; stores count twice."""
    loads = [e.index for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)]
    return loads + 2 * [s.index for s in ir.stores_of(stage)]


def _smoothness(stages: Iterable[ir.Stage], axis: ir.Axis | None) -> float:
    """Share of memory accesses that need no gather when `axis` makes the lanes."""
    good = total = 0
    for stage in stages:
        for index in _accesses(stage):
            total += 1
            stride = index.coefficient(axis) if axis is not None else None
            good += stride in (0, 1)
    return good / total if total else 0.0


def _grid_axis(kernel: ir.Kernel, grid: list[ir.Axis], extents: dict) -> tuple[ir.Axis, float]:
    """The best grid axis for the lanes and how good it is."""
    best: tuple[ir.Axis, float] = (grid[-1], -1.0)
    for axis in reversed(grid):
        score = _smoothness(kernel.body, axis)
        score *= min(1.0, (extents.get(axis, axis.extent) + 3) / 8)
        if score > best[1]:
            best = (axis, score)
    return best


def _inner_axis(kernel: ir.Kernel, lanes: ir.Axis, grid: list[ir.Axis]) -> ir.Axis | None:
    """The axis along which most gathers of a map kernel find neighbouring elements."""
    if kernel.kind != "map" or any(isinstance(s, ir.Map) and s.axes for s in kernel.body):
        return None
    gathered = [
        e.index
        for s in kernel.body
        for e in ir.walk(*ir.exprs_of(s))
        if isinstance(e, ir.Load) and e.index.coefficient(lanes) not in (None, 0, 1)
    ]
    counts = [(sum(i.coefficient(a) == 1 for i in gathered), n) for n, a in enumerate(grid)]
    count, number = max(counts)
    return grid[number] if count else None


def _own_score(kernel: ir.Kernel) -> float:
    """How good it is to vectorise the stages' own inner axes."""
    scores = []
    for stage in kernel.body:
        axes = [a for a in axes_of_stage(stage) if a.extent != 1]
        if axes and isinstance(stage, ir.Map | ir.Scatter):
            scores.append(_smoothness((stage,), axes[-1]))
        elif axes:
            scores.append(0.0)
    return math.fsum(scores) / len(scores) if scores else 0.0


def choose(kernel: ir.Kernel, target: Target, scalar: bool = False) -> Schedule:
    """Lay out a kernel of any kind but contract. scalar: one unit, one grid point after another."""
    extents = merged_extents(kernel)
    grid = [a for a in kernel.grid if extents.get(a, a.extent) != 1]
    schedule = Schedule(target, extents, tuple(grid))
    if scalar:
        return replace(schedule, rows=schedule.outer_points, units=1, cost=20.0)
    sums = any(map(in_lanes, kernel.body)) and not _sums_few(kernel, schedule, target)
    single = kernel.scratch or sums or any(isinstance(s, ir.Sort) for s in kernel.body)
    if grid and not single:
        axis, score = _grid_axis(kernel, grid, extents)
        if score >= _own_score(kernel):
            schedule = _in_lanes_of(kernel, schedule, axis, grid)
    return _with_units(kernel, schedule)


def _in_lanes_of(
    kernel: ir.Kernel, schedule: Schedule, axis: ir.Axis, grid: list[ir.Axis]
) -> Schedule:
    """The schedule with an axis of the grid as its lanes."""
    inner = _inner_axis(kernel, axis, grid)
    outer = tuple(a for a in grid if a not in (axis, inner))
    size, extent, target = stage_size(kernel.body, axis), schedule.extent(axis), schedule.target
    width, unroll = lanes_for(size, kernel.body, extent, target)
    chosen = replace(schedule, lane_axis=axis, inner=inner, outer=outer, width=width, unroll=unroll)
    if not _has_tiles(kernel, chosen):
        return chosen
    return replace(chosen, width=min(width, target.tuning.loops.tile_width), unroll=1)


def _has_tiles(kernel: ir.Kernel, s: Schedule) -> bool:
    """Is any stage done in tiles along its own last axis, or along the schedule's inner one?"""
    for stage in kernel.body:
        axes = [a for a in axes_of_stage(stage) if s.extent(a) != 1]
        axis = axes[-1] if axes and isinstance(stage, ir.Map | ir.Scan) else s.inner
        accesses: list[ir.Load | ir.Store] = list(ir.stores_of(stage))
        accesses += [e for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)]
        if any(crosses(access, s.lane_axis, axis) for access in accesses):
            return True
    return False


def _with_units(kernel: ir.Kernel, s: Schedule) -> Schedule:
    """The schedule with units of about `unit_elements` inner points, and the cost of it all."""
    per_point = sum(math.prod(a.extent for a in axes_of_stage(stage)) for stage in kernel.body)
    if s.inner is not None:
        per_point *= min(s.extent(s.inner), s.target.tuning.loops.inner_block)
    points = max(1, s.tuning.unit_elements // max(per_point, 1))
    outer = s.outer_points
    lane_extent = s.extent(s.lane_axis) if s.lane_axis is not None else 1
    step = s.width * s.unroll
    cost = math.fsum(_stage_cost(stage, s) for stage in kernel.body) * kernel.points
    if lane_extent > points and lane_extent > step:
        block = (points + step - 1) // step * step
        blocks = -(-lane_extent // block)
        return replace(s, block=block, blocks=blocks, units=outer * blocks, cost=cost)
    rows = max(1, points // max(lane_extent, 1))
    return replace(s, rows=rows, units=-(-outer // rows) if lane_extent else 0, cost=cost)


def _stage_cost(stage: ir.Stage, s: Schedule) -> float:
    """Nanoseconds at one grid point."""
    tuning = s.target.tuning.loops
    trips = math.prod(a.extent for a in axes_of_stage(stage))
    axes = [a for a in axes_of_stage(stage) if a.extent != 1]
    own = axes[-1] if axes and isinstance(stage, ir.Map | ir.Reduce) else None
    axis = s.lane_axis or own
    lanes = s.target.vector_bytes // stage_size((stage,)) if axis is not None else 1
    gathers = sum(i.coefficient(axis) not in (0, 1) for i in _accesses(stage)) if axis else 0
    each = tuning.instruction_ns * weight_of(stage) / max(lanes, 1)
    each += tuning.access_ns * len(_accesses(stage))
    each += tuning.gather_ns * gathers
    if isinstance(stage, ir.Sort):
        return stage.axis.extent * each + order_cost(stage)
    return trips * each
