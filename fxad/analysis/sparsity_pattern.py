"""Dependences of values: which of a value's elements depend on which of the inputs'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxad.core.types import TapeType, Type


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Dependences of a value's elements (flat, C order): element rows[k] on input cols[k].

    Sorted by row, then column, each pair once. `width` counts the inputs' elements."""

    rows: np.ndarray
    cols: np.ndarray
    size: int
    width: int

    @classmethod
    def of(cls, rows: np.ndarray, cols: np.ndarray, size: int, width: int) -> Pattern:
        keys = np.sort(rows.astype(np.int64) * max(width, 1) + cols)
        keys = keys[np.diff(keys, prepend=-1) != 0]  # np.unique hashes, which is slow
        return cls(keys // max(width, 1), keys % max(width, 1), size, width)

    def through(self, outs: np.ndarray, ins: np.ndarray, size: int) -> Pattern:
        """The pattern of a value whose element outs[k] depends on element ins[k] of this one."""
        starts = np.searchsorted(self.rows, np.arange(self.size + 1))
        counts = (starts[1:] - starts[:-1])[ins]
        total = int(counts.sum())
        first = np.repeat(starts[ins] - (np.cumsum(counts) - counts), counts)
        return Pattern.of(
            np.repeat(outs, counts), self.cols[first + np.arange(total)], size, self.width
        )

    def everywhere(self, size: int) -> Pattern:
        """Every element of a value of this size depends on all that any element here does."""
        cols = np.unique(self.cols)
        return Pattern.of(
            np.repeat(np.arange(size), len(cols)), np.tile(cols, size), size, self.width
        )


def union(patterns: Sequence[Pattern | None], size: int) -> Pattern | None:
    found = [p for p in patterns if p is not None and len(p.rows)]
    if len(found) < 2:
        return found[0] if found else None
    rows = np.concatenate([p.rows for p in found])
    return Pattern.of(rows, np.concatenate([p.cols for p in found]), size, found[0].width)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of a value: its dependences (None: on nothing), and the value itself.

    A tape's elements are those of its blocks, over all its slots. slots: what is known of single
    ones, where all that were written are known.
    """

    pattern: Pattern | None = None
    value: Any = None
    slots: Mapping[int, tuple[Known, ...]] | None = None


def width_of(type: Type) -> int:
    """Elements at each place of a value: 1, or those of a tape's blocks."""
    return sum(map(size_of, type.blocks)) if isinstance(type, TapeType) else 1


def size_of(type: Type) -> int:
    """Elements of a value."""
    return math.prod(type.shape) * width_of(type)
