"""Text to Programs: the parser of the grammar in which they print.

    program f(a: f32[3], b: f32[]) consts(c: f32[3]) {
      d: f32[3] = mul(a, c)  # model.py:12
      e: f32[] = sum(d; axes=(0,))
      return e
    }

Numbers print in the shortest decimal form that reads back to the same bits, and may be written in
hexadecimal too (`0x1.8p+1`); `# ...` is a comment. Sub-programs in parameters are printed in place.
Both texts of a Program, the full one (`fxad.ir.program.show`) and the terse one (`fxad.ir.terse`,
with loops over equal equations, calls inside calls and parameters left out), are parsed to what is
alpha-equal to it (equal `key()`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.dtypes import from_short_name
from fxad.core.errors import CheckError
from fxad.core.record import record
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Atom, Eqn, Lit, Op, Program, Var
from fxad.ir.usual import INFIX, MAIN, USUAL, Call, usual

_TOKEN = r"""\s*(?:\#[^\n]*\s*)*(?:
    (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<range>\d+\.\.\d+)
  | (?P<even>-?\d+\*i(?:[+-]\d+)?)
  | (?P<number>-?(?:0x[0-9a-fA-F.]+p[+-]?\d+|inf\b|\d+(?:\.\d*)?e[+-]?\d+|\d+\.\d*|\d+))
  | (?P<dtype>(?:bool|[iu]\d+|f\d+(?:e\dm\d\w*)?|bf16|c\d+)(?=\[)|key<fry>)
  | (?P<word>@?(?:[^\W\d]|\?)\w*(?:\.[^\W\d]\w*|\[(?:"(?:[^"\\]|\\.)*"|[^\]"\[])*\])*)
  | (?P<sign>[-+*/])
  | (?P<mark>\.\{|[()\[\]{}:;,=])
    )"""
_SIGNS = {sign: (name, level) for name, (sign, level) in INFIX.items()}
_IN_LOOP = re.compile(r"\[i([+-]\d+)?\]")
_RANGE = re.compile(r"\[(\d+)\.\.(\d+)\]")


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
            kind = match.lastgroup or ""
            self.items.append((kind, match.group(kind), match.start(kind)))
            position = match.end()
        self.next = 0

    def _fail(self, problem: str, position: int) -> NoReturn:
        line = self.text.count("\n", 0, position) + 1
        quoted = self.text.splitlines()[line - 1].strip() if self.text.splitlines() else ""
        raise CheckError(f"program text, line {line}: {problem}: {quoted}")

    def fail(self, problem: str) -> NoReturn:
        at = min(self.next, len(self.items) - 1)
        self._fail(problem, self.items[at][2] if self.items else 0)

    def peek(self) -> str:
        return self.items[self.next][1] if self.next < len(self.items) else ""

    def kind(self) -> str:
        return self.items[self.next][0] if self.next < len(self.items) else ""

    def following(self) -> str:
        """The token after the next."""
        return self.items[self.next + 1][1] if self.next + 1 < len(self.items) else ""

    def at_complex_number(self) -> bool:
        """Whether `complex(1.0,2.0)` is next, and not the op of that name."""
        ahead = self.items[self.next : self.next + 4]
        texts = [text for _, text, _ in ahead]
        if texts[:2] != ["complex", "("] or texts[3:] != [","]:
            return False
        return ahead[2][0] == "number" or texts[2] == "nan"

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


class _Scope:
    """What names mean in a program, and in one copy of a loop's body."""

    def __init__(self) -> None:
        self.eqns: list[Eqn] = []
        self.index: int | None = None  # of the copy
        self._names: dict[str, Atom] = {}
        self._local: dict[str, Atom] = {}

    def copy(self, index: int | None) -> None:
        """Begin a copy of a loop's body, or leave the loop."""
        self.index = index
        self._local = {}

    def find(self, tokens: _Tokens, name: str) -> Atom:
        name = self._resolved(name)
        found = self._local.get(name) or self._names.get(name)
        return found if found is not None else tokens.fail(f"{name} is not defined here")

    def define(self, tokens: _Tokens, name: str, atom: Atom) -> None:
        resolved = self._resolved(name)
        names = self._names if self.index is None or resolved != name else self._local
        if resolved in self._names or resolved in self._local:
            tokens.fail(f"{resolved} is defined twice")
        names[resolved] = atom

    def _resolved(self, name: str) -> str:
        """A name with the number of this copy for `i`."""
        index = self.index
        if index is None or "[i" not in name or '"' in name:
            return name
        return _IN_LOOP.sub(lambda m: f"[{index + int(m[1] or 0)}]", name)

    def even(self, tokens: _Tokens, text: str) -> int:
        """The value of `5*i+1` in this copy."""
        factor, shift = text.split("*i")
        if self.index is None:
            tokens.fail(f"{text} stands outside of a loop")
        return int(factor) * (self.index or 0) + int(shift or 0)


