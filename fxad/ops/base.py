"""`define`: make an op. One record holds its type rule, reference, derivatives and loop body.

    transpose = define("transpose", type=..., numpy=np.transpose, jvp="linear", transpose=..., ...)

`unary` and `binary` (`fxad/ops/elements/pointwise.py`) fill in most of it for elementwise ops.

The rules of an op (`fxad.ir.rules` has their types)
    type(*types, **params)          result type, or a tuple of types for several results;
                                    raises ShapeError / TypeMismatch saying what was seen
    numpy(*arrays, **params)        the reference: NumPy result of exactly that type
    jvp(primals, tangents, outs, **params)
                                    tangent(s) of the result(s); missing tangents are None.
                                    "linear" says: apply the op itself to the tangents
    joint                           whether jvp(primals, tangents, **params) gives results and
                                    tangents together, as JAX's rules do
    transpose(cotangents, args, **params)
                                    one cotangent per operand (None where not linear); `args`
                                    holds values, or `Unknown(type)` for linear operands.
                                    "inside" says: as if its program's equations stood there
    onto(total, cotangent, args, **params)
                                    total + the cotangent of operand 0, which is mostly zeros, for
                                    less than the cost of adding all of it
    batch(size, batched, args, **params)
                                    results with a new leading axis, given operands that have one
                                    where `batched` says so; `Batched(values, flags)` if some
                                    results have none
    loops(types, **params)          loop body, a record of `fxad.ir.loops`
    ulp                             bound of the compiled result's error per dtype kind (f32...)
    makes_nan                       whether a result may be NaN though no operand is, or how that
                                    follows from the parameters; where nothing is said, whether
                                    results are rounded (not `exact`)
    weak                            positions of the operands that decide whether results are
                                    weakly typed: they are where all of these are. Where nothing is
                                    said, all operands; (): results are strong; "each": every result
                                    is as its operand. (Whoever binds an op that holds programs
                                    marks its results.)
    dtypes                          kinds of element types it accepts: "bool int float complex"
    samples(r)                      Samples for the contract tests; r draws arrays
    split(t, record, unknown, args, **params)
                                    for ops that hold programs: bind the known half, put the other
                                    half into the deferred program with record(op, ...)
    close(args, params)             for ops that hold programs: operands and parameters without
                                    captured values inside the programs (see `programs/captures.py`)
    dce(eqn, live)                  the equation without the results not marked live
    runs                            for ops that call one program: the parameter that holds it. The
                                    others say how to differentiate or batch, and are gone when
                                    the call is inlined
    effects                         see Program and `fxad.ops.programs.control`
    decompose(*args, **params)      the same results by other ops, where there is no loop body

Ops that hold sub-programs are `higher`: their rules take the transforms `t` first (see
`fxad.transform.context`), and their jvp computes primal and tangent results together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Eqn, Number, Op
from fxad.ir.program import Unknown as Unknown
from fxad.ir.rewrite import literal
from fxad.trace.tracer import bind
from fxad.trace.tracer import type_of as type_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from fxad.ir.rules import (
        AllRules,
        AnyOperands,
        AnyTangents,
        AnyValue,
        JvpRule,
        Operands,
        Rules,
        Tangents,
        Value,
        Values,
    )
    from fxad.ir.tape import TapeValue
    from fxad.trace.array import Array

Result = TypeVar("Result", covariant=True)

ANY = "bool int float complex"  # all kinds of element types


class Primitive(Op, Generic[Result]):
    """An op that can be called on values: records or runs it.

    Result: Array, or a tuple of Arrays where its type rule gives a tuple of types. (The tapes
    among several results count as Arrays, which they are when traced.)
    """

    __slots__ = ()

    def __call__(self, *args: AnyValue, **params: Any) -> Result:
        return bind(self, *args, **params)


@valued
class Batched:
    """Results of a batch rule of which only some are batched."""

    values: tuple[AnyValue, ...]
    flags: tuple[bool, ...]


@valued
class Sample:
    """One use of an op in the contract tests. `saying`: it must fail with this text."""

    args: tuple[AnyValue, ...]
    params: dict[str, Any]  # whatever the op takes
    saying: str = ""


def case(*args: AnyValue, **params: Any) -> Sample:
    return Sample(args, params)


def fails(*args: AnyValue, saying: str, **params: Any) -> Sample:
    return Sample(args, params, saying)


@overload
def define(
    name: str,
    *,
    kind: type[Primitive[Any]] = ...,
    type: Callable[..., ArrayType],
    **rules: Unpack[Rules],
) -> Primitive[Array]: ...
@overload
def define(
    name: str,
    *,
    kind: type[Primitive[Any]] = ...,
    type: Callable[..., tuple[Type, ...]],
    **rules: Unpack[Rules],
) -> Primitive[tuple[Array, ...]]: ...
@overload
def define(
    name: str,
    *,
    kind: type[Primitive[Any]] = ...,
    type: Callable[..., TapeType],
    **rules: Unpack[Rules],
) -> Primitive[TapeValue]: ...
def define(
    name: str, *, kind: type[Primitive[Any]] = Primitive, **rules: Unpack[AllRules]
) -> Primitive[Any]:
    """Make an op and enter it into the table. Raises ValueError if the name is taken, a rule is
    unknown, or nothing says how the op is compiled (neither `loops` nor `decompose`).

    Type checkers read from the type rule what the op returns; one that is named by lambdas among
    its own rules says it: `name: Primitive[Array] = define(...)`.
    """
    if name in OPS:
        raise ValueError(f"op {name!r} is already defined")
    unknown = set(rules) - set(Op.__slots__)
    if unknown:
        raise ValueError(f"op {name!r}: unknown rules {sorted(unknown)}")
    if rules.get("loops") is None and rules.get("decompose") is None:
        raise ValueError(
            f"op {name!r} could not be compiled: neither loops= nor decompose= is given; "
            "give the loops that compute it, or a function that computes it by other ops"
        )
    op = kind(name, **rules)
    if rules.get("jvp") == "linear":
        op.jvp = _linear_jvp(op)
    if op.makes_nan is None:
        op.makes_nan = not op.exact
    if op.dtypes is None:
        op.dtypes = "float complex int bool"
    OPS[name] = op
    return op


def _linear_jvp(op: Primitive[Any]) -> JvpRule:
    """The derivative of an op linear in all its differentiable operands is the op itself."""

    def jvp(primals: Values, tangents: Tangents, outs: object, **params: Any) -> Any:
        values: list[AnyValue] = []
        for primal, tangent in zip(primals, tangents, strict=True):
            type_ = type_of(primal)
            if tangent is not None or not dt.is_differentiable(type_.dtype):
                values.append(primal if tangent is None else tangent)
            else:
                values.append(zeros(type_))
        return op(*values, **params)

    return jvp


def op(name: str, *args: AnyValue, **params: Any) -> Array:
    """Apply the op of this name, which has one result."""
    return OPS[name](*args, **params)


def all_params(eqn: Eqn) -> dict[str, Any]:
    """The parameters of an equation; those it leaves out are its op's type rule's defaults."""
    return {**(eqn.op.type.__kwdefaults__ or {}), **eqn.params}


@overload
def zeros(type: ArrayType) -> Array: ...
@overload
def zeros(type: Type) -> AnyValue: ...
def zeros(type: Type) -> Any:
    """An array of zeros; of a tape's type, an empty tape (which reads as zeros)."""
    if isinstance(type, TapeType):
        return bind(OPS["tape_new"], type=type)
    return bind(OPS["broadcast"], literal(0, type.dtype), shape=type.shape, axes=())


