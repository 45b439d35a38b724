"""Elements added around the edges of an array.

pad([1, 2, 3], 2, mode="reflect")                   # 3 2 1 2 3 2 1
pad([1, 2, 3], (1, 2), mode="linear_ramp")          # 0 1 2 3 1.5 0, in floats
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fxad.core import dtypes as dt
from fxad.core.errors import BadArgument, ShapeError, TypeMismatch, UnsupportedError
from fxad.core.pytree import leaves
from fxad.core.types import ArrayType
from fxad.ir.program import OPS
from fxad.numpy.core import asarray, axis_index, cast, full_of, spread_to, value_of
from fxad.numpy.functional import apply_along_axis
from fxad.numpy.manipulation import broadcast_to, flip, slice_axis
from fxad.numpy.reductions import max, mean, min
from fxad.numpy.rounding import floor, rint
from fxad.numpy.statistics import median
from fxad.numpy.weak import weak_as_first
from fxad.trace.array import Array
from fxad.trace.replay import replayed

__all__ = ["pad"]

_COPIES = ("edge", "reflect", "symmetric", "wrap")
_STATISTICS: dict[str, Callable[..., Array]] = {
    "maximum": max,
    "mean": mean,
    "median": median,
    "minimum": min,
}
_OPTIONS = {
    "constant": "constant_values", "linear_ramp": "end_values", "reflect": "reflect_type",
    "symmetric": "reflect_type", **dict.fromkeys(_STATISTICS, "stat_length"),
}  # fmt: skip
_MODES = ("constant", "empty", *_COPIES, *_STATISTICS, "linear_ramp")


@replayed
@weak_as_first
def pad(
    array: Any,
    pad_width: Any,
    mode: str | Callable[..., Any] = "constant",
    constant_values: Any = None,
    *,
    end_values: Any = None,
    stat_length: Any = None,
    reflect_type: str | None = None,
    **kwargs: Any,
) -> Array:
    """Elements added around the edges.

    pad_width: a number, (before, after), one such pair per axis, or a dict {axis: pair}.
    mode: "constant" (constant_values, 0 by default), "empty", "edge", "reflect" and "symmetric"
    (reflect_type "even", the default, or "odd": twice the edge minus the reflection), "wrap",
    "linear_ramp" (towards end_values, 0 by default), or "maximum", "mean", "median", "minimum" of
    the stat_length elements at that edge (of all); or a function of a vector with zeros around it,
    its (before, after), the number of its axis and the dict `kwargs`, which gives the padded vector
    and is called for each lane of every axis. Raises BadArgument for another mode's option.

    >>> jnp.pad(jnp.array([1, 2]), (1, 2))
    Array([0, 1, 2, 0, 0], dtype=int32)
    >>> jnp.pad(jnp.array([1, 2, 3]), 1, mode="reflect")
    Array([2, 1, 2, 3, 2], dtype=int32)
    """
    value = value_of(array)
    widths = _widths(pad_width, value)
    if callable(mode):
        return _padded_by(mode, _pad_constant(value, widths, 0), widths, kwargs)
    if kwargs:
        raise BadArgument(f"pad: mode {mode!r} takes no {', '.join(kwargs)}")
    if mode not in _MODES:
        raise UnsupportedError(f"pad: unknown mode {mode!r}, not one of {', '.join(_MODES)}")
    given = {"constant_values": constant_values, "end_values": end_values}
    given |= {"stat_length": stat_length, "reflect_type": reflect_type}
    for option, choice in given.items():
        if choice is not None and option != _OPTIONS.get(mode):
            raise BadArgument(f"pad: {option} is no option of mode {mode!r}")
    if mode in ("constant", "empty"):
        return _pad_constant(value, widths, 0 if constant_values is None else constant_values)
    end_values = 0 if end_values is None else end_values
    if reflect_type not in (None, "even", "odd"):
        raise BadArgument(f"pad: reflect_type must be 'even' or 'odd', not {reflect_type!r}")
    for axis, (low, high) in enumerate(widths.tolist()):
        if not low and not high:
            continue
        if not value.shape[axis]:
            raise ShapeError(f"pad: axis {axis} of {value.type} has no element to go on from")
        if mode == "linear_ramp":
            value = _ramps(value, axis, low, high, _pair(end_values, value.ndim, axis))
        elif mode in _STATISTICS:
            lengths = _pair(stat_length, value.ndim, axis)
            value = _statistics(value, axis, low, high, lengths, _STATISTICS[mode])
        elif mode in ("reflect", "symmetric") and reflect_type == "odd":
            value = _odd(value, axis, low, high, 1 if mode == "reflect" else 0)
        else:
            value = _copied(value, axis, low, high, mode)
    return value


def _padded_by(
    function: Callable[..., Any], value: Array, widths: np.ndarray, options: dict[str, Any]
) -> Array:
    for axis, (low, high) in enumerate(widths.tolist()):
        value = apply_along_axis(function, axis, value, (low, high), axis, options)
    return value


def _copied(value: Array, axis: int, low: int, high: int, mode: Any) -> Array:
    """Elements of the array again, in an order that NumPy gives."""
    positions = np.pad(np.arange(value.shape[axis]), (low, high), mode=mode)
    return value[(slice(None),) * axis + (positions.astype(dt.index_dtype(value.shape[axis])),)]


def _widths(pad_width: Any, value: Array) -> np.ndarray:
    """[axes, (before, after)]."""
    if isinstance(pad_width, dict):
        widths = np.zeros((value.ndim, 2), int)
        for axis, pair in pad_width.items():
            widths[axis_index(axis, value.ndim, "pad")] = _ints(pair)
    else:
        widths = np.broadcast_to(_ints(pad_width), (value.ndim, 2))
    if (widths < 0).any():
        raise ShapeError(f"pad: widths must not be negative, got {widths.tolist()}")
    return widths


def _ints(given: Any) -> np.ndarray:
    """Widths as int64, of ints of any size."""
    found = np.asarray(given, object)
    try:
        widths = [operator.index(n) for n in found.flat]
    except TypeError:
        raise TypeMismatch(f"pad: widths must be ints, not {given!r}") from None
    if any(abs(n) >= 2**48 for n in widths):
        raise ShapeError(f"pad: widths {given!r} are more than memory can hold")
    return np.array(widths, int).reshape(found.shape)


def _pair(given: Any, ndim: int, axis: int) -> list[Any]:
    """An option's values before and after one axis."""
    return list(np.broadcast_to(np.asarray(given), (ndim, 2))[axis])


