"""Programs as NumPy source: `to_python(program)` is a module that defines one function.

    def loss(a, b):
        c = dot(b, a, contract=((1,), (0,)), batch=((), ()), dtype=float32)  # model.py:6
        d = tanh(c)  # model.py:6
        return d

Each op is printed as its reference in the op's record, so the module needs NumPy (and ml_dtypes
for narrow floats) and nothing else, and gives the interpreter's results bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fxad.core.dtypes import short_name
from fxad.core.errors import CheckError
from fxad.core.source import Source, number, tupled
from fxad.core.types import ArrayType, TapeType
from fxad.ir.inspection.functions import RESERVED, Definitions
from fxad.ir.program import Atom, Eqn, Op, Program, Symbol, Var, letters, subprograms

# Ops whose references keep arrays in places of fxad's own.
_KEEPING = {  # name -> parameters and the lines of its function
    "put": (
        "value, *, key, **where",
        ("kept.setdefault(key, []).append(np.array(value))", "return ()"),
    ),
    "take": ("*, key, **where", ("return kept[key].pop()",)),
}
_HELD = {"branches": "branch", "program": "inner"}
WRITTEN = 1000  # elements of a captured array that the source holds


def to_python(program: Program, captured: Sequence[np.ndarray | None] = ()) -> str:
    """Source of a module whose function `program.name` computes the Program with NumPy (with an
    underscore after it if that is a name of Python's own).

    It takes the inputs by position and captured values, also the Python functions that callbacks
    call, by keyword; it returns one array, or a tuple if there are several results. captured: the
    captured values (None: unknown), which become defaults where they have up to 1,000 elements.
    Raises TypeMismatch if the source of an op's reference is not available.
    """
    writer = _Writer(program, captured)
    source = Source()
    writer.main(program, source)
    defs = writer.defs
    head = f'"""{program.name}: {len(program.eqns)} equations."""'
    parts = [head, "\n".join(defs.imports), *_grouped(defs.texts), source.text]
    return "\n\n".join(parts)


def _grouped(texts: list[str]) -> Iterator[str]:
    """Definitions with one-liners that follow each other kept together."""
    lines: list[str] = []
    for text in texts:
        if "\n" not in text:
            lines.append(text)
            continue
        if lines:
            yield "\n".join(lines)
            lines = []
        yield text
    if lines:
        yield "\n".join(lines)


class _Writer:
    """Names of the definitions first, then the function's variables, so that none collide."""

    def __init__(self, program: Program, captured: Sequence[np.ndarray | None]) -> None:
        self.defs = Definitions()
        self.literals: dict[np.dtype, str] = {}
        self.functions: dict[int, str] = {}  # Python functions called back
        self.name = program.name + ("_" if program.name in RESERVED else "")
        self.defs.taken.add(self.name)
        for inner in _all(program):
            for eqn in inner.eqns:
                self._define(eqn)
        self.defaults = {
            var: self.defs.array(value)
            for var, value in zip(program.consts, captured, strict=bool(captured))
            if value is not None and value.size <= WRITTEN
        }
        self.count = 0

    def _define(self, eqn: Eqn) -> None:
        self._reference(eqn.op)
        if any(subprograms(eqn)) and "program" not in self.defs.taken:
            self.defs.taken.add("program")
            self.defs.texts.append(_marking())
        for _, inner in subprograms(eqn):
            for type_ in inner.out_types:
                self.defs.name(type_, "")
        for atom in eqn.inputs:
            if not isinstance(atom, Var):
                self._literal(atom.type.dtype)
        for value in eqn.params.values():
            self._prepare(eqn, value)

    def _reference(self, op: Op) -> str:
        """The name of the function that computes an op."""
        if op.name not in _KEEPING:
            return self.defs.name(op.numpy, op.name)
        keeping = _function(op.name, *_KEEPING[op.name])
        for name, text in (("kept", "kept = {}"), (op.name, keeping)):
            if name not in self.defs.taken:
                self.defs.taken.add(name)
                self.defs.texts.append(text)
        return op.name

    def _prepare(self, eqn: Eqn, value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                self._prepare(eqn, item)
        elif isinstance(value, np.dtype | ArrayType | TapeType):
            self.defs.name(value, "")
        elif isinstance(value, Symbol) and eqn.op.name == "host":
            key = id(value.value)
            if key not in self.functions:
                self.functions[key] = self.defs.fresh(value.name)
                self.defs.name(Symbol, "")

    def _literal(self, dtype: np.dtype) -> str:
        """The name of the function that makes a rank-0 array of a number."""
        if dtype not in self.literals:
            made = self.defs.name(dtype, "")
            name = self.literals[dtype] = self.defs.fresh(short_name(dtype))
            self.defs.texts.append(_function(name, "value", [f"return np.asarray(value, {made})"]))
        return self.literals[dtype]

    def main(self, program: Program, source: Source) -> None:
        """The function of the whole program."""
        names = self._named(program)
        given = [
            f"{names[v]}={self.defaults[v]}" if v in self.defaults else names[v]
            for v in program.consts
        ]
        extra = [*given, *self.functions.values()]
        args = [names[v] for v in program.inputs] + (["*", *extra] if extra else [])
        source.line('@np.errstate(all="ignore")')
        with source.block(f"def {self.name}({', '.join(args)}):"):
            results = self._body(program, names, source)
            source.line(f"return {results[0] if len(results) == 1 else tupled(results)}")

    def _inner(self, program: Program, name: str, source: Source) -> None:
        """The function of a program inside."""
        names = self._named(program)
        types = ", ".join(self.defs.name(t, "") for t in program.out_types)
        source.line(f"@program({types})")
        with source.block(f"def {name}({', '.join(names[v] for v in program.inputs)}):"):
            source.line(f"return [{', '.join(self._body(program, names, source))}]")

    def _named(self, program: Program) -> dict[Var, str]:
        return {var: self._variable() for var in (*program.inputs, *program.consts)}

    def _body(self, program: Program, names: dict[Var, str], source: Source) -> list[str]:
        """Lines of the equations; answers the results."""
        for eqn in program.eqns:
            self._equation(eqn, names, source)
        return [self._atom(a, names) for a in program.outputs]

    def _equation(self, eqn: Eqn, names: dict[Var, str], source: Source) -> None:
        held = {id(p): self.defs.fresh(_HELD.get(key, key)) for key, p in subprograms(eqn)}
        for _, inner in subprograms(eqn):
            self._inner(inner, held[id(inner)], source)
        operands = [self._atom(a, names) for a in eqn.inputs]
        operands += [f"{k}={self._param(v, held)}" for k, v in sorted(eqn.params.items())]
        for var in eqn.outputs:
            names[var] = self._variable()
        outs = ", ".join(names[v] for v in eqn.outputs)
        call = f"{self._reference(eqn.op)}({', '.join(operands)})"
        if len(eqn.outputs) == 1 and _returns_tuple(eqn):
            outs += ","
        comment = f"  # {eqn.where}" if eqn.where else ""
        source.line(f"{outs} = {call}{comment}" if outs else f"{call}{comment}")

    def _variable(self) -> str:
        """The next free name: a, b, ..., z, ba, ..."""
        while True:
            text = letters(self.count)
            self.count += 1
            if text not in self.defs.taken and text not in RESERVED:
                return text

    def _atom(self, atom: Atom, names: dict[Var, str]) -> str:
        if isinstance(atom, Var):
            return names[atom]
        value = atom.value
        text = number(value) if isinstance(value, float | complex) else repr(value)
        return f"{self._literal(atom.type.dtype)}({text})"

    def _param(self, value: Any, held: dict[int, str]) -> str:
        match value:
            case Program():
                return held[id(value)]
            case tuple():
                return tupled([self._param(v, held) for v in value])
            case Symbol():
                return self._symbol(value)
            case float() | complex():
                return number(value)
            case None | bool() | int() | str():
                return repr(value)
            case np.dtype() | ArrayType() | TapeType():
                return self.defs.name(value, "")
        raise CheckError(f"to_python: a parameter {value!r:.60} cannot be written")

    def _symbol(self, symbol: Symbol) -> str:
        """A callback is an argument of the function; a rule for derivatives is not needed."""
        found = self.functions.get(id(symbol.value))
        return f"{self.defs.name(Symbol, '')}({symbol.name!r}, {found})" if found else "None"


def _function(name: str, parameters: str, lines: Sequence[str]) -> str:
    """The definition of a function."""
    source = Source()
    with source.block(f"def {name}({parameters}):"):
        source.extend(lines)
    return "\n".join(source.lines)


def _marking() -> str:
    """`program`, which marks the function of a program inside with its results' types."""
    source = Source()
    with source.block("def program(*out_types):"):
        with source.block("def mark(function):"):
            source.line("function.out_types = out_types")
            source.line("return function")
        source.line("return mark")
    return "\n".join(source.lines)


def _returns_tuple(eqn: Eqn) -> bool:
    """Whether the reference of an op with one result returns it in a tuple."""
    types = eqn.op.type(*[a.type for a in eqn.inputs], **eqn.params)
    return not isinstance(types, ArrayType | TapeType)


def _all(program: Program) -> Iterator[Program]:
    """The program and all programs inside it."""
    yield program
    for eqn in program.eqns:
        for _, inner in subprograms(eqn):
            yield from _all(inner)
