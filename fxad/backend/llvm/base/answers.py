"""What calibrating a processor answers: numbers of tuning, and how clearly they were told.

answer = Answer("gemv", "prefetch_level", 2, 3, 11, 0.61)
tuned(DEFAULT, [answer]).gemv.prefetch_level      # 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxad.backend.llvm.base.tuning import Tuning, permitted
from fxad.core.record import valued
from fxad.core.schema import (
    Limits,
    array,
    canonical,
    integer,
    number,
    parse,
    record,
    row,
    string,
)

RUNS = 11  # of a question
TRIES = 5  # of calibrating unasked, while questions are left
DAY = 86400  # seconds between two of them, at least


@valued
class Answer:
    """A number of tuning and what a measurement says of it: the value taken, the safe one, runs
    won by the best variant and the median of its share of the safe one's time."""

    table: str
    field: str
    value: int
    safe: int
    wins: int
    ratio: float

    def __str__(self) -> str:
        name = f"{self.table}.{self.field}"
        told = f"ahead in {self.wins} of {RUNS} runs, {self.ratio:.2f} of the time"
        if self.value == self.safe:
            return f"{name} stays {self.safe}: the best variant {told}"
        return f"{name} {self.value} instead of {self.safe}: {told}"


@valued
class Calibration:
    """What is known of a processor. unanswered: questions that there was no time for; tries: how
    often it was measured; when: seconds since 1970 of the last time."""

    answers: tuple[Answer, ...]
    unanswered: int
    tries: int
    when: int

    def due(self, now: float) -> bool:
        """Whether to ask again what was not answered, as the machine was too busy."""
        waited = abs(now - self.when) >= DAY  # a clock that was put back waits no longer
        return self.unanswered > 0 and self.tries < TRIES and waited

    def text(self) -> str:
        """As JSON."""
        rows = [[a.table, a.field, a.value, a.safe, a.wins, a.ratio] for a in self.answers]
        counts = {"unanswered": self.unanswered, "tries": self.tries, "when": self.when}
        return canonical({"answers": rows, **counts})

    @staticmethod
    def parse(text: bytes) -> Calibration:
        """What a text says. Raises ValueError for any other text."""
        found = parse(text, _SCHEMA, "its text", ValueError, _LIMITS)
        answers = tuple([Answer(*values) for values in found.pop("answers")])
        for one in answers:
            try:
                allowed = permitted(one.table, one.field)
            except KeyError:
                raise ValueError(f"{one.table}.{one.field} is no number of tuning") from None
            if one.value not in allowed or one.safe not in allowed:
                raise ValueError(f"{one.table}.{one.field} cannot be {one.value} or {one.safe}")
        return Calibration(answers, **found)


_LIMITS = Limits(size=1 << 16, values=1000, depth=3)
_NAME, _COUNT = string("[a-z_0-9]+", most=100), integer(0, 1000)
_ANSWER = row(_NAME, _NAME, integer(), integer(), integer(0, RUNS), number(least=0))
_SCHEMA = record(
    {"answers": array(_ANSWER), "unanswered": _COUNT, "tries": _COUNT, "when": integer()}
)


def tuned(tuning: Tuning, answers: Sequence[Answer]) -> Tuning:
    """A record with the answers' values."""
    changes: dict[str, dict[str, Any]] = {}
    for one in answers:
        like = type(getattr(getattr(tuning, one.table), one.field))
        changes.setdefault(one.table, {})[one.field] = like(one.value)
    return tuning.with_("calibrated", None, **changes) if changes else tuning
