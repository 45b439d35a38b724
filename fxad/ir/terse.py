"""The terse text of a Program: for reading programs of hundreds of equations.

    program f(p[0..11].{bias: f32[8], weight: f32[8,8]}, x: f32[4,8]) {
      for i in 0..11 with a[0] = x {
        a[i+1]: f32[4,8] = tanh(dot(a[i], p[i].weight; ((1,),(0,))) + broadcast(p[i].bias; (1,)))
      }
      return a[12]
    }

What differs from the full text (`fxad.ir.program.show`), all of it read back by `fxad.ir.text`:

- Stretches of equal equations (`fxad.ir.repeats`) are written once, for every i. `[i]` in a name is
  a value that the rest of the program can read; a name without it belongs to one copy. `5*i+1` in a
  parameter is a number. `with` names what the copies read from elsewhere.
- An equation whose result has one reader is written inside it, without its type, where the order of
  equations stays what it is.
- Arithmetic has signs.
- Parameters that are as they mostly are, or follow from the line's type (`fxad.ir.usual`), are left
  out, and so is a number's dtype that is the line's. The main one has no name.
- Branches of a tree of values that look alike are one: `x[0..11].{a, b}`.
- A scope (`fxad.named_scope`) is a section with a heading, a comment; `# -` where none is.
- Lines are wrapped; a source line stands where it differs from the one before and
  has room.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fxad.core.dtypes import short_name
from fxad.core.record import record
from fxad.core.types import ArrayType, Type
from fxad.ir.labels import Numbered, grouped, numbered, sequence
from fxad.ir.literals import number
from fxad.ir.program import Atom, Eqn, Lit, Naming, Program, Var, parameter, scope_of
from fxad.ir.repeats import Before, Each, Even, Inside, Repeat, Same, evenly, repeats
from fxad.ir.usual import ALONE, INFIX, MAIN, UNARY, Call, usual

WIDTH = 120
_NESTED = 110  # characters that an equation with others inside it may have
_NAME = 4  # characters of a name, before it is known
_UNNESTED = frozenset({"complex"})  # ops whose call would read as a number


def terse(program: Program, width: int | None = None, where: bool = True, indent: str = "") -> str:
    """The text. width: of lines, the terminal's by default. where: with lines of the source."""
    width = terminal_width() if width is None else width
    found = lines(program, width, where, indent)
    return "\n".join([part for line in found for part in _fitted(line, width)])


def terminal_width() -> int:
    """Columns of the terminal that is written to, else `WIDTH`."""
    if sys.stdout is None or not sys.stdout.isatty():
        return WIDTH
    return max(40, shutil.get_terminal_size().columns)


# ---------------------------------------------------------------- names


@record
class _Claim:
    """Names that a loop gives to values around it; the letter is chosen where the first is met."""

    loop: Loop
    shift: int
    letter: list[str]

    def form(self, naming: Naming) -> Numbered:
        if not self.letter:
            self.letter.append(naming.letter())
        return Numbered(f"{self.letter[0]}[", self.shift, "]")


class Loop:
    """A repeat with the indices of its copies, and the names of what they read and make."""

    def __init__(self, repeat: Repeat, start: int, step: int) -> None:
        self.repeat = repeat
        self.start = start
        self.step = step
        self.indices = range(start, start + step * repeat.copies, step)
        self.made: dict[tuple[int, int], Numbered | str] = {}  # results of a copy's equations
        self.read: dict[tuple[Atom, ...], Numbered] = {}  # an Each
        self.aliases: dict[str, Atom] = {}
        self.claims: dict[object, _Claim] = {}
        self.lags: dict[tuple[int, int], set[int]] = {}  # of results that later copies read
        for operands in repeat.operands:
            for operand in operands:
                if isinstance(operand, Before):
                    self.lags.setdefault((operand.at, operand.result), set()).add(operand.lag)

    def shift(self, key: tuple[int, int]) -> int:
        """What is added to a copy's index in the name of a result that later copies read, so that
        what the first copies read has no negative index."""
        return max(self.lags.get(key, [0])) if self.step > 0 else 0

    def firsts(self, key: tuple[int, int]) -> Iterator[tuple[int, Atom]]:
        """What the first copies read in place of a result of copies before them, with the index
        that such a copy would have."""
        for operands in self.repeat.operands:
            for operand in operands:
                if isinstance(operand, Before) and (operand.at, operand.result) == key:
                    for copy, atom in enumerate(operand.first):
                        yield self.indices[copy] - self.step * operand.lag, atom

    def results(self, program: Program) -> Iterator[tuple[Atom, tuple[Loop, tuple[int, int], int]]]:
        """Each value that is made in the loop: the loop, its place in a copy, the copy's index."""
        for at, eqn in enumerate(program.eqns[self.repeat.start : self.repeat.stop]):
            copy, place = divmod(at, self.repeat.period)
            for result, var in enumerate(eqn.outputs):
                yield var, (self, (place, result), self.indices[copy])

    def even(self, found: Even) -> str:
        """An integer of copy i: `512*i+512`."""
        factor = found.step * self.step
        rest = found.first - factor * self.start
        return f"{factor}*i{rest:+d}" if rest else f"{factor}*i"


