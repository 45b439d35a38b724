"""The rules of an op, as types: what each is handed and what it answers.

    def _sum_transpose(ct: Value, args: Operands, *, axes: Axes) -> Cotangents: ...

For type checkers alone: nothing imports this at run time. `fxad.ops.base` says what rules mean.
`...` stands for the op's own parameters, by keyword, and for what comes before them, which is in
the comment: mypy infers no lambda with keywords otherwise. Rules of ops that hold programs
(`higher`) are handed the `Transforms` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypedDict

import numpy as np

from fxad.core.masks import Mask
from fxad.core.types import ArrayType, Type
from fxad.ir.loops import Loops
from fxad.ir.program import Eqn, Lit, Number, Op, Program, Unknown
from fxad.ir.tape import NumpyValue, TapeValue

# ---------------------------------------------------------------- values


class ArrayValue(Protocol):
    """An array of ours, concrete or traced: `fxad.trace.array.Array`, a class of a room above."""

    weak: bool

    @property
    def type(self) -> ArrayType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


# What ops on arrays are bound to. Atoms of a Program are none, but for its numbers.
Value = ArrayValue | np.ndarray | np.generic | Lit | Number

# What ops that hold programs are bound to, and the transforms carry: a tape too.
AnyValue = Value | TapeValue


# Several of them, as rules are handed them. Of (co)tangents None is zero.
Values = Sequence[Value]
Tangents = Sequence[Value | None]
Cotangents = Sequence[Value | None]
Operands = Sequence[Value | Unknown]  # of a transpose rule: linear ones are Unknown
AnyValues = Sequence[AnyValue]
AnyTangents = Sequence[AnyValue | None]
AnyCotangents = Sequence[AnyValue | None]
AnyOperands = Sequence[AnyValue | Unknown]


class Batched(Protocol):
    """Results of which some have no lanes: `fxad.ops.base.Batched`."""

    @property
    def values(self) -> tuple[AnyValue, ...]: ...
    @property
    def flags(self) -> tuple[bool, ...]: ...


class Draws(Protocol):
    """Random operands of the dtype under test, and of a few others, for samples."""

    @property
    def dtype(self) -> np.dtype: ...
    def x(self, *shape: int, low: float | None = None, high: float | None = None) -> np.ndarray: ...
    def lit(self, value: float) -> Lit: ...
    def bool(self, *shape: int) -> np.ndarray: ...
    def i32(self, *shape: int, low: int = -9, high: int = 9) -> np.ndarray: ...
    def u32(self, *shape: int) -> np.ndarray: ...


class Sample(Protocol):
    """One use of an op: `fxad.ops.base.Sample`."""

    @property
    def args(self) -> tuple[AnyValue, ...]: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def saying(self) -> str: ...


# ---------------------------------------------------------------- the transforms


class Split(Protocol):
    """A Program that is split; see `fxad.transform.context.Split`."""

    @property
    def known(self) -> Program: ...
    @property
    def rest(self) -> Program: ...
    @property
    def unknown(self) -> Mask: ...
    @property
    def residuals(self) -> int: ...
    @property
    def lean(self) -> Program: ...
    @property
    def inputs(self) -> tuple[int | None, ...]: ...


class Calls(Protocol):
    """How programs inside an op are made and called."""

    def run(self, program: Program, args: AnyValues, /) -> list[AnyValue]:
        """Results of a Program in the current context."""

    def stage(
        self, function: Callable[..., AnyValues], types: Sequence[Type], name: str = "f", /
    ) -> Program:
        """A function as a Program without consts."""


class Transforms(Calls, Protocol):
    """What rules of ops that hold programs are handed: the transforms of Programs."""

    def jvp(
        self, program: Program, active: Mask, force: Mask | None = None, /
    ) -> tuple[Program, Mask]:
        """(inputs, tangents of active ones) -> (outputs, tangents of active ones), and which
        outputs are active."""

    def split(self, program: Program, unknown: Mask, force: Mask | None = None, /) -> Split:
        """What can be computed without the unknown inputs, and the rest."""

    def transpose(self, program: Program, linear: Mask, active: Mask, /) -> tuple[Program, Mask]:
        """(other inputs, cotangents of active outputs) -> cotangents of linear inputs, and which
        of those are not zero."""

    def batch(
        self, program: Program, size: int, batched: Mask, force: Mask | None = None, /
    ) -> tuple[Program, Mask]:
        """The Program over lanes, and which of its outputs are batched."""


# ---------------------------------------------------------------- rules

# (*types of the operands, ...) -> types of the results. Raises ShapeError or TypeMismatch.
TypeRule = Callable[..., Type | tuple[Type, ...]]

# (*NumPy arrays, ...) -> NumPy arrays of exactly those types; of tapes, TapeValues.
NumpyRule = Callable[..., NumpyValue | tuple[NumpyValue, ...]]

# Results, and the tangents of each.
WithTangents = tuple[AnyValues, AnyTangents]

# (primals, tangents, results, ...) -> tangents of the results; None: zero, for operands too.
# higher: (transforms, primals, tangents, ...) -> WithTangents.
JvpRule = Callable[..., AnyValue | AnyTangents | WithTangents | None]

# `unary`: (tangent, operand, result, ...) -> the tangent that it adds to the result's.
UnaryJvp = Callable[..., Value | None]

# `binary`, of either operand: (tangent, operands, result) -> the same.
BinaryJvp = Callable[..., Value | None]

# (cotangents, operands, ...) -> a cotangent per operand; None: zero, or not linear. Linear
# operands are `Unknown`s. higher: (transforms, cotangents, operands, ...).
TransposeRule = Callable[..., Iterable[AnyValue | None]]

# (total, cotangent, operands, ...) -> total + the cotangent of operand 0.
OntoRule = Callable[..., Value]

# (size, which operands have a leading axis of it, operands, ...) -> results with that axis, or
# `Batched` where some have none. higher: (transforms, size, ...).
BatchRule = Callable[..., AnyValue | AnyValues | Batched]

# (types of the operands, ...) -> what computes the result, or each of several. The types are of
# arrays, except for ops on tapes and ops that hold programs.
LoopsRule = Callable[..., Loops | Sequence[Loops]]

# Uses of the op for the contract tests.
SamplesRule = Callable[[Draws], Iterable[Sample]]

# Puts an op into the deferred program: record(op, *operands, ...) -> its results.
Record = Callable[Concatenate[Op, ...], AnyValues]

# (transforms, record, which operands are unknown, operands, ...) -> results.
SplitRule = Callable[Concatenate[Transforms, Record, Mask, AnyValues, ...], AnyValues]

# (operands, parameters) -> both, without captured values inside the programs.
Params = dict[str, Any]  # whatever the op takes
CloseRule = Callable[[tuple[AnyValue, ...], Params], tuple[tuple[AnyValue, ...], Params]]

# (equation, which results are live) -> the equation without the others.
DceRule = Callable[[Eqn, Mask], Eqn]

# (*operands, ...) -> the same results by other ops.
DecomposeRule = Callable[..., AnyValue | AnyValues]

# The effects of an equation, or how they follow from its parameters.
Effects = frozenset[str] | Callable[..., frozenset[str]]


class Rules(TypedDict, total=False):
    """What `fxad.ops.base.define` takes beside a name and the type rule."""

    batch: BatchRule | None
    close: CloseRule | None
    dce: DceRule | None
    decompose: DecomposeRule | None
    doc: str
    dtypes: str
    effects: Effects | None
    exact: bool
    higher: bool
    joint: bool
    jvp: JvpRule | Literal["linear"] | None
    loops: LoopsRule | None
    makes_nan: bool | Callable[..., bool]
    numpy: NumpyRule
    onto: OntoRule | None
    runs: str | None
    samples: SamplesRule | None
    split: SplitRule | None
    transpose: TransposeRule | Literal["inside"] | None
    ulp: Mapping[str, float] | None
    weak: tuple[int, ...] | Literal["each"] | None


class AllRules(Rules, total=False):
    """The rules with that of the type, by which `define` tells how many results an op has."""

    type: TypeRule