def tangent_type(type: Type) -> Type:
    """The type of a value's tangents: for a tape, a tape of its differentiable blocks."""
    if isinstance(type, TapeType):
        blocks = tuple([tangent_type(b) for b in type.blocks if differentiable(b)])
        return TapeType(blocks, type.lanes)
    return type


def differentiable(type: Type) -> bool:
    """Whether values of a type carry tangents: inexact arrays, and tapes that hold any."""
    if isinstance(type, TapeType):
        return any(map(differentiable, type.blocks))
    return dt.is_differentiable(type.dtype)


@overload
def plus(first: Value, second: Value) -> Array: ...
@overload
def plus(first: AnyValue, second: AnyValue) -> AnyValue: ...
def plus(first: AnyValue, second: AnyValue) -> Any:
    """The sum of two cotangents of one type, arrays or tapes."""
    name = "tape_add" if isinstance(type_of(first), TapeType) else "add"
    return bind(OPS[name], first, second)


def full(value: Number, type: ArrayType) -> Array:
    """An array of one number."""
    return bind(OPS["broadcast"], literal(value, type.dtype), shape=type.shape, axes=())


def check_kind(name: str, type: ArrayType, allowed: str) -> None:
    if dt.kind_of(type.dtype) not in allowed:  # no kind's name is part of another's
        raise TypeMismatch(f"{name}: does not take {type}; it takes {allowed.replace(' ', ', ')}")


