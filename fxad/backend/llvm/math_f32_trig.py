"""Circular functions and their inverses in float32 arithmetic, below one ulp.

    sin(Vec(code, "float", 16, "%x"))

What rounding loses where it would show is carried along as a second float (Dekker, 1971).
Arguments that a reduction in floats cannot serve take a slower way in double, skipped where no lane
has one.
"""

from __future__ import annotations

import math
from functools import partial

from fxad.backend.llvm import coefficients as table
from fxad.backend.llvm import math_f64
from fxad.backend.llvm.lookup import lookup
from fxad.backend.llvm.math_core import BELOW_EIGHTH, WHOLE, either, unless_rare
from fxad.backend.llvm.math_f64 import in_double
from fxad.backend.llvm.tables import ATANS, SINES
from fxad.backend.llvm.vector import Vec, fma, polynomial

SIGN = 1 << 31
# pi / 2 as a sum of three floats, and the largest argument whose multiple of it they can take away.
HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
MOST_REDUCED = 1e5
HALF_PI_SHORT = (1.5707963705062866, -3004 * 2.0**-36, 2.5633440682570896e-12)
MOST_OF_TAN = 2000.0
ONE = 0x3F800000
STEP = [part / 8 for part in HALF_PI]


def _minus_steps(size: Vec, n: Vec) -> tuple[Vec, Vec, Vec]:
    """(r, lost, below): size - n pi / 16 is r + lost + below.

    The first difference is exact. What rounding takes from the second is lost; of an r below 2**-9,
    whose difference to the first is not exact, it is not known.
    """
    above = fma(n, -STEP[0], size)
    r = fma(n, -STEP[1], above)
    lost = fma(n, -STEP[1], above - r)
    return r, (r * r > 2.0**-18).where(lost, 0.0), n * -STEP[2]


def _sine(ahead: int, shifted: Vec, r: Vec, lost: Vec, below: Vec) -> tuple[Vec, Vec, Vec]:
    """(S, C, rest): the sine of n pi / 16 + r, and of `ahead` more of them, is S + C r + rest.

    S + C sin r + S (cos r - 1), S and C the sine and the cosine of the multiple of pi / 16.
    """
    rows = [(*SINES[(k + ahead) % 32], SINES[(k + ahead + 8) % 32][0]) for k in range(32)]
    s, low, c = lookup(shifted.bits(), rows)
    z = r * r
    odd = fma(z * r, polynomial(z, table.SIN_F32), lost + below)
    return s, c, fma(c, odd, fma(s, z * polynomial(z, table.COS_F32), low))


def _shifted(size: Vec) -> Vec:
    """WHOLE and the multiple of pi / 16 nearest to size."""
    return fma(size, 1 / STEP[0], WHOLE)


def _sine_of(size: Vec, ahead: int) -> Vec:
    shifted = _shifted(size)
    r, lost, below = _minus_steps(size, shifted - WHOLE)
    s, c, rest = _sine(ahead, shifted, r, lost, below)
    return s + fma(c, r, rest)


def sin(x: Vec) -> Vec:
    size = x.abs()

    def far() -> Vec:
        y = _sine_of(size, 0)
        return unless_rare(size > MOST_REDUCED, y, partial(in_double, math_f64.sin), size)

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
    return unless_rare(size > MOST_REDUCED, y, partial(in_double, math_f64.cos), x)


def tan(x: Vec) -> Vec:
    """tan(r) or -1 / tan(r), r what is left of multiples of pi / 2; tan(r) as a sum of two floats.

    pi / 2 is a float, 12 bits and a rest. So either r or the difference that it loses is exact.
    """
    size = x.abs()
    shifted = fma(size, 2 / math.pi, WHOLE)
    n = shifted - WHOLE
    above = fma(n, -HALF_PI_SHORT[0], size)
    r = fma(n, -HALF_PI_SHORT[1], above)
    lost = fma(n, -HALF_PI_SHORT[2], fma(n, -HALF_PI_SHORT[1], above - r))
    z = r * r
    small = fma(fma(r, r, -z), r * 0.66, lost * fma(z, 1.6, 1.0))  # slopes where r is large
    rest = fma(r * z, polynomial(z, table.TAN_F32), small)
    t = r + rest
    rest = (r - t) + rest
    inverse = -1.0 / t
    inverse = fma(fma(inverse, rest, fma(inverse, t, 1.0)), inverse, inverse)
    y = (shifted.bits() & 1).equals(0).where(t, inverse)
    y = (y.bits() ^ (x.bits() & SIGN)).floats()
    return unless_rare(size > MOST_OF_TAN, y, partial(in_double, math_f64.tan), x)


