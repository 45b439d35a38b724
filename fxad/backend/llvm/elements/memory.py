"""Instructions that read and write memory: scalars, runs of lanes, gathers, prefetches.

    x = load_run(code, pointer, float32, 16, None)              # 16 neighbours
    y = gather(code, pointer, offsets, float32, mask)           # one element for each offset

Pointers are given; `values` says where the elements of a buffer are. A mask says in which lanes
memory may be touched; None means all.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import Pair, Value, from_memory, memory_kind, to_memory
from fxad.backend.llvm.base.traffic import FIRST
from fxad.backend.llvm.base.vector import Code, Vec, type_of
from fxad.core import dtypes

# ---------------------------------------------------------------- loads


def load_scalar(code: Code, pointer: str, dtype: np.dtype) -> Value:
    """One element."""
    kind = memory_kind(dtype)
    align = dtypes.real_of(dtype).itemsize
    raw = code.op(kind, 1, f"load {kind}, ptr {pointer}, align {align}")
    if dtype.kind != "c":
        return from_memory(raw, dtype)
    other = code.function.offset(pointer, align)
    return Pair(raw, code.op(kind, 1, f"load {kind}, ptr {other}, align {align}"))


def load_run(code: Code, pointer: str, dtype: np.dtype, width: int, mask: Vec | None) -> Value:
    """`width` neighbours."""
    kind = memory_kind(dtype)
    if dtype.kind == "c":
        both = None if mask is None else mask.shuffle(_doubled(width))
        raw = load_vector(code, pointer, kind, 2 * width, both)
        return Pair(raw.shuffle(range(0, 2 * width, 2)), raw.shuffle(range(1, 2 * width, 2)))
    return from_memory(load_vector(code, pointer, kind, width, mask), dtype)


def load_vector(code: Code, pointer: str, kind: str, width: int, mask: Vec | None = None) -> Vec:
    """`width` neighbours as they are in memory; 0 where the mask is false."""
    type = type_of(kind, width)
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


def gather(code: Code, pointer: str, offsets: Vec, dtype: np.dtype, mask: Vec | None) -> Value:
    """An element for every lane, so many elements (parts, of complex ones) past the pointer."""
    kind = memory_kind(dtype)
    if dtype.kind == "c":
        return Pair(
            _gather_part(code, pointer, offsets, kind, mask),
            _gather_part(code, pointer, offsets + 1, kind, mask),
        )
    return from_memory(_gather_part(code, pointer, offsets, kind, mask), dtype)


def _gather_part(code: Code, pointer: str, offsets: Vec, kind: str, mask: Vec | None) -> Vec:
    width = offsets.width
    type, mask = type_of(kind, width), mask or code.const("i1", True, width)
    text = f"getelementptr {kind}, ptr {pointer}, {offsets.type} {offsets.text}"
    where = code.function.op(text)
    name = f"llvm.masked.gather.{code.const(kind, 0, width).suffix}.v{width}p0"
    pointers = f"<{width} x ptr>"
    code.declarations.add(f"declare {type} @{name}({pointers}, i32, {mask.type}, {type})")
    return code.op(
        kind, width,
        f"call {type} @{name}({pointers} {where}, i32 {_align(kind)}, "
        f"{mask.type} {mask.text}, {type} zeroinitializer)",
    )  # fmt: skip


# ---------------------------------------------------------------- stores


def store_scalar(
    code: Code, pointer: str, value: Value, dtype: np.dtype, guard: Vec | None
) -> None:
    """One element, where the guard holds."""
    f = code.function
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


def store_run(
    code: Code, pointer: str, value: Value, dtype: np.dtype, mask: Vec | None, streamed: int
) -> None:
    """Neighbours. streamed: where not 0, a streaming store: `pointer` is a multiple of that many
    bytes."""
    f = code.function
    if isinstance(value, Pair):
        width = value.re.width
        lanes = [i // 2 + width * (i % 2) for i in range(2 * width)]
        stored = value.re.shuffle(lanes, value.im)
        mask = None if mask is None else mask.shuffle(_doubled(width))
    else:
        stored = to_memory(value, dtype)
    align = _align(stored.kind)
    if mask is None:
        line = f"store {stored.type} {stored.text}, ptr {pointer}, align {streamed or align}"
        f.line(line + (", !nontemporal !{i32 1}" if streamed else ""))
        return
    if code.target.isa == "avx512" and stored.kind in ("i8", "i16", "i32"):
        # Where LLVM 22 sees that only one lane is stored, and that its value was truncated, it
        # stores what it was before: too many bytes.
        mask = code.concealed(mask)
    name = f"llvm.masked.store.{stored.suffix}.p0"
    code.declarations.add(f"declare void @{name}({stored.type}, ptr, i32, {mask.type})")
    f.line(
        f"call void @{name}({stored.type} {stored.text}, ptr {pointer}, i32 {align}, "
        f"{mask.type} {mask.text})"
    )


def scatter(
    code: Code, pointer: str, offsets: Vec, value: Value, dtype: np.dtype, mask: Vec | None
) -> None:
    """An element from every lane, so many elements (parts, of complex ones) past the pointer."""
    kind = memory_kind(dtype)
    if isinstance(value, Pair):
        _scatter_part(code, pointer, offsets, value.re, kind, mask)
        _scatter_part(code, pointer, offsets + 1, value.im, kind, mask)
        return
    _scatter_part(code, pointer, offsets, to_memory(value, dtype), kind, mask)


def _scatter_part(
    code: Code, pointer: str, offsets: Vec, value: Vec, kind: str, mask: Vec | None
) -> None:
    f, width = code.function, value.width
    mask = mask or code.const("i1", True, width)
    where = f.op(f"getelementptr {kind}, ptr {pointer}, {offsets.type} {offsets.text}")
    name = f"llvm.masked.scatter.{value.suffix}.v{width}p0"
    pointers = f"<{width} x ptr>"
    code.declarations.add(f"declare void @{name}({value.type}, {pointers}, i32, {mask.type})")
    f.line(
        f"call void @{name}({value.type} {value.text}, {pointers} {where}, i32 {_align(kind)}, "
        f"{mask.type} {mask.text})"
    )


# ---------------------------------------------------------------- others


def prefetch(code: Code, pointer: str, level: int = FIRST) -> None:
    """Bring the line of an address to the cache of a level."""
    code.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    code.function.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {level}, i32 1)")


def choose(test: Vec, yes: Value, no: Value) -> Value:
    """test ? yes : no, for complex values too."""
    if isinstance(yes, Pair):
        return Pair(test.where(yes.re, no.re), test.where(yes.im, no.im))
    return test.where(yes, no)


def _doubled(width: int) -> list[int]:
    return [i // 2 for i in range(2 * width)]


def _align(kind: str) -> int:
    return {"half": 2, "float": 4, "double": 8}.get(kind) or int(kind[1:]) // 8
