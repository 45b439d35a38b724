"""Covariances, finite differences, polynomials, windows.

cov(x)        gradient(y, dx)        polyval([1, 0, 2], x)
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.core.promotion import result_type
from fxad.ir.program import OPS
from fxad.numpy.core import asarray, axis_index, cast, value_of
from fxad.numpy.creation import arange, zeros
from fxad.numpy.elementwise import cos, multiply, sqrt, where
from fxad.numpy.joining import concatenate
from fxad.numpy.linear import convolve, outer
from fxad.numpy.reductions import mean, sum
from fxad.numpy.running import cumsum
from fxad.numpy.shaping import broadcast_shapes, broadcast_to, reshape, slice_axis
from fxad.trace.array import Array
from fxad.trace.replay import replayed

# ---------------------------------------------------------------- covariance, differences


@replayed
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Array:
    """Covariance matrix of the variables in the rows (columns if not rowvar).

    fweights: how often each observation counts (integers); aweights: how much (floats).
    """
    value = value_of(m)
    if value.ndim > 2:
        raise ShapeError(f"cov: needs one or two axes, not {value.type}")
    value = cast(value, dt.inexact_for(value.dtype))
    rows = reshape(value, (1, -1)) if value.ndim < 2 else value if rowvar else value.T
    if y is not None:
        other = value_of(y)
        more = reshape(other, (1, -1)) if other.ndim < 2 else other if rowvar else other.T
        rows = concatenate([rows, more])
    less = (0 if bias else 1) if ddof is None else ddof
    if fweights is None and aweights is None:
        centred = rows - mean(rows, 1, keepdims=True)
        count = rows.shape[1]
        # without observations nothing is known: 0 / 0 is NaN, as NumPy and JAX have it
        out = (centred @ centred.conj().T) / (count and count - less)
    else:
        out = _weighted_covariance(rows, fweights, aweights, less)
    return out[0, 0] if out.shape == (1, 1) else out


def _weighted_covariance(rows: Array, fweights: Any, aweights: Any, less: Any) -> Array:
    """NumPy's: the weights' sum, lessened by `less` times their mean share of reliability."""
    given = [cast(asarray(w), rows.dtype) for w in (fweights, aweights) if w is not None]
    for weights in given:
        if weights.shape != rows.shape[1:]:
            raise ShapeError(f"cov: weights {weights.type} for {rows.shape[1]} observations")
    weights = given[0] * given[1] if len(given) == 2 else given[0]
    total = sum(weights)
    lost = less if aweights is None else less * sum(weights * given[-1]) / total
    centred = rows - sum(rows * weights, 1, keepdims=True) / total
    return ((centred * weights) @ centred.conj().T) / (total - lost)


@replayed
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Array:
    """Correlation coefficients of the variables in the rows."""
    matrix = cov(x, y, rowvar)
    if matrix.ndim == 0:
        return matrix / matrix
    spread = sqrt(matrix.diagonal().real)
    return matrix / outer(spread, spread)


@replayed
def gradient(f: Any, *varargs: Any, axis: int | Sequence[int] | None = None) -> Any:
    """Central differences along every axis (or the given ones); one-sided at the ends.

    varargs: one spacing for all axes, or one per axis: a number, or the points' coordinates.
    """
    value = value_of(f)
    value = cast(value, dt.inexact_for(value.dtype))
    axes = [axis_index(a, value.ndim, "gradient") for a in _listed(axis, value.ndim)]
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise BadArgument(f"gradient: {len(varargs)} spacings for {len(axes)} axes")
    out = [_gradient(value, a, h) for a, h in zip(axes, steps, strict=True)]
    return out[0] if len(out) == 1 else out


def _listed(axis: Any, ndim: int) -> Sequence[int]:
    if axis is None:
        return range(ndim)
    return axis if isinstance(axis, tuple | list) else (axis,)


def _gradient(value: Array, axis: int, step: Any) -> Array:
    size = value.shape[axis]
    if size < 2:
        raise ShapeError(f"gradient: axis {axis} of {value.type} needs two points or more")

    def cut(start: int, stop: int) -> Array:
        return slice_axis(value, axis, start, stop)

    if np.ndim(step):
        return _gradient_at(cut, size, cast(asarray(step), value.dtype), value, axis)
    first = (cut(1, 2) - cut(0, 1)) / step
    last = (cut(size - 1, size) - cut(size - 2, size - 1)) / step
    middle = (cut(2, size) - cut(0, size - 2)) / (2 * step) if size > 2 else cut(0, 0)
    return concatenate([first, middle, last], axis)


def _gradient_at(cut: Any, size: int, places: Array, value: Array, axis: int) -> Array:
    """Second-order differences at uneven places (Fornberg), one-sided at the ends."""
    if places.shape != (size,):
        raise ShapeError(f"gradient: coordinates {places.type} for axis {axis} of {value.type}")
    along = tuple(-1 if i == axis else 1 for i in range(value.ndim))
    gaps = reshape(places[1:] - places[:-1], along)
    back, ahead = slice_axis(gaps, axis, 0, size - 2), slice_axis(gaps, axis, 1, size - 1)
    slopes = (cut(1, size) - cut(0, size - 1)) / gaps
    before, after = slice_axis(slopes, axis, 0, size - 2), slice_axis(slopes, axis, 1, size - 1)
    middle = (before * ahead + after * back) / (back + ahead)
    ends = slice_axis(slopes, axis, 0, 1), slice_axis(slopes, axis, size - 2, size - 1)
    return concatenate([ends[0], middle, ends[1]], axis)


@replayed
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """Differences of neighbours of the flattened array, with elements before and after them."""
    flat = reshape(value_of(ary), (-1,))
    parts = [None if v is None else reshape(asarray(v), (-1,)) for v in (to_begin, to_end)]
    before, after = (None if p is None else cast(p, flat.dtype) for p in parts)
    found = [p for p in (before, flat[1:] - flat[:-1], after) if p is not None]
    return concatenate(found)


# ---------------------------------------------------------------- polynomials


@replayed
def polyval(p: Any, x: Any) -> Array:
    """The polynomial p[0] x^n + ... + p[n] by Horner's rule; 0 without coefficients.

    Raises ShapeError if p has no axis.
    """
    coefficients, value = asarray(p), value_of(x)
    if not coefficients.ndim:
        raise ShapeError(f"polyval: coefficients need an axis, not {coefficients.type}")
    shape = broadcast_shapes(coefficients.shape[1:], value.shape)
    total = zeros(shape, result_type(coefficients, value))
    for i in range(coefficients.shape[0]):
        total = total * value + coefficients[i]
    return total


@replayed
def polyadd(a1: Any, a2: Any) -> Array:
    """Sum of two polynomials, highest power first."""
    x, y = asarray(a1), asarray(a2)
    size = builtins.max(x.shape[0], y.shape[0])
    return _padded(x, size) + _padded(y, size)


@replayed
def polysub(a1: Any, a2: Any) -> Array:
    """Difference of two polynomials, highest power first."""
    return polyadd(a1, -asarray(a2))


def _padded(value: Array, size: int) -> Array:
    return concatenate([zeros(size - value.shape[0], value.dtype), value])


@replayed
def polymul(a1: Any, a2: Any) -> Array:
    """Product of two polynomials, highest power first."""
    return convolve(asarray(a1), asarray(a2))


@replayed
def polyder(p: Any, m: int = 1) -> Array:
    """m-th derivative of a polynomial, highest power first."""
    value = asarray(p)
    for _ in range(m):
        powers = arange(value.shape[0] - 1, 0, -1)
        value = value[:-1] * cast(powers, value.dtype)
    return value


@replayed
def polyint(p: Any, m: int = 1, k: Any = None) -> Array:
    """m-th antiderivative of a polynomial, highest power first; k: the constants (0), one for all
    or one per integration."""
    value = asarray(p)
    value = cast(value, dt.inexact_for(value.dtype))
    constants = zeros(m, value.dtype) if k is None else cast(asarray(k), value.dtype)
    constants = broadcast_to(constants, (m,))
    for i in range(m):
        powers = cast(arange(value.shape[0], 0, -1), value.dtype)
        value = concatenate([value / powers, constants[i : i + 1]])
    return value


# ---------------------------------------------------------------- windows, small things


def _cosines(name: str, *weights: float) -> Any:
    def window(M: int) -> Array:
        if M < 2:
            return asarray(np.ones(builtins.max(M, 0), dt.default_float()))
        turn = cast(arange(M), dt.default_float()) * (2 * math.pi / (M - 1))
        total = weights[0] + 0 * turn
        for k, weight in enumerate(weights[1:], 1):
            total = total + weight * cos(k * turn)
        return total

    window.__name__ = name
    window.__doc__ = f"The {name} window of M points."
    return window


hanning = _cosines("hanning", 0.5, -0.5)
hamming = _cosines("hamming", 0.54, -0.46)
blackman = _cosines("blackman", 0.42, -0.5, 0.08)


def bartlett(M: int) -> Array:
    """The triangular window of M points, 0 at both ends."""
    return asarray(np.bartlett(M).astype(dt.default_float()))


def kaiser(M: int, beta: float) -> Array:
    """The Kaiser window of M points: I0(beta sqrt(1 - t^2)) / I0(beta) for t from -1 to 1."""
    return asarray(np.kaiser(M, beta).astype(dt.default_float()))


@replayed
def matvec(x1: Any, x2: Any, /) -> Array:
    """Matrices times vectors over leading axes."""
    x, y = value_of(x1), value_of(x2)
    return (x @ reshape(y, (*y.shape, 1)))[..., 0]


@replayed
def vecmat(x1: Any, x2: Any, /) -> Array:
    """Vectors times matrices over leading axes."""
    x, y = value_of(x1), value_of(x2)
    return (reshape(x.conj(), (*x.shape[:-1], 1, x.shape[-1])) @ y)[..., 0, :]


@replayed
def modf(x: Any) -> tuple[Array, Array]:
    """Fractional and whole part, both with the sign of x."""
    value = value_of(x)
    whole = OPS["trunc"](value)
    return where(value == whole, multiply(value, 0.0), value - whole), whole


@replayed
def unwrap(p: Any, discont: float | None = None, axis: int = -1, period: float = 2 * math.pi):
    """Jumps of more than half a period along an axis made small by whole periods."""
    value = value_of(p)
    value = cast(value, dt.inexact_for(value.dtype))
    at, half = axis_index(axis, value.ndim, "unwrap"), period / 2
    size = value.shape[at]
    step = slice_axis(value, at, 1, size) - slice_axis(value, at, 0, size - 1)
    folded = (step + half) % period - half
    folded = where((folded == -half) & (step > 0), half, folded)
    change = where(abs(step) < (half if discont is None else discont), 0.0, folded - step)
    return concatenate(
        [slice_axis(value, at, 0, 1), slice_axis(value, at, 1, size) + cumsum(change, at)], at
    )
