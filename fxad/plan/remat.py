"""Making values anew where they are read: which ones, at what cost, and the Program that does.

`Waiting` says what is in memory at one place of a program, `Chooser` picks what to compute again
or to put on disk, `Rewriter` makes the program that does so. See `fxad.plan.budget`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.block import Block, writes_of
from fxad.ir.cost import cost
from fxad.ir.offload_ops import SMALLEST, nbytes_of
from fxad.ir.pairs.lines import Straight
from fxad.ir.program import OPS, Atom, Eqn, Program, Var
from fxad.ir.rewrite import dce
from fxad.plan.planner import plan as make_plan

LONGEST = 500  # equations repeated for one value
FLOPS, MOVED = 5e10, 1e10  # per second: operations, bytes of memory
SPEEDS = {"disk": 3e8, "host": MOVED}  # bytes per second, of what is put aside
FOREVER = float("inf")


@dataclass(slots=True)
class Waiting:
    """The equation at which memory is fullest, and the values that wait there.

    live: stored values in memory there. kept: those of them made before `number` and read later.
    stored: all values with memory of their own. exact: those that must keep their bits, whatever
    may be rounded.
    """

    number: int
    kept: dict[Var, int]
    live: dict[Var, int]
    stored: set[Var]
    exact: set[Var]

    def anchors(self, program: Program, parts: int) -> set[Var]:
        """What must be kept so that each of `parts` pieces of the early equations can be computed
        again from what enters it: pieces of about equal bytes, begun where little enters."""
        early = program.eqns[: self.number]
        made, last = _lifetimes(early, (), self.stored)
        entering = [0] * (len(early) + 2)
        for var, number in made.items():
            entering[number + 1] += nbytes_of(var)
            entering[last.get(var, number) + 1] -= nbytes_of(var)
        for number in range(1, len(entering)):
            entering[number] += entering[number - 1]
        cuts: list[int] = []
        total, done, window = sum(self.kept.values()), 0, 0
        for number, eqn in enumerate(early):
            done += sum(self.kept.get(v, 0) for v in eqn.outputs)
            if done * parts >= total * (len(cuts) + 1) and len(cuts) + 1 < parts:
                cuts.append(min(range(window, number + 1), key=lambda n: (entering[n], -n)))
                window = number + 1
        return {v for c in cuts for v, n in made.items() if n < c <= last.get(v, n)}


Lifetimes = tuple[dict[Var, int], dict[Atom, int]]


def _lifetimes(eqns: Sequence[Eqn], outputs: Sequence[Atom], stored: set[Var]) -> Lifetimes:
    """Numbers of the equations that make each stored value, and that read each value last."""
    last: dict[Atom, int] = dict.fromkeys(outputs, len(eqns))
    for number in reversed(range(len(eqns))):
        eqn = eqns[number]
        # What only becomes part of other values is read where those are made.
        ends = [number if v in stored else last.get(v, number) for v in eqn.outputs]
        end = max(ends, default=number)
        for atom in eqn.inputs:
            last[atom] = max(last.get(atom, 0), end)
    made = {v: n for n, eqn in enumerate(eqns) for v in eqn.outputs if v in stored}
    return made, last


def waiting_at_peak(program: Program, stored: set[Var]) -> Waiting:
    """Where the stored values of a program (see `stored_by`) take most memory together."""
    count = len(program.eqns)
    made, last = _lifetimes(program.eqns, program.outputs, stored)
    change = [0] * (count + 2)
    for result in program.outputs:  # their memory is set aside from the start
        if isinstance(result, Var):
            made.pop(result, None)
    for var, number in made.items():
        change[number] += nbytes_of(var)
        change[last.get(var, number) + 1] -= nbytes_of(var)
    total, fullest, where = 0, -1, 0
    for number in range(count):
        total += change[number]
        if total > fullest:
            fullest, where = total, number
    live = {v: nbytes_of(v) for v, n in made.items() if n <= where <= last.get(v, n)}
    kept = {v: size for v, size in live.items() if made[v] < where}
    return Waiting(where, kept, live, stored, exact_values(program, where, stored))


def crossing(line: Straight) -> Waiting | None:
    """What the second of two programs reads of the first one's values, if a line is of two."""
    if line.cut is None:
        return None
    made = {*line.state, *(v for e in line.program.eqns[: line.cut] for v in e.outputs)}
    late = line.program.eqns[line.cut :]
    read = dict.fromkeys(a for e in late for a in e.inputs if isinstance(a, Var) and a in made)
    kept = {v: nbytes_of(v) for v in read if v not in line.program.outputs and nbytes_of(v)}
    return Waiting(line.cut, kept, kept, made, exact_values(line.program, line.cut, made))


