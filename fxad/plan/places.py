"""Storage while a plan is being made, before it becomes slots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Place:
    """kind, number and offset as in `ir.plan.Slot`; `users` counts the values in it.

    moving: its slot's pointer is changed by a loop (a view, or state that is exchanged), so the
    storage can only be reached through that slot.
    """

    kind: str
    nbytes: int
    number: int = 0
    offset: int = 0
    users: int = 1
    moving: bool = False

    def exchanged(self) -> Place:
        """The same storage to begin with, through a slot that a loop exchanges with another."""
        assert not self.moving
        return Place(self.kind, self.nbytes, self.number, self.offset, moving=True)

    def same(self, other: Place) -> bool:
        """Whether both are the same bytes."""
        if self.moving or other.moving:
            return self is other
        return (self.kind, self.number, self.offset) == (other.kind, other.number, other.offset)
