"""Functions of each element under NumPy's names: promotion and broadcasting around the ops.

add(x, 1)      hypot(3.0, 4.0)      logaddexp(a, b)      nan_to_num(x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.counting import count_nonzero
from fxad.core.errors import TypeMismatch
from fxad.ir.program import OPS, Lit
from fxad.numpy.core import (
    cast,
    full_of,
    known_values,
    matched,
    no_out,
    promoted,
    result_shape,
    spread_to,
    value_of,
)
from fxad.numpy.weak import (
    gives_strong,
    keeps_weak,
    strong,
    strong_with_axes,
    weak_as_first,
    weak_result,
)
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import by_numpy, replayed
from fxad.trace.tracer import bind, type_of

__all__ = [
    "abs",
    "absolute",
    "acos",
    "acosh",
    "add",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "cbrt",
    "clip",
    "conj",
    "conjugate",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "divide",
    "equal",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "fmax",
    "fmin",
    "greater",
    "greater_equal",
    "heaviside",
    "hypot",
    "imag",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "nan_to_num",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "rad2deg",
    "radians",
    "real",
    "real_if_close",
    "reciprocal",
    "right_shift",
    "rsqrt",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "true_divide",

]  # fmt: skip


def _unary(op: str, doc: str, inexact: bool = False) -> Callable[..., Array]:
    rule = OPS[op]

    def function(x: Any) -> Array:
        if isinstance(x, Array) and not x.weak and (not inexact or x.type.dtype.kind == "f"):
            return bind(rule, x)
        (value,) = promoted(op, x, inexact=inexact, numbers=False)
        return rule(value)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return replayed(function)


def _binary(
    op: str,
    doc: str,
    inexact: bool = False,
    name: str = "",
    logic: str = "",
    of_keys: str = "",
) -> Callable[..., Array]:
    """`logic`: the op for two bools. `of_keys`: what is asked of both words of typed keys."""
    rule, kinds = OPS[op], "f" if inexact else "fiu"

    def function(x: Any, y: Any) -> Array:
        ready = matched(x, y, kinds)
        if ready is not None:
            return bind(rule, *ready)
        chosen = OPS[logic] if logic and is_bool(x) and is_bool(y) else rule
        values = promoted(name or op, x, y, inexact=inexact)
        if isinstance(values[0], Lit) and isinstance(values[1], Lit):
            values = promoted(name or op, x, y, inexact=inexact, numbers=False)
        if of_keys and type_of(values[0]).dtype == dt.key:
            words = [OPS["random_unwrap"](v) for v in values]
            return OPS[of_keys](rule(*words), axes=(type_of(words[0]).ndim - 1,))
        return chosen(*values)

    function.__name__ = function.__qualname__ = name or op
    function.__doc__ = doc
    return replayed(numbers=True)(function)


negative = _unary(
    "neg",
    """-x.

    >>> jnp.negative(jnp.array([1, -2]))
    Array([-1,  2], dtype=int32)
    """,
)


sign = _unary(
    "sign",
    """-1, 0 or 1 by the sign of x.

    >>> jnp.sign(jnp.array([-2.5, 0.0, 7.0, jnp.nan]))
    Array([-1.,  0.,  1., nan], dtype=float32)
    """,
)


exp = _unary(
    "exp",
    """e to the x.

    >>> jnp.exp(jnp.array([0.0, 1.0, -jnp.inf, 200.0])).round(3)
    Array([1.   , 2.718, 0.   ,   inf], dtype=float32)
    """,
    inexact=True,
)


exp2 = _unary(
    "exp2",
    """2 to the x.

    >>> jnp.exp2(jnp.array([0.0, 1.0, -jnp.inf, 200.0])).round(3)
    Array([ 1.,  2.,  0., inf], dtype=float32)
    """,
    inexact=True,
)


expm1 = _unary(
    "expm1",
    """exp(x) - 1, accurate near 0.

    >>> jnp.expm1(1e-10)
    Array(1.e-10, dtype=float32)
    >>> jnp.exp(jnp.float32(1e-10)) - 1
    Array(0., dtype=float32)
    """,
    inexact=True,
)


log = _unary(
    "log",
    """Natural logarithm.

    >>> jnp.log(jnp.array([1.0, 2.0, 100.0, 0.0, -1.0])).round(3)
    Array([0.   , 0.693, 4.605,  -inf,   nan], dtype=float32)
    """,
    inexact=True,
)


log2 = _unary(
    "log2",
    """Base-2 logarithm.

    >>> jnp.log2(jnp.array([1.0, 2.0, 100.0, 0.0, -1.0])).round(3)
    Array([0.   , 1.   , 6.644,  -inf,   nan], dtype=float32)
    """,
    inexact=True,
)


log1p = _unary(
    "log1p",
    """log(1 + x), accurate near 0.

    >>> jnp.log1p(1e-10)
    Array(1.e-10, dtype=float32)
    >>> jnp.log(1 + jnp.float32(1e-10))
    Array(0., dtype=float32)
    """,
    inexact=True,
)


sqrt = _unary(
    "sqrt",
    """Square root.

    >>> jnp.sqrt(jnp.array([4.0, 2.25, -1.0]))
    Array([2. , 1.5, nan], dtype=float32)
    """,
    inexact=True,
)


cbrt = _unary(
    "cbrt",
    """Cube root.

    >>> jnp.cbrt(jnp.array([8.0, -27.0])).round(3)
    Array([ 2., -3.], dtype=float32)
    """,
    inexact=True,
)


sin = _unary(
    "sin",
    """Sine of radians.

    >>> jnp.sin(jnp.array([0.0, jnp.pi / 6, jnp.pi / 2])).round(3)
    Array([0. , 0.5, 1. ], dtype=float32)
    """,
    inexact=True,
)


cos = _unary(
    "cos",
    """Cosine of radians.

    >>> jnp.cos(jnp.array([0.0, jnp.pi / 3, jnp.pi])).round(3)
    Array([ 1. ,  0.5, -1. ], dtype=float32)
    """,
    inexact=True,
)


tan = _unary(
    "tan",
    """Tangent of radians.

    >>> jnp.tan(jnp.array([0.0, jnp.pi / 4, -jnp.pi / 4])).round(3)
    Array([ 0.,  1., -1.], dtype=float32)
    """,
    inexact=True,
)


arcsin = asin = _unary(
    "asin",
    """Inverse sine.

    >>> jnp.asin(jnp.array([-1.0, 0.0, 0.5, 2.0])).round(3)
    Array([-1.571,  0.   ,  0.524,    nan], dtype=float32)
    """,
    inexact=True,
)


arccos = acos = _unary(
    "acos",
    """Inverse cosine.

    >>> jnp.acos(jnp.array([-1.0, 0.0, 0.5, 2.0])).round(3)
    Array([3.142, 1.571, 1.047,   nan], dtype=float32)
    """,
    inexact=True,
)


arctan = atan = _unary(
    "atan",
    """Inverse tangent.

    >>> jnp.atan(jnp.array([-jnp.inf, 0.0, 1.0])).round(3)
    Array([-1.571,  0.   ,  0.785], dtype=float32)
    """,
    inexact=True,
)


sinh = _unary(
    "sinh",
    """Hyperbolic sine.

    >>> jnp.sinh(jnp.array([-1.0, 0.0, 2.0])).round(3)
    Array([-1.175,  0.   ,  3.627], dtype=float32)
    """,
    inexact=True,
)


cosh = _unary(
    "cosh",
    """Hyperbolic cosine.

    >>> jnp.cosh(jnp.array([-1.0, 0.0, 1.0])).round(3)
    Array([1.543, 1.   , 1.543], dtype=float32)
    """,
    inexact=True,
)


tanh = _unary(
    "tanh",
    """Hyperbolic tangent.

    >>> jnp.tanh(jnp.array([-1.0, 0.0, 2.0])).round(3)
    Array([-0.762,  0.   ,  0.964], dtype=float32)
    """,
    inexact=True,
)


arcsinh = asinh = _unary(
    "asinh",
    """Inverse hyperbolic sine.

    >>> jnp.asinh(jnp.array([-1.0, 0.0, 2.0])).round(3)
    Array([-0.881,  0.   ,  1.444], dtype=float32)
    """,
    inexact=True,
)


arccosh = acosh = _unary(
    "acosh",
    """Inverse hyperbolic cosine.

    >>> jnp.acosh(jnp.array([0.5, 1.0, 2.0])).round(3)
    Array([  nan, 0.   , 1.317], dtype=float32)
    """,
    inexact=True,
)


arctanh = atanh = _unary(
    "atanh",
    """Inverse hyperbolic tangent.

    >>> jnp.atanh(jnp.array([-0.5, 0.0, 1.0])).round(3)
    Array([-0.549,  0.   ,    inf], dtype=float32)
    """,
    inexact=True,
)


bitwise_not = invert = bitwise_invert = _unary(
    "not",
    """Bits flipped; `not` for bools.

    >>> jnp.bitwise_invert(jnp.array([0, 5], jnp.uint8))
    Array([255, 250], dtype=uint8)
    """,
)


rsqrt = _unary(
    "rsqrt",
    """1 / sqrt(x).

    >>> jnp.rsqrt(jnp.array([4.0, 0.25, 0.0])).round(3)
    Array([0.5, 2. , inf], dtype=float32)
    """,
    inexact=True,
)


add = _binary(
    "add",
    """x + y (logical or for bools).

    >>> jnp.add(jnp.array([1, 2]), 0.5)
    Array([1.5, 2.5], dtype=float32)
    >>> jnp.add(jnp.array([True, False]), True)
    Array([ True,  True], dtype=bool)
    """,
    logic="or",
)


subtract = _binary(
    "sub",
    """x - y.

    >>> jnp.subtract(jnp.array([5, 7]), jnp.array([[1], [2]]))
    Array([[4, 6],
           [3, 5]], dtype=int32)
    """,
    name="subtract",
)


multiply = _binary(
    "mul",
    """x * y (logical and for bools).

    >>> jnp.multiply(jnp.array([1, 2, 3]), jnp.array([2, 2, 2]))
    Array([2, 4, 6], dtype=int32)
    """,
    name="multiply",
    logic="and",
)


arctan2 = atan2 = _binary(
    "atan2",
    """Angle of the point (y, x).

    >>> jnp.atan2(jnp.array([1.0, 1.0, -1.0]), jnp.array([1.0, -1.0, -1.0])).round(3)
    Array([ 0.785,  2.356, -2.356], dtype=float32)
    """,
    inexact=True,
)


nextafter = _binary(
    "nextafter",
    """The next float after x towards y.

    >>> jnp.nextafter(1.0, 2.0) - 1
    Array(1.1920929e-07, dtype=float32)
    """,
    inexact=True,
)


equal = _binary(
    "eq",
    """x == y.

    >>> jnp.equal(jnp.array([1, 2, 3]), 2)
    Array([False,  True, False], dtype=bool)
    """,
    name="equal",
    of_keys="all",
)


not_equal = _binary(
    "ne",
    """x != y.

    >>> jnp.not_equal(jnp.array([1, 2, 3]), 2)
    Array([ True, False,  True], dtype=bool)
    """,
    name="not_equal",
    of_keys="any",
)


bitwise_and = _binary(
    "and",
    """Bitwise and.

    >>> jnp.bitwise_and(jnp.array([12, 10]), 6)
    Array([4, 2], dtype=int32)
    """,
    name="bitwise_and",
)


bitwise_or = _binary(
    "or",
    """Bitwise or.

    >>> jnp.bitwise_or(jnp.array([12, 10]), 6)
    Array([14, 14], dtype=int32)
    """,
    name="bitwise_or",
)


bitwise_xor = _binary(
    "xor",
    """Bitwise exclusive or.

    >>> jnp.bitwise_xor(jnp.array([12, 10]), 6)
    Array([10, 12], dtype=int32)
    """,
    name="bitwise_xor",
)


left_shift = bitwise_left_shift = _binary(
    "shl",
    """Bits moved up; 0 past the width.

    >>> jnp.left_shift(jnp.array([1, 3]), 4)
    Array([16, 48], dtype=int32)
    """,
)


def _ordered(op: str, name: str, example: str) -> Callable[..., Array]:
    """example: how 1, 2, 3 compare to 2."""
    rule = OPS[op]

    def function(x: Any, y: Any) -> Array:
        ready = matched(x, y)
        if ready is not None:
            return bind(rule, *ready)
        values = promoted(name, x, y)
        if type_of(values[0]).dtype == dt.bool_:
            values = [cast(v, dt.int32) for v in values]
        if all(isinstance(v, Lit) for v in values):
            values = promoted(name, x, y, numbers=False)
        if dt.is_complex(type_of(values[0]).dtype):
            return _complex_ordered(op, *promoted(name, x, y, numbers=False))
        return rule(*values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Elementwise {name.replace("_", " ")}.

    >>> jnp.{name}(jnp.array([1, 2, 3]), 2)
    Array({example}, dtype=bool)
    """
    return replayed(numbers=True)(function)


