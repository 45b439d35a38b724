"""Functions in double arithmetic; rare cases and functions go to the C library lane by lane.

sin(Vec(code, "double", 8, "%x"))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm.base.vector import Vec, fma, polynomial
from fxad.backend.llvm.math.core import (
    INF,
    LN2_F64,
    NAN,
    exp,
    exp_sixteenths,
    exp_terms,
    per_lane,
    scale,
    scales,
    sixteenths,
    unless_rare,
)
from fxad.backend.llvm.math.divide import rsqrt_estimate
from fxad.backend.llvm.math.f64_log import log
from fxad.backend.llvm.math.lookup import lookup
from fxad.backend.llvm.math.tables import polynomials as table
from fxad.backend.llvm.math.tables.doubles import ERF, EXP, EXPM1, POWERS, SINH

CBRT = (2 / 3, 5 / 9, 40 / 81, 110 / 243)  # of ((1 - e)**(-2/3) - 1) / e
ERFINV_FITTED = 4.1  # the end of ERFINV_TAIL's fit in sqrt(-log(1 - x*x))
CBRT_GUESS = (1023 * 4 / 3 - 0.0681) * 2.0**52


def in_double(f: Callable[..., Vec], *args: Vec) -> Vec:
    """f of floats in double arithmetic, rounded once; a register's worth of doubles at a time."""
    first = args[0]
    most = first.code.target.lanes(np.dtype("float64"))
    if first.width <= most or first.width % 2:
        return f(*[a.convert("fpext", "double") for a in args]).convert("fptrunc", "float")
    lanes = range(first.width)
    middle = first.width // 2
    low, high = (
        in_double(f, *[a.shuffle(part) for a in args]) for part in (lanes[:middle], lanes[middle:])
    )
    return low.shuffle(lanes, high)


def exp2(x: Vec) -> Vec:
    """2**n by sixteenths from a table, and exp of what is left."""
    x = x.at_least(-1080.0).at_most(1030.0)
    shifted = x + 1.5 * 2.0**48
    n = shifted - 1.5 * 2.0**48
    s, tail = lookup(shifted.bits(), POWERS)
    r = (x - n) * LN2_F64[0]
    p = fma(r * r, polynomial(r, EXP), tail) + r
    return scale(fma(s, p, s), n if scales(x) else n.intrinsic("floor"))


def _expm1_parts(x: Vec) -> tuple[Vec, Vec]:
    """exp(x) - 1 as a sum of two, x from -40 to 709: S - 1, S r and what is below, S = 2**n."""
    n, s, tail, r = sixteenths(x)
    below = fma(n, -LN2_F64[1], tail)
    s = scale(s, n if scales(x) else n.intrinsic("floor"))
    one = (n < 53.0).where(x.like(1.0), 0.0)
    rest = s - one
    total = fma(s, r, rest)
    lost = fma(s, r, rest - total) + (s - (rest + one)) + (one - 1.0)
    small = fma(r * r, polynomial(r, EXPM1), fma(below, r, below))
    return total, fma(s, small, lost)


def expm1(x: Vec) -> Vec:
    total, rest = _expm1_parts(x.at_least(-40.0))
    return unless_rare(x > 709.0, (total + rest).copysign(x), exp, x)


def _half_exp(size: Vec) -> Vec:
    """exp(size) / 2 of size >= 0, without early overflow."""
    power, n = exp_sixteenths(size.at_most(712.0))
    return scale(power * 0.5, n)


def sinh(x: Vec) -> Vec:
    """Half of e - 1 / e, e = exp(|x|); below 1, where that loses digits, an odd polynomial."""
    size = x.abs()
    s, p, n = exp_terms(size)
    large = half_sum(scale(s * 0.5, n), p, -0.25)
    z = size * size
    small = fma(size * z, polynomial(z, SINH), size)
    y = (size < 1.0).where(small, large).copysign(x)
    return unless_rare(size > 709.0, y, _large_sinh, x)


def _over_sum(t: Vec, other: float) -> tuple[Vec, Vec, Vec]:
    """(q, wrong, inverse): t / (t + other) is q + wrong * inverse, t >= 0."""
    bottom = t + other
    lost = (other - bottom) + t  # exact where it counts
    inverse = 1.0 / bottom
    q = t * inverse
    return q, fma(-q, lost, fma(-q, bottom, t)), inverse


def _large_sinh(x: Vec) -> Vec:
    return _half_exp(x.abs()).copysign(x)


def cosh(x: Vec) -> Vec:
    size = x.abs()
    s, p, n = exp_terms(size)
    return unless_rare(size > 709.0, half_sum(scale(s * 0.5, n), p), _large_cosh, x)


def half_sum(s: Vec, p: Vec, quarter: float = 0.25) -> Vec:
    """e + quarter / e, e = s + s p: half the sum, or the difference, of 2 e and its inverse."""
    return s + fma(s, p, quarter / fma(s, p, s))


def _large_cosh(x: Vec) -> Vec:
    return _half_exp(x.abs())


