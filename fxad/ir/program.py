"""Program: a typed, immutable list of equations - what tracing records and transforms rewrite.

    program f(a: f32[3]) {
      b: f32[3] = exp(a)
      c: f32[] = sum(b; axes=(0,))
      return c
    }

`ops` records live in one table, `OPS`, filled by `fxad.ops.base.define`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fxad.core.dtypes import short_name
from fxad.core.errors import CheckError
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType, Type

if TYPE_CHECKING:
    from fxad.ir.rules import (
        BatchRule,
        CloseRule,
        DceRule,
        DecomposeRule,
        Effects,
        JvpRule,
        LoopsRule,
        NumpyRule,
        OntoRule,
        SamplesRule,
        SplitRule,
        TransposeRule,
        TypeRule,
    )


Number = bool | int | float | complex


class Var:
    """A value defined once, by an input or an equation. Compared by identity."""

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"Var({self.type})"


class Lit:
    """A number written into the program, of rank 0; combines with any shape in elementwise ops."""

    __slots__ = ("type", "value")

    def __init__(self, value: Number, dtype: np.dtype) -> None:
        self.value = value
        self.type = ArrayType(dtype, ())

    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal bits (0.0 and -0.0 differ, NaN equals NaN)."""
        return (repr(self.value), self.type.dtype)

    def __repr__(self) -> str:
        return f"Lit({self.value}: {self.type})"


Atom = Var | Lit


class Symbol:
    """A named Python callable carried as an equation's parameter, printed as @name."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Callable[..., Any]) -> None:
        self.name = name
        self.value = value

    def __repr__(self) -> str:
        return f"@{self.name}"


@valued
class Unknown:
    """Stands for a linear operand in a transpose rule: only its type is known."""

    type: Type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype:
        return self.type.dtype


class Op:
    """Everything the system knows about one operation; `fxad.ops.base` documents each rule, and
    `fxad.ir.rules` has its type."""

    __slots__ = (
        "batch",
        "close",
        "dce",
        "decompose",
        "doc",
        "dtypes",
        "effects",
        "exact",
        "higher",
        "jvp",
        "loops",
        "name",
        "numpy",
        "onto",
        "samples",
        "split",
        "transpose",
        "type",
        "ulp",
    )

    name: str
    batch: BatchRule | None
    close: CloseRule | None
    dce: DceRule | None
    decompose: DecomposeRule | None
    doc: str | None
    dtypes: str
    effects: Effects | None
    exact: bool | None
    higher: bool | None
    jvp: JvpRule | None
    loops: LoopsRule | None
    numpy: NumpyRule
    onto: OntoRule | None
    samples: SamplesRule | None
    split: SplitRule | None
    transpose: TransposeRule | Literal["inside"] | None
    type: TypeRule
    ulp: Mapping[str, float] | None

    def __init__(self, name: str, **rules: Any) -> None:
        self.name = name
        for rule in Op.__slots__:
            if rule != "name":
                setattr(self, rule, rules.get(rule))

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Apply the op to values (`fxad.ops.base.Primitive` does)."""
        raise NotImplementedError(
            f"{self!r} is a record without behaviour; use fxad.ops.base.define"
        )

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __str__(self) -> str:
        return self.name


OPS: dict[str, Op] = {}  # name -> Op, callable once `fxad.ops.base.define` has made it


class Eqn:
    """outputs = op(inputs; params). `where` is the user's file:line. Treat params as frozen.

    `tag` says which part of a derivative recorded the equation: "backward", "recomputed" (in the
    backward pass, from kept values), or None. It means nothing to results; listings show it.
    `pair` is a number that a loop and its backward loops have in common, where a derivative made
    them; no other equation has one, and it is no part of what makes Programs equal.
    """

    __slots__ = ("inputs", "op", "outputs", "pair", "params", "tag", "where")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Atom, ...],
        params: Mapping[str, Any],
        outputs: tuple[Var, ...],
        where: str = "",
        tag: str | None = None,
        pair: int | None = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.params = params
        self.outputs = outputs
        self.where = where
        self.tag = tag
        self.pair = pair

    def with_inputs(self, inputs: tuple[Atom, ...]) -> Eqn:
        return Eqn(self.op, inputs, self.params, self.outputs, self.where, self.tag, self.pair)

    def copy(
        self,
        inputs: tuple[Atom, ...] | None = None,
        params: Mapping[str, Any] | None = None,
        outputs: tuple[Var, ...] | None = None,
    ) -> Eqn:
        """The equation with some of these changed."""
        return Eqn(
            self.op,
            self.inputs if inputs is None else inputs,
            self.params if params is None else params,
            self.outputs if outputs is None else outputs,
            self.where,
            self.tag,
            self.pair,
        )

    @property
    def effects(self) -> frozenset[str]:
        declared = self.op.effects
        if declared is None:
            return _PURE
        if callable(declared):
            return declared(**self.params)
        return declared or _PURE

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.where}>"


