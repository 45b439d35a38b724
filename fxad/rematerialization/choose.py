"""What to do with residuals: recompute them, offload them, round them.

    chooser = Chooser(program, boundary, anchors, Costs(attempt))
    chooser.choose(wanted=1 << 30, ways=("disk",))      # {value: "recompute", another: "disk"}

What frees most bytes for the least time goes first. Time is the cost model's (`fxad.ir.cost`):
operations and bytes moved, at rates written down here.
"""

from __future__ import annotations

from typing import NamedTuple

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.cost import cost
from fxad.ir.offload_ops import SMALLEST
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.uses import makers
from fxad.rematerialization.attempt import Try
from fxad.rematerialization.boundary import Boundary

LONGEST = 500  # equations repeated for one value
FLOPS, MOVED = 5e10, 1e10  # per second: operations, bytes of memory
SPEEDS = {"disk": 3e8, "host": MOVED}  # bytes per second, of what is offloaded
FOREVER = float("inf")

Ways = dict[Var, str]  # "recompute", "disk" or "host" (offloaded there), "bf16" (rounded)


class Move(NamedTuple):
    """One thing that can be done with a residual: what it costs beyond `before`."""

    var: Var
    way: str
    seconds: float
    freed: int
    before: str | None = None

    @property
    def order(self) -> tuple[bool, float]:
        return self.var.type.nbytes < SMALLEST, self.seconds / self.freed


class Chooser:
    """Picks among the residuals of one boundary; `anchors` are never recomputed."""

    def __init__(
        self, program: Program, boundary: Boundary, anchors: set[Var], costs: Costs
    ) -> None:
        self.costs = costs
        self.kept = boundary.residuals
        self.exact = boundary.exact
        self.anchors = anchors
        self.forward = makers(program.eqns[: boundary.number])
        self.freed = 0  # bytes, by the last choice
        self._moves: dict[tuple[str, ...], list[Move]] = {}

    def choose(self, wanted: int, ways: tuple[str, ...]) -> Ways:
        """Free about `wanted` bytes, those first that cost least time. `ways`: what may be done
        with values beside recomputing them."""
        if ways not in self._moves:
            moves = [m for v, size in self.kept.items() if size for m in self._moves_of(v, ways)]
            self._moves[ways] = sorted(moves, key=lambda m: m.order)
        taken: dict[Var, Move] = {}
        freed = 0
        for move in self._moves[ways]:
            if freed >= wanted:
                break
            taken[move.var] = move
            freed += move.freed
        for move in sorted(taken.values(), key=lambda m: -m.seconds):  # what was not needed
            if freed - move.freed >= wanted:
                freed -= move.freed
                taken[move.var] = move._replace(way=move.before or "")
        self.freed = freed
        return {var: move.way for var, move in taken.items() if move.way}

    def _moves_of(self, var: Var, ways: tuple[str, ...]) -> list[Move]:
        """Cheapest first: rounding where that pays, then what frees all of the value."""
        size = self.kept[var]
        # Where others are rounded, what must keep its bits is not made from them.
        fixed = var in self.anchors or ("bf16" in ways and var in self.exact)
        whole = [("recompute", FOREVER if fixed else self.recompute_seconds(var))]
        if size >= SMALLEST:
            whole += [(w, 2 * size / SPEEDS[w]) for w in ways if w in SPEEDS]
        way, seconds = min(whole, key=lambda w: w[1])
        moves = [] if seconds == FOREVER else [Move(var, way, seconds, size)]
        if "bf16" in ways and size >= SMALLEST and _roundable(var) and var not in self.exact:
            small = size // var.type.dtype.itemsize * 2
            half = Move(var, "bf16", 2 * (size + small) / MOVED, size - small)
            if not moves:
                moves = [half]
            elif half.order < moves[0].order:
                rest = Move(var, way, seconds - half.seconds, small, "bf16")
                moves = [half, rest]
        return moves

    def recompute_seconds(self, var: Var) -> float:
        """Seconds to compute a value from what is there later, or is recomputed anyway."""
        seconds, open_ = 0.0, [var]
        seen: set[Eqn] = set()
        if var not in self.forward:  # the state of a loop
            return FOREVER
        while open_:
            eqn = self.forward[open_.pop()]
            if eqn not in seen:
                seen.add(eqn)
                seconds += self.costs.seconds(eqn)
                open_ += [a for a in eqn.inputs if isinstance(a, Var) and not self._there(a)]
            if seconds == FOREVER or len(seen) > LONGEST:
                return FOREVER
        return seconds

    def _there(self, var: Var) -> bool:
        return var not in self.forward or var in self.kept or var in self.anchors


class Costs:
    """The cost model's time for single equations; those with effects cannot be recomputed."""

    def __init__(self, alone: Try) -> None:
        self._alone = alone
        self._known: dict[Eqn | tuple[object, ...], float] = {}

    def seconds(self, eqn: Eqn) -> float:
        found = self._known.get(eqn)
        if found is None:
            found = self._known[eqn] = FOREVER if eqn.effects else self._measured(eqn)
        return found

    def _measured(self, eqn: Eqn) -> float:
        inputs = [v for v in dict.fromkeys(eqn.inputs) if isinstance(v, Var)]
        alone = Program(inputs, [eqn], eqn.outputs)
        found = self._known.get(alone.key())
        if found is None:
            counts = cost(self._alone(alone).plan)
            found = max(counts["flops"] / FLOPS, counts["bytes"] / MOVED)
            self._known[alone.key()] = found
        return found


def _roundable(var: Var) -> bool:
    type_ = var.type
    return isinstance(type_, ArrayType) and dt.is_float(type_.dtype) and type_.dtype.itemsize > 2