def exact_values(program: Program, number: int, stored: set[Var]) -> set[Var]:
    """What is not kept for backward passes alone, at one place of a program: what later equations
    outside of them read, and what they have made."""
    made = {v for e in program.eqns[:number] if e.tag is not None for v in e.outputs}
    return made | read_forward(program, number, stored)


def read_forward(program: Program, number: int, stored: set[Var]) -> set[Var]:
    """Early values that later equations outside of backward passes read."""
    early = {v: e for e in program.eqns[:number] for v in e.outputs}
    found: set[Atom] = set(program.outputs)
    for eqn in reversed(program.eqns[number:]):
        # What is made for a backward pass alone is part of it, what is computed again is not.
        if eqn.tag in (None, "recomputed") and (eqn.effects or not found.isdisjoint(eqn.outputs)):
            found.update(eqn.inputs)
    open_ = list(found)
    while open_:
        atom = open_.pop()
        if atom in early and atom not in stored:  # read as part of others
            open_ += [a for a in early[atom].inputs if a not in found]
            found.update(early[atom].inputs)
    return {v for v in found if isinstance(v, Var)}


def stored_by(block: Block) -> set[Var]:
    """The values that have memory of their own in a lowered program."""
    return {v for step in block.steps for v in writes_of(step)}


# ---------------------------------------------------------------- what to do about it


Ways = dict[Var, str]  # again (computed), disk or host (put there), bf16 (rounded)


class Move(NamedTuple):
    """One thing that can be done with a waiting value: what it costs beyond `before`."""

    var: Var
    way: str
    seconds: float
    freed: int
    before: str | None = None

    @property
    def order(self) -> tuple[bool, float]:
        return self.var.type.nbytes < SMALLEST, self.seconds / self.freed


class Chooser:
    """Picks among the values that wait at one place; `anchors` are never computed again."""

    def __init__(self, program: Program, waiting: Waiting, anchors: set[Var], costs: Costs) -> None:
        self.costs = costs
        self.kept = waiting.kept
        self.exact = waiting.exact
        self.anchors = anchors
        self.early = {v: e for e in program.eqns[: waiting.number] for v in e.outputs}
        self.freed = 0  # bytes, by the last choice
        self._moves: dict[tuple[str, ...], list[Move]] = {}

    def choose(self, wanted: int, ways: tuple[str, ...]) -> Ways:
        """Free about `wanted` bytes, those first that cost least time. `ways`: what may be done
        with values beside computing them again."""
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
        whole = [("again", FOREVER if fixed else self.again(var))]
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

    def again(self, var: Var) -> float:
        """Seconds to compute a value from what is there later, or is computed again anyway."""
        seconds, open_ = 0.0, [var]
        seen: set[Eqn] = set()
        if var not in self.early:  # the state of a loop
            return FOREVER
        while open_:
            eqn = self.early[open_.pop()]
            if eqn not in seen:
                seen.add(eqn)
                seconds += self.costs.seconds(eqn)
                open_ += [a for a in eqn.inputs if isinstance(a, Var) and not self._there(a)]
            if seconds == FOREVER or len(seen) > LONGEST:
                return FOREVER
        return seconds

    def _there(self, var: Var) -> bool:
        return var not in self.early or var in self.kept or var in self.anchors


class Costs:
    """The cost model's time for single equations; those with effects cannot be computed again."""

    def __init__(self) -> None:
        self._known: dict[Eqn | tuple, float] = {}

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
            counts = cost(make_plan(alone))
            found = max(counts["flops"] / FLOPS, counts["bytes"] / MOVED)
            self._known[alone.key()] = found
        return found


