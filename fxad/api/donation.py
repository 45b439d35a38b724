"""Operands of compiled functions: stand-ins for shapes, values kept, memory given away."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fxad.core.aligned import copied
from fxad.trace.array import Array, Borrowed, Concrete, kept
from fxad.trace.execute import concrete


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


def take(operands: list[Any], arrays: list[np.ndarray], donate: frozenset[int]) -> None:
    """Take the memory of donated arguments; what others can see is copied first, in `arrays`."""
    for number in donate:
        value = operands[number]
        exclusive = not isinstance(value, Borrowed) and _is_exclusive(arrays, number)
        value.take_memory()
        if not exclusive:
            arrays[number] = copied(arrays[number])
    if len(set(map(id, operands))) < len(operands):
        for number, value in enumerate(operands):
            if number not in donate:
                concrete(value)  # raises if it was also donated
