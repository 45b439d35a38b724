"""Elementary functions: exponentials, logarithms, roots, trigonometric and hyperbolic functions.

    exp(x)             # x: f32[3] -> f32[3]
    atan2(y, x)

All take floats; those without a real restriction take complex numbers with NumPy's branch cuts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fxad.ops.base import Sample, case
from fxad.ops.elements.arithmetic import add, div, mul, neg, sub
from fxad.ops.elements.complexes import (
    by_kind,
    complex_acos,
    complex_acosh,
    complex_asin,
    complex_asinh,
    complex_atan,
    complex_atanh,
    complex_exp2,
    complex_log2,
)
from fxad.ops.elements.pointwise import binary, unary
from fxad.ops.elements.powers import square

if TYPE_CHECKING:
    from fxad.ir.rules import Draws, Value

# Compiled code and NumPy both come within a unit or two of the exact value; half-width floats
# are computed in f32 and rounded once.
CLOSE = {"f16": 1, "bf16": 1, "f32": 2, "f64": 2, "c64": 8, "c128": 8}
FAIR = {"f16": 1, "bf16": 1, "f32": 4, "f64": 4, "c64": 32, "c128": 32}
LN2 = math.log(2)


def positive(r: Draws) -> list[Sample]:
    """Samples of functions of positive numbers."""
    return [case(r.x(3, 4, low=0.1, high=3)), case(r.x(low=0.5, high=2)), case(r.x(0))]


def inner(r: Draws) -> list[Sample]:
    """Samples of functions of numbers between -1 and 1."""
    return [case(r.x(3, 4, low=-0.9, high=0.9)), case(r.x(low=0.1, high=0.8)), case(r.x(0))]


# ---------------------------------------------------------------- exponentials and logarithms

exp = unary("exp", doc="e to the power of x.", jvp=lambda dx, x, y: mul(dx, y), ulp=CLOSE)
exp2 = unary(
    "exp2",
    doc="2 to the power of x.",
    loops=by_kind("exp2", complex_exp2),
    jvp=lambda dx, x, y: mul(dx, mul(y, LN2)),
    ulp=CLOSE,
)


expm1 = unary(
    "expm1",
    doc="exp(x) - 1, accurate near 0.",
    jvp=lambda dx, x, y: mul(dx, add(y, 1)),
    ulp=CLOSE,
)
log = unary(
    "log",
    doc="Natural logarithm; NaN below 0, -inf at 0.",
    jvp=lambda dx, x, y: div(dx, x),
    ulp=CLOSE,
    samples=positive,
)
log2 = unary(
    "log2",
    doc="Logarithm to base 2.",
    loops=by_kind("log2", complex_log2),
    weak=(),  # as in JAX, where it is a quotient of logarithms
    jvp=lambda dx, x, y: div(dx, mul(x, LN2)),
    ulp=CLOSE,
    samples=positive,
)


log1p = unary(
    "log1p",
    doc="log(1 + x), accurate near 0.",
    jvp=lambda dx, x, y: div(dx, add(x, 1)),
    ulp=CLOSE,
    samples=inner,
)

# ---------------------------------------------------------------- roots


sqrt = unary(
    "sqrt",
    doc="Square root; its derivative at 0 is inf.",
    jvp=lambda dx, x, y: div(dx, mul(y, 2)),
    ulp={"f16": 0, "bf16": 0, "f32": 0, "f64": 0, "c64": 8, "c128": 8},
    samples=positive,
)
rsqrt = unary(
    "rsqrt",
    doc="1 / sqrt(x).",
    jvp=lambda dx, x, y: mul(dx, mul(div(y, x), -0.5)),
    ulp=CLOSE,
    samples=positive,
)
cbrt = unary(
    "cbrt",
    doc="Real cube root; its derivative at 0 is inf.",
    dtypes="float",
    jvp=lambda dx, x, y: div(dx, mul(square(y), 3)),
    ulp=CLOSE,
)

# ---------------------------------------------------------------- trigonometric functions

sin = unary("sin", doc="Sine.", jvp=lambda dx, x, y: mul(dx, cos(x)), ulp=CLOSE)
cos = unary("cos", doc="Cosine.", jvp=lambda dx, x, y: neg(mul(dx, sin(x))), ulp=CLOSE)


tan = unary(
    "tan",
    doc="Tangent.",
    jvp=lambda dx, x, y: mul(dx, add(square(y), 1)),
    ulp=FAIR,
    samples=inner,
)
asin = unary(
    "asin",
    doc="Arc sine, in -pi/2 .. pi/2; NaN outside -1 .. 1.",
    loops=by_kind("asin", complex_asin),
    jvp=lambda dx, x, y: mul(dx, rsqrt(sub(1, square(x)))),
    ulp=FAIR,
    samples=inner,
)
acos = unary(
    "acos",
    doc="Arc cosine, in 0 .. pi; NaN outside -1 .. 1.",
    loops=by_kind("acos", complex_acos),
    jvp=lambda dx, x, y: neg(mul(dx, rsqrt(sub(1, square(x))))),
    ulp=FAIR,
    samples=inner,
)
atan = unary(
    "atan",
    doc="Arc tangent, in -pi/2 .. pi/2.",
    loops=by_kind("atan", complex_atan),
    jvp=lambda dx, x, y: div(dx, add(square(x), 1)),
    ulp=FAIR,
    samples=inner,
)


def _atan2_dy(d: Value, y: Value, x: Value, out: Value) -> Value:
    return mul(d, div(x, add(square(x), square(y))))


def _atan2_dx(d: Value, y: Value, x: Value, out: Value) -> Value:
    return neg(mul(d, div(y, add(square(x), square(y)))))


atan2 = binary(
    "atan2",
    doc="atan2(y, x): the angle of the point (x, y), in -pi .. pi.",
    dtypes="float",
    jvp=(_atan2_dy, _atan2_dx),
    ulp=FAIR,
)

# ---------------------------------------------------------------- hyperbolic functions

sinh = unary("sinh", doc="Hyperbolic sine.", jvp=lambda dx, x, y: mul(dx, cosh(x)), ulp=FAIR)
cosh = unary("cosh", doc="Hyperbolic cosine.", jvp=lambda dx, x, y: mul(dx, sinh(x)), ulp=FAIR)
tanh = unary(
    "tanh",
    doc="Hyperbolic tangent.",
    jvp=lambda dx, x, y: mul(dx, sub(1, square(y))),
    ulp=FAIR,
    samples=inner,
)
asinh = unary(
    "asinh",
    doc="Inverse hyperbolic sine.",
    loops=by_kind("asinh", complex_asinh),
    jvp=lambda dx, x, y: mul(dx, rsqrt(add(square(x), 1))),
    ulp=FAIR,
    samples=inner,
)
acosh = unary(
    "acosh",
    doc="Inverse hyperbolic cosine; NaN below 1.",
    loops=by_kind("acosh", complex_acosh),
    jvp=lambda dx, x, y: mul(dx, mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1)))),
    ulp=FAIR,
    samples=lambda r: [case(r.x(3, 4, low=1.2, high=4)), case(r.x(low=2, high=3))],
)
atanh = unary(
    "atanh",
    doc="Inverse hyperbolic tangent; NaN outside -1 .. 1.",
    loops=by_kind("atanh", complex_atanh),
    jvp=lambda dx, x, y: div(dx, mul(sub(1, x), add(x, 1))),
    ulp=FAIR,
    samples=inner,
)
