"""Measuring which cut of a matrix product is fastest on this machine.

    for one in tune(kernels, target, seconds=0.3):     # kernels: of a plan
        one.key, one.choice, one.before, one.after     # GFLOP/s of one thread

A search field by field over the table of the instruction set: the tile, then the cache block of K,
then the rows of a unit. Contenders run in turns on operands in cache, and one that is not clearly
faster than the present choice does not replace it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from fxad.backend.llvm.base.choices import MODEL, TABLES, Choice, Choices
from fxad.backend.llvm.base.schedule import ENTRY, Emitted, Target
from fxad.backend.llvm.contract.autotune import class_of, table_of
from fxad.backend.llvm.contract.kernel import emit_contract, has_choices
from fxad.backend.llvm.contract.problem import Problem
from fxad.backend.llvm.native import engine
from fxad.core.aligned import maker
from fxad.core.errors import CheckError
from fxad.core.record import replace, valued
from fxad.ir.kernel import Contract, Kernel

# Of measuring itself, on any processor.
_LEAST_FLOPS = 2e6  # what takes a call longer than its products is no question of tiles
_TURN = 0.001  # seconds of a contender's turn at least
_LEAST_TURNS = 5
_CLEARLY = 0.985  # share of the time that a better cut takes at most
_NAME = "product"

Call = Callable[[], None]


@valued
class Tuned:
    """One class of products: its largest kernel's size, the choice, GFLOP/s before and after."""

    key: str
    size: tuple[int, int, int]
    choice: Choice
    before: float
    after: float


def products(kernels: Iterable[Kernel], target: Target) -> dict[str, Problem]:
    """The largest product of every class that has choices."""
    found: dict[str, Problem] = {}
    for kernel in kernels:
        if len(kernel.body) != 1 or not isinstance(kernel.body[0], Contract):
            continue
        try:
            problem = Problem.of(kernel)
        except CheckError:
            continue  # no matrices: computed one element after the other
        if _work(problem) < _LEAST_FLOPS or not has_choices(problem, target):
            continue
        key = class_of(problem, target)
        if key not in found or _work(problem) > _work(found[key]):
            found[key] = problem
    return found


def tune(kernels: Iterable[Kernel], target: Target, seconds: float) -> Iterator[Tuned]:
    """Measure every class of products that the kernels have, about so many seconds for each field
    of a choice. What `target` has chosen before is forgotten."""
    for key, problem in products(kernels, target).items():
        yield _Search(key, problem, target, seconds).run()


def _work(problem: Problem) -> float:
    return problem.flops * problem.kernel.points


class _Search:
    """The search for one product."""

    def __init__(self, key: str, problem: Problem, target: Target, seconds: float) -> None:
        self.key, self.problem, self.target, self.seconds = key, problem, target, seconds
        self.table = TABLES[table_of(problem, target)]
        self.arguments = Arguments(problem.kernel)
        self.calls: dict[str, Call] = {}  # by code: many choices cut a product in the same way

    def run(self) -> Tuned:
        best = MODEL
        for field in range(len(self.table.variants(best))):
            best = self.better(best, self.table.variants(best)[field])
        ratio, took = self.compare(MODEL, best)
        rate = _work(self.problem) / took * 1e-9
        if ratio > _CLEARLY:  # chance, at some field
            best, ratio = MODEL, 1.0
        return Tuned(self.key, self.problem.size, best, rate, rate / ratio)

    def better(self, present: Choice, others: list[Choice]) -> Choice:
        """The fastest of some choices, or the present one."""
        rounds = self.race([present, *others])
        ratios = {c: _ratio(rounds[c], rounds[present]) for c in others}
        best = min(others, key=lambda c: ratios[c], default=present)
        return best if ratios.get(best, 1.0) <= _CLEARLY else present

    def compare(self, old: Choice, new: Choice) -> tuple[float, float]:
        """(time of the new one for the old one's, the old one's in seconds)."""
        rounds = self.race([old, new])
        return _ratio(rounds[new], rounds[old]), min(rounds[old])

    def race(self, choices: list[Choice]) -> dict[Choice, list[float]]:
        """Seconds of a call, turn by turn; choices of the same code share theirs."""
        codes = {choice: self.code(choice) for choice in choices}
        repeats: dict[str, int] = {}
        times: dict[str, list[float]] = {text: [] for text in codes.values()}
        for text in times:
            self.calls[text]()
            repeats[text] = max(1, math.ceil(_TURN / timed(self.calls[text], 1)))
        end = time.perf_counter() + self.seconds
        while len(times[codes[choices[0]]]) < _LEAST_TURNS or time.perf_counter() < end:
            for text, found in times.items():
                found.append(timed(self.calls[text], repeats[text]))
        return {choice: times[text] for choice, text in codes.items()}

    def code(self, choice: Choice) -> str:
        target = replace(self.target, choices=Choices({self.key: choice}))
        emitted = emit_contract(self.problem.kernel, _NAME, target)
        if emitted.text not in self.calls:
            self.calls[emitted.text] = self.arguments.bound(emitted, target)
        return emitted.text


def _ratio(times: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def timed(call: Call, repeats: int) -> float:
    """Seconds of one of so many calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


class Arguments:
    """Memory for a kernel's buffers and scalars: random floats, zeros for all else."""

    def __init__(self, kernel: Kernel) -> None:
        pool = np.random.default_rng(0).random(1 << 16, np.float32)  # some memory reads 0 faster
        self.kept: list[np.ndarray] = []
        words = []
        for buffer in kernel.buffers:
            array = self.array(buffer.size, buffer.dtype)
            if buffer.dtype.kind not in "biu":
                array[:] = np.resize(pool, buffer.size)
            words.append(_place(array))
        for scalar in kernel.scalars:
            one = self.array(16, scalar.dtype)
            one[0] = 1
            complex_ = scalar.dtype.kind == "c"  # such a scalar's word is its address
            words.append(_place(one) if complex_ else int.from_bytes(one.tobytes()[:8], "little"))
        self.words = np.array(words, np.uint64)

    def array(self, size: int, dtype: np.dtype) -> np.ndarray:
        """Zeros that begin at a cache line."""
        found = maker((size,), dtype, size * dtype.itemsize)()
        found[:] = 0
        self.kept.append(found)
        return found

    def bound(self, emitted: Emitted, target: Target) -> Call:
        """A call of all units of the kernel, compiled, on this memory and one thread."""
        module = engine.compile_module([emitted.text], emitted.declarations, target)
        entry = ENTRY(module.address(emitted.name))
        scratch = self.array(emitted.scratch_bytes + 64, np.dtype(np.uint8))
        words, place, units = _place(self.words), _place(scratch), emitted.units

        def call(_: object = (module, self)) -> None:  # which keep code and memory alive
            entry(words, 0, units, place)

        return call


def _place(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
