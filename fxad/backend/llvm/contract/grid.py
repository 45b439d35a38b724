"""Where one batch element of a matrix product lies: its grid coordinates and addresses.

memory = arguments(kernel, f, target)      # at the start of the function f(ptr %args, ...)
go_to(memory, kernel, batch)               # batch: position among the kernel's grid points
a = address(memory, buffer, index)         # index over grid axes
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.base.formats import Pair, Value, from_memory, memory_kind
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.base.text import Function
from fxad.backend.llvm.base.vector import Code
from fxad.backend.llvm.elements.access import Memory
from fxad.core.errors import CheckError
from fxad.ir.kernel import Buffer, Index, Kernel, Scalar, Store


def arguments(kernel: Kernel, f: Function, target: Target, scalars: bool = False) -> Memory:
    """Load the kernel's buffer pointers, and its scalars if asked, from %args."""
    code = Code(f, target)
    pointers: dict[Buffer, str] = {}
    for i, buffer in enumerate(kernel.buffers):
        pointers[buffer] = f.op(f"load ptr, ptr {f.offset('%args', 8 * i)}, align 8")
    safe = f.op("alloca [64 x i8], align 64") if scalars else "null"
    memory = Memory(code, pointers, safe)
    if scalars:
        for i, scalar in enumerate(kernel.scalars):
            word = f.offset("%args", 8 * (len(kernel.buffers) + i))
            memory.params[scalar] = _scalar(code, scalar, word)
    return memory


def _scalar(code: Code, scalar: Scalar, word: str) -> Value:
    f, dtype = code.function, scalar.dtype
    kind = memory_kind(dtype)
    if dtype.kind == "c":
        start = f.op(f"load ptr, ptr {word}, align 8")
        parts = (start, f.offset(start, dtype.itemsize // 2))
        return Pair(*(code.op(kind, 1, f"load {kind}, ptr {part}") for part in parts))
    return from_memory(code.op(kind, 1, f"load {kind}, ptr {word}, align 8"), dtype)


def go_to(memory: Memory, kernel: Kernel, batch: str) -> None:
    """Set the grid axes to the coordinates of the row-major position `batch`."""
    f, rest = memory.f, batch
    for i in range(len(kernel.grid) - 1, -1, -1):
        axis = kernel.grid[i]
        if axis.extent == 1:
            memory.env[axis] = "0"
        elif all(outer.extent == 1 for outer in kernel.grid[:i]):
            memory.env[axis] = rest
        else:
            memory.env[axis] = f.op(f"urem i64 {rest}, {axis.extent}")
            rest = f.op(f"udiv i64 {rest}, {axis.extent}")


def run_stores(memory: Memory, stores: Sequence[Store]) -> None:
    """At the current point or vector: all values, then all stores."""
    ready = []
    for store in stores:
        guard = None if store.guard is None else memory.value(store.guard)
        if isinstance(guard, Pair):
            raise CheckError(f"a store to {store.buffer.name} is guarded by a complex value")
        ready.append((store, memory.value(store.value), guard))
    for store, value, guard in ready:
        memory.store(store.buffer, store.index, value, guard)


def address(memory: Memory, buffer: Buffer, index: Index) -> str:
    """Address of a buffer's element."""
    place = memory.f.mul(memory.scalar_index(index), buffer.dtype.itemsize)
    return memory.f.offset(memory.pointers[buffer], place)
