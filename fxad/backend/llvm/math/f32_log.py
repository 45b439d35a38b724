"""Logarithms and powers in float32 arithmetic, logarithms below one ulp.

    log(Vec(code, "float", 16, "%x"))

x = 2**e m, 1 <= m < 2, and m = (1 + r) / c with c from a table, such that r is exact, c = 1 next to
1 and c = 1/2 next to 2. AVX-512 takes any number apart. Otherwise what is not a positive normal
number takes a slower way, skipped where no lane needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math import f64_log
from fxad.backend.llvm.math.core import (
    INF,
    LN2_F32,
    NAN,
    WHOLE,
    exp,
    exponent_and_mantissa,
    log_special,
    scales,
    unless_rare,
)
from fxad.backend.llvm.math.f64 import in_double
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import polynomials as table
from fxad.backend.llvm.math.tables.floats import ATANHS, LOGS, LOGS2

ONE = 0x3F800000
EXPONENT = 0x7F800000
LOG2_E = (1.4426950216293335, 1.925963033500011e-08)
Logs = tuple[tuple[float, ...], ...]


def _parts(x: Vec, logs: Logs) -> tuple[Vec, Vec, Vec, Vec, Vec]:
    """(e, c, -log c, what that lost, r), x positive and normal; any x where `scales`."""
    if scales(x):
        e, m = exponent_and_mantissa(x)
    else:
        e = ((x.bits() & EXPONENT) - ONE).convert("sitofp", "float") * 2.0**-23
        m = ((x.bits() & ~EXPONENT) | ONE).floats()
    c, high, low = lookup(m.bits().binary("lshr", 18), logs)
    return e, c, high, low, fma(m, c, -1.0)


def _unusual(x: Vec, high: int = 128) -> Vec:
    """Not a positive normal number, or 2**high or more."""
    return (x.bits() - (1 << 23)).compare("uge", high + 126 << 23)


def _any(x: Vec, logarithm: Callable[[Vec, float], Vec]) -> Vec:
    """logarithm(x, 0) of any x; logarithm(x, n) is log(x) - n log 2 for positive normal x."""
    y = logarithm(x, 0.0)
    if scales(x):
        return y

    def slow(x: Vec) -> Vec:
        small = x < 2.0**-126
        y = small.where(logarithm(x * 2.0**24, 24.0), logarithm(x, 0.0))
        return log_special(x, y)

    return unless_rare(_unusual(x), y, slow, x)


def log(x: Vec) -> Vec:
    """e ln 2 - log c, exact, and what is below it, log(1 + r) in it."""

    def usual(x: Vec, less: float) -> Vec:
        e, _, high, low, r = _parts(x, LOGS)
        e = e - less
        rest = fma(r * r, polynomial(r, table.LOG_F32), fma(e, LN2_F32[1], low))
        return fma(e, LN2_F32[0], high) + (r + rest)

    return _any(x, usual)


def log2(x: Vec) -> Vec:
    def usual(x: Vec, less: float) -> Vec:
        e, _, high, low, r = _parts(x, LOGS2)
        rest = fma(r * r, polynomial(r, [c * sum(LOG2_E) for c in table.LOG_F32]), low)
        return ((e - less) + high) + fma(r, LOG2_E[0], fma(r, LOG2_E[1], rest))

    return _any(x, usual)


def log_of_sum(u: Vec, lost: Vec, kept: Vec | None = None) -> Vec:
    """log(u + lost), u positive, normal and below 2**126, lost below its last place.

    kept: u is of any kind; where it is infinite, this says that lost does not count.
    """
    e, c, high, low, r = _parts(u, LOGS)
    below = lost * (2 * ONE - (u.bits() & EXPONENT)).floats() * c
    below = below if kept is None else kept.where(below, 0.0)
    about = r + below
    rest = fma(e, LN2_F32[1], low) + below
    rest = fma(about * about, polynomial(about, table.LOG_F32), rest)
    return fma(e, LN2_F32[0], high) + (r + rest)


def log1p(x: Vec) -> Vec:
    """log(u + lost), u = 1 + x rounded. u - 1 is exact where what is lost counts."""
    u = x + 1.0
    lost = x - (u - 1.0)
    if scales(x):
        return log_of_sum(u, lost, x < INF).copysign(x)
    y = log_of_sum(u, lost).copysign(x)
    return unless_rare(_unusual(u, 126), y, partial(in_double, f64_log.log1p), x)


def atanh(x: Vec) -> Vec:
    """atanh(c), c by halves of octaves of 1 - |x|, and the rest by the addition theorem."""
    size = x.abs()
    part = (size.like(1.0).bits() - (1.0 - size).bits()).binary("lshr", 22)
    c, base = lookup(part, ATANHS)
    t = (size - c) / fma(-c, size, 1.0)
    z = t * t
    y = (base + fma(t * z, polynomial(z, table.ATANH_F32), t)).copysign(x)
    return unless_rare(~(size < 1 - 2.0**-16), y, partial(in_double, f64_log.atanh), x)


def power(x: Vec, y: Vec) -> Vec:
    """2**(y log2(x)), the logarithm as a sum of two floats.

    log2(1 + r) is log2(e) times r - r**2 / 2, itself a sum of two, and what is below.
    """
    e, _, high, low, r = _parts(x, LOGS2)
    half = r * -0.5
    near = fma(half, r, r)
    rest = fma(r * r * r, polynomial(r, table.LOG_CUBE_F32), fma(half, r, r - near))
    top = near * LOG2_E[0]
    rest = fma(rest, LOG2_E[0], fma(near, LOG2_E[1], fma(near, LOG2_E[0], -top)))
    whole = e + high
    total = whole + top
    rest = (whole - total) + top + (rest + low)
    product = y * total
    below = fma(y, rest, fma(y, total, -product))
    shifted = product + WHOLE
    f = (product - (shifted - WHOLE)) + below
    p = fma(polynomial(f, table.EXP2_F32), f, 1.0)
    result = (p.bits() + (shifted.bits() << 23)).floats()
    unusual = ~(product.abs() < 125.0)  # also where the logarithm is not finite
    # Bases below the normal floats go the slow way in every lane: scaled ones would do, but one
    # lane alone does not scale, and a value must not depend on its place.
    unusual |= (x < 2.0**-126) if scales(x) else _unusual(x)
    return unless_rare(unusual, result, partial(in_double, _power_in_double), x, y)


def _power_in_double(x: Vec, y: Vec) -> Vec:
    """The cases of pow, and powers good enough to be rounded to floats."""
    size = x.abs()
    result = exp(y * f64_log.log(size))
    integral = y.equals(y.intrinsic("trunc"))
    half = y * 0.5
    odd = integral & half.compare("une", half.intrinsic("trunc"))
    negative = x.bits() < 0
    result = (negative & odd).where(-result, result)
    bad = (x < 0.0) & ~integral & (size < INF)
    result = bad.where(result.like(NAN), result)
    one = y.equals(0.0) | x.equals(1.0) | (size.equals(1.0) & y.abs().equals(INF))
    return one.where(result.like(1.0), result)
