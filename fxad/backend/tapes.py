"""Tapes for executors in Python: handles are numbers of TapeValues that one run keeps.

tapes = Tapes()
outputs = tapes.act(step, arrays of step.inputs)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core.types import TapeType
from fxad.ir.plan import Taping
from fxad.ir.program import OPS
from fxad.ir.tape import TapeValue


class Tapes:
    """What the handles of one run stand for; 0 is the empty tape."""

    def __init__(self) -> None:
        self._cells: list[Any] = [None]
        self._numbers: dict[int, int] = {}  # by identity: the list keeps every cell alive

    def act(self, step: Taping, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays of a step's outputs; tapes among the blocks are handles too.

        Inputs are in any shape of their size: they may be another value's bytes.
        """
        op, lanes = OPS[f"tape_{step.kind}"], step.type.lanes
        tape = self.enter(step.type, inputs[0])
        numbers = [array.reshape(lanes) for array in inputs[1:2]]
        types = [b.with_shape((*lanes, *b.shape)) for b in step.type.blocks]
        blocks = [self.enter(t, b) for t, b in zip(types, inputs[2:], strict=False)]
        results = op.numpy(tape, *numbers, *blocks)
        return [self.leave(r) for r in (results if isinstance(results, tuple) else (results,))]

    def enter(self, type: Any, array: np.ndarray) -> Any:
        """The value that handles stand for; other arrays are their own values."""
        array = array.reshape(type.shape)
        if not isinstance(type, TapeType):
            return array
        value = TapeValue(type)
        for lane in np.ndindex(*type.lanes):
            value.cells[lane] = self._cells[int(array[lane])]
        return value

    def leave(self, value: Any) -> np.ndarray:
        """The handles of a tape value; other arrays stay as they are."""
        if not isinstance(value, TapeValue):
            return value
        handles = np.zeros(value.type.lanes, np.int64)
        for lane in np.ndindex(*value.type.lanes):
            cell = value.cells[lane]
            if cell is not None:
                handles[lane] = self._number(cell)
        return handles

    def _number(self, cell: Any) -> int:
        if id(cell) not in self._numbers:
            self._numbers[id(cell)] = len(self._cells)
            self._cells.append(cell)
        return self._numbers[id(cell)]