def _complex_ordered(op: str, x: Any, y: Any) -> Array:
    """By real part; where those are equal, by imaginary part."""
    (a, b), (c, d) = (real(x), real(y)), (imag(x), imag(y))
    same = OPS["eq"](a, b)
    return OPS["select"](same, OPS[op](c, d), OPS[op](a, b))


less = _ordered("lt", "less", "[ True, False, False]")


less_equal = _ordered("le", "less_equal", "[ True,  True, False]")


greater = _ordered("gt", "greater", "[False, False,  True]")


greater_equal = _ordered("ge", "greater_equal", "[False,  True,  True]")


def _extreme(op: str, order: str, logic: str, name: str, doc: str) -> Callable[..., Array]:
    ordinary = _binary(op, doc, name=name, logic=logic)

    def function(x: Any, y: Any) -> Array:
        if not (_is_complex(x) or _is_complex(y)):
            return ordinary(x, y)
        a, b = promoted(name, x, y, numbers=False)
        first = OPS["or"](_complex_ordered(order, a, b), isnan(a))
        return OPS["select"](first, a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return replayed(numbers=True)(function)


maximum = _extreme(
    "max",
    "ge",
    "or",
    "maximum",
    """The larger element; NaN wins. Complex numbers compare by real part first.

    >>> jnp.maximum(jnp.array([1.0, 5.0, jnp.nan]), 3.0)
    Array([ 3.,  5., nan], dtype=float32)
    """,
)


minimum = _extreme(
    "min",
    "le",
    "and",
    "minimum",
    """The smaller element; NaN wins. Complex numbers compare by real part first.

    >>> jnp.minimum(jnp.array([1.0, 5.0, jnp.nan]), 3.0)
    Array([ 1.,  3., nan], dtype=float32)
    """,
)


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex) or dt.is_complex(getattr(x, "dtype", dt.bool_))


