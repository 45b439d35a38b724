"""Floats as mantissa and exponent, and bits as arrays.

mantissa, exponent = frexp(x)      x == ldexp(mantissa, exponent)
packbits([1, 0, 0, 0, 0, 0, 1, 1])   # 131
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import axis_index, cast, promoted, value_of
from fxad.numpy.elementwise import (
    abs,
    clip,
    isfinite,
    isnan,
    nextafter,
    not_equal,
    signbit,
    where,
)
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import moveaxis, reshape
from fxad.numpy.weak import gives_strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["frexp", "ldexp", "packbits", "spacing", "unpackbits"]


def _real(name: str, x: Any) -> Array:
    (value,) = promoted(name, x, inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        raise TypeMismatch(f"{name}: takes real numbers, not {value.type}")
    return value


def _wide(value: Array) -> Array:
    """Half-width floats as float32, which holds all that they do."""
    return cast(value, dt.float32) if value.dtype.itemsize < 4 else value


def _layout(dtype: np.dtype) -> tuple[np.dtype, int, int]:
    """The integer of a float's width, the bits of its mantissa, and the bias of its exponent."""
    return (dt.int64, 52, 1023) if dtype.itemsize == 8 else (dt.int32, 23, 127)


@replayed
@gives_strong
def frexp(x: Any, /) -> tuple[Array, Array]:
    """(mantissa, exponent) with x = mantissa * 2**exponent and 0.5 <= abs(mantissa) < 1.

    exponent: int32. Of 0, infinities and NaN: x itself, and 0. The derivative of the mantissa
    is 2**-exponent, as if the exponent were constant.

    >>> jnp.frexp(jnp.array([8.0, 0.75]))
    (Array([0.5 , 0.75], dtype=float32), Array([4, 0], dtype=int32))
    """
    given = _real("frexp", x)
    value = OPS["stop_gradient"](_wide(given))
    integer, width, bias = _layout(value.dtype)
    subnormal = abs(value) < float(dt.finfo(value.dtype).tiny)
    lifted = where(subnormal, value * 2.0 ** (width + 1), value)
    bits = OPS["bitcast"](lifted, dtype=integer)
    biased = (bits >> width) & (2 * bias + 1)
    found = biased - (bias - 1) - where(subnormal, width + 1, 0)
    plain = isfinite(value) & not_equal(value, 0)
    exponent = cast(where(plain, found, 0), dt.int32)
    return ldexp(given, -exponent), exponent


@replayed
@gives_strong
def ldexp(x1: Any, x2: Any, /) -> Array:
    """x1 * 2**x2, rounded once. x1: floats (or integers as floats); x2: integers.

    >>> jnp.ldexp(jnp.array([0.5, 0.75]), jnp.array([4, 0]))
    Array([8.  , 0.75], dtype=float32)
    """
    given, power = _real("ldexp", x1), value_of(x2, "ldexp")
    if not dt.is_integer(power.dtype):
        raise TypeMismatch(f"ldexp: exponents must be integers, not {power.type}")
    value = _wide(given)
    integer, width, bias = _layout(value.dtype)
    power = cast(clip(power, -4 * bias, 4 * bias) if power.dtype.itemsize > 1 else power, integer)
    # Powers of two that are floats; the last product is the one that may round.
    last = clip(power, 1 - bias, bias)
    rest = power - last
    half = clip(rest, 1 - bias, bias)
    for part in (rest - half, half, last):
        value = value * OPS["bitcast"](
            (clip(part, 1 - bias, bias) + bias) << width, dtype=value.dtype
        )
    return cast(value, given.dtype)


@replayed
@gives_strong
def spacing(x: Any, /) -> Array:
    """The distance to the next float away from 0, with the sign of x; its derivative is 0.

    >>> jnp.spacing(jnp.array([1.0, 1000.0]))
    Array([1.1920929e-07, 6.1035156e-05], dtype=float32)
    """
    value = OPS["stop_gradient"](_real("spacing", x))
    size = abs(value)
    gap = nextafter(size, np.inf) - size
    signed = where(signbit(value) & ~isnan(value), -gap, gap)
    return where(isfinite(value), signed, np.nan)


# ---------------------------------------------------------------- bits


def _places(bitorder: str, name: str) -> np.ndarray:
    """How far up each of eight bits stands in its byte."""
    if bitorder not in ("big", "little"):
        raise BadArgument(f"{name}: bitorder must be 'big' or 'little', not {bitorder!r}")
    return np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1]


@replayed
def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight bits (bools, or integers that are not 0) to a byte (uint8) along an axis, or of the
    flat array; zeros fill the last one.

    >>> jnp.packbits(jnp.array([1, 0, 0, 0, 0, 0, 1, 1], jnp.uint8))
    Array([131], dtype=uint8)
    """
    places = _places(bitorder, "packbits")
    value = value_of(a, "packbits")
    if not (dt.is_integer(value.dtype) or value.dtype == dt.bool_):
        raise TypeMismatch(f"packbits: takes bools and integers, not {value.type}")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "packbits")
    bits = moveaxis(cast(not_equal(value, 0), dt.uint8), at, -1)
    short = -bits.shape[-1] % 8
    if short:
        filler = np.zeros((*bits.shape[:-1], short), np.uint8)
        bits = concatenate([bits, filler], -1)
    bits = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    bytes_ = OPS["sum"](bits << places, axes=(bits.ndim - 1,))
    return moveaxis(bytes_, -1, at)


@replayed
def unpackbits(
    a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """The bits (uint8) of bytes (uint8) along an axis, or of the flat array.

    count: how many; negative: how many to leave out at the end; more than there are: zeros follow.

    >>> jnp.unpackbits(jnp.array([131], jnp.uint8))
    Array([1, 0, 0, 0, 0, 0, 1, 1], dtype=uint8)
    """
    places = _places(bitorder, "unpackbits")
    value = value_of(a, "unpackbits")
    if value.dtype != dt.uint8:
        raise TypeMismatch(f"unpackbits: takes bytes (uint8), not {value.type}")
    if axis is None:
        value, axis = reshape(value, (-1,)), 0
    at = axis_index(axis, value.ndim, "unpackbits")
    value = moveaxis(value, at, -1)
    bits = (reshape(value, (*value.shape, 1)) >> places) & np.uint8(1)
    bits = reshape(bits, (*value.shape[:-1], value.shape[-1] * 8))
    if count is not None:
        more = count - bits.shape[-1]
        if count >= 0 and more > 0:
            bits = concatenate([bits, np.zeros((*bits.shape[:-1], more), np.uint8)], -1)
        bits = bits[..., :count]
    return moveaxis(bits, -1, at)
