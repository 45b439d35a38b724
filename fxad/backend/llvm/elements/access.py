"""Loads and stores of scalars and lanes: contiguous, strided, gathered, guarded.

    y = memory.load(x, at(axis), None, None, wide=True)
    memory.store(out, at(axis), y, None, dtype)

Memory is touched only where the guard and the loop's mask hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fxad.backend.llvm.base.axes import stride_along
from fxad.backend.llvm.base.formats import Pair, Value, from_memory, memory_kind, to_memory
from fxad.backend.llvm.base.traffic import (
    FIRST,
    PAGE,
    SECOND,
    Asked,
    vector_bytes,
)
from fxad.backend.llvm.base.vector import Code, Vec, type_of
from fxad.backend.llvm.elements.values import Atom, Need, Values
from fxad.core import dtypes
from fxad.core.aligned import LINE
from fxad.ir import kernel as ir


class Memory(Values):
    """Values that live in buffers."""

    def __init__(self, code: Code, pointers: dict[ir.Buffer, str], safe: str) -> None:
        super().__init__(code)
        self.pointers = pointers
        self.safe = safe  # an address that may always be read, for guarded scalar loads
        self.read_on: frozenset[ir.Buffer] = frozenset()  # asked for ahead where they are read
        self.asked: Mapping[int, Sequence[Asked]] = {}  # by the identity of the stage that asks
        self.streamed: frozenset[ir.Buffer] = frozenset()  # written past the caches
        self.on_lines = False  # the loop's vectors are whole lines of its one result

    # ------------------------------------------------------------ addresses

    def hoist_index(self, buffer: ir.Buffer, index: ir.Index, blocked: frozenset[Need]) -> None:
        pointer, terms = self._known_part(buffer, index)
        ready: list[tuple[Atom, int]] = []
        rest: list[tuple[Atom, int]] = []
        for atom, coefficient in terms:
            needs = self.atom_needs(atom)
            steady = atom is self.lane_axis or not self._is_varying(needs)
            known = blocked.isdisjoint(needs) and steady
            (ready if known else rest).append((atom, coefficient))
        if ready:
            total = self.scalar_index(_scaled(ready, buffer.dtype.itemsize))
            pointer = self.f.offset(pointer, total)
            self.scopes[-1][("part", buffer, index)] = (pointer, tuple(rest))

    def _known_part(self, buffer: ir.Buffer, index: ir.Index) -> tuple[str, tuple]:
        known = self.find(("part", buffer, index))
        if known is not None:
            return known
        pointer = self.f.offset(self.pointers[buffer], index.const * buffer.dtype.itemsize)
        known = self.scopes[-1][("part", buffer, index)] = (pointer, index.terms)
        return known

    def _address(self, buffer: ir.Buffer, index: ir.Index) -> tuple[str, list]:
        """(address at lane 0 without its varying atoms, those atoms with their coefficients)."""
        key = ("address", buffer, index)
        known = self.find(key)
        if known is None:
            pointer, terms = self._known_part(buffer, index)
            size = buffer.dtype.itemsize
            total: str | int = 0
            rest = []
            for atom, coefficient in terms:
                if atom is self.lane_axis or not self._is_varying(self.atom_needs(atom)):
                    step = self.f.mul(self.scalar_atom(atom), coefficient * size)
                    total = self.f.add(total, step)
                else:
                    rest.append((atom, coefficient))
            known = self.scopes[-1][key] = (self.f.offset(pointer, total), rest)
        pointer, rest = known
        if self.width == 1 or not self.copy.offset:
            return pointer, rest
        stride = stride_along(index, self.lane_axis)
        return self.f.offset(pointer, self.copy.offset * stride * buffer.dtype.itemsize), rest

    def _lane_pointers(self, buffer: ir.Buffer, index: ir.Index) -> tuple[str, Vec]:
        """(scalar address, element offset of every lane from it)."""
        pointer, rest = self._address(buffer, index)
        stride = stride_along(index, self.lane_axis)
        span = ir.Index(0, tuple(rest)).bounds()
        reach = max(abs(span[0]), abs(span[1])) + abs(stride) * self.width
        parts = 2 if buffer.dtype.kind == "c" else 1
        kind = "i32" if reach * parts < 2**31 else "i64"
        offsets = self.code.iota(kind, self.width, 0, stride * parts)
        for atom, coefficient in rest:
            offsets = self.lane_atom(atom, kind) * (coefficient * parts) + offsets
        return pointer, offsets

    def _is_contiguous(self, buffer: ir.Buffer, index: ir.Index) -> bool:
        if stride_along(index, self.lane_axis) != 1:
            return False
        return not self._address(buffer, index)[1]

    def _mask(self, guard: Vec | None) -> Vec | None:
        """Lanes that may touch memory; None means all."""
        mask = self.copy.mask
        if guard is None:
            return mask
        guard = self.splat(guard, self.width)
        return guard if mask is None else guard & mask

    def hoist_asked(self, stage: ir.Stage, blocked: frozenset[Need]) -> None:
        """Compute here what is known already of the addresses that a stage asks for."""
        for asked in self.asked.get(id(stage), ()):
            self.hoist_index(asked.buffer, asked.row, blocked)

    def ask(self, stage: ir.Stage) -> None:
        """Ask for the lines that later points need, at the current vector of the stage's axis."""
        if self.copy.mask is not None:
            return
        for asked in self.asked.get(id(stage), ()):
            size = asked.buffer.dtype.itemsize
            row, _ = self._address(asked.buffer, asked.row)
            place = self.f.mul(self.env[asked.axis], size)
            place = self.f.add(place, self.copy.offset * size)
            self._ask_for(self.f.offset(row, place), asked.level)

    def _ask_on(self, pointer: str, size: int) -> None:
        """Ask for what a loop over elements reads some way behind its current vector.

        Where it reads one array only, in as many pages in turn as it reads lines at a time: a core
        that computes has too few requests under way on one page (Emerald Rapids, exp of 128 MB: 8.8
        ms with one page, 8.0 with two, 7.6 with four, the plain loop 8.1).
        """
        alone, tuning = len(self.read_on) == 1, self.code.target.tuning.rows
        if tuning.crosses_pages and (alone or not self.streamed):
            self._ask_for(self.f.offset(pointer, tuning.near))
            return
        lines, lanes = len(self.copies) * self.width * size // LINE, self.lane_axis
        if lines < 2 or not alone or self.copy.mask is not None or lanes is None:
            self._ask_for(self.f.offset(pointer, tuning.distance))
            if not alone:
                self._ask_for(self.f.offset(pointer, tuning.far), SECOND)
            return
        block, key = lines * PAGE // size, ("back", lanes)
        back = self.find(key)
        if back is None:  # from the present turn to its place in the block's first page
            at = self.f.op(f"and i64 {self.env[lanes]}, {block - 1}")
            back = self.f.op(f"sub i64 {self.f.op(f'udiv i64 {at}, {lines}')}, {at}")
            back = self.scopes[-1][key] = self.f.mul(back, size)
        offset = self.copy.offset * size
        page = (lines + offset // LINE) * PAGE - offset
        self._ask_for(self.f.offset(self.f.offset(pointer, back), page))

    def _ask_for(self, pointer: str, level: int = FIRST) -> None:
        self.code.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.f.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {level}, i32 1)")

    # ------------------------------------------------------------ loads

    def load(
        self,
        buffer: ir.Buffer,
        index: ir.Index,
        guard: Vec | None,
        fill: Value | None,
        wide: bool,
    ) -> Value:
        """buffer[index], or `fill` where the guard is false; `wide`: one element per lane."""
        dtype = buffer.dtype
        if guard is not None and fill is None:
            fill = self.constant(0, dtype)
        if not wide:
            return self._load_scalar(buffer, index, guard, fill)
        mask = self._mask(guard)
        if self._is_contiguous(buffer, index):
            pointer, _ = self._address(buffer, index)
            if buffer in self.read_on and self.copy.offset * dtype.itemsize % LINE == 0:
                self._ask_on(pointer, dtype.itemsize)
            value = self._load_run(pointer, dtype, mask)
        else:
            pointer, offsets = self._lane_pointers(buffer, index)
            value = self._gather(pointer, offsets, dtype, mask)
        if guard is None:
            return value
        return choose(self.splat(guard, self.width), value, self.splat(fill, self.width))

    def _load_scalar(
        self, buffer: ir.Buffer, index: ir.Index, guard: Vec | None, fill: Value | None
    ) -> Value:
        dtype = buffer.dtype
        pointer, _ = self._address(buffer, index)
        if guard is not None:
            pointer = self.f.op(f"select i1 {guard.text}, ptr {pointer}, ptr {self.safe}")
        kind = memory_kind(dtype)
        align = dtype.itemsize if dtype.kind != "c" else dtype.itemsize // 2
        raw = self.code.op(kind, 1, f"load {kind}, ptr {pointer}, align {align}")
        value: Value = raw
        if dtype.kind == "c":
            other = self.f.offset(pointer, align)
            value = Pair(raw, self.code.op(kind, 1, f"load {kind}, ptr {other}, align {align}"))
        else:
            value = from_memory(raw, dtype)
        return value if guard is None else choose(guard, value, fill)

    def _load_run(self, pointer: str, dtype: np.dtype, mask: Vec | None) -> Value:
        kind = memory_kind(dtype)
        if dtype.kind == "c":
            both = None if mask is None else mask.shuffle(_doubled(self.width))
            raw = self._load_vector(pointer, kind, 2 * self.width, both)
            return Pair(
                raw.shuffle(range(0, 2 * self.width, 2)), raw.shuffle(range(1, 2 * self.width, 2))
            )
        return from_memory(self._load_vector(pointer, kind, self.width, mask), dtype)

    def _load_vector(self, pointer: str, kind: str, width: int, mask: Vec | None) -> Vec:
        code, type = self.code, type_of(kind, width)
        align = _align(kind)
        if mask is None:
            return code.op(kind, width, f"load {type}, ptr {pointer}, align {align}")
        name = f"llvm.masked.load.{code.const(kind, 0, width).suffix}.p0"
        code.declarations.add(f"declare {type} @{name}(ptr, i32, {mask.type}, {type})")
        return code.op(
            kind, width,
            f"call {type} @{name}(ptr {pointer}, i32 {align}, {mask.type} {mask.text}, "
            f"{type} zeroinitializer)",
        )  # fmt: skip

    def _gather(self, pointer: str, offsets: Vec, dtype: np.dtype, mask: Vec | None) -> Value:
        kind = memory_kind(dtype)
        if dtype.kind == "c":
            return Pair(
                self._gather_part(pointer, offsets, kind, mask),
                self._gather_part(pointer, offsets + 1, kind, mask),
            )
        return from_memory(self._gather_part(pointer, offsets, kind, mask), dtype)

    def _gather_part(self, pointer: str, offsets: Vec, kind: str, mask: Vec | None) -> Vec:
        code, width = self.code, self.width
        type, mask = type_of(kind, width), mask or code.const("i1", True, width)
        where = self.f.op(f"getelementptr {kind}, ptr {pointer}, {offsets.type} {offsets.text}")
        name = f"llvm.masked.gather.{code.const(kind, 0, width).suffix}.v{width}p0"
        pointers = f"<{width} x ptr>"
        code.declarations.add(f"declare {type} @{name}({pointers}, i32, {mask.type}, {type})")
        return code.op(
            kind, width,
            f"call {type} @{name}({pointers} {where}, i32 {_align(kind)}, "
            f"{mask.type} {mask.text}, {type} zeroinitializer)",
        )  # fmt: skip

    # ------------------------------------------------------------ stores

    def store(self, buffer: ir.Buffer, index: ir.Index, value: Value, guard: Vec | None) -> None:
        """buffer[index] = value where the guard and the mask of the copy hold."""
        dtype = buffer.dtype
        if self.width == 1:
            self._store_scalar(buffer, index, value, guard)
            return
        value = self.splat(value, self.width)
        mask = self._mask(guard)
        if self._is_contiguous(buffer, index):
            pointer, _ = self._address(buffer, index)
            size = 0
            if buffer in self.streamed:
                size = vector_bytes(index, self.lane_axis, dtype.itemsize, self.width)
                size = LINE if self.on_lines else size
            self._store_run(pointer, value, dtype, mask, size)
            return
        pointer, offsets = self._lane_pointers(buffer, index)
        kind = memory_kind(dtype)
        if isinstance(value, Pair):
            self._scatter(pointer, offsets, value.re, kind, mask)
            self._scatter(pointer, offsets + 1, value.im, kind, mask)
            return
        self._scatter(pointer, offsets, to_memory(value, dtype), kind, mask)

    def _store_scalar(
        self, buffer: ir.Buffer, index: ir.Index, value: Value, guard: Vec | None
    ) -> None:
        f, dtype = self.f, buffer.dtype
        pointer, _ = self._address(buffer, index)
        parts = [value.re, value.im] if isinstance(value, Pair) else [to_memory(value, dtype)]
        kind = memory_kind(dtype)
        size = dtypes.real_of(dtype).itemsize
        done = f.new_label("stored")
        if guard is not None:
            inside = f.new_label("store")
            f.branch(guard.text, inside, done)
            f.label(inside)
        for i, part in enumerate(parts):
            address = f.offset(pointer, i * size)
            f.line(f"store {kind} {part.text}, ptr {address}, align {size}")
        if guard is not None:
            f.jump(done)
            f.label(done)

    def _store_run(
        self, pointer: str, value: Value, dtype: np.dtype, mask: Vec | None, whole: int
    ) -> None:
        """whole: where not 0, go past the caches: `pointer` is a multiple of that many bytes."""
        if isinstance(value, Pair):
            lanes = [i // 2 + self.width * (i % 2) for i in range(2 * self.width)]
            stored = value.re.shuffle(lanes, value.im)
            mask = None if mask is None else mask.shuffle(_doubled(self.width))
        else:
            stored = to_memory(value, dtype)
        align = _align(stored.kind)
        if mask is None:
            past = ", !nontemporal !{i32 1}" if whole else ""
            line = f"store {stored.type} {stored.text}, ptr {pointer}, align {whole or align}"
            self.f.line(line + past)
            return
        if self.code.target.isa == "avx512" and stored.kind in ("i8", "i16", "i32"):
            # Where LLVM 22 sees that only one lane is stored, and that its value was truncated, it
            # stores what it was before: too many bytes.
            mask = self.code.concealed(mask)
        name = f"llvm.masked.store.{stored.suffix}.p0"
        self.code.declarations.add(f"declare void @{name}({stored.type}, ptr, i32, {mask.type})")
        self.f.line(
            f"call void @{name}({stored.type} {stored.text}, ptr {pointer}, i32 {align}, "
            f"{mask.type} {mask.text})"
        )

    def _scatter(self, pointer: str, offsets: Vec, value: Vec, kind: str, mask: Vec | None) -> None:
        code, width = self.code, self.width
        mask = mask or code.const("i1", True, width)
        where = self.f.op(f"getelementptr {kind}, ptr {pointer}, {offsets.type} {offsets.text}")
        name = f"llvm.masked.scatter.{value.suffix}.v{width}p0"
        pointers = f"<{width} x ptr>"
        code.declarations.add(f"declare void @{name}({value.type}, {pointers}, i32, {mask.type})")
        self.f.line(
            f"call void @{name}({value.type} {value.text}, {pointers} {where}, i32 {_align(kind)}, "
            f"{mask.type} {mask.text})"
        )


def choose(test: Vec, yes: Value, no: Value) -> Value:
    """test ? yes : no, for complex values too."""
    if isinstance(yes, Pair):
        return Pair(test.where(yes.re, no.re), test.where(yes.im, no.im))
    return test.where(yes, no)


def _scaled(terms: list, size: int) -> ir.Index:
    return ir.Index(0, tuple((atom, coefficient * size) for atom, coefficient in terms))


def _doubled(width: int) -> list[int]:
    return [i // 2 for i in range(2 * width)]


def _align(kind: str) -> int:
    return {"half": 2, "float": 4, "double": 8}.get(kind) or int(kind[1:]) // 8
