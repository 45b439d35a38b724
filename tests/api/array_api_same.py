"""The comparison of results with what the array API standard or NumPy says."""

from __future__ import annotations

from typing import Any

import numpy as np


def same(got: Any, wanted: Any) -> None:
    """Equal dtype, shape and elements; zeros of equal sign."""
    if isinstance(wanted, tuple):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            same(g, w)
        return
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
