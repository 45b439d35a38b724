"""How reductions are ordered and chunked: by shape, axes and dtype alone, so bits never change.

A sum over the last axis keeps 64 interleaved partial sums ("lanes"); over other axes it adds rows
in order ("serial"). Where the result is small and the input large, chunks of fixed size are
reduced first, in parallel and with less rounding error, and then combined:

    sum of f32[1000000] over axis 0   ->   122 sums of 8192 (the last one shorter), then their sum
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.record import record
from fxad.core.types import ArrayType
from fxad.ir.index import Point
from fxad.ir.kernel import INDEX, Axis, Const, Expr, Index, IndexValue, Prim, at
from fxad.ir.loops import Contract, Reduce
from fxad.ir.orders import (
    ATTENTION_QUERIES,
    ATTENTION_UNITS,
    LANES_CHUNK,
    LANES_FROM,
    LANES_ROWS,
    PRODUCT_BATCH,
    PRODUCT_BYTES,
    PRODUCT_FROM,
    PRODUCT_PARTS,
    PRODUCT_SIZE,
    PRODUCT_WORK,
    SERIAL_CHUNK,
    SERIAL_FROM,
)


@record
class Partial:
    """The first of a reduction's two steps: chunks of the reduced axes.

    leading: reduced axes that are not combined yet; split: the reduced axis that is `chunks` times
    `step` long or less. The result has the kept axes and then (leading, chunk), or for a serial
    order first (leading, chunk) and then the kept axes. `rest` combines the chunks.
    """

    monoid: str
    axes: tuple[int, ...]
    leading: tuple[int, ...]
    split: int
    step: int
    chunks: int
    shape: tuple[int, ...]
    dtype: np.dtype
    rest: Reduce


def order_of(shape: Sequence[int], axes: Sequence[int]) -> str:
    """ "lanes" if the last axis is reduced, else "serial"; axes of length 1 do not count."""
    real = [a for a, n in enumerate(shape) if n != 1]
    return "lanes" if real and real[-1] in axes else "serial"


def last_axis(axes: Sequence[Axis]) -> int:
    """Number of the last axis that is longer than 1: the one that lanes go along."""
    return max((n for n, axis in enumerate(axes) if axis.extent != 1), default=len(axes) - 1)


def accumulator(dtype: np.dtype, monoid: str) -> np.dtype:
    """Half-width floats are summed and multiplied up in float32."""
    if monoid in ("add", "mul") and dt.is_float(dtype) and dtype.itemsize < 4:
        return dt.float32
    return dtype


def identity(monoid: str, dtype: np.dtype) -> Const:
    """The value that changes nothing."""
    if monoid in ("add", "mul"):
        return Const(dtype.type(monoid == "mul").item(), dtype)
    if monoid in ("and", "or"):
        ones = True if dt.is_bool(dtype) else int(dt.iinfo(dtype).max)
        if dt.is_bool(dtype):
            return Const(monoid == "and", dtype)
        return Const((-1 if dt.is_signed(dtype) else ones) if monoid == "and" else 0, dtype)
    low = monoid in ("max", "argmax")
    if dt.is_bool(dtype):
        return Const(not low, dtype)
    if dt.is_float(dtype):
        return Const(-math.inf if low else math.inf, dtype)
    info = dt.iinfo(dtype)
    return Const(int(info.min if low else info.max), dtype)


def chunking(operand: ArrayType, record: Reduce) -> Partial | None:
    """How a reduction is done in two steps, or None."""
    shape, axes = operand.shape, tuple(sorted(record.axes))
    length = math.prod(shape[a] for a in axes)
    if record.monoid.startswith("arg") or not length:
        return None
    lanes = order_of(shape, axes) == "lanes"
    kept = [a for a in range(len(shape)) if a not in axes]
    rows = math.prod(shape[a] for a in kept)
    if (lanes and (length < LANES_FROM or rows >= LANES_ROWS)) or length < SERIAL_FROM:
        return None
    chunk = LANES_CHUNK if lanes else SERIAL_CHUNK
    leading: list[int] = []
    inner = length
    for axis in axes:
        inner //= shape[axis]
        if inner < chunk:
            break
        leading.append(axis)
    step = min(max(1, chunk // inner), shape[axis])
    step = next((s for s in range(step, step // 2, -1) if shape[axis] % s == 0), step)
    chunks = -(-shape[axis] // step)
    outer = [shape[a] for a in leading] + [chunks]
    if math.prod(outer) == 1:
        return None
    rest = tuple(shape[a] for a in kept)
    result = (*rest, *outer) if lanes else (*outer, *rest)
    first = len(rest) if lanes else 0
    combine = Reduce(record.monoid, tuple(range(first, first + len(outer))))
    dtype = accumulator(operand.dtype, record.monoid)
    return Partial(record.monoid, axes, tuple(leading), axis, step, chunks, result, dtype, combine)


def attention_parts(query: ArrayType, key: ArrayType) -> tuple[int, int]:
    """In how many parts the gradient takes query heads that share a key head, and queries.

    query: [B, T, N, H], key: [B, S, K, H].

    [1, 8192, 2, 64], [1, 8192, 1, 64]  ->  2, 2
    """
    batch, time, heads, _ = query.shape
    group = heads // key.shape[2]
    wanted = -(-ATTENTION_UNITS // max(1, batch * key.shape[2]))
    wanted = min(wanted, group * time // ATTENTION_QUERIES)
    some = max(n for n in range(1, max(1, wanted) + 1) if group % n == 0)
    later = max(n for n in range(1, max(1, wanted // some) + 1) if time % n == 0)
    return some, later


def contraction_parts(a: ArrayType, b: ArrayType, out: ArrayType, record: Contract) -> int:
    """In how many equal parts a product's sums are taken, and then added: where the result is too
    small to be divided into work for several threads.

    f32[64, 20000] times f32[20000, 64]  ->  16
    """
    length = math.prod(a.shape[axis] for axis in record.contract[0])
    batch = math.prod(a.shape[axis] for axis in record.batch[0])
    work = out.size * length
    if length < PRODUCT_FROM or batch > PRODUCT_BATCH or out.size > PRODUCT_SIZE:
        return 1
    if work < PRODUCT_WORK and a.nbytes + b.nbytes < PRODUCT_BYTES:
        return 1
    return next((n for n in PRODUCT_PARTS if length % n == 0), 1)


@record
class Loops:
    """The loop nest of a reduction: axes of the result, axes combined, and the operand's point."""

    grid: tuple[Axis, ...]
    over: tuple[Axis, ...]
    point: Point
    guard: Expr | None


