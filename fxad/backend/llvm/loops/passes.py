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
from fxad.backend.llvm.base.schedule import ONE_FUNCTION, Schedule, has_function, weight_of
from fxad.backend.llvm.base.traffic import (
    DISTANCE,
    FIRST,
    NEAR,
    SECOND,
    STREAMED,
    Asked,
    next_rows,
)
from fxad.backend.llvm.elements import monoids
from fxad.backend.llvm.loops.fed import Fed, fed_by
from fxad.core.record import record, replace
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS

MOST = 6  # passes: as many rows are in the caches at a time
LONG = 1 << 14  # bytes of a row from which on few such rows find room in the first-level cache
# Bytes of that cache. Short rows that fit there one by one, but not those of all passes, go pass
# after pass (layer norm's gradient, 8192 x 2048, one core of a Zen 5: 8.2 ms in a pipeline, 6.1
# pass after pass).
NEAREST = 48 << 10
# A pipeline takes so many long rows at most from the second-level cache again (Zen 5, 1024 x 16384:
# gradient of softmax, three, 6.8 -> 4.9 ms; layer norm, four, 3.8 -> 5.2).
AGAIN = 3
# Bytes of short rows underway beyond which the next rows crowd that cache. They wait in the second
# then (layer norm's gradient: 0.97 of its loop so on an Emerald Rapids, 0.93 with them in the
# first), unless the processor reads ahead (Zen 5, gradients of softmax, 8192 x 2048, 4.8 ms so and
# 4.4 without, of layer norm, 8192 x 1536, 4.5 and 4.2).
CROWDED = 32 << 10
# Bytes from what is read to what is asked for into the second-level cache besides, for rows of a
# single array (Zen 5, cross-entropy 7.9 -> 6.5 ms, layer norm 3.3 -> 3.2). Of several arrays that
# costs (softmax's gradient 4.9 -> 5.6). Into the first it is NEAR: a whole long row ahead, lines
# leave that cache before they are read (gradients of cross-entropy 12.3 -> 9.7 ms with both, of
# softmax over 16384 7.7 -> 6.3).
FARTHER = 1 << 14
# Bytes to what is asked for into the first of a single array instead of NEAR where the processor
# reads ahead (Zen 5, 16384 x 1024, share of the plain loop: layer norm 0.88 -> 0.95, softmax 0.92
# -> 0.97; 8 KB alike, but over 2048 layer norm 0.80 -> 0.66).
MIDWAY = 6144


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
    found = _parted(stages, schedule)
    if not 2 <= len(found) <= MOST or not _fit(found, schedule) or not _in_step(found, schedule):
        return []
    rows = next_rows([(p.stages, p.axis) for p in found], schedule)
    asked = [one for found_here in rows for one in found_here]
    if not any(map(_comes_slowly, asked)):
        return []
    if schedule.target.reads_ahead and _crowd(found, asked):
        return []
    together, alone = _row_bytes(found, schedule)
    fresh, longest = sum(map(_bytes, asked)), max(map(_bytes, asked))
    short = longest < LONG
    wide = alone <= NEAREST if short else together - fresh > AGAIN * longest
    if wide and together > NEAREST:
        return []
    crowded = short and together + fresh > CROWDED and not schedule.target.reads_ahead
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
    next rows, if the first is crowded, or what is FARTHER of a single array. Short rows with others
    between them are asked for one row ahead."""
    found = []
    for asked in rows:
        step = asked.row.coefficient(schedule.outer[-1]) or 0
        if crowded:
            found += [_ahead(asked, step, DISTANCE, FIRST), replace(asked, level=SECOND)]
        elif step != asked.extent and _bytes(asked) < LONG:
            found += [asked]
        else:
            near = MIDWAY if single and schedule.target.reads_ahead else NEAR
            found += [_ahead(asked, step, near, FIRST)]
            found += [_ahead(asked, step, FARTHER, SECOND)] * single
    return tuple(found)


def _ahead(asked: Asked, step: int, nbytes: int, level: int) -> Asked:
    """So many bytes on from the present row, which begins `step` elements before the next one."""
    start = asked.row.const - step + nbytes // asked.buffer.dtype.itemsize
    return replace(asked, row=ir.Index(start, asked.row.terms), level=level)


def _comes_slowly(asked: Asked) -> bool:
    """Whether a pipeline gains. Short rows that a cache of the processor's holds come as fast pass
    after pass (8192 x 768: 2.3 ms, in a pipeline 2.6; 64 x 50257: 2.2 and 1.7)."""
    buffer = asked.buffer
    return _bytes(asked) >= LONG or buffer.size * buffer.dtype.itemsize >= STREAMED


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
    light = weight_of(p.stage) <= ONE_FUNCTION
    return schedule.lanes_of(p.stage, p.axis)[0] if light else 1


def _in_step(passes: Sequence[Pass], schedule: Schedule) -> bool:
    """Whether what a pass leaves in a buffer is read by itself or the next one, place by place,
    so that the row after it can have the buffer as it goes; results are not read at all."""
    writers: dict[ir.Buffer, int] = {}
    for number, stage in ((n, stage) for n, p in enumerate(passes) for stage in p.stages):
        axis = schedule.own_axis(stage)
        for load in _loads(stage):
            behind = number - writers.get(load.buffer, -MOST)
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