class Names:
    """The names of a program's values, and the loops that its repeats are written as."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._naming = Naming()
        self._naming.reserve(program)
        self._readers: Counter[Atom] = Counter(program.outputs)
        for eqn in program.eqns:
            self._readers.update(eqn.inputs)
        self.of: dict[Atom, str] = {}
        self.loops = _loops(program)
        self.inner = self._nested()
        self._claimed: dict[Atom, tuple[_Claim, int]] = {}
        self._made: dict[Atom, tuple[Loop, tuple[int, int], int]] = {}
        for loop in self.loops:
            self._made.update(loop.results(program))
        plain = [part for part in self.parts() if isinstance(part, Eqn)]
        self._plain: dict[Atom, Var] = {v: v for eqn in plain for v in eqn.outputs}
        values = [*program.consts, *program.inputs, *(v for e in program.eqns for v in e.outputs)]
        self._owners: dict[str, Var] = {v.label: v for v in values if v.label}
        for loop in self.loops:
            self._claim(loop)
        for var in (*program.consts, *program.inputs):
            self._name(var)
        for part in self.parts():
            if isinstance(part, Loop):
                self._name_loop(part)
                continue
            for var in part.outputs:
                if var not in self.inner:
                    self._name(var)

    def parts(self) -> Iterator[Eqn | Loop]:
        """The program's equations, those of repeats as one loop."""
        at = 0
        for loop in self.loops:
            yield from self._program.eqns[at : loop.repeat.start]
            yield loop
            at = loop.repeat.stop
        yield from self._program.eqns[at:]

    # ------------------------------------------------------------ nesting

    def _nested(self) -> set[Atom]:
        """Results that are written inside the equation that reads them."""
        found: set[Atom] = set()
        at = 0
        for loop in self.loops:
            repeat = loop.repeat
            self._nest(at, repeat.start, 0, found)
            self._nest(repeat.start, repeat.start + repeat.period, repeat.copies, found)
            at = repeat.stop
        self._nest(at, len(self._program.eqns), 0, found)
        return found

    def _nest(self, start: int, stop: int, copies: int, found: set[Atom]) -> None:
        """Find them in a stretch, of which there are copies: the equations still open are a stack,
        of which an equation takes what its operands are, from the last."""
        # The result if it may be written inside, the characters, the scope.
        stack: list[tuple[Var | None, int, str]] = []
        eqns = self._program.eqns
        for place in range(start, stop):
            eqn = eqns[place]
            scope = scope_of(eqn.where)
            sizes = {j: _size(atom) for j, atom in enumerate(eqn.inputs)}
            name = 1 if eqn.op.name in INFIX else len(eqn.op.name) + 2
            size = name + 2 + _params_size(eqn) + sum(sizes.values())
            for j in reversed(range(len(eqn.inputs))):
                if not stack or stack[-1][0] is not eqn.inputs[j]:
                    continue
                var, own, within = stack[-1]
                if var is None or within != scope or size - sizes[j] + own > _NESTED:
                    break
                stack.pop()
                found.add(var)
                size += own - sizes[j]
            alike = range(place, place + (stop - start) * max(copies, 1), stop - start)
            stack.append((self._once([eqns[p] for p in alike]), size, scope))

    def _once(self, eqns: Sequence[Eqn]) -> Var | None:
        """The result of the first of equal equations if each has one reader and can be written
        there."""
        first = eqns[0]
        if len(first.outputs) != 1 or first.op.higher or first.op.name in _UNNESTED:
            return None
        values = [eqn.outputs[0] for eqn in eqns]
        alone = all(self._readers[v] == 1 and not v.label for v in values)
        return values[0] if alone else None

    # ------------------------------------------------------------ naming

    def _name(self, var: Var) -> None:
        claim = self._claimed.get(var)
        if claim is None:
            self.of[var] = self._naming[var]
        else:
            self.of[var] = claim[0].form(self._naming).name(claim[1])

    def _results(self, repeat: Repeat, place: int, result: int) -> tuple[Var, ...]:
        return _copies(self._program, repeat, place, result)

    def _claim(self, loop: Loop) -> None:
        """Have values around the loop named as it reads them: those that nothing else names."""
        for operands in loop.repeat.operands:
            for operand in operands:
                if isinstance(operand, Each):
                    self._claim_each(loop, operand.atoms)
                elif isinstance(operand, Before):
                    self._claim_first(loop, operand)

    def _claim_each(self, loop: Loop, atoms: tuple[Atom, ...]) -> None:
        if self._open(atoms):
            claim = loop.claims.setdefault(atoms, _Claim(loop, 0, []))
            for index, atom in zip(loop.indices, atoms, strict=True):
                self._claimed[atom] = claim, index
            return
        # Some are one result of another loop: the others are named as if it went on.
        made = [self._made.get(atom) for atom in atoms]
        known = [(index, m) for index, m in zip(loop.indices, made, strict=True) if m is not None]
        ways = {(m[0], m[1], m[2] - index) for index, m in known}
        others = [(i, a) for i, a, m in zip(loop.indices, atoms, made, strict=True) if m is None]
        if len(known) < 2 or len(ways) > 1 or not self._open(tuple([a for _, a in others])):
            return
        ((source, key, apart),) = ways
        shift = source.shift(key)
        free = [i + apart not in source.indices and i + apart + shift >= 0 for i, _ in others]
        taken = {index for index, _ in source.firsts(key)}
        if source is loop or not all(free) or self._by_labels(source, key):
            return
        if taken.intersection([i + apart for i, _ in others]):
            return
        claim = source.claims.setdefault(key, _Claim(source, shift, []))
        if any(c is claim for c, _ in self._claimed.values()):  # by another loop, other values
            return
        for index, atom in others:
            self._claimed[atom] = claim, index + apart

    def _by_labels(self, loop: Loop, key: tuple[int, int]) -> Numbered | None:
        """The form that the labels of one result of all copies have, if they have one, and if no
        other value is called as it calls what the first copies read."""
        labels = [v.label for v in self._results(loop.repeat, *key)]
        form = numbered(labels, loop.indices) if all(labels) else None
        if form is None:
            return None
        for index, atom in loop.firsts(key):
            owner = self._owners.get(form.name(index), atom)
            if owner is not atom or index + form.shift < 0:
                return None
        return form

    def _claim_first(self, loop: Loop, operand: Before) -> None:
        key = operand.at, operand.result
        if self._by_labels(loop, key):
            return
        for copy, atom in enumerate(operand.first):
            if self._open((atom,)):
                claim = loop.claims.setdefault(key, _Claim(loop, loop.shift(key), []))
                self._claimed[atom] = claim, loop.indices[copy] - loop.step * operand.lag

    def _open(self, atoms: tuple[Atom, ...]) -> bool:
        """Whether values are different results of equations outside loops that have no name."""
        return len(set(atoms)) == len(atoms) and all(
            a in self._plain and a not in self._claimed and not self._plain[a].label for a in atoms
        )

    def _name_loop(self, loop: Loop) -> None:
        repeat = loop.repeat
        befores = [o for operands in repeat.operands for o in operands if isinstance(o, Before)]
        for place in range(repeat.period):
            for result, var in enumerate(self._program.eqns[repeat.start + place].outputs):
                if var not in self.inner:
                    key = place, result
                    loop.made[key] = self._name_results(loop, key)
        for operands in repeat.operands:
            for operand in operands:
                if isinstance(operand, Each) and operand.atoms not in loop.read:
                    loop.read[operand.atoms] = self._name_each(loop, operand.atoms)
        for operand in befores:
            form = loop.made[operand.at, operand.result]
            assert isinstance(form, Numbered)
            for index, atom in loop.firsts((operand.at, operand.result)):
                name = form.name(index)
                if self.of.get(atom) != name:
                    loop.aliases[name] = atom

    def _name_results(self, loop: Loop, key: tuple[int, int]) -> Numbered | str:
        """Name one result of all copies; answers how a copy writes it."""
        values = self._results(loop.repeat, *key)
        form = self._by_labels(loop, key)
        if form is None and (key in loop.lags or key in loop.claims):
            form = loop.claims.get(key, _Claim(loop, loop.shift(key), [])).form(self._naming)
        elif form is None and not self._leaves(loop.repeat, key, values):
            letter = self._naming.letter()
            self.of.update(dict.fromkeys(values, letter))
            return letter
        form = form or Numbered(f"{self._naming.letter()}[", 0, "]")
        for index, value in zip(loop.indices, values, strict=True):
            self.of[value] = form.name(index)
        return form

    def _leaves(self, repeat: Repeat, key: tuple[int, int], values: tuple[Var, ...]) -> bool:
        """Whether anything but its own copy reads a result."""
        inside = sum(
            isinstance(o, Inside) and (o.at, o.result) == key
            for operands in repeat.operands
            for o in operands
        )
        return any(self._readers[v] != inside for v in values)

    def _name_each(self, loop: Loop, atoms: tuple[Atom, ...]) -> Numbered:
        names = [self.of.get(atom, "") for atom in atoms]
        form = numbered(names, loop.indices) if all(names) else None
        if form is None:
            form = Numbered(f"{self._naming.letter()}[", 0, "]")
            for index, atom in zip(loop.indices, atoms, strict=True):
                loop.aliases[form.name(index)] = atom
        return form


