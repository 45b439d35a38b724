"""Tapes as values: write-once blocks addressed by iteration number.

    t = tape_new(; type)              an empty tape
    t = tape_write(t, i, *blocks)     with slot i filled
    blocks = tape_read(t, i)          what slot i holds (zeros if it was never written)

A reverse `while` writes its residuals going forward and reads them going back. Under vmap every
lane has its own numbering (`TapeType.lanes`), so lanes may stop at different iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType, TapeType
from fxad.ir.loops import Structured
from fxad.ops.base import define, known, spread, tangent_type, type_of, zeros


class TapeValue:
    """The interpreter's tape: slots by (lane, number). Slots are written once, so versions of a
    tape may share them."""

    def __init__(self, type: TapeType) -> None:
        self.type = type
        self.slots: dict[tuple[int, ...], tuple[np.ndarray, ...]] = {}


def _with_lanes(block: ArrayType, lanes: tuple[int, ...]) -> ArrayType:
    return ArrayType(block.dtype, (*lanes, *block.shape))


def _check_number(name: str, tape: TapeType, number: ArrayType) -> None:
    if not isinstance(tape, TapeType):
        raise TypeMismatch(f"{name}: the first operand must be a tape, not {tape}")
    if number != ArrayType(dt.int32, tape.lanes):
        wanted = ArrayType(dt.int32, tape.lanes)
        raise TypeMismatch(f"{name}: the slot number must be {wanted}, not {number}")


def _write_type(tape: TapeType, number: ArrayType, *blocks: ArrayType) -> TapeType:
    _check_number("tape_write", tape, number)
    wanted = tuple(_with_lanes(b, tape.lanes) for b in tape.blocks)
    if blocks != wanted:
        raise TypeMismatch(f"tape_write: {tape} takes blocks {wanted}, not {blocks}")
    return tape


def _read_type(tape: TapeType, number: ArrayType) -> tuple[ArrayType, ...]:
    _check_number("tape_read", tape, number)
    return tuple(_with_lanes(b, tape.lanes) for b in tape.blocks)


def _write_numpy(tape: TapeValue, number: np.ndarray, *blocks: np.ndarray) -> TapeValue:
    for lane in np.ndindex(*tape.type.lanes):
        tape.slots[(*lane, int(number[lane]))] = tuple(np.array(b[lane]) for b in blocks)
    return tape


def _read_numpy(tape: TapeValue, number: np.ndarray) -> tuple[np.ndarray, ...]:
    outs = tuple(np.zeros((*tape.type.lanes, *b.shape), b.dtype) for b in tape.type.blocks)
    for lane in np.ndindex(*tape.type.lanes):
        found = tape.slots.get((*lane, int(number[lane])))
        if found is not None:
            for out, block in zip(outs, found, strict=True):
                out[lane] = block
    return outs


def _add_numpy(first: TapeValue, second: TapeValue) -> TapeValue:
    total = TapeValue(first.type)
    total.slots = dict(first.slots)
    for key, blocks in second.slots.items():
        before = total.slots.get(key)
        pairs = blocks if before is None else map(np.add, before, blocks)
        total.slots[key] = tuple(pairs)
    return total


def _add_type(first: TapeType, second: TapeType) -> TapeType:
    if first != second or not isinstance(first, TapeType):
        raise TypeMismatch(f"tape_add: {first} and {second} are not two tapes of one type")
    return first


def _add_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    first, second = tangents
    if first is None or second is None:
        return second if first is None else first
    return tape_add(first, second)


def _add_batch(size: int, batched: Sequence[bool], args: Sequence[Any]) -> Any:
    return tape_add(*(a if b else spread(a, size) for a, b in zip(args, batched, strict=True)))


def _lanes_type(tape: TapeType, *, size: int, at: int) -> TapeType:
    return TapeType(tape.blocks, (*tape.lanes[:at], size, *tape.lanes[at:]))


def _lanes_numpy(tape: TapeValue, *, size: int, at: int) -> TapeValue:
    wide = TapeValue(_lanes_type(tape.type, size=size, at=at))
    for key, blocks in tape.slots.items():
        for lane in range(size):
            wide.slots[(*key[:at], lane, *key[at:])] = blocks
    return wide


def _write_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    """The tangent of a tape is a tape of the tangents of its differentiable blocks."""
    type_ = tangent_type(type_of(out))
    d_tape = zeros(type_) if tangents[0] is None else tangents[0]
    blocks = [
        zeros(type_of(p)) if d is None else d
        for p, d in zip(primals[2:], tangents[2:], strict=True)
        if dt.is_differentiable(type_of(p).dtype)
    ]
    return tape_write(d_tape, primals[1], *blocks)


def _write_transpose(cotangent: Any, args: Sequence[Any]) -> list[Any]:
    """What was written is what the cotangent's slot holds; other slots pass through."""
    blocks = tape_read(cotangent, args[1])
    found = [b if not known(a) else None for b, a in zip(blocks, args[2:], strict=True)]
    return [None if known(args[0]) else cotangent, None, *found]


