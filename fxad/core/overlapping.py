"""Settings of the whole process that hold in blocks, which several threads may be in at once.

still = Overlapping(begin=stop, end=go_on)
with still.block():     # stop() if no other block is open; go_on(what it returned) after the last
    ...
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from fxad.core import system

Before = TypeVar("Before")


class _Thread(threading.local):
    inside = 0


class Overlapping(Generic[Before]):
    """begin: changes the setting, and returns what was there before; end: takes that back."""

    def __init__(self, begin: Callable[[], Before], end: Callable[[Before], object]) -> None:
        self._begin, self._end = begin, end
        self._lock = system.free_in_children(threading.Lock())
        self._thread = _Thread()
        self._inside = 0  # blocks of all threads
        self._before: list[Before] = []
        system.at_fork(child=self._forked)

    @contextmanager
    def block(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._before = [self._begin()]
            self._inside += 1
            self._thread.inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                self._thread.inside -= 1
                if self._inside == 0:
                    self._end(*self._before)

    def _forked(self) -> None:
        """In a forked child: the blocks of other threads than the one that forked never end."""
        if self._inside and not self._thread.inside:
            self._end(*self._before)
        self._inside = self._thread.inside
