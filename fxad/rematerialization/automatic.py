"""Recomputing what is cheap to compute, instead of keeping it for the backward pass.

    n = (x - mean) * rstd * scale;  q = n w;  ...;  dw = nᵀ dq

    becomes   n = ...;  q = n w;  ...;  n' = (x - mean) * rstd * scale;  dw = n'ᵀ dq

where x, mean and rstd are live in any case: then n takes no memory in between. Loops and branches
keep fewer residuals (`min_cut`); then, where memory is fullest, those residuals are recomputed that
one pass over others makes, and narrow ones are kept in place of wide ones (`narrow`): both at once,
or, where that does not pay, one after the other. Each time the program is planned anew, and stays
as it was unless its peak falls by WORTH, at less than SHARE more time by the cost model. Results
keep their bits: the same operations run on the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxad.ir.cost import argument_bytes, cost
from fxad.ir.kernel import Map
from fxad.ir.plan import Plan, Run, Taping, walk
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.uses import makers
from fxad.rematerialization.attempt import Attempt, Attempts, Try
from fxad.rematerialization.boundary import LARGE, Boundary, boundary_at_peak
from fxad.rematerialization.choose import FLOPS, MOVED
from fxad.rematerialization.min_cut import lightened
from fxad.rematerialization.narrow import NOTHING, Exchange, exchange
from fxad.rematerialization.rewrite import Rewriter

LEAST = 256 << 20  # bytes: a smaller arena is not worth a second lowering and plan
PART = 0.2  # of arena and arguments: neither is an arena that is a smaller part of them
TRIPS = 100  # of a loop of unknown length: its tape counts as part of the arena
WORTH = 0.01  # of the memory that a program takes: what must be freed
SHARE = 0.01  # of the time that a program takes: what it may cost


def rematerialized(program: Program, attempts: Attempts) -> Attempt:
    """The program, or one that recomputes cheap values, where that pays."""
    best = attempts.whole(program)
    if _intermediate_bytes(best.plan) < max(LEAST, PART * _held(best.plan)):
        return best

    def better(best: Attempt, changed: Program) -> Attempt:
        if changed is best.program:
            return best
        other = attempts.whole(changed)
        return other if _pays(other.plan, best.plan) else best

    best = better(best, lightened(best.program))
    peak = _Peak(best)
    chosen = peak.cheap(attempts.alone)
    found = peak.narrow(chosen)
    if chosen and found.recomputed:  # both at once: one plan fewer
        both = better(best, peak.changed(chosen, found))
        if both is not best:
            return both
    if chosen:
        best = better(best, peak.changed(chosen, NOTHING))
        peak = _Peak(best)
        found = peak.narrow([])
    return better(best, peak.changed([], found))


class _Peak:
    """Where the memory of an attempt is fullest, and what may change there."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._worth = WORTH * _held(attempt.plan)
        self._ordered = attempt.as_run
        self._boundary = boundary_at_peak(self._ordered, attempt.stored)

    def cheap(self, alone: Try) -> list[Var]:
        """Cheap residuals, if they are worth a plan."""
        chosen = cheap(self._ordered, self._boundary, alone)
        return chosen if sum(v.type.nbytes for v in chosen) >= self._worth else []

    def narrow(self, recomputed: Sequence[Var]) -> Exchange:
        """Narrow values for the wide ones that are made from them, beside what is recomputed, if
        that is worth a plan."""
        found = exchange(self._ordered, self._boundary.without(recomputed))
        return found if found.freed >= self._worth else NOTHING

    def changed(self, chosen: Sequence[Var], found: Exchange) -> Program:
        """The program with these changes; itself if there are none."""
        ways = dict.fromkeys([*chosen, *found.recomputed], "recompute")
        if not ways:
            return self._attempt.program
        return Rewriter(self._ordered, self._boundary, found.kept, ways).rewritten()


def _pays(other: Plan, plan: Plan) -> bool:
    """Whether a plan frees enough of another one's memory in little more time."""
    freed = _intermediate_bytes(plan) - _intermediate_bytes(other)
    return freed >= WORTH * _held(plan) and _seconds(other) <= (1 + SHARE) * _seconds(plan)


def cheap(program: Program, boundary: Boundary, alone: Try) -> list[Var]:
    """Residuals that one elementwise pass over other residuals, or over arguments, makes. Last ones
    first, and none that another one is made from: a chain of them would be recomputed from its far
    end at once."""
    forward = makers(program.eqns[: boundary.number])
    known: dict[tuple[object, ...], bool] = {}
    found: list[Var] = []
    read: set[Var] = set()
    for var in reversed(forward):
        if boundary.residuals.get(var, 0) < LARGE or var in read:
            continue
        chain = _chain(var, forward, boundary)
        if chain is None:
            continue
        key = chain.key()
        if key not in known:
            known[key] = _is_one_pass(alone(chain).plan)
        if known[key]:
            found.append(var)
            read.update(chain.inputs)
    return found


def _chain(var: Var, forward: dict[Var, Eqn], boundary: Boundary) -> Program | None:
    """What makes a value from other residuals; None where something stored is missing or has an
    effect."""
    eqns: dict[Eqn, None] = {}
    inputs: dict[Var, None] = {}

    def add(eqn: Eqn) -> bool:
        if eqn in eqns:
            return True
        there = all(map(reached, [a for a in eqn.inputs if isinstance(a, Var)]))
        eqns[eqn] = None
        return there and not eqn.effects

    def reached(atom: Var) -> bool:
        if atom in boundary.residuals or atom not in forward:
            inputs[atom] = None
            return True
        return atom not in boundary.stored and add(forward[atom])

    return Program(list(inputs), list(eqns), [var]) if add(forward[var]) else None


def _is_one_pass(plan: Plan) -> bool:
    """Whether a plan is a single kernel without products, sums or anything else but maps."""
    steps = plan.steps
    if len(steps) != 1 or not isinstance(steps[0], Run):
        return False
    return all(isinstance(stage, Map) for stage in steps[0].kernel.body)


def _held(plan: Plan) -> float:
    """Bytes of arena, tapes and arguments."""
    return _intermediate_bytes(plan) + argument_bytes(plan)


def _intermediate_bytes(plan: Plan) -> int:
    """Bytes of arena and tapes."""
    writes = [s for s in walk(plan.steps) if isinstance(s, Taping) and s.kind == "write"]
    taped = sum(block.type.nbytes for write in writes for block in write.inputs[2:])
    return plan.arena_bytes + TRIPS * taped


def _seconds(plan: Plan) -> float:
    counts = cost(plan)
    return counts["flops"] / FLOPS + counts["bytes"] / MOVED
