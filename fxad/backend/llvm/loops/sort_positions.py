"""What the ways of sorting share: arrays in scratch, and the positions that are sorted.

scope, order = with_array(scope, "order", POSITION, 100)
number_positions(scope, order, 100)                 # 0, 1, 2 ...
place = position_at(scope, pointer, "%i")           # order[i]
key = element(scope, keys, place)                   # keys[order[i]]
"""

from __future__ import annotations

import numpy as np

from fxad.backend.llvm.base.formats import Value
from fxad.backend.llvm.elements.scope import Scope, inner, with_axes
from fxad.backend.llvm.elements.values import load
from fxad.backend.llvm.loops.map import emit_map
from fxad.core.record import replace
from fxad.ir import kernel as ir

POSITION = np.dtype("int32")


def with_array(scope: Scope, name: str, dtype: np.dtype, size: int) -> tuple[Scope, ir.Buffer]:
    """An array in scratch, at a place of its own, and the scope in which it is known."""
    context = scope.context
    buffer = ir.Buffer(name, dtype, size, "scratch")
    place = context.scratch.take(size * dtype.itemsize)
    context = replace(context, pointers={**context.pointers, buffer: place})
    return replace(scope, context=context), buffer


def number_positions(scope: Scope, buffer: ir.Buffer, count: int) -> None:
    """Fill the beginning of a buffer with 0, 1, ..."""
    axis = ir.Axis("number", count)
    here = ir.Index(0, ((axis, 1),))
    fill = ir.Store(buffer, here, ir.IndexValue(here, POSITION))
    emit_map(inner(scope), ir.Map((axis,), (fill,)))


def position_at(scope: Scope, array: str, place: str) -> str:
    """The position at a place of an array of them, as i64."""
    f = scope.f
    loaded = f.op(f"load i32, ptr {f.offset(array, f.mul(place, 4))}, align 4")
    return f.op(f"zext i32 {loaded} to i64")


def put_position(scope: Scope, array: str, place: str, position: str) -> None:
    """Write a position, an i64, to a place of an array of them."""
    f = scope.f
    narrow = f.op(f"trunc i64 {position} to i32")
    f.line(f"store i32 {narrow}, ptr {f.offset(array, f.mul(place, 4))}, align 4")


def element(scope: Scope, buffer: ir.Buffer, position: str) -> Value:
    """buffer[position], for a position that is not an axis."""
    axis = ir.Axis("position", buffer.size)
    here = inner(scope, axes=with_axes(scope, {axis: position}))
    return load(here, buffer, ir.Index(0, ((axis, 1),)), None, None, wide=False)
