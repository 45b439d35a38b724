"""Ctrl-C held back where an exception between two lines would lose or damage something.

with uninterrupted():
    ...        # short, or long only inside calls of C

with kept_whole() as interrupts:
    ...        # takes something away from the caller and returns something for it
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from fxad.core import system

try:  # what `signal` puts around these two, to make enums, takes 10 us of a call of 15
    import _signal as plain
except ImportError:  # another Python than CPython
    import signal as plain

_INTERRUPT = int(signal.SIGINT)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Have SIGINT handled at the end of the block. Only the main thread runs handlers, so there is
    nothing to do in others."""
    handler = _handler()
    if handler is None:
        yield
        return
    pending = []
    try:
        plain.signal(_INTERRUPT, lambda *given: pending.append(given))
        yield
    finally:
        plain.signal(_INTERRUPT, handler)
        if pending:
            handler(*pending[0])


def _handler() -> Callable[..., Any] | None:
    """What Python runs for SIGINT in this thread, if anything."""
    if threading.current_thread() is not threading.main_thread():
        return None
    handler = plain.getsignal(_INTERRUPT)
    return handler if callable(handler) else None


PAUSE = 0.05  # seconds: the caller has long assigned what it was returned

_open: list[kept_whole] = []  # of the main thread, the innermost last
_late: threading.Timer | None = None  # will send a signal that was held back


class kept_whole:
    """Have SIGINT handled when the caller of a function that this block is the end of has assigned
    the result: `PAUSE` after the block, or when the next one begins. `check` handles it at once.

    undone: whether `check` has ended the block; whoever opened it gives back what was taken.
    """

    __slots__ = ("_handler", "_pending", "undone")

    def __init__(self) -> None:
        self._handler: Callable[..., Any] | None = None
        self._pending: list[tuple[Any, ...]] = []
        self.undone = False

    def __enter__(self) -> kept_whole:
        global _late
        self._handler = _handler()
        if self._handler is None:
            return self
        late, _late = _late, None
        if late is not None and late.is_alive():
            late.cancel()
            signal.raise_signal(signal.SIGINT)  # the handler runs before the next line
        plain.signal(_INTERRUPT, lambda *given: self._pending.append(given))
        _open.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        global _late
        if self._handler is None:
            return
        _open.pop()
        plain.signal(_INTERRUPT, self._handler)
        if self._pending:
            _late = threading.Timer(PAUSE, system.interrupt_main_thread)
            _late.daemon = True
            _late.start()

    def handle(self) -> None:
        """Run the handler if there was a signal."""
        if self._pending and self._handler is not None:
            self.undone = True
            self._handler(*self._pending.pop())
            self.undone = False  # it did not raise


def check() -> None:
    """Handle a signal that is held back by `kept_whole`: what has begun can still be undone."""
    if _open and threading.current_thread() is threading.main_thread():
        _open[-1].handle()
