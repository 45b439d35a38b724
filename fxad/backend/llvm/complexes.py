"""Scalar functions of complex numbers, on pairs of real registers.

    apply("mul", [x, y])   # x, y: Pair

Products and quotients are the textbook formulas in the parts' dtype (Smith's method for the
quotient, which does not overflow early).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fxad.backend.llvm import math
from fxad.backend.llvm.formats import Pair, Value
from fxad.backend.llvm.vector import Vec

_call = math.function


def add(x: Pair, y: Pair) -> Pair:
    return Pair(x.re + y.re, x.im + y.im)


def multiply(x: Pair, y: Pair) -> Pair:
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def _divide(x: Pair, y: Pair) -> Pair:
    wide = y.re.abs() >= y.im.abs()
    big, small = wide.where(y.re, y.im), wide.where(y.im, y.re)
    ratio = small.equals(0.0).where(small.like(0.0), small / big)
    bottom = big + small * ratio
    re = wide.where(x.re + x.im * ratio, x.re * ratio + x.im)
    im = wide.where(x.im - x.re * ratio, x.im * ratio - x.re)
    return Pair(re / bottom, im / bottom)


def _abs(x: Pair) -> Vec:
    """Scaled by the larger part, so that squares stay in range."""
    a, b = x.re.abs(), x.im.abs()
    swap = a < b
    big, small = swap.where(b, a), swap.where(a, b)
    ratio = big.equals(0.0).where(big, small / big)
    size = big * (ratio * ratio + 1.0).sqrt()
    infinite = a.equals(float("inf")) | b.equals(float("inf"))
    return infinite.where(size.like(float("inf")), size)


def _real(x: Vec) -> Pair:
    return Pair(x, x.like(0.0))


def _exp(x: Pair) -> Pair:
    size = _call("exp", x.re)
    im = size * _call("sin", x.im)
    return Pair(size * _call("cos", x.im), x.im.equals(0.0).where(x.im, im))


def _log(x: Pair) -> Pair:
    return Pair(_call("log", _abs(x)), _call("atan2", x.im, x.re))


def _sqrt(x: Pair) -> Pair:
    size = _abs(x)
    t = ((size + x.re.abs()) * 0.5).sqrt()
    other = t.equals(0.0).where(t, x.im.abs() / (t + t))
    right = x.re >= 0.0
    return Pair(right.where(t, other), right.where(other, t).copysign(x.im))


def _sin(x: Pair) -> Pair:
    re = _call("sin", x.re) * _call("cosh", x.im)
    return Pair(re, _call("cos", x.re) * _call("sinh", x.im))


def _cos(x: Pair) -> Pair:
    re = _call("cos", x.re) * _call("cosh", x.im)
    return Pair(re, -(_call("sin", x.re) * _call("sinh", x.im)))


def _times_i(x: Pair) -> Pair:
    return Pair(-x.im, x.re)


def _over_i(x: Pair) -> Pair:
    return Pair(x.im, -x.re)


def _tanh(x: Pair) -> Pair:
    """Right of 1 from exp(-2|x|), which cannot overflow; left of it by Kahan 1987, which keeps
    small parts and the poles on the imaginary axis."""
    e = _call("exp", x.re.abs() * -2.0)
    two = x.im + x.im
    c, s = _call("cos", two), _call("sin", two)
    bottom = e * e + e * 2.0 * c + 1.0
    flat = x.re.abs().equals(float("inf")).where(e.copysign(x.im), e * 2.0 * s / bottom)
    far = Pair(((1.0 - e * e) / bottom).copysign(x.re), flat)
    slope, grown = _call("tan", x.im), _call("sinh", x.re)
    beta, square = slope * slope + 1.0, grown * grown
    under = beta * square + 1.0
    near = Pair(beta * (square + 1.0).sqrt() * grown / under, slope / under)
    left = x.re.abs() < 1.0
    return Pair(left.where(near.re, far.re), left.where(near.im, far.im))


def _power(x: Pair, y: Pair) -> Pair:
    result = _exp(multiply(y, _log(x)))
    one = y.re.equals(0.0) & y.im.equals(0.0)
    zero = x.re.equals(0.0) & x.im.equals(0.0) & ~one
    re = one.where(result.re.like(1.0), zero.where(result.re.like(0.0), result.re))
    return Pair(re, (one | zero).where(result.im.like(0.0), result.im))


def _sign(x: Pair) -> Pair:
    size = _abs(x)
    zero = size.equals(0.0)
    return Pair(zero.where(size, x.re / size), zero.where(size, x.im / size))


def _is_finite(x: Pair) -> Vec:
    return (x.re.abs() < float("inf")) & (x.im.abs() < float("inf"))


def _expm1(x: Pair) -> Pair:
    e = _exp(x)
    half = _call("sin", x.im * 0.5)
    grown = _call("expm1", x.re)
    return Pair(grown * _call("cos", x.im) + (half.like(0.0) - half * half * 2.0), e.im)


def _log1p(x: Pair) -> Pair:
    """log|1 + x|: where that is small, from its square, which keeps small numbers."""
    moved = Pair(x.re + 1.0, x.im)
    square = x.re * (x.re + 2.0) + x.im * x.im
    small = square.abs() < 0.5
    near = _call("log1p", small.where(square, square.like(0.0))) * 0.5
    return Pair(small.where(near, _call("log", _abs(moved))), _call("atan2", x.im, moved.re))


_FUNCTIONS: dict[str, Callable[..., Value]] = {
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
    "cos": _cos,
    "tan": lambda x: _over_i(_tanh(_times_i(x))),
    "sinh": lambda x: _over_i(_sin(_times_i(x))),
    "cosh": lambda x: _cos(_times_i(x)),
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


def apply(name: str, args: Sequence[Value]) -> Value:
    """One function; raises NotImplementedError where complex numbers have none."""
    if name not in _FUNCTIONS:
        raise NotImplementedError(f"scalar function {name!r} has no meaning for complex values")
    wide = max(a.width for a in args)
    return _FUNCTIONS[name](*(a.splat(wide) for a in args))
