"""Scalar functions of complex numbers, on pairs of real registers.

    FUNCTIONS["mul"](x, y)   # x, y: Pair

Products and quotients are the textbook formulas in the parts' dtype (Smith's method for the
quotient, which does not overflow early). Infinities, NaNs and zeros follow C99's appendix G, as
NumPy's functions do (`tests/backend/llvm/test_complexes.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp as math_exp

from fxad.backend.llvm.base.formats import Pair, Value
from fxad.backend.llvm.base.vector import Vec
from fxad.backend.llvm.math import functions as math

_call = math.function
_INF = float("inf")
_TOP = {"float": 80.0, "double": 700.0}  # exp of it is finite


def add(x: Pair, y: Pair) -> Pair:
    return Pair(x.re + y.re, x.im + y.im)


def multiply(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _divide(x: Pair, y: Pair) -> Pair:
    """By zero both parts are divided by its real part's size, as in NumPy."""
    wide = y.re.abs() >= y.im.abs()
    big, small = wide.where(y.re, y.im), wide.where(y.im, y.re)
    ratio = small / big
    bottom = big + small * ratio
    re = wide.where(x.re + x.im * ratio, x.re * ratio + x.im)
    im = wide.where(x.im - x.re * ratio, x.im * ratio - x.re)
    zero = _is_zero(y)
    bottom = zero.where(big.abs(), bottom)
    return Pair(zero.where(x.re, re) / bottom, zero.where(x.im, im) / bottom)


def _is_zero(x: Pair) -> Vec:
    return x.re.equals(0.0) & x.im.equals(0.0)


def _special(x: Vec) -> Vec:
    """Whether it is infinite or NaN."""
    return ~(x.abs() < _INF)


def _infinite(x: Vec) -> Vec:
    return x.abs().equals(_INF)


def _sizes(x: Pair) -> tuple[Vec, Vec]:
    """The larger and the smaller of |re| and |im|."""
    a, b = x.re.abs(), x.im.abs()
    swap = a < b
    return swap.where(b, a), swap.where(a, b)


def _abs(x: Pair) -> Vec:
    """Scaled by the larger part, so that squares stay in range; infinite before it is NaN."""
    big, small = _sizes(x)
    ratio = big.equals(0.0).where(small, small / big)
    size = big * (ratio * ratio + 1.0).sqrt()
    return (_infinite(x.re) | _infinite(x.im)).where(size.like(_INF), size)


def _real(x: Vec) -> Pair:
    return Pair(x, x.like(0.0))


def _grown(x: Vec) -> tuple[Vec, Vec]:
    """exp(x) as two factors, of which the second is 1 where the first does not overflow."""
    top = _TOP[x.kind]
    far = x > top
    return _call("exp", far.where(x - top, x)), far.where(x.like(math_exp(top)), 1.0)


def _exp(x: Pair) -> Pair:
    size, more = _grown(x.re)
    re = size * _call("cos", x.im) * more
    im = x.im.equals(0.0).where(x.im, size * _call("sin", x.im) * more)
    end = _infinite(x.re) & _special(x.im)  # of no direction
    low = end & (x.re < 0.0)
    re = end.where(low.where(x.re.like(0.0), x.re), re)
    return Pair(re, low.where(x.re.like(0.0).copysign(x.im), im))


def _log(x: Pair) -> Pair:
    """log|x|: near 1 from |x|^2 - 1, which keeps small numbers."""
    big, small = _sizes(x)
    square = (big - 1.0) * (big + 1.0) + small * small
    near = square.abs() < 0.5
    grown = _call("log1p", near.where(square, 0.0)) * 0.5
    return Pair(near.where(grown, _call("log", _abs(x))), _call("atan2", x.im, x.re))


def _sqrt(x: Pair) -> Pair:
    """Of a quarter where the size might overflow."""
    huge = _sizes(x)[0] > math_exp(_TOP[x.re.kind])
    scale = huge.where(x.re.like(0.25), 1.0)
    re, im = x.re * scale, x.im * scale
    t = ((_abs(Pair(re, im)) + re.abs()) * 0.5).sqrt()
    other = t.equals(0.0).where(t, im.abs() / (t + t))
    back = huge.where(x.re.like(2.0), 1.0)
    t, other = t * back, other * back
    right, flat = x.re >= 0.0, _infinite(x.im)
    upper = flat.where(x.im, right.where(other, t).copysign(x.im))
    return Pair(flat.where(x.im.abs(), right.where(t, other)), upper)


def _hyperbolic(x: Pair) -> tuple[Vec, Vec, Vec, Vec, Vec]:
    """cosh and sinh of the real part and the factor both lack, cosine and sine of the other."""
    size, more = _grown(x.re.abs())
    far = more > 1.0
    big = size * 0.5
    cosh = far.where(big, _call("cosh", x.re))
    sinh = far.where(big.copysign(x.re), _call("sinh", x.re))
    return cosh, sinh, more, _call("cos", x.im), _call("sin", x.im)


def _cosh(x: Pair) -> Pair:
    cosh, sinh, more, cos, sin = _hyperbolic(x)
    end = _infinite(x.re) & _special(x.im)
    re = end.where(x.re.abs(), cosh * cos * more)
    flat = x.im.equals(0.0) | (x.re.equals(0.0) & _special(x.im))
    side = x.re.like(0.0).copysign(x.re) * x.im.like(1.0).copysign(x.im)
    return Pair(re, flat.where(side, sinh * sin * more))


