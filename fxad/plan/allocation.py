"""The bytes that a value lives in while a plan is being made: they become slots."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Allocation:
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

    def exchanged(self) -> Allocation:
        """The same storage to begin with, through a slot that a loop exchanges with another."""
        assert not self.moving
        return Allocation(self.kind, self.nbytes, self.number, self.offset, moving=True)

    def same(self, other: Allocation) -> bool:
        """Whether both are the same bytes."""
        if self.moving or other.moving:
            return self is other
        return (self.kind, self.number, self.offset) == (other.kind, other.number, other.offset)
