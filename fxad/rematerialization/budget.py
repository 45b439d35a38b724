"""A Program rewritten so that it runs in a given number of bytes.

    fit(program, 2 << 30, attempts, offload).plan

Where memory is fullest, residuals are live: made before and read after. Each can be kept,
recomputed when it is read, or offloaded to disk until then. What frees the most bytes for the least
time goes first; then the program is planned again, until it fits.

Bytes are those of arena, arguments and results, and of the memory for values on their way to
the disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fxad.core.errors import SizeError, at
from fxad.core.limits import readable
from fxad.ir.cost import peak_bytes
from fxad.ir.offload_ops import nbytes_of
from fxad.ir.pairs.joined import Changed
from fxad.ir.pairs.regions import Region, linear_regions
from fxad.ir.plan import Plan
from fxad.ir.program import Program, Var
from fxad.ir.rewrite import dce
from fxad.ir.uses import uses_of
from fxad.rematerialization.attempt import Attempt, Attempts, Offload, Try
from fxad.rematerialization.boundary import Boundary, boundary_at_peak, boundary_inside
from fxad.rematerialization.choose import Chooser, Costs, Ways
from fxad.rematerialization.rewrite import Rewriter

ROUNDS = 8  # places relieved one after another
PLACES = 6  # in loops and branches, looked at in each round
PARTS = (1, 2, 4, 8, 16, 32)  # pieces of the program, each recomputed from what enters it
TIGHTER = 0.8  # of a budget that was not met: what is then tried for, which takes other ways
SHARES = (0.05, 0.25, 0.45, 0.6)  # of the bytes without a budget: what the least is looked for with
STAGING_SHARE = 8  # a budget over this: memory of values on their way to the disk
RETRIES = 4  # for each of them, wanting more


def fit(
    program: Program,
    budget: int,
    attempts: Attempts,
    offload: Offload,
    *,
    ways: tuple[str, ...] = (),
    scratch: Callable[[Plan], int] = lambda plan: 0,
) -> Attempt:
    """The program, rewritten if need be, and its plan of at most `budget` bytes.

    ways: what may be done with values beside recomputing them: "disk", "bf16" (only what
    nothing but backward passes read is rounded). scratch: the bytes that a plan takes beyond what
    it knows of. Raises SizeError, naming what fills the memory, where nothing brings it below the
    budget; the least that it names is the same for every budget.
    """
    start, costs = _Tried.of(attempts.whole(program)), Costs(attempts.alone)
    peaks: dict[int, int] = {}

    def closest(target: int, enough: int) -> _Tried:
        """On the way to `target` bytes the first program of `enough`, else the smallest."""
        best = start
        for allowed in _orders(ways):
            search = _Search(target, attempts, offload, allowed, costs, peaks)
            for tried in _rounds(start, search):
                best = min(best, tried, key=lambda t: t.peak)
                if best.peak <= enough:
                    return best
        return best

    limit = budget
    while (found := _within(limit, closest)) is not None:
        taken = scratch(found.attempt.plan)
        if found.peak + taken <= budget:
            return found.attempt
        limit = budget - taken  # less than before: what was found is within that
    targets = [int(share * start.peak) for share in SHARES]
    least = min([closest(target, target) for target in targets], key=lambda t: t.peak)
    taken = scratch(least.attempt.plan)
    if least.peak + taken <= budget:
        return least.attempt
    raise _cannot(least, budget, taken, attempts.alone, ways)


def _within(limit: int, closest: Callable[[int, int], _Tried]) -> _Tried | None:
    """What is found of at most `limit` bytes."""
    for target in (limit, int(TIGHTER * limit)):
        tried = closest(target, limit)
        if tried.peak <= limit:
            return tried
    return None


def _rounds(start: _Tried, search: _Search) -> Iterator[_Tried]:
    """The program as it is, then after each round, as long as they help."""
    yield start
    for _ in range(ROUNDS):
        better = _round(start, search)
        if better is None:
            return
        yield better
        start = better


def _orders(ways: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All ways at first; then without rounding, which keeps some values from being
    recomputed."""
    return list(dict.fromkeys((ways, tuple([w for w in ways if w != "bf16"]))))


@dataclass(slots=True)
class _Tried:
    attempt: Attempt
    peak: int

    @classmethod
    def of(cls, attempt: Attempt) -> _Tried:
        return cls(attempt, peak_bytes(attempt.plan, attempt.program))


