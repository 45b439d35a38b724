"""Text to Programs: the parser of the grammar in which they print (`fxad.ir.program.show`).

    program f(a: f32[3], b: f32[]) consts(c: f32[3]) {
      d: f32[3] = mul(a, c)  # model.py:12
      e: f32[] = sum(d; axes=(0,))
      return e
    }

Numbers print in the shortest decimal form that reads back to the same bits, and may be written in
hexadecimal too (`0x1.8p+1`); `# ...` is a comment. Sub-programs in parameters are printed in place.
`parse(str(p))` is alpha-equal to `p` (equal `key()`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from fxad.core.dtypes import from_short_name
from fxad.core.errors import CheckError
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Atom, Eqn, Lit, Program, Var

_TOKEN = r"""\s*(?:\#[^\n]*\s*)*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<number>-?(?:0x[0-9a-fA-F.]+p[+-]?\d+|inf\b|\d+(?:\.\d*)?e[+-]?\d+|\d+\.\d*|\d+))
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
    return float(text) if "." in text or "e" in text else int(text)
