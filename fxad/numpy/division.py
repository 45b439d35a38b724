"""Remainders, floors of quotients, powers and divisors: what is exact for integers.

floor_divide(7, -2), remainder(7, -2)     # -4, -1
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.counting import count_nonzero
from fxad.core.errors import TypeMismatch
from fxad.core.promotion import is_python_scalar
from fxad.ir.program import OPS, Lit
from fxad.numpy.core import cast, full_of, promoted, value_of
from fxad.numpy.elementwise import abs, is_bool, where
from fxad.numpy.weak import gives_strong, keeps_weak, strong
from fxad.trace.array import Array
from fxad.trace.replay import by_numpy, replayed
from fxad.trace.tracer import type_of

__all__ = [
    "divmod", "float_power", "floor_divide", "fmod", "gcd", "lcm", "mod", "pow", "power",
    "remainder",
]  # fmt: skip


@replayed
@keeps_weak
def floor_divide(x: Any, y: Any, /) -> Array:
    """Division rounded towards minus infinity; integer x // 0 is 0.

    Where a float operand is zero or infinite: the floor of x / y (array API). Its derivative is 0.

    >>> jnp.floor_divide(jnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int32)
    >>> jnp.array([7, -7]) // 2
    Array([ 3, -4], dtype=int32)
    """
    a, b = _operands("floor_divide", x, y)
    dtype = type_of(a).dtype
    if dt.is_float(dtype):
        return _float_floor_divide(OPS["stop_gradient"](a), OPS["stop_gradient"](b))
    if not dt.is_integer(dtype):
        raise TypeMismatch(f"floor_divide: does not take {dtype}")
    quotient = OPS["div"](a, b)
    if not dt.is_signed(dtype):
        return quotient
    inexact = OPS["and"](OPS["ne"](OPS["rem"](a, b), 0), OPS["lt"](OPS["xor"](a, b), 0))
    return OPS["sub"](quotient, OPS["convert"](inexact, dtype=dtype))


def _numbers(x: Any, y: Any) -> tuple[Any, Any]:
    """Two bools as integers."""
    if is_bool(x) and is_bool(y):
        return cast(value_of(x), dt.default_int()), cast(value_of(y), dt.default_int())
    return x, y


def _operands(name: str, x: Any, y: Any) -> list[Any]:
    """x and y of one type. An integer that divides integers stays a literal: compiled code
    multiplies instead of dividing by what it knows."""
    x, y = _numbers(x, y)
    a, b = promoted(name, x, y, numbers=is_python_scalar(y))
    if isinstance(a, Lit) or not dt.is_integer(type_of(a).dtype):
        return promoted(name, x, y, numbers=False)
    return [a, b]


_ZERO = {d: np.zeros((), d) for d in (dt.float32, dt.float64)}


def _floor_divide_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`nearest` is NaN wherever only the quotient's floor will do, except at a zero dividend, whose
    sign it lacks; where both will do they are equal."""
    nearest = np.rint((a - np.remainder(a, b)) / b) + _ZERO[b.dtype]
    if count_nonzero(nearest == nearest) == nearest.size == count_nonzero(a):
        return nearest
    quotient = a / b
    plain = np.isfinite(quotient) & np.isfinite(b) & (a != 0)
    return np.where(plain, nearest, np.floor(quotient))


@by_numpy(type=lambda a, b: a, numpy=_floor_divide_numpy)
def _float_floor_divide(a: Any, b: Any) -> Any:
    """(a - remainder) / b is an integer up to its rounding error; the floor of a / b may be one
    too large, where the quotient was rounded up."""
    quotient = OPS["div"](a, b)
    exact = OPS["div"](OPS["sub"](a, remainder(a, b)), b)
    nearest = OPS["add"](OPS["round"](exact), 0.0)  # no -0: signs of zeros are of zero operands
    plain = OPS["and"](OPS["is_finite"](quotient), OPS["is_finite"](b))
    return OPS["select"](OPS["and"](plain, OPS["ne"](a, 0)), nearest, OPS["floor"](quotient))


@replayed
@keeps_weak
def remainder(x: Any, y: Any, /) -> Array:
    """Remainder with the sign of y (zeros included); integer x % 0 is 0.

    >>> jnp.remainder(jnp.array([7, -7]), 3)  # the sign of the divisor
    Array([1, 2], dtype=int32)
    >>> jnp.fmod(jnp.array([7, -7]), 3)  # that of the dividend
    Array([ 1, -1], dtype=int32)
    """
    a, b = _operands("remainder", x, y)
    return _remainder(a, b)


