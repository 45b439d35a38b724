"""Code of a kernel that goes over its rows in a pipeline (passes.py says which and why).

    pipeline = Pipeline(stages, passes, place)
    pipeline.run(first, end)         # rows first to end: place(row) sets the grid's axes

The first rows, where the later passes have none yet, and the last ones go pass after pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fxad.backend.llvm.base.formats import kind_of
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.values import roots_with_guards
from fxad.backend.llvm.loops.nest import Texts
from fxad.backend.llvm.loops.passes import Pass
from fxad.backend.llvm.loops.sort_largest import Largest
from fxad.ir import kernel as ir
from fxad.ir.orders import PARTIALS

CELL_BYTES = 8


@dataclass(slots=True)
class _Underway:
    """A pass on its row: what is known before the loop, and its part of what the loop carries."""

    of: Pass
    scope: dict
    env: dict[ir.Axis, str]
    cells: dict[ir.Cell, dict]
    start: str | None = None  # where a Map that stores past the caches finds a whole line
    carried: list[tuple[str, str]] = field(default_factory=list)


class Pipeline:
    """Emits the loop over rows."""

    def __init__(
        self, stages: Largest, passes: Sequence[Pass], place: Callable[[str], None]
    ) -> None:
        self.stages, self.passes, self.place = stages, passes, place
        self.f, self.schedule = stages.f, stages.schedule
        self.extent = self.schedule.extent(passes[0].axis)
        self.width = self.schedule.lanes_of(passes[0].stage, passes[0].axis)[0]
        self.read = _cells_read(passes)
        self.slots = self._slots()

    # ------------------------------------------------------------ rows

    def run(self, first: str, end: str) -> None:
        """All passes over all rows from `first` to before `end`, of which there is at least one."""
        behind = len(self.passes) - 1
        full = self.f.add(first, behind)

        def row(number: str, _: Texts) -> None:
            f = self.f
            some, whole, done = (f.new_label(p) for p in ("some", "whole", "done"))
            early = f.op(f"icmp slt i64 {number}, {full}")
            late = f.op(f"icmp sge i64 {number}, {end}")
            f.branch(f.op(f"or i1 {early}, {late}"), some, whole)
            f.label(some)
            for at in reversed(range(len(self.passes))):
                self._apart(at, number, first, end)
            f.jump(done)
            f.label(whole)
            self._together(number)
            f.jump(done)
            f.label(done)
            self._grow_older()

        self.f.loop(first, self.f.add(end, behind), 1, row, at_least_once=True)

    def _apart(self, at: int, number: str, first: str, end: str) -> None:
        """One pass by itself, if its row is among those to be done."""
        f, p, row = self.f, self.passes[at], self.f.add(number, -at)
        inside = f.op(
            f"and i1 {f.op(f'icmp sge i64 {row}, {first}')}, {f.op(f'icmp slt i64 {row}, {end}')}"
        )

        def body() -> None:
            with self._at(at, row):
                self.stages.fed = p.fed
                self.stages.run(p.stage)
                self.stages.fed = None
                self._finish(p)

        f.when(inside, body)

    @contextmanager
    def _at(self, at: int, row: str) -> Iterator[dict]:
        """The row of a pass, and the cells that it reads."""
        self.stages.scopes.append({})
        self.place(row)
        for cell, age in self.read[at].items():
            kind = kind_of(cell.dtype)
            text = self.f.op(f"load {kind}, ptr {self.slots[cell][age]}, align {CELL_BYTES}")
            self.stages.cells[cell] = {0: Vec(self.stages.code, kind, 1, text)}
        yield self.stages.scopes[-1]
        self.stages.scopes.pop()

    def _finish(self, p: Pass) -> None:
        """What comes after the loop of a pass; its cells are kept for later passes."""
        for stage in p.points:
            self.stages.run(stage)
        for cell in _cells_set(p):
            if cell in self.slots:
                value = self.stages.cells[cell][0]
                slot = self.slots[cell][0]
                self.f.line(f"store {value.type} {value.text}, ptr {slot}, align {CELL_BYTES}")

    # ------------------------------------------------------------ cells

    def _slots(self) -> dict[ir.Cell, list[str]]:
        """Memory for each cell that a later pass reads, of as many rows as lie between."""
        ages: dict[ir.Cell, int] = {}
        for read in self.read:
            for cell, age in read.items():
                ages[cell] = max(age, ages.get(cell, 0))
        return {
            cell: [self.stages.scratch(CELL_BYTES) for _ in range(age + 1)]
            for cell, age in ages.items()
        }

    def _grow_older(self) -> None:
        for cell, slots in self.slots.items():
            kind = kind_of(cell.dtype)
            for older, newer in zip(slots[:0:-1], slots[-2::-1], strict=True):
                value = self.f.op(f"load {kind}, ptr {newer}, align {CELL_BYTES}")
                self.f.line(f"store {kind} {value}, ptr {older}, align {CELL_BYTES}")

    # ------------------------------------------------------------ one loop

    def _together(self, number: str) -> None:
        """Every pass on its row, in one loop; the last pass first: it makes room for others."""
        underway = [self._begin(at, self.f.add(number, -at)) for at in range(len(self.passes))]
        shifted = self.width - 1 if any(u.start for u in underway) else 0
        whole = (self.extent - shifted) // PARTIALS * PARTIALS
        carried = [c for u in underway for c in u.carried]

        def body(index: str, texts: Texts) -> Texts:
            parts = _parts(underway, texts)
            for at in reversed(range(len(underway))):
                with self._resumed(underway[at]):
                    parts[at] = self._turn(underway[at], index, parts[at])
            return [text for part in parts for text in part]

        texts = self.f.loop(0, whole, PARTIALS, body, carried, at_least_once=True)
        for u, part in reversed(list(zip(underway, _parts(underway, texts), strict=True))):
            with self._resumed(u):
                self._end(u, whole, part)

    def _begin(self, at: int, row: str) -> _Underway:
        """What a pass needs before the loop."""
        p, stages = self.passes[at], self.stages
        with self._at(at, row) as scope:
            blocked = stages.blocked_by(p.stage) | {p.axis}
            stages.hoist_asked(p.stage, blocked)
            carried: list[tuple[str, str]] = []
            start = None
            if isinstance(p.stage, ir.Reduce):
                stages.fed = p.fed
                carried = stages.lanes_begin(p.stage, self.width)
                stages.fed = None
            else:
                for axis in p.stage.axes:
                    stages.is_single(axis)
                stages.hoist_stores(p.stage.stores, blocked)
                stages.hoist(roots_with_guards(p.stage.stores), blocked, self.width)
                start = stages.before_line(p.stage, p.axis, self.width)
                if start is not None:
                    self._vectors(p.stage, p.axis, "0", start)
            return _Underway(p, scope, dict(stages.env), dict(stages.cells), start, carried)

    @contextmanager
    def _resumed(self, u: _Underway) -> Iterator[None]:
        self.stages.env, self.stages.cells = dict(u.env), dict(u.cells)
        self.stages.scopes += [u.scope, {}]
        yield
        del self.stages.scopes[-2:]

    def _turn(self, u: _Underway, index: str, texts: Texts) -> Texts:
        """64 positions of a pass."""
        stages, stage = self.stages, u.of.stage
        if isinstance(stage, ir.Reduce):
            stages.fed = u.of.fed
            texts = stages.lanes_turn(stage, self.width, index, texts)
            stages.fed = None
            return texts
        stages.on_lines = u.start is not None
        at = self.f.add(index, u.start or 0)
        stages.vectors(u.of.axis, self.width, PARTIALS // self.width, None, self._points(stage))(
            at, []
        )
        stages.on_lines = False
        stages.lanes_along(None, 1)
        return texts

    def _end(self, u: _Underway, whole: int, texts: Texts) -> None:
        """The rest of a pass's row from `whole` on, and what comes after its loop."""
        stages, stage = self.stages, u.of.stage
        if isinstance(stage, ir.Reduce):
            stages.fed = u.of.fed
            stages.lanes_end(stage, self.width, whole, texts)
            stages.fed = None
        elif whole < self.extent:
            self._vectors(stage, u.of.axis, self.f.add(whole, u.start or 0), str(self.extent))
        self._finish(u.of)

    def _vectors(self, stage: ir.Map, axis: ir.Axis, low: str, high: str) -> None:
        """A Map from low to high, a vector at a time."""
        inside = self.stages.vectors(axis, self.width, 1, high, self._points(stage))
        self.f.loop(low, high, self.width, inside)
        self.stages.lanes_along(None, 1)

    def _points(self, stage: ir.Map) -> Callable[[], None]:
        def points() -> None:
            for _ in self.stages.each_copy():
                self.stages.ask(stage)
            self.stages.map_point(stage.stores)

        return points


def _parts(underway: Sequence[_Underway], texts: Sequence[str]) -> list[Texts]:
    """What the loop carries, pass by pass."""
    parts, at = [], 0
    for u in underway:
        parts.append(list(texts[at : at + len(u.carried)]))
        at += len(u.carried)
    return parts


def _cells_set(p: Pass) -> tuple[ir.Cell, ...]:
    return p.stage.cells if isinstance(p.stage, ir.Reduce) else ()


def _cells_read(passes: Sequence[Pass]) -> list[dict[ir.Cell, int]]:
    """Cells of earlier passes that each pass reads, and how many passes ago they were set."""
    set_at = {cell: at for at, p in enumerate(passes) for cell in _cells_set(p)}
    found = []
    for at, p in enumerate(passes):
        exprs = [e for stage in p.stages for e in ir.exprs_of(stage)]
        cells = [e.cell for e in ir.walk(*exprs) if isinstance(e, ir.Get)]
        found.append({cell: at - set_at[cell] for cell in cells if set_at[cell] < at})
    return found
