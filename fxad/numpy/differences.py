"""Differences of neighbours, and what comes of them: gradients, integrals, unwrapped angles.

diff(cumsum(x), prepend=0) == x      gradient(y, dx)      trapezoid(y, x)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError
from fxad.ir.program import OPS
from fxad.numpy.core import asarray, axis_index, cast, promoted, shape_items, spread_to, value_of
from fxad.numpy.cumulative import cumsum
from fxad.numpy.elementwise import where
from fxad.numpy.joining import concatenate
from fxad.numpy.manipulation import moveaxis, reshape, slice_axis
from fxad.numpy.reductions import sum
from fxad.numpy.weak import gives_strong, strong
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["diff", "ediff1d", "gradient", "trapezoid", "unwrap"]


@replayed
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """Differences of neighbours, n times. `prepend` and `append` lengthen the axis first; numbers
    count as one element of it.

    >>> jnp.diff(jnp.array([1, 4, 9, 16]))
    Array([3, 5, 7], dtype=int32)
    >>> jnp.diff(jnp.array([1, 4, 9, 16]), n=2)
    Array([2, 2], dtype=int32)
    """
    value = value_of(a)
    if value.ndim == 0:
        raise ShapeError("diff: expects an array with at least one axis, got a 0-d one")
    if n < 0:
        raise BadArgument(f"diff: n must not be negative, got {n}")
    at = axis_index(axis, value.ndim, "diff")
    ends = [_edge(edge, value, at) for edge in (prepend, append)]
    parts = [p for p in (ends[0], value, ends[1]) if p is not None]
    if len(parts) > 1:
        parts = promoted("diff", *parts, numbers=False, broadcast=False)
        value = OPS["concatenate"](*parts, axis=at)
    for _ in range(n):
        length = value.shape[at]
        upper, lower = (
            slice_axis(value, at, 1 if length else 0, length),
            slice_axis(value, at, 0, length - 1 if length else 0),
        )
        value = upper != lower if value.dtype == dt.bool_ else upper - lower
    return value


def _edge(edge: Any, value: Array, axis: int) -> Array | None:
    if edge is None:
        return None
    given = value_of(edge, "diff")
    if given.ndim:
        return given
    shape = tuple(1 if i == axis else size for i, size in enumerate(value.shape))
    return spread_to(given, shape)


@replayed
def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Array:
    """Integral by the trapezoidal rule.

    >>> jnp.trapezoid(jnp.array([0.0, 1.0, 4.0]), dx=0.5)
    Array(1.5, dtype=float32)
    """
    value = moveaxis(promoted("trapezoid", y, inexact=True, numbers=False)[0], axis, -1)
    step = dx if x is None else diff(value_of(x))
    return sum((value[..., 1:] + value[..., :-1]) * 0.5 * step, -1)


@replayed
def gradient(
    f: Any, *varargs: Any, axis: int | Sequence[int] | None = None, edge_order: int | None = None
) -> Any:
    """Central differences along every axis (or the given ones); one-sided at the ends.

    varargs: one spacing for all axes, or one per axis: a number, or the points' coordinates.

    >>> jnp.gradient(jnp.array([0.0, 1.0, 4.0, 9.0]))
    Array([1., 2., 4., 5.], dtype=float32)
    """
    if edge_order not in (None, 1):
        raise BadArgument(f"gradient: edge_order must be 1, not {edge_order!r}")
    value = value_of(f)
    value = cast(value, dt.inexact_for(value.dtype))
    axes = [axis_index(a, value.ndim, "gradient") for a in _listed(axis, value.ndim)]
    steps = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(steps) != len(axes):
        raise BadArgument(f"gradient: {len(varargs)} spacings for {len(axes)} axes")
    out = [_gradient(value, a, h) for a, h in zip(axes, steps, strict=True)]
    return out[0] if len(out) == 1 else out


def _listed(axis: Any, ndim: int) -> Sequence[int]:
    return range(ndim) if axis is None else shape_items(axis)


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
    """Differences of neighbours of the flattened array, with elements before and after them.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_begin=0)
    Array([0, 3, 5], dtype=int32)
    """
    flat = reshape(value_of(ary), (-1,))
    parts = [None if v is None else reshape(asarray(v), (-1,)) for v in (to_begin, to_end)]
    before, after = (None if p is None else cast(p, flat.dtype) for p in parts)
    found = [p for p in (before, flat[1:] - flat[:-1], after) if p is not None]
    return concatenate(found) if len(found) == 1 else strong(concatenate(found))


@replayed
@gives_strong
def unwrap(p: Any, discont: float | None = None, axis: int = -1, period: float = 2 * math.pi):
    """Jumps of more than half a period along an axis made small by whole periods. Integers stay
    integers where the period is one.

    >>> jnp.unwrap(jnp.array([0.0, 3.0, -3.0])).round(3)
    Array([0.   , 3.   , 3.283], dtype=float32)
    """
    value = value_of(p)
    own, half = value.dtype, period / 2
    whole = dt.is_integer(own) and isinstance(period, int)
    if whole:
        value, half = cast(value, own if dt.is_signed(own) else dt.int32), period // 2
    else:
        value = cast(value, dt.inexact_for(own))
    at = axis_index(axis, value.ndim, "unwrap")
    size = value.shape[at]
    step = slice_axis(value, at, 1, size) - slice_axis(value, at, 0, size - 1)
    folded = (step + half) % period - half
    if not (whole and period % 2):  # else minus half a period is rounded, and nothing jumps by it
        folded = where((folded == -half) & (step > 0), half, folded)
    change = where(abs(step) < (period / 2 if discont is None else discont), 0, folded - step)
    out = concatenate(
        [slice_axis(value, at, 0, 1), slice_axis(value, at, 1, size) + cumsum(change, at)], at
    )
    return cast(out, own) if whole else out
