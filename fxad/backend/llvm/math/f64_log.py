"""Logarithms and powers in double arithmetic, below one ulp.

    log(Vec(code, "double", 8, "%x"))

x = 2**e m, 1 <= m < 2, and m = (1 + r) / c with c from a table, c = 1 next to 1 and c = 1/2 next to
2, so that r is exact where the logarithm is small.
"""

from __future__ import annotations

from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math.core import (
    INF,
    exp_sixteenths,
    exponent_and_mantissa,
    log_special,
    per_lane,
    scale,
    scales,
    unless_rare,
)
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import doubles as table

ONE = 0x3FF << 52
EXPONENT = 0x7FF << 52
LEAST = 1 << 52  # the bits of the least normal number
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
Logs = tuple[tuple[float, float, float], ...]


def _parts(x: Vec, logs: Logs) -> tuple[Vec, Vec, Vec, Vec, Vec]:
    """(e, c, -log c, what that lost, r), x positive and finite; any x where `scales`."""
    if scales(x):
        e, m = exponent_and_mantissa(x)
    else:
        small = x < 2.0**-1022
        x = small.where(x * 2.0**54, x)
        e = ((x.bits() & EXPONENT) - ONE).binary("ashr", 52).convert("sitofp", "double")
        e = e - small.where(x.like(54.0), 0.0)
        m = ((x.bits() & ~EXPONENT) | ONE).floats()
    c, high, low = lookup(m.bits().binary("lshr", 48 if len(logs) == 16 else 47), logs)
    return e, c, high, low, fma(m, c, -1.0)


def log(x: Vec) -> Vec:
    """e ln 2 - log c, exact, and what is below it, log(1 + r) in it."""
    e, _, high, low, r = _parts(x, table.LOGS)
    rest = fma(r * r, polynomial(r, table.LOG), fma(e, table.LN2[1], low))
    y = fma(e, table.LN2[0], high) + (r + rest)
    return y if scales(x) else log_special(x, y)


def log2(x: Vec) -> Vec:
    e, _, high, low, r = _parts(x, table.LOGS2)
    rest = fma(r * r, polynomial(r, [c * LOG2_E[0] for c in table.LOG]), low)
    y = (e + high) + fma(r, LOG2_E[0], fma(r, LOG2_E[1], rest))
    return y if scales(x) else log_special(x, y)


def log_of_sum(u: Vec, lost: Vec, kept: Vec | None = None) -> Vec:
    """log(u + lost), u positive, lost below its last place.

    kept: where u is infinite, this says that lost does not count.
    """
    e, c, high, low, r = _parts(u, table.LOGS)
    below = lost * (2 * ONE - (u.bits() & EXPONENT)).floats() * c
    below = below if kept is None else kept.where(below, 0.0)
    about = r + below
    rest = fma(e, table.LN2[1], low) + below
    rest = fma(about * about, polynomial(about, table.LOG), rest)
    return fma(e, table.LN2[0], high) + (r + rest)


def log1p(x: Vec) -> Vec:
    """log(u + lost), u = 1 + x rounded. u - 1 is exact where what is lost counts."""
    u = x + 1.0
    y = log_of_sum(u, x - (u - 1.0), x < INF)
    return (y if scales(x) else log_special(u, y)).copysign(x)


def atanh(x: Vec) -> Vec:
    """Half of log(1 + q), q = 2 |x| / (1 - |x|) as a sum of two."""
    size = x.abs()
    bottom = 1.0 - size
    inverse = 1.0 / bottom
    top = size + size
    q = top * inverse
    less = fma(-q, (1.0 - bottom) - size, fma(-q, bottom, top)) * inverse
    u = q + 1.0
    y = log_of_sum(u, (q - (u - 1.0)) + less) * 0.5
    return unless_rare(~(size < 1.0), y.copysign(x), partial(per_lane, "atanh"), x)


def power(x: Vec, y: Vec) -> Vec:
    """exp(y log x), the logarithm as a sum of two.

    log(1 + r) is r - r**2 / 2, itself a sum of two as r is exact, and what is below.
    """
    e, _, high, low, r = _parts(x, table.FINE_LOGS)
    half = r * -0.5
    near = fma(half, r, r)
    rest = fma(r * r * r, polynomial(r, table.LOG_CUBE), fma(half, r, r - near))
    whole = fma(e, table.LN2[0], high)
    about = whole + near
    rest = (whole - about) + near + (rest + fma(e, table.LN2[1], low))
    total = about + rest
    rest = (about - total) + rest
    product = y * total
    below = fma(y, rest, fma(y, total, -product))
    result = scale(*exp_sixteenths(product, below))
    usual = (x.bits() - LEAST).compare("ult", EXPONENT - LEAST)
    return unless_rare(~(usual & (product.abs() < 708.0)), result, partial(per_lane, "pow"), x, y)
