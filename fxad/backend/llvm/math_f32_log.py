"""Logarithms and powers in float32 arithmetic, logarithms below one ulp.

    log(Vec(code, "float", 16, "%x"))

x = 2**e m, 3/4 <= m < 3/2, and m = (1 + r) / c with c from a table, such that r is exact. What is
not a positive normal number takes a slower way in double, skipped where no lane needs it.
"""

from __future__ import annotations

import functools

from fxad.backend.llvm import coefficients as table
from fxad.backend.llvm import math_f64
from fxad.backend.llvm.lookup import lookup
from fxad.backend.llvm.math_core import LN2_F32, unless_rare
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
    return unless_rare(_unusual(x), y, lambda: in_double(math_f64.log, x))


def log2(x: Vec) -> Vec:
    exponent, _, high, low, r = _parts(x, LOGS2)
    whole = fma(exponent.convert("sitofp", "float"), UNIT, high)
    curved = r * r * polynomial(r, [c * sum(LOG2_E) for c in table.LOG_F32])
    y = whole + fma(r, LOG2_E[0], fma(r, LOG2_E[1], curved + low))
    return unless_rare(_unusual(x), y, lambda: in_double(math_f64.log2, x))


def log1p(x: Vec) -> Vec:
    """log(u + lost), u = 1 + x rounded."""
    large = x > 1.0
    most, least = large.where(x, 1.0), large.where(x.like(1.0), x)
    u = most + least
    lost = least - (u - most)
    exponent, c, high, low, r = _parts(u, LOGS)
    e = exponent.convert("sitofp", "float")
    below = lost * (exponent.like(ONE) - exponent).floats() * c
    about = r + below
    rest = fma(e, LN2_F32[1] * UNIT, low) + below
    rest = fma(about * about, polynomial(about, table.LOG_F32), rest)
    y = (fma(e, LN2_F32[0] * UNIT, high) + (r + rest)).copysign(x)
    return unless_rare(_unusual(u, 126), y, lambda: in_double(math_f64.log1p, x))


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
    slow = functools.partial(math_f64.power, short=True)
    return unless_rare(unusual, result, lambda: in_double(slow, x, y))
