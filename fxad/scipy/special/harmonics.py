"""Spherical harmonics: sph_harm_y.

sph_harm_y(3, -2, theta, phi)       # complex, orthonormal on the sphere
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxad.core.errors import BadArgument, ConcretizationError
from fxad.ir.program import OPS
from fxad.lax.loops import fori_loop
from fxad.numpy import abs, asarray, cos, maximum, minimum, sin, sqrt, where, zeros_like
from fxad.numpy.core import cast, promoted
from fxad.trace.array import Array


def _legendre(n: Array, m: Array, theta: Array, highest: int) -> Array:
    """Normalized associated Legendre functions of cos theta, 0 <= m <= n <= highest, with the
    phase (-1)**m: the recurrence over the degree (DLMF 14.10.3), which starts at degree m."""
    sine, cosine = sin(theta), cos(theta)
    sine = where(sine < 0, -sine, sine)

    def step(degree: Array, state: tuple) -> tuple:
        before, here, start, value = state
        k = cast(asarray(degree), theta.dtype)
        start = where(m >= k, -sqrt((2 * k + 1) / (2 * k)) * sine * start, start)
        above = m < k
        up = sqrt((4 * k * k - 1) / where(above, k * k - m * m, 1.0))
        back = sqrt(
            maximum((k - 1) * (k - 1) - m * m, 0.0) / maximum(4 * (k - 1) * (k - 1) - 1, 1.0)
        )
        after = where(above, up * (cosine * here - back * before), where(m == k, start, 0.0))
        return here, after, start, where(n == k, after, value)

    zero = zeros_like(theta)
    start = zero + 1 / math.sqrt(4 * math.pi)
    first = where(m == 0, start, zero)
    state = (zero, first, start, where(n == 0, first, zero))
    return fori_loop(1, highest + 1, step, state)[3]


def _highest(n: Any, n_max: Any) -> int:
    try:
        return int(np.max(n) if n_max is None else n_max)
    except ConcretizationError:
        raise BadArgument("sph_harm_y: n is traced: give n_max, the largest degree") from None


def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None
) -> Array:
    """The spherical harmonic of degree n and order m, |m| <= n, at the polar angle theta in [0, pi]
    and the azimuth phi; complex. With the Condon-Shortley phase, orthonormal on the sphere.

    n, m: integers, broadcast with the angles. n_max: a Python int, the largest degree, to which n
    is clipped; needed where n is traced. Raises BadArgument for `diff_n`, which JAX refuses too.

    >>> print(f"{float(sph_harm_y(1, 0, 0.0, 0.5).real):.5f}")
    0.48860
    """
    if diff_n is not None:
        raise BadArgument("sph_harm_y: diff_n is not supported; fxad.grad has the derivatives")
    highest = _highest(n, n_max)
    theta, phi = promoted("sph_harm_y", theta, phi, inexact=True, numbers=False)
    degree, order, theta, phi = promoted(
        "sph_harm_y", *(cast(asarray(v), theta.dtype) for v in (n, m)), theta, phi
    )
    size = abs(order)
    value = _legendre(minimum(degree, highest), size, theta, highest)
    odd = size - 2 * (size // 2)
    value = where((order < 0) & (odd == 1), -value, value)
    return OPS["complex"](value * cos(order * phi), value * sin(order * phi))
