"""Functions in float32 arithmetic: what is worth more speed than double arithmetic gives.

    tanh(Vec(code, "float", 16, "%x"))

Where one float is too coarse, a value is held as the sum of two (Dekker, 1971). Measured bounds are
in `fxad.ir.prims`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math import f64
from fxad.backend.llvm.math.core import (
    BELOW_EIGHTH,
    LOG2_E,
    WHOLE,
    exp,
    scale,
    scales,
    unless_rare,
)
from fxad.backend.llvm.math.divide import rsqrt_estimate
from fxad.backend.llvm.math.f64 import in_double
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import polynomials as table
from fxad.backend.llvm.math.tables.floats import ERF, POWERS, TANH

LN2 = (0.6931471824645996, -1.904654323148236e-09)  # a float and what is left
STEP = tuple(part / 32 for part in LN2)


def exp2(x: Vec) -> Vec:
    """2**n 2**r; what underflows to 0 takes another way, as in exp.

    Scaling by 2**inf is inf even where r, of inf - inf, is NaN.
    """

    def power(x: Vec, kept: Vec | None = None) -> Vec:
        n = x.rint()
        r = x - n
        return scale(fma(polynomial(r, table.EXP2_F32), r, 1.0), n, kept)

    if scales(x):
        return power(x, x.compare("uge", -150.0))
    vanishes = x < -150.0
    zero = x.like(0.0)
    return vanishes.where(zero, power(vanishes.where(zero, x).at_most(129.0)))


def _exp_parts(x: Vec, octaves: int = 0) -> tuple[Vec, Vec]:
    """(s, p): exp(x) 2**octaves is s + s p, |p| below 0.012; x from -87 to 87.

    By 32nds of an octave, of which s has few bits and r takes the rest.
    """
    shifted = fma(x, 32 * LOG2_E, WHOLE + 32 * octaves)
    n = shifted - (WHOLE + 32 * octaves)
    s, rest = lookup(shifted.bits(), POWERS)
    s = (s.bits() + (shifted.bits() << 18)).floats()
    r = fma(n, -STEP[0], x) + fma(n, -STEP[1], rest)
    return s, fma(r * r, polynomial(r, table.EXP_STEP_F32), r)


def _octaves(x: Vec, bias: int) -> tuple[Vec, Vec, Vec]:
    """(n, the bits of 2.0**(n + bias - 127), r): x = n float(ln 2) + r, which is exact."""
    whole = WHOLE + bias
    shifted = fma(x, LOG2_E, whole)
    n = shifted - whole
    return n, shifted.bits() << 23, fma(n, -LN2[0], x)


def expm1(x: Vec) -> Vec:
    """2**n (1 + r + r*r*q) - 1, with what rounding takes from the large terms.

    Signs are such that -0 gives -0.
    """
    n, bits, r = _octaves(x.at_least(-30.0), 127)
    below = n * -LN2[1]
    s = bits.floats()
    rest = 1.0 - s
    total = fma(s, r, -rest)
    lost = fma(s, r, -(rest + total))
    lost = (n > 24.5).where(lost - 1.0, lost)  # of which the rest knows nothing
    small = fma(r * r, polynomial(r, table.EXPM1_F32), fma(below, r, below))
    y = total - fma(-s, small, -lost)
    return unless_rare(x > 87.0, y, partial(in_double, f64.expm1), x)


def logistic(x: Vec) -> Vec:
    """1 / (1 + exp(-x)); exp(x) where that is all."""
    y = f64.inverse_past_one(*_exp_parts(-x.at_most(40.0)))
    return unless_rare(x < -87.0, y, exp, x)


def sinh(x: Vec) -> Vec:
    """S cosh r + C sinh r, where |x| = n ln 2 + r, S and C the functions of n ln 2.

    These are 2**n / 2 -+ 2**-n / 2, the second of which comes in later where n is 12 or more.
    """
    size = x.abs()
    n, bits, r = _octaves(size, 126)
    below = n * -LN2[1]
    up, down = bits.floats(), (bits.like(252 << 23) - bits).floats()
    large = n > 11.5
    s, c = large.where(up, up - down), up + down
    lost = large.where(fma(down, r, -down), 0.0)
    z = r * fma(below, 2.0, r)
    odd = fma(r * z, polynomial(z, table.SINH_F32), below)
    even = z * polynomial(z, table.COSH_F32)
    y = (s + fma(c, r, fma(c, odd, fma(s, even, lost)))).copysign(x)
    return unless_rare(size > 87.0, y, partial(in_double, f64.sinh), x)


def cosh(x: Vec) -> Vec:
    size = x.abs()
    y = f64.half_sum(*_exp_parts(size, -1))
    return unless_rare(size > 87.0, y, partial(in_double, f64.cosh), x)


def cbrt(x: Vec) -> Vec:
    """x r**2 (1 - e)**(-2/3), e = 1 - x r**3, r near x**(-1/3): a guess from the exponent.

    r has 12 bits, so that its square is exact, and e with the rounded y = x r**2 in it makes up for
    two thirds of what that lost.
    """
    size = x.abs()
    bits = size.bits().convert("sitofp", "float")
    r = fma(bits, -1.0 / 3.0, 1419900000.0).convert("fptosi", "i32")
    r = (r & ~0xFFF).floats()
    y = size * (r * r)
    e = fma(-y, r, 1.0)
    y = fma(y * e, polynomial(e, table.CBRT_F32), y).copysign(x)
    return unless_rare(x.is_denormal_or_infinite(), y, partial(in_double, f64.cbrt), x)


def _piecewise(x: Vec, most: float, rows: Sequence[Sequence[float]], apart: bool) -> Vec:
    """An odd function that is constant from `most` on: a polynomial for each quarter of an octave.

    apart: below 1/8 it is x and a polynomial that is small, else all of it is the polynomial.
    """
    size = x.abs().at_most(most)
    bits = size.bits()
    part = x.code.intrinsic("smax", bits.binary("lshr", 21), bits.like(BELOW_EIGHTH))
    centre, value, *slopes = lookup(part, rows)
    r = size - centre
    if apart:
        value = part.equals(BELOW_EIGHTH).where(r, value)
    return fma(r, polynomial(r, slopes), value).copysign(x)


def tanh(x: Vec) -> Vec:
    """Within 1.04 ulp; apart below 1/8, two instructions more, within 0.73."""
    return _piecewise(x, 9.02, TANH, apart=False)


def erf(x: Vec) -> Vec:
    return _piecewise(x, 3.95, ERF, apart=True)


def erfc(x: Vec) -> Vec:
    """exp(-x*x) P((x - 2) / (x + 2)) in double, mirrored for negative x."""

    def wide(x: Vec) -> Vec:
        size = x.abs().at_most(11.0)
        p = polynomial((size - 2.0) / (size + 2.0), table.ERFCX)
        y = exp(-(size * size)) * p
        return (x < 0.0).where(2.0 - y, y)

    return in_double(wide, x)


def erfinv(x: Vec) -> Vec:
    return in_double(f64.erfinv_to_float, x)


def lgamma(x: Vec) -> Vec:
    return in_double(f64.lgamma, x)


def rsqrt(x: Vec) -> Vec:
    """An estimate y, then y + y (1 - x y y) / 2 with the rest to twice the digits."""
    y = rsqrt_estimate(x)
    product = x * y
    rest = fma(-fma(x, y, -product), y, fma(-product, y, 1.0))
    return product.compare("ord", product).where(fma(y * 0.5, rest, y), y)
