"""Which kernels go over their rows in a pipeline, and in what sweeps.

    c0 = sum of x[i, j] over j                     sweep 0, on row r
    c1 = sum of f(x[i, j], c0) over j              sweep 1, on row r - 1     all in one loop over j
    out[i, j] = g(x[i, j], c0, c1) for all j       sweep 2, on row r - 2

Sweep after sweep, memory idles while a row in the caches is worked on, and the core while a row
comes from memory. In one loop, each sweep a row behind the one before, both go at an even pace
(float32 of 128 MB, one core of an Emerald Rapids: layer norm 13.2 -> 11.5 ms of the plain loop's
13.2, its gradient 23.8 -> 19.2 of 18.7).
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.axes import axes_of_stage
from fxad.backend.llvm.base.schedule import Schedule, has_function, weight_of
from fxad.backend.llvm.base.traffic import (
    FIRST,
    SECOND,
    RowPrefetch,
    next_rows,
)
from fxad.backend.llvm.base.tuning import Rows
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.loops.fused_map import FusedMap, fused_into
from fxad.core.record import record, replace
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS


@record
class Sweep:
    """One loop over a row, and what is done at the row's end.

    stage: the loop, along `axis`; fused: a Map that is part of it; points: stages without axes that
    follow. prefetches: of next rows, done in it.
    """

    stage: ir.Map | ir.Reduce
    axis: ir.Axis
    fused: FusedMap | None
    points: tuple[ir.Stage, ...]
    prefetches: tuple[RowPrefetch, ...] = ()

    @property
    def stages(self) -> list[ir.Stage]:
        """All of them, in the kernel's order."""
        return [*([self.fused.stage] if self.fused else []), self.stage, *self.points]


def row_sweeps(stages: Sequence[ir.Stage], schedule: Schedule) -> list[Sweep]:
    """The sweeps over a row, where going over rows in a pipeline is possible and worth it."""
    if schedule.lane_axis is not None or not schedule.outer:
        return []
    found, tuning = _parted(stages, schedule), schedule.tuning
    if (
        not 2 <= len(found) <= tuning.passes
        or not _fit(found, schedule)
        or not _in_step(found, schedule)
    ):
        return []
    rows = next_rows([(p.stages, p.axis) for p in found], schedule)
    prefetches = [one for here in rows for one in here]
    if not any(_comes_slowly(one, tuning) for one in prefetches):
        return []
    if tuning.crosses_pages and _crowd(found, prefetches):
        return []
    together, alone = _row_bytes(found, schedule)
    fresh, longest = sum(map(_bytes, prefetches)), max(map(_bytes, prefetches))
    short = longest < tuning.long
    wide = alone <= tuning.nearest if short else together - fresh > tuning.rereads * longest
    if wide and together > tuning.nearest:
        return []
    crowded = short and together + fresh > tuning.crowded and not tuning.crosses_pages
    rows = [_in_levels(here, schedule, crowded, len(prefetches) == 1) for here in rows]
    return [replace(p, prefetches=here) for p, here in zip(found, rows, strict=True)]


def _row_bytes(sweeps: Sequence[Sweep], schedule: Schedule) -> tuple[int, int]:
    """Bytes of the rows that are underway in a pipeline, and of one row's sweep after sweep.

    Results are streamed to memory, and a row of scratch makes room for the next one as it is read.
    """
    used: dict[ir.Buffer, list[int]] = {}
    varies: set[ir.Buffer] = set()
    for number, load in ((n, e) for n, p in enumerate(sweeps) for s in p.stages for e in _loads(s)):
        used.setdefault(load.buffer, []).append(number)
        if load.buffer.role == "in" and load.index.coefficient(schedule.outer[-1]) != 0:
            varies.add(load.buffer)
    extent = schedule.extent(sweeps[0].axis)
    together = alone = 0
    for buffer, numbers in used.items():
        size = min(extent, buffer.size) * buffer.dtype.itemsize
        alone += size
        together += size * (max(numbers) - min(numbers) + 1 if buffer in varies else 1)
    return together, alone


def _crowd(sweeps: Sequence[Sweep], prefetches: Sequence[RowPrefetch]) -> bool:
    """Whether two rows and more that come from memory are read again by sweeps that do little else.

    In one loop they and what streams by take each other's place in the first-level cache; sweep
    after sweep, the processor that reads ahead of light sweeps waits less (Zen 5, gradients over
    1024 of layer norm 5.7 -> 4.6 ms, RMS norm 4.9 -> 4.5; of softmax, whose exponentials take
    time, 4.3 in one loop and 4.9).
    """
    if any(has_function(stage) for p in sweeps for stage in p.stages):
        return False
    readers = [{e.buffer for s in p.stages for e in _loads(s)} for p in sweeps]
    fetched = {p.buffer for p in prefetches}
    return sum(sum(one in read for read in readers) > 1 for one in fetched) > 1


