"""Scalar functions that emitted kernels call, in the subset of Python that numba compiles.

    >>> int(int_div(np.int32(-7), np.int32(2))), int(int_div(np.int32(7), np.int32(0)))
    (-3, 0)

As it stands the module serves the "python" target. For numba, `library.py` rebinds these functions
to a namespace in which the elementary functions (`exp`, `erf`, `fma`...) are the
target's own. Arguments are NumPy scalars. Beware of numba's typing: uint64 with int64 is
float64, so unsigned code spells every constant's type.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.numba.elementary import (
    bits32,
    bits64,
    cexp,
    clog,
    copysign,
    erf,
    erfc,
    exp,
    float32,
    float64,
    fma,
    inf,
    log,
    nan,
    power,
    sqrt,
)

f32, f64, i64, u32, u64 = np.float32, np.float64, np.int64, np.uint32, np.uint64

# ------------------------------------------------ integers


def int_div(a, b):
    """a / b towards zero; 0 where b is 0."""
    if b == 0:
        return a - a
    if b == -1:
        return -a
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        return quotient + 1
    return quotient


def uint_div(a, b):
    if b == 0:
        return a - a
    return a // b


def shift_left(a, b, bits):
    if b >= bits:
        return a - a
    return a << b


def shift_right(a, b, bits):
    if b >= bits:
        return a - a
    return a >> b


def shift_signed(a, b, bits):
    """Amounts out of range (also those that read as negative) leave the sign."""
    if b < 0 or b >= bits:
        return a >> (bits - 1)
    return a >> b


def popcount(x):
    """Ones in a uint64."""
    count = 0
    while x != u64(0):
        x = x & (x - u64(1))
        count += 1
    return count


def clz(x, bits):
    """Leading zeros of a uint64 that holds a `bits`-bit number."""
    while x != u64(0):
        x = x >> u64(1)
        bits -= 1
    return bits


def umul_high(a, b):
    """Upper 64 of the 128 bits of a product of uint64."""
    low, half = u64(0xFFFFFFFF), u64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half)


def mul_high(a, b):
    """Upper 64 of the 128 bits of a product of int64."""
    high = i64(umul_high(u64(a), u64(b)))
    if a < 0:
        high = high - b
    if b < 0:
        high = high - a
    return high


def saturate(x, low, high):
    """A float64 as an int64, clamped into low .. high and truncated; NaN gives 0."""
    if x != x:
        return i64(0)
    if x < low:
        return i64(low)
    if x >= high:
        return i64(high)
    return i64(x)


def saturate_u64(x):
    if x != x or x < 1.0:
        return u64(0)
    if x >= 18446744073709551616.0:
        return u64(0xFFFFFFFFFFFFFFFF)
    return u64(x)


def clamp(index, size):
    """An int64 index forced into 0 .. size-1."""
    if index < 0:
        return i64(0)
    if index >= size:
        return i64(size - 1)
    return i64(index)


# ------------------------------------------------ floats


def maximum(a, b):
    """The larger; NaN if either is; +0 above -0."""
    if a != a or b != b or (a == 0 and b == 0):
        return a + b
    return a if a > b else b


def minimum(a, b):
    if a != a or b != b:
        return a + b
    if a == 0 and b == 0:
        return -(-a - b)
    return a if a < b else b


def fmaximum(a, b):
    """The larger, ignoring NaN."""
    return a if a > b or b != b else b


def fminimum(a, b):
    return a if a < b or b != b else b


def sign(x, one):
    return copysign(one, x) if x < 0 or x > 0 else x + (one - one)


def round32(x):
    """To the nearest integer, ties to even: 2**23 has no bits below one."""
    size = abs(x)
    if not size < f32(8388608.0):
        return x
    return copysign((size + f32(8388608.0)) - f32(8388608.0), x)


def round64(x):
    size = abs(x)
    if not size < f64(4503599627370496.0):
        return x
    return copysign((size + f64(4503599627370496.0)) - f64(4503599627370496.0), x)


def floor32(x):
    near = round32(x)
    return near - f32(1) if near > x else near


def floor64(x):
    near = round64(x)
    return near - f64(1) if near > x else near


def next32(x, y):
    """The float32 after x in the direction of y."""
    if x != x or y != y:
        return x + y
    if x == y:
        return y
    if x == 0:
        return copysign(float32(1), y)
    bits = bits32(x)
    step = bits + u32(1) if (x < y) == (x > 0) else bits - u32(1)
    return float32(step)


def next64(x, y):
    if x != x or y != y:
        return x + y
    if x == y:
        return y
    if x == 0:
        return copysign(float64(1), y)
    bits = bits64(x)
    step = bits + u64(1) if (x < y) == (x > 0) else bits - u64(1)
    return float64(step)


def next_bits(x, y, bits, other, width):
    """The encoding after `bits` of x towards y, whose encoding is `other`, in a narrow format."""
    code, sign = i64(bits), i64(1) << i64(width - 1)
    if x != x:
        return code
    if y != y or x == y:
        return i64(other)
    if x == 0:
        return (i64(other) & sign) | i64(1)
    return code + i64(1) if (x < y) == (x > 0) else code - i64(1)


def cbrt(x):
    """Cube root of a float64: a power, then one Newton step."""
    size = abs(x)
    if not (size > 0 and size < inf):
        return x
    root = power(size, f64(1 / 3))
    root = root - (root * root * root - size) / (f64(3) * root * root)
    return copysign(root, x)


def erfinv(x):
    """Inverse of erf for a float64: Winitzki's formula, then Halley's method.

    Near one the residual is taken from erfc, which does not cancel there.
    """
    size = abs(x)
    if not size < 1:
        return copysign(f64(inf), x) if size == 1 else f64(nan)
    if size < 1e-8:
        return x * f64(0.886226925452758)
    tail = log((f64(1) - size) * (f64(1) + size))
    middle = f64(4.330746750799873) + tail * f64(0.5)
    guess = sqrt(sqrt(middle * middle - tail * f64(6.802721088435374)) - middle)
    for _ in range(3):
        if size < 0.5:
            error = erf(guess) - size
        else:
            error = (f64(1) - size) - erfc(guess)
        step = error / (f64(1.1283791670955126) * exp(-guess * guess))
        guess = guess - step / (f64(1) + guess * step)
    return copysign(guess, x)


# ------------------------------------------------ complex numbers


def cdiv(a, b):
    """a / b by Smith's method: no overflow of |b|**2."""
    if abs(b.real) >= abs(b.imag):
        if b.real == 0 and b.imag == 0:
            return complex(a.real / b.real, a.imag / b.real)
        ratio = b.imag / b.real
        size = b.real + b.imag * ratio
        return complex((a.real + a.imag * ratio) / size, (a.imag - a.real * ratio) / size)
    ratio = b.real / b.imag
    size = b.real * ratio + b.imag
    return complex((a.real * ratio + a.imag) / size, (a.imag * ratio - a.real) / size)


