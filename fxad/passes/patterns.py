"""What recognisers ask of a Program: who defines and reads a value, where a view of it lies, what
is constant, and which values are one number per row.

    graph = Graph(program, known)          # known: values of some of its inputs
    graph.view(x)                          # View(source, axes): x is source, moved and stretched
    graph.constant(mask)                   # its NumPy value, if only numbers decide it
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxad.core.record import valued
from fxad.core.types import ArrayType
from fxad.ir.program import Atom, Eqn, Lit, Program, Var
from fxad.ir.rewrite import holds_programs
from fxad.ir.uses import uses_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value

MOST_CONSTANT = 1 << 24  # elements: constants that are larger are not evaluated

Axes = tuple[int | None, ...]


@valued
class View:
    """Axis i of a value is axis axes[i] of its source; None: stretched, or of length 1."""

    source: Atom
    axes: Axes


class Graph:
    """Definitions, readers and constants of one Program."""

    def __init__(self, program: Program, known: Mapping[Var, np.ndarray]) -> None:
        self.uses = uses_of(program)
        self.defined = self.uses.maker
        self._values: dict[Atom, np.ndarray | None] = dict(known.items())
        self._fixed: dict[Atom, bool] = {}

    def op(self, atom: Atom, name: str) -> Eqn | None:
        """The equation that defines an atom, if its op is of this name."""
        eqn = self.defined.get(atom)
        return eqn if eqn is not None and eqn.op.name == name else None

    def view(self, atom: Atom) -> View:
        """Follow transposes, broadcasts, and reshapes that add or drop axes of length 1."""
        axes: Axes = tuple(range(atom.type.ndim))
        while (eqn := self.defined.get(atom)) is not None:
            step = _step(eqn)
            if step is None:
                break
            axes = tuple(None if a is None else step[a] for a in axes)
            atom = eqn.inputs[0]
        return View(atom, axes)

    def same_order(self, atom: Atom) -> Atom:
        """The value an atom is with axes of length 1 added or dropped, or the atom."""
        while (eqn := self.op(atom, "reshape")) is not None and _step(eqn) is not None:
            atom = eqn.inputs[0]
        return atom

    def row(self, atom: Atom, axis: int) -> Atom | None:
        """What is stretched along `axis` to give this atom: its source, which has the other axes
        in their order (but for some of length 1)."""
        view = self.view(atom)
        shape = atom.type.shape
        if not shape:  # a number, which elementwise ops take with any shape
            return None
        if shape[axis] != 1 and view.axes[axis] is not None:
            return None
        long = [i for i, n in enumerate(shape) if n != 1 and i != axis]
        found = [view.axes[i] for i in long]
        source = view.source.type.shape
        wanted = [i for i, n in enumerate(source) if n != 1]
        return view.source if found == wanted else None

    def scalar(self, atom: Atom) -> Atom | None:
        """The one number that an atom repeats."""
        source = self.view(atom).source
        return source if math.prod(source.type.shape) == 1 else None

    def number(self, atom: Atom) -> float | None:
        """The value of a constant that is one number."""
        source = self.scalar(atom)
        value = None if source is None else self.constant(source)
        return None if value is None or value.dtype.kind not in "fiu" else float(value.item())

    def constant(self, atom: Atom) -> np.ndarray | None:
        """The value of an atom that depends on no unknown input; None if it does or is large."""
        if isinstance(atom, Lit):
            return np.asarray(atom.value, atom.type.dtype)
        if atom in self._values:
            return self._values[atom]
        eqn = self.defined.get(atom)
        value = None if eqn is None else self._evaluated(eqn)
        self._values[atom] = value
        return value

    def _evaluated(self, eqn: Eqn) -> np.ndarray | None:
        type_ = eqn.outputs[0].type
        plain = len(eqn.outputs) == 1 and isinstance(type_, ArrayType) and not eqn.effects
        if not plain or type_.size > MOST_CONSTANT or holds_programs(eqn) or eqn.op.higher:
            return None
        values = []
        for atom in eqn.inputs:
            value = self.constant(atom)
            if value is None:
                return None
            values.append(value)
        with np.errstate(all="ignore"):
            return np.asarray(eqn.op.numpy(*values, **eqn.params))

    def fixed(self, atom: Atom) -> bool:
        """Whether no unknown input decides the atom. Cheaper than `constant`."""
        if isinstance(atom, Lit) or atom in self._fixed:
            return self._fixed.get(atom, True)
        eqn = self.defined.get(atom)
        answer = self._values.get(atom) is not None
        if eqn is not None and not answer:
            answer = not eqn.effects and all(map(self.fixed, eqn.inputs))
        self._fixed[atom] = answer
        return answer

    def closed(self, last: Eqn, start: Atom, stops: Sequence[Atom]) -> bool:
        """Whether what `start` is made of, down to `stops`, is read there and by `last` alone.
        Others may read a stop as it was moved and stretched: a mask that all layers share."""
        pending, inside = [start], {last}
        seen = set(stops)
        while pending:
            eqn = self.defined.get(atom := pending.pop())
            if atom in seen or eqn is None or self.view(atom).source in stops or self.fixed(atom):
                continue
            seen.update(eqn.outputs)
            inside.add(eqn)
            pending += eqn.inputs
        read = (self.uses.reads.get(v, ()) for e in inside - {last} for v in e.outputs)
        return all(inside.issuperset(eqns) for eqns in read)


def _step(eqn: Eqn) -> Axes | None:
    """Which axis of its operand each axis of a moving equation's result is; None for others."""
    out = eqn.outputs[0].type.shape if isinstance(eqn.outputs[0].type, ArrayType) else ()
    if eqn.op.name == "transpose":
        return tuple(eqn.params["permutation"])
    if eqn.op.name == "broadcast":
        at = {axis: i for i, axis in enumerate(eqn.params["axes"])}
        return tuple(at.get(i) for i in range(len(out)))
    if eqn.op.name == "reshape":
        old = eqn.inputs[0].type.shape
        if [n for n in old if n != 1] == [n for n in out if n != 1]:
            places = iter([i for i, n in enumerate(old) if n != 1])
            return tuple(next(places) if n != 1 else None for n in out)
    return None


