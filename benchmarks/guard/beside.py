"""What runs in the same turns as a case: the loop that is its ceiling, and its peers.

    contenders = Contenders(tree, ["torch"], threads=2, stack=stack)
    [one.name for one in contenders("product square, 1000x1000x1000 NN float32")]

A loop runs in this process. Peers run in one of their own each, and rest after every block: the
threads of OpenMP spin for up to 30 ms on cores that the next block needs.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks import ceilings
from benchmarks.ceilings import Ceiling
from benchmarks.guard.cases import CASES
from benchmarks.guard.sides import Side, Worker
from benchmarks.guard.turns import Beside, calls_of

REST = 0.1  # seconds
CEILING = "ceiling"  # its name among what runs beside a case


class Contenders:
    """name of a case -> what runs beside it. Peers' processes end with the stack."""

    def __init__(self, tree: Side, peers: Sequence[str], threads: int, stack: ExitStack) -> None:
        self._tree, self._peers, self._threads, self._stack = tree, peers, threads, stack
        self._workers: dict[str, Worker] = {}

    def peers_of(self, name: str) -> list[str]:
        """Those of the peers asked for that can do a case."""
        return [who for who in self._peers if who in CASES[name].peers]

    def __call__(self, name: str) -> list[Beside]:
        case = CASES[name]
        found = []
        if case.ceiling:  # before peers, whose threads spin after their blocks
            loop, amount = self._loop(case.ceiling)
            share = case.amount / amount
            found.append(Beside(CEILING, lambda: share * _seconds(loop)))
        return [*found, *(self._peer(who, name) for who in self.peers_of(name))]

    def _peer(self, who: str, name: str) -> Beside:
        if who not in self._workers or not self._workers[who].alive:
            self._workers[who] = Worker(self._tree)
            self._stack.callback(self._workers[who].end)
        worker = self._workers[who]
        worker.ask(do="prepare", case=name, peer=who)
        calls = calls_of(worker.ask(do="settle")["seconds"])

        def run() -> float:
            found: float = worker.ask(do="block", calls=calls)["seconds"]
            time.sleep(REST)
            return found

        return Beside(who, run)

    @functools.cache  # noqa: B019 - one object a run
    def _loop(self, ceiling: str) -> Ceiling:
        """Long enough to be a measure: some ten milliseconds."""
        match ceiling:
            case "float32" | "float64" | "bfloat16":
                return ceilings.fma(self._threads, 1_000_000, ceilings.unit_for(ceiling))
            case "reading":
                return ceilings.reading(1 << 26, self._threads)
        raise ValueError(f"no ceiling named {ceiling!r}")


def _seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
