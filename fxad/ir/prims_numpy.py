"""Scalar functions in NumPy where NumPy's own are not exactly what is meant.

    quotient(np.int32([7, -7]), np.int32([0, 2]))     # [0, -3]

Each takes arrays of one dtype and gives its result in that dtype (`fxad.ir.prims` says which).
References of ops and the reference backend call them. Integers wrap; division and shifts are total:
x / 0 = x rem 0 = 0, and shifts by the width or more move every bit out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fxad.core import dtypes as dt

Rule = Callable[..., np.ndarray]

# ---------------------------------------------------------------- arithmetic


def _truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    one = y.dtype.type(1)
    divisor = np.where(y == 0, one, y)
    floor_ = x // divisor
    inexact = (floor_ * divisor != x) & ((x < 0) != (y < 0))
    quotient = np.where(inexact, floor_ + one, floor_)
    return np.where(y == 0, y.dtype.type(0), quotient).astype(x.dtype)


def quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _truncated_quotient(x, y) if dt.is_integer(x.dtype) else np.divide(x, y)


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if not dt.is_integer(x.dtype):
        return np.fmod(x, y)
    return np.where(y == 0, y.dtype.type(0), x - _truncated_quotient(x, y) * y)


def reciprocal(x: np.ndarray) -> np.ndarray:
    return np.divide(x.dtype.type(1), x)


def sign(x: np.ndarray) -> np.ndarray:
    """x / |x| for complex x."""
    if dt.is_complex(x.dtype):
        size = np.abs(x)
        # NumPy divides by way of 1 / size, which overflows for sizes below the normal numbers.
        below = (size > 0) & (size < np.finfo(x.dtype).tiny)
        if below.any():
            x = np.where(below, x * x.dtype.type(2.0**64), x)
            size = np.abs(x)
        return np.where(size == 0, x.dtype.type(0), x / np.where(size == 0, 1, size)).astype(
            x.dtype
        )
    return np.sign(x)


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """-0 < +0, which np.maximum leaves open."""
    found = np.maximum(x, y)
    if not dt.is_float(x.dtype) or np.count_nonzero(found) == found.size:
        return found
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, x + y, found) if np.count_nonzero(zeros) else found


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    found = np.minimum(x, y)
    if not dt.is_float(x.dtype) or np.count_nonzero(found) == found.size:
        return found
    zeros = (x == 0) & (y == 0)
    return np.where(zeros, -(-x + -y), found) if np.count_nonzero(zeros) else found


def fused_multiply_add(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z; exact for f32 up to a double rounding."""
    wide = np.longdouble if dt.is_float(x.dtype) else x.dtype
    return np.asarray(x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(x.dtype)


# ---------------------------------------------------------------- bits


def _unsigned(x: np.ndarray) -> np.ndarray:
    """The same bits as an unsigned integer."""
    return np.asarray(x).view(np.dtype(f"u{x.dtype.itemsize}"))


def _signed(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).view(np.dtype(f"i{x.dtype.itemsize}"))


def _shift(function: Rule, view: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """`function` on the bits of x seen as `view`; amounts out of range move every bit out."""

    def rule(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits, amount = view(x), _unsigned(y)
        last = 8 * x.dtype.itemsize - 1
        shifted = function(bits, np.minimum(amount, last).astype(bits.dtype))
        if view is _unsigned:  # signed bits are all the sign by now
            shifted = np.where(amount > last, bits.dtype.type(0), shifted)
        return shifted.view(x.dtype)

    return rule


shift_left = _shift(np.left_shift, _unsigned)
shift_right_logical = _shift(np.right_shift, _unsigned)
shift_right_arithmetic = _shift(np.right_shift, _signed)


def popcount(x: np.ndarray) -> np.ndarray:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def count_leading_zeros(x: np.ndarray) -> np.ndarray:
    bits = _unsigned(x).copy()
    width = 8 * x.dtype.itemsize
    count = np.full(bits.shape, width)
    for _ in range(width):
        count -= bits != 0
        bits >>= bits.dtype.type(1)
    return count.astype(x.dtype)


def multiply_high(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    width = 8 * x.dtype.itemsize
    if width < 64:
        wide = np.dtype(x.dtype.kind + "8")
        return np.right_shift(x.astype(wide) * y.astype(wide), width).astype(x.dtype)
    high = (x.astype(object) * y.astype(object)) // 2**width
    return np.asarray(high).astype(x.dtype)


# ---------------------------------------------------------------- elementary functions


def reciprocal_root(x: np.ndarray) -> np.ndarray:
    """1 / sqrt(x); -inf has none, and f32 rounds once, coming from f64."""
    if x.dtype == dt.float32:
        return (1 / np.sqrt(x.astype(dt.float64))).astype(x.dtype)
    return np.divide(x.dtype.type(1), np.sqrt(x))


def expm1(x: np.ndarray) -> np.ndarray:
    """NumPy's, for complex x with exp's values at infinities, which NumPy makes NaN."""
    if not dt.is_complex(x.dtype):
        return np.expm1(x)
    out, half = np.array(np.exp(x)), np.sin(x.imag / 2)
    near = np.expm1(x.real) * np.cos(x.imag) + (0 - 2 * half * half)  # +0 for -0 + 0j
    out.real = np.where(np.isfinite(x), near, out.real - 1)
    return out


def log1p(x: np.ndarray) -> np.ndarray:
    """NumPy's, for complex x with the small real parts that NumPy loses."""
    if not dt.is_complex(x.dtype):
        return np.log1p(x)
    square = x.real * (x.real + 2) + x.imag * x.imag
    small = np.abs(square) < 0.5
    out = np.array(np.log1p(x))
    out.real = np.where(small, np.log1p(np.where(small, square, 0)) / 2, np.log(np.abs(x + 1)))
    return out


def tanh(x: np.ndarray) -> np.ndarray:
    """NumPy's; at infinities the zero has the sign of its own part, not of sin(2 imag)."""
    if not dt.is_complex(x.dtype):
        return np.tanh(x)
    out = np.array(np.tanh(x))
    out.imag = np.where(np.isinf(x.real), np.copysign(0.0, x.imag), out.imag)
    return out


def tan(x: np.ndarray) -> np.ndarray:
    """tan(x) = tanh(ix) / i."""
    if not dt.is_complex(x.dtype):
        return np.tan(x)
    turned, out = np.empty_like(x), np.empty_like(x)
    turned.real, turned.imag = -x.imag, x.real
    turned = tanh(turned)
    out.real, out.imag = turned.imag, -turned.real
    return out


def logistic(x: np.ndarray) -> np.ndarray:
    if dt.is_complex(x.dtype):
        return 1 / (1 + np.exp(-x))
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay)).astype(x.dtype)


def _in_f64(function: Callable[[float], float]) -> Rule:
    """A function of one Python float, applied to every element: exact, not fast."""

    def rule(x: np.ndarray) -> np.ndarray:
        wide = x.astype(dt.float64).ravel().tolist()
        exact = np.array([function(v) for v in wide], dt.float64).reshape(x.shape)
        return exact.astype(x.dtype)

    return rule


def _zeta_less_one(s: int) -> float:
    """zeta(s) - 1 by summation up to 60 and Euler and Maclaurin's formula beyond, s >= 2."""
    n = 60
    tail = n ** (1 - s) / (s - 1) + 0.5 * n**-s + s / 12 * n ** (-s - 1)
    tail -= s * (s + 1) * (s + 2) / 720 * n ** (-s - 3)
    tail += s * (s + 1) * (s + 2) * (s + 3) * (s + 4) / 30240 * n ** (-s - 5)
    return math.fsum([*(k**-s for k in range(2, n)), tail])


# log Gamma(2 + w) / w, |w| < 1 (DLMF 5.7.3): its terms fall as 2**-k.
LOG_GAMMA_AT_2 = [1 - np.euler_gamma, *((-1) ** k * _zeta_less_one(k) / k for k in range(2, 50))]


def _log_gamma(x: float) -> float:
    """Python's, but for its zeros at 1 and 2, beside which that is 0 to within rounding only."""
    if math.isinf(x):
        return math.inf
    lower = x < 1.5
    w = x - 1 if lower else x - 2
    if -0.5 <= w < 0.5:
        total = 0.0
        for c in reversed(LOG_GAMMA_AT_2[:28]):
            total = total * w + c
        return w * total - math.log1p(w) if lower else w * total
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond the largest float
        return math.inf


def _inverse_erf(y: float) -> float:
    """Halley's iteration on erf, or on erfc in the tails, where 1 - |y| is exact."""
    if not -1 < y < 1:
        return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
    if y == 0:
        return y
    size = abs(y)
    tail = math.log1p(-size * size)
    center = 2 / (math.pi * 0.147) + tail / 2  # Winitzki's approximation, within 0.2 percent
    x = math.sqrt(math.sqrt(center * center - tail / 0.147) - center)
    for _ in range(4):
        error = (1 - size) - math.erfc(x) if size > 0.5 else math.erf(x) - size
        step = error / (2 / math.sqrt(math.pi) * math.exp(-x * x))
        x -= step / (1 + x * step)
    return math.copysign(x, y)


erf = _in_f64(math.erf)
erfc = _in_f64(math.erfc)
erfinv = _in_f64(_inverse_erf)
lgamma = _in_f64(_log_gamma)

# ---------------------------------------------------------------- complex numbers


def real(z: np.ndarray) -> np.ndarray:
    return np.array(z.real)


def imag(z: np.ndarray) -> np.ndarray:
    return np.array(z.imag)


def complex_of_parts(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), np.result_type(x, np.complex64))
    out.real, out.imag = x, y
    return out
