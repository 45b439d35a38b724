"""Arithmetic ops: sums, products, quotients, signs, rounding, extrema.

    add(x, y)          # x, y: f32[3] -> f32[3]

Operands have one dtype and one shape, or are numbers. Integers wrap; x / 0 and x rem 0 are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.semantics import semantics
from fxad.core.types import ArrayType
from fxad.ir.kernel import Prim
from fxad.ir.loops import Pointwise
from fxad.ir.prims_numpy import maximum, minimum
from fxad.ir.program import OPS, Lit, Number
from fxad.ir.rewrite import literal
from fxad.ops.base import Primitive, case, define, fails, known, narrow, value_of
from fxad.ops.elements.compare import eq, ge, gt, lt, select
from fxad.ops.elements.pointwise import (
    Elementwise,
    binary,
    elementwise_batch,
    fit,
    numpy_elementwise,
    same_type,
    unary,
)
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Cotangents, Operands, Tangents, Value, Values
    from fxad.trace.array import Array

NUMBERS = "float complex int"
ROUNDED = {"f16": 0, "bf16": 0, "f32": 0, "f64": 0, "c64": 2, "c128": 2}
# ---------------------------------------------------------------- add, sub, mul, div, rem


def _same(d: Value, x: Value, y: Value, out: Value) -> Value:
    return d


def _add_transpose(ct: Value, args: Operands) -> Cotangents:
    return [None if known(a) else fit(ct, a) for a in args]


def _sub_transpose(ct: Value, args: Operands) -> Cotangents:
    x, y = args
    return [None if known(x) else fit(ct, x), None if known(y) else neg(fit(ct, y))]


def _mul_transpose(ct: Value, args: Operands) -> Cotangents:
    x, y = args
    if not known(x):
        return [fit(mul(ct, value_of(y)), x), None]
    return [None, None if known(y) else fit(mul(x, ct), y)]


add = binary(
    "add",
    doc="x + y.",
    jvp=(_same, _same),
    transpose=_add_transpose,
    exact=True,
    makes_nan=True,
    samples=lambda r: [
        case(r.x(3, 4), r.x(3, 4)),
        case(r.x(5), r.lit(2)),
        case(r.lit(2), r.x(5)),
        case(r.x(), r.x()),
        case(r.x(0, 3), r.x(0, 3)),
        fails(r.x(3), r.x(4), saying="add: operands differ in shape"),
        fails(r.x(3), r.bool(3), saying="add: operands differ in dtype"),
    ],
)
sub = binary(
    "sub",
    doc="x - y.",
    jvp=(_same, lambda d, x, y, out: neg(d)),
    transpose=_sub_transpose,
    exact=True,
    makes_nan=True,
)
mul = binary(
    "mul",
    doc="x * y.",
    jvp=(lambda d, x, y, out: mul(d, y), lambda d, x, y, out: mul(x, d)),
    transpose=_mul_transpose,
    ulp=ROUNDED,
)


def _division(name: str) -> Callable[..., Pointwise]:
    """Integers are divided by a number that is known with multiplications and shifts."""

    def loops(types: Sequence[ArrayType], **params: Any) -> Pointwise:
        known = dt.is_integer(types[0].dtype)
        return Pointwise(lambda *xs: Prim(name, xs, xs[0].dtype), known)

    return loops


div = binary(
    "div",
    loops=_division("div"),
    doc="x / y; integers round towards 0, and x / 0 is 0.",
    jvp=(lambda d, x, y, out: div(d, y), lambda d, x, y, out: neg(mul(div(out, y), d))),
    transpose=lambda ct, args: [fit(div(ct, args[1]), args[0]), None],
    ulp={**ROUNDED, "c64": 4, "c128": 4},
    samples=lambda r: [
        case(r.x(3, 4), r.x(3, 4)),
        case(r.x(5), r.lit(3)),
        case(r.lit(3), r.x(5)),
        case(r.x(4), r.lit(0)) if dt.is_integer(r.dtype) else case(r.x(), r.x()),
    ],
)
rem = binary(
    "rem",
    loops=_division("rem"),
    doc="x - y * trunc(x / y), exactly, with the sign of x; integers: x rem 0 is 0.",
    dtypes="float int",
    jvp=(_same, lambda d, x, y, out: neg(mul(trunc(div(x, y)), d))),
    exact=True,
    makes_nan=True,
    samples=lambda r: [
        case(r.x(3, 4), r.x(3, 4)),
        case(r.x(5), r.lit(3)),
        case(r.x(4), r.lit(0)) if dt.is_integer(r.dtype) else case(r.x(), r.x()),
    ],
)

# ---------------------------------------------------------------- neg, abs, sign, rounding

neg = unary(
    "neg",
    doc="-x; integers wrap.",
    dtypes=NUMBERS,
    jvp="linear",
    transpose=lambda ct, args: [neg(ct)],
    exact=True,
)


def _abs_jvp(dx: Value, x: Value, y: Value) -> Value:
    if dt.is_complex(type_of(x).dtype):
        return OPS["real"](mul(OPS["conj"](sign(x)), dx))
    if semantics.abs_is_flat_at_zero:
        return mul(dx, sign(x))
    return select(ge(x, _lit(0, x)), dx, neg(dx))


def _sign_jvp(dx: Value, x: Value, y: Value) -> Value | None:
    """Only the direction of a complex number changes: across its own direction, over |x|."""
    if not dt.is_complex(type_of(x).dtype):
        return None
    size = abs(x)
    across = div(OPS["imag"](mul(OPS["conj"](y), dx)), select(eq(size, 0), 1, size))
    return mul(y, OPS["complex"](0.0, across))


abs = unary(
    "abs",
    doc="|x|, real for complex x; the most negative integer stays itself.",
    dtypes=NUMBERS,
    jvp=_abs_jvp,
    ulp={**ROUNDED, "c64": 2, "c128": 2},
    makes_nan=False,
)
sign = unary(
    "sign",
    doc="-1, 0 or 1; NaN stays; x / |x| for complex x, and 0 at 0.",
    dtypes=NUMBERS,
    jvp=_sign_jvp,
    ulp={**ROUNDED, "c64": 4, "c128": 4},
    makes_nan=False,
)


def _rounding(name: str, doc: str) -> Primitive[Array]:
    return unary(name, doc=doc, dtypes="float", exact=True)


floor = _rounding("floor", "The largest integer <= x.")
ceil = _rounding("ceil", "The smallest integer >= x.")
trunc = _rounding("trunc", "x without its fraction.")
round = _rounding("round", "The nearest integer; halves go to the even one.")
nextafter = binary(
    "nextafter",
    doc="The next representable number from x in the direction of y.",
    reference=lambda x, y: narrow(np.nextafter(x, y), x.dtype),
    dtypes="float",
    exact=True,
)

# ---------------------------------------------------------------- max, min, clamp


def _share(above: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Tangent rules of an extremum: all to the operand that wins, half each at a tie."""

    def weight(mine: Value, other: Value) -> Value:
        tie = select(eq(mine, other), _lit(0.5, mine), _lit(0, mine))
        return select(above(mine, other), _lit(1, mine), tie)

    return (
        lambda d, x, y, out: mul(d, weight(x, y)),
        lambda d, x, y, out: mul(d, weight(y, x)),
    )


