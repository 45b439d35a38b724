"""The fewest bytes that a loop keeps for its backward loop (or a branch for its own): those from
which elementwise passes recompute the other residuals.

    t = tanh(x);  y = x * t;  u = 1 - t * t;  w = ...     the backward loop reads x, t, u, y

    becomes    x is the one residual; the backward loop recomputes t, u and y

A loop is split before anything is lowered, and all that its backward half reads is a residual. What
should be kept instead is a minimal cut: as many units as a value has bytes may flow through it,
from what cannot be recomputed (products, sums, the state of a loop) along elementwise equations and
views to what is read backward. The narrowest place is what must be kept (as PyTorch's partitioner
decides between its two graphs); of several the last, since the least is repeated there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from fxad.ir.loops import Alias, Pointwise, View
from fxad.ir.offload_ops import nbytes_of
from fxad.ir.pairs.joined import Changed
from fxad.ir.pairs.regions import Region, linear_regions
from fxad.ir.program import Eqn, Program, Var
from fxad.ir.rewrite import holds_programs
from fxad.rematerialization.boundary import Boundary, boundary_inside
from fxad.rematerialization.choose import LONGEST
from fxad.rematerialization.rewrite import Rewriter

REGIONS = 8  # changed one after the other

Node = tuple[Var, bool] | str  # before or behind a value, START or END
START, END = "start", "end"


def lightened(program: Program) -> Program:
    """The program with the fewest residuals of its loops and branches; the same object where they
    have no more."""
    for _ in range(REGIONS):
        better = next(filter(None, map(_lighter, linear_regions(program))), None)
        if better is None:
            break
        program = better
    return program


def _lighter(region: Region) -> Program | None:
    """The program around joined bodies with fewer bytes of residuals, if fewer will do."""
    boundary = boundary_inside(region)
    if boundary is None or boundary.number > LONGEST:
        return None
    kept = least_kept(region, boundary)
    if sum(map(nbytes_of, kept)) >= sum(boundary.residuals.values()):
        return None
    ways = dict.fromkeys([v for v in boundary.residuals if v not in kept], "recompute")
    rewritten = Rewriter(region.program, boundary, kept, ways).rewritten()
    return region.around(Changed(rewritten)).program


def least_kept(region: Region, boundary: Boundary) -> set[Var]:
    """The values of fewest bytes from which what is read backward can be recomputed, and the inputs
    that later equations have too."""
    network = _Network()
    for var in region.state:
        network.join(START, (var, False))
        network.join((var, False), (var, True), nbytes_of(var))
    known = set(region.state)
    for eqn in region.program.eqns[: boundary.number]:
        sources: Sequence[Node] = (START,)
        if _repeatable(eqn):
            sources = [(a, True) for a in eqn.inputs if isinstance(a, Var) and a in known]
        for var in eqn.outputs:
            known.add(var)
            network.join((var, False), (var, True), nbytes_of(var))
            for source in sources:
                network.join(source, (var, False))
    for var in boundary.residuals:
        network.join((var, True), END)
    network.fill()
    leading = network.leading_to_end()
    return {v for v in known if (v, True) in leading and (v, False) not in leading}


def _repeatable(eqn: Eqn) -> bool:
    """Whether an equation becomes part of the expressions that read its result."""
    if eqn.effects or eqn.op.name == "barrier" or holds_programs(eqn):
        return False
    assert eqn.op.loops is not None  # others have been decomposed
    found = eqn.op.loops([a.type for a in eqn.inputs], **eqn.params)
    records = found if isinstance(found, Sequence) else (found,)
    return all(isinstance(record, Pointwise | View | Alias) for record in records)


class _Network:
    """A maximal flow from START to END, by shortest paths (Edmonds and Karp).

    capacity: by node and neighbour, how much more may flow between them.
    """

    def __init__(self) -> None:
        self.capacity: dict[Node, dict[Node, float]] = {START: {}, END: {}}

    def join(self, start: Node, end: Node, size: float = math.inf) -> None:
        self.capacity.setdefault(start, {})[end] = size
        self.capacity.setdefault(end, {}).setdefault(start, 0)

    def fill(self) -> None:
        while path := self._path():
            size = min(self.capacity[a][b] for a, b in path)
            for a, b in path:
                self.capacity[a][b] -= size
                self.capacity[b][a] += size

    def _path(self) -> list[tuple[Node, Node]]:
        """The shortest way on which more may flow, empty if there is none."""
        came: dict[Node, Node] = {START: START}
        open_ = deque[Node]([START])
        while open_ and END not in came:
            here = open_.popleft()
            for there, size in self.capacity[here].items():
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
            for here in self.capacity[there]:
                if here not in found and self.capacity[here][there] > 0:
                    found.add(here)
                    open_.append(here)
        return found
