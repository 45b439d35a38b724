"""Sines, tangents and their inverses in double arithmetic, below one ulp.

    sin(Vec(code, "double", 8, "%x"))

Angles are n pi / 16 + r with the sines of the first from a table; inverse tangents are those of the
centre of one of 16 sectors, and what the addition theorem says of the rest.
"""

from __future__ import annotations

import math
from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math.core import HALF_PI, either, per_lane, unless_rare
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import doubles as table

MOST_REDUCED = 2.0**20  # what is left of larger arguments has too few digits
WHOLE = 1.5 * 2.0**52  # adding it leaves an integer in the low bits
STEP = [part / 8 for part in HALF_PI]
SECTOR = 51  # exponent and a bit of mantissa are above this bit
FIRST_SECTOR = (1023 - 3) * 2 - 1  # below 1/8


def _parts(x: Vec) -> tuple[Vec, Vec, Vec]:
    """(n as bits, r, lost): x is n pi / 16 + r + lost."""
    shifted = fma(x, 16 / math.pi, WHOLE)
    n = shifted - WHOLE
    above = fma(n, -STEP[0], x)  # exact
    r = fma(n, -STEP[1], above)
    return shifted.bits(), r, fma(n, -STEP[2], fma(n, -STEP[1], above - r))


def _sine_of(x: Vec, ahead: int) -> tuple[Vec, Vec]:
    """(the sine of x and `ahead` times pi / 16, whose sign counts, n): S + C sin r + S (cos r - 1).

    S and C are the sine and the cosine of the multiple of pi / 16, but for the sign.
    """
    n, r, lost = _parts(x)
    rows = [[v * (-1) ** (k // 16) for v in table.SINES[k % 16]] for k in range(ahead, ahead + 16)]
    s, low, c = lookup(n, rows)
    z = r * r
    odd = fma(z * r, polynomial(z, table.SIN), lost)
    even = z * polynomial(z, table.COS)
    return s + fma(c, r, fma(c, odd, fma(s, even, low))), n


def sin(x: Vec) -> Vec:
    size = x.abs()

    def far() -> Vec:
        y, n = _sine_of(size, 0)
        y = (y.bits() ^ ((n & 16) << 59)).floats()
        return unless_rare(size > MOST_REDUCED, y, partial(per_lane, "sin"), size)

    def near() -> Vec:
        z = size * size
        return size + z * size * polynomial(z, table.SIN)

    # A lone value is as a rule one that the next step of a loop waits for. Near 0, where the
    # multiple of pi / 16 is 0, the same result takes half the time.
    y = far() if x.width > 1 else either(size < 0.098, near, far)
    return (y.bits() ^ (x.bits() & (1 << 63))).floats()


def cos(x: Vec) -> Vec:
    y, n = _sine_of(x, 8)
    y = (y.bits() ^ ((n & 16) << 59)).floats()
    return unless_rare(x.abs() > MOST_REDUCED, y, partial(per_lane, "cos"), x)


def tan(x: Vec) -> Vec:
    """(p + q t) / (q - p t) with t = tan r and the tangent of n pi / 16 as p / q, all as sums of
    two."""
    n, r, lost = _parts(x)
    p, p_low, q, q_low = lookup(n, table.TANGENTS)
    z = r * r
    odd = fma(z * r, polynomial(z, table.TAN), lost)
    rest = fma(q, odd, p_low)
    top = p + fma(q, r, rest)
    top_lost = fma(q, r, p - top) + rest
    rest = fma(-p, odd, q_low)
    bottom = q + fma(-p, r, rest)
    bottom_lost = fma(-p, r, q - bottom) + rest
    inverse = 1.0 / bottom
    y = top * inverse
    wrong = fma(-y, bottom, top) + fma(-y, bottom_lost, top_lost)
    y = (x.abs() < 2.0**-27).where(x, fma(wrong, inverse, y))
    return unless_rare(x.abs() > MOST_REDUCED, y, partial(per_lane, "tan"), x)


def _sector(part: Vec) -> list[Vec]:
    """p, q and the angle of (p, q) as a sum of two, (p, q) in the direction of a number whose
    exponent and bit of mantissa are `part`."""
    intrinsic = part.code.intrinsic
    part = intrinsic("smax", part, part.like(FIRST_SECTOR))
    return lookup(intrinsic("smin", part, part.like(FIRST_SECTOR + 15)), table.SECTORS)


def atan(x: Vec) -> Vec:
    """The angle of (p, q), and what the addition theorem says of the rest."""
    size = x.abs().at_most(2.0**1000)
    p, q, angle, low = _sector(size.bits().binary("lshr", SECTOR))
    t = fma(p, size, -q) / fma(q, size, p)
    return (angle + _rest(t, low)).copysign(x)


def _rest(t: Vec, low: Vec) -> Vec:
    z = t * t
    return t + fma(t * z, polynomial(z, table.ATAN), low)


def atan2(y: Vec, x: Vec) -> Vec:
    """The angle in the first quarter, as in atan, or pi less that where x is negative.

    The sector comes from the difference of the bits, nearly the logarithm of the ratio.
    """
    across, along = y.abs(), x.abs()
    part = (across.bits() - along.bits()).binary("ashr", SECTOR) + (1023 << 52 - SECTOR)
    p, q, angle, low = _sector(part)
    bottom = fma(q, across, p * along)
    top = fma(-q, along, p * across)
    inverse = 1.0 / bottom
    t = top * inverse
    rest = _rest(t, fma(fma(-t, bottom, top), inverse, low))
    left = x.bits() < 0
    angle = left.where(2 * HALF_PI[0] - angle, angle)  # exact
    whole = (angle + left.where(2 * HALF_PI[1] - rest, rest)).copysign(y)
    least, most = (x.like(2.0**k).bits() for k in (-500, 500))
    unusual = (bottom.bits() - least).compare("uge", most - least)
    unusual = unusual | (across.bits() - 1).compare("ult", least - 1)  # but for 0
    return unless_rare(unusual, whole, partial(per_lane, "atan2"), y, x)
