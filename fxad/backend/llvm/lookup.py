"""Small tables of floats, read at a position of each lane's own.

    lookup(index, TABLE)    # TABLE[index % 32], index any i32

AVX-512 holds 32 floats in two registers and reads them with one permutation. Elsewhere they are
gathered from memory, or loaded by a lone lane.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fxad.backend.llvm.vector import Code, Vec, literal, type_of


def lookup(index: Vec, values: Sequence[float]) -> Vec:
    """values[index modulo their number], a power of two; 16 or 32 are fast."""
    code, width, count = index.code, index.width, len(values)
    if code.target.isa == "avx512" and width == 16 and count in (16, 32):
        halves = [code.consts("float", values[at : at + 16]) for at in range(0, count, 16)]
        if count == 16:
            name, args = "permvar.sf", (halves[0], index)
        else:
            name, args = "vpermi2var.ps", (halves[0], index, halves[1])
        return code.call(f"llvm.x86.avx512.{name}.512", "float", 16, args)
    return _from_memory(index & (count - 1), _global(code, values))


def _from_memory(index: Vec, table: str) -> Vec:
    code, width = index.code, index.width
    at = index.convert("zext", "i64")
    pointers = type_of("ptr", width)
    where = code.function.op(f"getelementptr float, ptr {table}, {at.type} {at.text}")
    if width == 1:
        return code.op("float", 1, f"load float, ptr {where}, align 4")
    type, mask = type_of("float", width), code.const("i1", True, width)
    name = f"llvm.masked.gather.v{width}f32.v{width}p0"
    code.declarations.add(f"declare {type} @{name}({pointers}, i32, {mask.type}, {type})")
    call = f"call {type} @{name}({pointers} {where}, i32 4, {mask.type} {mask.text}, {type} poison)"
    return code.op("float", width, call)


def _global(code: Code, values: Sequence[float]) -> str:
    """The name of a constant array of the module, declared when first asked for."""
    items = ", ".join(f"float {literal('float', value)}" for value in values)
    name = f"@table.{hashlib.sha256(items.encode()).hexdigest()[:16]}"
    kind = f"[{len(values)} x float]"
    code.declarations.add(f"{name} = private unnamed_addr constant {kind} [{items}], align 64")
    return name