_PURE: frozenset[str] = frozenset()
_pairs = itertools.count()


def new_pair() -> int:
    """A number that no loop has as its pair yet."""
    return next(_pairs)


class Program:
    """inputs and consts (captured values) to outputs through equations.

    `consts` are inputs whose values were captured from around the traced function; whoever holds
    the Program holds their values beside it. Sub-programs in parameters never have consts.
    """

    __slots__ = ("__weakref__", "_effects", "_key", "consts", "eqns", "inputs", "name", "outputs")

    def __init__(
        self,
        inputs: Iterable[Var],
        eqns: Iterable[Eqn],
        outputs: Iterable[Atom],
        name: str = "f",
        consts: Iterable[Var] = (),
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.consts = tuple(consts)
        self.eqns = tuple(eqns)
        self.outputs = tuple(outputs)
        self._key: tuple[object, ...] | None = None
        self._effects: frozenset[str] | None = None

    @property
    def in_types(self) -> tuple[Type, ...]:
        return tuple(v.type for v in self.inputs)

    @property
    def out_types(self) -> tuple[Type, ...]:
        return tuple(a.type for a in self.outputs)

    @property
    def effects(self) -> frozenset[str]:
        """Effects of all equations, sub-programs included."""
        if self._effects is None:
            self._effects = _PURE.union(*(e.effects for e in self.eqns))
        return self._effects

    def closed(self) -> Program:
        """The same program with its consts as leading inputs."""
        if not self.consts:
            return self
        return Program(self.consts + self.inputs, self.eqns, self.outputs, self.name)

    def key(self) -> tuple[object, ...]:
        """Structural identity: equal for alpha-equal programs; ignores names and locations."""
        if self._key is None:
            number: dict[Var, int] = {}
            for v in (*self.consts, *self.inputs):
                number[v] = len(number)

            def refs(atoms: tuple[Atom, ...]) -> tuple[object, ...]:
                return tuple([number[a] if isinstance(a, Var) else a.key() for a in atoms])

            rows: list[object] = [(len(self.consts), tuple([v.type for v in number]))]
            for e in self.eqns:
                types = tuple([v.type for v in e.outputs])
                rows.append((e.op.name, refs(e.inputs), params_key(e.params), types))
                for v in e.outputs:
                    number[v] = len(number)
            rows.append(refs(self.outputs))
            self._key = tuple(rows)
        return self._key

    def __str__(self) -> str:
        return show(self)

    __repr__ = __str__


def params_key(params: Mapping[str, Any]) -> tuple[object, ...]:
    """Hashable identity of an equation's parameters."""
    return tuple([(name, param_key(params[name])) for name in sorted(params)]) if params else ()


def param_key(value: Any) -> object:
    """Hashable identity of an equation's parameter."""
    if isinstance(value, Program):
        return value.key()
    if isinstance(value, tuple):
        return tuple([v if type(v) is int else param_key(v) for v in value])
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, Symbol):
        return ("symbol", id(value.value))
    return value


def subprograms(eqn: Eqn) -> Iterator[tuple[str, Program]]:
    """Programs among an equation's parameters, with the parameter's name."""
    for name, value in eqn.params.items():
        if isinstance(value, Program):
            yield name, value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, Program):
                    yield name, item


# ---------------------------------------------------------------- text
# Floats print in hexadecimal so that no bit is lost; `# ...` is a comment. Programs in parameters
# are printed in place. `fxad.ir.text.parse` reads it.


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


def _number(value: Number) -> str:
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