@by_numpy(type=lambda a, b: a, numpy=np.remainder)
def _remainder(a: Any, b: Any) -> Any:
    dtype = type_of(a).dtype
    rest = OPS["rem"](a, b)
    if dt.is_integer(dtype) and not dt.is_signed(dtype):
        return rest
    if isinstance(b, Lit):
        divisor: Any = b.value
        shifted = OPS["gt" if divisor < 0 else "lt"](rest, 0)
        return OPS["select"](shifted, OPS["add"](rest, b), rest)
    differs = OPS["ne"](OPS["lt"](rest, 0), OPS["lt"](b, 0))
    shifted = OPS["and"](OPS["ne"](rest, 0), differs)
    out = OPS["select"](shifted, OPS["add"](rest, b), rest)
    if not dt.is_float(dtype):
        return out
    # A zero takes the sign of y. Subtracting it from itself keeps the derivative: +0 - 0 = +0.
    still = OPS["stop_gradient"](rest)
    zero = OPS["mul"](OPS["sign"](OPS["stop_gradient"](b)), 0.0)
    signed = OPS["sub"](zero, OPS["sub"](still, rest))
    return OPS["select"](OPS["eq"](rest, 0), signed, out)


mod = remainder


@replayed
@keeps_weak
def fmod(x: Any, y: Any, /) -> Array:
    """Remainder with the sign of x.

    >>> jnp.fmod(jnp.array([7.5, -7.5]), 2)
    Array([ 1.5, -1.5], dtype=float32)
    """
    return OPS["rem"](*promoted("fmod", *_numbers(x, y)))


@replayed
def divmod(x: Any, y: Any, /) -> tuple[Array, Array]:
    """(floor_divide, remainder).

    >>> jnp.divmod(jnp.array([7, -7]), 3)
    (Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))
    """
    return floor_divide(x, y), remainder(x, y)


@replayed
def power(x: Any, y: Any) -> Array:
    """x to the y. Integer powers of integers stay integers: a negative exponent in an array rounds
    1 / x**-y towards 0, and a negative Python int is an error.

    >>> jnp.power(jnp.array([1.0, 2.0, 3.0]), 2)
    Array([1., 4., 9.], dtype=float32)
    >>> jnp.power(2, jnp.array([0, 1, 10]))
    Array([   1,    2, 1024], dtype=int32)
    """
    if isinstance(y, int):
        base = value_of(x)
        if base.dtype == dt.bool_:
            base = cast(base, dt.default_int())
        if dt.is_integer(base.dtype) and y < 0:
            raise TypeMismatch(
                f"power: {base.type} ** {y}: an integer to a negative power is not an integer; "
                "convert the base to a float first"
            )
        return _integer_power(base, int(y))
    given = value_of(x), value_of(y)
    values = promoted("power", *given, numbers=False)
    if type_of(values[0]).dtype == dt.bool_:
        values = [cast(v, dt.default_int()) for v in values]
    result = OPS["pow"](*values)
    weak = not given[1].shape and not any(dt.is_bool(v.dtype) for v in given)  # as in JAX
    return strong(result) if dt.is_integer(result.dtype) and not weak else result


pow = power


def _integer_power(base: Array, n: int) -> Array:
    if n == 0:
        return full_of(1, base.type)
    if n == 1:
        return OPS["copy"](base)
    if n == 2:
        return OPS["square"](base)
    return OPS["integer_pow"](base, n=n)


@replayed
@keeps_weak
def float_power(x: Any, y: Any, /) -> Array:
    """x to the y as floats.

    >>> jnp.float_power(jnp.array([1, 2, 3]), -1).round(3)
    Array([1.   , 0.5  , 0.333], dtype=float32)
    """
    return OPS["pow"](*promoted("float_power", x, y, inexact=True, numbers=False))


def _integers(name: str, x: Any, y: Any) -> list[Any]:
    a, b = promoted(name, x, y, numbers=False)
    if not dt.is_integer(type_of(a).dtype):
        raise TypeMismatch(f"{name}: takes integers, not {type_of(a)}")
    return [a, b]


@replayed
@gives_strong
def gcd(x1: Any, x2: Any) -> Array:
    """Greatest common divisor (a fixed number of Euclid's steps).

    >>> jnp.gcd(jnp.array([12, 18, 7]), 6)
    Array([6, 6, 1], dtype=int32)
    """
    a, b = map(abs, _integers("gcd", x1, x2))
    for _ in range(int(1.45 * type_of(a).dtype.itemsize * 8) + 2):
        a, b = where(b == 0, a, b), where(b == 0, b, remainder(a, b))
    return abs(a)  # the least integer has no abs: remainders by it are negative


@replayed
@gives_strong
def lcm(x1: Any, x2: Any) -> Array:
    """Least common multiple.

    >>> jnp.lcm(jnp.array([4, 6]), 10)
    Array([20, 30], dtype=int32)
    """
    a, b = _integers("lcm", x1, x2)
    return where((a == 0) | (b == 0), 0, abs(floor_divide(a, gcd(a, b)) * b))
