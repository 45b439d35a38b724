"""Small tables of floats or doubles, read at a row of each lane's own.

    centre, value = lookup(index, ROWS)    # the columns of ROWS[index % 32], index any i32

An i64 reads doubles, of tables with 16 or 32 rows. AVX-512 holds 32 floats or 16 doubles in two
registers and reads them with one permutation. Elsewhere they are gathered from memory, or loaded by
a lone lane. The bits are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fxad.backend.llvm.base.vector import Code, Vec, bits_of, literal, type_of

_SHORT = {"float": "ps", "double": "pd"}


def lookup(index: Vec, rows: Sequence[Sequence[float]]) -> list[Vec]:
    """The columns of rows[index modulo their number]: 32, of doubles also 16."""
    code, columns = index.code, [list(column) for column in zip(*rows, strict=True)]
    kind = "float" if index.kind == "i32" else "double"
    if code.target.isa == "avx512" and index.width * bits_of(kind) == 512:
        if len(rows) == 2 * index.width:
            return [_permuted(index, kind, column) for column in columns]
        low, high = ([_permuted(index, kind, c[k : k + 16]) for c in columns] for k in (0, 16))
        upper = (index & 16).compare("ne", 0)
        return [upper.where(b, a) for a, b in zip(low, high, strict=True)]
    index = index & (len(rows) - 1)
    return [_from_memory(index, kind, _global(code, kind, column)) for column in columns]


def lookup_16(index: Vec, values: Sequence[float]) -> Vec:
    """values[index % 16], of 16 floats. They stay in registers on AVX-512 and AVX2, whose
    permutations look at the low bits of an index alone."""
    code, width = index.code, index.width
    if code.target.isa == "avx512" and width == 16:
        name = "llvm.x86.avx512.permvar.sf.512"
        return code.call(name, "float", width, (code.consts("float", values), index))
    if code.target.isa in ("avx2", "avx512") and width == 8:
        low, high = (
            code.call("llvm.x86.avx2.permps", "float", width, (code.consts("float", half), index))
            for half in (values[:8], values[8:])
        )
        return ((index << 28) < 0).where(high, low)
    return _from_memory(index & 15, "float", _global(code, "float", values))


def _permuted(index: Vec, kind: str, column: Sequence[float]) -> Vec:
    code, width = index.code, index.width
    low, high = (code.consts(kind, half) for half in (column[:width], column[width:]))
    name = f"llvm.x86.avx512.vpermi2var.{_SHORT[kind]}.512"
    return code.call(name, kind, width, (low, index, high))


def _from_memory(index: Vec, kind: str, table: str) -> Vec:
    code, width, size = index.code, index.width, bits_of(kind) // 8
    if width * size in (16, 32) and code.target.isa in ("avx2", "avx512"):
        return _gathered(index, kind, table)
    at = index.convert("zext", "i64")
    where = code.function.op(f"getelementptr {kind}, ptr {table}, {at.type} {at.text}")
    if width == 1:
        return code.op(kind, 1, f"load {kind}, ptr {where}, align {size}")
    type, mask = type_of(kind, width), code.const("i1", True, width)
    pointers = type_of("ptr", width)
    name = f"llvm.masked.gather.v{width}f{8 * size}.v{width}p0"
    code.declarations.add(f"declare {type} @{name}({pointers}, i32, {mask.type}, {type})")
    listed = f"{pointers} {where}, i32 {size}, {mask.type} {mask.text}, {type} poison"
    return code.op(kind, width, f"call {type} @{name}({listed})")


def _gathered(index: Vec, kind: str, table: str) -> Vec:
    """The processor's own gather, which LLVM avoids for the sake of those where it is slow."""
    code, width, size = index.code, index.width, bits_of(kind) // 8
    type = type_of(kind, width)
    letter = "d" if kind == "float" else "q"
    name = f"llvm.x86.avx2.gather.{letter}.{_SHORT[kind]}" + (".256" if width * size == 32 else "")
    code.declarations.add(f"declare {type} @{name}({type}, ptr, {index.type}, {type}, i8)")
    every = index.like(-1).floats()
    args = f"{type} zeroinitializer, ptr {table}, {index.type} {index.text}, {type} {every.text}"
    return code.op(kind, width, f"call {type} @{name}({args}, i8 {size})")


def _global(code: Code, kind: str, values: Sequence[float]) -> str:
    """The name of a constant array of the module, declared when first asked for."""
    items = ", ".join(f"{kind} {literal(kind, value)}" for value in values)
    name = f"@table.{hashlib.sha256(items.encode()).hexdigest()[:16]}"
    type = f"[{len(values)} x {kind}]"
    code.declarations.add(f"{name} = private unnamed_addr constant {type} [{items}], align 64")
    return name
