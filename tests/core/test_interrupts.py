"""Ctrl-C that is held back until a block has ended."""

import signal
import threading
import time

import pytest

from fxad.core.interrupts import PAUSE, check, kept_whole, uninterrupted


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


def test_what_was_taken_away_is_given_back_before_an_interrupt():
    """Not in the block, nor before its result is assigned; at the latest a moment later."""

    def taken():
        with kept_whole():
            signal.raise_signal(signal.SIGINT)
            return "result"

    before, result = signal.getsignal(signal.SIGINT), None
    with pytest.raises(KeyboardInterrupt):
        result = taken()
        time.sleep(60)
    assert result == "result"
    assert signal.getsignal(signal.SIGINT) is before


def test_the_next_block_does_not_begin():
    done = []
    with pytest.raises(KeyboardInterrupt):
        while True:
            with kept_whole():
                done.append(1)
                signal.raise_signal(signal.SIGINT)
    assert done == [1]
    time.sleep(2 * PAUSE)  # it came once


def test_what_can_be_undone_is_interrupted_at_once():
    check()  # nothing is held back
    with pytest.raises(KeyboardInterrupt), kept_whole() as held:
        signal.raise_signal(signal.SIGINT)
        check()
    assert held.undone


def test_a_handler_that_does_not_raise_undoes_nothing():
    seen, before = [], signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *given: seen.append(given))
    try:
        with kept_whole() as held:
            signal.raise_signal(signal.SIGINT)
            check()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) == 1 and not held.undone
