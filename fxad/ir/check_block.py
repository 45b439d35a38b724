"""Does a Block keep the rules of `ir/block.py`? Planning trusts that it does.

check_block(block)     # CheckError: after lower: dot reads a value that nothing has written
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fxad.core.errors import CheckError
from fxad.ir.block import (
    Block,
    Branch,
    Copy,
    Launch,
    Loop,
    LoweredStep,
    While,
    blocks_of,
    name_of,
    reads_of,
    writes_of,
)
from fxad.ir.program import Var


def check_block(block: Block, stage: str = "") -> None:
    """Raises CheckError, which names the stage, where a step breaks a rule."""
    after = f"after {stage}: " if stage else ""
    known = set(block.inputs)
    for step in block.steps:
        for var in reads_of(step):
            if var not in known and var.type.size:
                raise CheckError(f"{after}{name_of(step)} reads a value that nothing has written")
        problem = _problem(step)
        if problem:
            raise CheckError(f"{after}{name_of(step)}: {problem}")
        for inner in blocks_of(step):
            check_block(inner, stage)
        known.update(writes_of(step))
    if any(var not in known and var.type.size for var in block.outputs):
        raise CheckError(f"{after}nothing has written an output of a block")


def _problem(step: LoweredStep) -> str | None:
    """What is wrong with a step by itself."""
    match step:
        case Launch():
            return _launch(step)
        case Copy() if step.dst.type.nbytes != step.src.type.nbytes:
            return f"{step.src.type} has not the bytes of {step.dst.type}"
        case Loop() if step.trips < 0:
            return f"{step.trips} trips"
        case Loop():
            return _counts(step.body, step.inputs, step.results)
        case While():
            inner = step.inputs[step.cond_consts :]
            if len(step.cond.outputs) != 1:
                return f"a condition has one result, not {len(step.cond.outputs)}"
            return _counts(step.body, inner, step.results)
        case Branch():
            found = (_counts(b, step.operands, step.results) for b in step.branches)
            return next(filter(None, found), None)
    return None


def _counts(body: Block, inputs: Sequence[Var], results: Sequence[Var]) -> str | None:
    if len(body.inputs) != len(inputs):
        return f"a block of {len(body.inputs)} inputs is given {len(inputs)} values"
    if len(body.outputs) != len(results):
        return f"a block of {len(body.outputs)} outputs has {len(results)} results"
    return None


def _launch(step: Launch) -> str | None:
    kernel = step.kernel
    if len(step.args) != len(kernel.buffers) or len(step.scalars) != len(kernel.scalars):
        return (
            f"a kernel of {len(kernel.buffers)} buffers and {len(kernel.scalars)} scalars is given "
            f"{len(step.args)} and {len(step.scalars)}"
        )
    for var, buffer in zip(step.args, kernel.buffers, strict=True):
        if var.type.dtype != buffer.dtype or var.type.size < buffer.size:
            return f"buffer {buffer.name} is {buffer.dtype}[{buffer.size}], its value {var.type}"
    outside = _missing(step.writes, step.args)
    return f"it writes {outside}, which it is not given" if outside else None


def _missing(wanted: Iterable[Var], given: Sequence[Var]) -> str:
    return ", ".join(str(var.type) for var in wanted if var not in given)
