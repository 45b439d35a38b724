"""Checkpoints with a byte budget: what waits for their backward halves is brought within it.

program = regions(program, alone, offload)
"""

from __future__ import annotations

from fxad.core.config import config
from fxad.core.errors import SizeError, at
from fxad.core.limits import readable
from fxad.ir.offload_ops import SMALLEST, nbytes_of
from fxad.ir.pairs.halves import Changed
from fxad.ir.pairs.lines import Straight, lines
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.rewrite import dce, substitute
from fxad.remat.attempt import Offload, Try
from fxad.remat.choose import LONGEST, Chooser, Costs, Ways
from fxad.remat.rewrite import Rewriter
from fxad.remat.waiting import Waiting, read_forward


def regions(program: Program, alone: Try, offload: Offload) -> Program:
    """Give every `within` (a checkpoint with a byte budget) what it asks for, those in loops and
    branches too, where a trip's values wait for the same trip of the loop back."""
    memory, costs = 0, Costs(alone)
    while (line := next(filter(_asks, lines(program)), None)) is not None:
        straight, rounded = line.program, set[Var]()
        while (found := _asking(straight)) is not None:
            memory += straight.eqns[found].params["budget"]
            straight, small = _region(straight, found, costs)
            rounded |= small
        program = line.around(Changed(straight, frozenset(rounded))).program
    return offload(dce(program), min(memory, config.offload_memory)) if memory else program


def _asks(line: Straight) -> bool:
    """Whether there is a checkpoint with a budget on a line."""
    return _asking(line.program) is not None


def _asking(program: Program) -> int | None:
    return next((n for n, e in enumerate(program.eqns) if e.op.name == "within"), None)


def _region(program: Program, number: int, costs: Costs) -> tuple[Program, set[Var]]:
    """The program with one `within` gone and its values within their budget, and those it has
    rounded. Raises SizeError."""
    eqn = program.eqns[number]
    free, made = eqn.params["free"], {v for e in program.eqns[:number] for v in e.outputs}
    rest = [e for n, e in enumerate(program.eqns) if n != number]
    bare = Program(program.inputs, rest, program.outputs, program.name)
    bare = substitute(bare, dict(zip(eqn.outputs, eqn.inputs, strict=True)))
    waits = {v: nbytes_of(v) for v in eqn.inputs[free:] if isinstance(v, Var) and v in made}
    waits = {v: size for v, size in waits.items() if v not in program.outputs}
    waiting = Waiting(number, waits, {}, made, read_forward(bare, number, made))
    anchors = {v for v in eqn.inputs[:free] if isinstance(v, Var)}
    chooser, budget = Chooser(bare, waiting, anchors, costs), eqn.params["budget"]
    ways = Ways()
    while True:
        rewriter = Rewriter(bare, waiting, anchors, ways)
        smaller = rewriter.rewritten()
        left = {v: size for v, size in rewriter.waiting().items() if v not in anchors}
        over = sum(left.values()) - budget
        if over <= 0:
            return smaller, set(rewriter.small.values())
        before = ways
        ways = chooser.choose(chooser.freed + over, eqn.params["ways"])
        if ways == before:
            raise _unmet(bare, chooser, eqn, left)


def _unmet(program: Program, chooser: Chooser, eqn: Eqn, left: dict[Var, int]) -> SizeError:
    """The error that says which values a checkpoint's budget has no room for, and why."""
    makers = {v: e for e in program.eqns for v in e.outputs}
    named = []
    for var in sorted(left, key=left.__getitem__, reverse=True)[:5]:
        maker = makers.get(var)
        if maker is None:  # a value rounded
            named.append(f"{var.type}, rounded")
            continue
        why = "has an effect" if maker.effects else "reads values with effects, or too many others"
        named.append(f"{maker.op.name}: {var.type}{at(maker.where)}, which {why}")
    least, budget = sum(left.values()), eqn.params["budget"]
    return SizeError(
        f"checkpoint does not fit its budget of {readable(budget)}{at(eqn.where)}: the least found "
        f"is {readable(least)}; kept are {'; '.join(named)}; computing again repeats at most "
        f"{LONGEST} equations, values below {readable(SMALLEST)} are not put aside"
    )
