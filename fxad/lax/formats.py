"""`reduce_precision`: floats rounded to formats of fewer bits.

reduce_precision(x, exponent_bits=4, mantissa_bits=3)
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import full_of, value_of
from fxad.numpy.elementwise import where
from fxad.numpy.weak import finish
from fxad.trace.array import Array


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """Floats rounded to a format of fewer bits, half to even, and kept in their own dtype.

    As in XLA what is too large becomes infinite and what is too small zero: the format has no
    subnormal numbers. NaN stays. The derivative is that of the identity. Raises BadArgument for
    less than 1 exponent bit or a negative number of mantissa bits.

    >>> # what bfloat16 would hold
    >>> fxad.lax.reduce_precision(jnp.array([1.001, 1e39, 3.14159]), 8, 7)
    Array([1.      ,      inf, 3.140625], dtype=float32)
    """
    value = value_of(operand, "reduce_precision")
    if not dt.is_float(value.dtype):
        raise TypeMismatch(f"reduce_precision: expects floats, got {value.type}")
    exponent, mantissa = operator.index(exponent_bits), operator.index(mantissa_bits)
    if exponent < 1 or mantissa < 0:
        raise BadArgument(
            f"reduce_precision: no format of {exponent} exponent and {mantissa} mantissa bits; "
            "give at least 1 and 0"
        )
    return finish(_through(value, exponent, mantissa), value.weak)


def _rounded(value: Any, exponent: int, mantissa: int) -> Any:
    """The rounding on the bits of the floats, as XLA does it."""
    own = dt.finfo(value.dtype)
    bits_type = np.dtype(f"u{value.dtype.itemsize}")
    bits = OPS["bitcast"](value, dtype=bits_type)

    def number(n: int) -> Array:
        return full_of(n, ArrayType(bits_type, value.shape))

    spare = own.nmant - mantissa
    if spare > 0:
        last = OPS["and"](OPS["shr_logical"](bits, number(spare)), number(1))
        bits = OPS["add"](bits, OPS["add"](last, number((1 << (spare - 1)) - 1)))
        bits = OPS["and"](bits, number(((1 << own.bits) - 1) ^ ((1 << spare) - 1)))
    if exponent < own.nexp:
        bias, reach = (1 << (own.nexp - 1)) - 1, (1 << (exponent - 1)) - 1
        infinite = ((1 << own.nexp) - 1) << own.nmant
        place = OPS["and"](bits, number(infinite))
        sign = OPS["and"](bits, number(1 << (own.bits - 1)))
        over = OPS["gt"](place, number((bias + reach) << own.nmant))
        under = OPS["le"](place, number((bias - reach) << own.nmant))
        bits = where(over, OPS["or"](sign, number(infinite)), where(under, sign, bits))
    out = OPS["bitcast"](bits, dtype=value.dtype)
    return where(OPS["ne"](value, value), value, out)


_through = custom_jvp(_rounded, nondiff_argnums=(1, 2))
_through.defjvp(
    lambda exponent, mantissa, primals, tangents: (
        _through(primals[0], exponent, mantissa),
        tangents[0],
    )
)
