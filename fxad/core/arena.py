"""Offsets in one block of memory, given out and taken back in the order of execution.

>>> arena = Arena()
>>> a, b = arena.take(100), arena.take(50)
>>> arena.give(a)
>>> arena.take(64) == a, arena.peak
(True, 192)
"""

from __future__ import annotations

from bisect import bisect_left, insort

from fxad.core.aligned import in_lines


class Arena:
    """Best-fit allocation; `peak` is the number of bytes ever in use at once, gaps included."""

    def __init__(self) -> None:
        self.peak = 0
        self._gaps: list[tuple[int, int]] = []  # (offset, size), never adjacent
        self._sizes: dict[int, int] = {}
        self._top = 0

    def take(self, nbytes: int) -> int:
        """Offset (a multiple of 64) of `nbytes` unused bytes."""
        size = in_lines(nbytes)
        best = min((g for g in self._gaps if g[1] >= size), key=lambda g: g[1], default=None)
        if best is not None:
            self._gaps.remove(best)
            offset = best[0]
            if best[1] > size:
                insort(self._gaps, (offset + size, best[1] - size))
        else:
            offset = self._end_gap()
            self._top = offset + size
            self.peak = max(self.peak, self._top)
        self._sizes[offset] = size
        return offset

    def _end_gap(self) -> int:
        """Where a block at the end may start: at a gap that reaches the end, if there is one."""
        if self._gaps and sum(self._gaps[-1]) == self._top:
            return self._gaps.pop()[0]
        return self._top

    def give(self, offset: int) -> None:
        """The bytes taken at `offset` are free again."""
        size = self._sizes.pop(offset)
        at = bisect_left(self._gaps, (offset, 0))
        if at < len(self._gaps) and self._gaps[at][0] == offset + size:
            size += self._gaps.pop(at)[1]
        if at and sum(self._gaps[at - 1]) == offset:
            offset, before = self._gaps.pop(at - 1)
            size += before
        insort(self._gaps, (offset, size))
