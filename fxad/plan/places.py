"""Storage while a plan is being made, before it becomes slots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Place:
    """kind, number and offset as in `ir.plan.Slot`; `users` counts the values in it."""

    kind: str
    nbytes: int
    number: int = 0
    offset: int = 0
    users: int = 1

    def again(self) -> Place:
        """The same storage as a place of its own: its slot may be moved by a loop."""
        return Place(self.kind, self.nbytes, self.number, self.offset)

    def same(self, other: Place) -> bool:
        """Whether both are the same bytes."""
        return (self.kind, self.number, self.offset) == (other.kind, other.number, other.offset)