def _round(start: _Tried, search: _Search) -> _Tried | None:
    """The first way that fits, or the one that comes closest, or None where nothing helps.

    Memory is looked at in the order in which the plan runs the equations, then in the program's,
    then in loops and branches, those with most bytes of residuals first.
    """
    best, alone, budget = start, search.attempts.alone, search.budget
    for program in (start.attempt.as_run, start.attempt.program):
        boundary = _fullest(program, alone)  # another order may store other values
        best = search.relieved(Region(program, lambda changed: changed), boundary, best)
        if best.peak <= budget:
            return best
    for region, boundary in _inside(best.attempt.program, alone)[:PLACES]:
        tried = search.relieved(region, boundary, best)
        if tried.peak < best.peak:  # the other regions are of the program as it was
            return tried
    return best if best.peak < start.peak else None


def _inside(program: Program, alone: Try) -> list[tuple[Region, Boundary]]:
    """Regions inside a program and their boundaries, those with most bytes of residuals first."""
    found: list[tuple[int, Region, Boundary]] = []
    for region in itertools.islice(linear_regions(program), 1, None):
        boundary = boundary_inside(region) or _fullest(region.program, alone)
        if boundary.residuals:
            found.append((sum(boundary.residuals.values()) * region.copies, region, boundary))
    return [(region, boundary) for _, region, boundary in sorted(found, key=lambda f: -f[0])]


def _fullest(program: Program, alone: Try) -> Boundary:
    """Where a program, lowered alone, takes most memory."""
    return boundary_at_peak(program, alone(program).stored)


@dataclass(frozen=True, slots=True)
class _Search:
    """What all attempts to bring a program within a budget have in common. peaks: of programs that
    were planned for this budget or another, by their hashes: many come up again."""

    budget: int
    attempts: Attempts
    offload: Offload
    ways: tuple[str, ...]
    costs: Costs
    peaks: dict[int, int]

    def relieved(self, region: Region, boundary: Boundary, best: _Tried) -> _Tried:
        """The first that fits, smaller and smaller pieces recomputed at a time; else the
        smallest."""
        budget, program = self.budget, region.program
        whole, seen = best.peak, list[set[Var]]()
        for parts in PARTS:
            anchors = boundary.anchors(program, parts)
            if anchors in seen:
                continue
            seen.append(anchors)
            chooser = Chooser(program, boundary, anchors, self.costs)
            wanted, before = (whole - budget) // region.copies, Ways()
            for _ in range(RETRIES):
                choice = chooser.choose(wanted, self.ways)
                if choice == before:  # everything there is has been chosen
                    break
                rewriter = Rewriter(program, boundary, anchors, choice)
                changed = Changed(rewriter.rewritten(), frozenset(rewriter.small.values()))
                smaller = self.offload(dce(region.around(changed).program), budget // STAGING_SHARE)
                name = hash(smaller.key())
                peak = self.peaks.get(name)
                if peak is None or peak < best.peak:
                    tried = _Tried.of(self.attempts.whole(smaller))
                    peak = self.peaks[name] = tried.peak
                    best = min(best, tried, key=lambda t: t.peak)
                if best.peak <= budget:
                    return best
                over = (peak - budget) // region.copies
                wanted = max(chooser.freed + over, wanted * 3 // 2)
                before = choice
        return best


def _cannot(
    best: _Tried, budget: int, scratch: int, alone: Try, ways: tuple[str, ...]
) -> SizeError:
    """The error that says what is in memory where it is fullest, and what was not allowed."""
    program = best.attempt.program
    inside = _inside(program, alone)
    filling = [_named(program, v, n) for v, n in _fullest(program, alone).live.items()]
    for region, boundary in inside:
        filling += [
            _named(region.program, v, n, region.copies) for v, n in boundary.residuals.items()
        ]
    largest = sorted([f for f in filling if f], key=lambda f: -f[0])
    named = list(dict.fromkeys(text for _, text in largest))[:5]
    held = sum(map(nbytes_of, program.inputs)) + sum(map(nbytes_of, program.outputs))
    allow = {"disk": 'offload="disk"', "bf16": 'compress="bf16"'}
    untried = [option for way, option in allow.items() if way not in ways]
    more = f"; not allowed so far: {' and '.join(untried)}" if untried else ""
    return SizeError(
        f"{program.name} does not fit a memory budget of {readable(budget)}: the least found is "
        f"{readable(best.peak + scratch)}, of which arguments and results take {readable(held)}; "
        f"in memory at the fullest point are {'; '.join(named) or 'they alone'}{more}"
    )


def _named(program: Program, var: Var, nbytes: int, times: int = 1) -> tuple[int, str] | None:
    """The bytes of a value, and what it is; None for what loops hand on, which stands inside."""
    maker = uses_of(program).maker.get(var)
    if maker is not None and maker.op.name in ("scan", "cond"):
        return None
    what = f"{maker.op.name}: {var.type}{at(maker.where)}" if maker else f"a state: {var.type}"
    trips = f", in {times} trips" if times > 1 else ""
    return nbytes * times, f"{what}{trips}"
