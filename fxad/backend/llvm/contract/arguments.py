"""A product's arguments: where one batch element lies, its grid coordinates and addresses.

scope = load_arguments(kernel, f, target)    # at the start of the function f(ptr %args, ...)
here = at_grid_point(scope, kernel, batch)   # batch: position among the kernel's grid points
a = address(here, buffer, index)             # index over grid axes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxad.backend.llvm.base.formats import Pair, Value, from_memory, memory_kind
from fxad.backend.llvm.base.schedule import Schedule, Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.traffic import RowPrefetch
from fxad.backend.llvm.base.vector import Code
from fxad.backend.llvm.elements.scope import Context, Needs, Scope, Scratch, inner, with_axes
from fxad.backend.llvm.elements.stores import store
from fxad.backend.llvm.elements.values import scalar_index, value
from fxad.core.errors import CheckError
from fxad.ir.kernel import Buffer, Index, Kernel, Scalar, Stage, Store


def load_arguments(
    kernel: Kernel,
    f: Function,
    target: Target,
    scalars: bool = False,
    prefetches: Mapping[Stage, Sequence[RowPrefetch]] | None = None,
) -> Scope:
    """The scope of a function's start: the kernel's buffer pointers, and its scalars if asked, from
    %args. prefetches: rows that a stage prefetches."""
    code = Code(f, target)
    pointers: dict[Buffer, str] = {}
    for i, buffer in enumerate(kernel.buffers):
        pointers[buffer] = f.op(f"load ptr, ptr {f.offset('%args', 8 * i)}, align 8")
    safe = f.op("alloca [64 x i8], align 64") if scalars else "null"
    params: dict[Scalar, Value] = {}
    for i, scalar in enumerate(kernel.scalars if scalars else ()):
        word = f.offset("%args", 8 * (len(kernel.buffers) + i))
        params[scalar] = _scalar(code, scalar, word)
    schedule, scratch = Schedule(target, {}, ()), Scratch(f)
    context = Context(
        code, schedule, scratch, Needs(), pointers, params, safe, prefetches=prefetches or {}
    )
    return Scope(context, ({},))


def _scalar(code: Code, scalar: Scalar, word: str) -> Value:
    f, dtype = code.function, scalar.dtype
    kind = memory_kind(dtype)
    if dtype.kind == "c":
        start = f.op(f"load ptr, ptr {word}, align 8")
        parts = (start, f.offset(start, dtype.itemsize // 2))
        return Pair(*(code.op(kind, 1, f"load {kind}, ptr {part}") for part in parts))
    return from_memory(code.op(kind, 1, f"load {kind}, ptr {word}, align 8"), dtype)


def at_grid_point(scope: Scope, kernel: Kernel, batch: str) -> Scope:
    """The scope with the grid axes at the coordinates of the row-major position `batch`."""
    f, rest, positions = scope.f, batch, {}
    for i in range(len(kernel.grid) - 1, -1, -1):
        axis = kernel.grid[i]
        if axis.extent == 1:
            positions[axis] = "0"
        elif all(outer.extent == 1 for outer in kernel.grid[:i]):
            positions[axis] = rest
        else:
            positions[axis] = f.op(f"urem i64 {rest}, {axis.extent}")
            rest = f.op(f"udiv i64 {rest}, {axis.extent}")
    return inner(scope, axes=with_axes(scope, positions))


def emit_stores(scope: Scope, stores: Sequence[Store]) -> None:
    """At the current point or vector: all values, then all stores."""
    ready = []
    for one in stores:
        guard = None if one.guard is None else value(scope, one.guard)
        if isinstance(guard, Pair):
            raise CheckError(f"a store to {one.buffer.name} is guarded by a complex value")
        ready.append((one, value(scope, one.value), guard))
    for one, found, guard in ready:
        store(scope, one.buffer, one.index, found, guard)


def address(scope: Scope, buffer: Buffer, index: Index) -> str:
    """Address of a buffer's element."""
    place = scope.f.mul(scalar_index(scope, index), buffer.dtype.itemsize)
    return scope.f.offset(scope.context.pointers[buffer], place)