def _in_levels(
    rows: tuple[RowPrefetch, ...], schedule: Schedule, crowded: bool, single: bool
) -> tuple[RowPrefetch, ...]:
    """Lines that follow the present one, in the first-level cache; before that in the second the
    next rows, if the first is crowded, or what is `farther` of a single array. Short rows with
    others between them are prefetched one row ahead."""
    found, tuning = [], schedule.tuning
    for prefetch in rows:
        step = prefetch.row.coefficient(schedule.outer[-1]) or 0
        if crowded:
            found += [_ahead(prefetch, step, tuning.distance, FIRST)]
            found += [replace(prefetch, level=SECOND)]
        elif step != prefetch.extent and _bytes(prefetch) < tuning.long:
            found += [prefetch]
        else:
            near = tuning.midway if single and tuning.crosses_pages else tuning.near
            found += [_ahead(prefetch, step, near, FIRST)]
            found += [_ahead(prefetch, step, tuning.farther, SECOND)] * single
    return tuple(found)


def _ahead(prefetch: RowPrefetch, step: int, nbytes: int, level: int) -> RowPrefetch:
    """So many bytes on from the present row, which begins `step` elements before the next one."""
    start = prefetch.row.const - step + nbytes // prefetch.buffer.dtype.itemsize
    return replace(prefetch, row=ir.Index(start, prefetch.row.terms), level=level)


def _comes_slowly(prefetch: RowPrefetch, tuning: Rows) -> bool:
    """Whether a pipeline gains. Short rows that a cache of the processor's holds come as fast sweep
    after sweep (8192 x 768: 2.3 ms, in a pipeline 2.6; 64 x 50257: 2.2 and 1.7)."""
    buffer = prefetch.buffer
    return _bytes(prefetch) >= tuning.long or buffer.size * buffer.dtype.itemsize >= tuning.streamed


def _bytes(prefetch: RowPrefetch) -> int:
    """Of a row."""
    return prefetch.extent * prefetch.buffer.dtype.itemsize


def _parted(stages: Sequence[ir.Stage], schedule: Schedule) -> list[Sweep]:
    """The stages in sweeps; none where one of them is of another kind."""
    found: list[Sweep] = []
    fused: FusedMap | None = None
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        axis = schedule.own_axis(stage)
        into_next = fused_into(stage, following, schedule) if following else None
        if isinstance(stage, ir.Map | ir.Reduce) and axis is not None:
            if into_next is None:
                found.append(Sweep(stage, axis, fused, ()))
            fused = into_next
        elif isinstance(stage, ir.Map) and found and _is_point(stage, schedule):
            found[-1] = replace(found[-1], points=(*found[-1].points, stage))
        else:
            return []
    return found


def _is_point(stage: ir.Stage, schedule: Schedule) -> bool:
    return all(schedule.extent(a) == 1 for a in axes_of_stage(stage))


def _fit(sweeps: Sequence[Sweep], schedule: Schedule) -> bool:
    """Whether all go by the same vectors, and what they add up finds room in registers."""
    (width, *others) = {_width(p, schedule) for p in sweeps}
    extents = {schedule.extent(p.axis) for p in sweeps}
    if others or width == 1 or len(extents) > 1 or max(extents) < 4 * PARTIALS:
        return False
    reduces = [p.stage for p in sweeps if isinstance(p.stage, ir.Reduce)]
    cells = [c for stage in reduces for c in stage.cells]
    if any(stage.monoid in monoids.ARGS for stage in reduces) or any(
        c.dtype.kind == "c" for c in cells
    ):
        return False
    return len(cells) * (PARTIALS // width) <= schedule.target.registers // 2


def _width(p: Sweep, schedule: Schedule) -> int:
    if isinstance(p.stage, ir.Reduce):
        return schedule.reduce_width(p.stage, p.axis)
    light = weight_of(p.stage) <= schedule.target.tuning.loops.one_function
    return schedule.lanes_of(p.stage, p.axis)[0] if light else 1


def _in_step(sweeps: Sequence[Sweep], schedule: Schedule) -> bool:
    """Whether what a sweep leaves in a buffer is read by itself or the next one, place by place,
    so that the row after it can have the buffer as it goes; results are not read at all."""
    writers: dict[ir.Buffer, int] = {}
    for number, stage in ((n, stage) for n, p in enumerate(sweeps) for stage in p.stages):
        axis = schedule.own_axis(stage)
        for load in _loads(stage):
            behind = number - writers.get(load.buffer, -len(sweeps))
            if load.buffer.role != "in" and (behind > 1 or not _is_place(load.index, axis)):
                return False
        for store in ir.stores_of(stage):
            fits = store.buffer.role == "out" or _is_place(store.index, axis)
            if not fits or writers.setdefault(store.buffer, number) != number:
                return False
    return True


def _is_place(index: ir.Index, axis: ir.Axis | None) -> bool:
    return index.const == 0 and index.terms == ((axis, 1),)


def _loads(stage: ir.Stage) -> list[ir.Load]:
    return [e for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)]
