"""Elements repeated.

repeat(x, 2)      repeat(x, counts, total_repeat_length=8)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import asarray, axis_index, known_values, value_of
from fxad.numpy.creation import arange
from fxad.numpy.cumulative import cumsum
from fxad.numpy.elementwise import minimum
from fxad.numpy.manipulation import broadcast_to, ravel, reshape
from fxad.numpy.sorting import searchsorted
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["repeat"]


@replayed
def repeat(
    a: Any, repeats: Any, axis: int | None = None, total_repeat_length: int | None = None
) -> Array:
    """Each element repeated: `repeats` times, or each along the axis by its own count.

    total_repeat_length: how many there are of the result, of which later ones are cut off, or the
    last element follows again. With it counts may be traced; without it they decide the shape.
    Raises TypeMismatch for counts that are no integers, ShapeError for another number of them.

    >>> import numpy as np, fxad.numpy as jnp
    >>> four = fxad.jit(lambda x, counts: jnp.repeat(x, counts, total_repeat_length=4))
    >>> four(jnp.array([5, 6]), np.array([3, 2]))
    Array([5, 5, 5, 6], dtype=int32)
    """
    value = value_of(a)
    if axis is None:
        value, axis = ravel(value), 0
    at = axis_index(axis, value.ndim, "repeat")
    if isinstance(repeats, int | np.integer) and total_repeat_length is None:
        shape = (*value.shape[: at + 1], int(repeats), *value.shape[at + 1 :])
        axes = tuple(i if i <= at else i + 1 for i in range(value.ndim))
        spread = OPS["broadcast"](value, shape=shape, axes=axes)
        return reshape(
            spread, (*value.shape[:at], value.shape[at] * int(repeats), *value.shape[at + 1 :])
        )
    length = value.shape[at]
    repeats = asarray(repeats)
    if repeats.dtype.kind not in "biu":
        raise TypeMismatch(f"repeat: counts are integers, got {repeats.type}")
    if repeats.ndim > 1 or repeats.size not in (1, length):
        raise ShapeError(
            f"repeat: one count, or one for each of {length} elements along axis {at} of "
            f"{value.type}; got {repeats.type}"
        )
    if total_repeat_length is None:
        counts = known_values(repeats, "repeat", "give total_repeat_length")
        if counts.dtype.kind == "u":
            counts = counts.astype(np.int64)  # np.repeat takes no uint64
        index = np.repeat(np.arange(length), counts).astype(dt.index_dtype(length))
        return value[(slice(None),) * at + (index,)]
    ends = cumsum(broadcast_to(repeats, (length,)))
    places = searchsorted(ends, arange(total_repeat_length), side="right")
    return value[(slice(None),) * at + (minimum(places, length - 1),)]