def is_bool(x: Any) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == dt.bool_


def _logical(x: Any) -> Array:
    value = value_of(x)
    return value if value.dtype == dt.bool_ else not_equal(value, 0)


@replayed
@strong_with_axes
def logical_not(x: Any, /) -> Array:
    """Whether x is zero.

    >>> jnp.logical_not(jnp.array([0, 1, 2]))
    Array([ True, False, False], dtype=bool)
    """
    return OPS["not"](_logical(x))


@replayed
@strong_with_axes
def logical_and(x: Any, y: Any, /) -> Array:
    """Whether both are non-zero.

    >>> jnp.logical_and(jnp.array([0, 1, 2]), True)
    Array([False,  True,  True], dtype=bool)
    """
    return bitwise_and(_logical(x), _logical(y))


@replayed
@strong_with_axes
def logical_or(x: Any, y: Any, /) -> Array:
    """Whether either is non-zero.

    >>> jnp.logical_or(jnp.array([0, 1, 2]), False)
    Array([False,  True,  True], dtype=bool)
    """
    return bitwise_or(_logical(x), _logical(y))


@replayed
@strong_with_axes
def logical_xor(x: Any, y: Any, /) -> Array:
    """Whether exactly one is non-zero.

    >>> jnp.logical_xor(jnp.array([0, 1, 2]), True)
    Array([ True, False, False], dtype=bool)
    """
    return bitwise_xor(_logical(x), _logical(y))


