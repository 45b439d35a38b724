"""Rows of documents: tokens, targets, positions and segments, as arrays of one shape.

    batch = padded(examples, length=128)            # one document in a row
    rows = pack([len(e) for e in examples], 2048)   # which documents share a row
    batch = packed([[examples[i] for i in row] for row in rows], 2048)

A document of n ids takes n - 1 positions: at each stands a token, and as its target the next one,
so no target crosses a document. `IGNORE` is the target where nothing is trained, padding included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fxad_nn.chat_examples import Example
from fxad_nn.errors import DataError
from fxad_nn.loss import IGNORE


class Batch(NamedTuple):
    """Arrays int32 [rows, length].

    positions: of a token in its document, from 0. segments: 0 for padding, else the number of the
    document in its row, from 1: tokens of different segments must not see each other.
    """

    tokens: np.ndarray
    targets: np.ndarray
    positions: np.ndarray
    segments: np.ndarray


def padded(examples: Sequence[Example], length: int, rows: int | None = None) -> Batch:
    """Each example in a row of its own; further rows, up to `rows`, hold padding only.

    Causal attention needs no segments for these: padding comes after all that is trained.
    """
    filled = [[example] for example in examples]
    return packed(filled + [[]] * ((rows or 0) - len(filled)), length)


def packed(rows: Sequence[Sequence[Example]], length: int) -> Batch:
    """The examples of each row one after another. DataError where they exceed `length`."""
    shape = len(rows), length
    tokens, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
    targets = np.full(shape, IGNORE, np.int32)
    for r, row in enumerate(rows):
        if sum(map(len, row)) > length:
            raise DataError(f"documents of {sum(map(len, row))} tokens do not fit in {length}")
        start = 0
        for number, example in enumerate(row, 1):
            end = start + len(example)
            tokens[r, start:end] = example.ids[:-1]
            targets[r, start:end] = np.where(example.trained, example.ids, IGNORE)[1:]
            positions[r, start:end] = np.arange(end - start)
            segments[r, start:end] = number
            start = end
    return Batch(tokens, targets, positions, segments)


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Which documents share a row, by first-fit decreasing: the longest first, each into the first
    row with room for it.

    At most 11/9 of the fewest rows possible, and 6/9 of one (Dosa, 2007). Documents of one length
    go by their number, so the same lengths always give the same rows. O(n log n).
    """
    if lengths and max(lengths) > capacity:
        raise DataError(f"a document of {max(lengths)} tokens does not fit in {capacity}")
    room = _Room(len(lengths), capacity)
    rows: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        row = room.take(lengths[i])
        if row == len(rows):
            rows.append([])
        rows[row].append(i)
    return rows


class _Room:
    """The room that is left in each row, in a tree of maxima: the first row with enough of it is
    found from the root."""

    def __init__(self, rows: int, capacity: int) -> None:
        self._size = 1 << max(rows - 1, 0).bit_length()
        self._most = [capacity] * (2 * self._size)

    def take(self, length: int) -> int:
        """The first row with so much room, which it has no longer."""
        most, at = self._most, 1
        while at < self._size:
            at = 2 * at if most[2 * at] >= length else 2 * at + 1
        most[at] -= length
        row = at - self._size
        while at := at // 2:
            most[at] = max(most[2 * at], most[2 * at + 1])
        return row


def widths(longest: int) -> list[int]:
    """The few lengths that rows are padded to, so that few programs are compiled: an eighth, a
    quarter, a half, three quarters and all of `longest`, in whole multiples of 16."""
    parts = {-(-longest * eighths // (8 * 16)) * 16 for eighths in (1, 2, 4, 6)}
    return sorted({part for part in parts if part < longest} | {longest})
