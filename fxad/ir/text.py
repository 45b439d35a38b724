"""Programs as text, and back: the printer and the parser of one grammar.

    program f(a: f32[3], b: f32[]) consts(c: f32[3]) {
      d: f32[3] = mul(a, c)  # model.py:12
      e: f32[] = sum(d; axes=(0,))
      return e
    }

Floats print in hexadecimal so that no bit is lost; `# ...` is a comment. Sub-programs in
parameters are printed in place. `parse(str(p))` is alpha-equal to `p` (equal `key()`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fxad.core.dtypes import from_short_name, short_name
from fxad.core.errors import CheckError
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Symbol, Var

# ---------------------------------------------------------------- printing


def show(
    program: Program, where: bool = True, indent: str = "", names: dict[Var, str] | None = None
) -> str:
    """The program's text; `where` adds source lines as comments.

    `names` holds the variables' names; given one, it keeps the names it has and learns new ones, so
    that a program and its rewrite can be shown alike.
    """
    names = {} if names is None else names
    for var in (*program.consts, *program.inputs):
        names.setdefault(var, letters(len(names)))
    lines = [heading(program, names)]
    for eqn in program.eqns:
        text = equation(eqn, names, indent + "  ")
        lines.append(f"{text}  # {eqn.where}" if where and eqn.where else text)
    return "\n".join([*lines, f"{indent}  {returning(program, names)}", indent + "}"])


def heading(program: Program, names: dict[Var, str]) -> str:
    """The first line: name, inputs and consts."""
    head = f"program {program.name}({_typed(program.inputs, names)})"
    if program.consts:
        head += f" consts({_typed(program.consts, names)})"
    return head + " {"


def equation(eqn: Eqn, names: dict[Var, str], indent: str = "") -> str:
    """One equation, naming its results; programs in its parameters take further lines."""
    for var in eqn.outputs:
        names.setdefault(var, letters(len(names)))
    operands = ", ".join(_atom(a, names) for a in eqn.inputs)
    params = ", ".join(f"{k}={_param(eqn.params[k], indent)}" for k in sorted(eqn.params))
    text = f"{indent}{_typed(eqn.outputs, names)} = {eqn.op.name}({operands}"
    return text + (f"; {params})" if params else ")")


def returning(program: Program, names: dict[Var, str]) -> str:
    """The last line but one: the outputs."""
    return f"return {', '.join(_atom(a, names) for a in program.outputs)}".rstrip()


def letters(number: int) -> str:
    """a, b, ..., z, ba, bb, ...: base 26."""
    text = chr(97 + number % 26)
    while number >= 26:
        number //= 26
        text = chr(97 + number % 26) + text
    return text


def _typed(variables: tuple[Var, ...], names: dict[Var, str]) -> str:
    return ", ".join(f"{names[v]}: {v.type}" for v in variables)


def _atom(atom: Atom, names: dict[Var, str]) -> str:
    if isinstance(atom, Var):
        return names.get(atom, "?undefined")
    return f"{_number(atom.value)}:{short_name(atom.type.dtype)}"


def _number(value: bool | int | float | complex) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        return f"complex({_number(value.real)},{_number(value.imag)})"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return str(value) if value == int(value) and abs(value) < 1e6 and value != 0 else value.hex()


def _param(value: Any, indent: str) -> str:
    match value:
        case Program():
            return show(value, where=False, indent=indent)
        case tuple():
            inner = ", ".join(_param(v, indent) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case np.dtype():
            return short_name(value)
        case bool() | int() | float() | complex():
            return _number(value)
        case None:
            return "none"
        case Symbol() | ArrayType() | TapeType():
            return str(value)
    raise CheckError(f"a parameter of type {type(value).__name__} cannot be printed: {value!r}")


# ---------------------------------------------------------------- parsing

_TOKEN = r"""\s*(?:\#[^\n]*\s*)*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<number>-?(?:0x[0-9a-fA-F.]+p[+-]?\d+|inf\b|\d+\.\d*(?:e[+-]?\d+)?|\d+))
  | (?P<word>@?(?:[^\W\d]|\?)\w*)
  | (?P<mark>[()\[\]{}:;,=])
    )"""


class _Tokens:
    """The text as a stream of tokens; errors quote the line they stand on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[tuple[str, str, int]] = []
        position, token = 0, re.compile(_TOKEN, re.VERBOSE)
        while position < len(text):
            match = token.match(text, position)
            if match is None:
                if not re.sub(r"#[^\n]*", "", text[position:]).strip():
                    break
                self._fail("unexpected text", position)
            assert match is not None
            kind = match.lastgroup or ""
            self.items.append((kind, match.group(kind), match.start(kind)))
            position = match.end()
        self.next = 0

    def _fail(self, problem: str, position: int) -> None:
        line = self.text.count("\n", 0, position) + 1
        quoted = self.text.splitlines()[line - 1].strip() if self.text.splitlines() else ""
        raise CheckError(f"program text, line {line}: {problem}: {quoted}")

    def fail(self, problem: str) -> Any:
        at = min(self.next, len(self.items) - 1)
        self._fail(problem, self.items[at][2] if self.items else 0)

    def peek(self) -> str:
        return self.items[self.next][1] if self.next < len(self.items) else ""

    def kind(self) -> str:
        return self.items[self.next][0] if self.next < len(self.items) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            self.fail(f"expected {expected or 'more'!r}, found {token or 'the end'!r}")
        self.next += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.next += 1
        return True


