"""Logarithms and powers in float32 arithmetic, logarithms below one ulp.

    log(Vec(code, "float", 16, "%x"))

x = 2**e m, 3/4 <= m < 3/2, and m = (1 + r) / c with c from a table, such that r is exact. What is
not a positive normal number takes a slower way in double, skipped where no lane needs it.
"""

from __future__ import annotations

from functools import partial

from fxad.backend.llvm import coefficients as table
from fxad.backend.llvm import math_f64
from fxad.backend.llvm.divide import reciprocal
from fxad.backend.llvm.lookup import lookup
from fxad.backend.llvm.math_core import INF, LN2_F32, NAN, exp, unless_rare
from fxad.backend.llvm.math_f64 import in_double
from fxad.backend.llvm.tables import LOGS, LOGS2
from fxad.backend.llvm.vector import Vec, fma, polynomial

THREE_QUARTERS = 0x3F400000
ONE = 0x3F800000
EXPONENT = -(1 << 23)  # a mask of sign and exponent; and the unit of an exponent in place
UNIT = 2.0**-23
WHOLE = 12582912.0  # 1.5 * 2**23: adding it leaves an integer in the low bits
LOG2_E = (1.4426950216293335, 1.925963033500011e-08)


def _parts(x: Vec, logs: tuple[tuple[float, ...], ...]) -> tuple[Vec, Vec, Vec, Vec, Vec]:
    """(e in place, c, -log c, what that lost, r)."""
    bits = x.bits()
    exponent = (bits - THREE_QUARTERS) & EXPONENT
    m = bits - exponent
    c, high, low = lookup(m.binary("lshr", 18), logs)
    return exponent, c, high, low, fma(m.floats(), c, -1.0)


def _unusual(x: Vec, high: int = 128) -> Vec:
    """Not a positive normal number, or 2**high or more."""
    return (x.bits() - (1 << 23)).compare("uge", high + 126 << 23)


def log(x: Vec) -> Vec:
    """e ln 2 - log c, exact, and what is below it, log(1 + r) in it."""
    exponent, _, high, low, r = _parts(x, LOGS)
    e = exponent.convert("sitofp", "float")
    rest = fma(r * r, polynomial(r, table.LOG_F32), fma(e, LN2_F32[1] * UNIT, low))
    y = fma(e, LN2_F32[0] * UNIT, high) + (r + rest)
    return unless_rare(_unusual(x), y, partial(in_double, math_f64.log), x)


def log2(x: Vec) -> Vec:
    exponent, _, high, low, r = _parts(x, LOGS2)
    whole = fma(exponent.convert("sitofp", "float"), UNIT, high)
    rest = fma(r * r, polynomial(r, [c * sum(LOG2_E) for c in table.LOG_F32]), low)
    y = whole + fma(r, LOG2_E[0], fma(r, LOG2_E[1], rest))
    return unless_rare(_unusual(x), y, partial(in_double, math_f64.log2), x)


def _log_of_sum(u: Vec, lost: Vec) -> Vec:
    """log(u + lost), u positive, normal and below 2**126, lost below its last place."""
    exponent, c, high, low, r = _parts(u, LOGS)
    e = exponent.convert("sitofp", "float")
    below = lost * (exponent.like(ONE) - exponent).floats() * c
    about = r + below
    rest = fma(e, LN2_F32[1] * UNIT, low) + below
    rest = fma(about * about, polynomial(about, table.LOG_F32), rest)
    return fma(e, LN2_F32[0] * UNIT, high) + (r + rest)


def log1p(x: Vec) -> Vec:
    """log(u + lost), u = 1 + x rounded."""
    large = x > 1.0
    most, least = large.where(x, 1.0), large.where(x.like(1.0), x)
    u = most + least
    y = _log_of_sum(u, least - (u - most)).copysign(x)
    return unless_rare(_unusual(u, 126), y, partial(in_double, math_f64.log1p), x)


