"""Tapes as values of the interpreter and of executors (see `fxad.ops.programs.tape`).

tape = TapeValue(type)        # an array of empty tapes
tape.slots((0,))              # the filled slots of one lane: {number: blocks}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core.types import TapeType


class TapeValue:
    """The interpreter's tapes: per lane the filled slots, None before the first write.

    It is indexed like an array along its lanes, which is how scans slice and stack it.
    """

    def __init__(self, type: TapeType, cells: np.ndarray | None = None) -> None:
        self.type = type
        self.cells = np.full(type.lanes, None, object) if cells is None else cells

    def __getitem__(self, lane: Any) -> TapeValue:
        cells = np.empty((), object)
        found = self.cells[lane]
        if isinstance(found, np.ndarray):
            cells = found
        else:
            cells[()] = found
        return TapeValue(self.type.with_shape(cells.shape), cells)

    def __setitem__(self, lane: Any, value: TapeValue) -> None:
        self.cells[lane] = value.cells if value.type.lanes else value.cells[()]

    def rearranged(self, change: Callable[[np.ndarray], np.ndarray]) -> TapeValue:
        """The same tapes in an array that `change` makes of their array."""
        cells = change(self.cells)
        return TapeValue(self.type.with_shape(cells.shape), cells)

    def slots(self, lane: tuple[int, ...]) -> Slots:
        """The filled slots of one lane."""
        return self.cells[lane] or {}


NumpyValue = np.ndarray | TapeValue  # what the interpreter computes with
Slots = dict[int, tuple[NumpyValue, ...]]
