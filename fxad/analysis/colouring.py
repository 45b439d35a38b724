"""Colours for the columns of sparse matrices: those of one colour are found by one pass."""

from __future__ import annotations

import numpy as np


def colour(rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """A colour for each of `count` columns, so that no row has two columns of one colour.

    Greedy, columns with the most entries first.
    """
    by_col = [group.tolist() for group in _groups(cols, rows, count)]
    taken = [0] * (int(rows.max(initial=-1)) + 1)  # a bit for every colour in a row
    colours = np.full(count, -1)
    for column in sorted(range(count), key=lambda c: -len(by_col[c])):
        used = 0
        for row in by_col[column]:
            used |= taken[row]
        free = ~used & (used + 1)  # the lowest bit that is not set
        colours[column] = free.bit_length() - 1
        for row in by_col[column]:
            taken[row] |= free
    return colours


def colour_apart(rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """A colour for each of `count` nodes of a symmetric pattern, neighbours differing."""
    near = _groups(rows, cols, count)
    colours = np.full(count, -1)
    for node in range(count):
        used = set(colours[near[node]].tolist())
        choice = 0
        while choice in used:
            choice += 1
        colours[node] = choice
    return colours


def colour_symmetric(rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """A star colouring of a symmetric pattern: neighbours differ, and no path of four nodes has
    only two colours. Of every pair of places (i, j), (j, i) one can be read off its row: no other
    entry of row i is in a column of j's colour, or none of row j in one of i's.

    Greedy; Gebremedhin, Manne, Pothen: What color is your Jacobian? SIAM Review 47 (2005), alg. 4.1
    """
    apart = rows != cols
    near = [group.tolist() for group in _groups(rows[apart], cols[apart], count)]
    colours = [-1] * count
    for node in sorted(range(count), key=lambda n: -len(near[n])):
        used: set[int] = set()
        for w in near[node]:
            if colours[w] < 0:
                used.update(colours[x] for x in near[w])
                continue
            used.add(colours[w])
            for x in near[w]:
                if x != node and colours[x] >= 0 and colours[x] not in used:
                    same = (colours[y] == colours[w] for y in near[x] if y != w)
                    if any(same):
                        used.add(colours[x])
        choice = 0
        while choice in used:
            choice += 1
        colours[node] = choice
    return np.array(colours, dtype=np.int64)


def _groups(keys: np.ndarray, values: np.ndarray, count: int) -> list[np.ndarray]:
    order = np.argsort(keys, kind="stable")
    cuts = np.searchsorted(keys[order], np.arange(1, count))
    return np.split(values[order], cuts) if count else []