def parse(text: str) -> Program:
    """The Program a text describes. Raises CheckError naming the line that is wrong."""
    tokens = _Tokens(text)
    program = _program(tokens)
    if tokens.peek():
        tokens.fail("text after the program")
    return program


def _program(tokens: _Tokens) -> Program:
    tokens.take("program")
    name = tokens.take()
    scope: dict[str, Var] = {}
    inputs = _declared(tokens, scope)
    consts = _declared(tokens, scope) if tokens.accept("consts") else []
    tokens.take("{")
    eqns = []
    while tokens.peek() != "return":
        eqns.append(_equation(tokens, scope))
    tokens.take("return")
    outputs: list[Atom] = []
    if tokens.peek() != "}":
        outputs = list(_listed(tokens, lambda: _read(tokens, scope), "}"))
    tokens.take("}")
    return Program(inputs, eqns, outputs, name, consts)


def _declared(tokens: _Tokens, scope: dict[str, Var]) -> list[Var]:
    tokens.take("(")
    found = list(_listed(tokens, lambda: _variable(tokens, scope), ")"))
    tokens.take(")")
    return found


def _listed(tokens: _Tokens, item: Any, end: str) -> Iterator[Any]:
    while tokens.peek() != end:
        yield item()
        if not tokens.accept(","):
            break


def _variable(tokens: _Tokens, scope: dict[str, Var]) -> Var:
    name = tokens.take()
    tokens.take(":")
    if name in scope:
        tokens.fail(f"{name} is defined twice")
    scope[name] = Var(_type(tokens))
    return scope[name]


def _type(tokens: _Tokens) -> Type:
    word = tokens.take()
    if word == "tape":
        tokens.take("(")
        blocks = list(_listed(tokens, lambda: _type(tokens), ")"))
        lanes = ()
        if tokens.accept(";"):
            lanes = tuple(_listed(tokens, lambda: int(tokens.take()), ")"))
        tokens.take(")")
        return TapeType(tuple(blocks), lanes)
    tokens.take("[")
    shape = tuple(_listed(tokens, lambda: int(tokens.take()), "]"))
    tokens.take("]")
    return ArrayType(from_short_name(word), shape)


def _equation(tokens: _Tokens, scope: dict[str, Var]) -> Eqn:
    # Outputs become visible only after the operands have been read.
    later: dict[str, Var] = {}
    outputs = []
    if tokens.peek() != "=":
        outputs = list(_listed(tokens, lambda: _variable(tokens, later), "="))
    tokens.take("=")
    name = tokens.take()
    if name not in OPS:
        tokens.fail(f"unknown op {name!r}")
    tokens.take("(")
    operands = []
    if tokens.peek() not in (")", ";"):
        operands = list(_listed(tokens, lambda: _read(tokens, scope), ")"))
    params: dict[str, Any] = {}
    if tokens.accept(";"):
        while tokens.peek() != ")":
            key = tokens.take()
            tokens.take("=")
            params[key] = _value(tokens)
            if not tokens.accept(","):
                break
    tokens.take(")")
    for key in later.keys() & scope.keys():
        tokens.fail(f"{key} is defined twice")
    scope.update(later)
    return Eqn(OPS[name], tuple(operands), params, tuple(outputs))


def _read(tokens: _Tokens, scope: dict[str, Var]) -> Atom:
    if tokens.kind() == "word" and tokens.peek() not in ("true", "false", "nan", "complex"):
        name = tokens.take()
        if name not in scope:
            tokens.fail(f"{name} is not defined here")
        return scope[name]
    value = _value(tokens)
    tokens.take(":")
    dtype = from_short_name(tokens.take())
    return Lit(float(value) if dtype.kind not in "biuc" else value, dtype)


def _value(tokens: _Tokens) -> Any:
    kind = tokens.kind()
    if kind == "string":
        return re.sub(r"\\(.)", r"\1", tokens.take()[1:-1])
    if kind == "number":
        return _parse_number(tokens.take())
    word = tokens.peek()
    if word == "program":
        return _program(tokens)
    if word == "(":
        tokens.take()
        items = tuple(_listed(tokens, lambda: _value(tokens), ")"))
        tokens.take(")")
        return items
    words = {"true": True, "false": False, "nan": math.nan, "none": None}
    if word in words:
        tokens.take()
        return words[word]
    if word == "complex":
        tokens.take()
        tokens.take("(")
        real, imag = _listed(tokens, lambda: _value(tokens), ")")
        tokens.take(")")
        return complex(real, imag)
    if word.startswith("@"):
        return tokens.fail("a text cannot carry a Python function")
    if word == "tape" or tokens.items[tokens.next + 1][1] == "[":
        return _type(tokens)
    return from_short_name(tokens.take())


def _parse_number(text: str) -> int | float:
    if "x" in text:
        return float.fromhex(text)
    if text.endswith("inf"):
        return float(text)
    return float(text) if "." in text else int(text)
