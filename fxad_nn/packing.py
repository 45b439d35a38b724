"""Rows of documents: tokens, targets and segments, as arrays of one shape.

    rows = pack([len(e) for e in examples], 2048)   # which documents share a row: best fit
    batch = packed([[examples[i] for i in row] for row in rows], 2048)

A document of n ids takes n - 1 positions: at each stands a token, and as its target the next one,
so no target crosses a document. `IGNORE` is the target where nothing is trained, padding included.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from fxad_nn.chat_examples import Example
from fxad_nn.errors import DataError
from fxad_nn.loss import IGNORE


class Batch(NamedTuple):
    """Arrays int32 [rows, length].

    segments: 0 for padding, else the number of the document in its row, from 1: tokens of different
    segments must not see each other.
    """

    tokens: np.ndarray
    targets: np.ndarray
    segments: np.ndarray


def packed(rows: Sequence[Sequence[Example]], length: int) -> Batch:
    """The examples of each row one after another. DataError where they exceed `length`."""
    shape = len(rows), length
    tokens, segments = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    targets = np.full(shape, IGNORE, np.int32)
    for r, row in enumerate(rows):
        if sum(map(len, row)) > length:
            raise DataError(f"documents of {sum(map(len, row))} tokens do not fit in {length}")
        start = 0
        for number, example in enumerate(row, 1):
            end = start + len(example)
            tokens[r, start:end] = example.ids[:-1]
            targets[r, start:end] = np.where(example.trained, example.ids, IGNORE)[1:]
            segments[r, start:end] = number
            start = end
    return Batch(tokens, targets, segments)


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Which documents share a row, by best-fit decreasing: the longest first, each into the row
    that it fills most, of equal ones the first.

    At most 11/9 of the fewest rows possible, and 4 (Johnson et al., 1974). Documents of one length
    go by their number, so the same lengths always give the same rows.
    """
    if lengths and max(lengths) > capacity:
        raise DataError(f"a document of {max(lengths)} tokens does not fit in {capacity}")
    rows: list[list[int]] = []
    with_room: dict[int, list[int]] = {}  # heaps of rows, by the room that is left in them
    rooms: list[int] = []  # its keys, sorted
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        at, room, row = bisect_left(rooms, lengths[i]), capacity, len(rows)
        if at < len(rooms):
            room = rooms[at]
            row = heappop(with_room[room])
            if not with_room[room]:
                del with_room[room], rooms[at]
        else:
            rows.append([])
        rows[row].append(i)
        left = room - lengths[i]
        if left not in with_room:
            insort(rooms, left)
        heappush(with_room.setdefault(left, []), row)
    return rows


def widths(longest: int) -> list[int]:
    """The few lengths that rows are padded to, so that few programs are compiled: an eighth, a
    quarter, a half, three quarters and all of `longest`, in whole multiples of 16."""
    parts = {-(-longest * eighths // (8 * 16)) * 16 for eighths in (1, 2, 4, 6)}
    return sorted({part for part in parts if part < longest} | {longest})
