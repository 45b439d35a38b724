"""Two short loops round every block, that say whether the machine was as fast as before.

    probes = Probes(threads=2)
    before = probes.run()
    ...
    disturbance(before, probes.run()) > 1

A loop of multiply-adds on registers sees a core that is taken away or clocked down, a loop that
only reads a neighbour who takes the memory.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks import ceilings

TURNS = 100_000  # of the multiply-adds: about a millisecond
READ = 1 << 24  # elements: 64 MiB, more than a core's share of the last cache
COMPUTE, MEMORY = 1.5, 1.5  # factors between two probes from which what lay between is dropped


@dataclass(frozen=True)
class Probe:
    """Seconds of both loops."""

    compute: float
    memory: float


class Probes:
    """The loops, on as many threads as the cases take."""

    def __init__(self, threads: int) -> None:
        self._compute, self.flops = ceilings.fma(threads, TURNS)
        self._memory, self.bytes = ceilings.streams(1, 0, READ, threads)
        self.run()

    def run(self) -> Probe:
        start = time.perf_counter()
        self._compute()
        between = time.perf_counter()
        self._memory()
        return Probe(between - start, time.perf_counter() - between)


def disturbance(*probes: Probe) -> float:
    """How much the machine's speed changed among the probes of one pair: above 1 is too much."""
    compute, memory = ([getattr(p, name) for p in probes] for name in ("compute", "memory"))
    return max(max(compute) / min(compute) / COMPUTE, max(memory) / min(memory) / MEMORY)
