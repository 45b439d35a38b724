"""What a compiled step takes of the allocator: the oracle of predicted bytes."""

from __future__ import annotations

import gc

import numpy as np

import fxad
from fxad.backend.llvm.native.memory import blocks
from fxad.runtime import session


def measured(step, *args) -> int:
    """Bytes of arguments, of what the allocator gave for the step, and of values offloaded."""
    gc.collect()
    session.trim()  # the run before this one may have offloaded more
    blocks.trim(blocks.idle_bytes)  # counts what has been given back
    before = blocks.high_water = blocks.in_use
    result = step(*args)
    seen = blocks.high_water - before
    waited = sum(s.shelf.peak for run in session._idle for s in run.stores.values())
    assert waited <= step.lower(*args).memory()["offload_bytes"]
    del result
    gc.collect()
    return seen + waited + sum(np.asarray(a).nbytes for a in fxad.tree.leaves(args))
