"""The thread pool, and the memory the native pool code works on.

>>> fxad.set_num_threads(2)
>>> current_pool().threads
2

The threads are native and start at the first parallel kernel. A child made by fork starts its own.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

from fxad.backend.llvm.native.library import PoolByte, runtime
from fxad.core import system
from fxad.core.aligned import LINE, to_line
from fxad.core.cores import get_num_threads, logical_cores

# Looks at the generation counter (about 50 us) before a worker sleeps. No number of `Tuning`: there
# is one pool in a process, whatever its programs were compiled with.
SPIN = 3000


class Pool:
    """`threads - 1` native workers beside whichever thread calls.

    Its memory is never freed: workers may look at it until the process is gone.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        malloc = system.c_function("malloc", ctypes.c_void_p, ctypes.c_size_t)
        start = malloc and malloc(PoolByte.SIZE + LINE + 16 * threads)
        if not start:
            raise MemoryError("no memory for the thread pool")
        self.address = to_line(start)
        ctypes.memset(self.address, 0, PoolByte.SIZE)
        self._word(PoolByte.SPIN).value = SPIN if threads <= logical_cores() else 10
        self._word(PoolByte.THREADS).value = threads
        self._joins = [self._start(number) for number in range(1, threads)]

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.address + offset)

    def _start(self, number: int) -> Callable[[], None]:
        record = self.address + PoolByte.SIZE + 16 * (number - 1)
        ctypes.c_int64.from_address(record).value = self.address
        ctypes.c_int64.from_address(record + 8).value = number
        # Signals must go to Python's threads, or a blocking call there would not be interrupted.
        try:
            return system.start_thread(runtime().worker, record)
        except OSError as error:
            raise RuntimeError(
                f"cannot start thread {number + 1} of {self.threads}: {error.strerror or error}; "
                "try fewer with set_num_threads or FXAD_NUM_THREADS"
            ) from None

    def stop(self) -> None:
        """End the workers once no kernel is running on them. The pool is useless afterwards."""
        runtime().stop(self.address)
        for join in self._joins:
            join()


_lock = threading.Lock()
_pool: Pool | None = None


def current_pool() -> Pool:
    """The pool with get_num_threads() threads, started or restarted if need be."""
    pool = _pool
    if pool is not None and pool.threads == get_num_threads():
        return pool
    return _restart()


def _restart() -> Pool:
    global _pool
    with _lock:
        threads = get_num_threads()
        if _pool is None or _pool.threads != threads:
            old, _pool = _pool, Pool(threads)
            if old is not None:
                old.stop()
        return _pool


def _forget() -> None:
    """In a forked child: the workers stayed behind in the parent, so start afresh when needed."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


system.at_fork(child=_forget)
