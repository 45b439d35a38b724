"""Memory of running programs: blocks that are used again, because fresh pages are slow.

    block = take(nbytes)  # 64-byte aligned, contents undefined
    ...
    give(block)

Arenas are taken for one run and given back at its end. Large results (`result_array`) are given
back when their NumPy array, and every view of it, is gone. Idle blocks are kept up to a bound;
beyond it the ones idle for longest are returned to the operating system. So are, whenever fresh
memory is needed, blocks that nobody wanted for a while, and about as many bytes of others as are
fresh where a program runs for the first time: what set a model up is not needed to train it. Nor is
what compiling the program took: before a large block that is given back, too (`leftovers`).
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import mmap
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.backend.llvm.native import leftovers, nodes
from fxad.core import aligned, system
from fxad.core.aligned import SMALL
from fxad.core.types import Type

# No numbers of `Tuning`, though none reaches a bit: they follow from what fresh pages cost on the
# operating system, and there is one pool of blocks in a process.
RECYCLED = 1 << 16  # results above this many bytes come from recycled blocks
_HUGE = 1 << 22  # from here on ask for huge pages, on all NUMA nodes in turn
_WAITING = 16  # blocks handed back, below that size, that may wait to be counted as idle
_TRIMMED = 1 << 26  # bytes: so large a block, for a first run, is worth milliseconds of trimming
_STALE = 1.0  # seconds; fresh pages for a use as rare as this cost little


class Block:
    """Memory of this process: `size` bytes at `address`, a multiple of 64."""

    __slots__ = ("_map", "address", "idle_since", "size", "taken")

    def __init__(self, size: int) -> None:
        self._map = system.fresh_pages(size)
        if size >= _HUGE:
            system.prefer_huge_pages(self._map)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if size >= _HUGE:
            nodes.interleave(self.address, size)
        self.size = size
        self.taken = 0
        self.idle_since = 0.0


class BlockPool:
    """Idle blocks, best fit first and the warmest of them, at most `bound` bytes."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.lock = threading.Lock()
        self._idle: dict[int, list[Block]] = {}  # by size; who came last goes first
        self._sizes: list[int] = []  # its keys, sorted
        self._idle_bytes = 0
        self.in_use = 0  # bytes asked for (in whole size classes) and not given back
        self.high_water = 0  # the most that has been
        # Handed back and not yet idle: finalizers may run at any moment, even while this thread
        # holds the lock, and a few blocks wait here for being wanted again at once.
        self._returned: deque[Block] = deque()

    def take(self, nbytes: int, first: bool = False) -> Block:
        """A block of at least `nbytes`; an idle one if it is not more than twice as large.

        first: this use is the first of its kind; if it needs fresh memory, about as many bytes of
        idle blocks, oldest first, make room for it.
        """
        size = _rounded(nbytes)
        block = self._last(size)
        if block is not None:
            return block
        with self.lock:
            self._collect()
            fitting = self._idle.get(size) or self._larger(size)
            if fitting:
                block = fitting.pop()
                self._idle_bytes -= block.size
                return self._count(block, size)
            self._drop(self._leaving(size if first else 0))
        if first and size >= _TRIMMED:
            leftovers.give_back()
        return self._count(Block(size), size)

    def _last(self, size: int) -> Block | None:
        """What was handed back last, still counted as in use, if it was taken for this size."""
        returned = self._returned
        if not returned:
            return None
        try:
            block = returned.pop()
        except IndexError:  # another thread was first
            return None
        if block.taken == size:
            return block
        returned.append(block)
        return None

    def _larger(self, size: int) -> list[Block] | None:
        """The blocks of the least size from here on that has any."""
        for known in self._sizes[bisect.bisect_left(self._sizes, size) :]:
            if known > 2 * size:
                return None
            if self._idle[known]:
                return self._idle[known]
        return None

    def _count(self, block: Block, size: int) -> Block:
        block.taken = size
        self.in_use += size
        if self.in_use > self.high_water:
            self.high_water = self.in_use
        return block

    def give(self, block: Block) -> None:
        """Hand a block back. Safe in finalizers."""
        block.idle_since = time.monotonic()
        returned = self._returned
        returned.append(block)
        waiting = len(returned)
        few = block.size < _HUGE and waiting <= _WAITING
        if few and self._idle_bytes + waiting * _HUGE <= self.bound:
            return
        if self.lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self.lock.release()

    def trim(self, bound: int = 0) -> None:
        """Free idle blocks until at most `bound` bytes are left, oldest first."""
        with self.lock:
            self._collect()
            self._shrink(bound)

    @property
    def idle_bytes(self) -> int:
        return self._idle_bytes + sum(block.size for block in tuple(self._returned))

    def _collect(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self.in_use -= block.taken
            same = self._idle.get(block.size)
            if same is None:
                same = self._idle[block.size] = []
                bisect.insort(self._sizes, block.size)
            same.append(block)
            self._idle_bytes += block.size
        if self._idle_bytes > self.bound:
            self._shrink(self.bound)

    def _blocks(self) -> list[Block]:
        """All idle blocks, oldest first."""
        every = [block for blocks in self._idle.values() for block in blocks]
        return sorted(every, key=lambda block: block.idle_since)

    def _leaving(self, wanted: int) -> list[Block]:
        """Stale blocks and, oldest first, others until `wanted` bytes are free; none of those much
        larger, for which it costs more to come back than what comes."""
        stale = time.monotonic() - _STALE
        leaving, freed = list[Block](), 0
        for block in self._blocks():
            if block.idle_since < stale or (freed < wanted and block.size <= 2 * wanted):
                leaving.append(block)
                freed += block.size
        return leaving

    def _shrink(self, bound: int) -> None:
        for block in self._blocks():
            if self._idle_bytes <= bound:
                return
            self._drop([block])

    def _drop(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._idle[block.size].remove(block)
            self._idle_bytes -= block.size
        for size in {block.size for block in blocks}:
            if not self._idle[size]:  # or every search would pass it from now on
                del self._idle[size]
                self._sizes.remove(size)


@functools.lru_cache(maxsize=4096)
def _rounded(nbytes: int) -> int:
    """Up to a size class: sixteen per power of two, whole pages."""
    step = max(mmap.PAGESIZE, 1 << max(nbytes.bit_length() - 5, 0))
    return max(-(-nbytes // step) * step, mmap.PAGESIZE)


blocks = BlockPool(bound=(system.physical_bytes() or 1 << 32) // 8)
take, give = blocks.take, blocks.give
# No child may inherit the list half changed by a thread it does not have.
system.at_fork(blocks.lock.acquire, blocks.lock.release, blocks.lock.release)


class _Lease:
    """Keeps a block out of the pool for as long as it lives; the base of result arrays."""

    __slots__ = ()
    _block: Block

    def __del__(self, give: Callable[[Block], None] = give) -> None:
        block = getattr(self, "_block", None)
        if block is not None:
            give(block)


def result_array(type: Type) -> Callable[[], np.ndarray]:
    """A maker of uninitialised arrays of this type: contiguous and writable.

    They are 64-byte aligned above SMALL bytes; below, NumPy's own allocator is twice as fast.
    """
    shape, dtype, nbytes = type.shape, type.dtype, type.nbytes
    if nbytes <= SMALL:
        return functools.partial(np.empty, shape, dtype)
    if nbytes <= RECYCLED:
        return aligned.maker(shape, dtype, nbytes)
    exact = _lease_class(nbytes)

    def large() -> np.ndarray:
        block = take(nbytes)
        lease = exact.from_address(block.address)
        lease._block = block
        return np.ndarray(shape, dtype, lease)

    return large


@functools.lru_cache(maxsize=4096)
def _lease_class(nbytes: int) -> Any:
    """A ctypes array class of this size whose instances can hold a Block."""
    held = {"__slots__": ("_block",)}
    return type(f"Lease{nbytes}", (_Lease, ctypes.c_char * nbytes), held)
