"""A stack of array blocks: what a forward pass leaves for the backward pass.

    tape = Tape("64MiB")      # beyond that, in a file
    tape.push(x)              # copied
    x = tape.pop()            # a view, valid until the next push

Blocks lie one behind another in slabs, the first one small; when a slab is full another is linked
to it, and nothing moves. Blocks of one type in a row are rows of one array: pushing and popping
them is one assignment and one view.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any, Self

import numpy as np

from fxad.core.aligned import LINE, to_line
from fxad.core.errors import BadArgument, IndexOutOfRange
from fxad.runtime.disk import Tier
from fxad.runtime.shelf import Slab, shelf_of

INLINE = 1 << 12  # the first slab
LARGEST = 1 << 22  # slabs double until they have this size
_EMPTY_ROWS = 1 << 10  # rows of a run of blocks without elements


class _Run:
    """Blocks of one type in a row: `count` of them from byte `start` of their slab."""

    __slots__ = ("count", "dtype", "shape", "start")

    def __init__(self, start: int, dtype: np.dtype, shape: tuple[int, ...]) -> None:
        self.start = start
        self.dtype = dtype
        self.shape = shape
        self.count = 0

    @property
    def step(self) -> int:
        """Bytes of one block."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def rows(self, buffer: np.ndarray) -> np.ndarray:
        """All blocks there is room for in the rest of the slab."""
        step = self.step
        count = (buffer.nbytes - self.start) // step if step else _EMPTY_ROWS
        return np.ndarray((count, *self.shape), self.dtype, buffer.data, self.start)


class Tape:
    """A last-in, first-out store of arrays, in memory up to a budget and in a file beyond it.

    budget: bytes (or "64MiB") of memory; None: no bound and no file. directory: where the file
    is made; it has no name and is gone when the tape is, also after a crash. below: another tier
    instead of a file (see `fxad.runtime.disk.Tier`). A tape belongs to one thread at a time and
    takes no lock except where a slab ends; see SharedTape.

    Raises StorageError where the file system fails or a block does not fit the budget.
    """

    __slots__ = (
        *("__weakref__", "shelf", "_before", "_dtype", "_largest"),
        *("_limit", "_pages", "_row", "_rows", "_shape"),
    )

    def __init__(
        self,
        budget: int | str | None = None,
        directory: str | os.PathLike[str] | None = None,
        *,
        below: Tier | None = None,
    ) -> None:
        self.shelf = shelf_of("a tape's budget", budget, directory, below)
        limit = self.shelf.budget
        self._largest = LARGEST if limit is None else max(min(LARGEST, limit // 8), LINE)
        self._pages: list[tuple[Slab, list[_Run]]] = []
        self._before = 0  # blocks in all runs but the current one
        self._row = 0  # blocks in the current run
        self._limit = 0  # how many may be there
        self._rows = np.empty(0)
        self._dtype: Any = None
        self._shape: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self._before + self._row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop all blocks and the file. The tape cannot be used afterwards."""
        self._pages.clear()
        self._before = self._row = self._limit = 0
        self._rows = np.empty(0)
        self.shelf.close()

    # ------------------------------------------------------------ push and pop

    def push(self, block: np.ndarray) -> None:
        """Put a copy of an array on top. Raises BadArgument for arrays of Python objects."""
        row = self._row
        try:
            same = block.dtype is self._dtype and block.shape == self._shape
        except AttributeError:
            raise BadArgument(f"a tape holds arrays, not {type(block).__name__}") from None
        if same and row < self._limit:
            self._rows[row] = block
            self._row = row + 1
        else:
            self._push(block)

    def pop(self) -> np.ndarray:
        """Take the newest block: a view, valid until the next push. Raises IndexOutOfRange where
        there is none."""
        row = self._row - 1
        if row < 0:
            return self._pop()
        self._row = row
        return self._rows[row, ...]

    def _push(self, array: np.ndarray) -> None:
        self.shelf.check()
        if array.dtype.hasobject:
            raise BadArgument(f"a tape holds arrays of numbers, not of dtype {array.dtype}")
        same = array.dtype == self._dtype and array.shape == self._shape
        if self._pages and self._pages[-1][0].sealed:  # gone back to by pop
            self.shelf.open(self._pages[-1][0])
            self._limit = len(self._rows)
        if not same or self._row >= self._limit:
            self._begin(array)
        self._rows[self._row] = array
        self._row += 1

    def _begin(self, array: np.ndarray) -> None:
        """Start a run of blocks like this one: in this slab if it has room, else in a new one."""
        end = self._finish()
        run = _Run(to_line(end), array.dtype, array.shape)
        if not self._pages or run.start + array.nbytes > self._pages[-1][0].size:
            size = INLINE
            if self._pages:
                self.shelf.seal(self._pages[-1][0])
                size = max(2 * self._pages[-1][0].size, INLINE)
            fitted = to_line(array.nbytes)
            slab = self.shelf.new(max(min(size, self._largest), fitted))
            self._pages.append((slab, []))
            run.start = 0
        self._pages[-1][1].append(run)
        self._enter(run)

    def _finish(self) -> int:
        """Note how far the current run goes; the first free byte of its slab."""
        if not self._pages or not self._pages[-1][1]:
            return 0
        slab, runs = self._pages[-1]
        run = runs[-1]
        run.count = self._row
        self._before += self._row
        self._row = 0
        slab.used = run.start + run.count * run.step
        return slab.used

    def _enter(self, run: _Run) -> None:
        """Make a run the current one."""
        slab = self._pages[-1][0]
        assert slab.buffer is not None
        self._rows = run.rows(slab.buffer[: slab.size])
        self._dtype, self._shape = run.dtype, run.shape
        self._row = run.count
        self._before -= run.count
        self._limit = 0 if self._pages[-1][0].sealed else len(self._rows)

    def _pop(self) -> np.ndarray:
        while self._row == 0:
            if len(self) == 0:
                raise IndexOutOfRange("pop from an empty tape")
            self._back()
        self._row -= 1
        return self._rows[self._row, ...]

    def _back(self) -> None:
        """Leave the current run, which is empty, for the one before it."""
        self.shelf.check()
        slab, runs = self._pages[-1]
        runs.pop()
        if not runs:
            self._rows, self._limit = np.empty(0), 0
            self._pages.pop()
            self.shelf.drop(slab)
            slab, runs = self._pages[-1]
            self.shelf.want(slab)
        self._enter(runs[-1])


class SharedTape(Tape):
    """A tape for any number of threads; `pop` returns a copy."""

    __slots__ = ("_lock",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lock = threading.RLock()

    def push(self, block: np.ndarray) -> None:
        """Put a copy of an array on top."""
        with self._lock:
            super().push(block)

    def pop(self) -> np.ndarray:
        """Take the newest block of all threads."""
        with self._lock:
            return super().pop().copy()