def cmul(a, b):
    return complex(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real)


def cfma(a, b, c):
    """c + a * b, each part by two fused steps."""
    real = fma(-a.imag, b.imag, fma(a.real, b.real, c.real))
    return complex(real, fma(a.imag, b.real, fma(a.real, b.imag, c.imag)))


def cpow(a, b):
    """a ** b; 0 ** 0 is 1 and other powers of 0 are 0."""
    if a == 0:
        return a * 0 + 1 if b == 0 else a * 0
    return cexp(b * clog(a))


def csign(x):
    size = abs(x)
    if size == 0:
        return complex(0.0, 0.0)
    return complex(x.real / size, x.imag / size)


# ------------------------------------------------ order of a sort


def before(a, b):
    """a sorts before b: ascending, NaN last."""
    return bool(a < b or (b != b and a == a))


def cbefore(a, b):
    """Complex numbers by real part, then by imaginary part; those with a NaN last."""
    if a != a or b != b:
        return bool(a == a)
    return bool(a.real < b.real or (a.real == b.real and a.imag < b.imag))


def outranks(sense, value, position, best, at):
    """(value, position) replaces (best, at): the first NaN, else the first extreme value.

    sense: 1 for argmax, -1 for argmin.
    """
    if value != value or best != best:
        return bool(value != value and (best == best or position < at))
    if value == best:
        return bool(position < at)
    return bool((value > best) == (sense > 0))
