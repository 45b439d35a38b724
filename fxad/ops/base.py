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
    dtypes                          kinds of element types it accepts: "bool int float complex"
    samples(r)                      Samples for the contract tests; r draws arrays
    split(t, record, unknown, args, **params)
                                    for ops that hold programs: bind the known half, put the other
                                    half into the deferred program with record(op, ...)
    close(args, params)             for ops that hold programs: operands and parameters without
                                    captured values inside the programs (see `programs/captures.py`)
    dce(eqn, live)                  the equation without the results not marked live
    effects                         see Program and `fxad.ops.programs.control`
    decompose(*args, **params)      the same results by other ops, where there is no loop body

Ops that hold sub-programs are `higher`: their rules take the transforms `t` first (see
`fxad.transform.context`), and their jvp computes primal and tangent results together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.record import valued
from fxad.core.types import ArrayType, TapeType, Type
from fxad.ir.program import OPS, Eqn, Op
from fxad.ir.rewrite import literal
from fxad.trace.tracer import bind
from fxad.trace.tracer import type_of as type_of

if TYPE_CHECKING:
    from fxad.ir.rules import JvpRule, Rules, Value

ANY = "bool int float complex"  # all kinds of element types


class Primitive(Op):
    """An op that can be called on values: records or runs it."""

    __slots__ = ()

    def __call__(self, *args: Any, **params: Any) -> Any:
        return bind(self, *args, **params)


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


@valued
class Batched:
    """Results of a batch rule of which only some are batched."""

    values: tuple[Any, ...]
    flags: tuple[bool, ...]


@valued
class Sample:
    """One use of an op in the contract tests. `saying`: it must fail with this text."""

    args: tuple[Value, ...]
    params: dict[str, Any]  # whatever the op takes
    saying: str = ""


def case(*args: Value, **params: Any) -> Sample:
    return Sample(args, params)


def fails(*args: Value, saying: str, **params: Any) -> Sample:
    return Sample(args, params, saying)


def define(name: str, *, kind: type[Primitive] = Primitive, **rules: Unpack[Rules]) -> Primitive:
    """Make an op and enter it into the table. Raises if the name is taken or a rule unknown."""
    if name in OPS:
        raise ValueError(f"op {name!r} is already defined")
    unknown = set(rules) - set(Op.__slots__)
    if unknown:
        raise ValueError(f"op {name!r}: unknown rules {sorted(unknown)}")
    op = kind(name, **rules)
    if rules.get("jvp") == "linear":
        op.jvp = _linear_jvp(op)
    if op.dtypes is None:
        op.dtypes = "float complex int bool"
    OPS[name] = op
    return op


def _linear_jvp(op: Primitive) -> JvpRule:
    """The derivative of an op linear in all its differentiable operands is the op itself."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], outs: Any, **params: Any) -> Any:
        values = []
        for primal, tangent in zip(primals, tangents, strict=True):
            type_ = type_of(primal)
            if tangent is not None or not dt.is_differentiable(type_.dtype):
                values.append(primal if tangent is None else tangent)
            else:
                values.append(zeros(type_))
        return op(*values, **params)

    return jvp


def all_params(eqn: Eqn) -> dict[str, Any]:
    """The parameters of an equation; those it leaves out are its op's type rule's defaults."""
    return {**(eqn.op.type.__kwdefaults__ or {}), **eqn.params}


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


def plus(first: Any, second: Any) -> Any:
    """The sum of two cotangents of one type, arrays or tapes."""
    name = "tape_add" if isinstance(type_of(first), TapeType) else "add"
    return bind(OPS[name], first, second)


def full(value: Any, type: ArrayType) -> Any:
    """An array of one number."""
    return bind(OPS["broadcast"], literal(value, type.dtype), shape=type.shape, axes=())


def check_kind(name: str, type: ArrayType, allowed: str) -> None:
    if dt.kind_of(type.dtype) not in allowed:  # no kind's name is part of another's
        raise TypeMismatch(f"{name}: does not take {type}; it takes {allowed.replace(' ', ', ')}")


def spread(value: Any, size: int) -> Any:
    """Repeat a value along a new leading axis."""
    type_ = type_of(value)
    if isinstance(type_, TapeType):
        return bind(OPS["tape_lanes"], value, size=size, at=0)
    axes = tuple(range(1, type_.ndim + 1))
    return bind(OPS["broadcast"], value, shape=(size, *type_.shape), axes=axes)


def narrow(wide: Any, dtype: np.dtype) -> np.ndarray:
    """Round once to a dtype; results too small for a normal bf16 number are zeros, as in code
    compiled to native conversions."""
    result = np.asarray(wide).astype(dtype)
    if dtype != dt.bfloat16:
        return result
    tiny = np.abs(result) < dt.finfo(dtype).smallest_normal
    return np.where(tiny, np.copysign(dtype.type(0), result), result)


def known(arg: Any) -> bool:
    """Whether a transpose rule's operand is a value rather than a linear unknown."""
    return not isinstance(arg, Unknown)
