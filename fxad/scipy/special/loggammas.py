"""The logarithm of the gamma function, continued into the complex plane: loggamma.

loggamma(-2.5 + 1e-9j)      # its imaginary part is not that of log(gamma(z)): it has no jumps

Stirling's series (DLMF 5.11.1) for large |z|, to which others are shifted by the recurrence; the
Taylor series (DLMF 5.7.3) close to the zeros 1 and 2; the reflection formula in the form that is
analytic off the real axis (D. E. G. Hare, "Computing the principal branch of log-Gamma", Journal of
Algorithms 25, 1997) left of 1/2.
"""

from __future__ import annotations

import math
from typing import Any

from fxad.ir.prims_numpy import LOG_GAMMA_AT_2
from fxad.ir.program import OPS
from fxad.numpy import abs, copysign, exp, imag, iscomplexobj, log, log1p, real, sin, where
from fxad.numpy import round as rounded
from fxad.numpy.core import value_of
from fxad.scipy.special.gammas import stirling_rest
from fxad.scipy.special.support import HALF_LOG_2PI, LOG_2PI, polynomial, special
from fxad.trace.array import Array

_LARGE = 10.0  # |z| from which Stirling's series has all digits in the right half-plane


# log(1 + w) / w, |w| < 0.2
_LOG_AT_1 = [(-1) ** k / (k + 1) for k in range(24)]


def log_gamma_1p(x: Array) -> Array:
    """log Gamma(1 + x) of real |x| <= 1/2, accurate also where 1 + x is rounded."""
    return x * polynomial(x, LOG_GAMMA_AT_2[:26]) - log1p(x)


def _right(z: Array) -> Array:
    """loggamma for Re z >= 1/2."""
    lower = real(z) < 1.5
    off = where(lower, z - 1, z - 2)
    near = abs(off) < 0.9
    off = where(near, off, 0.0)
    close = abs(off) < 0.2
    series = off * polynomial(where(close, off, 0.0), _LOG_AT_1)
    logarithm = where(close, series, log(where(close | ~lower, 1.0, z)))
    taylor = off * polynomial(off, LOG_GAMMA_AT_2) - where(lower, logarithm, 0.0)
    small = abs(z) < _LARGE
    start = where(small, z, 1.0)
    logs = log(start)
    for k in range(1, int(_LARGE)):
        logs = logs + log(start + k)
    at = where(small, z + _LARGE, z)
    value = (at - 0.5) * log(at) - at + HALF_LOG_2PI + stirling_rest(at)
    return where(near, taylor, where(small, value - logs, value))


def _log_turn(z: Array, side: Array) -> Array:
    """log(1 - exp(2 pi i side z)), side Im z >= 0; by the sine close to the poles."""
    rest = OPS["complex"](real(z) - rounded(real(z)), imag(z))
    angle = 1j * math.pi * side * rest
    near = abs(rest) < 0.25
    half = where(near, rest, 0.25)
    sine = -2j * side * sin(math.pi * half) * exp(1j * math.pi * side * half)
    return log(where(near, sine, 1 - exp(2 * where(near, 0.25j, angle))))


def _loggamma(z: Array) -> Array:
    left = real(z) < 0.5
    right = _right(where(left, 1 - z, z))
    pole = left & (imag(z) == 0) & (real(z) == rounded(real(z)))
    at = where(left & ~pole, z, 0.25)
    side = copysign(1.0, imag(at))
    turned = 1j * math.pi * side * (at - 0.5) - _log_turn(at, side)
    value = where(left, LOG_2PI + turned - right, right)
    return where(pole, complex(math.nan, math.nan), value)


@special
def _loggamma_real(x: Any) -> Array:
    return OPS["lgamma"](where(x >= 0, x, math.nan))


def loggamma(x: Any) -> Array:
    """The principal branch of log Gamma, of real or complex numbers; its cut is x < 0.

    Of real numbers: inf at 0, NaN below. Of complex ones: NaN at the poles 0, -1, ...; on the cut
    the sign of the imaginary zero says the side.

    >>> print(f"{float(loggamma(3.0)):.5f} {complex(loggamma(-2.5 + 0j)):.4f}")
    0.69315 -0.0562-9.4248j
    """
    return _loggamma(value_of(x, "loggamma")) if iscomplexobj(x) else _loggamma_real(x)
