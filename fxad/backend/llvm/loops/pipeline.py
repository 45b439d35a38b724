"""Code of a kernel that goes over its rows in a pipeline (sweeps.py says which and why).

    emit_pipeline(scope, sweeps, place)         # place(scope, row): the scope at a row

The first rows, where the later sweeps have none yet, and the last ones go sweep after sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm.base.formats import Value, kind_of
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.scope import Scope, inner, single, with_cells
from fxad.backend.llvm.elements.stores import hoist_prefetches
from fxad.backend.llvm.elements.values import hoist, roots_with_guards
from fxad.backend.llvm.loops.map import map_vectors
from fxad.backend.llvm.loops.nest import (
    Carried,
    Texts,
    before_line,
    blocked_by,
    hoist_stores,
    vectors,
)
from fxad.backend.llvm.loops.reduce import LaneSums, begin_sums, end_sums, lane_sums, sum_block
from fxad.backend.llvm.loops.stages import emit_stage
from fxad.backend.llvm.loops.sweeps import Sweep
from fxad.core.record import record, replace
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS

CELL_BYTES = 8

Place = Callable[[Scope, str], Scope]
Slots = dict[ir.Cell, list[str]]


@record
class _Pipeline:
    """The loop over rows.

    place: gives the scope at a row. read: cells of earlier sweeps that each sweep reads, and how
    many sweeps ago they were set; slots: where these lie, the newest first.
    """

    scope: Scope
    sweeps: Sequence[Sweep]
    place: Place
    read: list[dict[ir.Cell, int]]
    slots: Slots


def emit_pipeline(scope: Scope, sweeps: Sequence[Sweep], place: Place) -> None:
    """All sweeps over all rows of the function's units, of which there is at least one."""
    f, schedule = scope.f, scope.context.schedule
    end = f.least(f.mul("%end", schedule.rows), schedule.outer_points)
    read, behind = _cells_read(sweeps), len(sweeps) - 1
    p = _Pipeline(scope, sweeps, place, read, _slots(scope, read))
    first = f.mul("%begin", schedule.rows)
    full = f.add(first, behind)

    def row(number: str, _: Texts) -> None:
        some, whole, done = (f.new_label(prefix) for prefix in ("some", "whole", "done"))
        early = f.op(f"icmp slt i64 {number}, {full}")
        late = f.op(f"icmp sge i64 {number}, {end}")
        f.branch(f.op(f"or i1 {early}, {late}"), some, whole)
        f.label(some)
        for at in reversed(range(len(sweeps))):
            _apart(p, at, number, first, end)
        f.jump(done)
        f.label(whole)
        _together(p, number)
        f.jump(done)
        f.label(done)
        _grow_older(p)

    f.loop(first, f.add(end, behind), 1, row, at_least_once=True)


def _apart(p: _Pipeline, at: int, number: str, first: str, end: str) -> None:
    """One sweep by itself, if its row is among those to be done."""
    f, one = p.scope.f, p.sweeps[at]
    row = f.add(number, -at)
    inside = f.op(
        f"and i1 {f.op(f'icmp sge i64 {row}, {first}')}, {f.op(f'icmp slt i64 {row}, {end}')}"
    )
    f.when(inside, lambda: _finish(p, one, emit_stage(_at_row(p, at, row), one.stage, one.fused)))


def _at_row(p: _Pipeline, at: int, row: str) -> Scope:
    """The scope of a sweep at its row, with the cells that it reads."""
    here = p.place(inner(p.scope), row)
    cells: dict[ir.Cell, dict[int, Value]] = {}
    for cell, age in p.read[at].items():
        kind = kind_of(cell.dtype)
        text = here.f.op(f"load {kind}, ptr {p.slots[cell][age]}, align {CELL_BYTES}")
        cells[cell] = {0: Vec(here.code, kind, 1, text)}
    return with_cells(here, cells)


def _finish(p: _Pipeline, one: Sweep, scope: Scope) -> None:
    """What comes after the loop of a sweep; its cells are kept for later sweeps."""
    for stage in one.points:
        scope = emit_stage(scope, stage)
    for cell in _cells_set(one):
        if cell in p.slots:
            value, slot = scope.cells[cell][0], p.slots[cell][0]
            scope.f.line(f"store {value.type} {value.text}, ptr {slot}, align {CELL_BYTES}")


# ---------------------------------------------------------------- cells


def _slots(scope: Scope, read: Sequence[dict[ir.Cell, int]]) -> Slots:
    """Memory for each cell that a later sweep reads, of as many rows as lie between."""
    ages: dict[ir.Cell, int] = {}
    for cells in read:
        for cell, age in cells.items():
            ages[cell] = max(age, ages.get(cell, 0))
    take = scope.context.scratch.take
    return {cell: [take(CELL_BYTES) for _ in range(age + 1)] for cell, age in ages.items()}


def _grow_older(p: _Pipeline) -> None:
    f = p.scope.f
    for cell, slots in p.slots.items():
        kind = kind_of(cell.dtype)
        for older, newer in zip(slots[:0:-1], slots[-2::-1], strict=True):
            value = f.op(f"load {kind}, ptr {newer}, align {CELL_BYTES}")
            f.line(f"store {kind} {value}, ptr {older}, align {CELL_BYTES}")


