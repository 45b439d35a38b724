"""Documents in a row, told apart by ids: where each position's document begins and ends.

    starts, ends = document_bounds(ids)     # ids [[7, 7, 2]]  ->  [[0, 0, 2]], [[2, 2, 3]]

A document is a run of equal ids: one that comes back after another is a new document.
"""

from __future__ import annotations

from typing import Any

from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.numpy.elementwise import not_equal, where
from fxad.numpy.joining import concatenate
from fxad.trace.array import Array


def document_bounds(ids: Any) -> tuple[Array, Array]:
    """ids [batch, time] of integers -> (the first position of each position's document, the one
    after its last), int32 [batch, time]."""
    batch, time = ids.shape
    position = OPS["iota"](dtype=dt.int32, shape=(batch, time), axis=1)
    before = concatenate([ids[:, :1], ids[:, :-1]], axis=1)
    after = concatenate([ids[:, 1:], ids[:, -1:]], axis=1)
    begins = where(not_equal(ids, before), position, 0)
    ends = where(not_equal(ids, after), position + 1, time)
    return (
        OPS["cummax"](begins, axis=1, reverse=False),
        OPS["cummin"](ends, axis=1, reverse=True),
    )
