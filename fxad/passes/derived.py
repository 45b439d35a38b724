"""Values not worth a place on disk: a few elementwise steps or views make them of what is there.

    y = tanh(x); z = 1 - y * y       y goes to disk and comes back; z is computed from it then
    u = transpose(w)                 w is an argument; u is not kept at all

To write and read four bytes takes longer than to compute them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from fxad.ir.loops import Pointwise, View, loops_of
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.uses import Uses, uses_of

STEPS = 4  # equations recomputed for one value
NEAR = 12  # equations: how much longer what they read may wait in memory


def derived(
    program: Program, away: Set[Var], there: Set[Atom], read_as: Callable[[Var], set[Atom]]
) -> dict[Var, tuple[Eqn, ...]]:
    """Values among those that go away which need not, and the equations that make them of others.

    there: values that are in memory anyway. read_as: what a value is called where it is read
    after it has come back.
    """
    uses = uses_of(program)

    def span(value: Atom) -> tuple[int, int] | None:
        names = read_as(value) if isinstance(value, Var) else ()
        numbers = [uses.number(eqn) for name in names for eqn in uses.readers(name)]
        return (min(numbers), max(numbers)) if numbers else None

    found: dict[Var, tuple[Eqn, ...]] = {}
    for value in (v for eqn in program.eqns for v in eqn.outputs if v in away):
        steps: list[Eqn] = []
        leaves: set[Atom] = set()
        if not _collect(value, uses, away | there, steps, leaves) or leaves & found.keys():
            continue
        leaves -= there
        reads, theirs = span(value), [span(v) for v in leaves]
        if reads and all(s and s[0] - reads[0] <= NEAR and reads[1] - s[1] <= NEAR for s in theirs):
            found[value] = tuple(steps)
    return found


def _collect(value: Var, uses: Uses, ends: Set[Atom], steps: list[Eqn], leaves: set[Atom]) -> bool:
    """The equations that make a value, operands first, from `leaves` among the `ends`."""
    eqn = uses.maker.get(value)
    if eqn is None or not _is_cheap(eqn):
        return False
    for atom in eqn.inputs:
        if not isinstance(atom, Var) or atom in leaves or any(atom in e.outputs for e in steps):
            continue
        if atom in ends:
            leaves.add(atom)
        elif not _collect(atom, uses, ends, steps, leaves):
            return False
    steps.append(eqn)
    return len(steps) <= STEPS


def _is_cheap(eqn: Eqn) -> bool:
    if eqn.effects or len(eqn.outputs) != 1:
        return False
    return isinstance(loops_of(eqn), Pointwise | View)


def copied(steps: Sequence[Eqn], given: Mapping[Var, Var], result: Var) -> list[Eqn]:
    """The equations once more, reading what is `given` for some values, to make `result`."""
    now: dict[Atom, Atom] = dict(given.items())
    made: list[Eqn] = []
    for eqn in steps:
        (old,) = eqn.outputs
        new = result if eqn is steps[-1] else Var(old.type)
        inputs = tuple([now.get(a, a) for a in eqn.inputs])
        made.append(eqn.copy(inputs=inputs, outputs=(new,)))
        now[old] = new
    return made