def _cells_set(p: Sweep) -> tuple[ir.Cell, ...]:
    return p.stage.cells if isinstance(p.stage, ir.Reduce) else ()


def _cells_read(sweeps: Sequence[Sweep]) -> list[dict[ir.Cell, int]]:
    """Cells of earlier sweeps that each sweep reads, and how many sweeps ago they were set."""
    set_at = {cell: at for at, p in enumerate(sweeps) for cell in _cells_set(p)}
    found = []
    for at, p in enumerate(sweeps):
        exprs = [e for stage in p.stages for e in ir.exprs_of(stage)]
        cells = [e.cell for e in ir.walk(*exprs) if isinstance(e, ir.Get)]
        found.append({cell: at - set_at[cell] for cell in cells if set_at[cell] < at})
    return found


# ---------------------------------------------------------------- one loop


@record
class _SumSweep:
    """A reduction on its row, and its part of what the loop carries."""

    of: Sweep
    scope: Scope
    sums: LaneSums
    carried: Carried


@record
class _MapSweep:
    """A Map on its row. start: where one with streaming stores finds a whole cache line."""

    of: Sweep
    scope: Scope
    stage: ir.Map
    width: int
    start: str | None
    carried: Carried = ()


def _together(p: _Pipeline, number: str) -> None:
    """Every sweep on its row, in one loop; the last sweep first: it makes room for others."""
    f = p.scope.f
    underway = [_begin(p, at, f.add(number, -at)) for at in range(len(p.sweeps))]
    starts = [u.width for u in underway if isinstance(u, _MapSweep) and u.start]
    shifted = max(starts, default=1) - 1
    extent = p.scope.extent(p.sweeps[0].axis)
    whole = (extent - shifted) // PARTIALS * PARTIALS

    def body(index: str, texts: Texts) -> Texts:
        parts = _parts(underway, texts)
        for at in reversed(range(len(underway))):
            parts[at] = _block(underway[at], index, parts[at])
        return [text for part in parts for text in part]

    carried = [c for u in underway for c in u.carried]
    texts = f.loop(0, whole, PARTIALS, body, carried, at_least_once=True)
    for u, part in reversed(list(zip(underway, _parts(underway, texts), strict=True))):
        _finish(p, u.of, _end(u, whole, part))


def _begin(p: _Pipeline, at: int, row: str) -> _SumSweep | _MapSweep:
    """What a sweep needs before the loop."""
    one, scope = p.sweeps[at], _at_row(p, at, row)
    blocked = blocked_by(one.stage) | {one.axis}
    hoist_prefetches(scope, one.stage, blocked)
    if isinstance(one.stage, ir.Reduce):
        sums = lane_sums(scope, one.stage, one.fused)
        scope, carried = begin_sums(scope, sums)
        return _SumSweep(one, scope, sums, carried)
    stage, stores = one.stage, one.stage.stores
    width, _ = scope.context.schedule.lanes_of(stage, one.axis)
    scope, _ = single(scope, stage.axes)
    hoist_stores(scope, stores, blocked)
    hoist(scope, roots_with_guards(stores), blocked, width)
    u = _MapSweep(one, scope, stage, width, before_line(scope, stage, one.axis, width))
    if u.start is not None:
        _vectors(u, "0", u.start)
    return u


def _block(u: _SumSweep | _MapSweep, index: str, texts: Texts) -> Texts:
    """64 positions of a sweep."""
    if isinstance(u, _SumSweep):
        return sum_block(u.scope, u.sums, index, texts)
    scope = replace(u.scope, whole_lines=u.start is not None)
    at, count = scope.f.add(index, u.start or 0), PARTIALS // u.width
    vectors(scope, u.of.axis, u.width, count, None, _points(u))(at, [])
    return texts


def _end(u: _SumSweep | _MapSweep, whole: int, texts: Texts) -> Scope:
    """The rest of a sweep's row from `whole` on; the scope after its loop."""
    scope, extent = u.scope, u.scope.extent(u.of.axis)
    if isinstance(u, _SumSweep):
        return with_cells(scope, end_sums(scope, u.sums, whole, texts))
    if whole < extent:
        _vectors(u, scope.f.add(whole, u.start or 0), str(extent))
    return scope


def _vectors(u: _MapSweep, low: str, high: str) -> None:
    """A Map from low to high, a vector at a time."""
    inside = vectors(u.scope, u.of.axis, u.width, 1, high, _points(u))
    u.scope.f.loop(low, high, u.width, inside)


def _points(u: _MapSweep) -> Callable[[Scope], None]:
    return lambda here: map_vectors(here, u.stage)


def _parts(underway: Sequence[_SumSweep | _MapSweep], texts: Sequence[str]) -> list[Texts]:
    """What the loop carries, sweep by sweep."""
    parts, at = [], 0
    for u in underway:
        parts.append(list(texts[at : at + len(u.carried)]))
        at += len(u.carried)
    return parts
