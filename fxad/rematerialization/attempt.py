"""What rematerialization is handed: how to try a Program, without knowing how it is compiled.

attempt = attempts.whole(program)
attempt.plan.arena_bytes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fxad.core.record import record
from fxad.ir.plan import Plan
from fxad.ir.program import Program, Var


class Attempt(Protocol):
    """A Program, lowered and planned as far as one asks."""

    @property
    def program(self) -> Program: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def stored(self) -> set[Var]:
        """The values that have memory of their own."""

    @property
    def as_run(self) -> Program:
        """The Program with its equations in the order in which the plan runs them."""


Try = Callable[[Program], Attempt]
# A program with its marked values offloaded, at most so many bytes of them on their way to disk.
Offload = Callable[[Program, int], Program]


@record
class Attempts:
    """Ways to try a Program. whole: in place of the one that is compiled. alone: as a part of it,
    whose inputs are not donated."""

    whole: Try
    alone: Try
