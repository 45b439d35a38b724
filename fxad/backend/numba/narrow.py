"""f16, bf16 and the 8-bit floats: float32 values in registers, integers in memory.

    >>> hex(encode_bf16(round_bf16(np.float32(1.001))))
    '0x3f80'

`round_X` takes a float32 to the nearest value of the format (ties to even), `encode_X` spells
such a value in bits, `decode_X` reads it back. Written like `scalar.py`, for every target.
"""

from __future__ import annotations

import numpy as np

from fxad.backend.numba.elementary import bits32, copysign, float32, inf, nan

f32, f64, u8, u16, u32 = np.float32, np.float64, np.uint8, np.uint16, np.uint32


def round_bf16(x):
    """What is denormal becomes a zero of the same sign, as in the processors' own conversion."""
    bits = bits32(x)
    exponent = bits & u32(0x7F800000)
    if exponent == u32(0x7F800000):
        return x
    if exponent == u32(0):
        return float32(bits & u32(0x80000000))
    odd = (bits >> u32(16)) & u32(1)
    return float32((bits + u32(0x7FFF) + odd) & u32(0xFFFF0000))


def encode_bf16(x):
    bits = bits32(x)
    if x != x:
        return u16((bits >> u32(16)) | u32(0x40))
    return u16(bits >> u32(16))


def decode_bf16(bits):
    return float32(u32(bits) << u32(16))


def round_small(x, mantissa, least, largest, beyond):
    """To `mantissa` fraction bits; `least` is the smallest normal, `largest` the largest value.

    Adding and taking away 2**23 units of the last place rounds to a multiple of it.
    """
    size = abs(x)
    if not size < largest + largest:
        return copysign(f32(beyond), x) if x == x and size < f32(inf) else x
    normal = size if size > least else least
    place = float32((bits32(normal) & u32(0x7F800000)) - u32(u32(mantissa) << u32(23)))
    magic = place * f32(8388608.0)
    size = (size + magic) - magic
    return copysign(f32(beyond) if size > largest else size, x)


def encode_small(x, mantissa, bias, width, special, quiet):
    """Bits of a representable float32; `special`: of infinity, `quiet`: of NaN."""
    bits = bits32(x)
    sign = (bits >> u32(31)) << u32(width - 1)
    if x != x:
        return u32(sign | u32(quiet))
    exponent = np.int32((bits >> u32(23)) & u32(0xFF)) - 127 + bias
    if exponent >= 1:
        if not abs(x) < f32(inf):
            return u32(sign | u32(special))
        fraction = (bits & u32(0x7FFFFF)) >> u32(23 - mantissa)
        return u32(sign | (u32(exponent) << u32(mantissa)) | fraction)
    place = float32(u32(128 - bias - mantissa) << u32(23))  # the smallest denormal
    return u32(sign | u32(abs(x) / place))


def decode_small(bits, mantissa, bias, width, finite_only):
    """The float32 of an encoding; `finite_only`: the top exponent holds numbers and one NaN."""
    word = u32(bits)
    size = word & u32((1 << (width - 1)) - 1)
    top = u32((1 << (width - 1 - mantissa)) - 1)
    exponent = size >> u32(mantissa)
    fraction = size & u32((1 << mantissa) - 1)
    if exponent == u32(0):
        value = f32(fraction) * float32(u32(128 - bias - mantissa) << u32(23))
    elif finite_only and size == u32((1 << (width - 1)) - 1):
        value = f32(nan)
    elif not finite_only and exponent == top:
        value = f32(inf) if fraction == u32(0) else f32(nan)
    else:
        number = ((exponent + u32(127 - bias)) << u32(23)) | (fraction << u32(23 - mantissa))
        value = float32(number)
    return -value if (word >> u32(width - 1)) != u32(0) else value


def round_f16(x):
    return round_small(x, 10, f32(2.0**-14), f32(65504.0), inf)


def encode_f16(x):
    return u16(encode_small(x, 10, 15, 16, 0x7C00, 0x7E00))


def decode_f16(bits):
    return decode_small(bits, 10, 15, 16, False)


def round_f8e4m3fn(x):
    return round_small(x, 3, f32(2.0**-6), f32(448.0), nan)


def encode_f8e4m3fn(x):
    return u8(encode_small(x, 3, 7, 8, 0x7F, 0x7F))


def decode_f8e4m3fn(bits):
    return decode_small(bits, 3, 7, 8, True)


def round_f8e5m2(x):
    return round_small(x, 2, f32(2.0**-14), f32(57344.0), inf)


def encode_f8e5m2(x):
    return u8(encode_small(x, 2, 15, 8, 0x7C, 0x7E))


def decode_f8e5m2(bits):
    return decode_small(bits, 2, 15, 8, False)


def odd32(x):
    """A float64 as a float32 that is safe to round again: inexact results get an odd last bit."""
    near = f32(x)
    wide = f64(near)
    if not abs(wide) < inf or wide == x:
        return near
    bits = bits32(near)
    if abs(wide) > abs(x):
        bits = u32(bits - u32(1))
    return float32(bits | u32(1))
