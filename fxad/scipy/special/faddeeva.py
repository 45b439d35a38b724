"""The Faddeeva function w(z) = exp(-z**2) erfc(-i z), and the error functions of complex numbers.

wofz(1j * 3.0)      # exp(9) erfc(3)

J. A. C. Weideman, "Computation of the complex error function", SIAM J. Numer. Anal. 31 (1994).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.api.custom import custom_jvp
from fxad.core import dtypes as dt
from fxad.numpy import abs, exp, imag, real, where
from fxad.numpy.core import cast, promoted
from fxad.scipy.special.support import polynomial
from fxad.trace.array import Array

_TERMS = 48
_WIDTH = math.sqrt(_TERMS / math.sqrt(2))
_ROOT_PI = math.sqrt(math.pi)


def _coefficients() -> list[float]:
    """Of the expansion in ((L + i z) / (L - i z))**n: a Fourier transform."""
    half = 2 * _TERMS
    angle = np.arange(1 - half, half) * math.pi / half
    t = _WIDTH * np.tan(angle / 2)
    samples = np.concatenate([[0.0], np.exp(-t * t) * (_WIDTH**2 + t * t)])
    spectrum = np.fft.fft(np.fft.fftshift(samples)).real / (2 * half)
    return [float(c) for c in spectrum[1 : _TERMS + 1]]


_COEFFICIENTS = _coefficients()


def _upper(z: Array) -> Array:
    """w(z) for Im z >= 0."""
    below = _WIDTH - 1j * z
    ratio = (_WIDTH + 1j * z) / below
    return 2 * polynomial(ratio, _COEFFICIENTS) / (below * below) + (1 / _ROOT_PI) / below


@custom_jvp
def _wofz(z: Array) -> Array:
    lower = imag(z) < 0
    value = _upper(where(lower, -z, z))
    return where(lower, 2 * exp(-(z * z)) - value, value)


@_wofz.defjvp
def _wofz_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (z,) = primals
    value = _wofz(z)
    return value, tangents[0] * (2j / _ROOT_PI - 2 * z * value)


def _complex(name: str, z: Any) -> Array:
    (value,) = promoted(name, z, inexact=True, numbers=False)
    return value if dt.is_complex(value.dtype) else cast(value, dt.complex_of(value.dtype))


def wofz(z: Any) -> Array:
    """The Faddeeva function of complex numbers; about 14 digits in complex128.

    >>> fxad.scipy.special.wofz(jnp.array([0.0, 1j])).round(3)
    Array([1.        +0.j, 0.42800003+0.j], dtype=complex64)
    """
    return _wofz(_complex("wofz", z))


def _series(z: Array) -> Array:
    """erf(z) for small |z|, by its power series."""
    square = z * z
    total, term = z, z
    for n in range(1, 26):
        term = term * square * (-1 / n)
        total = total + term / (2 * n + 1)
    return total * (2 / _ROOT_PI)


@custom_jvp
def erf_complex(z: Array) -> Array:
    """erf of complex numbers."""
    left = real(z) < 0
    near = abs(z) < 1.5
    right = where(left, -z, z)
    value = 1 - exp(-(right * right)) * _upper(1j * right)
    return where(near, _series(where(near, z, 0)), where(left, -value, value))


@custom_jvp
def erfc_complex(z: Array) -> Array:
    """erfc of complex numbers."""
    left = real(z) < 0
    right = where(left, -z, z)
    value = exp(-(right * right)) * _upper(1j * right)
    return where(left, 2 - value, value)


def _gauss(z: Array) -> Array:
    return exp(-(z * z)) * (2 / _ROOT_PI)


erf_complex.defjvps(lambda dz, out, z: dz * _gauss(z))
erfc_complex.defjvps(lambda dz, out, z: -dz * _gauss(z))
