"""Where values live while a plan is being made: allocations, which become slots of the plan.

A Frame says where the values of one block are; a Storage holds the slots and the arena of all.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxad.core.arena import Arena
from fxad.core.types import Type
from fxad.ir.plan import Slot
from fxad.ir.program import Var
from fxad.plan.layout import FixedOffsets
from fxad.plan.offload_buffers import OffloadBuffer


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


@dataclass(eq=False, slots=True)
class Frame:
    """One block being planned: where its values are, when they die, where its outputs must be.

    borrowed: values whose allocations belong to whoever planned the block.
    in_offload_buffers: see `offload_buffers`. streamed: those that a product writes
    with non-temporal stores.
    """

    allocations: dict[Var, Allocation]
    borrowed: frozenset[Var]
    required: dict[Var, Allocation]
    first: dict[Var, int]
    last: dict[Var, int]
    in_offload_buffers: dict[Var, OffloadBuffer]
    streamed: set[Var]


class Storage:
    """The slots of a plan and the arena behind them, while blocks are planned one inside the other.

    donated: by number of a result, the argument whose storage it takes over.
    """

    def __init__(self, arena: Arena | FixedOffsets) -> None:
        self.depth = 0  # loops around the step being planned
        self.arena = arena
        self.donated: dict[int, int] = {}
        self.slots: list[Slot] = []
        self._slot_of: dict[tuple[Allocation, Type | None], Slot] = {}

    def slot(self, allocation: Allocation, type_: Type) -> Slot:
        """The slot of an allocation and a type; a moving one has one slot, the one that its loop
        moves, whatever shape its bytes are seen under."""
        key = allocation, None if allocation.moving else type_
        found = self._slot_of.get(key)
        if found is None:
            found = self._slot_of[key] = self.fresh(allocation, type_)
        return found

    def fresh(self, allocation: Allocation, type_: Type) -> Slot:
        """A slot of its own, so that a loop may move or exchange it."""
        slot = Slot(len(self.slots), type_, allocation.kind, allocation.number, allocation.offset)
        self.slots.append(slot)
        return slot

    def allocate(self, nbytes: int) -> Allocation:
        return Allocation("arena", nbytes, offset=self.arena.take(nbytes))

    def release(self, allocation: Allocation) -> None:
        allocation.users -= 1
        if allocation.kind == "arena" and allocation.users == 0:
            self.arena.give(allocation.offset)

    def allocation(self, frame: Frame, var: Var) -> Allocation:
        found = frame.allocations.get(var)
        if found is None:  # of size 0: nothing writes it
            found = frame.allocations[var] = frame.required.get(var) or self.allocate(0)
        return found

    def slot_of(self, frame: Frame, var: Var) -> Slot:
        return self.slot(self.allocation(frame, var), var.type)

    def shared(self, result: Allocation, source: Allocation) -> bool:
        """Whether a result's allocation is that of a value before it (donated, for instance)."""
        if result.kind == "result" and source.kind == "argument":
            return self.donated.get(result.number) == source.number
        return result.same(source)
