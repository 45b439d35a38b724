"""Loop bodies of functions of complex numbers, from functions of their parts.

    complex_asin(z)    # an expression for a complex expression

The inverse functions are those of Kahan 1987, "Branch cuts for complex elementary functions":
square roots of 1 - z and 1 + z keep signed zeros apart, so every side of a cut is right. Far from 0
they are logarithms; infinities and NaNs follow C99's appendix G.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fxad.core import dtypes as dt
from fxad.core.types import ArrayType
from fxad.ir.kernel import Const, Expr, Prim
from fxad.ir.loops import Pointwise

Formula = Callable[[Expr], Expr]


def by_kind(name: str, formula: Formula) -> Callable[..., Pointwise]:
    """The primitive itself for real operands, a formula for complex ones."""

    def loops(types: Sequence[ArrayType]) -> Pointwise:
        if dt.is_complex(types[0].dtype):
            return Pointwise(formula)
        return Pointwise(lambda x: Prim(name, (x,), x.dtype))

    return loops


def _numbers(args: tuple[Expr | float, ...]) -> tuple[Expr, ...]:
    """Python numbers take the expressions' dtype."""
    dtype = next(a.dtype for a in args if not isinstance(a, float))
    return tuple([Const(a, dtype) if isinstance(a, float) else a for a in args])


def _real(name: str, *args: Expr | float) -> Expr:
    """A primitive of real numbers, of their dtype."""
    operands = _numbers(args)
    return Prim(name, operands, operands[0].dtype)


def _parts(z: Expr) -> tuple[Expr, Expr]:
    dtype = dt.real_of(z.dtype)
    return Prim("real", (z,), dtype), Prim("imag", (z,), dtype)


def _join(re: Expr, im: Expr) -> Expr:
    return Prim("complex", (re, im), dt.complex_of(re.dtype))


def _root(re: Expr, im: Expr) -> tuple[Expr, Expr]:
    z = _join(re, im)
    return _parts(Prim("sqrt", (z,), z.dtype))


def _cross(a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
    """Imaginary part of conj(a) * b."""
    return _real("sub", _real("mul", a[0], b[1]), _real("mul", a[1], b[0]))


def _roots(z: Expr) -> tuple[Expr, tuple[Expr, Expr], tuple[Expr, Expr]]:
    """Real part of z, square roots of 1 - z and 1 + z."""
    x, y = _parts(z)
    return x, _root(_real("sub", 1.0, x), _real("neg", y)), _root(_real("add", 1.0, x), y)


def _select(test: Expr, yes: Expr | float, no: Expr) -> Expr:
    return Prim(
        "select", (test, Const(yes, no.dtype) if isinstance(yes, float) else yes, no), no.dtype
    )


def _test(name: str, *args: Expr | float) -> Expr:
    return Prim(name, _numbers(args), dt.bool_)


def _far(z: Expr) -> tuple[Expr, Expr]:
    """Whether 1 is nothing beside z, infinities included, and log(2 |z|)."""
    parts = _parts(z)
    bound = 1e5 if parts[0].dtype == dt.float32 else 1e10
    tests = [_test("gt", _real("abs", part), bound) for part in parts]
    quarter = _join(*[_real("mul", part, 0.25) for part in parts])
    size = _real("log", Prim("abs", (quarter,), parts[0].dtype))
    return Prim("or", tuple(tests), dt.bool_), _real("add", size, math.log(8))


def _lost(z: Expr) -> Expr:
    """Whether z is 0 + NaN i, where the real part still decides an angle."""
    x, y = _parts(z)
    return Prim("and", (_test("eq", x, 0.0), _test("is_nan", y)), dt.bool_)


def complex_asin(z: Expr) -> Expr:
    (x, minus, plus), y = _roots(z), _parts(z)[1]
    far, size = _far(z)
    bottom = _real("sub", _real("mul", minus[0], plus[0]), _real("mul", minus[1], plus[1]))
    angle = _real("atan2", x, _select(far, _real("abs", y), bottom))
    grown = _select(far, _real("copysign", size, y), _real("asinh", _cross(minus, plus)))
    return _join(_select(_test("eq", x, 0.0), x, angle), grown)


def complex_acos(z: Expr) -> Expr:
    (x, minus, plus), y = _roots(z), _parts(z)[1]
    far, size = _far(z)
    near = _real("mul", 2.0, _real("atan2", minus[0], plus[0]))
    angle = _select(far, _real("atan2", _real("abs", y), x), near)
    turned = _real("neg", _real("copysign", size, y))
    grown = _select(far, turned, _real("asinh", _cross(plus, minus)))
    return _join(_select(_lost(z), math.pi / 2, angle), grown)


def complex_acosh(z: Expr) -> Expr:
    x, y = _parts(z)
    far, size = _far(z)
    minus, plus = _root(_real("sub", x, 1.0), y), _root(_real("add", x, 1.0), y)
    near = _real("add", _real("mul", minus[0], plus[0]), _real("mul", minus[1], plus[1]))
    turned = _real("mul", 2.0, _real("atan2", minus[1], plus[0]))
    angle = _select(far, _real("atan2", y, x), turned)
    return _join(_select(far, size, _real("asinh", near)), _select(_lost(z), math.pi / 2, angle))


def complex_atanh(z: Expr) -> Expr:
    """Real part from |x|: log1p of numbers near -1 would lose what is left of them."""
    x, y = _parts(z)
    far, _ = _far(z)
    size, whole = _real("abs", x), Prim("abs", (z,), x.dtype)
    left, right = _real("sub", 1.0, size), _real("add", 1.0, size)
    square = _real("mul", y, y)
    near = _real("add", _real("mul", left, left), square)
    grown = _real("mul", 0.25, _real("log1p", _real("div", _real("mul", 4.0, size), near)))
    pole = Prim("and", (_test("eq", left, 0.0), _test("lt", square, 1e-4)), dt.bool_)
    beside = _real("sub", math.log(2) / 2, _real("mul", 0.5, _real("log", _real("abs", y))))
    grown = _select(pole, beside, grown)
    small = _real("div", _real("div", size, whole), whole)
    grown = _select(far, _select(_test("eq", whole, math.inf), 0.0, small), grown)
    turned = _real("atan2", _real("mul", 2.0, y), _real("sub", _real("mul", left, right), square))
    quarter = _real("copysign", Const(math.pi / 2, y.dtype), y)
    lost = Prim("and", (_test("is_nan", x), _test("is_finite", y)), dt.bool_)
    quarter = _select(lost, x, quarter)
    quarter = _select(_test("is_nan", y), y, quarter)
    angle = _select(far, quarter, _real("mul", 0.5, turned))
    return _join(_select(_test("eq", x, 0.0), x, _real("copysign", grown, x)), angle)


def _rotated(formula: Formula) -> Formula:
    """z -> formula(i z) / i."""

    def turned(z: Expr) -> Expr:
        x, y = _parts(z)
        re, im = _parts(formula(_join(_real("neg", y), x)))
        return _join(im, _real("neg", re))

    return turned


complex_asinh = _rotated(complex_asin)
complex_atan = _rotated(complex_atanh)


def complex_exp2(z: Expr) -> Expr:
    x, y = _parts(z)
    scaled = _join(_real("mul", x, math.log(2)), _real("mul", y, math.log(2)))
    return Prim("exp", (scaled,), z.dtype)


def complex_log2(z: Expr) -> Expr:
    x, y = _parts(Prim("log", (z,), z.dtype))
    return _join(_real("mul", x, 1 / math.log(2)), _real("mul", y, 1 / math.log(2)))
