"""Elementwise functions written in terms of others.

hypot(3.0, 4.0)      logaddexp(a, b)      isclose(a, b)      nan_to_num(x)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.core.counting import count_nonzero
from fxad.core.errors import TypeMismatch
from fxad.ir.program import OPS
from fxad.numpy.core import promoted, value_of
from fxad.numpy.elementwise import (
    abs,
    equal,
    exp,
    imag,
    isinf,
    isnan,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    real,
    signbit,
    sin,
    sqrt,
    where,
)
from fxad.trace.array import Array
from fxad.trace.replay import by_numpy, replayed
from fxad.trace.tracer import type_of


@replayed
def copysign(x: Any, y: Any, /) -> Array:
    """|x| with the sign of y."""
    a, b = promoted("copysign", x, y, inexact=True, numbers=False)
    if dt.is_complex(type_of(a).dtype):
        raise TypeMismatch(f"copysign: complex numbers have no sign, but one is {type_of(a)}")
    size = OPS["abs"](a)
    return OPS["select"](signbit(b), OPS["neg"](size), size)


@replayed
def heaviside(x: Any, y: Any, /) -> Array:
    """0 below zero, y at zero, 1 above."""
    a, b = promoted("heaviside", x, y, inexact=True, numbers=False)
    return where(a < 0, 0.0, where(a > 0, 1.0, b)).astype(type_of(a).dtype)


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
def hypot(x: Any, y: Any, /) -> Array:
    """sqrt(x*x + y*y) without overflow; its gradient at 0, 0 is 0."""
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
def logaddexp(x: Any, y: Any, /) -> Array:
    """log(exp(x) + exp(y)) without overflow; two equal infinities share the gradient."""
    return _log_of_sum(*promoted("logaddexp", x, y, inexact=True, numbers=False))


@replayed
def logaddexp2(x: Any, y: Any, /) -> Array:
    """log2(2**x + 2**y)."""
    return logaddexp(multiply(x, math.log(2)), multiply(y, math.log(2))) / math.log(2)


@replayed
def log10(x: Any, /) -> Array:
    """Base-10 logarithm."""
    out = log(x)
    if not dt.is_complex(out.dtype):
        return out * (1 / math.log(10))
    return OPS["complex"](*[part / math.log(10) for part in (real(out), imag(out))])


@replayed
def sinc(x: Any, /) -> Array:
    """sin(pi x) / (pi x), 1 at 0.

    Where |pi x| < 1 it is Taylor's series: the quotient's derivatives cancel there.
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
def deg2rad(x: Any, /) -> Array:
    """Degrees to radians."""
    return multiply(x, math.pi / 180)


@replayed
def rad2deg(x: Any, /) -> Array:
    """Radians to degrees."""
    return multiply(x, 180 / math.pi)


radians, degrees = deg2rad, rad2deg


@replayed
def fmax(x: Any, y: Any, /) -> Array:
    """The larger element; NaN only if both are."""
    a, b = promoted("fmax", x, y, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, maximum(a, b)))


@replayed
def fmin(x: Any, y: Any, /) -> Array:
    """The smaller element; NaN only if both are."""
    a, b = promoted("fmin", x, y, numbers=False)
    return where(isnan(a), b, where(isnan(b), a, minimum(a, b)))


@replayed
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
