"""Elementary functions of the "python" target; numba's targets replace them by their own.

    >>> float(fma(np.float32(1 + 2**-12), np.float32(1 + 2**-12), np.float32(-1)))
    0.00048834085464477539

Arguments and results are NumPy scalars; like NumPy's, none of them raises.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

f32, f64, u32, u64 = np.float32, np.float64, np.uint32, np.uint64
inf, nan = math.inf, math.nan
exp, expm1, log, log2, log1p, sqrt = np.exp, np.expm1, np.log, np.log2, np.log1p, np.sqrt
sin, cos, tan, asin, acos, atan = np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan
sinh, cosh, tanh, asinh, acosh, atanh = (
    np.sinh,
    np.cosh,
    np.tanh,
    np.arcsinh,
    np.arccosh,
    np.arctanh,
)
power, fmod, atan2, copysign = np.power, np.fmod, np.arctan2, np.copysign
cexp, clog, csqrt, csin, ccos, ctan = np.exp, np.log, np.sqrt, np.sin, np.cos, np.tan
csinh, ccosh, ctanh = np.sinh, np.cosh, np.tanh


# numba wants `view` right after the constructor.


def bits32(x):
    """The bits of a float32 as a uint32."""
    return f32(x).view(u32)


def float32(bits):
    """The float32 with these bits."""
    return u32(bits).view(f32)


def bits64(x):
    return f64(x).view(u64)


def float64(bits):
    return u64(bits).view(f64)


def erf(x):
    return type(x)(math.erf(x))


def erfc(x):
    return type(x)(math.erfc(x))


def lgamma(x):
    try:
        return type(x)(math.lgamma(x))
    except (ValueError, OverflowError):  # a pole, or beyond the largest float
        return type(x)(inf)


def product32(a, b):
    """a * b that no compiler may merge with a later addition."""
    return a * b


product64 = product32


def fma(a, b, c):
    """a * b + c with one rounding, for two float32 or two float64 and `c` of the same type."""
    if type(a) is not f32:
        return _fma64(a, b, c)
    product = f64(a) * f64(b)  # exact: 48 bits of 53
    total = product + f64(c)
    if not abs(total) < inf:
        return f32(total)
    tail = total - product
    error = (product - (total - tail)) + (f64(c) - tail)
    return f32(_odd(total, error))


def _odd(total, error):
    """`total` with its last bit set where `error` says it is inexact: safe to round again."""
    bits = bits64(total)
    if error == 0 or bits & u64(1):
        return total
    return float64(bits + u64(1) if (error > 0) == (total > 0) else bits - u64(1))


def _fma64(a, b, c):
    if not (abs(a) < inf and abs(b) < inf and abs(c) < inf):
        return a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return a * b + c  # exact too, and right about the sign of zero
    try:
        return f64(float(exact))
    except OverflowError:
        return f64(inf if exact > 0 else -inf)
