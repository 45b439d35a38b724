"""Which loops of a plan become one native function each, and where their slots live in it.

    for sequence in sequences(plan): ...     # of loops with small bodies, the outermost that fit

A kernel called from the interpreter of plans costs about 10 ns beyond its arithmetic, and what a
loop carries goes through memory. Where that is most of a trip, the loop is a *sequence*: its
kernels are inlined into one function (sequence/emit.py), its state lives on the stack, where the
compiler turns it into registers, and is copied in and out where the function is entered and left.

Slots that may share bytes form a group. A small group at a fixed address becomes a block of the
stack. Small slots of a group that is only read are copied in one by one. All else stays in place.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator

from fxad.backend.llvm.base.axes import axes_of_stage
from fxad.backend.llvm.base.tuning import Sequences
from fxad.core.record import record
from fxad.ir import kernel as ir
from fxad.ir.check_plan import slots_of
from fxad.ir.plan import Branch, Copy, Host, Loop, Plan, Run, Slot, Step, Taping, While, walk

# What follows from no processor: nothing interrupts loops inside a sequence, so they have at most
# so many trips; and a thread's stack has room for so many bytes.
INNER_TRIPS = 1000
STACK = 65_536

Space = tuple[str, int]
Span = tuple[Space, int, int]  # a piece of memory: from byte, to byte


@record
class Block:
    """Memory on the stack that stands for the one at slot `home`; copied back if `written`."""

    home: Slot
    nbytes: int
    written: bool


@record
class Sequence:
    """A loop that is one function.

    blocks: what is copied to the stack. placed: slot -> (number of its block, offset in it).
    direct: slots whose pointers the function is given, and whether each is the only way to its
    memory. Other slots are views that the sequence's own loops move.
    """

    loop: Loop | While
    blocks: tuple[Block, ...]
    placed: dict[Slot, tuple[int, int]]
    direct: dict[Slot, bool]

    @property
    def arguments(self) -> tuple[Slot, ...]:
        """Slots whose pointers the function is called with, in order."""
        return (*[block.home for block in self.blocks], *self.direct)

    @property
    def tapes(self) -> bool:
        """Whether it writes, reads or frees tapes."""
        steps = walk((self.loop,))
        return any(isinstance(s, Taping) or getattr(s, "frees", False) for s in steps)


def sequences(plan: Plan, tuning: Sequences) -> list[Sequence]:
    """The sequences of a plan, in order."""
    found = list(_fitting(plan.steps, 1, tuning))
    if not found:
        return []
    memory = _Memory(plan, tuning.block)
    laid_out = [memory.layout(loop) for loop in found]
    return [sequence for sequence in laid_out if sequence is not None]


# ---------------------------------------------------------------- which loops


def _fitting(steps: Iterable[Step], times: int, tuning: Sequences) -> Iterator[Loop | While]:
    """The outermost loops that fit; `times`: how often the steps are run."""
    for step in steps:
        match step:
            case Loop():
                if step.trips * times >= tuning.trips and step.body and _fits(step, tuning):
                    yield step
                else:
                    yield from _fitting(step.body, times * step.trips, tuning)
            case While():
                if _fits(step, tuning):
                    yield step
                else:
                    yield from _fitting((*step.cond, *step.body), times * tuning.trips, tuning)
            case Branch():
                for branch in step.branches:
                    yield from _fitting(branch, times, tuning)


def _fits(loop: Loop | While, tuning: Sequences) -> bool:
    steps = list(walk(_body(loop)))
    small = len(steps) <= tuning.steps and all(_small(step, tuning) for step in steps)
    return small and _trips_inside(loop) <= INNER_TRIPS


def _body(loop: Loop | While) -> tuple[Step, ...]:
    return loop.body if isinstance(loop, Loop) else (*loop.cond, *loop.body)


def _trips_inside(loop: Loop | While) -> int:
    """Trips of the loops inside, in all."""
    inner = [s for s in _body(loop) if isinstance(s, Loop)]
    for step in _body(loop):
        if isinstance(step, Branch):
            inner += [s for branch in step.branches for s in branch if isinstance(s, Loop)]
    return sum(loop.trips * max(1, _trips_inside(loop)) for loop in inner)


def _small(step: Step, tuning: Sequences) -> bool:
    """Whether a step can be part of a sequence; its memory is looked at later."""
    match step:
        case Run():
            return _small_kernel(step.kernel, tuning)
        case Copy():
            return step.dst.type.nbytes <= tuning.block
        case Taping():
            return step.type.size <= 64 and all(s.type.nbytes <= tuning.block for s in step.inputs)
        case Host() | While():  # a while inside could go on for ever, and nothing interrupt it
            return False
    return True


def _small_kernel(kernel: ir.Kernel, tuning: Sequences) -> bool:
    for stage in kernel.body:
        match stage:
            case ir.Attention() | ir.AttentionGrad() | ir.Sort() | ir.Unpack():
                return False
            case ir.Contract() if stage.a.packed or stage.b.packed:
                return False
            case ir.Contract():
                size = stage.m.extent * stage.n.extent * stage.k.extent
                if kernel.points * size > tuning.products:
                    return False
            case _:
                if (
                    kernel.points * math.prod(a.extent for a in axes_of_stage(stage))
                    > tuning.points
                ):
                    return False
    return True


# ---------------------------------------------------------------- where their slots live


class _Memory:
    """What bytes the slots of a plan stand for, loops that move them included."""

    def __init__(self, plan: Plan, most: int) -> None:
        """most: bytes of a group on the stack."""
        self.most = most
        self.taken = plan.donated
        loops = [s for s in walk(plan.steps) if isinstance(s, Loop | While)]
        self.partners = {a: b for loop in loops for pair in loop.swaps for a, b in _both(*pair)}
        self.bases = {v.slot: v.base for s in loops if isinstance(s, Loop) for v in s.views}

    def layout(self, loop: Loop | While) -> Sequence | None:
        """None if the groups, or one that the loop exchanges, are too large for the stack."""
        inside = [s for s in walk((loop,)) if isinstance(s, Loop | While)]
        own = {slot for step in inside for pair in step.swaps for slot in pair}
        moved = {v.slot: v.base for s in inside if isinstance(s, Loop) for v in s.views}
        used = dict.fromkeys(slot for step in walk((loop,)) for slot in slots_of(step))
        written = written_slots((loop,))
        fixed = {s for s in used if s.place != "view" and (s in own or s not in self.partners)}
        blocks: list[Block] = []
        placed: dict[Slot, tuple[int, int]] = {}
        direct: dict[Slot, bool] = {}
        for group in self._groups(used, own):
            still = [s for s in group if s not in moved]
            span = self._common(group, own) if fixed.issuperset(group) else None
            if span is not None and not any(s in moved.values() for s in group):
                home = min(group, key=lambda s: s.offset if s.place == "arena" else 0)
                for slot in group:
                    placed[slot] = len(blocks), slot.offset - home.offset
                blocks.append(Block(home, span, not written.isdisjoint(group)))
            elif written.isdisjoint(group):
                for slot in still:
                    if slot in moved.values() or slot.type.nbytes > self.most:
                        direct[slot] = True
                    else:
                        placed[slot] = len(blocks), 0
                        blocks.append(Block(slot, slot.type.nbytes, False))
            else:
                direct |= dict.fromkeys(still, len(still) == 1)
        if not own <= placed.keys() or sum(block.nbytes for block in blocks) > STACK:
            return None
        return Sequence(loop, tuple(blocks), placed, direct)

    def _groups(self, slots: Iterable[Slot], own: set[Slot]) -> list[list[Slot]]:
        """Slots that may share bytes, together; in order of first use."""
        leader = {slot: slot for slot in slots}

        def find(slot: Slot) -> Slot:
            while leader[slot] is not slot:
                slot = leader[slot]
            return slot

        spans = [(*span, slot) for slot in leader for span in self._spans(slot, own)]
        spans.sort(key=lambda s: (s[0], s[1]))
        end, last = 0, None
        for space, low, high, slot in spans:
            if last is not None and last[0] == space and low < end:
                leader[find(slot)] = find(last[1])
                end = max(end, high)
            else:
                end = high
            last = space, slot
        groups: dict[Slot, list[Slot]] = {}
        for slot in leader:
            groups.setdefault(find(slot), []).append(slot)
        return list(groups.values())

    def _common(self, group: list[Slot], own: set[Slot]) -> int | None:
        """Bytes from the first to the last of a group; None if they are too many."""
        spans = [span for slot in group for span in self._spans(slot, own)]
        nbytes = max(high for _, _, high in spans) - min(low for _, low, _ in spans)
        return nbytes if nbytes <= self.most else None

    def _spans(self, slot: Slot, own: set[Slot]) -> list[Span]:
        """Where a slot may lie while a sequence runs whose own loops exchange `own`."""
        while slot in self.bases:
            slot = self.bases[slot]
        exchanged = slot in self.partners and slot not in own
        return [self._span(s) for s in ((slot, self.partners[slot]) if exchanged else (slot,))]

    def _span(self, slot: Slot) -> Span:
        size = max(slot.type.nbytes, 1)
        match slot.place:
            case "arena":
                return ("arena", 0), slot.offset, slot.offset + size
            case "result" if slot.number in self.taken:
                return ("argument", self.taken[slot.number]), 0, size
        return (slot.place, slot.number), 0, size


def walk_outside(steps: Iterable[Step], within: Collection[Step]) -> Iterator[Step]:
    """Like `walk`, without what is inside the loops of `within`."""
    for step in steps:
        yield step
        if step not in within:
            match step:
                case Loop():
                    yield from walk_outside(step.body, within)
                case While():
                    yield from walk_outside((*step.cond, *step.body), within)
                case Branch():
                    for branch in step.branches:
                        yield from walk_outside(branch, within)


def _both(a: Slot, b: Slot) -> tuple[tuple[Slot, Slot], tuple[Slot, Slot]]:
    return (a, b), (b, a)


def written_slots(steps: Iterable[Step]) -> set[Slot]:
    """Slots whose storage the steps may write, directly, through a view or after a swap."""
    found: set[Slot] = set()
    for step in steps:
        match step:
            case Run():
                pairs = zip(step.kernel.buffers, step.slots, strict=True)
                found.update(slot for buffer, slot in pairs if buffer.role != "in")
            case Copy():
                found.add(step.dst)
            case Host() | Taping():
                found.update(step.outputs)
            case Loop():
                found |= written_slots(step.body)
                found.update(view.base for view in step.views if view.slot in found)
                found.update(slot for pair in step.swaps for slot in pair)
            case While():
                found |= written_slots((*step.cond, *step.body))
                found.update(slot for pair in step.swaps for slot in pair)
            case Branch():
                for branch in step.branches:
                    found |= written_slots(branch)
    return found
