"""What functions that take index arrays share: their check in `debug.indices`, and their dtype.

with fxad.debug.indices():
    table[ids]           # NumericsError: indexing: index 9 is out of range for axis 0 of length 5

A read out of range clamps or fills and a write is dropped, so that memory is safe; the functions
that take indices ask `check_indices` first, which does nothing outside such a block. Where somebody
chose what happens out of range (`mode=`), that is no error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fxad.api.compiled import watching
from fxad.core import dtypes as dt
from fxad.core.errors import NumericsError, at
from fxad.ir.program import OPS
from fxad.ops.programs.host import call_host
from fxad.trace import location


class _State(threading.local):
    on = False


_state = _State()


@contextmanager
def indices() -> Iterator[None]:
    """Inside, an index array that is out of range raises NumericsError: in `x[i]`, `x.at[i]`,
    `take`, embeddings, gathers, scatters, `dynamic_slice` and `dynamic_update_slice`, where no
    `mode=` says what is to happen.

    As in `nans` everything runs op by op, compiled functions included; the error names the
    function, the index, the axis and the line. Outside the block nothing is checked or slower.
    """
    before = _state.on
    _state.on = True
    try:
        with watching(None):
            yield
    finally:
        _state.on = before


def checking_indices() -> bool:
    """Whether this thread is inside `indices`."""
    return _state.on


def check_indices(
    what: str, index: Any, size: int, axis: int, wrap: bool = True, window: int = 1
) -> None:
    """Raise NumericsError, when the values exist, for those of `index` out of range for an axis.

    wrap: integers below zero count from the end. window: how many elements from there must lie
    inside.
    """
    if not _state.on:
        return
    where, low, high = location.current(), -size if wrap else 0, size - window

    def check(values: np.ndarray) -> tuple[()]:
        outside = (values < low) | (values > high)
        if wrap and window > 1:
            outside |= (values < 0) & (values > high - size)
        if outside.any():
            place = np.argwhere(outside)[0].tolist()
            shown = f", at {place} of {outside.sum()} such" if values.ndim else ""
            span = f" for a window of {window}" if window > 1 else ""
            raise NumericsError(
                f"{what}: index {values[tuple(place)]} is out of range for axis {axis} of length "
                f"{size}{span}{shown}{at(where)}"
            )
        return ()

    call_host(check, "check_indices", [index], (), ("host",))


def reaching(index: Any, size: int) -> Any:
    """Integers in a dtype that can count to the end of an axis."""
    if np.iinfo(index.dtype).max < size or index.dtype.itemsize < 4:
        wide = dt.index_dtype(size)
        return index if index.dtype == wide else OPS["convert"](index, dtype=wide)
    return index
