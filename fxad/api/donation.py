"""Operands of compiled functions: stand-ins for shapes, values kept, memory given away."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fxad.core.aligned import copied
from fxad.core.errors import DonatedError
from fxad.trace.array import Array, Borrowed, Concrete, kept


def example(leaf: Any) -> Any:
    """A stand-in array for a shape struct: no memory is touched."""
    if isinstance(leaf, Array | np.ndarray) or not (
        hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    ):
        return leaf
    return Concrete(np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape))


def held(value: Any) -> Any:
    """A captured value in memory of its own."""
    return Concrete(copied(value)) if isinstance(value, np.ndarray) else kept(value)


def _is_exclusive(arrays: list[np.ndarray], number: int) -> bool:
    """Whether nobody sees an array's memory but its owner's slot and this list. Views of it would
    hold it once more; a view itself shares memory with somebody else."""
    if _references(arrays, number) > _ALONE:
        return False
    data = arrays[number]
    return (
        not isinstance(data.base, np.ndarray) and data.flags.writeable and data.flags.c_contiguous
    )


def _references(arrays: list[np.ndarray], number: int) -> int:
    return sys.getrefcount(arrays[number])


def _alone() -> int:
    """What `_references` counts of an array that a slot and a list hold: versions of Python differ
    in which references their own stack counts."""
    slot = np.empty(1)
    return _references([slot], 0)


_ALONE = _alone()


class Donation:
    """Donated arguments of a run, whose memory it takes over, and its results.

    results: what the run has made, from when it is whole; None before that.
    """

    __slots__ = ("_arrays", "_numbers", "_operands", "results")

    def __init__(
        self, operands: list[Any], arrays: list[np.ndarray], numbers: frozenset[int]
    ) -> None:
        self._operands, self._arrays, self._numbers = operands, arrays, numbers
        self.results: list[Any] | None = None

    def take(self) -> None:
        """Take the memory; what others can see is copied first, in the list of arrays. Raises
        DonatedError for an argument that was donated before, or that is another one, too."""
        operands, arrays = self._operands, self._arrays
        if len(set(map(id, operands))) < len(operands):
            self._require_once()
        for number in self._numbers:
            value = operands[number]
            exclusive = not isinstance(value, Borrowed) and _is_exclusive(arrays, number)
            value.take_memory()
            if not exclusive:
                arrays[number] = copied(arrays[number])

    def _require_once(self) -> None:
        for number in self._numbers:
            if sum(value is self._operands[number] for value in self._operands) > 1:
                raise DonatedError(
                    f"the donated array {self._operands[number].type} is passed twice, and its "
                    "memory would be overwritten while the other argument is read; pass a copy "
                    "of it"
                )

    def give_back(self) -> None:
        """Undo `take`: nothing was overwritten."""
        for number in self._numbers:
            self._operands[number]._data = self._arrays[number]
