"""Special functions: erf, erfc, erfinv, lgamma, digamma, logistic.

    logistic(x)        # 1 / (1 + exp(-x)), for every x without overflow

References compute in f64 with Python's `math`, element by element: exact, not fast.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.ops.base import case
from fxad.ops.elements.arithmetic import abs, add, div, mul, neg, round, sign, sub
from fxad.ops.elements.compare import and_, eq, lt, select
from fxad.ops.elements.math import CLOSE, FAIR, exp, inner, log, positive, tan
from fxad.ops.elements.pointwise import unary
from fxad.ops.elements.powers import reciprocal, square
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value
    from fxad.trace.array import Array

erf = unary(
    "erf",
    doc="Error function: 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x.",
    dtypes="float",
    jvp=lambda dx, x, y: mul(dx, mul(exp(neg(square(x))), 2 / math.sqrt(math.pi))),
    ulp=FAIR,
)
erfc = unary(
    "erfc",
    doc="1 - erf(x), accurate for large x.",
    dtypes="float",
    jvp=lambda dx, x, y: mul(dx, mul(exp(neg(square(x))), -2 / math.sqrt(math.pi))),
    ulp={"f16": 1, "bf16": 1, "f32": 16, "f64": 16},
)
erfinv = unary(
    "erfinv",
    doc="The x with erf(x) = y; infinite at -1 and 1, NaN beyond.",
    dtypes="float",
    jvp=lambda dx, x, y: mul(dx, mul(exp(square(y)), math.sqrt(math.pi) / 2)),
    ulp={"f16": 1, "bf16": 1, "f32": 8, "f64": 16},
    samples=inner,
)
lgamma = unary(
    "lgamma",
    doc="log(|Gamma(x)|); inf at 0, -1, -2, ...",
    dtypes="float",
    jvp=lambda dx, x, y: mul(dx, digamma(x)),
    ulp={"f16": 2, "bf16": 2, "f32": 32, "f64": 64},  # relative, beside its zeros
    samples=lambda r: [*positive(r), case(r.x(5, low=-0.9, high=-0.1))],
)

# B(2k) / 2k, the coefficients of digamma's asymptotic series in 1/x**2, from k = 1
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_SHIFT = 8  # from here on the series is exact to the last bits of f64


def digamma(x: Value) -> Array:
    """Derivative of lgamma, of a float array, as ordinary ops; so it has derivatives itself.

    psi(x) = psi(1 - x) - pi / tan(pi * x) below 1/2, else psi(x) = psi(x + 8) - sum 1 / (x + k).
    Infinite at 0, NaN at the other poles.
    """
    dtype = type_of(x).dtype
    if dtype.itemsize < 4:
        return OPS["convert"](digamma(OPS["convert"](x, dtype=dt.float32)), dtype=dtype)
    mirrored = lt(x, 0.5)
    z = select(mirrored, sub(1, x), x)
    below = reciprocal(z)
    for k in range(1, _SHIFT):
        below = add(below, reciprocal(add(z, k)))
    z = add(z, _SHIFT)
    inverse = square(reciprocal(z))
    series = mul(inverse, _BERNOULLI[-1])
    for coefficient in reversed(_BERNOULLI[:-1]):
        series = mul(add(series, coefficient), inverse)
    result = sub(sub(sub(log(z), div(0.5, z)), series), below)
    fraction = select(mirrored, sub(x, round(x)), 0.25)  # no pole in the branch not taken
    # 1 / tan(u) is tan(pi / 2 - u), whose derivatives are not those of 1 / inf beside pi / 2.
    size = abs(fraction)
    far = lt(0.25, size)
    steep = tan(mul(select(far, 0.25, fraction), math.pi))
    flat = mul(sign(fraction), tan(mul(sub(0.5, select(far, size, 0.25)), math.pi)))
    reflected = sub(result, select(far, mul(flat, math.pi), div(math.pi, steep)))
    pole = and_(eq(fraction, 0), lt(x, 0))
    return select(mirrored, select(pole, math.nan, reflected), result)


logistic = unary(
    "logistic",
    doc="1 / (1 + exp(-x)), without overflow.",
    jvp=lambda dx, x, y: mul(dx, mul(y, sub(1, y))),
    ulp={**CLOSE, "f32": 4, "f64": 4},
)
