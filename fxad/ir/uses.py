"""Which equation makes each value, and which read it: a Program's use-def index.

uses = uses_of(program)      # built once per Program
uses.maker.get(c)            # the equation whose result c is; None for an input
uses.readers(c)              # the equations that read it
uses.count(c)                # how often equations read it, and the Program returns it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

from fxad.ir.program import Atom, Eqn, Program, Var


class Uses:
    """maker: by value, the equation whose result it is. reads: by atom, the equations that read
    it, one for each operand and in their order, and a None for each result of the Program."""

    __slots__ = ("_number", "maker", "reads")

    def __init__(self, program: Program) -> None:
        self.maker: dict[Atom, Eqn] = dict(makers(program.eqns).items())
        self.reads: dict[Atom, list[Eqn | None]] = {}
        self._number = {eqn: number for number, eqn in enumerate(program.eqns)}
        for eqn in program.eqns:
            for atom in eqn.inputs:
                self.reads.setdefault(atom, []).append(eqn)
        for atom in program.outputs:
            self.reads.setdefault(atom, []).append(None)

    def count(self, atom: Atom) -> int:
        """How often an atom is an operand or a result of the Program."""
        return len(self.reads.get(atom, ()))

    def readers(self, atom: Atom) -> list[Eqn]:
        """The equations that read an atom, each once, in their order."""
        return [e for e in dict.fromkeys(self.reads.get(atom, ())) if e is not None]

    def only_reader(self, atom: Atom) -> Eqn | None:
        """The equation that reads an atom, if it does so once and nothing else does."""
        reads = self.reads.get(atom, ())
        return reads[0] if len(reads) == 1 else None

    def number(self, eqn: Eqn) -> int:
        """Which of the Program's equations one is."""
        return self._number[eqn]


_known: WeakKeyDictionary[Program, Uses] = WeakKeyDictionary()


def uses_of(program: Program) -> Uses:
    """The index of a Program, built where it is first asked for."""
    found = _known.get(program)
    if found is None:
        found = _known[program] = Uses(program)
    return found


def makers(eqns: Iterable[Eqn]) -> dict[Var, Eqn]:
    """By value, which of some equations makes it: of the first few of a Program, say."""
    return {var: eqn for eqn in eqns for var in eqn.outputs}


def values_read(eqns: Iterable[Eqn], results: Sequence[Atom] = ()) -> dict[Var, None]:
    """The values that some equations read, and results, each once and in the order of reading."""
    read: dict[Atom, None] = dict.fromkeys(a for eqn in eqns for a in eqn.inputs)
    read.update(dict.fromkeys(results))
    return {a: None for a in read if isinstance(a, Var)}