def _end(value: Array, axis: int, side: int, length: int) -> Array:
    """So many elements at one end of an axis."""
    start = 0 if side == 0 else value.shape[axis] - length
    return slice_axis(value, axis, start, start + length)


def _joined(before: Array, value: Array, after: Array, axis: int) -> Array:
    parts = [cast(p, value.dtype) for p in (before, value, after)]
    return OPS["concatenate"](*[p for p in parts if p.shape[axis]], axis=axis)


def _statistics(
    value: Array, axis: int, low: int, high: int, lengths: list[Any], reduce: Callable[..., Array]
) -> Array:
    size = value.shape[axis]
    sides = []
    for side, (width, length) in enumerate(zip((low, high), lengths, strict=True)):
        if length is not None and length < 1:
            raise BadArgument(f"pad: stat_length must be at least 1, got {length}")
        seen = size if length is None else int(np.minimum(length, size))
        one = reduce(_end(value, axis, side, seen), axis=axis, keepdims=True)
        one = one if one.dtype == value.dtype else rint(one)  # a mean of integers
        sides.append(_repeated(one, axis, width))
    return _joined(sides[0], value, sides[1], axis)


def _repeated(one: Array, axis: int, width: int) -> Array:
    return spread_to(one, (*one.shape[:axis], width, *one.shape[axis + 1 :]))


def _ramps(value: Array, axis: int, low: int, high: int, ends: list[Any]) -> Array:
    """Steps from an end value up to, not including, the edge."""
    sides = []
    for side, (width, end) in enumerate(zip((low, high), ends, strict=True)):
        wide = cast(_end(value, axis, side, 1), dt.inexact_for(value.dtype))
        steps = np.arange(width) / np.maximum(width, 1)
        shape = tuple(width if i == axis else 1 for i in range(value.ndim))
        steps = steps[::-1] if side else steps
        shares = cast(value_of(steps.reshape(shape)), wide.dtype)
        ramp = shares * (wide - end.item()) + end.item()
        sides.append(ramp if dt.is_inexact(value.dtype) else floor(ramp))
    return _joined(sides[0], value, sides[1], axis)


def _odd(value: Array, axis: int, low: int, high: int, skip: int) -> Array:
    """Twice the edge minus the reflection, as often as it takes."""
    if value.shape[axis] == 1:
        return _joined(_repeated(value, axis, low), value, _repeated(value, axis, high), axis)
    while low or high:
        size = value.shape[axis]
        sides = []
        for side, width in enumerate((low, high)):
            width = int(np.minimum(width, size - skip))
            start = skip if side == 0 else size - skip - width
            mirrored = flip(slice_axis(value, axis, start, start + width), axis)
            sides.append(_end(value, axis, side, 1) * 2 - mirrored)
        value = _joined(sides[0], value, sides[1], axis)
        low, high = low - sides[0].shape[axis], high - sides[1].shape[axis]
    return value


def _pad_constant(value: Array, widths: np.ndarray, constants: Any) -> Array:
    """With one number all around, or with a number per side (or pair of sides), axis after axis."""
    if any(isinstance(leaf, Array) for leaf in leaves(constants)):
        given = cast(asarray(constants), value.dtype)
        if not given.shape:
            return _surrounded(value, widths, given)
        fills = broadcast_to(given, (value.ndim, 2))
        return _side_by_side(value, widths, lambda side: fills[side])
    known = np.broadcast_to(np.asarray(constants), (value.ndim, 2))
    alone = ArrayType(value.dtype, ())
    if np.unique(known).size == 1:  # NaN counts as equal to NaN
        return _surrounded(value, widths, full_of(known.flat[0].item(), alone))
    return _side_by_side(value, widths, lambda side: full_of(known[side].item(), alone))


def _side_by_side(
    value: Array, widths: np.ndarray, fill: Callable[[tuple[int, int]], Array]
) -> Array:
    for side in np.ndindex(*widths.shape):
        one = np.zeros_like(widths)
        one[side] = widths[side]
        value = _surrounded(value, one, fill(side))
    return value


def _surrounded(value: Array, widths: np.ndarray, fill: Array) -> Array:
    low, high = (tuple(side.tolist()) for side in widths.T)
    return OPS["pad"](value, fill, low=low, high=high, interior=(0,) * value.ndim)
