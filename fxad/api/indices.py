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
from fxad.core import pytree
from fxad.core.errors import NumericsError, at
from fxad.ir.program import OPS, Opaque
from fxad.ops.programs.check import Site, check
from fxad.ops.programs.host import call_host
from fxad.trace import location
from fxad.trace.convert import to_value


class _State(threading.local):
    on = False
    recording = False


_state = _State()


@contextmanager
def indices() -> Iterator[None]:
    """Inside, an index array that is out of range raises NumericsError: in `x[i]`, `x.at[i]`,
    `take`, embeddings, gathers, scatters, `dynamic_slice` and `dynamic_update_slice`, where no
    `mode=` says what is to happen.

    As in `nans` everything runs op by op, compiled functions included; the error names the
    function, the index, the axis and the line. Outside the block nothing is checked or slower.

    >>> from fxad.errors import NumericsError
    >>> with fxad.debug.indices():
    ...     try:
    ...         jnp.arange(3)[jnp.array([5])]
    ...     except NumericsError as error:
    ...         print("caught")
    caught
    """
    before = _state.on
    _state.on = True
    try:
        with watching(None):
            yield
    finally:
        _state.on = before


@contextmanager
def recording_indices(on: bool) -> Iterator[None]:
    """Inside, if `on`, the checks that `indices` makes are ops of what is traced, which
    `fxad.checkify` turns into results."""
    before = _state.recording
    _state.recording = before or on
    try:
        yield
    finally:
        _state.recording = before


def recorded_indices() -> bool:
    """Whether what is traced now has such checks."""
    return _state.recording


def checking_indices() -> bool:
    """Whether somebody wants to know of indices out of range."""
    return _state.on or _state.recording


def check_indices(
    what: str,
    index: Any,
    shape: tuple[int, ...],
    axis: int,
    wrap: bool = True,
    window: int = 1,
) -> None:
    """Raise NumericsError, when the values exist, for those of `index` out of range for an axis of
    an array of this shape.

    wrap: integers below zero count from the end. window: how many elements from there must lie
    inside.
    """
    size = shape[axis]
    if _state.recording:
        _record(index, shape, axis, wrap, window)
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


def _record(index: Any, shape: tuple[int, ...], axis: int, wrap: bool, window: int) -> None:
    """A check of the first index that is out of range, in what is being traced."""
    size = shape[axis]
    index = reaching(to_value(index), size)
    if index.size == 0:
        return
    flat = OPS["reshape"](index, shape=(index.size,))
    outside = OPS["gt"](flat, size - window)
    if dt.is_signed(index.dtype):
        outside = OPS["or"](outside, OPS["lt"](flat, -size if wrap else 0))
        if wrap and window > 1:
            late = OPS["and"](OPS["lt"](flat, 0), OPS["gt"](flat, -window))
            outside = OPS["or"](outside, late)
    place = OPS["argmax"](outside, axis=0, dtype=dt.index_dtype(index.size))
    first = OPS["gather"](flat, place, axes=(0,))
    text = (
        f"out-of-bounds indexing for array of shape {shape}: index {{}} is out of bounds for axis "
        f"{axis} with size {size}."
    )
    _, tree = pytree.flatten(((first,), {}))
    site = Site("index", text, location.current(), tree, (0,))
    code = OPS["convert"](OPS["any"](outside, axes=(0,)), dtype=dt.int32)
    check(code, first, sites=Opaque((site,)))


def reaching(index: Any, size: int) -> Any:
    """Integers in a dtype that can count to the end of an axis."""
    if np.iinfo(index.dtype).max < size or index.dtype.itemsize < 4:
        wide = dt.index_dtype(size)
        return index if index.dtype == wide else OPS["convert"](index, dtype=wide)
    return index
