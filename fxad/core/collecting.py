"""Garbage collection put off while a compiler works.

A compilation makes hundreds of thousands of objects that stay, and Python's collector walks over
them again and again: a quarter of the time for a deep model. Reference counts free what is dropped.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0
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
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _was_on:
                gc.enable()
