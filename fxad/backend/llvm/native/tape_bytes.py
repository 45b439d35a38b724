"""What tapes take in memory when loops of unknown length make given numbers of trips.

    tape_bytes(plan, (1000,))         # every such loop makes 1000 trips at most
    tape_bytes(plan, (1000, 20))      # those inside them 20, in each trip of the one around

As `native/tape_code.py` lays tapes out: a header, then slabs of 4, 8, 16, ... slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.backend.llvm.native.tape_code import HEADER, SLABS
from fxad.backend.llvm.native.tapes import tape_layout
from fxad.core.types import TapeType
from fxad.ir.plan import Branch, Loop, Plan, Step, Taping, While, walk


def tape_bytes(plan: Plan, trips: Sequence[int]) -> int:
    """Bytes of all tapes of one run: exact where every loop makes that many trips, else a bound.

    trips: of a loop, of loops inside it, and so on; the last number is for all that are deeper.
    """
    return _taken(plan.steps, trips, 0)


def trip_bytes(plan: Plan) -> int:
    """Bytes that one trip of every loop of unknown length writes."""
    loops = [s for s in walk(plan.steps) if isinstance(s, While)]
    types = [write.type for loop in loops for write in _written(loop.body)]
    return sum(type_.size * tape_layout(type_)[1] for type_ in types)


def _taken(steps: Sequence[Step], trips: Sequence[int], depth: int) -> int:
    """Bytes of what is written in these steps, inside `depth` loops of unknown length."""
    return sum(_of_step(step, trips, depth) for step in steps)


def _of_step(step: Step, trips: Sequence[int], depth: int) -> int:
    match step:
        case Loop():
            return (1 if step.frees else step.trips) * _taken(step.body, trips, depth)
        case While():
            count = trips[min(depth, len(trips) - 1)]
            inner = _taken(step.body, trips, depth + 1)
            own = sum(_tape(s.type, count) for s in _written(step.body))
            return own + (min(count, 1) if step.frees else count) * inner
        case Branch():
            return max(_taken(branch, trips, depth) for branch in step.branches)
    return 0


def _written(steps: Sequence[Step]) -> list[Taping]:
    """Tapes that grow by a slot in every trip of a body, in its branches too."""
    found: list[Taping] = []
    for step in steps:
        match step:
            case Taping(kind="write"):
                found.append(step)
            case Branch():
                found += [s for branch in step.branches for s in _written(branch)]
    return found


def _tape(type_: TapeType, count: int) -> int:
    """Bytes of a tape with that many slots in every lane."""
    if not count:
        return 0
    slabs = (count + 3).bit_length() - 2
    slots = 4 * ((1 << slabs) - 1)
    stride = tape_layout(type_)[1]
    return type_.size * (8 * (HEADER + SLABS) + slots * stride)
