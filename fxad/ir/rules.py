"""The rules of an op, as types: what each is handed and what it answers.

    rule: BatchRule = lambda size, batched, args, *, axis: sum(args[0], axis=axis + 1)

For type checkers alone: nothing imports this at run time. `fxad.ops.base` says what rules mean.
`...` stands for the op's own parameters, by keyword. Rules of ops that hold programs (`higher`)
are handed the `Transforms` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypedDict

from fxad.core.masks import Mask
from fxad.core.types import Type
from fxad.ir.loops import Loops
from fxad.ir.program import Eqn, Program

# What ops are bound to: an Array (tracers are Arrays), a NumPy array, a number, a tape. These are
# classes of the rooms above, and a rule calculates with them.
Value = Any
Values = Any  # of the results: a Value, or a tuple of them where an op has several


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


class Calls(Protocol):
    """How programs inside an op are made and called."""

    def run(self, program: Program, args: Sequence[Value], /) -> list[Any]:
        """Results of a Program in the current context."""

    def stage(
        self, function: Callable[..., Sequence[Value]], types: Sequence[Type], name: str = "f", /
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

    def zeros(self, type: Type, /) -> Value:
        """An array of zeros, or an empty tape."""


# (*types of the operands, ...) -> types of the results. Raises ShapeError or TypeMismatch.
TypeRule = Callable[..., Type | tuple[Type, ...]]

# (*NumPy arrays, ...) -> NumPy arrays of exactly those types; of tapes, TapeValues.
NumpyRule = Callable[..., Values]

# (primals, tangents, results, ...) -> tangents of the results; None: zero, for operands too.
# higher: (transforms, primals, tangents, ...) -> (results, their tangents).
JvpRule = Callable[..., Values]

# (cotangents, operands, ...) -> a cotangent per operand; None: zero, or not linear. Linear
# operands are `Unknown`s. higher: (transforms, cotangents, operands, ...).
TransposeRule = Callable[..., Iterable[Value]]

# (total, cotangent, operands, ...) -> total + the cotangent of operand 0.
OntoRule = Callable[Concatenate[Value, Value, Sequence[Value], ...], Value]

# (size, which operands have a leading axis of it, operands, ...) -> results with that axis, or
# `Batched` where some have none. higher: (transforms, size, ...).
BatchRule = Callable[..., Values]

# (types of the operands, ...) -> what computes the result, or each of several. The types are of
# arrays, except for ops on tapes and ops that hold programs.
LoopsRule = Callable[..., Loops | Sequence[Loops]]

# (draws of arrays and numbers) -> uses of the op, `Sample`s, for the contract tests.
SamplesRule = Callable[[Any], Iterable[Any]]

# (transforms, record, which operands are unknown, operands, ...) -> results; record(op, *args,
# ...) puts an op into the deferred program.
SplitRule = Callable[..., Sequence[Value]]

# (operands, parameters) -> both, without captured values inside the programs.
CloseRule = Callable[[tuple[Value, ...], dict[str, Any]], tuple[tuple[Value, ...], dict[str, Any]]]

# (equation, which results are live) -> the equation without the others.
DceRule = Callable[[Eqn, tuple[bool, ...]], Eqn]

# (*operands, ...) -> the same results by other ops.
DecomposeRule = Callable[..., Values]

# The effects of an equation, or how they follow from its parameters.
Effects = frozenset[str] | Callable[..., frozenset[str]]


class Rules(TypedDict, total=False):
    """What `fxad.ops.base.define` takes beside a name."""

    batch: BatchRule | None
    close: CloseRule | None
    dce: DceRule | None
    decompose: DecomposeRule | None
    doc: str
    dtypes: str
    effects: Effects | None
    exact: bool
    higher: bool
    jvp: JvpRule | Literal["linear"] | None
    loops: LoopsRule | None
    numpy: NumpyRule
    onto: OntoRule | None
    samples: SamplesRule | None
    split: SplitRule | None
    transpose: TransposeRule | Literal["inside"] | None
    type: TypeRule
    ulp: Mapping[str, float] | None
