"""Rounding to whole numbers and to decimals; whole and fractional parts.

round(jnp.array([0.125, 2.5]), 2)      # 0.12, 2.5: halves to even
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import no_out, promoted, value_of
from fxad.numpy.elementwise import imag, multiply, real, where
from fxad.numpy.weak import keeps_weak, strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["around", "ceil", "fix", "floor", "modf", "rint", "round", "trunc"]


def _rounding(op: str, name: str, of_halves: str) -> Callable[..., Array]:
    """of_halves: what becomes of -1.5 and 1.5, as they are shown."""

    def function(x: Any) -> Array:
        value = value_of(x)
        if dt.is_complex(value.dtype):
            raise TypeMismatch(f"{name}: complex numbers have no order, got {value.type}")
        return OPS[op](value) if dt.is_float(value.dtype) else value

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{name} of x; integers stay as they are.

    >>> jnp.{name}(jnp.array([-1.5, 1.5]))
    Array({of_halves}, dtype=float32)
    """
    return replayed(keeps_weak(function))


floor = _rounding("floor", "floor", "[-2.,  1.]")


ceil = _rounding("ceil", "ceil", "[-1.,  2.]")


trunc = _rounding("trunc", "trunc", "[-1.,  1.]")


fix = trunc


@replayed
def rint(x: Any, /) -> Array:
    """The nearest integer as a float, halves to even; of complex numbers, both parts.

    >>> jnp.rint(jnp.array([0.5, 1.5, 2.4]))  # halves go to even
    Array([0., 2., 2.], dtype=float32)
    """
    (value,) = promoted("rint", x, inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        return OPS["complex"](OPS["round"](real(value)), OPS["round"](imag(value)))
    return OPS["round"](value)


@replayed
def round(a: Any, decimals: int = 0, out: None = None) -> Array:
    """Round half to even, to a number of decimals; below 0, integers too, to tens and so on.

    >>> jnp.round(jnp.array([1.234, 5.678]), 1)
    Array([1.2, 5.7], dtype=float32)
    >>> jnp.round(jnp.array([0.5, 1.5]))  # halves go to even
    Array([0., 2.], dtype=float32)
    """
    no_out("round", out)
    value = value_of(a)
    if not dt.is_inexact(value.dtype):
        return value if decimals >= 0 else _whole_to_even(value, 10**-decimals)
    if decimals == 0:
        return rint(value)
    scale = 10.0**decimals
    rounded = rint(value * scale) / scale
    return strong(rounded) if value.ndim else rounded


around = round


def _whole_to_even(value: Array, unit: int) -> Array:
    """Integers at the nearest multiple of a unit, halves at the even one."""
    if unit > int(dt.iinfo(value.dtype).max):
        return OPS["sub"](value, value)
    below, rest = divmod(value, unit)
    up = (rest > unit - rest) | ((rest == unit - rest) & (below % 2 == 1))
    return (below + up.astype(value.dtype)) * unit


@replayed
def modf(x: Any, out: None = None) -> tuple[Array, Array]:
    """Fractional and whole part, both with the sign of x.

    >>> jnp.modf(jnp.array([2.5, -1.25]))
    (Array([ 0.5 , -0.25], dtype=float32), Array([ 2., -1.], dtype=float32))
    """
    no_out("modf", out)
    (value,) = promoted("modf", x, inexact=True, numbers=False)
    whole = OPS["trunc"](value)
    return where(value == whole, multiply(value, 0.0), value - whole), whole