@replayed
def right_shift(x: Any, y: Any, /) -> Array:
    """Bits moved down, keeping the sign of signed integers.

    >>> jnp.right_shift(jnp.array([16, -16]), 2)
    Array([ 4, -4], dtype=int32)
    """
    values = promoted("right_shift", x, y)
    signed = dt.is_signed(type_of(values[0]).dtype)
    return OPS["shr_arith" if signed else "shr_logical"](*values)


bitwise_right_shift = right_shift


@replayed(numbers=True)
def divide(x: Any, y: Any, /) -> Array:
    """x / y as floats.

    >>> jnp.divide(jnp.array([1, 2, 3]), 2)
    Array([0.5, 1. , 1.5], dtype=float32)
    >>> jnp.divide(jnp.array([1.0, -1.0, 0.0]), 0.0)
    Array([ inf, -inf,  nan], dtype=float32)
    """
    ready = matched(x, y, "f")
    if ready is not None:
        return bind(OPS["div"], *ready)
    values = promoted("divide", x, y, inexact=True)
    if all(isinstance(v, Lit) for v in values):
        values = promoted("divide", x, y, inexact=True, numbers=False)
    return OPS["div"](*values)


true_divide = divide


@replayed
def abs(x: Any) -> Array:
    """Absolute value (a float for complex input).

    >>> jnp.abs(jnp.array([-2, 0, 3]))
    Array([2, 0, 3], dtype=int32)
    >>> jnp.abs(3 + 4j)
    Array(5., dtype=float32)
    """
    value = value_of(x)
    if value.dtype == dt.bool_ or (dt.is_integer(value.dtype) and not dt.is_signed(value.dtype)):
        return value
    return OPS["abs"](value)


