"""What one run of a compiled program has offloaded.

    with session():
        put(0, "disk", 1 << 20, x)
        x = take(0)

Keys are numbers given at compile time; what a loop puts under one key is a stack. Memory and files
of a run that ended well are used by the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from fxad.core import system
from fxad.core.config import config
from fxad.core.errors import StorageError
from fxad.runtime.store import Store

Settings = tuple[int, str | None]


class _Run:
    """Stores by place and memory, made when first needed, and for each key its store and how many
    values lie there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stores: dict[tuple[str, int], Store] = {}
        self.stacks: dict[int, tuple[Store, int]] = {}

    def store(self, place: str, memory: int) -> Store:
        found = self.stores.get((place, memory))
        if found is None:
            budget, directory = self.settings
            found = Store(memory or budget, directory) if place == "disk" else Store()
            self.stores[place, memory] = found
        return found

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.runs: list[_Run] = []


_thread = _Thread()
_idle: list[_Run] = []  # at most one: memory for the next run
_lock = threading.Lock()


@contextmanager
def session() -> Iterator[None]:
    """Around one run of a program. However it ends, nothing it offloaded stays."""
    settings = (config.offload_memory, config.offload_directory)
    with _lock:
        run = _idle.pop() if _idle else None
    if run is not None and run.settings != settings:
        run.close()
        run = None
    run = run or _Run(settings)
    _thread.runs.append(run)
    kept = False
    try:
        yield
        with _lock:
            kept = not _idle and not any(map(len, run.stores.values()))
            if kept:
                run.stacks.clear()
                _idle.append(run)
    finally:
        _thread.runs.pop()
        if not kept:
            run.close()


def _forked() -> None:
    """In a new process: what waits for the next run is the parent's, its file above all."""
    global _lock
    _lock = threading.Lock()  # nobody here holds it
    _idle.clear()


system.at_fork(child=_forked)


def trim() -> None:
    """Free the memory and the file kept for the next run."""
    with _lock:
        runs = _idle[:]
        _idle.clear()
    for run in runs:
        run.close()


def put(key: int, place: str, memory: int, array: np.ndarray) -> None:
    """Put a copy of an array on the stack of a key. `memory`: bytes for values on their way to
    the disk (0: the setting `offload_memory`). Raises StorageError."""
    run = _current()
    store, depth = run.stacks.get(key) or (run.store(place, memory), 0)
    store.put((key, depth), array)
    run.stacks[key] = store, depth + 1


def take(key: int) -> np.ndarray:
    """Take the top of a key's stack; the memory is borrowed until the next call."""
    run = _current()
    store, depth = run.stacks[key]
    array: np.ndarray = store.take((key, depth - 1))
    run.stacks[key] = store, depth - 1
    return array


def reserve(key: int, place: str, memory: int, own: np.ndarray) -> np.ndarray | None:
    """An offload buffer like `own` in which to make what is then put on a key's stack, so that
    `put` need not copy; None where there is no memory to spare. Raises StorageError."""
    run = _current()
    store, depth = run.stacks.get(key) or (run.store(place, memory), 0)
    array: np.ndarray | None = store.reserve((key, depth), own)
    return array


def borrow(key: int, own: np.ndarray) -> np.ndarray | None:
    """Take the top of a key's stack in its offload buffer, until `release`. Where memory is too
    short for that it is copied to `own`: None. Raises StorageError."""
    run = _current()
    store, depth = run.stacks[key]
    run.stacks[key] = store, depth - 1
    array: np.ndarray | None = store.borrow((key, depth - 1), own)
    return array


def release(key: int) -> tuple[()]:
    """The buffer borrowed of this key is not needed any more."""
    store, depth = _current().stacks[key]
    store.release((key, depth))
    return ()


def _current() -> _Run:
    if not _thread.runs:
        raise StorageError("a program offloaded a value outside of a session; this is a bug")
    return _thread.runs[-1]
