"""What calibrating a processor answers: numbers of tuning, and how clearly they were told.

answer = Answer("gemv", "level", 2, 3, 11, 0.61)
tuned(DEFAULT, [answer]).gemv.level      # 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.backend.llvm.base.tuning import Tuning
from fxad.core.record import valued

TURNS = 11  # of a question


@valued
class Answer:
    """A number of tuning and what a measurement says of it: the value taken, the safe one, turns
    won by the best variant and the median of its share of the safe one's time."""

    table: str
    field: str
    value: int
    safe: int
    wins: int
    ratio: float

    def __str__(self) -> str:
        name = f"{self.table}.{self.field}"
        told = f"won {self.wins} of {TURNS} turns, {self.ratio:.2f} of the time"
        if self.value == self.safe:
            return f"{name} stays {self.safe}: the best variant {told}"
        return f"{name} {self.value} instead of {self.safe}: {told}"


def tuned(tuning: Tuning, answers: Sequence[Answer]) -> Tuning:
    """A record with the answers' values."""
    changes: dict[str, dict[str, Any]] = {}
    for one in answers:
        like = type(getattr(getattr(tuning, one.table), one.field))
        changes.setdefault(one.table, {})[one.field] = like(one.value)
    return tuning.with_("calibrated", None, **changes) if changes else tuning
