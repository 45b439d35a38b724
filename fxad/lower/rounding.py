"""Products that round their factors themselves, in place of reading a rounded copy.

    w' = bf16(w);  y = x w';  dx = dy w'ᵀ        becomes        y = x bf16(w);  dx = dy bf16(w)ᵀ

The copy is neither written nor read; instead each product reads the whole number, so at most
ROUNDED_READERS of them, and nothing else, may read it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeGuard

from fxad.core import dtypes as dt
from fxad.core.record import replace
from fxad.ir import heuristics
from fxad.ir.block import Block, Launch, LoweredStep, reads_of
from fxad.ir.kernel import Buffer, Cast, Contract, Kernel, Load, Map, Operand, exprs_of, walk
from fxad.ir.program import Var

# Whether a backend rounds this product's factors as it packs them.
Rounds = Callable[[Kernel], bool]


def round_in_products(block: Block, rounds: Rounds) -> Block:
    """The block without large rounded copies of its inputs that only products read. An input is
    there in any case: nothing has to be kept for longer."""
    steps: list[LoweredStep | None] = list(block.steps)
    readers: dict[Var, list[int]] = {}
    rounding = functools.cache(lambda kernel, old: _rounding(kernel, old, rounds))
    for number, step in enumerate(block.steps):
        for var in dict.fromkeys(reads_of(step)):
            readers.setdefault(var, []).append(number)
    for number, step in enumerate(block.steps):
        if not _rounds_input(step, block):
            continue
        source, copy = step.args
        numbers = readers.get(copy, [])
        products = [_reading(steps[n], copy, source, rounding) for n in numbers]
        if len(products) <= heuristics.ROUNDED_READERS and all(products):
            steps[number] = None
            for n, product in zip(numbers, products, strict=True):
                steps[n] = product
    return Block(block.inputs, tuple([s for s in steps if s is not None]), block.outputs)


def _rounds_input(step: LoweredStep, block: Block) -> TypeGuard[Launch]:
    """Whether all that a step does is to round one of the block's large inputs."""
    if not isinstance(step, Launch) or len(step.args) != 2 or len(step.kernel.body) != 1:
        return False
    (source, copy), (stage,) = step.args, step.kernel.body
    if source not in block.inputs or copy in block.outputs:
        return False
    if copy.type.size < heuristics.ROUNDED_ELEMENTS:
        return False
    if not isinstance(stage, Map) or len(stage.stores) != 1:
        return False
    (store,) = stage.stores
    cast = store.value
    return (
        isinstance(cast, Cast)
        and isinstance(cast.arg, Load)
        and cast.arg.guard is None
        and cast.arg.index == store.index
        and source.type.size == copy.type.size
        and source.type.dtype == dt.float32
        and cast.dtype == copy.type.dtype == dt.bfloat16
    )


def _reading(
    step: LoweredStep | None,
    copy: Var,
    source: Var,
    rounding: Callable[[Kernel, Buffer], Kernel | None],
) -> Launch | None:
    """The product with `source`, rounded, for one operand; None where that is not to be had."""
    if not isinstance(step, Launch) or source in step.args:
        return None
    kernel = rounding(step.kernel, step.kernel.buffers[step.args.index(copy)])
    if kernel is None:
        return None
    return replace(step, kernel=kernel, args=tuple([source if v is copy else v for v in step.args]))


def _rounding(kernel: Kernel, old: Buffer, rounds: Rounds) -> Kernel | None:
    """A product with the float32 numbers that the operand `old` held rounded."""
    stage, *others = kernel.body
    if others or not isinstance(stage, Contract):
        return None
    if any(isinstance(e, Load) and e.buffer is old for root in exprs_of(stage) for e in walk(root)):
        return None
    new = replace(old, dtype=dt.float32)

    def rounded(operand: Operand) -> Operand:
        return Operand(new, operand.index, old.dtype) if operand.buffer is old else operand

    buffers = tuple([new if b is old else b for b in kernel.buffers])
    stage = replace(stage, a=rounded(stage.a), b=rounded(stage.b))
    made = replace(kernel, buffers=buffers, body=(stage,))
    return made if rounds(made) else None
