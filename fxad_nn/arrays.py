"""Large arrays made some rows at a time: beside the result there is one part of it in memory.

[table] = from_rows(lambda start, stop: [read(start, stop)], rows=128256, step=1024)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fxad
import fxad.numpy as jnp


def from_rows(make: Callable[[int, int], Sequence[Any]], rows: int, step: int) -> list[Any]:
    """The arrays [rows, ...] of which make(start, stop) gives those rows, `step` or fewer at once.

    Each part is copied to its place and gone before the next is made.
    """
    found: list[Any] = []
    for start in range(0, max(rows, 1), step):  # of no rows once too: that says the dtypes
        parts = make(start, min(start + step, rows))
        found = found or [jnp.zeros((rows, *part.shape[1:]), part.dtype) for part in parts]
        at = np.int32(start)
        found = [_put(whole, part, at) for whole, part in zip(found, parts, strict=True)]
        del parts
    return found


@partial(fxad.jit, donate_argnums=0)
def _put(whole: Any, part: Any, start: Any) -> Any:
    """The array with other rows from `start` on, in the same memory."""
    return fxad.lax.dynamic_update_slice_in_dim(whole, part, start, axis=0)
