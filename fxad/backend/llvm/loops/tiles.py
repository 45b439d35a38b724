"""Squares of elements turned in registers, where lanes go across what memory has side by side.

    out[i, j] = a[j, i]         lanes along j: a[j, i] has neighbours along i

Instead of gathering lane by lane, `width` rows along i are read whole, the square is turned over
its diagonal and kept in the thread's scratch; position i of the loop then reads one vector of it.
Stores across memory (a running sum along rows) go the same way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fxad.backend.llvm.base.axes import stride_along
from fxad.backend.llvm.base.formats import Value, from_memory, memory_kind, to_memory
from fxad.backend.llvm.base.schedule import crosses
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.elements.values import Need
from fxad.backend.llvm.loops.nest import Loops, Texts
from fxad.ir import kernel as ir

Access = ir.Load | ir.Store
Step = Callable[[str, Texts], Texts]


class Tiles(Loops):
    """Loops along an axis in steps of a square."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sinks: dict[tuple[ir.Store, int], str] = {}  # where stores go inside a square

    def tiled(
        self, roots: Iterable[ir.Expr], stores: Sequence[ir.Store], axis: ir.Axis
    ) -> list[Access]:
        """Accesses that are done in squares while a loop goes along `axis`; none at edges."""
        widest = self.schedule.target.tuning.loops.tile_width
        if self.lane_axis is None or not 4 <= self.width <= widest:
            return []
        if any(copy.mask is not None for copy in self.copies) or self.extent(axis) < self.width:
            return []
        loads = [e for e in ir.walk(*roots) if isinstance(e, ir.Load)]
        written = {s.buffer: s.index for s in stores}
        found: list[Access] = [
            e for e in loads if written.get(e.buffer, e.index) == e.index and self._fits(e, axis)
        ]
        return found + [s for s in stores if self._fits(s, axis)]

    def _fits(self, access: Access, axis: ir.Axis) -> bool:
        if not crosses(access, self.lane_axis, axis):
            return False
        return all(
            atom is self.lane_axis or not self._is_varying(self.atom_needs(atom))
            for atom, _ in access.index.terms
        )

    def tile_loop(
        self,
        axis: ir.Axis,
        accesses: Sequence[Access],
        roots: Sequence[ir.Expr],
        blocked: frozenset[Need],
        body: Callable[[Texts], Texts],
        carried: Sequence[tuple[str, str]] = (),
        reverse: bool = False,
    ) -> Texts:
        """Like `loops` along one axis, with `accesses` done in squares as far as they fit."""
        f, width = self.f, self.width
        low, high = self.ranges.get(axis, (0, self.extent(axis)))
        self.hoist(roots, blocked | {axis}, width)
        types = [t for t, _ in carried]
        rest = self.extent(axis) % width
        stop: str | int = high
        if rest:
            span = f.op(f"sub i64 {high}, {low}")
            stop = f.op(f"sub i64 {high}, {f.op(f'urem i64 {span}, {width}')}")
        slots = {
            (access, copy.number): self._slot(access.buffer.dtype.itemsize)
            for access in accesses
            for copy in self.copies
        }

        def single(position: str, texts: Texts) -> Texts:
            return self._at(axis, position, body, texts)

        def square(first: str, texts: Texts) -> Texts:
            return self._square(
                axis, first, slots, body, list(zip(types, texts, strict=True)), reverse
            )

        def steps(low: str | int, high: str | int, step: int, one: Step, texts: Texts) -> Texts:
            def inside(index: str, values: Texts) -> Texts:
                if reverse:
                    index = f.op(f"sub i64 {f.add(f.add(low, high), -step)}, {index}")
                return one(index, values)

            return f.loop(low, high, step, inside, list(zip(types, texts, strict=True)))

        texts = [start for _, start in carried]
        if rest and reverse:
            texts = steps(stop, high, 1, single, texts)
        texts = steps(low, stop, width, square, texts)
        if rest and not reverse:
            texts = steps(stop, high, 1, single, texts)
        return texts

    def _slot(self, itemsize: int) -> str:
        """Scratch for one square."""
        return self.scratch(self.width * self.width * itemsize)

    def _at(
        self, axis: ir.Axis, position: str, body: Callable[[Texts], Texts], texts: Texts
    ) -> Texts:
        self.scopes.append({})
        self.env[axis] = position
        following = body(texts)
        self.scopes.pop()
        return following

    def _square(
        self,
        axis: ir.Axis,
        first: str,
        slots: dict[tuple[Access, int], str],
        body: Callable[[Texts], Texts],
        carried: Sequence[tuple[str, str]],
        reverse: bool,
    ) -> Texts:
        """`width` positions along the axis from `first`."""
        f, width = self.f, self.width
        self._turn(axis, first, slots, ir.Load)

        def one(number: str, texts: Texts) -> Texts:
            j = f.op(f"sub i64 {width - 1}, {number}") if reverse else number
            self.scopes.append({})
            for (access, copy), slot in slots.items():
                dtype = access.buffer.dtype
                place = f.offset(slot, f.mul(j, width * dtype.itemsize))
                if isinstance(access, ir.Store):
                    self.sinks[access, copy] = place
                else:
                    raw = self._load_vector(place, memory_kind(dtype), width, None)
                    self.scopes[-1][id(access), copy] = from_memory(raw, dtype)
            following = self._at(axis, f.add(first, j), body, texts)
            self.scopes.pop()
            self.sinks.clear()
            return following

        texts = f.loop(0, width, 1, one, carried, at_least_once=True)
        self._turn(axis, first, slots, ir.Store)
        return texts

    def _turn(
        self, axis: ir.Axis, first: str, slots: dict[tuple[Access, int], str], kind: type
    ) -> None:
        """Loads: from memory into their squares. Stores: from their squares to memory."""
        self.scopes.append({})
        self.env[axis] = first
        for copy in self.each_copy():
            for (access, number), slot in slots.items():
                if number == copy.number and isinstance(access, kind):
                    self._turn_one(access, slot)
        self.scopes.pop()

    def _turn_one(self, access: Access, slot: str) -> None:
        f, width, size = self.f, self.width, access.buffer.dtype.itemsize
        start, _ = self._address(access.buffer, access.index)
        stride = stride_along(access.index, self.lane_axis) * size
        memory = [f.offset(start, lane * stride) for lane in range(width)]
        square = [f.offset(slot, j * width * size) for j in range(width)]
        reads = isinstance(access, ir.Load)
        kind = memory_kind(access.buffer.dtype)
        source, target = (memory, square) if reads else (square, memory)
        rows = [self._load_vector(pointer, kind, width, None) for pointer in source]
        for row, pointer in zip(transpose(rows), target, strict=True):
            f.line(f"store {row.type} {row.text}, ptr {pointer}, align {size}")

    def put(self, store: ir.Store, value: Value, guard: Vec | None) -> None:
        """A store at the current point: to its square if it has one."""
        place = self.sinks.get((store, self.copy.number))
        if place is None:
            super().put(store, value, guard)
            return
        dtype = store.buffer.dtype
        row = to_memory(self.splat(value, self.width), dtype)
        self.f.line(f"store {row.type} {row.text}, ptr {place}, align {dtype.itemsize}")


def transpose(rows: Sequence[Vec]) -> list[Vec]:
    """A square of lanes turned over its diagonal: halves exchanged, then quarters, ..."""
    rows, width = list(rows), len(rows)
    for bit in (1 << n for n in range(width.bit_length() - 1)):
        low = [i if not i & bit else (i ^ bit) + width for i in range(width)]
        high = [i | bit if not i & bit else i + width for i in range(width)]
        for i in range(width):
            if not i & bit:
                a, b = rows[i], rows[i | bit]
                rows[i], rows[i | bit] = a.shuffle(low, b), a.shuffle(high, b)
    return rows
