"""Ctrl-C held back where an exception between two lines would leave foreign memory in disorder.

with uninterrupted():
    ...        # short, or long only inside calls of C
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have SIGINT handled at the end of the block. Only the main thread runs handlers, so there is
    nothing to do in others."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pending = []
    try:
        signal.signal(signal.SIGINT, lambda *given: pending.append(given))
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if pending:
            handler(*pending[0])
