"""Elementwise functions with NumPy's names: promotion and broadcasting around the ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.ir.program import OPS, Lit
from fxad.numpy.core import (
    cast,
    full_of,
    known_values,
    matched,
    promoted,
    result_shape,
    spread_to,
    value_of,
    weak_result,
)
from fxad.trace.array import Array, Concrete
from fxad.trace.replay import replayed
from fxad.trace.tracer import bind, type_of


def finish(out: Any, weak: bool) -> Array:
    """A result, marked weak (which bools never are)."""
    if weak and out.type.dtype != dt.bool_:
        out.weak = True
    return out


def _unary(op: str, doc: str, inexact: bool = False) -> Callable[..., Array]:
    rule = OPS[op]

    def function(x: Any, /) -> Array:
        if isinstance(x, Array) and not x.weak and (not inexact or x.type.dtype.kind == "f"):
            return bind(rule, x)
        (value,) = promoted(op, x, inexact=inexact, numbers=False)
        return finish(rule(value), weak_result(x))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return replayed(function)


def _binary(
    op: str, doc: str, inexact: bool = False, name: str = "", logic: str = ""
) -> Callable[..., Array]:
    """`logic`: the op for two bools."""
    rule, kinds = OPS[op], "f" if inexact else "fiu"

    def function(x: Any, y: Any, /) -> Array:
        ready = matched(x, y, kinds)
        if ready is not None:
            return bind(rule, *ready)
        chosen = OPS[logic] if logic and is_bool(x) and is_bool(y) else rule
        values = promoted(name or op, x, y, inexact=inexact)
        if isinstance(values[0], Lit) and isinstance(values[1], Lit):
            values = promoted(name or op, x, y, inexact=inexact, numbers=False)
        return finish(chosen(*values), weak_result(x, y))

    function.__name__ = function.__qualname__ = name or op
    function.__doc__ = doc
    return replayed(numbers=True)(function)


negative = _unary("neg", "-x.")
sign = _unary("sign", "-1, 0 or 1 by the sign of x.")
exp = _unary("exp", "e to the x.", inexact=True)
exp2 = _unary("exp2", "2 to the x.", inexact=True)
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0.", inexact=True)
log = _unary("log", "Natural logarithm.", inexact=True)
log2 = _unary("log2", "Base-2 logarithm.", inexact=True)
log1p = _unary("log1p", "log(1 + x), accurate near 0.", inexact=True)
sqrt = _unary("sqrt", "Square root.", inexact=True)
cbrt = _unary("cbrt", "Cube root.", inexact=True)
sin = _unary("sin", "Sine of radians.", inexact=True)
cos = _unary("cos", "Cosine of radians.", inexact=True)
tan = _unary("tan", "Tangent of radians.", inexact=True)
arcsin = asin = _unary("asin", "Inverse sine.", inexact=True)
arccos = acos = _unary("acos", "Inverse cosine.", inexact=True)
arctan = atan = _unary("atan", "Inverse tangent.", inexact=True)
sinh = _unary("sinh", "Hyperbolic sine.", inexact=True)
cosh = _unary("cosh", "Hyperbolic cosine.", inexact=True)
tanh = _unary("tanh", "Hyperbolic tangent.", inexact=True)
arcsinh = asinh = _unary("asinh", "Inverse hyperbolic sine.", inexact=True)
arccosh = acosh = _unary("acosh", "Inverse hyperbolic cosine.", inexact=True)
arctanh = atanh = _unary("atanh", "Inverse hyperbolic tangent.", inexact=True)
bitwise_not = invert = bitwise_invert = _unary("not", "Bits flipped; `not` for bools.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).", inexact=True)

add = _binary("add", "x + y (logical or for bools).", logic="or")
subtract = _binary("sub", "x - y.", name="subtract")
multiply = _binary("mul", "x * y (logical and for bools).", name="multiply", logic="and")
arctan2 = atan2 = _binary("atan2", "Angle of the point (y, x).", inexact=True)
nextafter = _binary("nextafter", "The next float after x towards y.", inexact=True)
equal = _binary("eq", "x == y.", name="equal")
not_equal = _binary("ne", "x != y.", name="not_equal")
bitwise_and = _binary("and", "Bitwise and.", name="bitwise_and")
bitwise_or = _binary("or", "Bitwise or.", name="bitwise_or")
bitwise_xor = _binary("xor", "Bitwise exclusive or.", name="bitwise_xor")
left_shift = bitwise_left_shift = _binary("shl", "Bits moved up; 0 past the width.")


def _ordered(op: str, name: str) -> Callable[..., Array]:
    rule = OPS[op]

    def function(x: Any, y: Any, /) -> Array:
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
    function.__doc__ = f"Elementwise {name.replace('_', ' ')}."
    return replayed(numbers=True)(function)


def _complex_ordered(op: str, x: Any, y: Any) -> Array:
    """By real part; where those are equal, by imaginary part."""
    (a, b), (c, d) = (real(x), real(y)), (imag(x), imag(y))
    same = OPS["eq"](a, b)
    return OPS["select"](same, OPS[op](c, d), OPS[op](a, b))


less = _ordered("lt", "less")
less_equal = _ordered("le", "less_equal")
greater = _ordered("gt", "greater")
greater_equal = _ordered("ge", "greater_equal")


def _extreme(op: str, order: str, logic: str, name: str, doc: str) -> Callable[..., Array]:
    ordinary = _binary(op, doc, name=name, logic=logic)

    def function(x: Any, y: Any, /) -> Array:
        if not (_is_complex(x) or _is_complex(y)):
            return ordinary(x, y)
        a, b = promoted(name, x, y, numbers=False)
        first = OPS["or"](_complex_ordered(order, a, b), isnan(a))
        return finish(OPS["select"](first, a, b), weak_result(x, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} Complex numbers compare by real part first."
    return replayed(numbers=True)(function)


maximum = _extreme("max", "ge", "or", "maximum", "The larger element; NaN wins.")
minimum = _extreme("min", "le", "and", "minimum", "The smaller element; NaN wins.")


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex) or dt.is_complex(getattr(x, "dtype", dt.bool_))


def is_bool(x: Any) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == dt.bool_


def _logical(x: Any) -> Array:
    value = value_of(x)
    return value if value.dtype == dt.bool_ else not_equal(value, 0)


@replayed
def logical_not(x: Any, /) -> Array:
    """Whether x is zero."""
    return OPS["not"](_logical(x))


@replayed
def logical_and(x: Any, y: Any, /) -> Array:
    """Whether both are non-zero."""
    return bitwise_and(_logical(x), _logical(y))


@replayed
def logical_or(x: Any, y: Any, /) -> Array:
    """Whether either is non-zero."""
    return bitwise_or(_logical(x), _logical(y))


@replayed
def logical_xor(x: Any, y: Any, /) -> Array:
    """Whether exactly one is non-zero."""
    return bitwise_xor(_logical(x), _logical(y))


@replayed
def right_shift(x: Any, y: Any, /) -> Array:
    """Bits moved down, keeping the sign of signed integers."""
    values = promoted("right_shift", x, y)
    signed = dt.is_signed(type_of(values[0]).dtype)
    return OPS["shr_arith" if signed else "shr_logical"](*values)


bitwise_right_shift = right_shift


@replayed(numbers=True)
def divide(x: Any, y: Any, /) -> Array:
    """x / y as floats."""
    ready = matched(x, y, "f")
    if ready is not None:
        return bind(OPS["div"], *ready)
    values = promoted("divide", x, y, inexact=True)
    if all(isinstance(v, Lit) for v in values):
        values = promoted("divide", x, y, inexact=True, numbers=False)
    return finish(OPS["div"](*values), weak_result(x, y))


true_divide = divide


@replayed
def abs(x: Any, /) -> Array:
    """Absolute value (a float for complex input)."""
    value = value_of(x)
    if value.dtype == dt.bool_ or (dt.is_integer(value.dtype) and not dt.is_signed(value.dtype)):
        return value
    return finish(OPS["abs"](value), value.weak)


absolute = abs


@replayed
def fabs(x: Any, /) -> Array:
    """Absolute value as a float."""
    (value,) = promoted("fabs", x, inexact=True, numbers=False)
    return finish(OPS["abs"](value), weak_result(x))


def _number(value: Array) -> Array:
    """Bools as integers."""
    return cast(value, dt.default_int()) if value.dtype == dt.bool_ else value


@replayed
def bitwise_count(x: Any, /) -> Array:
    """Number of set bits of the absolute value, as in NumPy (lax.population_count: of the bits)."""
    return cast(OPS["popcount"](_number(abs(x))), dt.uint8)


@replayed
def square(x: Any, /) -> Array:
    """x * x."""
    value = _number(value_of(x))
    return finish(OPS["square"](value), value.weak)


@replayed
def reciprocal(x: Any, /) -> Array:
    """1 / x."""
    (value,) = promoted("reciprocal", x, inexact=True, numbers=False)
    return OPS["reciprocal"](value)


def positive(x: Any, /) -> Array:
    """x."""
    return value_of(x)


@replayed
def isfinite(x: Any, /) -> Array:
    """Neither infinite nor NaN."""
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isfinite(real(value)) & isfinite(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(True, value.type.with_dtype(dt.bool_))
    return OPS["is_finite"](value)


@replayed
def isnan(x: Any, /) -> Array:
    """Not a number."""
    value = value_of(x)
    return OPS["ne"](value, value)


@replayed
def isinf(x: Any, /) -> Array:
    """Infinite."""
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isinf(real(value)) | isinf(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(False, value.type.with_dtype(dt.bool_))
    return OPS["eq"](OPS["abs"](value), math.inf)


@replayed
def isposinf(x: Any, /) -> Array:
    """Plus infinity."""
    return equal(x, math.inf)


@replayed
def isneginf(x: Any, /) -> Array:
    """Minus infinity."""
    return equal(x, -math.inf)


@replayed
def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set (true for -0.0)."""
    value = value_of(x)
    if dt.is_float(value.dtype):
        bits = np.dtype(f"int{value.dtype.itemsize * 8}")
        return OPS["lt"](OPS["bitcast"](value, dtype=bits), 0)
    return less(value, 0)


@replayed
def real(x: Any, /) -> Array:
    """Real part."""
    value = value_of(x)
    return OPS["real"](value) if dt.is_complex(value.dtype) else value


@replayed
def imag(x: Any, /) -> Array:
    """Imaginary part."""
    value = value_of(x)
    return OPS["imag"](value) if dt.is_complex(value.dtype) else full_of(0, value.type)


@replayed
def conj(x: Any, /) -> Array:
    """Complex conjugate."""
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
    """Elements limited to [min, max]; either bound may be None. (a_min, a_max: old names.)"""
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
