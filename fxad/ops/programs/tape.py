"""Tapes as values: write-once blocks addressed by iteration number.

    t = tape_new(; type)              an empty tape
    t = tape_write(t, i, *blocks)     with slot i filled (nothing happens if i is negative)
    blocks = tape_read(t, i)          what slot i holds (zeros if it was never written)

A reverse `while` writes its residuals going forward and reads them going back. A tape value is an
array of tapes (`TapeType.lanes`), each with its own numbering: lanes of a vmap stop at different
iterations, and the tapes of a loop inside a scan are stacked. A block may itself be a tape: that
of a loop inside a while. So loops nest in any order, with no rule of their own for it.

Tapes are handles to storage that versions share: `tape_write` fills a slot where it is. That is
safe because slots are written once and a chain of writes starts from an empty tape, which has no
storage yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType, TapeType, Type, tape_type
from fxad.ir.kernel import Const
from fxad.ir.loops import Generate, Structured, View
from fxad.ir.tape import TapeValue
from fxad.ops.base import (
    Primitive,
    define,
    differentiable,
    known,
    only,
    operand_type,
    spread,
    tangent_type,
    type_of,
    value_of,
    zeros,
)

if TYPE_CHECKING:
    from fxad.ir.rules import AnyCotangents, AnyOperands, AnyTangents, AnyValue, AnyValues
    from fxad.ir.tape import NumpyValue


def _with_lanes(block: Type, lanes: tuple[int, ...]) -> Type:
    return block.with_shape((*lanes, *block.shape))


def _check_number(name: str, tape: TapeType, number: ArrayType) -> None:
    if not isinstance(tape, TapeType):
        raise TypeMismatch(f"{name}: the first operand must be a tape, not {tape}")
    if number != ArrayType(dt.int32, tape.lanes):
        wanted = ArrayType(dt.int32, tape.lanes)
        raise TypeMismatch(f"{name}: the slot number must be {wanted}, not {number}")


def _write_type(tape: TapeType, number: ArrayType, *blocks: Type) -> TapeType:
    _check_number("tape_write", tape, number)
    wanted = tuple(_with_lanes(b, tape.lanes) for b in tape.blocks)
    if blocks != wanted:
        raise TypeMismatch(f"tape_write: {tape} takes blocks {wanted}, not {blocks}")
    return tape


def _read_type(tape: TapeType, number: ArrayType) -> tuple[Type, ...]:
    _check_number("tape_read", tape, number)
    return tuple(_with_lanes(b, tape.lanes) for b in tape.blocks)


def _kept(block: NumpyValue, lane: tuple[int, ...]) -> NumpyValue:
    """One lane's block, as a value of its own."""
    return block[lane] if isinstance(block, TapeValue) else np.array(block[lane])


def _write_numpy(tape: TapeValue, number: np.ndarray, *blocks: NumpyValue) -> TapeValue:
    written = TapeValue(tape.type, tape.cells.copy())
    for lane in np.ndindex(*tape.type.lanes):
        if number[lane] < 0:
            continue
        if written.cells[lane] is None:
            written.cells[lane] = {}
        written.cells[lane][int(number[lane])] = tuple([_kept(b, lane) for b in blocks])
    return written


def blank(type: Type) -> NumpyValue:
    """Zeros, or empty tapes."""
    return TapeValue(type) if isinstance(type, TapeType) else np.zeros(type.shape, type.dtype)


def _read_numpy(tape: TapeValue, number: np.ndarray) -> tuple[NumpyValue, ...]:
    outs: tuple[Any, ...] = tuple(
        [blank(_with_lanes(b, tape.type.lanes)) for b in tape.type.blocks]
    )
    for lane in np.ndindex(*tape.type.lanes):
        found = tape.slots(lane).get(int(number[lane]))
        if found is not None:
            for out, block in zip(outs, found, strict=True):
                out[lane] = block
    return outs


def _span_numpy(tape: TapeValue) -> tuple[np.ndarray, np.ndarray]:
    first, end = np.zeros((2, *tape.type.lanes), np.int32)
    for lane in np.ndindex(*tape.type.lanes):
        numbers = tape.slots(lane)
        first[lane], end[lane] = min(numbers, default=0), max(numbers, default=-1) + 1
    return first, end


def _sum_of(first: NumpyValue, second: Any) -> NumpyValue:
    """Of two blocks of one type."""
    return _add_numpy(first, second) if isinstance(first, TapeValue) else np.add(first, second)


def _add_numpy(first: TapeValue, second: TapeValue) -> TapeValue:
    total = TapeValue(first.type)
    for lane in np.ndindex(*first.type.lanes):
        slots = dict(first.slots(lane))
        for number, blocks in second.slots(lane).items():
            before = slots.get(number)
            slots[number] = blocks if before is None else tuple(map(_sum_of, before, blocks))
        total.cells[lane] = slots or None
    return total


def _add_type(first: TapeType, second: TapeType) -> TapeType:
    if first != second or not isinstance(first, TapeType):
        raise TypeMismatch(f"tape_add: {first} and {second} are not two tapes of one type")
    return first


def _add_jvp(primals: AnyValues, tangents: AnyTangents, out: AnyValue) -> AnyValue | None:
    first, second = tangents
    if first is None or second is None:
        return second if first is None else first
    return tape_add(first, second)


def _add_batch(size: int, batched: Sequence[bool], args: AnyValues) -> AnyValue:
    return tape_add(*(a if b else spread(a, size) for a, b in zip(args, batched, strict=True)))


def _lanes_type(tape: TapeType, *, size: int, at: int) -> TapeType:
    return TapeType(tape.blocks, (*tape.lanes[:at], size, *tape.lanes[at:]))


