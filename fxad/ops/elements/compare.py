"""Ops on truth values and bits: comparisons, logic, shifts, counting bits, select.

    select(lt(x, 0.0), neg(x), x)     # |x|
    shl(x, 3)                         # x: u32[4] -> u32[4]

Integer results are exact. Shifts by the width of the type or more, and by negative amounts,
give 0 on every backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.rewrite import literal
from fxad.ops.base import ANY, Primitive, case, define, fails, known, value_of
from fxad.ops.elements.pointwise import (
    Elementwise,
    binary,
    common_shape,
    elementwise_batch,
    fit,
    prim,
    unary,
)
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import AnyValue, Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

ORDERED = "bool int float"

# ---------------------------------------------------------------- comparisons


def _comparison(name: str, dtypes: str, doc: str) -> Primitive[Array]:
    return binary(
        name,
        doc=doc,
        exact=True,
        dtypes=dtypes,
        samples=lambda r: [
            case(r.x(3, 4), r.x(3, 4)),
            case(r.lit(1), r.x(5)),
            case(r.x(), r.x()),
            fails(r.x(3), r.x(2), saying=f"{name}: operands differ in shape"),
        ],
    )


eq = _comparison("eq", ANY, "x == y; false where either is NaN.")
ne = _comparison("ne", ANY, "x != y; true where either is NaN.")
lt = _comparison("lt", ORDERED, "x < y; false where either is NaN.")
le = _comparison("le", ORDERED, "x <= y; false where either is NaN.")
gt = _comparison("gt", ORDERED, "x > y; false where either is NaN.")
ge = _comparison("ge", ORDERED, "x >= y; false where either is NaN.")

is_finite = unary(
    "is_finite",
    doc="Neither infinite nor NaN (for complex: both parts).",
    exact=True,
    samples=lambda r: [case(r.x(3)), case(r.lit(float("nan"))), case(r.lit(float("inf")))],
)

# ---------------------------------------------------------------- logic and bits


def _logic(name: str, doc: str) -> Primitive[Array]:
    return binary(name, doc=doc, dtypes="bool int", exact=True)


and_ = _logic("and", "Bitwise and; logical for bools.")
or_ = _logic("or", "Bitwise or; logical for bools.")
xor = _logic("xor", "Bitwise exclusive or; != for bools.")
not_ = unary(
    "not",
    doc="Bitwise complement; logical not for bools.",
    dtypes="bool int",
    exact=True,
)


def _shifting(name: str, doc: str) -> Primitive[Array]:
    return binary(
        name,
        doc=doc,
        dtypes="int",
        exact=True,
        samples=lambda r: [
            case(r.x(3, 4), r.x(3, 4, low=0, high=7)),
            case(r.x(5), r.lit(100)),
            case(r.x(5), r.lit(8 * r.dtype.itemsize - 1)),
        ],
    )


shl = _shifting("shl", "x shifted to the left by y bits.")
shr_logical = _shifting("shr_logical", "x shifted to the right by y bits, zeros enter.")
shr_arith = _shifting("shr_arith", "x shifted to the right by y bits, the top bit enters.")


popcount = unary(
    "popcount",
    doc="How many bits are set.",
    dtypes="int",
    exact=True,
)
clz = unary(
    "clz",
    doc="How many of the highest bits are zero; the width for 0.",
    dtypes="int",
    exact=True,
    samples=lambda r: [case(r.x(3, 4)), case(r.lit(0)), case(r.x(0))],
)


mul_high = binary(
    "mul_high",
    doc="The upper half of the product of two integers, computed in twice their width.",
    dtypes="int",
    exact=True,
    samples=lambda r: [
        case(r.x(3, 4), r.x(3, 4)),
        case(r.lit(dt.iinfo(r.dtype).max), r.x(5)),
        case(r.lit(dt.iinfo(r.dtype).min), r.lit(dt.iinfo(r.dtype).max)),
    ],
)

# ---------------------------------------------------------------- select


class Select(Elementwise):
    """Python numbers among the two branches take the dtype of the other branch."""

    __slots__ = ()

    def __call__(self, *args: AnyValue, **params: Any) -> Array:
        cond, *branches = args
        arrays = [b for b in branches if type(b) not in (int, float, bool, complex)]
        if arrays:
            dtype = type_of(arrays[0]).dtype
            branches = [b if b is arrays[0] else _number(b, dtype) for b in branches]
        return super().__call__(cond, *branches, **params)


def _number(value: AnyValue, dtype: np.dtype) -> AnyValue:
    return literal(value, dtype) if type(value) in (int, float, bool, complex) else value


def _select_type(cond: ArrayType, on_true: ArrayType, on_false: ArrayType) -> ArrayType:
    if not dt.is_bool(cond.dtype):
        raise TypeMismatch(f"select: the condition must be bool, got {cond}; compare it with 0")
    if on_true.dtype != on_false.dtype:
        raise TypeMismatch(
            f"select: branches differ in dtype: {on_true} and {on_false}; convert one side"
        )
    shape = common_shape("select", (cond, on_true, on_false))
    return ArrayType(on_true.dtype, shape)


def _select_jvp(primals: Values, tangents: Tangents, out: Value) -> Value | None:
    zero = literal(0, type_of(out).dtype)
    on_true, on_false = (zero if t is None else t for t in tangents[1:])
    return select(primals[0], on_true, on_false)


def _select_transpose(ct: Value, args: Operands) -> Cotangents:
    cond, on_true, on_false = value_of(args[0]), *args[1:]
    zero = literal(0, type_of(ct).dtype)
    return [
        None,
        None if known(on_true) else fit(select(cond, ct, zero), on_true),
        None if known(on_false) else fit(select(cond, zero, ct), on_false),
    ]


select = define(
    "select",
    kind=Select,
    doc="on_true where cond holds, else on_false; the branch not taken passes no gradient.",
    type=_select_type,
    numpy=np.where,
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=elementwise_batch("select"),
    loops=prim("select"),
    weak=(1, 2),
    exact=True,
    dtypes=ANY,
    samples=lambda r: [
        case(r.bool(3, 4), r.x(3, 4), r.x(3, 4)),
        case(r.bool(5), r.x(5), r.lit(0)),
        case(r.bool(5), r.lit(1), r.x(5)),
        case(r.bool(), r.x(), r.x()),
        fails(r.bool(3), r.x(2), r.x(2), saying="select: operands differ in shape"),
        fails(r.i32(3), r.x(3), r.x(3), saying="must be bool"),
    ],
)
