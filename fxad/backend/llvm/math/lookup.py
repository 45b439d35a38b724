"""Small tables of floats, read at a row of each lane's own.

    centre, value = lookup(index, ROWS)    # the columns of ROWS[index % 32], index any i32

AVX-512 holds 32 floats in two registers and reads them with one permutation. Elsewhere they are
gathered from memory, or loaded by a lone lane. The bits are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fxad.backend.llvm.base.vector import Code, Vec, literal, type_of


def lookup(index: Vec, rows: Sequence[Sequence[float]]) -> list[Vec]:
    """The columns of rows[index modulo 32] (of 32 rows)."""
    code, columns = index.code, [list(column) for column in zip(*rows, strict=True)]
    if code.target.isa == "avx512" and index.width == 16:
        return [_permuted(index, column) for column in columns]
    index = index & (len(rows) - 1)
    return [_from_memory(index, _global(code, column)) for column in columns]


def _permuted(index: Vec, column: Sequence[float]) -> Vec:
    low, high = (index.code.consts("float", half) for half in (column[:16], column[16:]))
    return index.code.call("llvm.x86.avx512.vpermi2var.ps.512", "float", 16, (low, index, high))


def _from_memory(index: Vec, table: str) -> Vec:
    code, width = index.code, index.width
    if width in (4, 8) and code.target.isa in ("avx2", "avx512"):
        return _gathered(index, table)
    at = index.convert("zext", "i64")
    where = code.function.op(f"getelementptr float, ptr {table}, {at.type} {at.text}")
    if width == 1:
        return code.op("float", 1, f"load float, ptr {where}, align 4")
    type, mask = type_of("float", width), code.const("i1", True, width)
    pointers = type_of("ptr", width)
    name = f"llvm.masked.gather.v{width}f32.v{width}p0"
    code.declarations.add(f"declare {type} @{name}({pointers}, i32, {mask.type}, {type})")
    call = f"call {type} @{name}({pointers} {where}, i32 4, {mask.type} {mask.text}, {type} poison)"
    return code.op("float", width, call)


def _gathered(index: Vec, table: str) -> Vec:
    """The processor's own gather, which LLVM avoids for the sake of those where it is slow."""
    code, width = index.code, index.width
    type = type_of("float", width)
    name = "llvm.x86.avx2.gather.d.ps" + (".256" if width == 8 else "")
    code.declarations.add(f"declare {type} @{name}({type}, ptr, {index.type}, {type}, i8)")
    every = index.like(-1).floats()
    args = f"{type} zeroinitializer, ptr {table}, {index.type} {index.text}, {type} {every.text}"
    return code.op("float", width, f"call {type} @{name}({args}, i8 4)")


def _global(code: Code, values: Sequence[float]) -> str:
    """The name of a constant array of the module, declared when first asked for."""
    items = ", ".join(f"float {literal('float', value)}" for value in values)
    name = f"@table.{hashlib.sha256(items.encode()).hexdigest()[:16]}"
    kind = f"[{len(values)} x float]"
    code.declarations.add(f"{name} = private unnamed_addr constant {kind} [{items}], align 64")
    return name
