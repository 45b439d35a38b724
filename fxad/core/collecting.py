"""Garbage collection put off while functions are traced and compiled, or modules are loaded.

A compilation makes hundreds of thousands of objects that stay, and Python's collector walks over
them again and again: a quarter of the time for a deep model. Reference counts free what is dropped.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fxad.core import system


class _Thread(threading.local):
    inside = 0


FEW = 1000  # Python 3.12 itself freezes what is immortal, 375 objects; a program freezes all it has
_lock = system.free_in_children(threading.Lock())
_thread = _Thread()
_inside = 0  # of all threads
_was_on = False


@contextmanager
def without_collection() -> Iterator[None]:
    """No automatic garbage collection inside this block, by any thread. Blocks may overlap."""
    global _inside, _was_on
    with _lock:
        if _inside == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _inside += 1
        _thread.inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _thread.inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()


def _forked() -> None:
    """In a forked child: the blocks of other threads than the one that forked never end."""
    global _inside
    if _inside and not _thread.inside and _was_on:
        gc.enable()
    _inside = _thread.inside


system.at_fork(child=_forked)


@contextmanager
def while_importing() -> Iterator[None]:
    """No automatic garbage collection inside this block, nor soon of what it made: modules stay."""
    with without_collection():
        yield
        if gc.get_freeze_count() < FEW:  # what was frozen before should stay so
            gc.freeze()
            gc.unfreeze()  # into the oldest generation, which is looked at last