def _program(tokens: _Tokens) -> Program:
    tokens.take("program")
    name, scope = tokens.take(), _Scope()
    inputs = _declared(tokens, scope)
    consts = _declared(tokens, scope) if tokens.accept("consts") else []
    tokens.take("{")
    while tokens.peek() != "return":
        if tokens.peek() == "for":
            _loop(tokens, scope)
        else:
            _equation(tokens, scope)
    tokens.take("return")
    outputs = [] if tokens.peek() == "}" else _operands(tokens, scope, None)
    tokens.take("}")
    return Program(inputs, scope.eqns, outputs, name, consts)


def _loop(tokens: _Tokens, scope: _Scope) -> None:
    """for i in 0..3 with x[0] = a { equations }: the equations of every copy."""
    tokens.take("for")
    tokens.take("i")
    tokens.take("in")
    first, last = map(int, tokens.take().split(".."))
    if scope.index is not None:
        tokens.fail("a loop inside a loop")
    while tokens.accept("with") or tokens.accept(","):
        name = tokens.take()
        tokens.take("=")
        scope.define(tokens, name, _read(tokens, scope, None))
    tokens.take("{")
    body, step = tokens.next, 1 if last >= first else -1
    for index in range(first, last + step, step):
        tokens.next = body
        scope.copy(index)
        while not tokens.accept("}"):
            _equation(tokens, scope)
    scope.copy(None)


def _declared(tokens: _Tokens, scope: _Scope) -> list[Var]:
    tokens.take("(")
    found: list[Var] = []
    for group in _listed(tokens, lambda: _variables(tokens), ")"):
        for name, var in group:
            scope.define(tokens, name, var)
            found.append(var)
    tokens.take(")")
    return found


def _variables(tokens: _Tokens) -> list[tuple[str, Var]]:
    """`name: type`, or a group `name[0..3].{a: type, b: type}`."""
    groups = _branches(tokens.take())
    if tokens.accept(".{"):
        items = [*_listed(tokens, lambda: (f".{tokens.take()}", _typed(tokens)), "}")]
        tokens.take("}")
    else:
        items = [("", _typed(tokens))]
    return [(name + after, Var(type)) for name in groups for after, type in items]


def _branches(name: str) -> list[str]:
    """The names that a name with a range stands for."""
    match = None if '"' in name else _RANGE.search(name)  # not in a user's own text
    if match is None:
        return [name]
    first, last = int(match[1]), int(match[2])
    step = 1 if last >= first else -1
    return [_RANGE.sub(f"[{n}]", name, count=1) for n in range(first, last + step, step)]


def _listed(tokens: _Tokens, item: Any, end: str) -> Iterator[Any]:
    while tokens.peek() != end:
        yield item()
        if not tokens.accept(","):
            break


def _typed(tokens: _Tokens) -> Type:
    tokens.take(":")
    return _type(tokens)


def _type(tokens: _Tokens) -> Type:
    word = tokens.take()
    if word == "tape":
        tokens.take("(")
        none = tokens.peek() == ";"  # a tape that only counts
        blocks = [] if none else list(_listed(tokens, lambda: _type(tokens), ")"))
        lanes = ()
        if tokens.accept(";"):
            lanes = tuple(_listed(tokens, lambda: int(tokens.take()), ")"))
        tokens.take(")")
        return TapeType(tuple(blocks), lanes)
    tokens.take("[")
    shape = tuple(_listed(tokens, lambda: int(tokens.take()), "]"))
    tokens.take("]")
    return ArrayType(from_short_name(word), shape)


@record
class _Made:
    """The right side of an equation."""

    op: Op
    operands: tuple[Atom, ...]
    params: dict[str, Any]


def _equation(tokens: _Tokens, scope: _Scope) -> None:
    outputs: list[tuple[str, Var]] = []
    if tokens.peek() != "=":
        outputs = [v for g in _listed(tokens, lambda: _variables(tokens), "=") for v in g]
    tokens.take("=")
    line = outputs[0][1].type if len(outputs) == 1 else None
    made = _expression(tokens, scope, line)
    if not isinstance(made, _Made):
        tokens.fail("an equation needs an op")
    # Results become visible only after the operands have been read.
    for name, var in outputs:
        scope.define(tokens, name, var)
    scope.eqns.append(Eqn(made.op, made.operands, made.params, tuple([v for _, v in outputs])))


def _expression(tokens: _Tokens, scope: _Scope, line: Type | None, least: int = 0) -> Atom | _Made:
    """Arithmetic of signs that bind at least so tightly, in a line of a type."""
    left = _factor(tokens, scope, line)
    while tokens.kind() == "sign" and _SIGNS[tokens.peek()][1] >= least:
        name, level = _SIGNS[tokens.take()]
        first = _atom(tokens, scope, left)
        second = _atom(tokens, scope, _expression(tokens, scope, line, level + 1))
        left = _Made(OPS[name], (first, second), {})
    return left


