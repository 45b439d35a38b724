"""A Program rewritten so that it runs in a given number of bytes.

    program, plan = fit(program, budget=2 << 30)

Where memory is fullest, values wait that were made before and are read after. Each can be kept,
computed again when it is read, or put on disk until then. What frees the most bytes for the least
time goes first; then the program is planned again, until it fits.

Bytes are those of arena, arguments and results, and of the memory in which values on their way to
the disk wait. Time is the cost model's (`fxad.ir.cost`): operations and bytes moved, at rates
written down here.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxad.core.config import config
from fxad.core.errors import SizeError, at
from fxad.core.limits import readable
from fxad.ir.cost import cost
from fxad.ir.plan import Plan
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.rewrite import dce, substitute
from fxad.passes.aside import SMALLEST, nbytes_of, staging
from fxad.passes.halves import Changed
from fxad.passes.lines import Straight, lines
from fxad.passes.offload import offload
from fxad.plan.order import as_run
from fxad.plan.planner import plan as make_plan
from fxad.plan.remat import (
    LONGEST,
    Chooser,
    Costs,
    Rewriter,
    Waiting,
    Ways,
    waiting_at_peak,
)

ROUNDS = 4  # places relieved one after another
PARTS = (1, 2, 4, 8, 16, 32)  # pieces of the program, each recomputed from what enters it
STAGING = 8  # a budget over this: memory of values on their way to the disk
RETRIES = 4  # for each of them, wanting more


def peak_bytes(plan: Plan, program: Program) -> int:
    """Bytes of arena, arguments, results, and of memory for what goes to disk."""
    counts = cost(plan)
    donated = sum(program.out_types[result].nbytes for result in plan.donated)
    named = ("arena_bytes", "argument_bytes", "result_bytes")
    return sum(counts[name] for name in named) - donated + staging(program)


def fit(
    program: Program,
    budget: int,
    *,
    donate: frozenset[int] = frozenset(),
    fusion: bool = True,
    disk: bool = False,
    scratch: int = 0,
) -> tuple[Program, Plan]:
    """The program, rewritten if need be, and its plan of at most `budget` bytes.

    disk: whether values may be put on disk. scratch: bytes of the budget for what the plan does
    not know of. Raises SizeError, naming what fills the memory, where nothing brings it below the
    budget.
    """
    best = _planned(regions(program), donate, fusion)
    for _ in range(ROUNDS):
        if best.peak + scratch <= budget:
            return best.program, best.plan
        better = _round(best, budget - scratch, donate, fusion, disk)
        if better is None:
            break
        best = better
    if best.peak + scratch <= budget:
        return best.program, best.plan
    raise _cannot(best.program, budget, best.peak + scratch, fusion)


@dataclass(slots=True)
class _Tried:
    program: Program
    plan: Plan
    peak: int


def _planned(program: Program, donate: frozenset[int], fusion: bool) -> _Tried:
    plan = make_plan(program, donate=donate, fusion=fusion)
    return _Tried(program, plan, peak_bytes(plan, program))


def _round(
    start: _Tried, budget: int, donate: frozenset[int], fusion: bool, disk: bool
) -> _Tried | None:
    """The first way that fits, or the one that comes closest, or None where nothing helps.

    Memory is looked at in the order in which the plan runs the equations, then in the program's.
    """
    best, costs = start, Costs()
    for program in (as_run(start.program, donate, fusion), start.program):
        best = _relieved(program, best, budget, donate, fusion, disk, costs)
        if best.peak <= budget:
            break
    return best if best.peak < start.peak else None


def _relieved(
    program: Program,
    best: _Tried,
    budget: int,
    donate: frozenset[int],
    fusion: bool,
    disk: bool,
    costs: Costs,
) -> _Tried:
    """The first that fits, smaller and smaller pieces recomputed at a time; else the smallest."""
    waiting = waiting_at_peak(program, fusion)
    ways = ("disk",) if disk else ()
    whole = best.peak
    for parts in PARTS:
        anchors = waiting.anchors(program, parts)
        chooser = Chooser(program, waiting, anchors, costs)
        wanted, before = whole - budget, Ways()
        for _ in range(RETRIES):
            choice = chooser.choose(wanted, ways)
            if choice == before:  # everything there is has been chosen
                break
            smaller = Rewriter(program, waiting, anchors, choice).rewritten()
            tried = _planned(offload(smaller, budget // STAGING), donate, fusion)
            if tried.peak < best.peak:
                best = tried
            if best.peak <= budget:
                return best
            wanted = max(chooser.freed + tried.peak - budget, wanted * 3 // 2)
            before = choice
    return best


def regions(program: Program) -> Program:
    """Give every `within` (a checkpoint with a byte budget) what it asks for, those in loops and
    branches too, where a trip's values wait for the same trip of the loop back."""
    memory, costs = 0, Costs()
    while (line := next(filter(_asks, lines(program)), None)) is not None:
        straight, rounded = line.program, set[Var]()
        while (found := _asking(straight)) is not None:
            memory += straight.eqns[found].params["budget"]
            straight, small = _region(straight, found, costs)
            rounded |= small
        program = line.around(Changed(straight, rounded)).program
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
    waiting = Waiting(number, waits, {}, made)
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


def _cannot(program: Program, budget: int, peak: int, fusion: bool) -> SizeError:
    """The error that says what is in memory where it is fullest."""
    waiting = waiting_at_peak(program, fusion)
    makers = {v: e for e in program.eqns for v in e.outputs}
    largest = sorted(waiting.live, key=waiting.live.__getitem__, reverse=True)[:5]
    named = [f"{makers[v].op.name}: {v.type}{at(makers[v].where)}" for v in largest]
    held = sum(map(nbytes_of, program.inputs)) + sum(map(nbytes_of, program.outputs))
    return SizeError(
        f"{program.name} does not fit a memory budget of {readable(budget)}: the least found is "
        f"{readable(peak)}, of which arguments and results take {readable(held)}; in memory at the "
        f"fullest point are {'; '.join(named) or 'they alone'}"
    )
