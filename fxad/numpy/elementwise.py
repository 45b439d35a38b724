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
    promoted,
    result_shape,
    spread_to,
    value_of,
    weak_result,
)
from fxad.trace.array import Array, Concrete
from fxad.trace.tracer import type_of


def _finish(out: Any, weak: bool) -> Array:
    if weak:
        out.weak = True
    return out


def _unary(op: str, doc: str, inexact: bool = False) -> Callable[..., Array]:
    def function(x: Any, /) -> Array:
        (value,) = promoted(op, x, inexact=inexact, numbers=False)
        out = OPS[op](value)
        return _finish(out, weak_result(x) and type_of(out).dtype != dt.bool_)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


def _binary(op: str, doc: str, inexact: bool = False, name: str = "") -> Callable[..., Array]:
    def function(x: Any, y: Any, /) -> Array:
        values = promoted(name or op, x, y, inexact=inexact)
        if isinstance(values[0], Lit) and isinstance(values[1], Lit):
            values = promoted(name or op, x, y, inexact=inexact, numbers=False)
        out = OPS[op](*values)
        return _finish(out, weak_result(x, y) and type_of(out).dtype != dt.bool_)

    function.__name__ = function.__qualname__ = name or op
    function.__doc__ = doc
    return function


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
bitwise_count = _unary("popcount", "Number of set bits.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).", inexact=True)

add = _binary("add", "x + y (logical or for bools).")
subtract = _binary("sub", "x - y.", name="subtract")
multiply = _binary("mul", "x * y (logical and for bools).", name="multiply")
arctan2 = atan2 = _binary("atan2", "Angle of the point (y, x).", inexact=True)
maximum = _binary("max", "The larger element; NaN wins.", name="maximum")
minimum = _binary("min", "The smaller element; NaN wins.", name="minimum")
nextafter = _binary("nextafter", "The next float after x towards y.", inexact=True)
equal = _binary("eq", "x == y.", name="equal")
not_equal = _binary("ne", "x != y.", name="not_equal")
bitwise_and = _binary("and", "Bitwise and.", name="bitwise_and")
bitwise_or = _binary("or", "Bitwise or.", name="bitwise_or")
bitwise_xor = _binary("xor", "Bitwise exclusive or.", name="bitwise_xor")
left_shift = bitwise_left_shift = _binary("shl", "Bits moved up; 0 past the width.")


def _ordered(op: str, name: str) -> Callable[..., Array]:
    def function(x: Any, y: Any, /) -> Array:
        values = promoted(name, x, y)
        if type_of(values[0]).dtype == dt.bool_:
            values = [cast(v, dt.int32) for v in values]
        if all(isinstance(v, Lit) for v in values):
            values = promoted(name, x, y, numbers=False)
        return OPS[op](*values)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name.replace('_', ' ')}."
    return function


less = _ordered("lt", "less")
less_equal = _ordered("le", "less_equal")
greater = _ordered("gt", "greater")
greater_equal = _ordered("ge", "greater_equal")


def _bool_aware(arith: Callable[..., Array], logic: Callable[..., Array]) -> Callable[..., Array]:
    def function(x: Any, y: Any, /) -> Array:
        if _is_bool(x) and _is_bool(y):
            return logic(x, y)
        return arith(x, y)

    function.__name__ = function.__qualname__ = arith.__name__
    function.__doc__ = arith.__doc__
    return function


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == dt.bool_


add = _bool_aware(add, bitwise_or)
multiply = _bool_aware(multiply, bitwise_and)
maximum = _bool_aware(maximum, bitwise_or)
minimum = _bool_aware(minimum, bitwise_and)


def _logical(x: Any) -> Array:
    value = value_of(x)
    return value if value.dtype == dt.bool_ else not_equal(value, 0)


def logical_not(x: Any, /) -> Array:
    """Whether x is zero."""
    return OPS["not"](_logical(x))


def logical_and(x: Any, y: Any, /) -> Array:
    """Whether both are non-zero."""
    return bitwise_and(_logical(x), _logical(y))


def logical_or(x: Any, y: Any, /) -> Array:
    """Whether either is non-zero."""
    return bitwise_or(_logical(x), _logical(y))


def logical_xor(x: Any, y: Any, /) -> Array:
    """Whether exactly one is non-zero."""
    return bitwise_xor(_logical(x), _logical(y))


