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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fxad.core.dtypes import short_name
from fxad.core.errors import CheckError
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType, Type
from fxad.core.views import html_of
from fxad.ir.literals import number, rounded

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
    """A value defined once, by an input or an equation. Compared by identity.

    `label` is the name it is printed with, where one is known and no other value has it (see
    `fxad.ir.labels`); it is no part of what makes Programs equal.
    """

    __slots__ = ("label", "type")

    def __init__(self, type: Type, label: str = "") -> None:
        self.type = type
        self.label = label

    def __repr__(self) -> str:
        return f"Var({self.type})"


class Lit:
    """A number written into the program, of rank 0; combines with any shape in elementwise ops."""

    __slots__ = ("type", "value")

    def __init__(self, value: Number, dtype: np.dtype) -> None:
        self.value = value
        self.type = ArrayType(dtype, ())

    def key(self) -> tuple[object, ...]:
        """Equal keys mean equal bits (0.0 and -0.0 differ, NaN equals NaN): 0.1 and what float32
        makes of it are one number where the dtype is float32."""
        return (repr(rounded(self.value, self.type.dtype)), self.type.dtype)

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


class Opaque:
    """Any Python object as an equation's parameter, for ops that users define: equal to another of
    an equal object of the same type (1, 1.0 and True differ, as 0.0 and -0.0 do), or to itself
    where the object has no hash. Printed where it is short, else by its type."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        key = exact_key(value)
        try:
            hash(key)
        except TypeError:
            key = ("is", id(value))
        self._key = key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and (
            self.value is other.value or bool(self._key == other._key)
        )

    def __reduce__(self) -> Any:
        return Opaque, (self.value,)  # a copy's value is another object

    def __repr__(self) -> str:
        text = repr(self.value)
        if len(text) <= 60 and "\n" not in text and " at 0x" not in text:
            return text
        name: str = getattr(self.value, "__name__", type(self.value).__name__)
        return f"<{name.strip('<>')}>"


def exact_key(value: Any) -> Any:
    """What tells an object from those that are equal by `==` and yet no substitute for it."""
    if isinstance(value, tuple):
        return type(value), tuple(map(exact_key, value))
    if isinstance(value, np.generic):
        return value.dtype, value.tobytes()
    if isinstance(value, bool | int | float | complex):
        return type(value), repr(value)
    return value


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
        "joint",
        "jvp",
        "loops",
        "makes_nan",
        "name",
        "numpy",
        "onto",
        "runs",
        "samples",
        "split",
        "transpose",
        "type",
        "ulp",
        "weak",
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
    joint: bool | None
    jvp: JvpRule | None
    loops: LoopsRule | None
    makes_nan: bool | Callable[..., bool] | None
    numpy: NumpyRule
    onto: OntoRule | None
    runs: str | None
    samples: SamplesRule | None
    split: SplitRule | None
    transpose: TransposeRule | Literal["inside"] | None
    type: TypeRule
    ulp: Mapping[str, float] | None
    weak: tuple[int, ...] | Literal["each"] | None

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

    @property
    def makes_nan(self) -> bool:
        """Whether a result may be NaN though no operand is."""
        declared = self.op.makes_nan
        return declared(**self.params) if callable(declared) else bool(declared)

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.where}>"


_PURE: frozenset[str] = frozenset()
_pairs = itertools.count()


def scope_of(where: str) -> str:
    """The scope in a location: `attention` of `model.py:12 in attention`."""
    return where.rpartition(" in ")[2] if _SCOPED.search(where) else ""


_SCOPED = re.compile(r":\d+ in \S+\Z")


def new_pair() -> int:
    """A number that no loop has as its pair yet."""
    return next(_pairs)


SHORT = 60  # equations that are printed one a line, those of programs inside counted too


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
        """The full text of a short program, the terse text of a long one."""
        return _long_text(self) if is_long(self) else show(self)

    __repr__ = __str__
    _repr_html_ = html_of("program")


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


def equations_within(eqn: Eqn, known: dict[Program, int] | None = None) -> int:
    """An equation and those of the programs that it holds. known: of programs gone through."""
    known, count = {} if known is None else known, 1
    for _, inner in subprograms(eqn):
        if inner not in known:
            known[inner] = sum([equations_within(each, known) for each in inner.eqns])
        count += known[inner]
    return count


def is_long(program: Program) -> bool:
    """Whether its terse text is the one to print."""
    known: dict[Program, int] = {}
    return sum([equations_within(eqn, known) for eqn in program.eqns]) > SHORT


# ---------------------------------------------------------------- text
# Numbers print in the shortest decimal form that reads back to the same bits (`fxad.ir.literals`);
# `# ...` is a comment. Programs in parameters are printed in place. `fxad.ir.text.parse` reads it.


class Naming:
    """Names of values, given when they are first asked for: their labels, else letters. A name once
    given stays, so that a program and its rewrite can be shown alike. labels: False for letters
    alone."""

    def __init__(self, *programs: Program, labels: bool = True) -> None:
        self._labels = labels
        self._names: dict[Atom, str] = {}
        self._taken = set(KEYWORDS)  # words that no letters may be
        self._used: set[str] = set()  # labels that values go by
        self._count = 0
        for program in programs:
            self.reserve(program)

    def reserve(self, program: Program) -> None:
        """Keep letters from names that a program's values have, and name its inputs."""
        given = (*program.consts, *program.inputs)
        values = [*given, *[v for eqn in program.eqns for v in eqn.outputs]]
        self._taken.update([root(v.label) for v in values if v.label and self._labels])
        for var in given:
            self[var]

    def call(self, var: Var, name: str) -> None:
        """Give a value a name."""
        self._names[var] = name
        self.reserve_name(name)

    def reserve_name(self, name: str) -> None:
        """Give the name to no value that is not called so."""
        self._used.add(name)
        self._taken.add(root(name))

    def __getitem__(self, var: Var) -> str:
        name = self._names.get(var)
        if name is None:
            name = self._names[var] = (var.label and self._labelled(var)) or self.letter()
        return name

    def get(self, atom: Atom) -> str:
        """The name of a value that has one already."""
        return self._names.get(atom, "?undefined")

    def _labelled(self, var: Var) -> str:
        """The label, if no other value goes by it."""
        if not self._labels or var.label in self._used:
            return ""
        self._used.add(var.label)
        return var.label

    def letter(self) -> str:
        """The next letters that are free."""
        while True:
            text = letters(self._count)
            self._count += 1
            if text not in self._taken:
                return text


