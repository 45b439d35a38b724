"""Signals that ask a run to end: the first one is noted, and the loop stops where it can save.

with stopping() as stop:
    while not stop.is_set():
        ...
print(stop.signal)                          # Signals.SIGTERM
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Ctrl-C, a polite kill, and a terminal or connection that went away."""


class Stop:
    """Whether a signal asked to stop, and the first that did."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __repr__(self) -> str:
        return f"Stop({self.signal.name if self.signal else ''})"

    def is_set(self) -> bool:
        """Whether to stop."""
        return self.signal is not None

    @property
    def status(self) -> int:
        """What a shell expects of a process that a signal ended: 128 and the signal's number."""
        return 128 + self.signal if self.signal else 0


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """A `Stop` that Ctrl-C, SIGTERM or SIGHUP sets; Ctrl-C after that interrupts at once.

    The others may come again, as they do when a terminal closes: what is being saved then is
    saved. A signal that the process ignores, as under nohup, stays ignored. Outside the main
    thread, where Python delivers no signals, nothing sets it.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    handled = [n for n, handler in before.items() if handler not in (signal.SIG_IGN, None)]

    def handle(number: int, frame: Any) -> None:
        again = stop.is_set()
        stop.signal = stop.signal or signal.Signals(number)
        if again and number == signal.SIGINT:
            earlier = before[signal.SIGINT]
            (earlier if callable(earlier) else signal.default_int_handler)(number, frame)

    for number in handled:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number in handled:
            signal.signal(number, before[number])