def right_shift(x: Any, y: Any, /) -> Array:
    """Bits moved down, keeping the sign of signed integers."""
    values = promoted("right_shift", x, y)
    signed = dt.is_signed(type_of(values[0]).dtype)
    return OPS["shr_arith" if signed else "shr_logical"](*values)


bitwise_right_shift = right_shift


def divide(x: Any, y: Any, /) -> Array:
    """x / y as floats."""
    values = promoted("divide", x, y, inexact=True)
    if all(isinstance(v, Lit) for v in values):
        values = promoted("divide", x, y, inexact=True, numbers=False)
    return _finish(OPS["div"](*values), weak_result(x, y))


true_divide = divide


def floor_divide(x: Any, y: Any, /) -> Array:
    """Division rounded towards minus infinity; integer x // 0 is 0."""
    a, b = promoted("floor_divide", x, y, numbers=False)
    dtype = type_of(a).dtype
    if dt.is_float(dtype):
        return OPS["floor"](OPS["div"](OPS["sub"](a, remainder(a, b)), b) + 0.5)
    if not dt.is_integer(dtype):
        raise TypeMismatch(f"floor_divide: does not take {dtype}")
    quotient = OPS["div"](a, b)
    if not dt.is_signed(dtype):
        return quotient
    inexact = OPS["and"](OPS["ne"](OPS["rem"](a, b), 0), OPS["lt"](OPS["xor"](a, b), 0))
    return OPS["sub"](quotient, OPS["convert"](inexact, dtype=dtype))


def remainder(x: Any, y: Any, /) -> Array:
    """Remainder with the sign of y; integer x % 0 is 0."""
    a, b = promoted("remainder", x, y, numbers=False)
    dtype = type_of(a).dtype
    rest = OPS["rem"](a, b)
    if dt.is_integer(dtype) and not dt.is_signed(dtype):
        return rest
    differs = OPS["ne"](OPS["lt"](rest, 0), OPS["lt"](b, 0))
    shifted = OPS["and"](OPS["ne"](rest, 0), differs)
    return OPS["select"](shifted, OPS["add"](rest, b), rest)


mod = remainder


def fmod(x: Any, y: Any, /) -> Array:
    """Remainder with the sign of x."""
    return OPS["rem"](*promoted("fmod", x, y))


def divmod(x: Any, y: Any, /) -> tuple[Array, Array]:
    """(floor_divide, remainder)."""
    return floor_divide(x, y), remainder(x, y)


def power(x: Any, y: Any, /) -> Array:
    """x to the y. Integer powers of integers stay integers; a negative Python int exponent of an
    integer is an error."""
    if isinstance(y, int) and not isinstance(y, bool):
        base = value_of(x)
        if base.dtype == dt.bool_:
            base = cast(base, dt.default_int())
        if dt.is_integer(base.dtype) and y < 0:
            raise TypeMismatch(
                f"power: {base.type} ** {y}: an integer to a negative power is not an integer; "
                "convert the base to a float first"
            )
        return _finish(_integer_power(base, y), getattr(x, "weak", False))
    values = promoted("power", x, y, numbers=False)
    if dt.is_integer(type_of(values[0]).dtype):
        return _array_integer_power(*values)
    if type_of(values[0]).dtype == dt.bool_:
        values = [cast(v, dt.default_int()) for v in values]
        return _array_integer_power(*values)
    return OPS["pow"](*values)


pow = power


def _integer_power(base: Array, n: int) -> Array:
    if n == 0:
        return full_of(1, base.type)
    if n == 1:
        return OPS["copy"](base)
    if n == 2:
        return OPS["square"](base)
    return OPS["integer_pow"](base, n=n)


def _array_integer_power(base: Any, exponent: Any) -> Array:
    """Square and multiply over the exponent's bits; negative exponents give 0."""
    type_ = type_of(base)
    result = full_of(1, type_)
    bits = type_.dtype.itemsize * 8
    for bit in range(bits):
        use = OPS["ne"](OPS["and"](OPS["shr_logical"](exponent, bit), 1), 0)
        result = OPS["select"](use, OPS["mul"](result, base), result)
        base = OPS["mul"](base, base)
    if dt.is_signed(type_.dtype):
        result = OPS["select"](OPS["lt"](exponent, 0), full_of(0, type_), result)
    return result


def float_power(x: Any, y: Any, /) -> Array:
    """x to the y as floats."""
    return OPS["pow"](*promoted("float_power", x, y, inexact=True, numbers=False))


