"""What lowering answers: launches of kernels over values, in order, with control flow around.

A Block is one Program after lowering. Its values are the Program's variables (and a few new
ones); which bytes they live in is decided later, by planning.
"""

from __future__ import annotations

from collections.abc import Callable

from fxad.core.record import record
from fxad.core.types import TapeType
from fxad.ir.kernel import Kernel
from fxad.ir.program import Var

Number = bool | int | float | complex


@record
class Launch:
    """Run a kernel: args are the values behind kernel.buffers, `writes` those it defines.

    replaces: (result, operand) pairs where the kernel updates the operand's elements, so that
    the result must start as a copy of the operand (or be the operand's own storage).
    """

    kernel: Kernel
    args: tuple[Var, ...]
    writes: tuple[Var, ...]
    scalars: tuple[Number, ...] = ()
    replaces: tuple[tuple[Var, Var], ...] = ()


@record
class Transfer:
    """Copy all bytes of a value into a new one of the same number of bytes."""

    dst: Var
    src: Var


@record
class Looping:
    """`trips` runs of `body`, whose inputs are consts, carried state and slices.

    body.inputs = consts + carry + slices; body.outputs = carry + stacked. `inputs` are the
    values outside for the body's inputs (whole arrays for slices), `results` those for its
    outputs.
    """

    body: Block
    trips: int
    reverse: bool
    consts: int
    carry: int
    inputs: tuple[Var, ...]
    results: tuple[Var, ...]


@record
class Whiling:
    """While cond(cond consts, state) holds: state = body(body consts, state)."""

    cond: Block
    body: Block
    cond_consts: int
    body_consts: int
    inputs: tuple[Var, ...]
    results: tuple[Var, ...]


@record
class Branching:
    """results = branches[index](operands)."""

    index: Var
    branches: tuple[Block, ...]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]


@record
class HostStep:
    """results = function(*operands) on NumPy arrays."""

    function: Callable[..., object]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]
    name: str


@record
class TapeStep:
    """Write, read or measure tapes; see `ir.plan.Taping`."""

    kind: str
    type: TapeType
    operands: tuple[Var, ...]
    results: tuple[Var, ...]


LoweredStep = Launch | Transfer | Looping | Whiling | Branching | HostStep | TapeStep


@record
class Block:
    """Steps that compute `outputs` from `inputs`.

    A value may be written by several launches, each storing a part. An output may be an input,
    appear twice, or have another shape than the value that holds its bytes.
    """

    inputs: tuple[Var, ...]
    steps: tuple[LoweredStep, ...]
    outputs: tuple[Var, ...]


def reads_of(step: LoweredStep) -> tuple[Var, ...]:
    """Values whose bytes a step reads (or, for a kernel that updates in place, starts from)."""
    match step:
        case Launch():
            replaced = [operand for _, operand in step.replaces]
            return (*[v for v in step.args if v not in step.writes], *replaced)
        case Transfer():
            return (step.src,)
        case Looping() | Whiling():
            return step.inputs
        case Branching():
            return (step.index, *step.operands)
        case HostStep() | TapeStep():
            return step.operands
    raise TypeError(f"not a lowered step: {step!r}")


def writes_of(step: LoweredStep) -> tuple[Var, ...]:
    match step:
        case Launch():
            return step.writes
        case Transfer():
            return (step.dst,)
        case _:
            return step.results
