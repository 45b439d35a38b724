"""What suits a processor of no known kind: a few questions that a short measurement answers.

    answers, unanswered = calibrate(target, seconds=2.0)
    str(answers[0])   # "gemv.prefetch_level 2 instead of 3: ahead in 11 of 11 runs, 0.61 ..."

Each question sets the safe choice beside its variants, in alternating runs on one thread. A variant
is taken only where it is 5% faster in 9 of 11 runs; what cannot be told stays safe. It is all below
the Kernel: no answer reaches a bit. `measured.py` keeps the answers, so that this happens once.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from fxad.backend.llvm.base.answers import RUNS, Answer
from fxad.backend.llvm.base.schedule import Target
from fxad.backend.llvm.emit import emit
from fxad.backend.llvm.search import Arguments, Call, timed
from fxad.core.record import valued
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Cell,
    Contract,
    Get,
    Kernel,
    Load,
    Map,
    Operand,
    Prim,
    Store,
    at,
)

WINS, GAIN = 9, 0.95  # a variant wins a turn in which it takes so much of the time
_F32 = np.dtype("float32")
_FAR = 1 << 24  # elements, 64 MB: more than a core's share of a third-level cache


@valued
class Question:
    """Which of some values a number of tuning should have, told by the time of a kernel."""

    table: str
    field: str
    variants: tuple[int, ...]
    kernel: Callable[[], Kernel]


def product(rows: int, columns: int, depth: int) -> Kernel:
    """out[i, j] = sum over k of a[i, k] b[k, j], in float32."""
    m, n, k = Axis("i", rows), Axis("j", columns), Axis("k", depth)
    a, b = Buffer("a", _F32, rows * depth, "in"), Buffer("b", _F32, depth * columns, "in")
    out, cell = Buffer("out", _F32, rows * columns, "out"), Cell("sum", _F32)
    left = Operand(a, at(m) * depth + at(k))
    right = Operand(b, at(k) * columns + at(n))
    store = Store(out, at(m) * columns + at(n), Get(cell))
    return Kernel("product", (a, b, out), (), (), (Contract(m, n, k, left, right, cell, (store,)),))


def exponentials(elements: int) -> Kernel:
    """out[i] = exp(x[i]) of a long array."""
    i = Axis("i", elements)
    x, out = Buffer("x", _F32, elements, "in"), Buffer("out", _F32, elements, "out")
    store = Store(out, at(i), Prim("exp", (Load(x, at(i)),), _F32))
    return Kernel("exp", (x, out), (), (i,), (Map((), (store,)),))


QUESTIONS = (
    Question("gemv", "prefetch_level", (2, 0), lambda: product(1, 4096, _FAR // 4096)),
    Question("gemm", "panels_in_l2", (True,), lambda: product(256, 768, 768)),
    Question("rows", "near_only", (True,), lambda: exponentials(_FAR // 2)),
)


def calibrate(
    target: Target,
    seconds: float,
    before: Sequence[Answer] = (),
    questions: Sequence[Question] = QUESTIONS,
) -> tuple[list[Answer], int]:
    """Answers in about so many seconds, beside those of `before`, and how many questions there was
    no time for."""
    end = time.perf_counter() + seconds
    known = {(one.table, one.field) for one in before}
    asked = [one for one in questions if (one.table, one.field) not in known]
    found: list[Answer] = []
    for question in asked:
        answer = _ask(question, target, end)
        if answer is None:
            break
        found.append(answer)
    return found, len(asked) - len(found)


def call_of(kernel: Kernel, target: Target, arguments: Arguments | None = None) -> Call:
    """The kernel as a call, on memory of its own where none is given, and one thread."""
    held = arguments or Arguments(kernel)
    return held.bound(emit(kernel, "calibrated", target), target)


def _ask(question: Question, target: Target, end: float) -> Answer | None:
    """One answer; None if time runs out before."""
    table, field = question.table, question.field
    safe = getattr(getattr(target.tuning, table), field)
    kernel = question.kernel()
    arguments = Arguments(kernel)
    calls: list[Call] = []
    for value in (safe, *question.variants):
        calls.append(call_of(kernel, target.tuned(**{table: {field: value}}), arguments))
        timed(calls[-1], 1)
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(RUNS):
        for call, taken in zip(calls, times, strict=True):
            taken.append(timed(call, 1))
        if time.perf_counter() > end:
            break
    if len(times[0]) < RUNS:
        return None
    best = min(range(1, len(calls)), key=lambda n: statistics.median(times[n]))
    ratios = [new / old for new, old in zip(times[best], times[0], strict=True)]
    wins = sum(ratio <= GAIN for ratio in ratios)
    value = question.variants[best - 1] if wins >= WINS else safe
    return Answer(table, field, int(value), int(safe), wins, statistics.median(ratios))
