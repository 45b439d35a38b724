"""Pushing blocks and popping them again: fxad.runtime.Tape beside what Python and NumPy offer.

    python -m benchmarks.tape [rounds]

Every contender takes a copy of each block when it is pushed, as a tape must, and adds up one
element of each block when it is popped. It is used again in every round, as by the steps of a
training loop; figures are the fastest round's, per block.
"""

from __future__ import annotations

import argparse
import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.harness import Row, alternate, report, row
from fxad.runtime import Tape

SIZES = {8: 50_000, 1 << 10: 20_000, 1 << 14: 4_000, 1 << 20: 100}  # bytes: blocks


class Doubling:
    """Rows of a NumPy array that doubles."""

    def __init__(self) -> None:
        self.rows = np.empty((0,))
        self.count = 0

    def push(self, x: np.ndarray) -> None:
        if self.count == len(self.rows):
            grown = np.empty((max(2 * self.count, 8), *x.shape), x.dtype)
            if self.count:
                grown[: self.count] = self.rows
            self.rows = grown
        self.rows[self.count] = x
        self.count += 1

    def pop(self) -> np.ndarray:
        self.count -= 1
        return self.rows[self.count]


class Listed:
    """A Python list or deque of copies."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self.items = kind()
        self.pop = self.items.pop

    def push(self, x: np.ndarray) -> None:
        self.items.append(x.copy())


def sweep(stack: Any, x: np.ndarray, count: int) -> float:
    push, pop = stack.push, stack.pop
    for _ in range(count):
        push(x)
    total = 0.0
    for _ in range(count):
        total += pop()[0]
    return total


MAKERS: dict[str, Callable[[], Any]] = {
    "Tape": Tape,
    "list": functools.partial(Listed, list),
    "deque": functools.partial(Listed, collections.deque),
    "doubling": Doubling,
}


def rows(quick: bool, peers: Sequence[str]) -> list[Row]:
    """Blocks of 1 KB pushed and popped, per block."""
    count = SIZES[1 << 10]
    runs = {
        name if name != "Tape" else "fxad": functools.partial(sweep, make(), np.ones(128), count)
        for name, make in MAKERS.items()
    }
    return [row("tape, 1 KB block", alternate(runs, 5 if quick else 15), "us", count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=7)
    rounds = parser.parse_args().rounds
    found = []
    for nbytes, count in SIZES.items():
        x = np.ones(nbytes // 8)
        runs = {name: functools.partial(sweep, make(), x, count) for name, make in MAKERS.items()}
        times = alternate(runs, rounds)
        line: Row = {"block": nbytes, "blocks": count}
        line |= {f"{n}, ns": 1e9 * min(t) / count for n, t in times.items()}
        fastest = min(min(t) for name, t in times.items() if name != "Tape")
        line["fastest other / Tape"] = fastest / min(times["Tape"])
        found.append(line)
    report("tape", found)


if __name__ == "__main__":
    main()
