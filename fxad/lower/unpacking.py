"""Products that unpack a factor themselves, in place of reading the unpacked matrix.

    w = unpack(codes, scales);  y = x wᵀ;  dx = dy w        becomes products of codes and scales

The matrix is then nowhere in memory: each product unpacks a panel of it in scratch when it packs
that panel. Where anything else reads the matrix, it is there, and products read it as well.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.core.record import replace
from fxad.ir.block import Block, Launch, LoweredStep, reads_of
from fxad.ir.kernel import (
    Axis,
    Buffer,
    Contract,
    Index,
    Kernel,
    Load,
    Operand,
    Packed,
    Unpack,
    exprs_of,
    walk,
)
from fxad.ir.program import Var

# Whether a backend unpacks this product's factor as it packs it.
Unpacks = Callable[[Kernel], bool]


def unpack_in_products(block: Block, unpacks: Unpacks) -> Block:
    """The block without unpacked matrices that only products read."""
    steps: list[LoweredStep | None] = list(block.steps)
    readers: dict[Var, list[int]] = {}
    for number, step in enumerate(block.steps):
        for var in dict.fromkeys(reads_of(step)):
            readers.setdefault(var, []).append(number)
    known: dict[tuple[Kernel, Buffer, Packed], Kernel | None] = {}
    for number, step in enumerate(block.steps):
        if not isinstance(step, Launch) or not isinstance(step.kernel.body[0], Unpack):
            continue
        (matrix,) = step.writes
        numbers = readers.get(matrix, [])
        products = [_reading(steps[n], step, matrix, unpacks, known) for n in numbers]
        if matrix not in block.outputs and all(products):
            steps[number] = None
            for n, product in zip(numbers, products, strict=True):
                steps[n] = product
    return Block(block.inputs, tuple([s for s in steps if s is not None]), block.outputs)


def _reading(
    step: LoweredStep | None,
    unpacking: Launch,
    matrix: Var,
    unpacks: Unpacks,
    known: dict[tuple[Kernel, Buffer, Packed], Kernel | None],
) -> Launch | None:
    """The product with codes and scales for one operand; None where that is not to be had."""
    stage = unpacking.kernel.body[0]
    assert isinstance(stage, Unpack)
    packed = stage.source.packed
    assert packed is not None
    if not isinstance(step, Launch):
        return None
    place = step.args.index(matrix)
    given = dict(zip(unpacking.kernel.buffers, unpacking.args, strict=True))
    codes, scales = given[stage.source.buffer], given[packed.scales]
    if codes in step.args or scales in step.args:
        return None
    key = step.kernel, step.kernel.buffers[place], packed  # equal layers share a kernel
    if key not in known:
        found = _unpacking(*key[:2], stage.source)
        known[key] = found if found is not None and unpacks(found) else None
    kernel = known[key]
    if kernel is None:
        return None
    args = (*step.args[:place], codes, scales, *step.args[place + 1 :])
    return replace(step, kernel=kernel, args=args)


def _unpacking(kernel: Kernel, old: Buffer, source: Operand) -> Kernel | None:
    """A product that reads what the buffer `old` held, once, from codes and scales beside it."""
    stage, *others = kernel.body
    packed = source.packed
    if others or packed is None or not isinstance(stage, Contract):
        return None
    operands = [x for x in (stage.a, stage.b) if x.buffer is old]
    loads = [e for root in exprs_of(stage) for e in walk(root) if isinstance(e, Load)]
    if len(operands) != 1 or any(e.buffer is old for e in loads):
        return None
    (operand,) = operands
    if not _in_one_row(operand.index, packed.columns):
        return None
    codes = Buffer(old.name, source.buffer.dtype, source.buffer.size, "in")
    scales = Buffer(f"{old.name}s", packed.scales.dtype, packed.scales.size, "in")
    new = Operand(codes, operand.index, packed=replace(packed, scales=scales))
    stage = replace(stage, **{side: new for side in "ab" if getattr(stage, side) is operand})
    place = kernel.buffers.index(old)
    buffers = (*kernel.buffers[:place], codes, scales, *kernel.buffers[place + 1 :])
    return replace(kernel, buffers=buffers, body=(stage,))


def _in_one_row(index: Index, columns: int) -> bool:
    """Whether axes either go down whole rows of a matrix, or all together stay within one."""
    inside = index.const % columns
    for atom, stride in index.terms:
        if not isinstance(atom, Axis) or stride < 0:
            return False
        if stride % columns:
            inside += (atom.extent - 1) * stride
    return inside < columns
