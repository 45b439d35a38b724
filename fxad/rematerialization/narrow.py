"""Keeping a narrow value in place of the wide ones that are made from it.

    w = f32(b);  y = f(w);  c = w - m;  ...;  dw = g(w, c)

    becomes   w = f32(b);  y = f(w);  c = w - m;  ...;  w' = f32(b);  c' = w' - m;  dw = g(w', c')

where b, in bfloat16, takes half the bytes of w, and m, the mean of each row, next to none. Until
then b may be nowhere in memory, as a part of what makes w. Attention leaves such values, and so do
norms, where activations are bfloat16 and these compute in float32. Results keep their bits.
"""

from __future__ import annotations

from typing import NamedTuple

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.loops import Alias, Pointwise, View, loops_of
from fxad.ir.offload_ops import nbytes_of
from fxad.ir.program import Atom, Eqn, Program, Var
from fxad.ir.uses import makers
from fxad.rematerialization.boundary import LARGE, Boundary

SMALL = 1 / 16  # of the bytes of a wide value: what may be kept for it although it is as wide
LONGEST = 16  # equations repeated for one value


class Exchange(NamedTuple):
    """Residuals that are recomputed, and what is kept for them."""

    recomputed: list[Var]
    kept: set[Var]

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(map(nbytes_of, self.recomputed)) - sum(map(nbytes_of, self.kept))


NOTHING = Exchange([], set())


def exchange(program: Program, boundary: Boundary) -> Exchange:
    """What frees bytes at a boundary: all wide residuals that elementwise equations and views make
    from narrow values, from small ones and from other residuals, where all that must be kept for
    them takes fewer bytes than they."""
    forward = makers(program.eqns[: boundary.number])
    sources: dict[Var, set[Var]] = {}  # by residual
    for var in forward:
        if boundary.residuals.get(var, 0) >= LARGE:
            found = _sources(var, forward, boundary, sources)
            if found:
                sources[var] = found
    chosen = Exchange([], set())
    for recomputed, kept in _groups(sources):
        group = Exchange(recomputed, {v for v in kept if v not in boundary.residuals})
        if group.freed > 0:
            chosen.recomputed.extend(group.recomputed)
            chosen.kept.update(group.kept)
    return chosen


def _sources(
    var: Var, forward: dict[Var, Eqn], boundary: Boundary, known: dict[Var, set[Var]]
) -> set[Var]:
    """The narrow and small values from which a wide one is made; empty where it is made otherwise,
    or from nothing narrow. known: those of earlier residuals."""
    found: set[Var] = set()
    seen: set[Eqn] = set()
    small = SMALL * var.type.nbytes

    def reached(atom: Atom, wide: int) -> bool:
        """Whether an operand is there, will be, or can be made: of an equation whose results have
        `wide` bytes an element."""
        if not isinstance(atom, Var) or atom not in forward:
            return True
        if atom in boundary.residuals:
            found.update(known.get(atom, ()))
            return True
        base = _base(atom, forward)
        if (_is_float(atom) and _size(atom) < wide) or nbytes_of(base) <= small:
            found.add(base)
            return True
        return atom not in boundary.stored and repeated(forward[atom])

    def repeated(eqn: Eqn) -> bool:
        if eqn in seen:
            return True
        seen.add(eqn)
        if eqn.effects or len(seen) > LONGEST:
            return False
        if not isinstance(loops_of(eqn), Pointwise | View | Alias):
            return False
        return all(reached(a, _size(eqn.outputs[0])) for a in eqn.inputs)

    if not _is_float(var) or not repeated(forward[var]):
        return set()
    return found if any(_size(v) < _size(var) for v in found) else set()


def _base(var: Var, forward: dict[Var, Eqn]) -> Var:
    """What a value is a view of: views have no memory of their own."""
    while (eqn := forward.get(var)) is not None and len(eqn.inputs) == 1:
        (atom,) = eqn.inputs
        if not isinstance(atom, Var) or not isinstance(loops_of(eqn), View | Alias):
            break
        var = atom
    return var


def _is_float(atom: Atom) -> bool:
    return isinstance(atom.type, ArrayType) and dt.is_float(atom.type.dtype)


def _size(atom: Atom) -> int:
    """Bytes of an element of an array."""
    return atom.type.dtype.itemsize if isinstance(atom.type, ArrayType) else 0


def _groups(sources: dict[Var, set[Var]]) -> list[tuple[list[Var], set[Var]]]:
    """Values with sources in common, together with all of these."""
    groups: list[tuple[list[Var], set[Var]]] = []
    for var, of_one in sources.items():
        apart, values, shared = [], [var], set(of_one)
        for group in groups:
            if group[1].isdisjoint(of_one):
                apart.append(group)
            else:
                values, shared = group[0] + values, group[1] | shared
        groups = [*apart, (values, shared)]
    return groups
