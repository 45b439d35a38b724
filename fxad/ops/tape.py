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
from fxad.ops.base import define, spread


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


def _all_lanes(size: int, batched: Sequence[bool], args: Sequence[Any]) -> list[Any]:
    if not batched[0]:
        raise TypeMismatch("a tape made outside vmap cannot be used by single lanes inside")
    return [a if b else spread(a, size) for a, b in zip(args, batched, strict=True)]


tape_new = define(
    "tape_new",
    doc="An empty tape. `like` only ties it to lanes under vmap.",
    type=lambda *like, type: type,
    numpy=lambda *like, type: TapeValue(type),
    batch=lambda size, batched, args, *, type: tape_new(*args, type=type.with_lanes(size)),
    loops=lambda types, **params: Structured("tape_new"),
    dtypes="",
)

tape_write = define(
    "tape_write",
    doc="The tape with one slot filled.",
    type=_write_type,
    numpy=_write_numpy,
    batch=lambda size, batched, args: tape_write(*_all_lanes(size, batched, args)),
    loops=lambda types, **params: Structured("tape_write"),
    dtypes="",
)

tape_read = define(
    "tape_read",
    doc="The blocks of one slot.",
    type=_read_type,
    numpy=_read_numpy,
    batch=lambda size, batched, args: tape_read(*_all_lanes(size, batched, args)),
    loops=lambda types, **params: Structured("tape_read"),
    dtypes="",
)
