"""Checkpoints with a byte budget: their residuals are brought within it.

program = regions(program, alone, offload)
"""

from __future__ import annotations

from fxad.core.config import config
from fxad.core.errors import SizeError, at
from fxad.core.limits import readable
from fxad.ir.offload_ops import SMALLEST, nbytes_of
from fxad.ir.pairs.joined import Changed
from fxad.ir.pairs.regions import Region, linear_regions
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.rewrite import dce, substitute
from fxad.ir.uses import makers, uses_of
from fxad.rematerialization.attempt import Offload, Try
from fxad.rematerialization.boundary import Boundary, read_forward
from fxad.rematerialization.choose import LONGEST, Chooser, Costs, Ways
from fxad.rematerialization.rewrite import Rewriter


def regions(program: Program, alone: Try, offload: Offload) -> Program:
    """Give every `within` (a checkpoint with a byte budget) what it asks for, those in loops and
    branches too, where a trip's residuals are for the same trip of the backward loop."""
    memory, costs = 0, Costs(alone)
    while (region := next(filter(_asks, linear_regions(program)), None)) is not None:
        straight, rounded = region.program, set[Var]()
        while (found := _asking(straight)) is not None:
            memory += straight.eqns[found].params["budget"]
            straight, small = _region(straight, found, costs)
            rounded |= small
        program = region.around(Changed(straight, frozenset(rounded))).program
    return offload(dce(program), min(memory, config.offload_memory)) if memory else program


def _asks(region: Region) -> bool:
    """Whether there is a checkpoint with a budget in a region."""
    return _asking(region.program) is not None


def _asking(program: Program) -> int | None:
    return next((n for n, e in enumerate(program.eqns) if e.op.name == "within"), None)


def _region(program: Program, number: int, costs: Costs) -> tuple[Program, set[Var]]:
    """The program with one `within` gone and its values within their budget, and those it has
    rounded. Raises SizeError."""
    eqn = program.eqns[number]
    free, made = eqn.params["free"], set(makers(program.eqns[:number]))
    rest = [e for n, e in enumerate(program.eqns) if n != number]
    bare = Program(program.inputs, rest, program.outputs, program.name)
    bare = substitute(bare, dict(zip(eqn.outputs, eqn.inputs, strict=True)))
    sizes = {v: nbytes_of(v) for v in eqn.inputs[free:] if isinstance(v, Var) and v in made}
    sizes = {v: size for v, size in sizes.items() if v not in program.outputs}
    boundary = Boundary(number, sizes, {}, made, read_forward(bare, number, made))
    anchors = {v for v in eqn.inputs[:free] if isinstance(v, Var)}
    chooser, budget = Chooser(bare, boundary, anchors, costs), eqn.params["budget"]
    ways = Ways()
    while True:
        rewriter = Rewriter(bare, boundary, anchors, ways)
        smaller = rewriter.rewritten()
        left = {v: size for v, size in rewriter.residuals().items() if v not in anchors}
        over = sum(left.values()) - budget
        if over <= 0:
            return smaller, set(rewriter.small.values())
        before = ways
        ways = chooser.choose(chooser.freed + over, eqn.params["ways"])
        if ways == before:
            raise _unmet(bare, chooser, eqn, left)


def _unmet(program: Program, chooser: Chooser, eqn: Eqn, left: dict[Var, int]) -> SizeError:
    """The error that says which values a checkpoint's budget has no room for, and why."""
    uses = uses_of(program)
    named = []
    for var in sorted(left, key=left.__getitem__, reverse=True)[:5]:
        maker = uses.maker.get(var)
        if maker is None:  # a value rounded
            named.append(f"{var.type}, rounded")
            continue
        why = "has an effect" if maker.effects else "reads values with effects, or too many others"
        named.append(f"{maker.op.name}: {var.type}{at(maker.where)}, which {why}")
    least, budget = sum(left.values()), eqn.params["budget"]
    return SizeError(
        f"checkpoint does not fit its budget of {readable(budget)}{at(eqn.where)}: the least found "
        f"is {readable(least)}; kept are {'; '.join(named)}; recomputation repeats at most "
        f"{LONGEST} equations, values below {readable(SMALLEST)} are not offloaded"
    )
