"""Which kernels go over their rows in a pipeline, and in what passes.

    c0 = sum of x[i, j] over j                     pass 0, on row r
    c1 = sum of f(x[i, j], c0) over j              pass 1, on row r - 1     all in one loop over j
    out[i, j] = g(x[i, j], c0, c1) for all j       pass 2, on row r - 2

Pass after pass, memory idles while a row in the caches is worked on, and the core while a row comes
from memory. In one loop, each pass a row behind the one before, both go at an even pace (float32 of
128 MB, one core of an Emerald Rapids: layer norm 13.2 -> 11.5 ms of the plain loop's 13.2, its
gradient 23.8 -> 19.2 of 18.7).
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.axes import axes_of_stage
from fxad.backend.llvm.base.schedule import Schedule, has_function, weight_of
from fxad.backend.llvm.base.traffic import (
    FIRST,
    SECOND,
    Asked,
    next_rows,
)
from fxad.backend.llvm.base.tuning import Rows
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.loops.fed import Fed, fed_by
from fxad.core.record import record, replace
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS


@record
class Pass:
    """One loop over a row, and what is done at the row's end.

    stage: the loop, along `axis`; fed: a Map done in it; points: stages without axes that follow.
    asked: next rows that are asked for in it.
    """

    stage: ir.Map | ir.Reduce
    axis: ir.Axis
    fed: Fed | None
    points: tuple[ir.Stage, ...]
    asked: tuple[Asked, ...] = ()

    @property
    def stages(self) -> list[ir.Stage]:
        """All of them, in the kernel's order."""
        return [*([self.fed.stage] if self.fed else []), self.stage, *self.points]


def passes_of(stages: Sequence[ir.Stage], schedule: Schedule) -> list[Pass]:
    """The passes over a row, where going over rows in a pipeline is possible and worth it."""
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
    asked = [one for found_here in rows for one in found_here]
    if not any(_comes_slowly(one, tuning) for one in asked):
        return []
    if tuning.crosses_pages and _crowd(found, asked):
        return []
    together, alone = _row_bytes(found, schedule)
    fresh, longest = sum(map(_bytes, asked)), max(map(_bytes, asked))
    short = longest < tuning.long
    wide = alone <= tuning.nearest if short else together - fresh > tuning.again * longest
    if wide and together > tuning.nearest:
        return []
    crowded = short and together + fresh > tuning.crowded and not tuning.crosses_pages
    rows = [_in_levels(here, schedule, crowded, len(asked) == 1) for here in rows]
    return [replace(p, asked=here) for p, here in zip(found, rows, strict=True)]


def _row_bytes(passes: Sequence[Pass], schedule: Schedule) -> tuple[int, int]:
    """Bytes of the rows that are underway in a pipeline, and of one row's pass after pass.

    Results go past the caches, and a row of scratch makes room for the next one as it is read.
    """
    used: dict[ir.Buffer, list[int]] = {}
    varies: set[ir.Buffer] = set()
    for number, load in ((n, e) for n, p in enumerate(passes) for s in p.stages for e in _loads(s)):
        used.setdefault(load.buffer, []).append(number)
        if load.buffer.role == "in" and load.index.coefficient(schedule.outer[-1]) != 0:
            varies.add(load.buffer)
    extent = schedule.extent(passes[0].axis)
    together = alone = 0
    for buffer, numbers in used.items():
        size = min(extent, buffer.size) * buffer.dtype.itemsize
        alone += size
        together += size * (max(numbers) - min(numbers) + 1 if buffer in varies else 1)
    return together, alone


def _crowd(passes: Sequence[Pass], asked: Sequence[Asked]) -> bool:
    """Whether two rows and more that come from memory are read again by passes that do little else.

    In one loop they and what streams by take each other's place in the first-level cache; pass
    after pass, the processor that reads ahead of light passes waits less (Zen 5, gradients over
    1024 of layer norm 5.7 -> 4.6 ms, RMS norm 4.9 -> 4.5; of softmax, whose exponentials take
    time, 4.3 in one loop and 4.9).
    """
    if any(has_function(stage) for p in passes for stage in p.stages):
        return False
    readers = [{e.buffer for s in p.stages for e in _loads(s)} for p in passes]
    return sum(sum(one in read for read in readers) > 1 for one in {a.buffer for a in asked}) > 1


