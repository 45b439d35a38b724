"""Whose storage a new value may reuse, and which results reuse donated arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fxad.ir.block import (
    Block,
    Launch,
    Loop,
    LoweredStep,
    Taping,
    While,
    reads_of,
    writes_of,
)
from fxad.ir.kernel import Kernel
from fxad.ir.program import Var
from fxad.plan.overlap import Accesses

AccessesOf = Callable[[Kernel], Accesses]


def last_uses(block: Block) -> dict[Var, int]:
    """Number of the last step that touches each value; outputs are used after all steps."""
    last: dict[Var, int] = {}
    for number, step in enumerate(block.steps):
        for var in (*reads_of(step), *writes_of(step)):
            last[var] = number
    last.update(dict.fromkeys(block.outputs, len(block.steps)))
    return last


def first_writes(block: Block) -> dict[Var, int]:
    first: dict[Var, int] = {}
    for number, step in enumerate(block.steps):
        for var in writes_of(step):
            first.setdefault(var, number)
    return first


def may_reuse(step: LoweredStep, result: Var, operand: Var, accesses: AccessesOf) -> bool:
    """Whether `result`, first written by `step`, may lie where `operand`, last read by it, lies."""
    if result.type.nbytes != operand.type.nbytes:
        return False
    match step:
        case Launch():
            if (result, operand) in step.replaces:
                return operand not in step.args
            if operand not in step.args or any(r is result for r, _ in step.replaces):
                return False
            of = accesses(step.kernel)
            buffers = dict(zip(step.args, step.kernel.buffers, strict=True))
            return of.may_share(buffers[result], buffers[operand])
        case Taping():  # handles are read lane by lane before they are written
            return step.kind == "write" and operand is step.operands[0]
        case Loop():
            inits = step.inputs[step.consts : step.consts + step.carry]
            return _is_state(step.inputs, inits, step.results, result, operand)
        case While():
            inits = step.inputs[step.cond_consts + step.body_consts :]
            return _is_state(step.inputs, inits, step.results, result, operand)
    return False


def _is_state(
    inputs: tuple[Var, ...],
    inits: tuple[Var, ...],
    results: tuple[Var, ...],
    result: Var,
    operand: Var,
) -> bool:
    """A loop's final state may lie where the initial state lay."""
    pairs = zip(inits, results, strict=False)
    return inputs.count(operand) == 1 and (operand, result) in list(pairs)


def update_chain(
    block: Block, result: Var, first: Mapping[Var, int], last: Mapping[Var, int]
) -> list[Var]:
    """Values that become `result` as updates of a few of their elements go on, the last one first:
    each dies in the next update, which reads it nowhere else (`t.at[i].add(t[j])` does), so all of
    them can lie where the result does.

    first, last: what `first_writes` and `last_uses` say of the block.
    """
    found: list[Var] = []
    while result in first:
        step = block.steps[first[result]]
        if not isinstance(step, Launch):
            break
        before = dict(step.replaces).get(result)
        if before is None or before in step.args:
            break
        if before in block.inputs or before not in first:
            break
        if last[before] != first[result] or before.type.nbytes != result.type.nbytes:
            break
        found.append(before)
        result = before
    return found


def donations(
    block: Block, results: Iterable[Var], donate: frozenset[int], accesses: AccessesOf
) -> dict[Var, int]:
    """Result -> number of the donated argument whose storage it reuses."""
    last, first = last_uses(block), first_writes(block)
    free = {n: block.inputs[n] for n in sorted(donate) if n < len(block.inputs)}
    found: dict[Var, int] = {}
    for result in results:
        if not result.type.nbytes or result not in first:
            continue
        *_, begin = (result, *update_chain(block, result, first, last))
        write = first[begin]
        for number, operand in free.items():
            if operand.type != result.type:
                continue
            end = last.get(operand, -1)
            step = block.steps[write]
            if end < write or (end == write and may_reuse(step, begin, operand, accesses)):
                found[result] = number
                del free[number]
                break
    return found