def _factor(tokens: _Tokens, scope: _Scope, line: Type | None) -> Atom | _Made:
    """A name, a number, a call, or an expression in brackets."""
    if tokens.accept("-"):
        return _Made(OPS["neg"], (_atom(tokens, scope, _factor(tokens, scope, line)),), {})
    if tokens.accept("("):
        inner = _expression(tokens, scope, line)
        tokens.take(")")
        return inner
    number = tokens.peek() in ("true", "false", "nan") or tokens.at_complex_number()
    if tokens.kind() == "word" and not number:
        if tokens.following() == "(":
            return _call(tokens, scope, line)
        return scope.find(tokens, tokens.take())
    value = _value(tokens, scope)
    dtype: np.dtype
    if tokens.accept(":"):
        dtype = from_short_name(tokens.take())
    elif isinstance(line, ArrayType):
        dtype = line.dtype
    else:
        tokens.fail(f"the number {value} needs a dtype")
    plain = dtype.kind in "biuc" or dtype == dt.key
    return Lit(value if plain else float(value), dtype)


def _atom(tokens: _Tokens, scope: _Scope, made: Atom | _Made) -> Atom:
    """What is read: for the right side of an equation its result, which gets an equation now."""
    if not isinstance(made, _Made):
        return made
    types = made.op.type(*[a.type for a in made.operands], **made.params)
    if not isinstance(types, tuple):
        types = (types,)
    if len(types) != 1:
        tokens.fail(f"{made.op.name} has {len(types)} results: it needs a line of its own")
    scope.eqns.append(Eqn(made.op, made.operands, made.params, (Var(types[0]),)))
    return scope.eqns[-1].outputs[0]


def _read(tokens: _Tokens, scope: _Scope, line: Type | None) -> Atom:
    return _atom(tokens, scope, _expression(tokens, scope, line))


def _call(tokens: _Tokens, scope: _Scope, line: Type | None) -> _Made:
    """`op(operands; parameters)` in a line of a type."""
    name = tokens.take()
    if name not in OPS:
        tokens.fail(f"unknown op {name!r}")
    tokens.take("(")
    operands = [] if tokens.peek() in (")", ";") else _operands(tokens, scope, line)
    params: dict[str, Any] = {}
    if tokens.accept(";"):
        while tokens.peek() != ")":
            if tokens.following() == "=":
                key = tokens.take()
                tokens.take("=")
            else:
                key = MAIN.get(name) or tokens.fail(f"which parameter of {name} is this?")
            params[key] = _value(tokens, scope)
            if not tokens.accept(","):
                break
    tokens.take(")")
    if name in USUAL:
        params = {**usual(name, Call([a.type for a in operands], line, params)), **params}
    return _Made(OPS[name], tuple(operands), params)


def _operands(tokens: _Tokens, scope: _Scope, line: Type | None) -> list[Atom]:
    """Operands up to what ends them; `x[0..3]` and `x[0..3].{a, b}` are several."""
    found: list[Atom] = []
    while True:
        branches = _branches(tokens.peek())
        if len(branches) > 1:
            tokens.take()
            after = [""]
            if tokens.accept(".{"):
                after = [*_listed(tokens, lambda: f".{tokens.take()}", "}")]
                tokens.take("}")
            found += [scope.find(tokens, name + end) for name in branches for end in after]
        else:
            found.append(_read(tokens, scope, line))
        if not tokens.accept(","):
            return found


def _value(tokens: _Tokens, scope: _Scope) -> Any:
    kind = tokens.kind()
    if kind == "string":
        return re.sub(r"\\(.)", r"\1", tokens.take()[1:-1])
    if kind == "number":
        return _parse_number(tokens.take())
    if kind == "even":
        return scope.even(tokens, tokens.take())
    word = tokens.peek()
    if word == "program":
        return _program(tokens)
    if word == "(":
        tokens.take()
        items = tuple(_listed(tokens, lambda: _value(tokens, scope), ")"))
        tokens.take(")")
        return items
    words = {"true": True, "false": False, "nan": math.nan, "none": None}
    if word in words:
        tokens.take()
        return words[word]
    if word == "complex":
        tokens.take()
        tokens.take("(")
        real, imag = _listed(tokens, lambda: _value(tokens, scope), ")")
        tokens.take(")")
        return complex(real, imag)
    if word.startswith("@"):
        return tokens.fail("a text cannot carry a Python function")
    if word == "tape" or kind == "dtype":
        return _type(tokens)
    return from_short_name(tokens.take())


def _parse_number(text: str) -> int | float:
    if "x" in text:
        return float.fromhex(text)
    if text.endswith("inf"):
        return float(text)
    return float(text) if "." in text or "e" in text else int(text)
