"""Blocks that tests of tapes and stores push, each told from the others by its number."""

from __future__ import annotations

import numpy as np


def block(number: int, shape: tuple[int, ...] = (100, 100), dtype=np.float64) -> np.ndarray:
    return (np.arange(np.prod(shape)).reshape(shape) + number).astype(dtype)