def _lit(value: Number, like: Value) -> Lit:
    return literal(value, type_of(like).dtype)


max = binary(
    "max",
    doc="The larger one; NaN if either is NaN; -0 < +0.",
    dtypes="bool int float",
    jvp=_share(gt),
    exact=True,
)
min = binary(
    "min",
    doc="The smaller one; NaN if either is NaN; -0 < +0.",
    dtypes="bool int float",
    jvp=_share(lt),
    exact=True,
)


def _clamp_jvp(primals: Values, tangents: Tangents, out: Value) -> Value | None:
    max_jvp: Any = max.jvp  # of an op on arrays with one result: it answers Value | None
    min_jvp: Any = min.jvp
    low, x, high = primals
    d_low, d_x, d_high = tangents
    raised = max(x, low)
    d_raised = None
    if d_x is not None or d_low is not None:
        d_raised = max_jvp((x, low), (d_x, d_low), raised)
    return min_jvp((raised, high), (d_raised, d_high), out)


clamp = define(
    "clamp",
    kind=Elementwise,
    doc="clamp(low, x, high) = min(max(x, low), high); half of x' gradient passes at a bound.",
    type=same_type("clamp", "int float"),
    numpy=numpy_elementwise(lambda low, x, high: minimum(maximum(x, low), high)),
    jvp=_clamp_jvp,
    batch=elementwise_batch("clamp"),
    loops=lambda types: Pointwise(
        lambda low, x, high: Prim("min", (Prim("max", (x, low), x.dtype), high), x.dtype)
    ),
    exact=True,
    dtypes="int float",
    samples=lambda r: [
        case(r.lit(0), r.x(3, 4), r.lit(1)),
        case(r.x(5, low=0, high=1), r.x(5), r.x(5, low=1, high=3)),
        case(r.lit(0), r.x(), r.lit(1)),
        fails(r.x(3), r.x(4), r.x(3), saying="clamp: operands differ in shape"),
    ],
)
