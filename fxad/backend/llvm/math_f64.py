"""Functions in double arithmetic.

With `short` they are good to about 1e-9 at a lower price: the way to most float32 functions,
whose results are then rounded once. Rare cases and functions go to the C library lane by lane.

    sin(Vec(code, "double", 8, "%x"))
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fxad.backend.llvm import coefficients as table
from fxad.backend.llvm.divide import divide
from fxad.backend.llvm.math_core import (
    HALF_PI,
    INF,
    LN2_F64,
    LOG2_E,
    NAN,
    atan_positive,
    clamp_exponent,
    cos_reduced,
    either,
    exp,
    exp_parts,
    keep_zero,
    log,
    scale,
    sin_cos_parts,
    sin_reduced,
    unless_rare,
)
from fxad.backend.llvm.vector import Vec, fma, polynomial


def per_lane(name: str, *args: Vec) -> Vec:
    """A C library function of double(s) applied to each lane."""
    code = args[0].code
    width = max(a.width for a in args)
    args = tuple(a.splat(width) for a in args)
    result = args[0].like(0.0)
    for i in range(width):
        result = result.with_lane(i, code.call(name, "double", 1, [a.lane(i) for a in args]))
    return result


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


def exp2(x: Vec, short: bool = False) -> Vec:
    x = x.at_least(-1080.0).at_most(1030.0)
    n = x.rint()
    y = (x - n) * LN2_F64[0]
    q = polynomial(y, table.EXP_SHORT if short else table.EXP_F64)
    return scale(fma(fma(q, y, 1.0), y, 1.0), n)


def expm1(x: Vec, short: bool = False) -> Vec:
    """2**n (1 + p) - 1, taken together at half scale so that nothing overflows too early."""
    n, r, q = exp_parts(clamp_exponent(x).at_least(-40.0), short)
    p = fma(r * r, q, r)
    s = scale(x.like(0.5), n)
    y = fma(p, s, s - 0.5) * 2.0
    return (x.abs() < 1e-19).where(x, y)


def log1p(x: Vec, short: bool = False) -> Vec:
    """log(u) for u = 1 + x rounded, and what the rounding lost."""
    u = x + 1.0
    lost = divide(u - 1.0 - x, u, short)
    y = log(u, short) - (u < INF).where(lost, 0.0)
    y = u.equals(0.0).where(x.like(-INF), y)
    return (x.abs() < 1e-19).where(x, y)


def log2(x: Vec, short: bool = False) -> Vec:
    """exponent + log2(mantissa), so that powers of two are exact."""
    from_one = log_mantissa(x)
    fraction = log(from_one[1], short) * LOG2_E
    y = fraction + from_one[0]
    y = (x < INF).where(y, x)
    y = x.compare("oge", 0.0).where(y, NAN)
    return x.equals(0.0).where(y.like(-INF), y)


def log_mantissa(x: Vec) -> tuple[Vec, Vec]:
    """(e, m) with x = 2**e m, m within sqrt(2) of 1."""
    small = x < 2.2250738585072014e-308
    scaled = small.where(x * 2.0**54, x)
    exponent = (scaled.bits() - 0x3FE6A09E667F3BCD).binary("ashr", 52)
    m = (scaled.bits() - (exponent << 52)).floats()
    return exponent.convert("sitofp", "double") - small.where(x.like(54.0), 0.0), m


def _quadrant(x: Vec, short: bool, shift: int, name: str) -> Vec:
    """sin for shift 0, cos for shift 1."""
    if x.width > 1:
        return _any_quadrant(x, short, shift, name)
    # A lone value is as a rule one that the next step of a loop waits for. Near 0, where there is
    # nothing to reduce, the same result takes half as long.
    reduced = cos_reduced if shift else sin_reduced
    return either(
        x.abs() < 0.785,
        lambda: keep_zero(x, reduced(x, short), shift),
        lambda: _any_quadrant(x, short, shift, name),
    )


def _any_quadrant(x: Vec, short: bool, shift: int, name: str) -> Vec:
    sine, cosine, n = sin_cos_parts(x, short)
    n = n + shift
    y = (n & 1).equals(0).where(sine, cosine)
    sign = (n & 2) << 62
    y = keep_zero(x, (y.bits() ^ sign).floats(), shift)
    limit = 2.0**40 if short else 2.0**20
    return unless_rare(x.abs() > limit, y, lambda: per_lane(name, x))


def sin(x: Vec, short: bool = False) -> Vec:
    return _quadrant(x, short, 0, "sin")


def cos(x: Vec, short: bool = False) -> Vec:
    return _quadrant(x, short, 1, "cos")


def tan(x: Vec, short: bool = False) -> Vec:
    sine, cosine, n = sin_cos_parts(x, short)
    even = (n & 1).equals(0)
    y = divide(even.where(sine, -cosine), even.where(cosine, sine), short)
    y = x.equals(0.0).where(x, y)
    limit = 2.0**40 if short else 2.0**20
    return unless_rare(x.abs() > limit, y, lambda: per_lane("tan", x))


def atan(x: Vec, short: bool = False) -> Vec:
    return atan_positive(x.abs(), short).copysign(x)


def atan2(y: Vec, x: Vec, short: bool = False) -> Vec:
    ay, ax = y.abs(), x.abs()
    ratio = divide(ay, ax, short)
    ratio = ay.equals(ax).where(ratio.like(1.0), ratio)  # inf / inf
    ratio = ay.equals(0.0).where(ay, ratio)  # 0 / 0
    ratio = (x.is_nan() | y.is_nan()).where(ratio.like(NAN), ratio)
    angle = atan_positive(ratio, short)
    left = (x.bits() < 0).where(HALF_PI[0] * 2.0 - (angle - 2.0 * HALF_PI[1]), angle)
    return left.copysign(y)


def asin(x: Vec, short: bool = False) -> Vec:
    size = x.abs()
    y = atan_positive(divide(size, ((1.0 - size) * (1.0 + size)).sqrt(), short), short).copysign(x)
    return y


def acos(x: Vec, short: bool = False) -> Vec:
    y = atan_positive(divide((1.0 - x).sqrt(), (1.0 + x).sqrt(), short), short)
    return y + y


def _half_exp(size: Vec, short: bool) -> Vec:
    """exp(size) / 2 without early overflow."""
    e = exp(size * 0.5, short)
    return e * 0.5 * e


def sinh(x: Vec, short: bool = False) -> Vec:
    size = x.abs()
    t = expm1(size, short)
    y = (t + divide(t, t + 1.0, short)) * 0.5
    return (size < 30.0).where(y, _half_exp(size, short)).copysign(x)


def cosh(x: Vec, short: bool = False) -> Vec:
    size = x.abs()
    e = exp(size.at_most(40.0), short)
    return (size < 30.0).where((e + divide(e.like(1.0), e, short)) * 0.5, _half_exp(size, short))


def tanh(x: Vec, short: bool = False) -> Vec:
    t = expm1((x.abs() * 2.0).at_most(60.0), short)
    return (t / (t + 2.0)).copysign(x)


def asinh(x: Vec, short: bool = False) -> Vec:
    size = x.abs()
    square = size * size
    near = log1p(size + divide(square, (square + 1.0).sqrt() + 1.0, short), short)
    far = log(size, short) + LN2_F64[0]
    return (size < 1e8).where(near, far).copysign(x)


def acosh(x: Vec, short: bool = False) -> Vec:
    t = x - 1.0
    near = log1p(t + (t * 2.0 + t * t).sqrt(), short)
    far = log(x, short) + LN2_F64[0]
    return (x < 1.0).where(x.like(NAN), (x > 1e8).where(far, near))


def atanh(x: Vec, short: bool = False) -> Vec:
    size = x.abs()
    return (log1p(divide(size + size, 1.0 - size, short), short) * 0.5).copysign(x)


def logistic(x: Vec, short: bool = False) -> Vec:
    e = exp(-x.abs(), short)
    return (x < 0.0).where(e, 1.0) / (e + 1.0)


def erf(x: Vec, short: bool = False) -> Vec:
    return per_lane("erf", x)


def erfc(x: Vec, short: bool = False) -> Vec:
    """exp(-x*x) P((x - 2) / (x + 2)) for float32 results, mirrored for negative x."""
    if not short:
        return per_lane("erfc", x)
    size = x.abs().at_most(11.0)
    p = polynomial(divide(size - 2.0, size + 2.0, short), table.ERFCX_SHORT)
    y = exp(-(size * size), short=True) * p
    return (x < 0.0).where(2.0 - y, y)


def erfinv(x: Vec, short: bool = False) -> Vec:
    """x P(w), w = -log(1 - x*x); two Halley steps sharpen it to double."""
    square = x * x
    w = -log(1.0 - square, short)
    centre = polynomial(w - 2.5, table.ERFINV_CENTRE)
    tail = polynomial(w.sqrt().at_most(6.5) - 3.0, table.ERFINV_TAIL)
    y = x * (w < 5.0).where(centre, tail)
    if not short:
        for _ in range(3):
            y = _erfinv_step(x, y)
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


def lgamma(x: Vec, short: bool = False) -> Vec:
    return per_lane("lgamma", x)


def cbrt(x: Vec, short: bool = False) -> Vec:
    """A guess from the exponent, then Halley's iteration."""
    size = x.abs()
    small, large = size < 2.2250738585072014e-308, size > 2.0**1000
    one = x.like(1.0)
    scaled = size * small.where(x.like(2.0**54), large.where(x.like(2.0**-54), one))
    y = (scaled.bits().binary("udiv", 3) + 0x2A9F84FE36D22425).floats()
    for _ in range(2 if short else 3):
        cube = y * y * y
        y = y * divide(cube + scaled * 2.0, cube * 2.0 + scaled, short)
    if not short:
        y = fma((scaled - y * y * y) / (y * y), 1.0 / 3.0, y)
    y = y * small.where(x.like(2.0**-18), large.where(x.like(2.0**18), one))
    y = y.copysign(x)
    return ((size < INF) & (size > 0.0)).where(y, x)


def power(x: Vec, y: Vec, short: bool = False) -> Vec:
    """x ** y: by exp and log for float32 results, by the C library for double."""
    if not short:
        return per_lane("pow", x, y)
    size = x.abs()
    result = exp(y * log(size, short), short)
    integral = y.equals(y.intrinsic("trunc"))
    half = y * 0.5
    odd = integral & half.compare("une", half.intrinsic("trunc"))
    negative = x.bits() < 0
    result = (negative & odd).where(-result, result)
    bad = (x < 0.0) & ~integral & (size < INF)
    result = bad.where(result.like(NAN), result)
    one = y.equals(0.0) | x.equals(1.0) | (size.equals(1.0) & y.abs().equals(INF))
    return one.where(result.like(1.0), result)


def rsqrt(x: Vec, short: bool = False) -> Vec:
    return 1.0 / x.sqrt()
