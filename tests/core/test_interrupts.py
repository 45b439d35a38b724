"""Ctrl-C that is held back until a block has ended."""

import signal
import threading

import pytest

from fxad.core.interrupts import uninterrupted


def test_an_interrupt_comes_after_the_block():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt):
        with uninterrupted(), uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("inner")
        done.append("not reached")
    assert done == ["inner"]
    assert signal.getsignal(signal.SIGINT) is before


def test_it_is_not_lost_behind_an_error():
    with pytest.raises(KeyboardInterrupt) as caught, uninterrupted():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("from the block")
    assert isinstance(caught.value.__context__, ValueError)


def test_other_threads_and_ignored_signals_are_left_alone():
    def inside():
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    seen, before = [], signal.getsignal(signal.SIGINT)
    other = threading.Thread(target=inside)
    other.start()
    other.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        inside()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [before, signal.SIG_IGN]