def _copies(program: Program, repeat: Repeat, place: int, result: int) -> tuple[Var, ...]:
    """One result of all copies."""
    places = range(repeat.start + place, repeat.stop, repeat.period)
    return tuple([program.eqns[p].outputs[result] for p in places])


def _loops(program: Program) -> list[Loop]:
    """The repeats, with indices that most of the names around them have."""
    found: list[Loop] = []
    indexed: dict[Atom, int] = {}  # values of the loops so far: the index of their copy
    for repeat in repeats(program):
        eqns = program.eqns[repeat.start : repeat.start + repeat.period]
        columns = [o.atoms for os in repeat.operands for o in os if isinstance(o, Each)]
        for place, eqn in enumerate(eqns):
            columns += [_copies(program, repeat, place, r) for r in range(len(eqn.outputs))]
        votes = Counter([v for atoms in columns if (v := _vote(atoms, indexed))])
        start, step = max(votes, key=lambda v: (votes[v], v)) if votes else (0, 1)
        loop = Loop(repeat, start, step)
        found.append(loop)
        for copy, index in enumerate(loop.indices):
            begin = repeat.start + copy * repeat.period
            for eqn in program.eqns[begin : begin + repeat.period]:
                indexed.update(dict.fromkeys(eqn.outputs, index))
    return found


