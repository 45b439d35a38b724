"""Tapes in native memory, seen from Python: whose they are, and what they hold.

    region = Region()               # memory of the tapes that one run writes
    run(..., region.address)        # see native/tape_code.py
    tape = NativeTape(type, handles, (region,))

A run's tapes are freed when it ends. Eager differentiation is the exception: the first half of a
`grad` gives tapes as results, and the region lives as long as any of them.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fxad.backend.llvm.native.library import runtime
from fxad.backend.llvm.native.tape_code import HEADER, SLABS
from fxad.core.errors import CheckError
from fxad.core.types import TapeType
from fxad.ir.tape import Slots, TapeValue


class Region:
    """The memory of one run's tapes. Words: newest block, bytes, failure, most bytes.

    kept: the run's results are on these tapes, so they outlive it.
    """

    __slots__ = ("_clear", "address", "kept", "words")

    def __init__(self) -> None:
        self.words = (ctypes.c_int64 * 4)()
        self.address = ctypes.addressof(self.words)
        self.kept = False
        self._clear: Callable[[int], None] = runtime().clear

    def __del__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Free all tapes."""
        self._clear(self.address)

    @property
    def bytes(self) -> int:
        return self.words[1]

    @property
    def most(self) -> int:
        """The most bytes there ever were at once."""
        return self.words[3]

    def check(self) -> None:
        """Raise MemoryError if a tape could not grow."""
        match self.words[2]:
            case 0:
                return
            case 1:
                raise MemoryError(
                    f"residuals of a loop of unknown length filled {self.bytes:,} bytes and "
                    "there is no more memory; keep fewer of them with checkpoints= of while_loop "
                    "or fori_loop"
                )
        raise CheckError("a program wrote to a tape of another run")


def tape_layout(type: TapeType) -> list[int]:
    """Lanes, bytes of a slot, number of blocks, and each block's bytes and offset in the slot."""
    offset, parts = 0, []
    for block in type.blocks:
        parts += [block.nbytes, offset]
        offset += -(-block.nbytes // 8) * 8
    return [type.size, max(offset, 8), len(type.blocks), *parts]


class NativeTape(TapeValue):
    """Tapes that a run gave as a result: handles, and the regions they hang on."""

    def __init__(self, type: TapeType, handles: np.ndarray, keep: tuple[object, ...]) -> None:
        self.type = type
        self.handles = handles
        self.keep = keep

    @functools.cached_property
    def cells(self) -> np.ndarray:  # type: ignore[override]
        """The same tapes as the interpreter holds them."""
        cells = np.full(self.type.lanes, None, object)
        for lane in np.ndindex(*self.type.lanes):
            cells[lane] = dict(self._slots(int(self.handles[lane]))) or None
        return cells

    def rearranged(self, change: Callable[[np.ndarray], np.ndarray]) -> NativeTape:
        handles = change(self.handles)
        return NativeTape(self.type.with_shape(handles.shape), handles, self.keep)

    def _slots(self, handle: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        if not handle:
            return
        words = (ctypes.c_int64 * (HEADER + SLABS)).from_address(handle)
        _, stride, _, *parts = tape_layout(self.type)
        for number in range(words[2], words[3]):
            slab = (number + 4).bit_length() - 3
            start = words[HEADER + slab]
            if start:
                slot = start + (number + 4 - (4 << slab)) * stride
                pairs = zip(self.type.blocks, parts[1::2], strict=True)
                yield number, tuple([self._block(b, slot + offset) for b, offset in pairs])

    def _block(self, type: Any, address: int) -> Any:
        array = np.empty(type.shape, type.dtype)
        ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return NativeTape(type, array, self.keep) if isinstance(type, TapeType) else array


def handles_of(value: TapeValue, region: Region) -> np.ndarray:
    """Handles for a run; the interpreter's tapes are written into the run's region."""
    if isinstance(value, NativeTape):
        return np.require(value.handles, requirements=("C", "A"))
    handles = np.zeros(value.type.lanes, np.int64)
    if any(cell is not None for cell in value.cells.ravel()):
        for lane in np.ndindex(*value.type.lanes):
            _write(handles, lane, value.type.with_shape(()), value.slots(lane), region)
    return handles


def _write(handles: np.ndarray, lane: Any, type: TapeType, slots: Slots, region: Region) -> None:
    """Write slots one by one through the native kernel."""
    put = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(runtime().tapes["put"])
    layout = tape_layout(type)
    shape = (ctypes.c_int64 * len(layout))(*layout)
    handle, number = np.zeros((), np.int64), np.zeros((), np.int32)
    for number[()], blocks in slots.items():
        held = [
            handles_of(b, region) if isinstance(b, TapeValue) else np.ascontiguousarray(b)
            for b in blocks
        ]
        addresses = [a.ctypes.data for a in (handle, handle, number)]
        words = [region.address, *addresses, ctypes.addressof(shape)]
        words += [a.ctypes.data for a in held]
        args = (ctypes.c_int64 * len(words))(*words)
        put(ctypes.addressof(args), None, None, None)
    handles[lane] = handle
