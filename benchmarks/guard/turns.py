"""Who runs when: blocks of calls in ABBA order, by pairs of fresh processes, within the minutes.

    turns = Turns(base, tree, ["exp, float32"], Probes(2))
    turns.run(turns.names, rounds=4, seconds=20)
    turns.found["exp, float32"].rounds      # log-ratios of each pair of processes

Drift of the machine's speed within four blocks falls on both sides alike, that between them on
neither. Where a process's memory happens to lie does not change while it lives, so there are
several pairs of processes. Some cases are run by two processes of the base as well: what a side
differs from itself is the noise floor of the run.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.guard.probes import Probe, Probes, disturbance
from benchmarks.guard.sides import Ended, Failed, Side, Worker, heard, workers
from benchmarks.guard.verdicts import Estimate, estimate

# Seconds of a block. Long calls: three of them if they fit, for a block's time is its fastest part.
BLOCK, LONGEST = 0.01, 0.045
COUNTS = 3, 6  # times four blocks, at least and at most, of a case in a pair of processes
CONFIRMING = 6, 12  # where one pair has to say it alone: half of 12 samples are ENOUGH
ITSELF = 6  # cases that are run against themselves


@dataclass
class Measured:
    """Of one case. seconds: a call's, by side. beside: a peer's or a ceiling's time, for four
    blocks each, over this tree's."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"base": [], "tree": []})
    rounds: list[list[float]] = field(default_factory=list)
    itself: list[list[float]] = field(default_factory=list)
    beside: dict[str, list[float]] = field(default_factory=dict)
    dropped: int = 0
    failed: str = ""

    @property
    def estimate(self) -> Estimate | None:
        return estimate(self.rounds)


@dataclass(frozen=True)
class Block:
    """A contender's turn: seconds per call, and the probes before and after."""

    seconds: float
    before: Probe
    after: Probe


@dataclass(frozen=True)
class Sample:
    """The log-ratio of a pair of blocks, and how much the machine changed meanwhile."""

    ratio: float
    disturbance: float


@dataclass(frozen=True)
class Beside:
    """What runs once for every four blocks: seconds that it takes for the work of one call."""

    name: str
    run: Callable[[], float]


class Turns:
    """The runs of some cases. confirming: of few, by one more pair, not against themselves."""

    def __init__(
        self,
        base: Side,
        tree: Side,
        names: Sequence[str],
        probes: Probes,
        confirming: bool = False,
        beside: Callable[[str], Sequence[Beside]] = lambda name: (),
    ) -> None:
        self.base, self.tree, self.names = base, tree, list(names)
        self._pairs = 0  # of processes so far
        self.found = {name: Measured() for name in self.names}
        step = max(1, len(self.names) // ITSELF)
        self.itself = [] if confirming else self.names[::step][:ITSELF]
        self._fewest, self._most = CONFIRMING if confirming else COUNTS
        self._probes, self._beside = probes, beside

    def run(
        self,
        names: Sequence[str],
        rounds: int,
        seconds: float,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Some cases, by so many pairs of fresh processes, in about so many seconds.

        What could not run says so in `failed`."""
        stop = time.monotonic() + seconds
        left = rounds * sum(1 + (name in self.itself) for name in names)
        for number in range(self._pairs, self._pairs + rounds):
            waiting = list(names)
            while waiting:
                with workers(*self._sides(number)) as started:
                    pair = started[:2] if number % 2 == 0 else started[1::-1]
                    with contextlib.suppress(Ended):
                        while waiting:
                            name = waiting.pop(0)
                            say(f"pair {number + 1}: {name}")
                            for against in self._opponents(name, pair, started):
                                share = (stop - time.monotonic()) / left
                                left -= 1
                                self._case(name, pair[0], against, share, number)
        self._pairs += rounds

    def _sides(self, number: int) -> list[Side]:
        """Whose process starts first changes from round to round."""
        pair = [self.base, self.tree] if number % 2 == 0 else [self.tree, self.base]
        return [*pair, self.base] if self.itself else pair

    def _opponents(
        self, name: str, pair: Sequence[Worker], started: Sequence[Worker]
    ) -> list[Worker]:
        return [pair[1], started[2]] if name in self.itself else [pair[1]]

    def _case(self, name: str, base: Worker, other: Worker, share: float, number: int) -> None:
        """One case by two processes, for a share of the time."""
        made = self.found[name]
        stop = time.monotonic() + share
        both = (base, other)
        try:
            if made.failed:
                return
            beside = self._beside(name) if other.side is self.tree else ()
            for worker in both:
                worker.tell(do="prepare", case=name)
            heard(both)
            calls = calls_of(max([worker.ask(do="settle")["seconds"] for worker in both]))
            samples: list[Sample] = []
            for count in range(self._most):
                if count >= self._fewest and time.monotonic() > stop:
                    break
                order = (0, 1, 1, 0) if (count + number) % 2 == 0 else (1, 0, 0, 1)
                blocks = self._four([both[side] for side in order], calls)
                samples += ratios(order, blocks)
                if other.side is self.tree:
                    note(made, order, blocks, beside)
            kept = calm(samples)
            made.dropped += len(samples) - len(kept)
            (made.rounds if other.side is self.tree else made.itself).append(kept)
            for worker in both:
                worker.ask(do="drop")
        except Failed as error:
            made.failed = str(error)
            if isinstance(error, Ended):
                raise

    def _four(self, who: Sequence[Worker], calls: int) -> list[Block]:
        blocks = []
        before = self._probes.run()
        for worker in who:
            seconds = worker.ask(do="block", calls=calls)["seconds"]
            after = self._probes.run()
            blocks.append(Block(seconds, before, after))
            before = after
        return blocks


def calls_of(seconds: float) -> int:
    """How many calls of so many seconds make a block."""
    return max(1, round(BLOCK / seconds), min(3, int(LONGEST / seconds)))


def ratios(order: Sequence[int], blocks: Sequence[Block]) -> list[Sample]:
    """What two pairs of blocks say."""
    found = []
    for first in (0, 2):
        pair = blocks[first : first + 2]
        of = dict(zip(order[first : first + 2], pair, strict=True))
        ratio = math.log(of[1].seconds / of[0].seconds)
        found.append(Sample(ratio, disturbance(pair[0].before, pair[0].after, pair[1].after)))
    return found


def calm(samples: Sequence[Sample]) -> list[float]:
    """The ratios without disturbed ones; on a machine that is never calm, the calmest half."""
    quiet = [s for s in samples if s.disturbance <= 1]
    if 2 * len(quiet) < len(samples):
        quiet = sorted(samples, key=lambda s: s.disturbance)[: -(-len(samples) // 2)]
    return [s.ratio for s in quiet]


def note(
    made: Measured, order: Sequence[int], blocks: Sequence[Block], beside: Sequence[Beside]
) -> None:
    """Times of both sides, and of what runs beside them."""
    for side, block in zip(order, blocks, strict=True):
        made.seconds[("base", "tree")[side]].append(block.seconds)
    own = statistics.mean(b.seconds for side, b in zip(order, blocks, strict=True) if side == 1)
    for other in beside:
        made.beside.setdefault(other.name, []).append(other.run() / own)