def _root_of_sum(high: Vec, low: Vec) -> tuple[Vec, Vec]:
    """The root of high + low as the sum of two floats."""
    root = high.sqrt()
    return root, (fma(-root, root, high) + low) * (reciprocal(root) * 0.5)


def asinh(x: Vec) -> Vec:
    """log(|x| + sqrt(x x + 1)); x where its cube does not count."""
    size = x.abs()
    square = fma(size, size, 1.0)
    big = size > 1.0
    rest = big.where(fma(size, size, -square) + 1.0, fma(size, size, 1.0 - square))
    root, lost = _root_of_sum(square, rest)
    u = root + size
    y = _log_of_sum(u, (root - u) + size + lost)
    y = (size < 2.0**-12).where(x, y.copysign(x))
    return unless_rare(~(size < 2.0**60), y, partial(in_double, math_f64.asinh), x)


def acosh(x: Vec) -> Vec:
    """log(x + sqrt(x x - 1)), x x - 1 = a a + 2 a with a = x - 1."""
    a = x - 1.0
    twice = a + a
    square = fma(a, a, twice)
    root, lost = _root_of_sum(square, fma(a, a, twice - square))
    u = x + root
    y = _log_of_sum(u, (x - u) + root + lost)
    return unless_rare(~((x > 1.0) & (x < 2.0**60)), y, partial(in_double, math_f64.acosh), x)


def atanh(x: Vec) -> Vec:
    """log((1 + |x|) / (1 - |x|)) / 2; x where its cube does not count."""
    size = x.abs()
    above, below = size + 1.0, 1.0 - size
    above_lost, below_lost = size - (above - 1.0), (1.0 - below) - size
    inverse = reciprocal(below)
    about = above * inverse
    rest = fma(-below_lost, about, fma(-below, about, above) + above_lost) * inverse
    q = about + rest
    y = _log_of_sum(q, (about - q) + rest) * 0.5
    y = (size < 2.0**-12).where(x, y.copysign(x))
    return unless_rare(~(size < 1.0), y, partial(in_double, math_f64.atanh), x)


def power(x: Vec, y: Vec) -> Vec:
    """2**(y log2(x)), the logarithm as a sum of two floats.

    log2(1 + r) is log2(e) times r - r**2 / 2, itself a sum of two, and what is below.
    """
    exponent, _, high, low, r = _parts(x, LOGS2)
    half = r * -0.5
    near = fma(half, r, r)
    rest = fma(r * r * r, polynomial(r, table.LOG_CUBE_F32), fma(half, r, r - near))
    top = near * LOG2_E[0]
    rest = fma(rest, LOG2_E[0], fma(near, LOG2_E[1], fma(near, LOG2_E[0], -top)))
    whole = fma(exponent.convert("sitofp", "float"), UNIT, high)
    total = whole + top
    rest = (whole - total) + top + (rest + low)
    product = y * total
    below = fma(y, rest, fma(y, total, -product))
    shifted = product + WHOLE
    f = (product - (shifted - WHOLE)) + below
    p = fma(polynomial(f, table.EXP2_F32), f, 1.0)
    result = (p.bits() + (shifted.bits() << 23)).floats()
    unusual = _unusual(x) | ~(product.abs() < 125.0)
    return unless_rare(unusual, result, partial(in_double, _power_in_double), x, y)


def _power_in_double(x: Vec, y: Vec) -> Vec:
    """The cases of pow, and powers good enough to be rounded to floats."""
    size = x.abs()
    result = exp(y * math_f64.log(size))
    integral = y.equals(y.intrinsic("trunc"))
    half = y * 0.5
    odd = integral & half.compare("une", half.intrinsic("trunc"))
    negative = x.bits() < 0
    result = (negative & odd).where(-result, result)
    bad = (x < 0.0) & ~integral & (size < INF)
    result = bad.where(result.like(NAN), result)
    one = y.equals(0.0) | x.equals(1.0) | (size.equals(1.0) & y.abs().equals(INF))
    return one.where(result.like(1.0), result)