@overload
def spread(value: Value, size: int) -> Array: ...
@overload
def spread(value: AnyValue, size: int) -> AnyValue: ...
def spread(value: AnyValue, size: int) -> Any:
    """Repeat a value along a new leading axis."""
    type_ = type_of(value)
    if isinstance(type_, TapeType):
        return bind(OPS["tape_lanes"], value, size=size, at=0)
    axes = tuple(range(1, type_.ndim + 1))
    return bind(OPS["broadcast"], value, shape=(size, *type_.shape), axes=axes)


def narrow(wide: np.ndarray | np.generic | Number, dtype: np.dtype) -> np.ndarray:
    """Round once to a dtype; results too small for a normal bf16 number are zeros, as in code
    compiled to native conversions."""
    result = np.asarray(wide).astype(dtype)
    if dtype != dt.bfloat16:
        return result
    tiny = np.abs(result) < dt.finfo(dtype).smallest_normal
    return np.where(tiny, np.copysign(dtype.type(0), result), result)


@overload
def known(operand: Value | Unknown) -> TypeIs[Value]: ...
@overload
def known(operand: AnyValue | Unknown) -> TypeIs[AnyValue]: ...
def known(operand: AnyValue | Unknown) -> bool:
    """Whether a transpose rule's operand is a value rather than a linear unknown."""
    return not isinstance(operand, Unknown)


@overload
def value_of(operand: Value | Unknown) -> Value: ...
@overload
def value_of(operand: AnyValue | Unknown) -> AnyValue: ...
def value_of(operand: AnyValue | Unknown) -> AnyValue:
    """A transpose rule's operand in which the op is not linear."""
    assert not isinstance(operand, Unknown), "the op is not linear in all these operands at once"
    return operand


@overload
def values_of(operands: Operands) -> list[Value]: ...
@overload
def values_of(operands: AnyOperands) -> list[AnyValue]: ...
def values_of(operands: AnyOperands) -> Sequence[AnyValue]:
    """Operands of a transpose rule in which the op is not linear, such as indices."""
    return [value_of(operand) for operand in operands]


@overload
def operand_type(operand: Value | Unknown) -> ArrayType: ...
@overload
def operand_type(operand: AnyValue | Unknown) -> Type: ...
def operand_type(operand: AnyValue | Unknown) -> Any:
    """The type of a transpose rule's operand, known or not."""
    return operand.type if isinstance(operand, Unknown) else type_of(operand)


def known_values(operands: AnyOperands) -> list[AnyValue]:
    """Those of a transpose rule's operands that are values."""
    return [operand for operand in operands if known(operand)]


@overload
def nonzero(tangents: Tangents) -> list[Value]: ...
@overload
def nonzero(tangents: AnyTangents) -> list[AnyValue]: ...
def nonzero(tangents: AnyTangents) -> Sequence[AnyValue]:
    """The tangents or cotangents that there are: None stands for zero."""
    return [tangent for tangent in tangents if tangent is not None]


@overload
def only(tangents: Tangents) -> Value: ...
@overload
def only(tangents: AnyTangents) -> AnyValue: ...
def only(tangents: AnyTangents) -> AnyValue:
    """The tangent of the one operand that can have one: no jvp rule is called without any."""
    (tangent,) = nonzero(tangents)
    return tangent