def abs(x: Any, /) -> Array:
    """Absolute value (a float for complex input)."""
    value = value_of(x)
    if value.dtype == dt.bool_ or (dt.is_integer(value.dtype) and not dt.is_signed(value.dtype)):
        return value
    return _finish(OPS["abs"](value), value.weak)


absolute = fabs = abs


def square(x: Any, /) -> Array:
    """x * x."""
    value = value_of(x)
    return _finish(OPS["square"](value), value.weak)


def reciprocal(x: Any, /) -> Array:
    """1 / x."""
    (value,) = promoted("reciprocal", x, inexact=True, numbers=False)
    return OPS["reciprocal"](value)


def positive(x: Any, /) -> Array:
    """x."""
    return value_of(x)


def _rounding(op: str, name: str) -> Callable[..., Array]:
    def function(x: Any, /) -> Array:
        value = value_of(x)
        if not dt.is_float(value.dtype):
            return value
        return OPS[op](value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{name} of x; integers stay as they are."
    return function


floor = _rounding("floor", "floor")
ceil = _rounding("ceil", "ceil")
trunc = _rounding("trunc", "trunc")
fix = trunc
rint = _rounding("round", "rint")


def round(x: Any, decimals: int = 0) -> Array:
    """Round half to even, to a number of decimals."""
    value = value_of(x)
    if decimals == 0 or not dt.is_inexact(value.dtype):
        return rint(value)
    scale = 10.0**decimals
    return rint(value * scale) / scale


around = round


def isfinite(x: Any, /) -> Array:
    """Neither infinite nor NaN."""
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isfinite(real(value)) & isfinite(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(True, value.type.with_dtype(dt.bool_))
    return OPS["is_finite"](value)


def isnan(x: Any, /) -> Array:
    """Not a number."""
    value = value_of(x)
    return OPS["ne"](value, value)


def isinf(x: Any, /) -> Array:
    """Infinite."""
    value = value_of(x)
    if dt.is_complex(value.dtype):
        return isinf(real(value)) | isinf(imag(value))
    if not dt.is_float(value.dtype):
        return full_of(False, value.type.with_dtype(dt.bool_))
    return OPS["eq"](OPS["abs"](value), math.inf)


def isposinf(x: Any, /) -> Array:
    """Plus infinity."""
    return equal(x, math.inf)


def isneginf(x: Any, /) -> Array:
    """Minus infinity."""
    return equal(x, -math.inf)


def signbit(x: Any, /) -> Array:
    """Whether the sign bit is set (true for -0.0)."""
    value = value_of(x)
    if dt.is_float(value.dtype):
        bits = np.dtype(f"int{value.dtype.itemsize * 8}")
        return OPS["lt"](OPS["bitcast"](value, dtype=bits), 0)
    return less(value, 0)


def copysign(x: Any, y: Any, /) -> Array:
    """|x| with the sign of y."""
    a, b = promoted("copysign", x, y, inexact=True, numbers=False)
    size = OPS["abs"](a)
    return OPS["select"](signbit(b), OPS["neg"](size), size)


def heaviside(x: Any, y: Any, /) -> Array:
    """0 below zero, y at zero, 1 above."""
    a, b = promoted("heaviside", x, y, inexact=True, numbers=False)
    return where(a < 0, 0.0, where(a > 0, 1.0, b)).astype(type_of(a).dtype)


def hypot(x: Any, y: Any, /) -> Array:
    """sqrt(x*x + y*y) without overflow."""
    a, b = promoted("hypot", x, y, inexact=True, numbers=False)
    a, b = OPS["abs"](a), OPS["abs"](b)
    big, small = OPS["max"](a, b), OPS["min"](a, b)
    safe = where(big == 0, 1.0, big)
    ratio = small / safe
    return big * sqrt(1 + ratio * ratio)


def logaddexp(x: Any, y: Any, /) -> Array:
    """log(exp(x) + exp(y)) without overflow."""
    a, b = promoted("logaddexp", x, y, inexact=True, numbers=False)
    big = OPS["max"](a, b)
    gap = a - b
    same = isinf(a) & equal(a, b)
    safe = where(same, 0.0, gap)
    return where(same, a, big + log1p(exp(-abs(safe))))


def logaddexp2(x: Any, y: Any, /) -> Array:
    """log2(2**x + 2**y)."""
    return logaddexp(multiply(x, math.log(2)), multiply(y, math.log(2))) / math.log(2)


def log10(x: Any, /) -> Array:
    """Base-10 logarithm."""
    return log(x) * (1 / math.log(10))


def sinc(x: Any, /) -> Array:
    """sin(pi x) / (pi x), 1 at 0."""
    (value,) = promoted("sinc", x, inexact=True, numbers=False)
    angle = value * math.pi
    safe = where(angle == 0, 1.0, angle)
    return where(angle == 0, 1.0, sin(safe) / safe)


def deg2rad(x: Any, /) -> Array:
    """Degrees to radians."""
    return multiply(x, math.pi / 180)


def rad2deg(x: Any, /) -> Array:
    """Radians to degrees."""
    return multiply(x, 180 / math.pi)


radians, degrees = deg2rad, rad2deg


def fmax(x: Any, y: Any, /) -> Array:
    """The larger element; NaN only if both are."""
    a, b = promoted("fmax", x, y, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, maximum(a, b)))


def fmin(x: Any, y: Any, /) -> Array:
    """The smaller element; NaN only if both are."""
    a, b = promoted("fmin", x, y, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, minimum(a, b)))


