"""Powers: square, reciprocal, integer_pow with a fixed exponent, pow.

integer_pow(x, n=3)          # x * x * x
pow(x, y)                    # x, y: f32[3] -> f32[3]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import TypeMismatch
from fxad.core.types import ArrayType
from fxad.ir.kernel import Cast, Const, Expr, Prim
from fxad.ir.loops import Pointwise
from fxad.ir.program import OPS, Lit, Number
from fxad.ir.rewrite import literal
from fxad.ops.base import case, check_kind, fails
from fxad.ops.elements.arithmetic import NUMBERS, ROUNDED, mul, neg, sub
from fxad.ops.elements.compare import eq, select
from fxad.ops.elements.pointwise import binary, unary
from fxad.trace.tracer import type_of

if TYPE_CHECKING:
    from fxad.ir.rules import Value

F32 = dt.float32
T = TypeVar("T")


def in_f32(value: Callable[..., Expr]) -> Callable[..., Expr]:
    """A loop body of several primitives that rounds half-width floats only at its end."""

    def wide(*xs: Expr) -> Expr:
        dtype = xs[0].dtype
        if dt.is_float(dtype) and dtype.itemsize < 4:
            return Cast(value(*[Cast(x, F32) for x in xs]), dtype)
        return value(*xs)

    return wide


square = unary(
    "square",
    doc="x * x.",
    dtypes=NUMBERS,
    jvp=lambda dx, x, y: mul(dx, mul(x, 2)),
    ulp=ROUNDED,
)
reciprocal = unary(
    "reciprocal",
    doc="1 / x.",
    jvp=lambda dx, x, y: neg(mul(dx, square(y))),
    ulp={**ROUNDED, "c64": 4, "c128": 4},
)


def _by_squaring(x: T, n: int, multiply: Callable[[T, T], T]) -> T:
    """x to the n, n >= 1, by the same products in the same order everywhere."""
    result: T | None = None
    while True:
        if n & 1:
            result = x if result is None else multiply(result, x)
        n >>= 1
        if not n:
            assert result is not None
            return result
        x = multiply(x, x)


def _integer_pow_type(x: ArrayType, *, n: int) -> ArrayType:
    check_kind("integer_pow", x, NUMBERS)
    if n < 0 and dt.is_integer(x.dtype):
        raise TypeMismatch(
            f"integer_pow: {x} to the negative power {n} is no integer; convert it to float first"
        )
    return x


def _integer_pow_reference(x: np.ndarray, *, n: int) -> np.ndarray:
    if n == 0:
        return np.ones_like(x)
    power = _by_squaring(x, abs(n), np.multiply)
    return np.divide(x.dtype.type(1), power) if n < 0 else np.array(power)


def _integer_pow_loops(types: Sequence[ArrayType], *, n: int) -> Pointwise:
    def value(x: Expr) -> Expr:
        if n == 0:
            return Const(literal(1, x.dtype).value, x.dtype)
        power = _by_squaring(x, abs(n), lambda a, b: Prim("mul", (a, b), a.dtype))
        return Prim("reciprocal", (power,), x.dtype) if n < 0 else power

    return Pointwise(in_f32(value))


def _integer_pow_jvp(dx: Value, x: Value, y: Value, *, n: int) -> Value | None:
    if n == 0:
        return None
    return dx if n == 1 else mul(dx, mul(integer_pow(x, n=n - 1), n))


integer_pow = unary(
    "integer_pow",
    doc="x to the power of a fixed integer, by repeated squaring.",
    numpy=_integer_pow_reference,
    dtypes=NUMBERS,
    type=_integer_pow_type,
    jvp=_integer_pow_jvp,
    loops=_integer_pow_loops,
    ulp={**ROUNDED, "f32": 4, "f64": 4, "c64": 16, "c128": 16},
    samples=lambda r: [
        case(r.x(3, 4), n=3),
        case(r.x(), n=1),
        case(r.x(2), n=0),
        case(r.x(5), n=2 if dt.is_integer(r.dtype) else -2),
        case(r.x(5), n=7),
        *([fails(r.x(2), n=-1, saying="negative power")] if dt.is_integer(r.dtype) else []),
    ],
)


# ---------------------------------------------------------------- pow


def _lit(value: Number, like: Value) -> Lit:
    return literal(value, type_of(like).dtype)


def _pow_reference(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if not dt.is_integer(x.dtype):
        return np.power(x, y)
    minus = np.array(-1).astype(x.dtype)
    unit = (x == 1) | (x == minus if dt.is_signed(x.dtype) else False)
    power = np.power(x, np.where(y < 0, -y & x.dtype.type(1), y).astype(x.dtype))
    return np.where((y < 0) & ~unit, x.dtype.type(0), power)


def _pow_loops(types: Sequence[ArrayType]) -> Pointwise:
    return Pointwise(_whole_power if dt.is_integer(types[0].dtype) else _float_power)


def _float_power(x: Expr, y: Expr) -> Expr:
    return Prim("pow", (x, y), x.dtype)


def _whole_power(x: Expr, y: Expr) -> Expr:
    """Repeated squaring over the bits of y; for y < 0 the quotient 1 / x**-y towards 0."""
    dtype = x.dtype

    def number(value: int) -> Expr:
        return Const(value, dtype)

    def test(name: str, a: Expr, b: Expr) -> Expr:
        return Prim(name, (a, b), dt.bool_)

    def op(name: str, *args: Expr) -> Expr:
        return Prim(name, args, dtype)

    bits = 8 * dtype.itemsize - dt.is_signed(dtype)
    factor, power = x, number(1)
    for bit in range(bits):
        chosen = test("ne", op("and", y, number(1 << bit)), number(0))
        power = op("select", chosen, op("mul", power, factor), power)
        if bit + 1 < bits:
            factor = op("mul", factor, factor)
    if not dt.is_signed(dtype):
        return power
    odd = test("ne", op("and", y, number(1)), number(0))
    minus = op("select", test("eq", x, number(-1)), op("select", odd, x, number(1)), number(0))
    below = op("select", test("eq", x, number(1)), x, minus)
    return op("select", test("lt", y, number(0)), below, power)


def _pow_dx(d: Value, x: Value, y: Value, out: Value) -> Value | None:
    """y * x**(y - 1), and 0 at x = y = 0: only there, since at y = 0 its slope in y counts."""
    if isinstance(y, Lit):
        return None if y.value == 0 else mul(d, mul(y, pow(x, _lit(y.value - 1, y))))
    less = sub(y, _lit(1, y))
    at_zero = select(eq(y, _lit(0, y)), _lit(1, y), less)
    return mul(d, mul(y, pow(x, select(eq(x, _lit(0, x)), at_zero, less))))


def _pow_dy(d: Value, x: Value, y: Value, out: Value) -> Value:
    """log(x) * x**y, and 0 at x = 0."""
    positive = select(eq(x, _lit(0, x)), _lit(1, x), x)
    return mul(d, mul(OPS["log"](positive), out))


pow = binary(
    "pow",
    doc="x to the power of y; 0 ** 0 is 1; for integers y < 0 rounds 1 / x**-y towards 0.",
    numpy=_pow_reference,
    dtypes=NUMBERS,
    jvp=(_pow_dx, _pow_dy),
    loops=_pow_loops,
    ulp={"f16": 1, "bf16": 1, "f32": 2, "f64": 4, "c64": 32, "c128": 32},
    samples=lambda r: [
        case(r.x(3, 4, low=0.1, high=2), r.x(3, 4)),
        case(r.x(5, low=0.1, high=2), r.lit(3)),
        case(r.lit(3), r.x(5, low=0, high=5)),
        case(r.x(), r.lit(2)),
    ],
)
