"""Stretches of equal equations in a Program: the layers of a model, the steps of an unrolled loop.

    b = mul(a, w0); c = sin(b); d = mul(c, w1); e = sin(d)     one Repeat: period 2, copies 2

Two stretches are equal if they have the same ops and types in the same order; what they read may
differ. `repeats` finds periodic stretches in the sequence of equations and says, operand for
operand, where each copy reads: inside itself, from a copy before it, always the same, or a value
of its own. Integers in parameters may grow evenly from copy to copy (the start of a slice).

The search compares the sequence with itself shifted by each period up to `MOST`, as vectors: about
10 ms for 2,400 equations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fxad.core.record import record
from fxad.ir.program import Atom, Eqn, Lit, Program, equations_within, param_key

MOST = 2000  # equations of one copy
_SAVED = 8  # equations that need not be shown, at least, those of programs inside counted too
_TRIED = 6  # candidates looked at for each place
_LAGS = 5  # copies back that a copy may read, and 0
_SHIFTS = 256  # places tried for where a copy begins


@record
class Inside:
    """A result of equation `at` of the same copy."""

    at: int
    result: int


@record
class Before:
    """A result of equation `at` of a copy `lag` before; the first copies read `first`, one each."""

    at: int
    result: int
    lag: int
    first: tuple[Atom, ...]


@record
class Same:
    """One value, read by every copy."""

    atom: Atom


@record
class Each:
    """A value for each copy."""

    atoms: tuple[Atom, ...]


@record
class Even:
    """An integer in a parameter: first + step * number of the copy."""

    first: int
    step: int


Operand = Inside | Before | Same | Each


class Uneven(Exception):
    """Copies differ in what cannot be written for all of them."""


@record
class Repeat:
    """Equations start ... start + period * copies: copies of the first `period` of them.

    operands, params: of each equation of a copy. In params an `Even` stands for integers that
    differ.
    """

    start: int
    period: int
    copies: int
    operands: tuple[tuple[Operand, ...], ...]
    params: tuple[Mapping[str, Any], ...]

    @property
    def stop(self) -> int:
        return self.start + self.period * self.copies


def repeats(program: Program) -> list[Repeat]:
    """Stretches that repeat, in order, none overlapping another."""
    eqns = program.eqns
    numbers: dict[object, int] = {}
    kinds = np.array([numbers.setdefault(_kind(e), len(numbers)) for e in eqns], np.int64)
    defined: dict[Atom, tuple[int, int]] = {
        v: (at, result) for at, eqn in enumerate(eqns) for result, v in enumerate(eqn.outputs)
    }
    known: dict[Program, int] = {}
    sizes = np.cumsum([0, *[equations_within(eqn, known) for eqn in eqns]])
    return list(_search(eqns, kinds, sizes, defined, 0, len(eqns)))


def _kind(eqn: Eqn) -> tuple[object, ...]:
    """What equations of two copies have in common: all but what they read and their integers."""
    return (
        eqn.op.name,
        tuple([(isinstance(a, Lit), a.type) for a in eqn.inputs]),
        tuple([v.type for v in eqn.outputs]),
        tuple([(name, _loose(eqn.params[name])) for name in sorted(eqn.params)]),
    )


def _loose(value: Any) -> object:
    if type(value) is int:
        return int
    if type(value) is tuple:
        return tuple([_loose(v) for v in value])
    return param_key(value)


_Defined = Mapping[Atom, tuple[int, int]]


def _search(
    eqns: Sequence[Eqn],
    kinds: np.ndarray,
    sizes: np.ndarray,
    defined: _Defined,
    low: int,
    high: int,
) -> Iterator[Repeat]:
    """The best repeat between two places, then those before and after it. sizes: how many equations
    there are before each, and at last."""
    for start, period, length in _candidates(kinds[low:high], sizes[low : high + 1])[:_TRIED]:
        found = _placed(eqns, defined, low + start, period, length)
        if found is not None:
            yield from _search(eqns, kinds, sizes, defined, low, found.start)
            yield found
            yield from _search(eqns, kinds, sizes, defined, found.stop, high)
            return


def _candidates(kinds: np.ndarray, sizes: np.ndarray) -> list[tuple[int, int, int]]:
    """(start, period, length) of periodic stretches, those that save most first."""
    found = []
    for period in range(1, min(len(kinds) // 2, MOST) + 1):
        differ = np.flatnonzero(kinds[:-period] != kinds[period:])
        if len(kinds) - period - len(differ) < period:  # too few that agree
            continue
        edges = np.concatenate(([-1], differ, [len(kinds) - period]))
        for gap in np.flatnonzero(np.diff(edges) > period):
            start = int(edges[gap]) + 1
            length = int(edges[gap + 1]) - start + period
            saved = int(sizes[start + length // period * period] - sizes[start + period])
            if saved >= _SAVED:
                found.append((saved, start, period, length))
    found.sort(key=lambda c: (-c[0], c[2], c[1]))
    return [candidate[1:] for candidate in found]


def _placed(
    eqns: Sequence[Eqn], defined: _Defined, start: int, period: int, length: int
) -> Repeat | None:
    """The repeat of a stretch whose copies begin where the fewest values pass from one to the next.
    None if copies differ in what cannot be written."""
    copies = length // period
    shifts = range(min(length - copies * period, _SHIFTS) + 1)
    begin = min(shifts, key=lambda s: len(_passed(eqns, defined, start + s, period)))
    try:
        return _unified(eqns, defined, start + begin, period, copies)
    except Uneven:
        return None


def _passed(eqns: Sequence[Eqn], defined: _Defined, start: int, period: int) -> set[Atom]:
    """Values of the first copy that the second reads."""
    middle = start + period
    return {
        atom
        for eqn in eqns[middle : middle + period]
        for atom in eqn.inputs
        if atom in defined and start <= defined[atom][0] < middle
    }


def _unified(
    eqns: Sequence[Eqn], defined: _Defined, start: int, period: int, copies: int
) -> Repeat:
    operands, params = [], []
    for at in range(period):
        alike = [eqns[start + copy * period + at] for copy in range(copies)]
        columns = zip(*[eqn.inputs for eqn in alike], strict=True)
        operands.append(tuple([_operand(atoms, defined, start, period) for atoms in columns]))
        names = alike[0].params
        params.append({name: _common([e.params[name] for e in alike]) for name in names})
    _check_firsts(operands)
    return Repeat(start, period, copies, tuple(operands), tuple(params))


def _operand(atoms: tuple[Atom, ...], defined: _Defined, start: int, period: int) -> Operand:
    """Where the copies read one operand."""
    first = atoms[0]
    if all(atom is first for atom in atoms):
        return Same(first)
    if isinstance(first, Lit):
        same = all(isinstance(a, Lit) and a.key() == first.key() for a in atoms)
        return Same(first) if same else Each(atoms)
    size = len(atoms) * period
    places = [defined.get(atom, (-1, 0)) for atom in atoms]
    for lag in range(min(_LAGS, len(atoms))):
        shifted = {
            (p - (copy - lag) * period, r) for copy, (p, r) in enumerate(places) if copy >= lag
        }
        if len(shifted) > 1:
            continue
        ((place, result),) = shifted
        if start <= place < start + period:
            if any(start <= p < start + size for p, _ in places[:lag]):
                raise Uneven
            found = (place - start, result)
            return Before(*found, lag, atoms[:lag]) if lag else Inside(*found)
    if any(start <= place < start + size for place, _ in places):
        raise Uneven
    return Each(atoms)


def _check_firsts(operands: list[tuple[Operand, ...]]) -> None:
    """Raise Uneven if the first copies read two values for one result of one copy before them."""
    read: dict[tuple[int, int, int], Atom] = {}
    for each in operands:
        for operand in each:
            if isinstance(operand, Before):
                for copy, atom in enumerate(operand.first):
                    place = operand.at, operand.result, copy - operand.lag
                    if read.setdefault(place, atom) is not atom:
                        raise Uneven


def _common(values: list[Any]) -> Any:
    """A parameter of all copies, with an Even where integers differ. Raises Uneven."""
    first = values[0]
    if type(first) is int:
        step = values[1] - first
        if any(v != first + step * copy for copy, v in enumerate(values)):
            raise Uneven
        return Even(first, step) if step else first
    if type(first) is tuple:
        return tuple([_common(list(items)) for items in zip(*values, strict=True)])
    return first  # `_kind` compares the others


def evenly(value: Any) -> Iterator[Even]:
    """The Evens in a parameter."""
    if isinstance(value, Even):
        yield value
    elif type(value) is tuple:
        for item in value:
            yield from evenly(item)