absolute = abs


@replayed
def fabs(x: Any, /) -> Array:
    """Absolute value as a float.

    >>> jnp.fabs(jnp.array([-2, 0, 3]))
    Array([2., 0., 3.], dtype=float32)
    """
    (value,) = promoted("fabs", x, inexact=True, numbers=False)
    return OPS["abs"](value)


def _number(value: Array) -> Array:
    """Bools as integers."""
    return cast(value, dt.default_int()) if value.dtype == dt.bool_ else value


@replayed
def bitwise_count(x: Any, /) -> Array:
    """Number of set bits of the absolute value, as in NumPy (lax.population_count: of the bits).

    >>> jnp.bitwise_count(jnp.array([0, 7, 255]))
    Array([0, 3, 8], dtype=uint8)
    """
    return cast(OPS["popcount"](_number(abs(x))), dt.uint8)


@replayed
def square(x: Any) -> Array:
    """x * x.

    >>> jnp.square(jnp.array([-2, 3]))
    Array([4, 9], dtype=int32)
    >>> jnp.square(1j)
    Array(-1.+0.j, dtype=complex64)
    """
    value = _number(value_of(x))
    return OPS["square"](value)


@replayed
@keeps_weak
def reciprocal(x: Any) -> Array:
    """1 / x.

    >>> jnp.reciprocal(jnp.array([2.0, -4.0, 0.0]))
    Array([ 0.5 , -0.25,   inf], dtype=float32)
    """
    (value,) = promoted("reciprocal", x, inexact=True, numbers=False)
    return OPS["reciprocal"](value)


def positive(x: Any, /) -> Array:
    """x.

    >>> jnp.positive(jnp.array([1, -2]))
    Array([ 1, -2], dtype=int32)
    """
    return value_of(x)


