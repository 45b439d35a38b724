"""Window functions of M points.

spectrum = fft.rfft(signal * hanning(signal.size))
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import ShapeError
from fxad.numpy.core import asarray, cast
from fxad.numpy.creation import arange
from fxad.numpy.elementwise import abs, cos, exp
from fxad.numpy.reductions import mean
from fxad.trace.array import Array
from fxad.trace.tracer import Tracer

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _cosines(name: str, inner: str, *weights: float) -> Any:
    """inner: the three inner ones of five points."""

    def window(M: int) -> Array:
        if M < 2:
            return asarray(np.ones(builtins.max(M, 0), dt.default_float()))
        turn = cast(arange(M), dt.default_float()) * (2 * math.pi / (M - 1))
        total = weights[0] + 0 * turn
        for k, weight in enumerate(weights[1:], 1):
            total = total + weight * cos(k * turn)
        return total

    window.__name__ = name
    window.__doc__ = f"""The {name} window of M points.

    >>> jnp.{name}(5)[1:4].round(2)
    Array({inner}, dtype=float32)
    """
    return window


hanning = _cosines("hanning", "[0.5, 1. , 0.5]", 0.5, -0.5)


hamming = _cosines("hamming", "[0.54, 1.  , 0.54]", 0.54, -0.46)


blackman = _cosines("blackman", "[0.34, 1.  , 0.34]", 0.42, -0.5, 0.08)


def bartlett(M: int) -> Array:
    """The triangular window of M points, 0 at both ends.

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return asarray(np.bartlett(M).astype(dt.default_float()))


def kaiser(M: int, beta: Any) -> Array:
    """The Kaiser window of M points: I0(beta sqrt(1 - t^2)) / I0(beta) for t from -1 to 1. beta may
    be traced.

    >>> jnp.kaiser(5, 8.6).round(3)
    Array([0.001, 0.34 , 1.   , 0.34 , 0.001], dtype=float32)
    """
    if M < 2:
        return asarray(np.ones(builtins.max(M, 0), dt.default_float()))
    if not isinstance(beta, Tracer):
        return asarray(np.kaiser(M, beta).astype(dt.default_float()))
    if beta.ndim:
        raise ShapeError(f"kaiser: beta must be one number, not {beta.type}")
    # `scipy.special.i0e` is made of this package, which cannot import it.
    # I0(x) is the mean of exp(x cos t) over half a circle. That of 64 points is as good in float32
    # up to |beta| = 300: its error falls as exp(-8192 / x).
    turns = np.cos((np.arange(64) + 0.5) * (np.pi / 64))
    heights = np.append(np.sqrt(1 - np.linspace(-1, 1, M) ** 2), 1.0)
    powers = abs(beta) * (np.multiply.outer(heights, turns) - 1).astype(dt.default_float())
    means = mean(exp(powers), -1)
    return means[:-1] / means[-1]
