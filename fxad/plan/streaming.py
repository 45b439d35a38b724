"""Which values are written by non-temporal (streaming) stores: those that no cache keeps until they
are read, since so much else is touched before.

    streamed(block)     # gradients, but for the last

An ordinary store reads the line that it writes first. A streaming store does not, and leaves the
line in memory, where it would be by then anyway.
"""

from __future__ import annotations

from itertools import accumulate

from fxad.ir import heuristics
from fxad.ir.block import Block, LoweredStep, reads_of, writes_of
from fxad.ir.program import Var


def streamed(block: Block) -> set[Var]:
    """Values that one step writes whole and none reads before STREAMING_DISTANCE bytes of others
    were touched.

    Outputs are read when the block is done.
    """
    touched = list(accumulate(map(_bytes, block.steps), initial=0))
    reads = dict.fromkeys(block.outputs, touched[-1])
    found, written = set[Var](), set[Var]()
    for number in reversed(range(len(block.steps))):
        step = block.steps[number]
        for var in writes_of(step):
            if (
                var in reads
                and reads[var] - touched[number + 1] >= heuristics.STREAMING_DISTANCE
                and var not in written
            ):
                found.add(var)
            else:
                found.discard(var)
            written.add(var)
        reads |= dict.fromkeys(reads_of(step), touched[number])
    return found


def _bytes(step: LoweredStep) -> int:
    return sum(v.type.nbytes for v in {*reads_of(step), *writes_of(step)})
