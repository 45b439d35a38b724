"""Stages of the compiler: functions from record to record, checked, shown, timed and bisected.

    block = run_stage("lower", lower, program, check_block)

FXAD_CHECK=1 checks what comes out of every stage, FXAD_SHOW=<stage>[,<stage>] prints it, and
FXAD_FUEL=n stops after n rewrites. A pass that rewrites in many places spends fuel for each:
recognise, fold, algebra, cse, rows_apart. A stage that may be left out spends one for each run:
inline, dce, widen_late, offload, checkpoints, complex_products, split_keys, round, order,
rematerialize. The others are needed for a legal program and run whatever the fuel: decompose,
tapes, lower, place, compile.

    with listening(print):      # a Ran for each stage that runs in this thread
        compiler.planned(...)
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from fxad.core.config import config, spend_fuel
from fxad.core.lazy import later
from fxad.core.record import record
from fxad.ir.program import Program

if TYPE_CHECKING:
    from fxad.ir.inspection import diff
else:
    diff = later("fxad.ir.inspection.diff")

A = TypeVar("A")
B = TypeVar("B")


@record
class Ran:
    """One run of a stage: the record it was given, the one it made, and seconds.

    Records are Programs, Blocks, Plans, and what holds them. `made is given` where it changed
    nothing.
    """

    stage: str
    given: object
    made: object
    seconds: float

    @property
    def changed(self) -> str:
        """Lines of the Program that only one of both has, marked - and +; of another record its
        text. Empty where nothing changed."""
        return diff.changed(self.given, self.made)

    def __str__(self) -> str:
        sizes = dict.fromkeys([diff.size(self.given), diff.size(self.made)])
        return f"{self.stage:20} {1e3 * self.seconds:9.2f} ms  {' -> '.join(sizes)}"

    __repr__ = __str__


class _Listeners(threading.local):
    listener: Callable[[Ran], object] | None = None


_listeners = _Listeners()


@contextlib.contextmanager
def listening(listener: Callable[[Ran], object]) -> Iterator[None]:
    """Tell `listener`, and no listener around it, of every stage that this thread runs inside the
    block: what is traced inside of another trace is its own."""
    before = _listeners.listener
    _listeners.listener = listener
    try:
        yield
    finally:
        _listeners.listener = before


def run_stage(
    name: str,
    function: Callable[[A], B],
    given: A,
    legal: Callable[[B, str], object],
    *,
    optional: bool = False,
) -> B:
    """function(given), checked, shown and told of under the stage's name.

    legal: raises CheckError for a record that must not come out; it takes the name too, for the
    message. optional: what was given is a legal answer, so the stage can be bisected by fuel (not
    for a function that spends fuel itself).
    """
    start = time.perf_counter()
    answer: Any = function(given) if not optional or spend_fuel() else given
    made: B = answer
    seconds = time.perf_counter() - start
    if config.check:
        legal(made, name)
    if name in config.show:
        print(f"--- {name}\n{made}", file=sys.stderr)
    if _listeners.listener is not None:
        _listeners.listener(Ran(name, given, made, seconds))
    return made


@record
class Stage:
    """A stage from Program to Program, to be run by name (fields: see `run_stage`)."""

    name: str
    run: Callable[[Program], Program]
    legal: Callable[[Program, str], object]
    optional: bool = False

    def __call__(self, program: Program) -> Program:
        return run_stage(self.name, self.run, program, self.legal, optional=self.optional)
