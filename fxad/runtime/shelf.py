"""Slabs of memory under a budget, with a tier below that they move to and from in the background.

    shelf = Shelf(budget=1 << 26, below=Disk())
    slab = shelf.new(1 << 22);  slab.buffer[:] = ...;  shelf.seal(slab)   # may be written out now
    shelf.want(slab);           ... = slab.buffer                         # in memory again
    shelf.drop(slab)

A slab is *clean* once the tier below has its bytes: its memory can be had at once. While slabs are
being made, the oldest are cleaned as soon as half the budget is in use; once one is wanted again,
those made before it are read ahead, newest first, so that a backward sweep finds them there.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from fxad.core.errors import StorageError
from fxad.core.limits import readable
from fxad.core.sizes import parse_bytes
from fxad.runtime.disk import Disk, Tier
from fxad.runtime.space import HOST, Space

LINGER = 0.05  # seconds the background thread waits for more to do: to start one takes 0.1 ms
IDLE = 1 << 26  # bytes of unused slabs kept for reuse where there is no budget


class Slab:
    """`size` bytes, of which `used` matter. `buffer`, which may be larger, is None while they are
    only in the tier below; `ticket` is what that tier knows them by."""

    __slots__ = ("buffer", "busy", "number", "sealed", "size", "ticket", "used")

    def __init__(self, number: int, buffer: Any, size: int) -> None:
        self.number = number
        self.buffer: Any = buffer
        self.size = self.used = size
        self.ticket: Any = None
        self.sealed = False
        self.busy = False  # the background thread reads or writes it


class Shelf:
    """All slabs of one tape or store. Used by one thread; its own background thread does the IO.

    budget: bytes of memory for slabs, used and unused together; None: no bound. below: where
    slabs go when it is reached. space: the memory they are made of. Methods raise StorageError
    once the tier below has failed, and where a slab cannot fit.
    """

    def __init__(
        self, budget: int | None = None, below: Tier | None = None, space: Space = HOST
    ) -> None:
        self.budget = budget
        self.space = space
        self.held = 0  # bytes of memory of all slabs, idle ones included
        self.peak = 0
        self.waits = 0  # times a caller had to wait for the tier below
        self._below = below
        self._changed = threading.Condition()
        self._slabs: dict[int, Slab] = {}  # by number: in the order they were made
        self._idle: dict[int, list[Any]] = {}
        self._idle_bytes = 0
        self._count = 0
        self._filling = True
        self._wanted = -1  # the last slab asked for
        self._short = False  # a caller waits for memory
        self._working = False
        self._error: StorageError | None = None
        self._closed = False

    # ------------------------------------------------------------ what callers do

    def new(self, size: int) -> Slab:
        """A slab to fill. Waits for memory if there is none; its contents are undefined."""
        with self._changed:
            self._filling, self._wanted = True, -1
            slab = Slab(self._count, self._room(size), size)
            self._count += 1
            self._slabs[slab.number] = slab
            return slab

    def seal(self, slab: Slab) -> None:
        """The slab's first `used` bytes are final until it is opened again."""
        with self._changed:
            slab.sealed = True
            self._wake()

    def open(self, slab: Slab) -> None:
        """The slab, which is in memory, will be written to again."""
        with self._changed:
            self._settle(slab)
            self._forget(slab)
            slab.sealed = False

    def want(self, slab: Slab) -> None:
        """Have the slab in memory, and begin to read the ones before it."""
        with self._changed:
            self._filling = False
            self._wanted = slab.number
            self.check()
            if slab.buffer is None:
                self._fetch(slab)
            self._wake()

    def drop(self, slab: Slab) -> None:
        """The slab's bytes are not needed any more."""
        with self._changed:
            self._settle(slab)
            self._forget(slab)
            self._slabs.pop(slab.number, None)
            if slab.buffer is not None:
                self._retire(slab)
            self._wake()

    def check(self) -> None:
        """Raise StorageError if the tier below has failed, or the shelf is closed."""
        if self._error is not None:
            raise self._error
        if self._closed:
            raise StorageError("this tape or store has been closed")

    def close(self) -> None:
        """Free all memory and what lies below. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._working:
                self._changed.wait()
            self._slabs.clear()
            self._idle.clear()
            self.held = self._idle_bytes = 0
        if self._below is not None:
            self._below.close()

    # ------------------------------------------------------------ memory (the lock is held)

    def _room(self, size: int) -> Any:
        """Memory for a slab: unused, new, a clean slab's, or, after waiting, a written one's."""
        waited = False
        while True:
            self.check()
            found = self._room_now(size)
            if found is not None:
                return found
            victim = next((s for s in self._slabs.values() if self._is_clean(s)), None)
            if victim is not None:
                self._retire(victim)
                continue
            if not any(s.busy or self._is_dirty(s) for s in self._slabs.values()):
                raise self._too_small(size)
            self.waits += not waited
            self._short = waited = True
            try:
                self._wake()
                self._changed.wait()
            finally:
                self._short = False

    def _fits(self, size: int) -> bool:
        """Whether memory is there without taking a slab's."""
        in_use = self.held - self._idle_bytes
        found = self._unused(size)
        return self.budget is None or found is not None or in_use + size <= self.budget

    def _room_now(self, size: int) -> Any:
        if (found := self._unused(size)) is not None:
            self._idle_bytes -= found
            return self._idle[found].pop()
        while self.budget is not None and self.held + size > self.budget:
            if not self._idle_bytes:
                return None
            self._discard()
        buffer = self.space.fresh(size)
        self.held += size
        self.peak = max(self.peak, self.held)
        return buffer

    def _unused(self, size: int) -> int | None:
        """The size of an unused buffer for so many bytes: rather one up to twice as large than
        fresh pages, which cost as much as copying what will be in them."""
        if self._idle.get(size):
            return size
        if self.budget is None or self.held + size <= self.budget:
            return None
        return min(
            (s for s, idle in self._idle.items() if idle and size < s <= 2 * size), default=None
        )

    def _discard(self) -> None:
        """Give one unused slab back to the operating system."""
        size = max(size for size, buffers in self._idle.items() if buffers)
        self._idle[size].pop()
        self._idle_bytes -= size
        self.held -= size

    def _retire(self, slab: Slab) -> None:
        """Take the slab's memory for others."""
        assert slab.buffer is not None
        size = slab.buffer.nbytes
        self._idle.setdefault(size, []).append(slab.buffer)
        self._idle_bytes += size
        slab.buffer = None
        while self.budget is None and self._idle_bytes > IDLE:
            self._discard()

    def _is_clean(self, slab: Slab) -> bool:
        loaded = slab.buffer is not None and slab.ticket is not None
        return loaded and not slab.busy and slab.number != self._wanted

    def _is_dirty(self, slab: Slab) -> bool:
        return slab.sealed and slab.ticket is None and not slab.busy and self._below is not None

    def _too_small(self, size: int) -> StorageError:
        assert self.budget is not None
        below = "" if self._below is not None else ", and there is no disk below it"
        return StorageError(
            f"{readable(size)} more do not fit the budget of {readable(self.budget)}, of which "
            f"{readable(self.held - self._idle_bytes)} are in use{below}; raise the budget"
        )

    # ------------------------------------------------------------ moving (the lock is held)

    def _settle(self, slab: Slab) -> None:
        """Wait until the background thread has left the slab."""
        while slab.busy:
            self._changed.wait()

    def _forget(self, slab: Slab) -> None:
        if slab.ticket is not None and self._below is not None:
            self._below.free(slab.ticket)
            slab.ticket = None

    def _fetch(self, slab: Slab) -> None:
        """Bring a slab into memory: wait if that has begun, else do it here."""
        self.waits += 1
        self._settle(slab)
        self.check()
        if slab.buffer is None:
            self._move(slab, self._room(slab.size))
            self.check()

    def _wake(self) -> None:
        """Tell everybody of a change; set the background thread to work if there is any."""
        self._changed.notify_all()
        if self._working or self._job() is None:
            return
        self._working = True
        try:
            threading.Thread(target=self._work, name="fxad-shelf", daemon=True).start()
        except RuntimeError:  # no thread to be had: here, then
            self._work_now()
            self._working = False

    def _job(self) -> Slab | None:
        """A slab to write (it is in memory) or to read (it is not)."""
        if self._below is None or self._closed or self._error is not None:
            return None
        slabs = self._slabs.values()
        in_use = self.held - self._idle_bytes
        if self._short or (self._filling and in_use > (self.budget or in_use) // 2):
            return next(filter(self._is_dirty, slabs), None)
        if not self._filling:
            for slab in reversed(slabs):
                if slab.buffer is None and not slab.busy and slab.number < self._wanted:
                    return slab if self._fits(slab.size) else None
        return None

    def _work(self) -> None:
        """The background thread: one job after another until there has been none for a while."""
        with self._changed:
            while self._work_now() or (not self._closed and self._changed.wait(LINGER)):
                pass
            self._working = False
            self._changed.notify_all()

    def _work_now(self) -> bool:
        """Do all there is to do; whether there was anything."""
        found = False
        while (slab := self._job()) is not None:
            try:
                into = None if slab.buffer is not None else self._room_now(slab.size)
            except MemoryError:  # said to whoever wants the slab, if it is still so then
                break
            self._move(slab, into)
            found = True
        return found

    def _move(self, slab: Slab, into: Any) -> None:
        """Write a slab out, or read it into memory; the lock is released meanwhile."""
        assert self._below is not None
        slab.busy = True
        self._changed.release()
        error = ticket = None
        try:
            if into is None:
                assert slab.buffer is not None
                ticket = self.space.write(self._below, slab.buffer, slab.used)
            else:
                self.space.read(self._below, slab.ticket, into, slab.used)
        except StorageError as failed:
            error = failed
        except Exception as failed:  # whatever a tier does, nobody may wait for ever
            error = StorageError(f"{type(failed).__name__} in the tier below: {failed}")
            error.__cause__ = failed
        finally:
            self._changed.acquire()
            slab.busy = False
            self._changed.notify_all()
        if error is not None:
            self._error = error
        elif into is None:
            slab.ticket = ticket
        else:
            slab.buffer = into


def shelf_of(
    what: str,
    budget: int | str | None,
    directory: str | os.PathLike[str] | None,
    below: Tier | None,
    space: Space = HOST,
) -> Shelf:
    """The shelf that options ask for: with a budget and no tier below there is a file. `what`
    names the budget in errors."""
    limit = None if budget is None else parse_bytes(budget, what)
    if limit is not None and below is None:
        below = Disk(directory)
    return Shelf(limit, below, space)
