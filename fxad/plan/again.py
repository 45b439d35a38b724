"""Computing again, unasked, what is cheap to compute and would wait long for the backward pass.

    n = (x - mean) * rstd * scale;  q = n w;  ...;  dw = nᵀ dq

    becomes   n = ...;  q = n w;  ...;  n' = (x - mean) * rstd * scale;  dw = n'ᵀ dq

where x, mean and rstd wait in any case: then n takes no memory in between. Loops and branches keep
less for those back over them (`crossing`); then, where memory is fullest, those values are made
again that one pass over such others makes. Each time the program is planned again, and stays as it
was unless its peak falls by WORTH, at less than SHARE more time by the cost model. Results keep
their bits: the same operations run on the same numbers.
"""

from __future__ import annotations

from fxad.core.record import record
from fxad.ir.block import Block
from fxad.ir.cost import cost
from fxad.ir.kernel import Map
from fxad.ir.plan import Plan, Run, Taping, walk
from fxad.ir.program import Eqn, Program, Var
from fxad.lower import LowerConfig, lower
from fxad.lower.rounding import Rounds
from fxad.plan.crossing import lightened
from fxad.plan.order import as_run
from fxad.plan.planner import plan as make_plan
from fxad.plan.planner import plan_block
from fxad.plan.remat import FLOPS, MOVED, Rewriter, Waiting, stored_by, waiting_at_peak

LEAST = 256 << 20  # bytes: a smaller arena is not worth a second lowering and plan
PART = 0.2  # of arena and arguments: neither is an arena that is a smaller part of them
TRIPS = 100  # of a loop of unknown length: its tape counts as part of the arena
LARGE = 1 << 18  # bytes; smaller values stay
WORTH = 0.01  # of the memory that a program takes: what must be freed
SHARE = 0.01  # of the time that a program takes: what it may cost


@record
class Tried:
    """A program, what it is lowered to, and its plan."""

    program: Program
    block: Block
    plan: Plan


def planned(
    program: Program, *, donate: frozenset[int], fusion: bool, rounds: Rounds | None
) -> tuple[Program, Plan]:
    """The program, with cheap values made again where that pays, and its plan (options: see
    `plan`)."""

    def tried(program: Program) -> Tried:
        block = lower(program, LowerConfig(fusion, rounds=rounds))
        return Tried(program, block, plan_block(block, program.in_types, program.out_types, donate))

    best = tried(program)
    plan = best.plan
    if not fusion or _room(plan) < max(LEAST, PART * _held(plan)):
        return program, plan
    for change in (_lightened, _eased):
        changed = change(best, donate)
        if changed is not best.program:
            other = tried(changed)
            best = other if _pays(other.plan, best.plan) else best
    return best.program, best.plan


def _lightened(tried: Tried, donate: frozenset[int]) -> Program:
    """With less kept by loops and branches for those back over them."""
    return lightened(tried.program)


def _eased(tried: Tried, donate: frozenset[int]) -> Program:
    """With cheap values made again that wait where memory is fullest, if they are worth a plan."""
    ordered = as_run(tried.program, tried.block, donate)
    waiting = waiting_at_peak(ordered, stored_by(tried.block))
    chosen = cheap(ordered, waiting)
    if sum(v.type.nbytes for v in chosen) < _worth(tried.plan):
        return tried.program
    return Rewriter(ordered, waiting, set(), dict.fromkeys(chosen, "again")).rewritten()


def _pays(other: Plan, plan: Plan) -> bool:
    """Whether a plan frees enough of another one's memory in little more time."""
    freed = _room(plan) - _room(other)
    return freed >= _worth(plan) and _seconds(other) <= (1 + SHARE) * _seconds(plan)


def cheap(program: Program, waiting: Waiting) -> list[Var]:
    """Values waiting for later equations that one elementwise pass over other waiting values, or
    over arguments, makes. Last ones first, and none that another one is made from: a chain of
    them would be computed again from its far end at once."""
    early = {v: e for e in program.eqns[: waiting.number] for v in e.outputs}
    known: dict[tuple, bool] = {}
    found: list[Var] = []
    read: set[Var] = set()
    for var in reversed(early):
        if waiting.kept.get(var, 0) < LARGE or var in read:
            continue
        chain = _chain(var, early, waiting)
        if chain is None:
            continue
        key = chain.key()
        if key not in known:
            known[key] = _is_one_pass(chain)
        if known[key]:
            found.append(var)
            read.update(chain.inputs)
    return found


def _chain(var: Var, early: dict[Var, Eqn], waiting: Waiting) -> Program | None:
    """What makes a value from those that wait too; None where something stored is missing or has an
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
        if atom in waiting.kept or atom not in early:
            inputs[atom] = None
            return True
        return atom not in waiting.stored and add(early[atom])

    return Program(list(inputs), list(eqns), [var]) if add(early[var]) else None


def _is_one_pass(chain: Program) -> bool:
    """Whether a chain is a single kernel without products, sums or anything else but maps."""
    steps = make_plan(chain).steps
    if len(steps) != 1 or not isinstance(steps[0], Run):
        return False
    return all(isinstance(stage, Map) for stage in steps[0].kernel.body)


def _worth(plan: Plan) -> float:
    return WORTH * _held(plan)


def _held(plan: Plan) -> float:
    """Bytes of arena, tapes and arguments."""
    return _room(plan) + cost(plan)["argument_bytes"]


def _room(plan: Plan) -> int:
    """Bytes of arena and tapes."""
    writes = [s for s in walk(plan.steps) if isinstance(s, Taping) and s.kind == "write"]
    taped = sum(block.type.nbytes for write in writes for block in write.inputs[2:])
    return plan.arena_bytes + TRIPS * taped


def _seconds(plan: Plan) -> float:
    counts = cost(plan)
    return counts["flops"] / FLOPS + counts["bytes"] / MOVED
