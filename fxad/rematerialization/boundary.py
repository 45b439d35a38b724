"""What is live at one equation of a program, and its residuals: made before it and read after it.

boundary = boundary_at_peak(program, stored)      # where memory is fullest
boundary.residuals                                # {value: bytes}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fxad.ir.offload_ops import nbytes_of
from fxad.ir.pairs.regions import Region
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.uses import makers, values_read

LARGE = 1 << 18  # bytes: smaller residuals are not worth recomputing


@dataclass(slots=True)
class Boundary:
    """Equation `number` of a program, and the values that are live there.

    live: stored values in memory there. residuals: those of them made before and read after it, and
    their bytes. stored: all values with memory of their own. exact: those that must keep their
    bits, whatever may be rounded.
    """

    number: int
    residuals: dict[Var, int]
    live: dict[Var, int]
    stored: set[Var]
    exact: set[Var]

    def without(self, values: Sequence[Var]) -> Boundary:
        """What it is when these residuals are recomputed."""
        gone = set(values)
        residuals = {v: size for v, size in self.residuals.items() if v not in gone}
        live = {v: size for v, size in self.live.items() if v not in gone}
        return replace(self, residuals=residuals, live=live, stored=self.stored - gone)

    def anchors(self, program: Program, parts: int) -> set[Var]:
        """What must be kept so that each of `parts` pieces of the equations before can be
        recomputed from what enters it: pieces of about equal bytes, begun where little enters."""
        forward = program.eqns[: self.number]
        made, last = _lifetimes(forward, (), self.stored)
        entering = [0] * (len(forward) + 2)
        for var, number in made.items():
            entering[number + 1] += nbytes_of(var)
            entering[last.get(var, number) + 1] -= nbytes_of(var)
        for number in range(1, len(entering)):
            entering[number] += entering[number - 1]
        cuts: list[int] = []
        total, done, window = sum(self.residuals.values()), 0, 0
        for number, eqn in enumerate(forward):
            done += sum(self.residuals.get(v, 0) for v in eqn.outputs)
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


def boundary_at_peak(program: Program, stored: set[Var]) -> Boundary:
    """Where the stored values of a program (see `Attempt.stored`) take most memory together."""
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
    residuals = {v: size for v, size in live.items() if made[v] < where}
    return Boundary(where, residuals, live, stored, exact_values(program, where, stored))


def boundary_inside(region: Region) -> Boundary | None:
    """The boundary between a forward and a backward body, if a region is both, joined."""
    if region.cut is None:
        return None
    made = {*region.state, *makers(region.program.eqns[: region.cut])}
    backward = region.program.eqns[region.cut :]
    read = [v for v in values_read(backward) if v in made]
    residuals = {v: nbytes_of(v) for v in read if v not in region.program.outputs and nbytes_of(v)}
    return Boundary(
        region.cut, residuals, residuals, made, exact_values(region.program, region.cut, made)
    )


def exact_values(program: Program, number: int, stored: set[Var]) -> set[Var]:
    """What is not kept for backward passes alone, at one place of a program: what later equations
    outside of them read, and what they have made."""
    made = set(makers(e for e in program.eqns[:number] if e.tag is not None))
    return made | read_forward(program, number, stored)


def read_forward(program: Program, number: int, stored: set[Var]) -> set[Var]:
    """Early values that later equations outside of backward passes read."""
    forward = makers(program.eqns[:number])
    found: set[Atom] = set(program.outputs)
    for eqn in reversed(program.eqns[number:]):
        # What is made for a backward pass alone is part of it, what is recomputed is not.
        if eqn.tag in (None, "recomputed") and (eqn.effects or not found.isdisjoint(eqn.outputs)):
            found.update(eqn.inputs)
    open_ = list(found)
    while open_:
        atom = open_.pop()
        if atom in forward and atom not in stored:  # read as part of others
            open_ += [a for a in forward[atom].inputs if a not in found]
            found.update(forward[atom].inputs)
    return {v for v in found if isinstance(v, Var)}