def tanh(x: Vec) -> Vec:
    total, rest = _expm1_parts((x.abs() * 2.0).at_most(60.0))
    y, wrong, inverse = _over_sum(total + rest, 2.0)
    return fma(wrong, inverse, y).copysign(x)


def logistic(x: Vec) -> Vec:
    s, p, n = exp_terms(-x.at_most(40.0))
    return unless_rare(x < -708.0, inverse_past_one(scale(s, n), p), exp, x)


def inverse_past_one(s: Vec, p: Vec) -> Vec:
    """1 / (1 + s + s p), p small, and a step of Newton's with all of the sum."""
    total = s + 1.0
    rest = fma(s, p, s.at_most(1.0) - (total - s.at_least(1.0)))
    y = 1.0 / (total + rest)
    wrong = fma(-rest, y, fma(-total, y, 1.0))
    return fma(wrong, y, y)


def erf(x: Vec) -> Vec:
    """A polynomial for each interval of a table; below 1/4 it is x and a polynomial that is small.

    The row is what the exponent and three bits of mantissa of |x| + 2 say.
    """
    size = x.abs().at_most(5.99)
    part = (size + 2.0).bits().binary("lshr", 49)
    centre, value, *slopes = lookup(part, ERF)
    value = centre.equals(0.0).where(size, value)
    r = size - centre
    return fma(r, polynomial(r, slopes), value).copysign(x)


def erfc(x: Vec) -> Vec:
    return per_lane("erfc", x)


def erfinv(x: Vec) -> Vec:
    y = _erfinv_about(x, reach=ERFINV_FITTED)
    for _ in range(3):
        y = _erfinv_step(x, y)
    return _erfinv_ends(x, y)


def erfinv_to_float(x: Vec) -> Vec:
    """Good enough to be rounded to float."""
    return _erfinv_ends(x, _erfinv_about(x))


def _erfinv_about(x: Vec, reach: float = 6.5) -> Vec:
    """x P(w), w = -log(1 - x*x).

    Only float64 has x so close to 1 that sqrt(w) leaves the interval of the fit. Given its end as
    `reach`, P goes on with slope 1 there: up to the last x it is within half a percent of erfinv.
    """
    w = -log(1.0 - x * x)
    root = w.sqrt()
    near = root.at_most(reach)
    centre = polynomial(w - 2.5, table.ERFINV_CENTRE)
    tail = polynomial(near - 3.0, table.ERFINV_TAIL)
    if reach == ERFINV_FITTED:
        tail = tail + (root - near)
    return x * (w < 5.0).where(centre, tail)


def _erfinv_ends(x: Vec, y: Vec) -> Vec:
    size = x.abs()
    y = (size < 1.0).where(y, NAN)
    y = size.equals(1.0).where((x * INF), y)
    return x.equals(0.0).where(x, y)


def _erfinv_step(x: Vec, y: Vec) -> Vec:
    """Halley on erfc(|y|) = 1 - |x|, which keeps its digits near 1."""
    size, target = y.abs(), 1.0 - x.abs()
    error = target - per_lane("erfc", size)
    error = (x.abs() < 0.5).where(per_lane("erf", size) - x.abs(), error)
    step = error / (exp(-(size * size)) * 1.1283791670955126)
    return (size - step / (fma(size, step, 1.0))).copysign(x)


def lgamma(x: Vec) -> Vec:
    return per_lane("lgamma", x)


def cbrt(x: Vec) -> Vec:
    def slow(x: Vec) -> Vec:
        return (x.abs() < 1.0).where(_normal_cbrt(x * 2.0**54) * 2.0**-18, x)

    return unless_rare(x.is_denormal_or_infinite(), _normal_cbrt(x), slow, x)


def _normal_cbrt(x: Vec) -> Vec:
    """As float32's: a guess from the exponent, three terms of the binomial series for r, then r of
    26 bits and four terms of another."""
    size = x.abs()
    bits = size.bits().convert("sitofp", "double")
    r = fma(bits, -1.0 / 3.0, CBRT_GUESS).convert("fptosi", "i64").floats()
    e = fma(-(r * r), size * r, 1.0)
    r = fma(r * e, fma(fma(e, 14 / 81, 2 / 9), e, 1 / 3), r)
    r = (r.bits() & -(1 << 27)).floats()
    y = size * (r * r)
    e = fma(-y, r, 1.0)
    return fma(y * e, polynomial(e, CBRT), y).copysign(x)


def rsqrt(x: Vec) -> Vec:
    """An estimate y with three times its digits, then y + y (1 - x y y) / 2 with twice those."""
    about = rsqrt_estimate(x)
    product = x * about
    rest = fma(-product, about, 1.0)
    y = fma(about * rest, fma(rest, 0.375, 0.5), about)
    again = x * y
    rest = fma(-fma(x, y, -again), y, fma(-again, y, 1.0))
    return product.compare("ord", product).where(fma(y * 0.5, rest, y), about)
