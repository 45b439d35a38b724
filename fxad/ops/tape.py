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
from fxad.ops.base import define, spread, type_of


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


def spread_tape(tape: Any, size: int) -> Any:
    """A tape with lanes for one without. Only loops ask for this, and their tapes start empty."""
    return tape_new(type=type_of(tape).with_lanes(size))


def _write_batch(size: int, batched: Sequence[bool], args: Sequence[Any]) -> Any:
    tape = args[0] if batched[0] else spread_tape(args[0], size)
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

tape_write = define(
    "tape_write",
    doc="The tape with one slot filled.",
    type=_write_type,
    numpy=_write_numpy,
    batch=_write_batch,
    loops=lambda types, **params: Structured("tape_write"),
    dtypes="",
)

tape_read = define(
    "tape_read",
    doc="The blocks of one slot.",
    type=_read_type,
    numpy=_read_numpy,
    batch=_read_batch,
    loops=lambda types, **params: Structured("tape_read"),
    dtypes="",
)