def loops_of(shape: tuple[int, ...], record: Reduce | Partial) -> Loops:
    """Axes of a reduction over an operand of `shape`."""
    axes = sorted(record.axes)
    kept = [a for a in range(len(shape)) if a not in axes]
    of = {a: Axis(f"i{a}", shape[a]) for a in range(len(shape))}
    if isinstance(record, Reduce):
        grid, over = [of[a] for a in kept], [of[a] for a in axes]
        return Loops(tuple(grid), tuple(over), tuple([at(a) for a in of.values()]), None)
    chunk, inner = Axis("chunk", record.chunks), Axis("inner", record.step)
    leading = [of[a] for a in record.leading]
    grid = [of[a] for a in kept]
    outer = [*leading, chunk]
    lanes = order_of(shape, axes) == "lanes"
    over = [inner, *(of[a] for a in axes if a not in record.leading and a != record.split)]
    position = at(chunk) * record.step + at(inner)
    point = tuple(position if a == record.split else at(of[a]) for a in of)
    guard = None
    if record.chunks * record.step > shape[record.split]:
        end = IndexValue(Index(shape[record.split]), INDEX)
        guard = Prim("lt", (IndexValue(position, INDEX), end), dt.bool_)
    return Loops(tuple([*grid, *outer] if lanes else [*outer, *grid]), tuple(over), point, guard)
