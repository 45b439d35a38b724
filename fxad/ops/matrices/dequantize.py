"""A matrix of floats from a few bits each: see `fxad.ir.packed` for how it is kept.

    w = dequantize(codes, scales, format="nf4", columns=2048, dtype=bfloat16)   # [rows, columns]

codes: [rows, blocks * codes of a block]; scales: f32[rows, blocks]. Each value is level * scale in
float32, rounded once to `dtype`. A product that reads the result unpacks a panel of it at a time
(`fxad.lower.unpacking`): the matrix is then nowhere in memory, neither forward nor backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.loops import Unpack
from fxad.ir.packed import BLOCK, CODES, NF4_LEVELS, PER_BLOCK, blocks_of, unpacked
from fxad.ir.rewrite import literal
from fxad.ops.base import (
    Primitive,
    Sample,
    case,
    define,
    fails,
    full,
    known,
    narrow,
    op,
    operand_type,
    spread,
    type_of,
    value_of,
)

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Draws, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

TARGETS = (dt.float16, dt.bfloat16, dt.float32)


def _type(
    codes: ArrayType, scales: ArrayType, *, format: str, columns: int, dtype: np.dtype
) -> ArrayType:
    if format not in CODES:
        raise TypeMismatch(f"dequantize: no format {format!r}; there are {', '.join(CODES)}")
    kept, per_block = CODES[format], PER_BLOCK[format]
    if codes.dtype != kept or scales.dtype != dt.float32 or dtype not in TARGETS:
        raise TypeMismatch(
            f"dequantize: {format} takes codes of {dt.short_name(kept)} and scales of f32 "
            f"and gives f16, bf16 or f32, not {codes}, {scales} and {dt.short_name(dtype)}"
        )
    blocks = blocks_of(columns)
    rows = codes.shape[:1]
    if codes.shape != (*rows, blocks * per_block) or scales.shape != (*rows, blocks):
        raise ShapeError(
            f"dequantize: codes {codes} and scales {scales} are not those of {columns} columns in "
            f"{format}; expected [rows, {blocks * per_block}] and [rows, {blocks}]"
        )
    return ArrayType(dtype, (*rows, columns))


def _numpy(
    codes: np.ndarray, scales: np.ndarray, *, format: str, columns: int, dtype: np.dtype
) -> np.ndarray:
    return narrow(unpacked(codes, scales, format, columns), dtype)


def _jvp(primals: Values, tangents: Tangents, out: Value, **params: Any) -> Value | None:
    """Linear in the scales; codes are integers."""
    return None if tangents[1] is None else dequantize(primals[0], tangents[1], **params)


def _transpose(
    ct: Value, args: Operands, *, format: str, columns: int, dtype: np.dtype
) -> Cotangents:
    codes, scales = args
    if known(scales):
        return [None, None]
    whole, blocks = blocks_of(columns) * BLOCK, blocks_of(columns)
    wide = op("convert", ct, dtype=dt.float32)
    zero = literal(0, dt.float32)
    wide = op("pad", wide, zero, low=(0, 0), high=(0, whole - columns), interior=(0, 0))
    type_ = operand_type(scales)
    ones = full(1, type_)
    levels = dequantize(value_of(codes), ones, format=format, columns=whole, dtype=dt.float32)
    blocked = op("reshape", op("mul", wide, levels), shape=(type_.shape[0], blocks, BLOCK))
    return [None, op("sum", blocked, axes=(2,))]


def _batch(size: int, batched: Sequence[bool], args: Values, **params: Any) -> Value:
    """Lanes are more rows."""
    lanes = [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]
    rows = type_of(lanes[0]).shape[1]
    joined = [op("reshape", x, shape=(size * rows, type_of(x).shape[2])) for x in lanes]
    found = dequantize(*joined, **params)
    return op("reshape", found, shape=(size, rows, params["columns"]))


def _decompose(codes: Value, scales: Value, *, format: str, columns: int, dtype: np.dtype) -> Value:
    rows, blocks = type_of(scales).shape
    blocked = op("reshape", codes, shape=(rows, blocks, PER_BLOCK[format]))
    if format == "nf4":
        wide = op("convert", blocked, dtype=dt.int32)
        halves = [op("and", wide, 15), op("shr_logical", wide, 4)]
        levels = _level(op("concatenate", *halves, axis=2), NF4_LEVELS)
    else:
        levels = op("convert", blocked, dtype=dt.float32)
    each = op("broadcast", scales, shape=(rows, blocks, BLOCK), axes=(0, 1))
    values = op("reshape", op("mul", levels, each), shape=(rows, blocks * BLOCK))
    values = op("slice", values, start=(0, 0), stop=(rows, columns), step=(1, 1))
    return op("convert", values, dtype=dtype)


def _level(code: Value, levels: Sequence[float]) -> Value:
    """levels[code], by a choice for each bit."""
    if len(levels) == 1:
        return literal(levels[0], dt.float32)
    half = len(levels) // 2
    upper = op("ne", op("and", code, half), 0)
    return op("select", upper, _level(code, levels[half:]), _level(code, levels[:half]))


def _samples(r: Draws) -> list[Sample]:
    if r.dtype not in TARGETS:
        return []

    def codes(format: str, rows: int, blocks: int) -> np.ndarray:
        bits = r.u32(rows, blocks * PER_BLOCK[format])
        return bits.astype(np.uint8).view(CODES[format])

    def scales(rows: int, blocks: int) -> np.ndarray:
        return np.abs(r.i32(rows, blocks)).astype(np.float32) / 8

    def one(format: str, rows: int, columns: int) -> Sample:
        blocks = blocks_of(columns)
        params = {"format": format, "columns": columns, "dtype": r.dtype}
        return case(codes(format, rows, blocks), scales(rows, blocks), **params)

    good, sizes = {"format": "nf4", "columns": 64, "dtype": r.dtype}, [(3, 128), (2, 70), (1, 5)]
    return [
        *[one(format, *size) for format in CODES for size in [*sizes, (0, 64)]],
        fails(codes("nf4", 2, 1), scales(2, 1), **{**good, "columns": 65}, saying="expected"),
        fails(codes("int8", 2, 1), scales(2, 1), **good, saying="takes codes of u8"),
        fails(codes("nf4", 2, 1), scales(2, 1), **{**good, "format": "nf3"}, saying="no format"),
    ]


dequantize: Primitive[Array] = define(
    "dequantize",
    doc="A matrix from blocks of codes and their scales: level * scale, rounded to dtype.",
    type=_type,
    numpy=_numpy,
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    loops=lambda types, *, format, columns, dtype: Unpack(format, columns),
    decompose=_decompose,
    exact=True,
    makes_nan=True,
    dtypes="float",
    samples=_samples,
)
