"""Ops on truth values and bits: comparisons, logic, shifts, counting bits, select.

    select(lt(x, 0.0), neg(x), x)     # |x|
    shl(x, 3)                         # x: u32[4] -> u32[4]

Integer results are exact. Shifts by the width of the type or more, and by negative amounts,
give 0 on every backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Prim
from fxad.ir.loops import Pointwise
from fxad.ir.rewrite import literal
from fxad.ops.base import Primitive, case, define, fails, known
from fxad.ops.elements.pointwise import (
    Elementwise,
    binary,
    common_shape,
    compare_prim,
    elementwise_batch,
    fit,
    same_type,
    unary,
)
from fxad.trace.tracer import type_of

ORDERED = "bool int float"
ANY = "bool int float complex"

# ---------------------------------------------------------------- comparisons


def _bool_type(name: str, allowed: str) -> Callable[..., ArrayType]:
    check = same_type(name, allowed)
    return lambda *types: check(*types).with_dtype(dt.bool_)


def _comparison(name: str, function: Callable[..., Any], dtypes: str, doc: str) -> Primitive:
    return binary(
        name,
        doc=doc,
        numpy=function,
        type=_bool_type(name, dtypes),
        loops=compare_prim(name),
        exact=True,
        dtypes=dtypes,
        samples=lambda r: [
            case(r.x(3, 4), r.x(3, 4)),
            case(r.lit(1), r.x(5)),
            case(r.x(), r.x()),
            fails(r.x(3), r.x(2), saying=f"{name}: operands differ in shape"),
        ],
    )


eq = _comparison("eq", np.equal, ANY, "x == y; false where either is NaN.")
ne = _comparison("ne", np.not_equal, ANY, "x != y; true where either is NaN.")
lt = _comparison("lt", np.less, ORDERED, "x < y; false where either is NaN.")
le = _comparison("le", np.less_equal, ORDERED, "x <= y; false where either is NaN.")
gt = _comparison("gt", np.greater, ORDERED, "x > y; false where either is NaN.")
ge = _comparison("ge", np.greater_equal, ORDERED, "x >= y; false where either is NaN.")

is_finite = unary(
    "is_finite",
    doc="Neither infinite nor NaN (for complex: both parts).",
    numpy=np.isfinite,
    type=_bool_type("is_finite", "float complex"),
    loops=compare_prim("is_finite"),
    exact=True,
    samples=lambda r: [case(r.x(3)), case(r.lit(float("nan"))), case(r.lit(float("inf")))],
)

# ---------------------------------------------------------------- logic and bits


def _logic(name: str, function: Callable[..., Any], doc: str) -> Primitive:
    return binary(name, doc=doc, numpy=function, dtypes="bool int", exact=True)


and_ = _logic("and", np.bitwise_and, "Bitwise and; logical for bools.")
or_ = _logic("or", np.bitwise_or, "Bitwise or; logical for bools.")
xor = _logic("xor", np.bitwise_xor, "Bitwise exclusive or; != for bools.")
not_ = unary(
    "not",
    doc="Bitwise complement; logical not for bools.",
    numpy=np.bitwise_not,
    dtypes="bool int",
    exact=True,
)


def _unsigned(x: np.ndarray) -> np.ndarray:
    """The same bits as an unsigned integer."""
    return np.asarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _signed(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))


def _shift(
    function: Callable[..., np.ndarray], view: Callable[[np.ndarray], np.ndarray]
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """`function` on the bits of x seen as `view`; amounts out of range move every bit out."""

    def rule(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits, amount = view(x), _unsigned(y)
        last = 8 * x.dtype.itemsize - 1
        shifted = function(bits, np.minimum(amount, last).astype(bits.dtype))
        if view is _unsigned:  # signed bits are all the sign by now
            shifted = np.where(amount > last, bits.dtype.type(0), shifted)
        return shifted.view(x.dtype)

    return rule


def _shifting(
    name: str,
    function: Callable[..., np.ndarray],
    view: Callable[[np.ndarray], np.ndarray],
    doc: str,
) -> Primitive:
    return binary(
        name,
        doc=doc,
        numpy=_shift(function, view),
        dtypes="int",
        exact=True,
        samples=lambda r: [
            case(r.x(3, 4), r.x(3, 4, low=0, high=7)),
            case(r.x(5), r.lit(100)),
            case(r.x(5), r.lit(8 * r.dtype.itemsize - 1)),
        ],
    )


shl = _shifting("shl", np.left_shift, _unsigned, "x shifted to the left by y bits.")
shr_logical = _shifting(
    "shr_logical", np.right_shift, _unsigned, "x shifted to the right by y bits, zeros enter."
)
shr_arith = _shifting(
    "shr_arith", np.right_shift, _signed, "x shifted to the right by y bits, the top bit enters."
)


def _count_leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = _unsigned(x).copy()
    width = 8 * x.dtype.itemsize
    count = np.full(bits.shape, width)
    for _ in range(width):
        count -= bits != 0
        bits >>= bits.dtype.type(1)
    return count.astype(x.dtype)


popcount = unary(
    "popcount",
    doc="How many bits are set.",
    numpy=lambda x: np.bitwise_count(_unsigned(x)).astype(x.dtype),
    dtypes="int",
    exact=True,
)
clz = unary(
    "clz",
    doc="How many of the highest bits are zero; the width for 0.",
    numpy=_count_leading_zeros,
    dtypes="int",
    exact=True,
    samples=lambda r: [case(r.x(3, 4)), case(r.lit(0)), case(r.x(0))],
)


def _mul_high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    if width < 64:
        wide = np.dtype(x.dtype.kind + "8")
        return np.right_shift(x.astype(wide) * y.astype(wide), width).astype(x.dtype)
    high = (x.astype(object) * y.astype(object)) // 2**width
    return np.asarray(high).astype(x.dtype)


mul_high = binary(
    "mul_high",
    doc="The upper half of the product of two integers, computed in twice their width.",
    numpy=_mul_high,
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

    def __call__(self, *args: Any, **params: Any) -> Any:
        cond, *branches = args
        arrays = [b for b in branches if type(b) not in (int, float, bool, complex)]
        if arrays:
            dtype = type_of(arrays[0]).dtype
            branches = [b if b is arrays[0] else _number(b, dtype) for b in branches]
        return super().__call__(cond, *branches, **params)


def _number(value: Any, dtype: np.dtype) -> Any:
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


def _select_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any) -> Any:
    zero = literal(0, type_of(out).dtype)
    on_true, on_false = (zero if t is None else t for t in tangents[1:])
    return select(primals[0], on_true, on_false)


def _select_transpose(ct: Any, args: Sequence[Any]) -> list[Any]:
    cond, on_true, on_false = args
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
    numpy=lambda cond, on_true, on_false: np.where(cond, on_true, on_false),
    jvp=_select_jvp,
    transpose=_select_transpose,
    batch=elementwise_batch("select"),
    loops=lambda types: Pointwise(lambda c, x, y: Prim("select", (c, x, y), x.dtype)),
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
