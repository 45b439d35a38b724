"""Elementwise functions with `jax.lax`'s names: the NumPy ones, and those NumPy lacks.

Unlike in JAX operands of different dtypes or shapes promote and broadcast. `div`, `rem` and the
shifts act like the machine's: integer division truncates towards zero.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.api.flat import flatten_args
from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch
from fxad.ir.program import OPS, Lit
from fxad.lax.shapes import index_in_dim
from fxad.numpy.core import (
    cast,
    converted,
    promoted,
    spread_to,
    stack_values,
    value_of,
)
from fxad.numpy.creation import full_like as _full_like
from fxad.numpy.creation import zeros_like
from fxad.numpy.elementwise import multiply, where
from fxad.numpy.elementwise import nextafter as _nextafter
from fxad.trace.array import Array
from fxad.trace.tracer import type_of


def _unary(op: str, name: str, doc: str, inexact: bool = False) -> Callable[..., Array]:
    def function(x: Any) -> Array:
        (value,) = promoted(name, x, inexact=inexact, numbers=False)
        return OPS[op](value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Array:
    """x * y; with out_dtype the product of x and y in that dtype.

    >>> fxad.lax.mul(jnp.array([7, -7, 3]), jnp.array([2, 2, 4]))
    Array([ 14, -14,  12], dtype=int32)
    """
    if out_dtype is None:
        return multiply(x, y)
    dtype = dt.canonicalize(out_dtype, explicit=True)
    return multiply(cast(value_of(x, "mul"), dtype), cast(value_of(y, "mul"), dtype))


def nextafter(x1: Any, x2: Any) -> Array:
    """The next float after x1 in the direction of x2.

    >>> fxad.lax.nextafter(jnp.float32(1), jnp.float32(2)) - 1  # the machine epsilon
    Array(1.1920929e-07, dtype=float32)
    """
    return _nextafter(x1, x2)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Array:
    """One value with x's shape and dtype.

    >>> fxad.lax.full_like(jnp.array([1, 2]), 7, shape=(3,))
    Array([7, 7, 7], dtype=int32)
    """
    return _full_like(x, fill_value, dtype, shape, device=device)


def _binary(op: str, name: str, doc: str) -> Callable[..., Array]:
    def function(x: Any, y: Any) -> Array:
        values = promoted(name, x, y)
        if all(isinstance(v, Lit) for v in values):
            values = promoted(name, x, y, numbers=False)
        return OPS[op](*values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


erf = _unary(
    "erf",
    "erf",
    """The error function.

    >>> fxad.lax.erf(jnp.array([-1.5, 0.0, 2.0])).round(3)
    Array([-0.966,  0.   ,  0.995], dtype=float32)
    """,
    inexact=True,
)
erfc = _unary(
    "erfc",
    "erfc",
    """1 - erf(x), accurate for large x.

    >>> fxad.lax.erfc(jnp.array([-1.5, 0.0, 2.0])).round(3)
    Array([1.966, 1.   , 0.005], dtype=float32)
    """,
    inexact=True,
)
erf_inv = _unary(
    "erfinv",
    "erf_inv",
    """The inverse of erf.

    >>> fxad.lax.erf_inv(jnp.array([-0.5, 0.0, 1.0])).round(3)
    Array([-0.477,  0.   ,    inf], dtype=float32)
    """,
    inexact=True,
)
lgamma = _unary(
    "lgamma",
    "lgamma",
    """log |gamma(x)|.

    >>> fxad.lax.lgamma(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.572, 0.   , 1.792], dtype=float32)
    """,
    inexact=True,
)
logistic = _unary(
    "logistic",
    "logistic",
    """1 / (1 + exp(-x)).

    >>> fxad.lax.logistic(jnp.array([-1.5, 0.0, 2.0])).round(3)
    Array([0.182, 0.5  , 0.881], dtype=float32)
    """,
    inexact=True,
)
population_count = _unary(
    "popcount",
    "population_count",
    """Number of set bits.

    >>> fxad.lax.population_count(jnp.array([0, 7, 255]))
    Array([0, 3, 8], dtype=int32)
    """,
)
clz = _unary(
    "clz",
    "clz",
    """Number of leading zero bits.

    >>> fxad.lax.clz(jnp.array([1, 255]))
    Array([31, 24], dtype=int32)
    """,
)

div = _binary(
    "div",
    "div",
    """x / y; integers truncate towards zero, x / 0 is 0 for them.

    >>> fxad.lax.div(jnp.array([7, -7, 3]), jnp.array([2, 2, 4]))  # towards zero
    Array([ 3, -3,  0], dtype=int32)
    >>> fxad.lax.div(1.0, 0.0)
    Array(inf, dtype=float32)
    """,
)
rem = _binary(
    "rem",
    "rem",
    """Remainder with the sign of x; integer x % 0 is 0.

    >>> fxad.lax.rem(jnp.array([7, -7, 3]), jnp.array([2, 2, 4]))
    Array([ 1, -1,  3], dtype=int32)
    """,
)
shift_left = _binary(
    "shl",
    "shift_left",
    """Bits moved up; 0 past the width.

    >>> fxad.lax.shift_left(jnp.array([1, 3]), 4)
    Array([16, 48], dtype=int32)
    """,
)
mulhi = _binary(
    "mul_high",
    "mulhi",
    """The upper half of the bits of an integer product.

    >>> fxad.lax.mulhi(jnp.array([2**30]), jnp.array([8]))  # the upper 32 of 64 bits
    Array([2], dtype=int32)
    """,
)
shift_right_logical = _binary(
    "shr_logical",
    "shift_right_logical",
    """Bits moved down, zeros in.

    >>> fxad.lax.shift_right_logical(jnp.array([16, -16]), 28)
    Array([ 0, 15], dtype=int32)
    """,
)
shift_right_arithmetic = _binary(
    "shr_arith",
    "shift_right_arithmetic",
    """Bits moved down, the sign bit repeated.

    >>> fxad.lax.shift_right_arithmetic(jnp.array([16, -16]), 2)
    Array([ 4, -4], dtype=int32)
    """,
)


def integer_pow(x: Any, y: int) -> Array:
    """x to a Python integer power; a negative power needs a float or complex x.

    >>> fxad.lax.integer_pow(jnp.array([2.0, 3.0]), -2)
    Array([0.25      , 0.11111111], dtype=float32)
    """
    value = value_of(x, "integer_pow")
    if not isinstance(y, int | np.integer):
        raise TypeMismatch(f"integer_pow: the exponent must be a Python int, not {y!r}")
    if y < 0 and not dt.is_inexact(value.dtype):
        raise TypeMismatch(f"integer_pow: {value.type} to the power {y} is not an integer")
    return OPS["integer_pow"](value, n=y.__index__())


def clamp(min: Any, x: Any, max: Any) -> Array:
    """x limited to [min, max]; the bounds are numbers or arrays of x's shape.

    >>> fxad.lax.clamp(0.0, jnp.array([-1.0, 0.5, 2.0]), 1.0)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    value = value_of(x, "clamp")
    low, high = (cast(value_of(b, "clamp"), value.dtype) for b in (min, max))
    low, high = (spread_to(b, value.shape) for b in (low, high))
    return OPS["clamp"](low, value, high)


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """on_true where pred, else on_false. pred: bools of their shape, or one bool.

    >>> fxad.lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([10, 20]))
    Array([ 1, 20], dtype=int32)
    """
    flag = value_of(pred, "select")
    if flag.dtype != dt.bool_:
        raise TypeMismatch(f"select: pred must hold bools, not {flag.type}")
    return where(flag, on_true, on_false)