def _lanes_numpy(tape: TapeValue, *, size: int, at: int) -> TapeValue:
    return tape.rearranged(lambda cells: np.expand_dims(cells, at).repeat(size, at))


def _lanes_jvp(primals: AnyValues, tangents: AnyTangents, out: AnyValue, **params: Any) -> AnyValue:
    return tape_lanes(only(tangents), **params)


def _transpose_type(tape: TapeType, *, permutation: tuple[int, ...]) -> TapeType:
    if sorted(permutation) != list(range(len(tape.lanes))):
        raise TypeMismatch(f"tape_transpose: {permutation} is no order of the lanes of {tape}")
    return tape.with_shape(tuple([tape.lanes[i] for i in permutation]))


def _transpose_numpy(tape: TapeValue, *, permutation: tuple[int, ...]) -> TapeValue:
    return tape.rearranged(lambda cells: cells.transpose(permutation))


def _transpose_transpose(
    ct: AnyValue, args: AnyOperands, *, permutation: tuple[int, ...]
) -> AnyCotangents:
    return [tape_transpose(ct, permutation=tuple(np.argsort(permutation).tolist()))]


def _transpose_loops(types: Sequence[TapeType], *, permutation: tuple[int, ...]) -> View:
    back = tuple(np.argsort(permutation).tolist())
    return View(lambda point: tuple([point[b] for b in back]))


def _transpose_batch(
    size: int, batched: Sequence[bool], args: AnyValues, *, permutation: tuple[int, ...]
) -> AnyValue:
    return tape_transpose(*args, permutation=(0, *(i + 1 for i in permutation)))


def _write_jvp(primals: AnyValues, tangents: AnyTangents, out: AnyValue) -> AnyValue | None:
    """The tangent of a tape is a tape of the tangents of its differentiable blocks."""
    type_ = tangent_type(type_of(out))
    d_tape = zeros(type_) if tangents[0] is None else tangents[0]
    blocks = [
        zeros(tangent_type(type_of(p))) if d is None else d
        for p, d in zip(primals[2:], tangents[2:], strict=True)
        if differentiable(type_of(p))
    ]
    return tape_write(d_tape, primals[1], *blocks)


def _write_transpose(cotangent: AnyValue, args: AnyOperands) -> AnyCotangents:
    """What was written is what the cotangent's slot holds; other slots pass through."""
    blocks = tape_read(cotangent, value_of(args[1]))
    found = [b if not known(a) else None for b, a in zip(blocks, args[2:], strict=True)]
    return [None if known(args[0]) else cotangent, None, *found]


def _read_jvp(primals: AnyValues, tangents: AnyTangents, outs: AnyValues) -> AnyTangents | None:
    if tangents[0] is None:
        return None
    found = iter(tape_read(tangents[0], primals[1]))
    listed = outs if isinstance(outs, tuple) else (outs,)
    return tuple([next(found) if differentiable(type_of(o)) else None for o in listed])


def _read_transpose(cotangents: AnyValue | AnyCotangents, args: AnyOperands) -> AnyCotangents:
    given = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    type_ = tape_type(operand_type(args[0]))
    types = [_with_lanes(b, type_.lanes) for b in type_.blocks]
    blocks = [zeros(w) if c is None else c for c, w in zip(given, types, strict=True)]
    return [tape_write(zeros(type_), value_of(args[1]), *blocks), None]


def _write_batch(size: int, batched: Sequence[bool], args: AnyValues) -> AnyValue:
    tape = args[0] if batched[0] else spread(args[0], size)
    rest = [a if b else spread(a, size) for a, b in zip(args[1:], batched[1:], strict=True)]
    return tape_write(tape, *rest)


def _read_batch(size: int, batched: Sequence[bool], args: AnyValues) -> AnyValues:
    """Lanes that read one tape at different places see it as a tape each: handles are cheap."""
    return tape_read(*[a if b else spread(a, size) for a, b in zip(args, batched, strict=True)])


def _new_type(*like: ArrayType, type: TapeType) -> TapeType:
    return type


tape_new: Primitive[TapeValue] = define(
    "tape_new",
    doc="An empty tape. `like` only ties it to lanes under vmap.",
    type=_new_type,
    numpy=lambda *like, type: TapeValue(type),
    batch=lambda size, batched, args, *, type: tape_new(*args, type=type.with_lanes(size)),
    loops=lambda types, **params: Generate(lambda point: Const(0, dt.int64)),
    dtypes="",
)

tape_add: Primitive[TapeValue] = define(
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

tape_lanes: Primitive[TapeValue] = define(
    "tape_lanes",
    doc="The same tape for every lane; `at` is the place of the new lane axis.",
    type=_lanes_type,
    numpy=_lanes_numpy,
    jvp=_lanes_jvp,
    batch=lambda size, batched, args, *, at, **params: tape_lanes(*args, at=at + 1, **params),
    loops=lambda types, *, size, at: View(lambda point: (*point[:at], *point[at + 1 :])),
    dtypes="",
)

tape_transpose: Primitive[TapeValue] = define(
    "tape_transpose",
    doc="An array of tapes with its lanes in another order.",
    type=_transpose_type,
    numpy=_transpose_numpy,
    jvp=lambda primals, tangents, out, **params: tape_transpose(tangents[0], **params),
    transpose=_transpose_transpose,
    batch=_transpose_batch,
    loops=_transpose_loops,
    dtypes="",
)

tape_write: Primitive[TapeValue] = define(
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

tape_span = define(
    "tape_span",
    doc="Per lane the first filled slot and the one after the last.",
    type=lambda tape: (ArrayType(dt.int32, tape.lanes),) * 2,
    numpy=_span_numpy,
    loops=lambda types, **params: Structured("tape_span"),
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
    makes_nan=False,
)