def _sinh(x: Pair) -> Pair:
    cosh, sinh, more, cos, sin = _hyperbolic(x)
    large, none = _infinite(x.re), x.re.equals(0.0)
    end = none.where(x.re, x.re.abs())
    re = ((large | none) & _special(x.im)).where(end, sinh * cos * more)
    return Pair(re, x.im.equals(0.0).where(x.im, cosh * sin * more))


def _times_i(x: Pair) -> Pair:
    return Pair(-x.im, x.re)


def _over_i(x: Pair) -> Pair:
    return Pair(x.im, -x.re)


def _sin(x: Pair) -> Pair:
    turned = _over_i(_sinh(_times_i(x)))
    end = _infinite(x.im) & _special(x.re)
    return Pair(turned.re, end.where(x.im.abs(), turned.im))


def _tanh(x: Pair) -> Pair:
    """Right of 1 from exp(-2|x|), which cannot overflow; left of it by Kahan 1987, which keeps
    small parts and the poles on the imaginary axis."""
    e = _call("exp", x.re.abs() * -2.0)
    two = x.im + x.im
    c, s = _call("cos", two), _call("sin", two)
    bottom = e * e + e * 2.0 * c + 1.0
    end = _infinite(x.re)
    flat = end.where(e.copysign(x.im), e * 2.0 * s / bottom)
    far = Pair(end.where(e.like(1.0), (1.0 - e * e) / bottom).copysign(x.re), flat)
    slope, grown = _call("tan", x.im), _call("sinh", x.re)
    beta, square = slope * slope + 1.0, grown * grown
    under = beta * square + 1.0
    near = Pair(beta * (square + 1.0).sqrt() * grown / under, slope / under)
    left = x.re.abs() < 1.0
    re = x.re.equals(0.0).where(x.re, left.where(near.re, far.re))
    return Pair(re, x.im.equals(0.0).where(x.im, left.where(near.im, far.im)))


def _power(x: Pair, y: Pair) -> Pair:
    """Of zero: 0 to powers with a positive real part, NaN to others but 0, as in NumPy."""
    result = _exp(multiply(y, _log(x)))
    one, zero = _is_zero(y), _is_zero(x)
    of_zero = (y.re > 0.0).where(x.re.like(0.0), float("nan"))
    re = one.where(result.re.like(1.0), zero.where(of_zero, result.re))
    return Pair(re, one.where(result.im.like(0.0), zero.where(of_zero, result.im)))


def _sign(x: Pair) -> Pair:
    size = _abs(x)
    zero, unit = size.equals(0.0), _divide(x, _real(size))
    return Pair(zero.where(size, unit.re), zero.where(size, unit.im))


def _is_finite(x: Pair) -> Vec:
    return (x.re.abs() < float("inf")) & (x.im.abs() < float("inf"))


def _expm1(x: Pair) -> Pair:
    e = _exp(x)
    half = _call("sin", x.im * 0.5)
    grown = _call("expm1", x.re)
    re = grown * _call("cos", x.im) + (half.like(0.0) - half * half * 2.0)
    return Pair((_special(x.re) | _special(x.im)).where(e.re - 1.0, re), e.im)


def _log1p(x: Pair) -> Pair:
    """log|1 + x|: where that is small, from its square, which keeps small numbers."""
    moved = Pair(x.re + 1.0, x.im)
    square = x.re * (x.re + 2.0) + x.im * x.im
    small = square.abs() < 0.5
    near = _call("log1p", small.where(square, square.like(0.0))) * 0.5
    return Pair(small.where(near, _call("log", _abs(moved))), _call("atan2", x.im, moved.re))


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": add,
    "sub": lambda x, y: Pair(x.re - y.re, x.im - y.im),
    "mul": multiply,
    "div": _divide,
    "neg": lambda x: Pair(-x.re, -x.im),
    "conj": lambda x: Pair(x.re, -x.im),
    "real": lambda x: x.re,
    "imag": lambda x: x.im,
    "abs": _abs,
    "sign": _sign,
    "square": lambda x: multiply(x, x),
    "reciprocal": lambda x: _divide(_real(x.re.like(1.0)), x),
    "exp": _exp,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "sqrt": _sqrt,
    "rsqrt": lambda x: _divide(_real(x.re.like(1.0)), _sqrt(x)),
    "sin": _sin,
    "cos": lambda x: _cosh(_times_i(x)),
    "tan": lambda x: _over_i(_tanh(_times_i(x))),
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
    "logistic": lambda x: _divide(
        _real(x.re.like(1.0)), add(_real(x.re.like(1.0)), _exp(Pair(-x.re, -x.im)))
    ),
    "pow": _power,
    "eq": lambda x, y: x.re.equals(y.re) & x.im.equals(y.im),
    "ne": lambda x, y: x.re.compare("une", y.re) | x.im.compare("une", y.im),
    "is_finite": _is_finite,
    "is_nan": lambda x: x.re.is_nan() | x.im.is_nan(),
    "fma": lambda x, y, z: add(multiply(x, y), z),
}
