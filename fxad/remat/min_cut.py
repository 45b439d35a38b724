"""What a loop or branch keeps for the one back over it: the least that elementwise passes make the
rest of.

    t = tanh(x);  y = x * t;  u = 1 - t * t;  w = ...     the loop back reads x, t, u and y

    becomes    x alone is kept; the loop back computes t, u and y again

A loop is split before anything is lowered, and keeps whatever its backward half reads. What should
be kept instead is a minimal cut: as many units as a value has bytes may flow through it, from what
cannot be computed again (products, sums, the state of a loop) along elementwise equations and views
to what is read late. The narrowest place is what must be kept (as PyTorch's partitioner decides
between its two graphs); of several the last, since the least is repeated there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from fxad.ir.loops import Alias, Pointwise, View
from fxad.ir.offload_ops import nbytes_of
from fxad.ir.pairs.halves import Changed
from fxad.ir.pairs.lines import Straight, lines
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.rewrite import holds_programs
from fxad.remat.choose import LONGEST
from fxad.remat.rewrite import Rewriter
from fxad.remat.waiting import Waiting, crossing

LINES = 8  # changed one after the other

Node = tuple[Var, bool] | str  # before or behind a value, START or END
START, END = "start", "end"


def lightened(program: Program) -> Program:
    """The program with the least kept by its loops and branches; the same object where that is
    what they keep."""
    for _ in range(LINES):
        better = next((b for line in lines(program) if (b := _lighter(line)) is not None), None)
        if better is None:
            break
        program = better
    return program


def _lighter(line: Straight) -> Program | None:
    """The program around both halves of a line with less kept for the second, if less will do."""
    waiting = crossing(line)
    if waiting is None or waiting.number > LONGEST:
        return None
    kept = least_kept(line, waiting)
    if sum(map(nbytes_of, kept)) >= sum(waiting.kept.values()):
        return None
    again = dict.fromkeys([v for v in waiting.kept if v not in kept], "again")
    rewritten = Rewriter(line.program, waiting, kept, again).rewritten()
    return line.around(Changed(rewritten)).program


def least_kept(line: Straight, waiting: Waiting) -> set[Var]:
    """The values of fewest bytes from which what is read late can be computed again, and the inputs
    that later equations have too."""
    network = _Network()
    for var in line.state:
        network.join(START, (var, False))
        network.join((var, False), (var, True), nbytes_of(var))
    known = set(line.state)
    for eqn in line.program.eqns[: waiting.number]:
        sources: Sequence[Node] = (START,)
        if _repeatable(eqn):
            sources = [(a, True) for a in eqn.inputs if isinstance(a, Var) and a in known]
        for var in eqn.outputs:
            known.add(var)
            network.join((var, False), (var, True), nbytes_of(var))
            for source in sources:
                network.join(source, (var, False))
    for var in waiting.kept:
        network.join((var, True), END)
    network.fill()
    late = network.leading_to_end()
    return {v for v in known if (v, True) in late and (v, False) not in late}


def _repeatable(eqn: Eqn) -> bool:
    """Whether an equation becomes part of the expressions that read its result."""
    if eqn.effects or eqn.op.name == "barrier" or holds_programs(eqn):
        return False
    found = eqn.op.loops([a.type for a in eqn.inputs], **eqn.params)
    records = found if isinstance(found, Sequence) else (found,)
    return all(isinstance(record, Pointwise | View | Alias) for record in records)


class _Network:
    """A maximal flow from START to END, by shortest paths (Edmonds and Karp).

    room: by node and neighbour, how much more may flow between them.
    """

    def __init__(self) -> None:
        self.room: dict[Node, dict[Node, float]] = {START: {}, END: {}}

    def join(self, start: Node, end: Node, size: float = math.inf) -> None:
        self.room.setdefault(start, {})[end] = size
        self.room.setdefault(end, {}).setdefault(start, 0)

    def fill(self) -> None:
        while path := self._path():
            size = min(self.room[a][b] for a, b in path)
            for a, b in path:
                self.room[a][b] -= size
                self.room[b][a] += size

    def _path(self) -> list[tuple[Node, Node]]:
        """The shortest way on which more may flow, empty if there is none."""
        came: dict[Node, Node] = {START: START}
        open_ = deque[Node]([START])
        while open_ and END not in came:
            here = open_.popleft()
            for there, size in self.room[here].items():
                if size > 0 and there not in came:
                    came[there] = here
                    open_.append(there)
        path: list[tuple[Node, Node]] = []
        end: Node = END
        while end in came and end != START:
            path.append((came[end], end))
            end = came[end]
        return path

    def leading_to_end(self) -> set[Node]:
        """The nodes from which more may flow to the end."""
        found: set[Node] = {END}
        open_: list[Node] = [END]
        while open_:
            there = open_.pop()
            for here in self.room[there]:
                if here not in found and self.room[here][there] > 0:
                    found.add(here)
                    open_.append(here)
        return found
