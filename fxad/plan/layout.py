"""Offsets in the arena, chosen when it is known from when to when each value lives.

Taking the best gap as one goes leaves holes between values that live long:

    a takes 3, b 1; a goes; c takes 4         aaab, then ...bcccc   8 bytes
    the same, b at the bottom                 baaa, then bcccc      5 bytes

so a plan whose arena has large holes is made a second time, with the offsets found here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fxad.core.aligned import in_lines
from fxad.core.arena import Arena


@dataclass(slots=True)
class LiveRange:
    """Bytes that are taken from one moment to another (both counted; None: to the end)."""

    nbytes: int
    start: int
    end: int | None = None


class RecordingArena(Arena):
    """An arena that remembers what was taken when."""

    def __init__(self) -> None:
        super().__init__()
        self.live_ranges: list[LiveRange] = []
        self._now = 0
        self._open: dict[int, LiveRange] = {}

    def take(self, nbytes: int) -> int:
        offset = super().take(nbytes)
        self._now += 1
        lived = self._open[offset] = LiveRange(in_lines(nbytes), self._now)
        self.live_ranges.append(lived)
        return offset

    def give(self, offset: int) -> None:
        super().give(offset)
        self._now += 1
        self._open.pop(offset).end = self._now

    @property
    def live_peak(self) -> int:
        """Bytes that are taken at once, holes not counted."""
        changes = np.zeros(self._now + 2, np.int64)
        for lived in self.live_ranges:
            changes[lived.start] += lived.nbytes
            if lived.end is not None:
                changes[lived.end] -= lived.nbytes
        return int(changes.cumsum().max())


class FixedOffsets:
    """Offsets known beforehand, given out in the order in which they are asked for."""

    def __init__(self, offsets: Sequence[int], peak: int) -> None:
        self.peak = peak
        self._offsets = iter(offsets)

    def take(self, nbytes: int) -> int:
        return next(self._offsets)

    def give(self, offset: int) -> None:
        """Nothing to do: who comes next was known."""


def packed(live_ranges: Sequence[LiveRange]) -> FixedOffsets:
    """Every value at the lowest offset that is free while it lives, the largest first."""
    sizes = np.array([s.nbytes for s in live_ranges])
    starts = np.array([s.start for s in live_ranges])
    ends = np.array([np.iinfo(np.int64).max if s.end is None else s.end for s in live_ranges])
    order = sorted(range(len(live_ranges)), key=lambda n: (-sizes[n], starts[n]))
    sizes, starts, ends = sizes[order], starts[order], ends[order]
    offsets = np.zeros(len(live_ranges), np.int64)
    for n in range(len(order)):
        beside = (starts[:n] < ends[n]) & (ends[:n] > starts[n])
        low, high = offsets[:n][beside], (offsets + sizes)[:n][beside]
        offsets[n] = _lowest_gap(low, high, sizes[n])
    found = np.zeros(len(live_ranges), np.int64)
    found[order] = offsets
    return FixedOffsets(found.tolist(), int((offsets + sizes).max(initial=0)))


def _lowest_gap(low: np.ndarray, high: np.ndarray, size: int) -> int:
    """The smallest offset from which `size` bytes lie outside all of low ... high."""
    by_low = np.argsort(low, kind="stable")
    # A gap may begin at 0 and where everything that starts before has ended.
    begins = np.concatenate([[0], np.maximum.accumulate(high[by_low])])
    free = np.concatenate([low[by_low], [np.iinfo(np.int64).max]]) - begins
    return int(begins[np.argmax(free >= size)])