KEYWORDS = frozenset("program return consts for with true false nan inf none complex tape".split())


def root(label: str) -> str:
    """The word that a label begins with."""
    return _ROOT.split(label, maxsplit=1)[0]


_ROOT = re.compile(r"[.\[]")


def show(
    program: Program, where: bool = True, indent: str = "", names: Naming | None = None
) -> str:
    """The program's full text: an equation a line, with all types and parameters; `where` adds
    source lines as comments. Values that `names` knows are called as before."""
    names = Naming() if names is None else names
    names.reserve(program)
    lines = [heading(program, names)]
    for eqn in program.eqns:
        text = equation(eqn, names, indent + "  ", where)
        lines.append(f"{text}  # {eqn.where}" if where and eqn.where else text)
    return "\n".join([*lines, f"{indent}  {returning(program, names)}", indent + "}"])


def heading(program: Program, names: Naming) -> str:
    """The first line: name, inputs and consts."""
    head = f"program {program.name}({_typed(program.inputs, names)})"
    if program.consts:
        head += f" consts({_typed(program.consts, names)})"
    return head + " {"


def equation(eqn: Eqn, names: Naming, indent: str = "", where: bool = False) -> str:
    """One equation, naming its results; programs in its parameters take further lines (`where`:
    with source lines)."""
    operands = ", ".join(_atom(a, names) for a in eqn.inputs)
    params = ", ".join(f"{k}={parameter(eqn.params[k], indent, where)}" for k in sorted(eqn.params))
    text = f"{indent}{_typed(eqn.outputs, names)} = {eqn.op.name}({operands}"
    return text + (f"; {params})" if params else ")")


def returning(program: Program, names: Naming) -> str:
    """The last line but one: the outputs."""
    return f"return {', '.join(_atom(a, names) for a in program.outputs)}".rstrip()


_long_text: Callable[[Program], str] = show


def set_long_text(text: Callable[[Program], str]) -> None:
    """Install what prints programs of more than `SHORT` equations (done once, by the api: it is
    loaded only when one is printed)."""
    global _long_text
    _long_text = text


def letters(number: int) -> str:
    """a, b, ..., z, ba, bb, ...: base 26."""
    text = chr(97 + number % 26)
    while number >= 26:
        number //= 26
        text = chr(97 + number % 26) + text
    return text


def _typed(variables: tuple[Var, ...], names: Naming) -> str:
    return ", ".join(f"{names[v]}: {v.type}" for v in variables)


def _atom(atom: Atom, names: Naming) -> str:
    if isinstance(atom, Var):
        return names.get(atom)
    return f"{number(atom.value, atom.type.dtype)}:{short_name(atom.type.dtype)}"


def parameter(value: Any, indent: str, where: bool = False) -> str:
    """The text of an equation's parameter; `where`: of programs with source lines."""
    match value:
        case Program():
            return show(value, where, indent)
        case tuple():
            inner = ", ".join(parameter(v, indent, where) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case np.dtype():
            return short_name(value)
        case bool() | int() | float() | complex():
            return number(value)
        case None:
            return "none"
        case Symbol() | Opaque() | ArrayType() | TapeType():
            return str(value)
    raise CheckError(f"a parameter of type {type(value).__name__} cannot be printed: {value!r}")
