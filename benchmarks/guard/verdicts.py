"""What paired times say: the median of log-ratios, an interval, and a verdict.

>>> judge(estimate([[0.05, 0.06, 0.05, 0.04, 0.05, 0.06, 0.05, 0.05]]), floor=0.0)
'slower'

A sample is log(time of the new side / time of the base) of two blocks that ran one after the other,
so 0.05 means that the new side took 5% longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = math.log(1.02)  # changes up to 2% are never flagged
LEVEL = 0.95
ENOUGH = 6  # samples: of fewer not even the outermost make an interval of that level

SLOWER, FASTER, UNCHANGED, UNKNOWN = "slower", "faster", "no change", "cannot tell"


@dataclass(frozen=True)
class Estimate:
    """A log-ratio: its median and the interval that holds it in 95 of 100 runs."""

    median: float
    low: float
    high: float
    pairs: int


def estimate(rounds: Sequence[Sequence[float]]) -> Estimate | None:
    """From the samples of each pair of fresh processes; None without any.

    The interval is that of the order statistics (the sign test's) of all samples, widened to hold
    the rounds' own medians but the quarter furthest off: where a process's memory happens to lie
    shifts all its samples alike, and only other processes show that.
    """
    rounds = [samples for samples in rounds if samples]
    pooled = sorted(value for samples in rounds for value in samples)
    if not pooled:
        return None
    rank = _rank(len(pooled))
    middle = statistics.median(pooled)
    medians = sorted((statistics.median(s) for s in rounds), key=lambda m: abs(m - middle))
    agreeing = medians[: len(medians) - len(medians) // 4]
    low, high = min(pooled[rank], *agreeing), max(pooled[-1 - rank], *agreeing)
    return Estimate(middle, low, high, len(pooled))


def _rank(count: int) -> int:
    """How many samples to leave out at either end: the median lies between the rest at LEVEL.

    It lies below the sample of this rank as often as `count` coins show so few heads.
    """
    rank, tail = 0, 1 / 2**count
    while True:
        tail += math.comb(count, rank + 1) / 2**count
        if 2 * tail > 1 - LEVEL:
            return rank
        rank += 1


def threshold(floor: float) -> float:
    """The least change that may be flagged. floor: what a side differs from itself in this run."""
    return max(LEAST, floor)


def judge(found: Estimate | None, floor: float) -> str:
    """slower or faster: the interval lies beyond the threshold; no change: it lies within 2%.

    Everything else cannot be told from these samples.
    """
    if found is None or found.pairs < ENOUGH:
        return UNKNOWN
    least = threshold(floor)
    if found.low > least:
        return SLOWER
    if found.high < -least:
        return FASTER
    return UNCHANGED if found.low >= -LEAST and found.high <= LEAST else UNKNOWN


def visible(found: Estimate, floor: float) -> float:
    """The smallest slowdown that would have been flagged with samples that spread like these."""
    return threshold(floor) + found.median - found.low


def noise_floor(against_itself: Sequence[Estimate | None]) -> float:
    """The largest change found of a side against itself: where the interval leaves zero out."""
    told = (found for found in against_itself if found is not None)
    return max((abs(f.median) for f in told if f.low > 0 or f.high < 0), default=0.0)