def _in_levels(
    rows: tuple[Asked, ...], schedule: Schedule, crowded: bool, single: bool
) -> tuple[Asked, ...]:
    """Lines that follow the present one, in the first-level cache; before that in the second the
    next rows, if the first is crowded, or what is `farther` of a single array. Short rows with
    others between them are asked for one row ahead."""
    found, tuning = [], schedule.tuning
    for asked in rows:
        step = asked.row.coefficient(schedule.outer[-1]) or 0
        if crowded:
            found += [_ahead(asked, step, tuning.distance, FIRST), replace(asked, level=SECOND)]
        elif step != asked.extent and _bytes(asked) < tuning.long:
            found += [asked]
        else:
            near = tuning.midway if single and tuning.crosses_pages else tuning.near
            found += [_ahead(asked, step, near, FIRST)]
            found += [_ahead(asked, step, tuning.farther, SECOND)] * single
    return tuple(found)


def _ahead(asked: Asked, step: int, nbytes: int, level: int) -> Asked:
    """So many bytes on from the present row, which begins `step` elements before the next one."""
    start = asked.row.const - step + nbytes // asked.buffer.dtype.itemsize
    return replace(asked, row=ir.Index(start, asked.row.terms), level=level)


def _comes_slowly(asked: Asked, tuning: Rows) -> bool:
    """Whether a pipeline gains. Short rows that a cache of the processor's holds come as fast pass
    after pass (8192 x 768: 2.3 ms, in a pipeline 2.6; 64 x 50257: 2.2 and 1.7)."""
    buffer = asked.buffer
    return _bytes(asked) >= tuning.long or buffer.size * buffer.dtype.itemsize >= tuning.streamed


def _bytes(asked: Asked) -> int:
    """Of a row."""
    return asked.extent * asked.buffer.dtype.itemsize


def _parted(stages: Sequence[ir.Stage], schedule: Schedule) -> list[Pass]:
    """The stages in passes; none where one of them is of another kind."""
    found: list[Pass] = []
    fed: Fed | None = None
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        axis = schedule.own_axis(stage)
        feeds = fed_by(stage, following, schedule) if following else None
        if isinstance(stage, ir.Map | ir.Reduce) and axis is not None:
            if feeds is None:
                found.append(Pass(stage, axis, fed, ()))
            fed = feeds
        elif isinstance(stage, ir.Map) and found and _is_point(stage, schedule):
            found[-1] = replace(found[-1], points=(*found[-1].points, stage))
        else:
            return []
    return found


def _is_point(stage: ir.Stage, schedule: Schedule) -> bool:
    return all(schedule.extent(a) == 1 for a in axes_of_stage(stage))


def _fit(passes: Sequence[Pass], schedule: Schedule) -> bool:
    """Whether all go by the same vectors, and what they add up finds room in registers."""
    (width, *others) = {_width(p, schedule) for p in passes}
    extents = {schedule.extent(p.axis) for p in passes}
    if others or width == 1 or len(extents) > 1 or max(extents) < 4 * PARTIALS:
        return False
    reduces = [p.stage for p in passes if isinstance(p.stage, ir.Reduce)]
    cells = [c for stage in reduces for c in stage.cells]
    if any(stage.monoid in monoids.ARGS for stage in reduces) or any(
        c.dtype.kind == "c" for c in cells
    ):
        return False
    return len(cells) * (PARTIALS // width) <= schedule.target.registers // 2


def _width(p: Pass, schedule: Schedule) -> int:
    if isinstance(p.stage, ir.Reduce):
        return schedule.reduce_width(p.stage, p.axis)
    light = weight_of(p.stage) <= schedule.target.tuning.loops.one_function
    return schedule.lanes_of(p.stage, p.axis)[0] if light else 1


def _in_step(passes: Sequence[Pass], schedule: Schedule) -> bool:
    """Whether what a pass leaves in a buffer is read by itself or the next one, place by place,
    so that the row after it can have the buffer as it goes; results are not read at all."""
    writers: dict[ir.Buffer, int] = {}
    for number, stage in ((n, stage) for n, p in enumerate(passes) for stage in p.stages):
        axis = schedule.own_axis(stage)
        for load in _loads(stage):
            behind = number - writers.get(load.buffer, -len(passes))
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