def select_n(which: Any, *cases: Any) -> Array:
    """cases[which], elementwise; which holds bools (two cases) or int32, in range.

    Raises TypeMismatch for other dtypes, ShapeError if the shapes do not go together.

    >>> cases = jnp.array([1, 2]), jnp.array([10, 20]), jnp.array([5, 6])
    >>> fxad.lax.select_n(jnp.array([2, 0]), *cases)
    Array([5, 2], dtype=int32)
    """
    index = value_of(which, "select_n")
    if not cases:
        raise BadArgument("select_n: needs at least one case")
    values = promoted("select_n", *cases, numbers=False)
    shape = type_of(values[0]).shape
    if index.shape not in ((), shape):
        raise ShapeError(f"select_n: which {index.type} does not fit cases of shape {shape}")
    if index.dtype == dt.bool_:
        if len(values) > 2:
            raise TypeMismatch(f"select_n: bools choose between 2 cases, not {len(values)}")
        return values[0] if len(values) == 1 else where(index, values[1], values[0])
    if not dt.is_integer(index.dtype):
        raise TypeMismatch(f"select_n: which must hold bools or integers, not {index.type}")
    out = values[-1]
    for number in reversed(range(len(values) - 1)):
        out = where(OPS["le"](index, number), values[number], out)
    return out


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The operand in another dtype.

    >>> fxad.lax.convert_element_type(jnp.array([1.9, -1.9]), jnp.int32)  # towards zero
    Array([ 1, -1], dtype=int32)
    """
    return converted(value_of(operand), dt.canonicalize(new_dtype, explicit=True))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The same bits read as another dtype.

    A narrower one gives a new last axis for the parts of each element, lowest bits first; for a
    wider one the last axis holds the parts and goes. Raises ShapeError if it has another length.

    >>> fxad.lax.bitcast_convert_type(jnp.array([1.0, -0.0]), jnp.uint32)
    Array([1065353216, 2147483648], dtype=uint32)
    >>> fxad.lax.bitcast_convert_type(jnp.array([0x0102, 0x0304], jnp.uint16), jnp.uint8)
    Array([[2, 1],
           [4, 3]], dtype=uint8)
    """
    value = value_of(operand, "bitcast_convert_type")
    wanted = dt.canonicalize(new_dtype, explicit=True)
    if wanted == value.dtype:
        return value
    old, new = value.dtype.itemsize, wanted.itemsize
    if old == new:
        return OPS["bitcast"](value, dtype=wanted)
    small, large = (np.dtype(f"uint{8 * n}") for n in sorted((old, new)))
    if old > new:
        parts = [
            OPS["convert"](OPS["shr_logical"](_bits(value, large), 8 * new * i), dtype=small)
            for i in range(old // new)
        ]
        return _bits(stack_values(parts, value.ndim), wanted)
    if value.shape[-1:] != (new // old,):
        raise ShapeError(
            f"bitcast_convert_type: {value.type} to {wanted.name} needs a last axis of {new // old}"
        )
    wide = OPS["convert"](_bits(value, small), dtype=large)
    parts = [
        OPS["shl"](index_in_dim(wide, i, -1, keepdims=False), 8 * old * i)
        for i in range(new // old)
    ]
    return _bits(functools.reduce(OPS["or"], parts), wanted)


def _bits(value: Any, dtype: np.dtype) -> Array:
    return value if value.dtype == dtype else OPS["bitcast"](value, dtype=dtype)


def complex(x: Any, y: Any) -> Array:
    """x + i y of real floats.

    >>> fxad.lax.complex(jnp.array([1.0, 2.0]), jnp.array([0.0, -1.0]))
    Array([1.+0.j, 2.-1.j], dtype=complex64)
    """
    a, b = promoted("complex", x, y, inexact=True, numbers=False)
    return OPS["complex"](a, b)


def conj(x: Any) -> Array:
    """The complex conjugate, complex of real numbers too.

    >>> fxad.lax.conj(jnp.array([1.0, 2.0]))
    Array([1.+0.j, 2.+0.j], dtype=complex64)
    """
    (value,) = promoted("conj", x, inexact=True, numbers=False)
    if dt.is_complex(value.dtype):
        return OPS["conj"](value)
    return complex(value, zeros_like(value))


def optimization_barrier(operand: Any) -> Any:
    """The tree itself; the compiler does not look through.

    >>> f = lambda x: fxad.lax.optimization_barrier(x * 3.0) / 3.0
    >>> f(2.0)
    Array(2., dtype=float32)
    """
    leaves, tree = flatten_args(operand, "optimization_barrier")
    return tree.unflatten(OPS["barrier"](*leaves)) if leaves else operand


class RoundingMethod(enum.IntEnum):
    """Where `round` takes numbers half way between two integers.

    >>> fxad.lax.round(2.5, fxad.lax.RoundingMethod.TO_NEAREST_EVEN)
    Array(2., dtype=float32)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer, as a float; of two, the one that rounding_method says.

    >>> fxad.lax.round(jnp.array([0.5, 1.5, 2.5]))
    Array([1., 2., 3.], dtype=float32)
    >>> fxad.lax.round(jnp.array([0.5, 1.5, 2.5]), fxad.lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([0., 2., 2.], dtype=float32)
    """
    value = value_of(x, "round")
    if not dt.is_float(value.dtype):
        raise TypeMismatch(f"round: takes floats, not {value.type}")
    even = OPS["round"](value)
    if rounding_method is RoundingMethod.TO_NEAREST_EVEN:
        return even
    down = OPS["trunc"](value)
    half = OPS["eq"](OPS["abs"](OPS["sub"](value, down)), 0.5)
    return where(half, OPS["add"](down, OPS["sign"](value)), even)