def completed(axes: Sequence[int | None], shape: Sequence[int], rank: int) -> list[int] | None:
    """A one-to-one map onto `rank` axes, from one that leaves out axes of length 1.

    None if an axis that is longer has no place or the numbers of axes differ.
    """
    if len(axes) != rank or any(a is None and n != 1 for a, n in zip(axes, shape, strict=True)):
        return None
    rest = iter(sorted(set(range(rank)) - set(axes)))
    return [next(rest) if a is None else a for a in axes]


def band(allowed: np.ndarray) -> tuple[int, int] | None:
    """(left, right) such that row t of a [T, S] array of bools is true at t - left ... t + right.

    -1 stands for all on that side. None if the rows are no such band, or one of them is empty.
    """
    rows, columns = np.nonzero(allowed)
    if not allowed.any(axis=1).all():
        return None
    time, keys = allowed.shape
    left, right = int((rows - columns).max()), int((columns - rows).max())
    if left < 0 or right < 0:
        return None
    row, column = np.ogrid[:time, :keys]
    if not np.array_equal(allowed, (column >= row - left) & (column <= row + right)):
        return None
    return (-1 if left >= time - 1 else left), (-1 if right >= keys - 1 else right)


def numbers(program: Program, values: Sequence[Value]) -> dict[Var, np.ndarray]:
    """Values of a program's consts, where they are arrays and not too large to look at."""
    found = {}
    for var, value in zip(program.consts, values, strict=True):
        data = getattr(value, "_data", value)
        if isinstance(data, np.ndarray | np.generic) and data.size <= MOST_CONSTANT:
            found[var] = np.asarray(data)
    return found
