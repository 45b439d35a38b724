"""A process of one side: builds cases and runs blocks of calls, as it is told line by line.

    {"do": "prepare", "case": "exp, float32"}  ->  {}
    {"do": "settle"}                           ->  {"seconds": 0.00002}
    {"do": "block", "calls": 500}              ->  {"seconds": 0.0100}

Orders come on standard input, answers go to what was standard output; whatever the cases print goes
to the standard error. An order that fails is answered {"error": "..."}. The end of input ends it.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from typing import Any, TextIO

from benchmarks.guard.case import Built
from benchmarks.guard.cases import CASES
from benchmarks.guard.fingerprint import fingerprint

SETTLING = 0.02  # seconds of calls before a case is timed at all
PARTS = 20  # of a block: half a millisecond each, longer than a look at the clock takes


class Worker:
    """What lies between two orders: the case that was prepared last."""

    def __init__(self) -> None:
        self._built: Built | None = None

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        match order:
            case {"do": "fingerprint", "case": name}:
                return self._fingerprint(name)
            case {"do": "prepare", "case": name, **rest}:
                self._prepare(name, rest.get("peer"))
                return {}
            case {"do": "settle"}:
                return {"seconds": self._settle()}
            case {"do": "block", "calls": calls}:
                return {"seconds": self._block(calls)}
            case {"do": "drop"}:
                self._built = None
                gc.collect()
                return {}
        raise ValueError(f"not an order: {order}")

    def _fingerprint(self, name: str) -> dict[str, Any]:
        built = CASES[name].build()
        if built.lowered is None:
            return {"fingerprint": None, "arena": None}
        lowered = built.lowered()
        return {"fingerprint": fingerprint(lowered), "arena": lowered.cost()["arena_bytes"]}

    def _prepare(self, name: str, peer: str | None) -> None:
        """Build a case, or its peer, and call it once, which compiles it."""
        self._built = None
        case = CASES[name]
        self._built = case.build() if peer is None else Built(case.peers[peer]())
        self._built.run()
        gc.collect()

    def _settle(self) -> float:
        """Seconds of a call after a few, while no other process works."""
        run = self._ready().run
        taken: list[float] = []
        stop = time.perf_counter() + SETTLING
        while len(taken) < 2 or time.perf_counter() < stop:
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        return min(taken)

    def _ready(self) -> Built:
        if self._built is None:
            raise ValueError("no case was prepared")
        return self._built

    def _block(self, calls: int) -> float:
        """Seconds per call, of the fastest of PARTS: what interrupts a program for less than a
        block does not count. Some calls before it bring data into the caches and wake threads."""
        run = self._ready().run
        for _ in range(calls // 10 if calls > 1 else 0):
            run()
        parts = min(calls, PARTS)
        each, least = calls // parts, math.inf
        gc.disable()
        for _ in range(parts):
            start = time.perf_counter()
            for _ in range(each):
                run()
            least = min(least, time.perf_counter() - start)
        gc.enable()
        return least / each


def serve(orders: TextIO, answers: TextIO) -> None:
    """Answer every line until there are no more."""
    worker = Worker()
    for line in orders:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # a case that this side cannot run is a row that says so
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
