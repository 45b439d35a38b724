"""Finding traced values that outlive their trace, on request.

>>> kept = []
>>> with checking_leaks():
...     fxad.jit(lambda x: kept.append(x) or x)(1.0)
Traceback (most recent call last):
...
LeakedTracerError: a traced value f32[] of f ... is still held by a list ...
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from fxad.core.errors import LeakedTracerError


class _State(threading.local):
    on = False


_state = _State()


@contextmanager
def checking_leaks() -> Iterator[None]:
    """Inside this block (of this thread) every trace (of jit, vmap, a loop's body) raises
    LeakedTracerError at its end if one of its values is still held somewhere. Slow: for debugging.

    >>> with fxad.checking_leaks():
    ...     y = fxad.jit(jnp.sin)(0.0)
    >>> y
    Array(0., dtype=float32)
    """
    before = _state.on
    _state.on = True
    try:
        yield
    finally:
        _state.on = before


def watched() -> bool:
    return _state.on


def check_released(level: Any, kind: type, name: str) -> None:
    """Raise LeakedTracerError if a tracer (an instance of `kind`) of a finished level exists."""
    gc.collect()
    # By type: asking an object for its __class__ may run code of its own.
    found: list[Any] = [v for v in gc.get_objects() if issubclass(type(v), kind)]
    left = [v for v in found if v.level is level]
    if left:
        holders = [h for h in gc.get_referrers(left[0]) if not isinstance(h, FrameType)]
        kinds = sorted({type(h).__name__ for h in holders if h is not left})
        raise LeakedTracerError(
            f"a traced value {left[0].type} of {name}, made at {left[0].where}, is still held"
            f"{' by a ' + ' and a '.join(kinds) if kinds else ''} after {name} has returned; "
            "return it instead of storing it"
        )
