"""Traffic with memory: streaming stores of results, prefetches of what is read.

    streamed(kernel, target)                # large buffers that are only written
    sequential_reads(stages, schedule)      # buffers that are read line after line
    row_prefetches(stages, schedule)        # which stage prefetches which next rows

None of it changes a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.backend.llvm.base.axes import axes_of_stage
from fxad.backend.llvm.base.schedule import Schedule, Target, has_function, weight_of
from fxad.backend.llvm.base.text import Function
from fxad.core.aligned import LINE
from fxad.core.record import replace, valued
from fxad.ir import kernel as ir

PAGE = 4096
STREAMING = ("avx512", "avx2")  # what has streaming stores
FIRST, SECOND = 3, 2  # where to: the first-level cache, the second

Place = tuple[ir.Buffer, ir.Index]


@valued
class RowPrefetch:
    """The row of `buffer` that begins at `row`: `extent` elements, to be prefetched along `axis`.

    level: of the cache it goes to.
    """

    buffer: ir.Buffer
    row: ir.Index
    axis: ir.Axis
    extent: int
    level: int = FIRST


# ---------------------------------------------------------------- streaming stores


def streamed(kernel: ir.Kernel, target: Target) -> frozenset[ir.Buffer]:
    """Buffers whose stores may be streaming (non-temporal).

    An ordinary store reads its line first; a streaming store does not, a third of a copy's
    traffic. It leaves nothing in the caches: only for what would not stay there until it is read.
    """
    if target.isa not in STREAMING:
        return frozenset()
    large = {b for b in kernel.buffers if b.role == "out" and b.dtype.kind != "c"}
    large = {b for b in large if _bytes(b) >= target.tuning.rows.streamed}
    for stage in kernel.body:
        large -= {e.buffer for e in ir.walk(*ir.exprs_of(stage)) if isinstance(e, ir.Load)}
        if not isinstance(stage, ir.Map):
            large -= {s.buffer for s in ir.stores_of(stage)}
    return frozenset(large)


def may_stream(
    f: Function, pointers: Mapping[ir.Buffer, str], buffers: frozenset[ir.Buffer]
) -> str:
    """The condition that all `buffers` begin at a line and none is an operand's memory.

    Over a donated operand, whose line has been read already, streaming takes twice as long.
    """
    sources = [p for b, p in pointers.items() if b.role == "in"]
    low_bits, same = "0", "false"
    for buffer in sorted(buffers, key=lambda b: b.name):
        pointer = pointers[buffer]
        low_bits = f.op(f"or i64 {low_bits}, {f.op(f'ptrtoint ptr {pointer} to i64')}")
        for source in sources:
            same = f.op(f"or i1 {same}, {f.op(f'icmp eq ptr {source}, {pointer}')}")
    aligned = f.op(f"icmp eq i64 {f.op(f'and i64 {low_bits}, {LINE - 1}')}, 0")
    return f.op(f"select i1 {same}, i1 false, i1 {aligned}")


def vector_bytes(index: ir.Index, lanes: ir.Axis | None, itemsize: int, width: int) -> int:
    """Bytes of `width` elements along `lanes` if they always lie at a multiple of that, else 0.

    itemsize: of the elements; the buffer begins at a line, the lanes at a multiple of `width`.
    """
    size = width * itemsize
    if size not in (16, 32, 64) or not all(isinstance(atom, ir.Axis) for atom, _ in index.terms):
        return 0
    steps = [c for atom, c in index.terms if atom is not lanes]
    return size if all(c * itemsize % size == 0 for c in (index.const, *steps)) else 0


# ---------------------------------------------------------------- prefetches


def sequential_reads(stages: Sequence[ir.Stage], schedule: Schedule) -> frozenset[ir.Buffer]:
    """Buffers that a loop over vectors of grid points reads line after line, to be prefetched.

    None where the processor's own prefetchers suffice: in light loops over several
    arrays, more than they write (Zen 5, share of the plain loop: AdamW 0.87 -> 0.97, x y 0.88 ->
    0.98, x y + z 0.89 -> 0.99). It sees too few lines of one array or where functions take long
    (exp 0.89 -> 0.81, SwiGLU while others use the memory 0.91 -> 0.86), nor do x y and x + y gain.
    """
    lanes = schedule.lane_axis
    if lanes is None or any(schedule.extent(a) != 1 for s in stages for a in axes_of_stage(s)):
        return frozenset()
    loads = (e for s in stages for e in ir.walk(*ir.exprs_of(s)) if isinstance(e, ir.Load))
    found = frozenset(
        e.buffer
        for e in loads
        if _comes_from_memory(e, lanes, schedule) and _goes_on(e, lanes, schedule)
    )
    light = not any(map(has_function, stages))
    written = {store.buffer for s in stages for store in ir.stores_of(s)}
    by_itself = schedule.tuning.crosses_pages and light and len(found) > max(len(written), 1)
    return frozenset() if by_itself else found


def _goes_on(load: ir.Load, lanes: ir.Axis, schedule: Schedule) -> bool:
    """Whether the next row of points begins where the present one ends, or that is far."""
    extent = schedule.extent(lanes)
    if extent * load.buffer.dtype.itemsize >= 8 * schedule.tuning.distance:
        return True
    return bool(schedule.outer) and load.index.coefficient(schedule.outer[-1]) == extent


def row_prefetches(
    stages: Sequence[ir.Stage], schedule: Schedule
) -> dict[ir.Stage, tuple[RowPrefetch, ...]]:
    """The rows that the next grid point reads, by the stage that prefetches them.

    A row that several sweeps read comes from memory in the first of them only: unless the next row
    is prefetched, memory idles in the later ones. The heaviest has the most time for it, but not
    one with streaming stores: both wait for the same buffers (layer norm, share of a loop's speed:
    0.84 prefetched there, 0.98 in the reduction before). Where the processor's own prefetchers
    cross pages, the rows of several arrays are prefetched in sweeps far apart (Zen 5, gradients
    over 4096 of layer norm 7.5 -> 6.2 ms, RMS norm over 2048 5.2 -> 4.5).
    """
    sweeps = [(s, axis) for s in stages if (axis := schedule.own_axis(s)) is not None]
    extents = {schedule.extent(axis) for _, axis in sweeps}
    if schedule.lane_axis is not None or not schedule.outer or len(sweeps) < 2 or len(extents) > 1:
        return {}
    inner = [one for one in sweeps if not any(s.buffer.role == "out" for s in ir.stores_of(one[0]))]
    heaviest = max(inner or sweeps, key=lambda one: weight_of(one[0]))
    rows = [row for found in next_rows([([s], a) for s, a in sweeps], schedule) for row in found]
    chosen = [heaviest] * len(rows)
    if schedule.tuning.crosses_pages and len(rows) > 1:
        places = (n * len(sweeps) // len(rows) for n in range(1, len(rows) + 1))
        chosen = [sweeps[max(place, 1) - 1] for place in places]
    prefetched_by: dict[ir.Stage, tuple[RowPrefetch, ...]] = {}
    for row, (stage, along) in zip(rows, chosen, strict=True):
        prefetched_by[stage] = (*prefetched_by.get(stage, ()), replace(row, axis=along))
    return prefetched_by


def next_rows(
    sweeps: Sequence[tuple[Sequence[ir.Stage], ir.Axis]], schedule: Schedule
) -> list[tuple[RowPrefetch, ...]]:
    """The next rows of what each sweep (stages along an axis) is the first to read from memory;
    none where there are none or the caches have no room for them."""
    found: dict[tuple[ir.Buffer, ir.Index], tuple[int, RowPrefetch]] = {}
    total = 0
    for number, (stages, along) in enumerate(sweeps):
        loads = (e for s in stages for e in ir.walk(*ir.exprs_of(s)) if isinstance(e, ir.Load))
        for e in loads:
            axis = next(
                (a for s in stages if (a := schedule.own_axis(s)) and e.index.coefficient(a)), along
            )
            step = e.index.coefficient(schedule.outer[-1])
            if not step or not _comes_from_memory(e, axis, schedule):
                continue
            terms = tuple([(a, c) for a, c in e.index.terms if a is not axis])
            row = ir.Index(e.index.const + step, terms)
            if (e.buffer, row) not in found:
                total += step * e.buffer.dtype.itemsize
                prefetch = RowPrefetch(e.buffer, row, along, schedule.extent(along))
                found[e.buffer, row] = number, prefetch
    if not found or total > schedule.tuning.next_rows:
        return []
    return [tuple([p for n, p in found.values() if n == at]) for at in range(len(sweeps))]


def _comes_from_memory(load: ir.Load, axis: ir.Axis, schedule: Schedule) -> bool:
    return (
        load.buffer.role == "in"
        and load.guard is None
        and _bytes(load.buffer) >= schedule.tuning.far_array
        and load.index.coefficient(axis) == 1
    )


def _bytes(buffer: ir.Buffer) -> int:
    return buffer.size * buffer.dtype.itemsize