def _vote(atoms: Sequence[Atom], indexed: Mapping[Atom, int]) -> tuple[int, int] | None:
    """(first, +1 or -1) of indices that go with the names of these values."""
    labels = [a.label for a in atoms if isinstance(a, Var)]
    if len(labels) == len(atoms) and all(labels):
        return sequence(labels)
    known = [indexed[a] for a in atoms if a in indexed]
    if len(known) < len(atoms):
        return None
    step = known[1] - known[0]
    even = step in (1, -1) and known == list(range(known[0], known[0] + step * len(known), step))
    return (known[0], step) if even else None


def _infix(eqn: Eqn, operands: Sequence[tuple[str, int]]) -> tuple[str, int] | None:
    """Arithmetic with signs, and the level of the outermost; None for other equations."""

    def at_least(operand: tuple[str, int], level: int) -> str:
        return operand[0] if operand[1] >= level else f"({operand[0]})"

    if eqn.op.name == "neg" and not isinstance(eqn.inputs[0], Lit):  # -1 is a number
        return f"-{at_least(operands[0], ALONE)}", UNARY
    if eqn.op.name not in INFIX:
        return None
    sign, level = INFIX[eqn.op.name]
    left, right = operands
    return f"{at_least(left, level)} {sign} {at_least(right, level + 1)}", level


def _bare(text: str, atom: Atom, line: Type | None) -> str:
    """A number without its dtype where that is the line's."""
    if isinstance(atom, Lit) and isinstance(line, ArrayType) and atom.type.dtype == line.dtype:
        return text.removesuffix(f":{short_name(line.dtype)}")
    return text