def _sector(part: Vec) -> tuple[Vec, Vec]:
    """(c, the angle of (1, c)), c near a ratio with exponent and two bits of mantissa `part`."""
    intrinsic = part.code.intrinsic
    part = intrinsic("smax", part, part.like(BELOW_EIGHTH))
    c, angle = lookup(intrinsic("smin", part, part.like(BELOW_EIGHTH + 25)), ATANS)
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
    part = (across.bits() - along.bits()).binary("ashr", 21) + (ONE >> 21)
    c, angle = _sector(part)
    top, bottom = fma(-c, along, across), fma(c, across, along)
    inverse = 1.0 / bottom
    t = top * inverse
    z = t * t
    rest = t + fma(t * z, polynomial(z, table.ATAN_F32), fma(-t, bottom, top) * inverse)
    sign, left = x.bits() & SIGN, x.bits() < 0
    angle, rest = ((v.bits() ^ sign).floats() for v in (angle, rest))
    high, low = (left.where(rest.like(2 * half), 0.0) for half in HALF_PI[:2])
    whole = ((high + angle) + (rest + low)).copysign(y)
    sizes = across.bits(), along.bits()
    least = x.code.intrinsic("umin", *[v - 1 for v in sizes])  # 0 comes last
    most = x.code.intrinsic("umax", *sizes) - 1
    unusual = least.compare("ult", x.like(2.0**-60).bits())
    unusual = unusual | most.compare("uge", x.like(2.0**60).bits())
    return unless_rare(unusual, whole, partial(in_double, math_f64.atan2), y, x)


def _plus(high: Vec, low: Vec, t: Vec, a: Vec, b: Vec) -> Vec:
    """high + low + t + a b, high 0 or above |t|, low and a b smaller than t."""
    total = high + t
    return total + fma(a, b, (high - total) + t + low)


def _asin_parts(size: Vec) -> tuple[Vec, Vec, Vec]:
    """(big, s, rest): asin(size) is s + rest or, where big, pi / 2 - 2 (s + rest).

    Then s is the root of (1 - size) / 2. What it loses is its remainder over 2 s, for which a
    reciprocal from the bits, good to an eighth, is enough.
    """
    big = size > 0.5
    half = fma(size, -0.5, 0.5)
    z = big.where(half, size * size)
    root = half.sqrt()
    lost = fma(-root, root, half) * (0x7E730000 - root.bits()).floats()
    s = big.where(root, size)
    return big, s, fma(s * z, polynomial(z, table.ASIN_F32), big.where(lost, 0.0))


def asin(x: Vec) -> Vec:
    size = x.abs()
    big, s, rest = _asin_parts(size)
    zero = s.like(0.0)
    high, low = (big.where(s.like(part), zero) for part in HALF_PI[:2])
    times = big.where(s.like(-2.0), 1.0)
    return _plus(high, low, s * times, rest, times).copysign(x)


def acos(x: Vec) -> Vec:
    """pi / 2 - asin(x), which is 2 (s + rest) or pi - 2 (s + rest) beyond a half."""
    big, s, rest = _asin_parts(x.abs())
    left = x.bits() < 0
    high, low = (big.where(left.where(s.like(2 * part), 0.0), s.like(part)) for part in HALF_PI[:2])
    times = big.where(left.where(s.like(-2.0), 2.0), left.where(s.like(1.0), -1.0))
    return _plus(high, low, s * times, rest, times)