@replayed
def isfinite(x: Any) -> Array:
    """Neither infinite nor NaN.

    >>> jnp.isfinite(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([ True, False, False], dtype=bool)
    """
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isfinite(real(value)) & isfinite(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(True, value.type.with_dtype(dt.bool_))
    return OPS["is_finite"](value)


@replayed
def isnan(x: Any, /) -> Array:
    """Not a number.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan, jnp.inf]))
    Array([False,  True, False], dtype=bool)
    """
    value = value_of(x)
    return OPS["ne"](value, value)


@replayed
@gives_strong
def isinf(x: Any, /) -> Array:
    """Infinite.

    >>> jnp.isinf(jnp.array([1.0, jnp.nan, -jnp.inf]))
    Array([False, False,  True], dtype=bool)
    """
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isinf(real(value)) | isinf(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(False, value.type.with_dtype(dt.bool_))
    return OPS["eq"](OPS["abs"](value), math.inf)


@replayed
@gives_strong
def isposinf(x: Any, /, out: None = None) -> Array:
    """Plus infinity.

    >>> jnp.isposinf(jnp.array([-jnp.inf, jnp.inf, 0.0]))
    Array([False,  True, False], dtype=bool)
    """
    no_out("isposinf", out)
    return equal(x, math.inf)


@replayed
@gives_strong
def isneginf(x: Any, /, out: None = None) -> Array:
    """Minus infinity.

    >>> jnp.isneginf(jnp.array([-jnp.inf, jnp.inf, 0.0]))
    Array([ True, False, False], dtype=bool)
    """
    no_out("isneginf", out)
    return equal(x, -math.inf)


@replayed
@gives_strong
def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set (true for -0.0).

    >>> jnp.signbit(jnp.array([-1.0, -0.0, 0.0]))
    Array([ True,  True, False], dtype=bool)
    """
    value = value_of(x)
    if dt.is_float(value.dtype):
        bits = np.dtype(f"int{value.dtype.itemsize * 8}")
        return OPS["lt"](OPS["bitcast"](value, dtype=bits), 0)
    return less(value, 0)


@replayed
def real(x: Any) -> Array:
    """Real part.

    >>> jnp.real(jnp.array([1 + 2j, 3]))
    Array([1., 3.], dtype=float32)
    """
    value = value_of(x)
    return OPS["real"](value) if dt.is_complex(value.dtype) else value


@replayed
@weak_as_first
def imag(x: Any) -> Array:
    """Imaginary part.

    >>> jnp.imag(jnp.array([1 + 2j, 3]))
    Array([2., 0.], dtype=float32)
    """
    value = value_of(x)
    return OPS["imag"](value) if dt.is_complex(value.dtype) else full_of(0, value.type)


@replayed
def conj(x: Any) -> Array:
    """Complex conjugate.

    >>> jnp.conj(jnp.array([1 + 2j, 3 - 1j]))
    Array([1.-2.j, 3.+1.j], dtype=complex64)
    """
    value = value_of(x)
    return OPS["conj"](value) if dt.is_complex(value.dtype) else value


conjugate = conj


@replayed(numbers=True)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where condition holds, else y. With one argument: the indices of non-zero elements,
    whose number must not depend on traced values (`nonzero` takes a size)."""
    if x is None and y is None:
        data = known_values(
            condition, "where with one argument", "pass size= to fxad.numpy.nonzero or argwhere"
        )
        pairs = zip(np.nonzero(data), np.shape(data), strict=True)
        least = dt.default_int()
        return tuple(Concrete(i.astype(dt.index_dtype(n, least))) for i, n in pairs)
    if x is None or y is None:
        raise TypeMismatch("where: give both x and y, or neither")
    flag = _logical(condition)
    ready = matched(x, y)
    weak = ready is None and weak_result(x, y)
    x, y = ready or promoted("where", x, y, broadcast=False)
    shape = result_shape("where", [type_of(v).shape for v in (flag, x, y)])
    out = OPS["select"](*[v if isinstance(v, Lit) else spread_to(v, shape) for v in (flag, x, y)])
    out.weak = weak
    return out


@replayed(numbers=True)
def clip(
    a: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None
) -> Array:
    """Elements limited to [min, max]; either bound may be None. (a_min, a_max: old names.)

    >>> jnp.clip(jnp.array([-3, 0, 9]), 0, 5)
    Array([0, 0, 5], dtype=int32)
    >>> jnp.clip(jnp.array([-3, 0, 9]), max=5)
    Array([-3,  0,  5], dtype=int32)
    """
    low = a_min if min is None else min
    high = a_max if max is None else max
    out = value_of(a, "clip")
    if low is not None:
        out = maximum(out, low)
    if high is not None:
        out = minimum(out, high)
    if dt.is_complex(out.dtype):
        raise TypeMismatch("clip: complex numbers have no order; clip real and imaginary parts")
    return out


@replayed
def angle(z: Any, deg: bool = False) -> Array:
    """Argument of a complex number, in radians or, with `deg`, degrees.

    >>> jnp.angle(jnp.array([1.0, 1j, -1.0])).round(3)
    Array([0.   , 1.571, 3.142], dtype=float32)
    >>> jnp.angle(1j, deg=True)
    Array(90., dtype=float32)
    """
    if deg:
        return angle(z) * (180.0 / math.pi)
    (value,) = promoted("angle", z, inexact=True, numbers=False)
    return arctan2(imag(value), real(value))


def real_if_close(a: Any, tol: float = 100) -> Array:
    """The real part of a complex array whose imaginary parts are all below tol times eps (below
    tol itself for tol <= 1), else the array. Decides by values: not for use inside jit.

    >>> jnp.real_if_close(jnp.array([1 + 0j, 2]))
    Array([1., 2.], dtype=float32)
    """
    value = value_of(a, "real_if_close")
    if not dt.is_complex(value.dtype):
        return value
    limit = tol * float(dt.finfo(value.dtype).eps) if tol > 1 else tol
    parts = known_values(imag(value), "real_if_close", "take fxad.numpy.real where it is meant")
    return real(value) if np.all(np.abs(parts) < limit) else value


@replayed
@keeps_weak
def copysign(x: Any, y: Any, /) -> Array:
    """|x| with the sign of y.

    >>> jnp.copysign(jnp.array([1.0, 2.0]), jnp.array([-0.0, 5.0]))
    Array([-1.,  2.], dtype=float32)
    """
    a, b = promoted("copysign", x, y, inexact=True, numbers=False)
    if dt.is_complex(type_of(a).dtype):
        raise TypeMismatch(f"copysign: complex numbers have no sign, but one is {type_of(a)}")
    size = OPS["abs"](a)
    return OPS["select"](signbit(b), OPS["neg"](size), size)


@replayed
@strong_with_axes
def heaviside(x: Any, y: Any, /) -> Array:
    """0 below zero, y at zero, 1 above; NaN where x is.

    >>> jnp.heaviside(jnp.array([-1.5, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    a, b = promoted("heaviside", x, y, inexact=True, numbers=False)
    return where(a < 0, 0.0, where(a > 0, 1.0, where(a == 0, b, a))).astype(type_of(a).dtype)


@custom_jvp
def _hypot(a: Array, b: Array) -> Array:
    a, b = OPS["abs"](a), OPS["abs"](b)
    big, small = OPS["max"](a, b), OPS["min"](a, b)
    ratio = small / where(big == 0, 1.0, big)
    return where(isinf(a) | isinf(b), math.inf, big * sqrt(1 + ratio * ratio))


@_hypot.defjvp
def _hypot_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b), (da, db) = primals, tangents
    out = _hypot(a, b)
    size = where(out == 0, 1.0, out)
    return out, da * (a / size) + db * (b / size)


_LEAST = {d: np.nextafter(d.type(0), d.type(1)) for d in (dt.float32, dt.float64)}


_ONE, _INF = ({d: np.asarray(x, d) for d in (dt.float32, dt.float64)} for x in (1, math.inf))


def _hypot_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dtype, a, b = a.dtype, np.abs(a), np.abs(b)
    big, small = np.maximum(a, b), np.minimum(a, b)
    ratio = small / big  # NaN for zeros and infinities
    out = big * np.sqrt(_ONE[dtype] + ratio * ratio)
    if count_nonzero(out < _INF[dtype]) == out.size:
        return out
    ratio = small / np.maximum(big, _LEAST[dtype])
    larger = np.fmax(a, b)  # infinite even beside NaN
    return np.where(larger == np.inf, larger, big * np.sqrt(_ONE[dtype] + ratio * ratio))


@by_numpy(type=lambda a, b: a, numpy=_hypot_numpy)
def _length(a: Array, b: Array) -> Array:
    return _hypot(a, b)


@replayed
@strong_with_axes
def hypot(x: Any, y: Any, /) -> Array:
    """sqrt(x*x + y*y) without overflow; its gradient at 0, 0 is 0.

    >>> jnp.hypot(3.0, jnp.array([4.0, jnp.inf]))
    Array([ 5., inf], dtype=float32)
    """
    return _length(*promoted("hypot", x, y, inexact=True, numbers=False))


@custom_jvp
def _logaddexp(a: Array, b: Array) -> Array:
    same = isinf(a) & equal(a, b)
    gap = where(same, 0.0, a - b)
    return where(same, a, OPS["max"](a, b) + log1p(exp(-abs(gap))))


@_logaddexp.defjvp
def _logaddexp_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a, b), (da, db) = primals, tangents
    share = OPS["logistic"](where(isinf(a) & equal(a, b), 0.0, a - b))
    return _logaddexp(a, b), da * share + db * (1 - share)


def _logaddexp_numpy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """There is no gap where both are the same infinity, or one is NaN."""
    gap, larger = a - b, np.maximum(a, b)
    out = larger + np.log1p(np.exp(-np.abs(gap)))
    return out if count_nonzero(gap == gap) == gap.size else np.where(gap == gap, out, larger)


@by_numpy(type=lambda a, b: a, numpy=_logaddexp_numpy)
def _log_of_sum(a: Array, b: Array) -> Array:
    return _logaddexp(a, b)


@replayed
@keeps_weak
def logaddexp(x: Any, y: Any, /) -> Array:
    """log(exp(x) + exp(y)) without overflow; two equal infinities share the gradient. Of complex
    numbers the principal value.

    >>> jnp.logaddexp(1000.0, 1000.0) - 1000
    Array(0.69317627, dtype=float32)
    """
    a, b = promoted("logaddexp", x, y, inexact=True, numbers=False)
    if not dt.is_complex(a.dtype):
        return _log_of_sum(a, b)
    larger = maximum(real(a), real(b))
    peak = OPS["stop_gradient"](where(isinf(larger), 0.0, larger))
    return log(exp(a - peak) + exp(b - peak)) + peak


@replayed
@strong_with_axes
def logaddexp2(x: Any, y: Any, /) -> Array:
    """log2(2**x + 2**y).

    >>> jnp.logaddexp2(3.0, 3.0)  # log2(2**3 + 2**3)
    Array(4., dtype=float32)
    """
    return logaddexp(multiply(x, math.log(2)), multiply(y, math.log(2))) / math.log(2)


@replayed
@gives_strong
def log10(x: Any, /) -> Array:
    """Base-10 logarithm.

    >>> jnp.log10(jnp.array([1.0, 2.0, 100.0, 0.0, -1.0])).round(3)
    Array([0.   , 0.301, 2.   ,  -inf,   nan], dtype=float32)
    """
    out = log(x)
    if not dt.is_complex(out.dtype):
        return out * (1 / math.log(10))
    return OPS["complex"](*[part / math.log(10) for part in (real(out), imag(out))])


@replayed
@strong_with_axes
def sinc(x: Any, /) -> Array:
    """sin(pi x) / (pi x), 1 at 0.

    Where |pi x| < 1 it is Taylor's series: the quotient's derivatives cancel there.

    >>> jnp.sinc(jnp.array([0.0, 0.5, 1.0])).round(3)
    Array([ 1.   ,  0.637, -0.   ], dtype=float32)
    """
    (value,) = promoted("sinc", x, inexact=True, numbers=False)
    angle = value * math.pi
    near = OPS["abs"](angle) < 1
    square = OPS["square"](where(near, angle, 0.0))
    series: Any = 0.0
    for factor in _SINC if dt.finfo(value.dtype).bits == 64 else _SINC[-6:]:
        series = series * square + factor
    far = where(near, 1.0, angle)
    return where(near, series, sin(far) / far)


# Of a square below 1, the largest power first; floats of 32 bits see the last six.
_SINC = [(-1) ** n / math.factorial(2 * n + 1) for n in reversed(range(11))]


@replayed
@strong_with_axes
def deg2rad(x: Any, /) -> Array:
    """Degrees to radians.

    >>> jnp.deg2rad(jnp.array([0.0, 90.0, 180.0])).round(3)
    Array([0.   , 1.571, 3.142], dtype=float32)
    """
    return multiply(x, math.pi / 180)


@replayed
@strong_with_axes
def rad2deg(x: Any, /) -> Array:
    """Radians to degrees.

    >>> jnp.rad2deg(jnp.array([0.0, jnp.pi / 2])).round(3)
    Array([ 0., 90.], dtype=float32)
    """
    return multiply(x, 180 / math.pi)


radians, degrees = deg2rad, rad2deg


@replayed
def fmax(x1: Any, x2: Any) -> Array:
    """The larger element; NaN only if both are.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan, 5.0]), 3.0)
    Array([3., 3., 5.], dtype=float32)
    """
    a, b = promoted("fmax", x1, x2, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, maximum(a, b)))


@replayed
def fmin(x1: Any, x2: Any) -> Array:
    """The smaller element; NaN only if both are.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan, 5.0]), 3.0)
    Array([1., 3., 3.], dtype=float32)
    """
    a, b = promoted("fmin", x1, x2, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, minimum(a, b)))


@replayed
def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Array:
    """NaN and infinities replaced by finite numbers; in complex numbers, in each part.

    >>> jnp.nan_to_num(jnp.array([jnp.nan, 1.0, jnp.inf]), posinf=9.0)
    Array([0., 1., 9.], dtype=float32)
    """
    value = value_of(x)
    if dt.is_complex(value.dtype):
        parts = (nan_to_num(p, copy, nan, posinf, neginf) for p in (real(value), imag(value)))
        return OPS["complex"](*parts)
    if not dt.is_float(value.dtype):
        return value
    info = dt.finfo(value.dtype)
    value = where(isnan(value), nan, value)
    value = where(equal(value, math.inf), float(info.max) if posinf is None else posinf, value)
    value = where(equal(value, -math.inf), float(info.min) if neginf is None else neginf, value)
    return strong(value)
