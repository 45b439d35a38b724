"""Circular functions and their inverses in float32 arithmetic, below one ulp.

    sin(Vec(code, "float", 16, "%x"))

What rounding loses where it would show is carried along as a second float (Dekker, 1971).
Arguments that a reduction in floats cannot serve take a slower way in double, skipped where no lane
has one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math import f64_trig
from fxad.backend.llvm.math.core import BELOW_EIGHTH, WHOLE, either, unless_rare
from fxad.backend.llvm.math.f64 import in_double
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import polynomials as table
from fxad.backend.llvm.math.tables.floats import ATANS, SINES

SIGN = 1 << 31
# pi / 2 as a sum of three floats, and the largest argument whose multiple of it they can take away.
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
MOST_REDUCED = 1e5
HALF_PI_SHORT = (1.570796251296997, 2594 * 2.0**-35, 2.5633440682570896e-12)
MOST_OF_TAN = 2000.0
ONE = 0x3F800000
STEP = [part / 8 for part in HALF_PI]


def _minus_steps(size: Vec, n: Vec) -> tuple[Vec, Vec]:
    """(r, lost): size - n pi / 16 is r + lost.

    The first difference is exact. What rounding takes from the second is lost; of an r below 2**-9,
    whose difference to the first is not exact, it is not known.
    """
    above = fma(n, -STEP[0], size)
    r = fma(n, -STEP[1], above)
    lost = (r * r > 2.0**-18).where(fma(n, -STEP[1], above - r), 0.0)
    return r, fma(n, -STEP[2], lost)


def _sine(ahead: int, shifted: Vec, r: Vec, lost: Vec) -> tuple[Vec, Vec, Vec]:
    """(S, C, rest): the sine of n pi / 16 + r, and of `ahead` more of them, is S + C r + rest.

    S + C sin r + S (cos r - 1), S and C the sine and the cosine of the multiple of pi / 16.
    """
    rows = [(*SINES[(k + ahead) % 32], SINES[(k + ahead + 8) % 32][0]) for k in range(32)]
    s, low, c = lookup(shifted.bits(), rows)
    z = r * r
    odd = fma(z * r, polynomial(z, table.SIN_F32), lost)
    return s, c, fma(c, odd, fma(s, z * polynomial(z, table.COS_F32), low))


def _shifted(size: Vec) -> Vec:
    """WHOLE and the multiple of pi / 16 nearest to size."""
    return fma(size, 1 / STEP[0], WHOLE)


def _sine_of(size: Vec, ahead: int) -> Vec:
    shifted = _shifted(size)
    r, lost = _minus_steps(size, shifted - WHOLE)
    s, c, rest = _sine(ahead, shifted, r, lost)
    return s + fma(c, r, rest)


def sin(x: Vec) -> Vec:
    size = x.abs()

    def far() -> Vec:
        y = _sine_of(size, 0)
        return unless_rare(size > MOST_REDUCED, y, partial(in_double, f64_trig.sin), size)

    def near() -> Vec:
        z = size * size
        return fma(z * size, polynomial(z, table.SIN_F32), size)

    # A lone value is as a rule one that the next step of a loop waits for. Near 0, where the
    # multiple of pi / 16 is 0, the same result takes a third of the time.
    y = far() if x.width > 1 else either(size < 0.098, near, far)
    return (y.bits() ^ (x.bits() & SIGN)).floats()


def cos(x: Vec) -> Vec:
    size = x.abs()
    y = _sine_of(size, 8)
    return unless_rare(size > MOST_REDUCED, y, partial(in_double, f64_trig.cos), x)


def tan(x: Vec) -> Vec:
    """tan(r) or -1 / tan(r), r what is left of multiples of pi / 2; tan(r) as a sum of two floats.

    pi / 2 is a float, 12 bits and a rest. So either r or the difference that it loses is exact.
    Signs are such that -0 gives -0.
    """
    shifted = fma(x, 2 / math.pi, WHOLE)
    n = shifted - WHOLE
    above = fma(n, -HALF_PI_SHORT[0], x)
    r = fma(n, -HALF_PI_SHORT[1], above)
    lost = fma(n, -HALF_PI_SHORT[2], fma(n, -HALF_PI_SHORT[1], above - r))
    z = r * r
    small = fma(fma(r, r, -z), r * 0.66, lost * fma(z, 1.6, 1.0))  # slopes where r is large
    less = fma(-(r * z), _in_pairs(z, table.TAN_F32), -small)
    t = r - less
    less = (t - r) + less
    inverse = -1.0 / t
    inverse = fma(fma(inverse, -less, fma(inverse, t, 1.0)), inverse, inverse)
    y = (shifted.bits() & 1).equals(0).where(t, inverse)
    return unless_rare(x.abs() > MOST_OF_TAN, y, partial(in_double, f64_trig.tan), x)


def _in_pairs(z: Vec, c: Sequence[float]) -> Vec:
    """A polynomial of seven coefficients in z: all but the first by Estrin's rule, which takes an
    instruction more than Horner's and half of its time."""
    square = z * z
    rest = fma(square, fma(z, c[6], c[5]), fma(z, c[4], c[3]))
    return fma(z, fma(square, rest, fma(z, c[2], c[1])), c[0])


def _sector(part: Vec, one: int = ONE >> 21) -> tuple[Vec, Vec]:
    """(c, the angle of (1, c)), c near a ratio with exponent and two bits of mantissa `part`, which
    of the ratio 1 are `one`."""
    intrinsic, ahead = part.code.intrinsic, (ONE >> 21) - one
    part = intrinsic("smax", part, part.like(BELOW_EIGHTH - ahead))
    part = intrinsic("smin", part, part.like(BELOW_EIGHTH + 25 - ahead))
    c, angle = lookup(part, [ATANS[(k + ahead) % 32] for k in range(32)])
    return c, angle


def atan(x: Vec) -> Vec:
    """The angle of (1, c), and what the addition theorem says of the rest."""
    size = x.abs().at_most(1e30)
    c, angle = _sector(size.bits().binary("lshr", 21))
    t = (size - c) / fma(c, size, 1.0)
    z = t * t
    return (angle + fma(t * z, polynomial(z, table.ATAN_F32), t)).copysign(x)


def atan2(y: Vec, x: Vec) -> Vec:
    """The angle in the first quarter, as in atan, or pi less that where x is negative.

    The sector comes from the difference of the bits, nearly the logarithm of the ratio.
    """
    across, along = y.abs(), x.abs()
    c, angle = _sector((across.bits() - along.bits()).binary("ashr", 21), one=0)
    top, bottom = fma(-c, along, across), fma(c, across, along)
    inverse = 1.0 / bottom
    t = top * inverse
    z = t * t
    rest = t + fma(t * z, polynomial(z, table.ATAN_F32), fma(-t, bottom, top) * inverse)
    left = x.bits() < 0
    angle = left.where(2 * HALF_PI[0] - angle, angle)
    whole = (angle + left.where(2 * HALF_PI[1] - rest, rest)).copysign(y)
    least, most = (x.like(2.0**k).bits() for k in (-60, 60))
    unusual = (bottom.bits() - least).compare("uge", most - least)
    unusual = unusual | (across.bits() - 1).compare("ult", least - 1)  # but for 0
    return unless_rare(unusual, whole, partial(in_double, f64_trig.atan2), y, x)
