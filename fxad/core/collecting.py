"""Garbage collection put off while functions are traced and compiled, or modules are loaded.

A compilation makes hundreds of thousands of objects that stay, and Python's collector walks over
them again and again: a quarter of the time for a deep model. Reference counts free what is dropped.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from fxad.core.overlapping import Overlapping

FEW = 1000  # Python 3.12 itself freezes what is immortal, 375 objects; a program freezes all it has


def _stop() -> bool:
    was_on = gc.isenabled()
    gc.disable()
    return was_on


def _go_on(was_on: bool) -> None:
    if was_on:
        gc.enable()


_put_off = Overlapping(_stop, _go_on)


def without_collection() -> AbstractContextManager[None]:
    """No automatic garbage collection inside this block, by any thread. Blocks may overlap."""
    return _put_off.block()


@contextmanager
def while_importing() -> Iterator[None]:
    """No automatic garbage collection inside this block, nor soon of what it made: modules stay."""
    with without_collection():
        yield
        if gc.get_freeze_count() < FEW:  # what was frozen before should stay so
            gc.freeze()
            gc.unfreeze()  # into the oldest generation, which is looked at last
