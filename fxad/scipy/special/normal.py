"""Error functions and the normal distribution: erf, erfcinv, ndtr, ndtri, log_ndtr.

ndtri(ndtr(-20.0))      # -20.0: the lower tail keeps its digits
"""

from __future__ import annotations

import math
from typing import Any

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.ir.program import OPS
from fxad.numpy import exp, iscomplexobj, isnan, log, log1p, ones_like, sqrt, where, zeros_like
from fxad.numpy.core import value_of
from fxad.numpy.weak import gives_strong
from fxad.scipy.special.faddeeva import erf_complex, erfc_complex
from fxad.scipy.special.support import HALF_LOG_2PI, special
from fxad.trace.array import Array

ROOT_HALF = math.sqrt(0.5)


@special
def _erf(x: Any) -> Array:
    return OPS["erf"](x)


@special
def _erfc(x: Any) -> Array:
    return OPS["erfc"](x)


def erf(x: Any) -> Array:
    """The error function, of real or complex numbers.

    >>> fxad.scipy.special.erf(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.52 , 0.843, 1.   ], dtype=float32)
    """
    return erf_complex(value_of(x, "erf")) if iscomplexobj(x) else _erf(x)


def erfc(x: Any) -> Array:
    """1 - erf(x), accurate for large x; of real or complex numbers.

    >>> fxad.scipy.special.erfc(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.48 , 0.157, 0.   ], dtype=float32)
    """
    return erfc_complex(value_of(x, "erfc")) if iscomplexobj(x) else _erfc(x)


@special
def erfinv(x: Any) -> Array:
    """The inverse of erf.

    >>> fxad.scipy.special.erfinv(jnp.array([0.1, 0.5, 0.9])).round(3)
    Array([0.089, 0.477, 1.163], dtype=float32)
    """
    return OPS["erfinv"](x)


@custom_jvp
def _erfcinv(y: Array) -> Array:
    """Halley's iteration on erfc; the start is its asymptotic form for small y."""
    mirrored = y > 1
    tail = where(mirrored, 2 - y, y)
    inside = tail > 0
    deep = inside & (tail < 2 * float(dt.finfo(y.dtype).tiny))
    small = where(inside & (tail < 0.125) & ~deep, tail, 0.1)
    scale = sqrt(-log(small * math.sqrt(math.pi) * sqrt(-log(small))))
    x = where(tail < 0.125, scale, OPS["erfinv"](1 - where(tail < 0.125, 0.5, tail)))
    for _ in range(4):
        error = (OPS["erfc"](x) - small) * exp(x * x) * (0.5 * math.sqrt(math.pi))
        x = where(tail < 0.125, x + error / (1 + x * error), x)
    x = where(deep, _deep_erfcinv(where(deep, tail, 1e-30)), x)
    x = where(tail == 0, math.inf, where(inside, x, math.nan))
    return where(mirrored, -x, x)


def _deep_erfcinv(y: Array) -> Array:
    """erfcinv of so small a y that exp(x**2) overflows, from log(erfc(x)) of slope about -2 x."""
    wanted = log(y)
    x = sqrt(-wanted)
    for _ in range(6):
        x = x + (math.log(2) + _log_tail(-math.sqrt(2) * x) - wanted) / (2 * x)
    return x


@_erfcinv.defjvp
def _erfcinv_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    x = _erfcinv(primals[0])
    return x, tangents[0] * (-0.5 * math.sqrt(math.pi)) * exp(x * x)


@special
def erfcinv(y: Any) -> Array:
    """The inverse of erfc, accurate for small y; inf at 0, -inf at 2.

    >>> fxad.scipy.special.erfcinv(jnp.array([0.1, 0.5, 0.9])).round(3)
    Array([1.163, 0.477, 0.089], dtype=float32)
    """
    return _erfcinv(y)


@gives_strong
@special
def ndtr(x: Any) -> Array:
    """Distribution function of the standard normal.

    >>> fxad.scipy.special.ndtr(jnp.array([0.5, 1.0, 4.0])).round(3)
    Array([0.691, 0.841, 1.   ], dtype=float32)
    """
    return 0.5 * OPS["erfc"](-ROOT_HALF * x)


@gives_strong
@special
def ndtri(p: Any) -> Array:
    """The inverse of ndtr: -inf at 0, inf at 1, NaN outside.

    >>> fxad.scipy.special.ndtri(jnp.array([0.1, 0.5, 0.9])).round(3)
    Array([-1.282, -0.   ,  1.282], dtype=float32)
    """
    return -math.sqrt(2) * _erfcinv(2 * p)


def _log_tail(x: Array) -> Array:
    """log_ndtr far below 0, by the asymptotic series of Mills' ratio."""
    inverse = 1 / (x * x)
    series, term = zeros_like(x), ones_like(x)
    for k in range(1, 8):
        term = term * (1 - 2 * k) * inverse
        series = series + term
    return -0.5 * x * x - log(-x) - HALF_LOG_2PI + log1p(series)


@custom_jvp
def _log_ndtr(x: Array) -> Array:
    edge = -10.0 if x.dtype == dt.float32 else -20.0
    far, upper = x < edge, x > 0
    lower = log(0.5 * OPS["erfc"](where(far | upper, 0.0, -ROOT_HALF * x)))
    above = log1p(-0.5 * OPS["erfc"](where(upper, ROOT_HALF * x, 0.0)))
    value = where(far, _log_tail(where(far, x, edge)), where(upper, above, lower))
    return where(isnan(x), x, value)


@_log_ndtr.defjvp
def _log_ndtr_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,) = primals
    value = _log_ndtr(x)
    return value, tangents[0] * exp(-0.5 * x * x - HALF_LOG_2PI - value)


@gives_strong
def log_ndtr(x: Any, series_order: int = 3) -> Array:
    """log(ndtr(x)), finite and accurate far below 0, whatever the order of JAX's series.

    >>> fxad.scipy.special.log_ndtr(jnp.array([-200.0, 0.0, 3.0])).round(3)
    Array([-2.0006217e+04, -6.9300002e-01, -1.0000000e-03], dtype=float32)
    """
    return _special_log_ndtr(x)


@special
def _special_log_ndtr(x: Any) -> Array:
    return _log_ndtr(x)
