"""Ctrl-C held back where an exception between two lines would lose or damage something.

with uninterrupted():
    ...        # short, or long only inside calls of C

release()      # a Ctrl-C that was held back comes here, if there is one
try:
    status = native(...)     # overwrites what the caller has given away
except KeyboardInterrupt:
    if not hold():           # it comes when the caller has the results
        raise
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from fxad.core import system

PAUSE = 0.05  # seconds for which `hold` puts an interrupt off: callers assign in microseconds

_held: list[threading.Timer] = []  # at most one; whoever takes it out sends the interrupt


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


def hold() -> bool:
    """Put the KeyboardInterrupt that is being handled off: it comes again after `PAUSE`, or from
    `release`. False, and nothing happens, where it is not from Python's own handler: another one
    may count how often it is called."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    timer = threading.Timer(PAUSE, _send)
    timer.daemon = True
    _held[:] = [timer]
    try:
        timer.start()
    except RuntimeError:  # no more threads: the interpreter exits
        _held.clear()
        return False
    return True


def release() -> None:
    """Raise the KeyboardInterrupt that was put off, if there is one."""
    if _held and threading.current_thread() is threading.main_thread() and _taken():
        raise KeyboardInterrupt


def _send() -> None:
    if _taken():
        system.interrupt_main_thread()


def _taken() -> bool:
    """Whether the interrupt was there, which then is nobody else's to send."""
    try:
        _held.pop().cancel()
    except IndexError:
        return False
    return True
