"""Ctrl-C that is held back until a block has ended."""

import signal
import threading
import time

import pytest

from fxad.core.interrupts import PAUSE, hold, release, uninterrupted


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


def interrupted() -> bool:
    """Ctrl-C, held back."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return hold()
    return False


def test_an_interrupt_that_is_held_back_comes_a_moment_later():
    with pytest.raises(KeyboardInterrupt):
        assert interrupted()
        time.sleep(60)
    release()  # it came once
    time.sleep(2 * PAUSE)


def test_or_when_it_is_released():
    assert interrupted()
    with pytest.raises(KeyboardInterrupt):
        release()
    release()
    time.sleep(2 * PAUSE)


def test_handlers_of_others_are_not_called_again():
    def handle(*_):
        seen.append(1)
        raise KeyboardInterrupt

    seen, before = [], signal.signal(signal.SIGINT, handle)
    try:
        assert not interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    time.sleep(2 * PAUSE)
    assert seen == [1]