def _read_jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any) -> Any:
    if tangents[0] is None:
        return None
    found = iter(tape_read(tangents[0], primals[1]))
    return tuple(next(found) if dt.is_differentiable(type_of(o).dtype) else None for o in outs)


def _read_transpose(cotangents: Any, args: Sequence[Any]) -> list[Any]:
    given = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    type_ = args[0].type
    types = [_with_lanes(b, type_.lanes) for b in type_.blocks]
    blocks = [zeros(w) if c is None else c for c, w in zip(given, types, strict=True)]
    return [tape_write(zeros(type_), args[1], *blocks), None]


def _write_batch(size: int, batched: Sequence[bool], args: Sequence[Any]) -> Any:
    tape = args[0] if batched[0] else spread(args[0], size)
    rest = [a if b else spread(a, size) for a, b in zip(args[1:], batched[1:], strict=True)]
    return tape_write(tape, *rest)


def _read_batch(size: int, batched: Sequence[bool], args: Sequence[Any]) -> Any:
    if not batched[0]:
        raise TypeMismatch("tape_read: lanes cannot read different slots of one tape")
    number = args[1] if batched[1] else spread(args[1], size)
    return tape_read(args[0], number)


tape_new = define(
    "tape_new",
    doc="An empty tape. `like` only ties it to lanes under vmap.",
    type=lambda *like, type: type,
    numpy=lambda *like, type: TapeValue(type),
    batch=lambda size, batched, args, *, type: tape_new(*args, type=type.with_lanes(size)),
    loops=lambda types, **params: Structured("tape_new"),
    dtypes="",
)

tape_add = define(
    "tape_add",
    doc="Slot by slot the sum of two tapes (an empty slot counts as zero).",
    type=_add_type,
    numpy=_add_numpy,
    jvp=_add_jvp,
    transpose=lambda cotangent, args: [cotangent if not known(a) else None for a in args],
    batch=_add_batch,
    loops=lambda types, **params: Structured("tape_add"),
    dtypes="",
)

tape_lanes = define(
    "tape_lanes",
    doc="A tape per lane, each a copy; `at` is the place of the new lane axis.",
    type=_lanes_type,
    numpy=_lanes_numpy,
    batch=lambda size, batched, args, *, at, **params: tape_lanes(*args, at=at + 1, **params),
    loops=lambda types, **params: Structured("tape_lanes"),
    dtypes="",
)

tape_write = define(
    "tape_write",
    doc="The tape with one slot filled.",
    type=_write_type,
    numpy=_write_numpy,
    jvp=_write_jvp,
    transpose=_write_transpose,
    batch=_write_batch,
    loops=lambda types, **params: Structured("tape_write"),
    dtypes="",
)

tape_read = define(
    "tape_read",
    doc="The blocks of one slot.",
    type=_read_type,
    numpy=_read_numpy,
    jvp=_read_jvp,
    transpose=_read_transpose,
    batch=_read_batch,
    loops=lambda types, **params: Structured("tape_read"),
    dtypes="",
)