def real(x: Any, /) -> Array:
    """Real part."""
    value = value_of(x)
    return OPS["real"](value) if dt.is_complex(value.dtype) else value


def imag(x: Any, /) -> Array:
    """Imaginary part."""
    value = value_of(x)
    return OPS["imag"](value) if dt.is_complex(value.dtype) else full_of(0, value.type)


def conj(x: Any, /) -> Array:
    """Complex conjugate."""
    value = value_of(x)
    return OPS["conj"](value) if dt.is_complex(value.dtype) else value


conjugate = conj


def angle(x: Any, /) -> Array:
    """Argument of a complex number."""
    (value,) = promoted("angle", x, inexact=True, numbers=False)
    return arctan2(imag(value), real(value))


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where condition holds, else y. With one argument: the indices of non-zero elements,
    whose number must not depend on traced values (`nonzero` takes a size)."""
    if x is None and y is None:
        data = known_values(
            condition, "where with one argument", "pass size= to fxad.numpy.nonzero or argwhere"
        )
        return tuple(Concrete(i.astype(np.int32)) for i in np.nonzero(data))
    if x is None or y is None:
        raise TypeMismatch("where: give both x and y, or neither")
    flag = _logical(condition)
    x, y = promoted("where", x, y, broadcast=False)
    shape = result_shape("where", [type_of(v).shape for v in (flag, x, y)])
    return OPS["select"](*[_spread(v, shape) for v in (flag, x, y)])


def _spread(value: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(value, Lit):
        return full_of(value.value, value.type.with_shape(shape))
    return spread_to(value, shape)


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
    return out


def nan_to_num(
    x: Any, copy: bool = True, nan: float = 0.0, posinf: Any = None, neginf: Any = None
) -> Array:
    """NaN and infinities replaced by finite numbers."""
    value = value_of(x)
    if not dt.is_float(value.dtype):
        return value
    info = dt.finfo(value.dtype)
    value = where(isnan(value), nan, value)
    value = where(equal(value, math.inf), float(info.max) if posinf is None else posinf, value)
    return where(equal(value, -math.inf), float(info.min) if neginf is None else neginf, value)


def isclose(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    """|a - b| <= atol + rtol |b|, infinities equal to themselves."""
    x, y = promoted("isclose", a, b, inexact=True, numbers=False)
    finite = isfinite(x) & isfinite(y)
    near = abs(x - y) <= atol + rtol * abs(y)
    out = where(finite, near, equal(x, y))
    return out | (isnan(x) & isnan(y)) if equal_nan else out


def gcd(x: Any, y: Any, /) -> Array:
    """Greatest common divisor (a fixed number of Euclid's steps)."""
    a, b = promoted("gcd", x, y, numbers=False)
    a, b = abs(a), abs(b)
    for _ in range(int(1.45 * type_of(a).dtype.itemsize * 8) + 2):
        a, b = where(b == 0, a, b), where(b == 0, b, remainder(a, b))
    return a


def lcm(x: Any, y: Any, /) -> Array:
    """Least common multiple."""
    a, b = promoted("lcm", x, y, numbers=False)
    return where((a == 0) | (b == 0), 0, abs(floor_divide(a, gcd(a, b)) * b))
