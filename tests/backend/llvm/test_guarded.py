"""Pages around arrays do end a process that leaves them, and nothing else changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from guarded import MARK, around, guarded

LEAVES = """
import ctypes, sys
import numpy as np
from guarded import guarded
array = guarded(np.arange(10.0))
byte = ctypes.c_char.from_address(array.ctypes.data + int(sys.argv[1]))
byte.value
"""


def reads(offset: int) -> int:
    """The exit status of a process that reads one byte so far from a guarded array's first."""
    command = [sys.executable, "-c", LEAVES, str(offset)]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True).returncode


@pytest.mark.skipif(sys.platform == "win32", reason="no pages are forbidden there")
def test_a_byte_past_the_end_ends_the_process():
    assert reads(79) == 0
    assert reads(80) < 0


@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (1030,)])
@pytest.mark.parametrize("offset", [None, 0, 20])
def test_copies_lie_between_marks(shape, offset):
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    copy = guarded(array, offset)
    before, after = around(copy)
    assert np.array_equal(copy, array) and copy.shape == shape
    assert (before == MARK).all() and (after == MARK).all()
    assert len(after) < 64 if copy.size else not len(after)
    if offset is not None and copy.size:
        assert copy.ctypes.data % 64 == offset