class Rewriter:
    """The program with chosen values made anew before the first late equation that reads them."""

    def __init__(self, program: Program, waiting: Waiting, anchors: set[Var], ways: Ways) -> None:
        self.program = program
        self.number = waiting.number
        self.kept = {*waiting.kept, *anchors}
        self.ways = ways
        self.early = {v: e for e in program.eqns[: self.number] for v in e.outputs}
        self.stored = waiting.stored
        self.exact = waiting.exact
        self.small = {v: Var(_rounded(v.type)) for v, way in ways.items() if way == "bf16"}
        self.anew: dict[Atom, Atom] = {}  # early value -> what late equations read instead
        self.eqns: list[Eqn] = []
        self._changed: dict[Atom, bool] = {}

    def rewritten(self) -> Program:
        program = self.program
        given = [v for v in self.small if v not in self.early]  # the state of a loop
        self.eqns += [_converted(v, self.small[v]) for v in given]
        for eqn in program.eqns[: self.number]:
            self.eqns.append(eqn)
            self.eqns += [_converted(v, self.small[v]) for v in eqn.outputs if v in self.small]
        start = len(self.eqns)
        for eqn in program.eqns[self.number :]:
            late = tuple([self._late(a) for a in eqn.inputs])
            self.eqns.append(eqn.with_inputs(late))
        self._late_eqns = self.eqns[start:]
        return dce(
            Program(program.inputs, self.eqns, program.outputs, program.name, program.consts)
        )

    def waiting(self) -> dict[Var, int]:
        """Values made early that late equations read from memory, and their bytes."""
        late = dce(Program((), self._late_eqns, self.program.outputs)).eqns
        read = {a for eqn in late if eqn.op.name != "offload" for a in eqn.inputs}
        waits = [*self.kept, *self.small.values()]
        return {v: nbytes_of(v) for v in waits if v in read}

    def _late(self, atom: Atom) -> Atom:
        """What a late equation reads for an atom."""
        if not isinstance(atom, Var) or not self._touched(atom):
            return atom
        if atom not in self.anew:
            self._restore(atom)
        return self.anew[atom]

    def _touched(self, var: Var) -> bool:
        """Whether a value is chosen, or only part of others and made from a chosen one."""
        if var not in self._changed:
            eqn = self.early.get(var)
            self._changed[var] = var in self.ways
            if eqn is not None and var not in self.stored and not eqn.effects:
                self._changed[var] |= any(
                    isinstance(a, Var) and self._touched(a) for a in eqn.inputs
                )
        return self._changed[var]

    def _restore(self, var: Var) -> None:
        """Add the equations that make a value anew, behind a barrier of their own: nothing
        repeated joins what was before it and waits longer than it must."""
        order: list[Eqn] = []
        fixed: dict[Atom, Atom] = {}
        self._collect(var, order, fixed, set())
        tag = None if var in self.exact else "recomputed"
        if fixed:
            barrier = Eqn(OPS["barrier"], tuple(fixed), {}, tuple(map(_like, fixed)), tag=tag)
            self.eqns.append(barrier)
            fixed = dict(zip(fixed, barrier.outputs, strict=True))
        for eqn in order:
            inputs = tuple([self.anew.get(a, fixed.get(a, a)) for a in eqn.inputs])
            outputs = tuple(map(_like, eqn.outputs))
            self.eqns.append(Eqn(eqn.op, inputs, eqn.params, outputs, eqn.where, eqn.tag or tag))
            for old, new in zip(eqn.outputs, outputs, strict=True):
                self.anew.setdefault(old, new)

    def _collect(self, var: Var, order: list[Eqn], fixed: dict[Atom, Atom], seen: set[Var]) -> None:
        """Equations to repeat for a value, operands first, and the kept values they read."""
        if var in self.anew or var in seen or var in fixed:
            return
        seen.add(var)
        way = self.ways.get(var)
        if way in SPEEDS:
            maker, params = self.early.get(var), {"place": way, "memory": 0}
            where = maker.where if maker is not None else ""
            mark = Eqn(OPS["offload"], (var,), params, (_like(var),), where)
            self.eqns.append(mark)
            self.anew[var] = mark.outputs[0]
            return
        if way == "bf16":
            fixed[self.small[var]] = self.small[var]
            order.append(_converted(self.small[var], var))
            return
        eqn = self.early.get(var)
        if eqn is None or (var in self.kept and way is None):
            fixed[var] = var
            return
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                self._collect(atom, order, fixed, seen)
        if eqn not in order:
            order.append(eqn)


def _like(atom: Atom) -> Var:
    return Var(atom.type)


def _roundable(var: Var) -> bool:
    type_ = var.type
    return isinstance(type_, ArrayType) and dt.is_float(type_.dtype) and type_.dtype.itemsize > 2


def _rounded(type_: ArrayType) -> ArrayType:
    return ArrayType(dt.bfloat16, type_.shape)


def _converted(given: Var, made: Var) -> Eqn:
    return Eqn(OPS["convert"], (given,), {"dtype": made.type.dtype}, (made,))
