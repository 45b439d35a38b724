"""Programs planned by the native backend, in some of the ways that `fxad.compiler` tries them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.compiler import Candidate, Options, attempts, native, within_checkpoints
from fxad.ir.block import Block
from fxad.ir.plan import Plan
from fxad.ir.program import Program
from fxad.passes.offload import offload
from fxad.rematerialization import automatic, budget


def plan(program: Program, **options: Any) -> Plan:
    """Of a Program as it is (options: see `fxad.compiler.Options`)."""
    return Candidate(program, Options(**options), native()).plan


def lower(program: Program, rounds: Callable[[Any], bool] | None = None, **options: Any) -> Block:
    """What a Program as it is is lowered to."""
    return Candidate(program, Options(**options), native(), rounds).block


def rematerialized(program: Program, **options: Any) -> tuple[Program, Plan]:
    """With cheap values recomputed where that pays."""
    best = automatic.rematerialized(program, attempts(Options(**options), native()))
    return best.program, best.plan


def fit(
    program: Program, nbytes: int, ways: tuple[str, ...] = (), **options: Any
) -> tuple[Program, Plan]:
    """Within so many bytes."""
    tried = attempts(Options(**options), native())
    program = within_checkpoints(program, native())
    best = budget.fit(program, nbytes, tried, offload, ways=ways)
    return best.program, best.plan
