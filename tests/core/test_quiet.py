"""Floating-point warnings are off between `silence` and `restore`, in this context only."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fxad.core.quiet import restore, silence


def test_warnings_are_off_and_come_back():
    one, zero = np.ones(1), np.zeros(1)
    with np.errstate(all="raise"):
        modes = np.geterr()
        before = silence()
        assert np.isinf(one / zero).all()
        inner = silence()
        restore(inner)
        assert np.isnan(zero / zero).all()
        restore(before)
        assert np.geterr() == modes
        with pytest.raises(FloatingPointError):
            one / zero


def test_other_threads_keep_theirs():
    seen = []
    before = silence()
    try:
        with np.errstate(all="ignore"):
            ours = np.geterr()
        assert np.geterr() == ours
        thread = threading.Thread(target=lambda: seen.append(np.geterr()))
        thread.start()
        thread.join()
    finally:
        restore(before)
    assert seen[0] != ours
