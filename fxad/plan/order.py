"""The order in which a block's steps run: the program's, but for updates of donated arguments.

    dW, w' = w - dW;  dx = dy w        becomes        dx = dy w;  dW, w' = w - dW

so that w' may be written over w, which nobody reads any more.
"""

from __future__ import annotations

from fxad.ir.program import Var
from fxad.lower.steps import Block, Launch, reads_of, writes_of


def updates_last(block: Block, donate: frozenset[int]) -> Block:
    """Put steps that only make results behind the last reader of the donated arguments they
    read. Nothing depends on such a step, so it may run at any later time."""
    donated = {block.inputs[n] for n in donate if n < len(block.inputs)}
    if not donated:
        return block
    read: dict[Var, int] = {}
    for number, step in enumerate(block.steps):
        read.update(dict.fromkeys(reads_of(step), number))
    keys = []
    for number, step in enumerate(block.steps):
        results = writes_of(step)
        final = isinstance(step, Launch) and read.keys().isdisjoint(results)
        types = {v.type for v in results}
        after = [read[v] for v in reads_of(step) if v in donated and v.type in types]
        postponed = final and max(after, default=-1) > number
        keys.append((max(after), 1, number) if postponed else (number, 0, 0))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Block(block.inputs, tuple([block.steps[n] for n in order]), block.outputs)
