"""A Jaxpr in JAX's notation.

{ lambda ; a:f32[3]. let b:f32[3] = sin a; c:f32[3] = mul b 2.0:f32[] in (c,) }

Constants stand before the semicolon. Names are letters in the order of their first appearance, one
for each value of the Jaxpr and of those inside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fxad.core.types import TapeType
from fxad.ir.program import letters

WIDTH = 80


def text_of(jaxpr: Any, numbers: Mapping[Any, Any] | None = None) -> str:
    """The text: a line for each equation, with parameters on lines of their own where it would
    exceed 80 characters. `_` is a result that nobody reads. numbers: known constants, which are
    written where they are read."""
    return "\n".join(_Printer(numbers or {}).jaxpr(jaxpr, 0))


class _Printer:
    def __init__(self, numbers: Mapping[Any, Any]) -> None:
        self._numbers = numbers
        self._names: dict[Any, str] = {}
        self._letters = map(letters, itertools.count())
        self._read: set[Any] = set()

    def jaxpr(self, jaxpr: Any, indent: int, before: int = 0) -> list[str]:
        """Lines of a Jaxpr whose lines are indented so far, `before` characters into the first."""
        self._read.update(a for e in jaxpr.eqns for a in e.invars if not hasattr(a, "val"))
        self._read.update(a for a in jaxpr.outvars if not hasattr(a, "val"))
        self._read.update(jaxpr.constvars, jaxpr.invars)
        captured = [v for v in jaxpr.constvars if v not in self._numbers]
        consts, inputs = self._typed(captured), self._typed(jaxpr.invars)
        head = f"{{ lambda {consts}; {inputs}. let" if consts else f"{{ lambda ; {inputs}. let"
        inner = [self._equation(eqn, indent + 4) for eqn in jaxpr.eqns]
        end = f"in {self._results(jaxpr.outvars)} }}"
        lines = [line for equation in inner for line in equation]
        flat = f"{head} {'; '.join(lines)} {end}"
        if all(len(e) == 1 for e in inner) and indent + before + len(flat) <= WIDTH:
            return [flat]
        return [head, *(f"    {line}" for line in lines), f"  {end}"]

    def _equation(self, eqn: Any, indent: int) -> list[str]:
        results = self._typed(eqn.outvars)
        head = f"{results} = {eqn.primitive}" if results else str(eqn.primitive)
        params = [
            self._param(k, v, indent + 2) for k, v in sorted(eqn.params.items(), key=_name_first)
        ]
        operands = "".join(f" {self._atom(a)}" for a in eqn.invars)
        if not params:
            return [head + operands]
        flat = f"{head}[{' '.join(line for lines in params for line in lines)}]{operands}"
        if all(len(lines) == 1 for lines in params) and indent + len(flat) <= WIDTH:
            return [flat]
        return [
            f"{head}[",
            *(f"  {line}" for lines in params for line in lines),
            f"]{operands}",
        ]

    def _param(self, name: str, value: Any, indent: int) -> list[str]:
        inside = _inside(value)
        if inside is None:
            return [f"{name}={_plain(value)}"]
        if not isinstance(value, tuple):
            first, *rest = self.jaxpr(inside[0], indent, len(name) + 1)
            return [f"{name}={first}", *rest]
        lines = [line for one in inside for line in self.jaxpr(one, indent + 2)]
        return [f"{name}=(", *(f"  {line}" for line in lines), ")"]

    def _typed(self, variables: Sequence[Any]) -> str:
        return " ".join(f"{self._name(v)}:{_type(v)}" for v in variables)

    def _results(self, atoms: Sequence[Any]) -> str:
        names = [self._atom(a) for a in atoms]
        return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"

    def _atom(self, atom: Any) -> str:
        if hasattr(atom, "val"):
            return f"{atom.val!s}:{_type(atom)}"
        if atom in self._numbers:
            return f"{self._numbers[atom]!s}:{_type(atom)}"
        return self._name(atom)

    def _name(self, variable: Any) -> str:
        if variable not in self._read:
            return "_"
        found = self._names.get(variable)
        if found is None:
            found = self._names[variable] = next(self._letters)
        return found


def _name_first(param: tuple[str, Any]) -> tuple[bool, str]:
    return param[0] != "name", param[0]


def _type(atom: Any) -> str:
    """JAX's name of its type; a tape, which JAX does not have, as in our own text."""
    kind = atom.aval
    return str(kind) if isinstance(kind, TapeType) else kind.str_short(short_dtypes=True)


def _inside(value: Any) -> list[Any] | None:
    """The Jaxprs that a parameter is, or is a tuple of."""
    values = value if isinstance(value, tuple) else (value,)
    found: list[Any] = [getattr(v, "jaxpr", v) for v in values]
    return found if found and all(hasattr(v, "invars") for v in found) else None


def _plain(value: Any) -> str:
    if isinstance(value, np.dtype):
        return value.name
    text = getattr(value, "__name__", None) or str(value)
    return f"<{type(value).__name__}>" if " at 0x" in text or "\n" in text else text