def _size(atom: Atom) -> int:
    """Characters of an operand, about."""
    if isinstance(atom, Lit):
        return len(number(atom.value, atom.type.dtype)) + 2
    return len(atom.label) + 2 if atom.label else _NAME


def _params_size(eqn: Eqn) -> int:
    """Characters of an equation's parameters, about; results mostly say shapes and dtypes."""
    if eqn.op.higher:
        return _NESTED
    written = _written(eqn, eqn.outputs[0].type) if eqn.params and eqn.outputs else eqn.params
    return sum(
        len(name) * (MAIN.get(eqn.op.name) != name) + 2 + _value_size(eqn.params[name])
        for name in written
    )


def _written(eqn: Eqn, expected: Type | None, params: Mapping[str, Any] | None = None) -> list[str]:
    """The names of the parameters that are written. params: of all copies in a loop."""
    left_out = usual(eqn.op.name, Call([a.type for a in eqn.inputs], expected, eqn.params))
    main = MAIN.get(eqn.op.name)
    return [
        name
        for name in sorted(eqn.params, key=lambda name: (name != main, name))
        if name not in left_out
        or left_out[name] != eqn.params[name]
        or (name != "stop" and params is not None and any(evenly(params[name])))
    ]


def _value_size(value: Any) -> int:
    return sum(map(_value_size, value)) + 2 if type(value) is tuple else len(str(value)) + 1


# ---------------------------------------------------------------- text


@record
class Line:
    """A line of the text, with the equations it writes; wrapped, it is several.

    kind: "heading", "equation", "scope", "for", "end" (of a loop), "return".
    """

    kind: str
    indent: str
    text: str
    eqns: tuple[Eqn, ...] = ()
    comment: str = ""


# Calls to be written inside others: in a line of a type, and the equations that they are.
_Pending = dict[Atom, tuple[Callable[[Type | None], tuple[str, int]], tuple[Eqn, ...]]]


def lines(program: Program, width: int, where: bool = True, indent: str = "") -> Iterator[Line]:
    """The lines of the text. width: of programs inside equations, which are wrapped already."""
    return _Writer(program, Names(program), width, where, indent).lines()


