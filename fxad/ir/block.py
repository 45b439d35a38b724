"""What lowering answers: launches of kernels over values, in order, with control flow around.

A Block is one Program after lowering. Its values are the Program's variables (and a few new
ones); which bytes they live in is decided later, by planning. Steps are called as those of a Plan
that they become (`ir.plan`): Copy, Loop, While, Branch, Host, Taping; a Launch becomes a Run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fxad.core.record import record, replace
from fxad.core.types import TapeType
from fxad.ir.kernel import Kernel
from fxad.ir.program import Number, Var


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
class Copy:
    """Copy all bytes of a value into a new one of the same number of bytes."""

    dst: Var
    src: Var


@record
class Loop:
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
class While:
    """While cond(cond consts, state) holds: state = body(body consts, state)."""

    cond: Block
    body: Block
    cond_consts: int
    body_consts: int
    inputs: tuple[Var, ...]
    results: tuple[Var, ...]


@record
class Branch:
    """results = branches[index](operands)."""

    index: Var
    branches: tuple[Block, ...]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]


@record
class Host:
    """results = function(*operands) on NumPy arrays."""

    function: Callable[..., object]
    operands: tuple[Var, ...]
    results: tuple[Var, ...]
    name: str


@record
class Taping:
    """Write, read or measure tapes; see `ir.plan.Taping`."""

    kind: str
    type: TapeType
    operands: tuple[Var, ...]
    results: tuple[Var, ...]


LoweredStep = Launch | Copy | Loop | While | Branch | Host | Taping


@record
class Block:
    """Steps that compute `outputs` from `inputs`.

    A value may be written by several launches, each storing a part. An output may be an input,
    appear twice, or have another shape than the value that holds its bytes.
    """

    inputs: tuple[Var, ...]
    steps: tuple[LoweredStep, ...]
    outputs: tuple[Var, ...]

    def __str__(self) -> str:
        return "\n".join(_text(self, {}))


def reads_of(step: LoweredStep) -> tuple[Var, ...]:
    """Values whose bytes a step reads (or, for a kernel that updates in place, starts from)."""
    match step:
        case Launch():
            replaced = [operand for _, operand in step.replaces]
            return (*[v for v in step.args if v not in step.writes], *replaced)
        case Copy():
            return (step.src,)
        case Loop() | While():
            return step.inputs
        case Branch():
            return (step.index, *step.operands)
        case Host() | Taping():
            return step.operands
    raise TypeError(f"not a lowered step: {step!r}")


def writes_of(step: LoweredStep) -> tuple[Var, ...]:
    match step:
        case Launch():
            return step.writes
        case Copy():
            return (step.dst,)
        case _:
            return step.results


def blocks_of(step: LoweredStep) -> tuple[Block, ...]:
    """The blocks inside a step."""
    match step:
        case Loop():
            return (step.body,)
        case While():
            return step.cond, step.body
        case Branch():
            return step.branches
    return ()


def stored(block: Block) -> set[Var]:
    """The values that have memory of their own."""
    return {var for step in block.steps for var in writes_of(step)}


def in_all_blocks(rewrite: Callable[[Block], Block], block: Block) -> Block:
    """A rewrite of a block and of all blocks inside it, the innermost first."""
    if any(map(blocks_of, block.steps)):
        steps = tuple([_rewritten_inside(rewrite, step) for step in block.steps])
        block = Block(block.inputs, steps, block.outputs)
    return rewrite(block)


def _rewritten_inside(rewrite: Callable[[Block], Block], step: LoweredStep) -> LoweredStep:
    match step:
        case Loop():
            return replace(step, body=in_all_blocks(rewrite, step.body))
        case While():
            cond, body = (in_all_blocks(rewrite, inner) for inner in (step.cond, step.body))
            return replace(step, cond=cond, body=body)
        case Branch():
            branches = [in_all_blocks(rewrite, inner) for inner in step.branches]
            return replace(step, branches=tuple(branches))
    return step


def name_of(step: LoweredStep) -> str:
    """What a step is called in messages and texts."""
    match step:
        case Launch():
            return step.kernel.name
        case Host():
            return f"host {step.name}"
        case Taping():
            return f"tape {step.kind}"
        case Loop():
            return f"loop {step.trips}{' reversed' * step.reverse}"
    return {Copy: "copy", While: "while", Branch: "branch"}[type(step)]


def _text(block: Block, names: dict[Var, str]) -> list[str]:
    """Lines of a block, every value with its type where it is first named."""

    def one(var: Var) -> str:
        if var in names:
            return names[var]
        names[var] = f"%{len(names)}"
        return f"{names[var]}: {var.type}"

    def listed(variables: Iterable[Var]) -> str:
        return ", ".join(map(one, variables))

    lines = [f"block({listed(block.inputs)})"]
    for step in block.steps:
        lines.append(f"  {name_of(step)}({listed(reads_of(step))}) -> {listed(writes_of(step))}")
        lines += [f"    {line}" for inner in blocks_of(step) for line in _text(inner, names)]
    return [*lines, f"  return {listed(block.outputs)}"]