class _Writer:
    def __init__(
        self, program: Program, names: Names, width: int, where: bool, indent: str
    ) -> None:
        self.program = program
        self.names = names
        self.width = width
        self.where = where
        self.indent = indent
        self.last = ""  # source line
        self.scope = ""

    def lines(self) -> Iterator[Line]:
        """The whole program."""
        yield Line("heading", self.indent, self._heading())
        inner = self.indent + "  "
        pending: _Pending = {}
        for part in self.names.parts():
            if isinstance(part, Loop):
                yield from self._loop(part, inner)
            else:
                yield from self._equation(part, part.params, self._plain, pending, inner)
        outputs = ", ".join(self._listed([self._plain(a) for a in self.program.outputs]))
        yield Line("return", inner, f"return {outputs}".rstrip())
        yield Line("end", self.indent, "}")

    def _heading(self) -> str:
        head = f"program {self.program.name}({self._declared(self.program.inputs)})"
        if self.program.consts:
            head += f" consts({self._declared(self.program.consts)})"
        return head + " {"

    def _declared(self, variables: Sequence[Var]) -> str:
        marks = [f": {v.type}" for v in variables]
        return ", ".join(grouped([self.names.of[v] for v in variables], marks))

    def _listed(self, names: list[str]) -> list[str]:
        """Operands, with many of one name as one."""
        plain = len(names) > 2 and not any(" " in n or "(" in n or n[0] == "-" for n in names)
        return list(grouped(names, [""] * len(names))) if plain else names

    def _plain(self, atom: Atom) -> str:
        if isinstance(atom, Lit):
            return f"{number(atom.value, atom.type.dtype)}:{short_name(atom.type.dtype)}"
        return self.names.of.get(atom, "?undefined")

    def _equation(
        self,
        eqn: Eqn,
        params: Mapping[str, Any],
        name: Callable[[Atom], str],
        pending: _Pending,
        indent: str,
        loop: Loop | None = None,
    ) -> Iterator[Line]:
        """The line of an equation; none if another has it inside."""
        inside = {a: pending.pop(a) for a in eqn.inputs if a in pending}

        def call(line: Type | None) -> tuple[str, int]:
            """The equation's right side in a line of a type, and the level of its sign."""
            operands = [
                inside[a][0](line) if a in inside else (_bare(name(a), a, line), ALONE)
                for a in eqn.inputs
            ]
            written = _written(eqn, line, params)
            infix = None if written else _infix(eqn, operands)
            if infix is not None:
                return infix
            main = MAIN.get(eqn.op.name)
            values = ", ".join(
                ("" if key == main else f"{key}=") + self._param(params[key], indent, loop)
                for key in written
            )
            text = f"{eqn.op.name}({', '.join(self._listed([text for text, _ in operands]))}"
            return text + (f"; {values})" if values else ")"), ALONE

        eqns = (*[e for _, held in inside.values() for e in held], eqn)
        if len(eqn.outputs) == 1 and eqn.outputs[0] in self.names.inner:
            pending[eqn.outputs[0]] = call, eqns
            return
        results = ", ".join(f"{name(v)}: {v.type}" for v in eqn.outputs)
        scope = scope_of(eqn.where)
        line = eqn.where.removesuffix(f" in {scope}")
        if self.where and scope != self.scope:
            yield Line("scope", indent, f"# {scope or '-'}")
        comment = f"  # {line}" if self.where and line not in ("", self.last) else ""
        self.last, self.scope = line or self.last, scope
        single = eqn.outputs[0].type if len(eqn.outputs) == 1 else None
        yield Line("equation", indent, f"{results} = {call(single)[0]}", eqns, comment)

    def _loop(self, loop: Loop, indent: str) -> Iterator[Line]:
        repeat, first = loop.repeat, loop.indices[0]
        head = f"for i in {first}..{loop.indices[-1]}"
        if loop.aliases:
            head += " with " + ", ".join(f"{n} = {self._plain(a)}" for n, a in loop.aliases.items())
        yield Line("for", indent, head + " {")
        pending: _Pending = {}
        for place in range(repeat.period):
            eqn = self.program.eqns[repeat.start + place]
            forms: dict[Atom, Numbered | str | None] = {
                v: loop.made.get((place, r)) for r, v in enumerate(eqn.outputs)
            }
            for atom, operand in zip(eqn.inputs, repeat.operands[place], strict=True):
                match operand:
                    case Inside(at, result):
                        forms[atom] = loop.made.get((at, result))
                    case Before(at, result, lag, _):
                        form = loop.made[at, result]
                        assert isinstance(form, Numbered)
                        forms[atom] = Numbered(
                            form.before, form.shift - loop.step * lag, form.after
                        )
                    case Each(atoms):
                        forms[atom] = loop.read[atoms]
                    case Same(same):
                        forms[atom] = self._plain(same)

            def name(atom: Atom, forms: Mapping[Atom, Numbered | str | None] = forms) -> str:
                form = forms[atom]
                return form.text() if isinstance(form, Numbered) else str(form)

            params = repeat.params[place]
            yield from self._equation(eqn, params, name, pending, indent + "  ", loop)
        yield Line("end", indent, "}")

    def _param(self, value: Any, indent: str, loop: Loop | None) -> str:
        if isinstance(value, Even):
            assert loop is not None
            return loop.even(value)
        if isinstance(value, Program):
            return terse(value, self.width, self.where, indent).lstrip()
        if isinstance(value, tuple):
            inner = ",".join([self._param(v, indent, loop) for v in value])
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        return parameter(value, indent)


def _fitted(line: Line, width: int) -> Iterator[str]:
    """A line's text in lines of a width; a program inside comes with lines of its own."""
    first, *rest = line.text.split("\n")
    parts = [*wrapped(line.indent + first, width), *rest]
    yield from parts[:-1]
    fits = len(parts[-1]) + len(line.comment) <= width
    yield parts[-1] + (line.comment if fits else "")


def wrapped(line: str, width: int) -> Iterator[str]:
    """A line of a program broken at spaces outside of quotes, so that no part is longer than the
    width if that can be. What follows the first part is indented further."""
    indent = line[: len(line) - len(line.lstrip())]
    part = indent
    for word in re.findall(r'(?:"(?:[^"\\]|\\.)*"|[^" ])+', line):
        if len(part) + len(word) > width and part.strip():
            yield part.rstrip()
            part = indent + "    "
        part += word + " "
    yield part.rstrip()
